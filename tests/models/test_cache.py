"""The cache of models: a folder is made whole or not at all."""

from pathlib import Path

import pytest

from heedful.models.cache import keep


def test_a_folder_is_kept_once_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "models" / "one"

    def broken(folder: Path) -> None:
        (folder / "weights").write_bytes(bytes(2_000))
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        keep(path, broken)
    assert not list(path.parent.iterdir())
    keep(path, lambda folder: (folder / "config.json").write_text("{}") and None)
    assert [file.name for file in path.iterdir()] == ["config.json"]
