"""Folders of any depth, made and walked through without recursion: a path of 1,000 folders is a legal one.

`Path.mkdir` calls itself once for each folder of a path, and ends in a RecursionError. So do `Path.rglob` and `os.walk`
before Python 3.12.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


def make_folder(path: Path, exist_ok: bool = True) -> None:
    """Make a folder and all above it. Raises OSError."""
    try:
        path.mkdir(exist_ok=exist_ok)
    except FileNotFoundError:
        for above in reversed(path.parents):
            above.mkdir(exist_ok=True)
        path.mkdir(exist_ok=exist_ok)


def files_below(folder: Path) -> Iterator[tuple[Path, list[str]]]:
    """This folder and each below it, in the order of their names, with the names of their files.

    A folder that cannot be read is left out. Links to folders are not followed.
    """
    waiting = [folder]
    while waiting:
        here = waiting.pop()
        try:
            with os.scandir(here) as found:
                entries = sorted(found, key=lambda entry: entry.name)
            below = [here / entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        except OSError:
            continue
        yield here, [entry.name for entry in entries if not os.path.isdir(entry.path)]
        waiting += reversed(below)
