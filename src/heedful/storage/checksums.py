"""Checksums of a folder's files, written with them: a later change of any file is noticed and named.

Folders of older versions have no such list and are not checked. A folder that has one says so in another file as well.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from heedful.boundary.folders import files_below
from heedful.boundary.jsontext import read_json
from heedful.boundary.open_files import open_file, path_of
from heedful.storage.files import write_whole

CHECKSUMS = "checksums.json"
LISTED = "checksums"
"""In the `state.json` of a checkpoint: it was written with a list of checksums."""


def write_checksums(folder: Path) -> None:
    """List size and SHA-256 of every file in `folder`, those in its folders included, in `checksums.json`."""
    folder = path_of(folder, "the folder of a list of checksums")
    tree = {"files": {name: _described(folder / name) for name in _files(folder)}}
    write_whole(folder / CHECKSUMS, json.dumps(tree, indent=1, sort_keys=True) + "\n")


def check_folder(folder: Path, remedy: str, *, listed: bool = False) -> None:
    """Compare every file of `folder` with its list. `remedy`: the last sentence of the error.

    `listed`: the folder was written with a list, so that one that is gone was deleted.

    Raises:
        ValueError: a file has changed, is missing or is new, or the list is gone or cannot be read. One line per file.
    """
    path = folder / CHECKSUMS
    if not path.exists():
        if listed:
            raise ValueError(
                f"Expected the checksums with which {folder} was written in {path}, found no such file, so nothing "
                f"shows that the folder is as it was. {remedy}"
            )
        return
    try:
        sums = {str(name): (int(each["size"]), str(each["sha256"])) for name, each in read_json(path)["files"].items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"Expected the checksums of a folder in {path}, found {error}. {remedy}") from error
    found = _files(folder)
    wrong = [f"{folder / name}: expected a file, found none" for name in sums if name not in found]
    wrong += [f"{folder / name}: expected no such file, found one" for name in found if name not in sums]
    for name in found:
        if name in sums and (sentence := _difference(folder / name, *sums[name])):
            wrong.append(f"{folder / name}: {sentence}")
    if wrong:
        raise ValueError(f"{folder} has changed since it was written.\n  " + "\n  ".join([*wrong[:10], remedy]))


def check_model(source: str | Path) -> None:
    """The same for a model that the user named, if it is a checkpoint of a run. Other models have no such list."""
    state = path_of(source, "the folder of a model") / "state.json"
    if state.is_file():
        try:
            tree = read_json(state)
        except (OSError, ValueError):
            tree = None  # the list, if there is one, says that it has changed
        listed = isinstance(tree, dict) and tree.get(LISTED) is True
        check_folder(Path(source), "Restore it, or give another model.", listed=listed)


def _files(folder: Path) -> list[str]:
    """The files of a folder, with `/` between the parts of a name. Hidden ones are the system's, not ours."""
    paths = sorted(here / name for here, names in files_below(folder) for name in names if not name.startswith("."))
    return [name for path in paths if (name := str(path.relative_to(folder))) != CHECKSUMS]


def _difference(file: Path, size: int, sha256: str) -> str:
    """What is wrong with a file, as a phrase; empty if nothing is."""
    try:
        if file.is_symlink():
            return "expected a file, found a symbolic link"
        if (now := file.stat().st_size) != size:
            return f"expected {size:,} bytes, found {now:,}"
        digest = str(_described(file)["sha256"])
    except OSError as error:
        return f"expected a file that can be read, found {error.strerror}"
    return "" if digest == sha256 else f"expected SHA-256 {sha256[:12]}..., found {digest[:12]}..."


def _described(file: Path) -> dict[str, int | str]:
    with open_file(file) as stream:
        return {"size": file.stat().st_size, "sha256": hashlib.file_digest(stream, "sha256").hexdigest()}
