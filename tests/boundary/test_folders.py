"""Folders of any depth: more of them than Python's functions may call themselves."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from heedful.boundary.folders import files_below, make_folder


@pytest.fixture
def deep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A path of more folders than calls are allowed, none of which is there."""
    monkeypatch.chdir(tmp_path)
    path = Path(*["d"] * (sys.getrecursionlimit() + 200))
    yield path
    (path / "file").unlink(missing_ok=True)
    os.removedirs(path)  # shutil.rmtree, which pytest uses, would end in a RecursionError


def test_a_deep_folder_is_made_and_walked_through(deep: Path) -> None:
    make_folder(deep)
    (deep / "file").write_text("x")
    *above, last = files_below(Path("d"))
    assert last == (deep, ["file"])
    assert above == [(folder, []) for folder in reversed(deep.parents[:-1])]


def test_a_folder_that_is_there_or_a_file_is_told(tmp_path: Path) -> None:
    make_folder(tmp_path)
    with pytest.raises(FileExistsError):
        make_folder(tmp_path, exist_ok=False)
    (tmp_path / "file").write_text("x")
    with pytest.raises(FileExistsError):
        make_folder(tmp_path / "file")
    with pytest.raises(NotADirectoryError):
        make_folder(tmp_path / "file" / "below")


def test_files_are_named_in_order_and_links_to_folders_are_not_followed(tmp_path: Path) -> None:
    for name in ("b", "a/c"):
        make_folder(tmp_path / name)
    for name in ("z", "a/y", "a/x", "b/w", ".hidden"):
        (tmp_path / name).write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "a", target_is_directory=True)
    (tmp_path / "broken").symlink_to(tmp_path / "nowhere")
    assert list(files_below(tmp_path)) == [
        (tmp_path, [".hidden", "broken", "z"]),
        (tmp_path / "a", ["x", "y"]),
        (tmp_path / "a/c", []),
        (tmp_path / "b", ["w"]),
    ]
    assert list(files_below(tmp_path / "nowhere")) == []
