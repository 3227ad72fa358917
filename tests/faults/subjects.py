"""What is killed, starved of disk space and so on: runs, an audit and a study, each as small as it can be."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

SMALL = (
    "--seedling.steps 60 --seedling.hidden 48 --seedling.ffn 96 --filter keep_all --steps 3 --groups 3 --group-size 4 "
    "--checkpoint-every 1 --evaluation.tasks 4 --evaluation.samples 1 --evaluation.times 2 "
    "--evaluation.search-tasks 0 --diagnostics.every 1 --diagnostics.full-every 2 --optimizer.warmup-steps 2"
)
TO_THE_BYTE = "--collect async --collect.threads 3 --sampling.noise conversation --sampling.precision double"


@dataclass(frozen=True)
class Subject:
    """Something that can be killed, and what continues it."""

    start: str
    resume: str = "train --resume out"


SUBJECTS = {
    "echo": Subject(f"train echo --out out {SMALL}"),
    "bandit with workers": Subject(f"train bandit --out out {SMALL} --env-workers 2"),
    "chain in async": Subject(f"train chain --out out {SMALL} --env.turns 2 {TO_THE_BYTE}"),
    "ppo with a critic": Subject(f"train echo --out out {SMALL} --algorithm ppo"),
    "audit": Subject("audit log --out out --model model", "audit log --out out --model model"),
    "study": Subject("study study.json --out out --processes 1", "study study.json --out out --processes 1"),
}

STUDY = {
    "name": "killed",
    "question": "Does a filter change anything?",
    "seeds": [0],
    "arms": [
        {"name": "all", "job": {"type": "train", "preset": "echo", "flags": f"{SMALL} --steps 2"}},
        {"name": "some", "job": {"type": "train", "preset": "echo", "flags": f"{SMALL} --steps 2 --filter top_p"}},
    ],
    "pairs": [{"arm": "some", "control": "all"}],
    "measures": [{"title": "success", "metric": "success/rate"}],
}


def write_log(folder: Path) -> None:
    """A log of verl: six steps of two prompts with three replies each."""
    folder.mkdir()
    for step in range(6):
        rows = [
            {
                "input": f"go to {prompt}",
                "output": f"<think>to {prompt}</think>{member}",
                "score": float(member == prompt),
            }
            for prompt in (1, 2)
            for member in (0, 1, 2)
        ]
        (folder / f"{step}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
