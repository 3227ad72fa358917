"""Damaged files of a run: each reader names the file in a sentence."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("transformers")

import heedful
from heedful.boundary import to_json
from heedful.run.config import TrainConfig
from heedful.storage import read_metrics, read_rollouts, read_scores
from heedful.studies import find_study
from heedful.studies.declaration import read_study, study_to_json

OLD = Path(__file__).parents[1] / "fixtures" / "run_of_0_1_0"

KINDS: dict[str, tuple[str, Callable[[], bytes], Callable[[Path], object]]] = {
    "rollouts": ("step_000000.parquet", (OLD / "rollouts" / "step_000000.parquet").read_bytes, read_rollouts),
    "metrics": ("metrics.jsonl", (OLD / "metrics.jsonl").read_bytes, read_metrics),
    "scores": ("step_000000.npz", next((OLD / "scores").glob("*.npz")).read_bytes, read_scores),
    "configuration": (
        "config.json",
        lambda: json.dumps(to_json(TrainConfig())).encode(),
        lambda path: heedful.Run.open(path.parent),
    ),
    "study": ("study.json", lambda: json.dumps(study_to_json(find_study("smoke"))).encode(), read_study),
}

DAMAGES: dict[str, Callable[[bytes], bytes | None]] = {
    "missing": lambda content: None,
    "truncated": lambda content: content[: len(content) // 2].rstrip(b"\n"),
    "a torn line": lambda content: content[: len(content) // 2] + b"\n" + content[len(content) // 2 + 9 :],
    "a text of somebody else": lambda content: b"a text of somebody else\n",
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_file_is_named_in_a_sentence(kind: str, damage: str, tmp_path: Path) -> None:
    name, good, read = KINDS[kind]
    path = tmp_path / name
    path.write_bytes(good())
    read(path)  # the good one is read
    content = DAMAGES[damage](good())
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    if (kind, damage) == ("metrics", "truncated"):  # as a kill leaves it: its whole lines are read
        read_metrics(path)
        return
    with pytest.raises((ValueError, OSError), match=name.partition(".")[0]):
        read(path)
