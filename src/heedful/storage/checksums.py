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


def changed_files(folder: Path) -> list[str]:
    """A phrase for each file of `folder` that is not as its list says. Empty for a folder without a list."""
    path = folder / CHECKSUMS
    if not path.exists():
        return []
    try:
        expected = {name: (each["size"], each["sha256"]) for name, each in read_json(path)["files"].items()}
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        return [f"{path}: expected the checksums of the folder, found {error}"]
    found = _files(folder)
    changed = [f"{folder / name}: expected a file, found none" for name in expected if name not in found]
    changed += [f"{folder / name}: expected no such file, found one" for name in found if name not in expected]
    for name in filter(expected.__contains__, found):
        (size, digest), now = expected[name], _described(folder / name)
        if size != now["size"]:
            changed.append(f"{folder / name}: expected {size:,} bytes, found {now['size']:,}")
        elif digest != now["sha256"]:
            changed.append(f"{folder / name}: expected SHA-256 {digest:.12}..., found {now['sha256']:.12}...")
    return changed


def demand_unchanged(folder: Path, remedy: str) -> None:
    """Raise ValueError for a folder whose files have changed, one line per file. `remedy`: the last line."""
    if changed := changed_files(folder):
        raise ValueError(f"{folder} has changed since it was written.\n  " + "\n  ".join([*changed[:10], remedy]))


def check_model(source: str | Path) -> None:
    """The same for a model that the user named, if it is a checkpoint of a run. Other models have no such list."""
    if (Path(source) / "state.json").is_file():
        demand_unchanged(Path(source), "Restore it, or give another model.")


def _files(folder: Path) -> list[str]:
    """The files of a folder, with `/` between the parts of a name. Hidden ones are the system's, not ours."""
    paths = (path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
    return sorted(name for path in paths if (name := str(path.relative_to(folder))) != CHECKSUMS)


def _described(file: Path) -> dict[str, int | str]:
    with open_file(file) as stream:
        return {"size": file.stat().st_size, "sha256": hashlib.file_digest(stream, "sha256").hexdigest()}
