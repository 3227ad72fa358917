"""The cache of models: a folder that was damaged after it was made is told as one."""

from pathlib import Path

import pytest

from heedful.models.cache import is_kept, keep


def write(folder: Path) -> None:
    (folder / "config.json").write_text("{}")
    (folder / "weights").write_bytes(bytes(2_000))


def test_a_folder_is_kept_once_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "models" / "one"
    assert not is_kept(path, "")
    keep(path, write)
    assert is_kept(path, "")
    (path / ".contents").unlink()  # a folder that is older than the list
    assert is_kept(path, "")


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("config.json", None, r"Expected 2 bytes in .*config\.json, found no such file"),
        ("weights", b"cut", r"Expected 2,000 bytes in .*weights, found 3 bytes"),
        (".contents", b"[]", "Expected names and lengths of files in .*contents, found"),
        (".contents", b'{"weights": "a', "Expected names and lengths of files in .*contents, found"),
        (
            ".contents",
            b'{"weights": null}',
            "Expected names and lengths of files in .*contents, found .'weights': None",
        ),
        (".contents", b"null", "Expected names and lengths of files in .*contents, found None"),
    ],
)
def test_a_damaged_folder_is_a_sentence(tmp_path: Path, name: str, change: bytes | None, said: str) -> None:
    path = tmp_path / "one"
    keep(path, write)
    if change is None:
        (path / name).unlink()
    else:
        (path / name).write_bytes(change)
    with pytest.raises(ValueError, match=said + rf".*Delete the folder {path} to make it again\."):
        is_kept(path, "to make it again")


@pytest.mark.parametrize("linked", [True, False])
def test_what_is_no_folder_is_told_before_anything_is_made(linked: bool, tmp_path: Path) -> None:
    path = tmp_path / "one"
    path.symlink_to(tmp_path / "nowhere") if linked else path.write_text("x")
    with pytest.raises(ValueError, match=r"found a file or a link to nothing\. Delete it to make it again\."):
        is_kept(path, "to make it again")
