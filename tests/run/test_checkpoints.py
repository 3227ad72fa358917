"""Which folders are checkpoints."""

from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from heedful.run.checkpoint import checkpoints


def test_empty_folders_and_files_are_no_checkpoints(tmp_path: Path) -> None:
    for name in ("step_000002", "step_000010", "step_000009", ".step_000011.part", "notes"):
        (tmp_path / name).mkdir()
    for name in ("step_000002", "step_000010", ".step_000011.part"):
        (tmp_path / name / "state.json").write_text("{}")
    (tmp_path / "step_000012").write_text("")
    assert [(each.path.name, each.version) for each in checkpoints(tmp_path)] == [
        ("step_000002", 2),
        ("step_000010", 10),
    ]
