"""Logs whose prompts hold pictures: an audit leaves their episodes out and says why, and never reads them as text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from audit_watching import read

from heedful.storage import write_rollouts
from heedful.storage.rollouts import Rollouts, rollout_rows
from heedful.types import Ending, Group, Image, Prompt, Reply, Span, Task, Trajectory, Turn


def one_turn(task: Task, member: int, images: tuple[Image, ...]) -> Trajectory:
    prompt = Prompt("look", (1, 2), images=images)
    reply = Reply(prompt, (3, 4), "<think>so</think>Up", (-1.0, -1.0), (), Span(0, 1), Span(1, 2), True, False)
    return Trajectory(task, member, (Turn(reply, {"solved": 1.0}, ("Up",), True, "", ""),), Ending.SOLVED, 1.0)


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_episodes_with_pictures_are_left_out_with_the_reason(tmp_path: Path, form: str) -> None:
    task = Task("lake-0123456789abcdef", 1, "train", environment="lake")
    seen = one_turn(task, 1, (Image(b"a file", 8, 8),))
    group = Group(task, (one_turn(task, 0, ()), seen))
    path = tmp_path / f"step_000000.{form}"
    if form == "parquet":
        write_rollouts(path, 0, "train", [group], None, "lake")
    else:
        rows = rollout_rows(Rollouts(0, "train", "lake", (group,), None))
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    _, steps, faults = read(path)
    assert sum(step.episodes for step in steps) == 1
    assert faults.count == 1
    assert "prompts of text alone, since an audit cannot read pictures yet" in str(faults.kept[0])
