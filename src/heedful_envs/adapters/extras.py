"""The libraries behind the adapters: loaded when they are needed, and named in an error when they are missing.

Asking whether a library is installed does not import it. Loading a library leaves the global random generators
unchanged.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from typing import Any

from heedful_envs.adapters.global_random import OwnRandom

LIBRARIES: Mapping[str, str] = {
    "gymnasium": "gymnasium",
    "reasoning_gym": "reasoning_gym",
    "textarena": "textarena",
    "openenv": "openenv.core",
    "verifiers": "verifiers",
}
"""Environment -> the module of its library that is loaded."""


class MissingLibrary(ImportError):
    """The library of an adapter is not installed, or cannot be loaded here."""


def how_to_install(name: str) -> str:
    """The command that brings the library behind an environment. Extras are spelled with hyphens."""
    return f'pip install "heedful[{name.replace("_", "-")}]"'


def is_installed(name: str) -> bool:
    """Whether the library behind the environment `name` can be found."""
    return importlib.util.find_spec(LIBRARIES[name].partition(".")[0]) is not None


def load_library(name: str, part: str = "") -> Any:
    """The library's module, or a part of it such as `envs.toy_text`.

    Raises MissingLibrary with a sentence that names the extra.
    """
    module = f"{LIBRARIES[name]}.{part}".rstrip(".")
    try:
        with OwnRandom(0):
            return importlib.import_module(module)
    except ImportError as error:
        if is_installed(name):
            raise MissingLibrary(
                f"The library behind {name} is installed, but cannot be loaded here: {error}"
            ) from error
        raise MissingLibrary(
            f"The environment {name} plays those of a library that is not installed. Install it with "
            f"{how_to_install(name)}."
        ) from error
