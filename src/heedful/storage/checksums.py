"""Checksums of a folder's files, written with them: a later change of any file is noticed and named.

Folders of older versions have no such list and are not checked.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from heedful.boundary.jsontext import read_json
from heedful.boundary.open_files import open_file
from heedful.storage.files import write_whole

CHECKSUMS = "checksums.json"


def write_checksums(folder: Path) -> None:
    """List size and SHA-256 of every file in `folder`, those in its folders included, in `checksums.json`."""
    tree = {"files": {name: _described(folder / name) for name in _files(folder)}}
    write_whole(folder / CHECKSUMS, json.dumps(tree, indent=1, sort_keys=True) + "\n")


def check_folder(folder: Path, remedy: str) -> None:
    """Compare every file of `folder` with its list, if it has one. `remedy`: the last sentence of the error.

    Raises:
        ValueError: a file has changed, is missing or is new, or the list cannot be read. One line per file.
    """
    path = folder / CHECKSUMS
    if not path.exists():
        return
    try:
        expected = read_json(path)["files"]
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"Expected the checksums of a folder in {path}, found {error}. {remedy}") from error
    found = {name: _described(folder / name) for name in _files(folder)}
    wrong = [f"{folder / name}: expected a file, found none" for name in expected if name not in found]
    wrong += [f"{folder / name}: expected no such file, found one" for name in found if name not in expected]
    for name in found.keys() & expected.keys():
        was, now = expected[name], found[name]
        if was["size"] != now["size"]:
            wrong.append(f"{folder / name}: expected {was['size']:,} bytes, found {now['size']:,}")
        elif was["sha256"] != now["sha256"]:
            wrong.append(f"{folder / name}: expected SHA-256 {was['sha256']:.12}..., found {now['sha256']:.12}...")
    if wrong:
        raise ValueError(f"{folder} has changed since it was written.\n  " + "\n  ".join([*sorted(wrong)[:10], remedy]))


def check_model(source: str | Path) -> None:
    """The same for a model that the user named, if it is a checkpoint of a run. Other models have no such list."""
    if (Path(source) / "state.json").is_file():
        check_folder(Path(source), "Restore it, or give another model.")


def _files(folder: Path) -> list[str]:
    """The files of a folder, with `/` between the parts of a name. Hidden ones are the system's, not ours."""
    paths = (path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
    return sorted(name for path in paths if (name := str(path.relative_to(folder))) != CHECKSUMS)


def _described(file: Path) -> dict[str, int | str]:
    with open_file(file) as stream:
        return {"size": file.stat().st_size, "sha256": hashlib.file_digest(stream, "sha256").hexdigest()}
