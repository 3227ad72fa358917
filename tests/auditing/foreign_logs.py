"""Small logs as other trainers write them: two prompts of three episodes per step, rewards 1, 0, 1 and 0, 0, 0."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet

PROMPTS = ("go to 3", "go to 8")
REWARDS = ((1.0, 0.0, 1.0), (0.0, 0.0, 0.0))
Row = dict[str, Any]


def reply(prompt: int, member: int) -> str:
    return f"<think>walk to {PROMPTS[prompt][-1]} by way of {member}</think><answer>{member}</answer>"


def members() -> list[tuple[int, int, float]]:
    """Prompt, member, reward."""
    return [(prompt, member, reward) for prompt, row in enumerate(REWARDS) for member, reward in enumerate(row)]


def write_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def write_parquet(path: Path, rows: list[Row]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    return path


def trl_rows(step: int) -> list[Row]:
    return [
        {
            "step": step,
            "prompt": f"user\n{PROMPTS[prompt]}\nassistant\n",
            "completion": reply(prompt, member),
            "accuracy": reward,
            "format": 0.5,
            "advantage": reward - sum(REWARDS[prompt]) / 3,
        }
        for prompt, member, reward in members()
    ]


def trl_log(folder: Path, steps: int = 3) -> Path:
    for step in range(1, steps + 1):
        write_parquet(folder / "completions" / f"completions_{step:05d}.parquet", trl_rows(step))
    return folder


def numbered_rows(step: int, batch: int) -> list[Row]:
    """TRL's with heedful's columns. Rewards are twice the accuracy and half of the format, which is 0.5 everywhere."""
    return [
        {
            **row,
            "heedful_id": f"{batch}/{prompt}/{member}",
            "heedful_task": f"prompt-{prompt}",
            "heedful_reason": "kept" if prompt == 0 else "constant",
            "heedful_reward": 2.0 * reward + 0.25,
            "heedful_outcome": reward,
            "heedful_progress": None,
            "heedful_thought": "7:26",
        }
        for row, (prompt, member, reward) in zip(trl_rows(step), members(), strict=True)
    ]


def verl_rows(step: int) -> list[Row]:
    return [
        {
            "input": f"user\n{PROMPTS[prompt]}\nassistant\n",
            "output": reply(prompt, member),
            "gts": PROMPTS[prompt][-1],
            "score": reward,
            "step": step,
            "acc": bool(reward),
        }
        for prompt, member, reward in members()
    ]


def keyed_verl_rows(step: int) -> list[Row]:
    """The same episodes as verl 0.9.1's default trainer writes them: keys, no `acc`, two parts of the very first
    episode, and two rows of padding."""
    rows = []
    for row, (prompt, member, _) in zip(verl_rows(step), members(), strict=True):
        del row["acc"]
        rows.append({**row, "uid": f"{step}-draw_{prompt}_{member}_0"})
        if (prompt, member) == (0, 0):
            rows.append({**row, "input": "user\nwhere now?\nassistant\n", "uid": f"{step}-draw_{prompt}_{member}_1"})
    filling = {"input": "", "output": "", "gts": "3", "score": 0.0, "step": step}
    return [*rows, *({**filling, "uid": f"pad0e1f_{session}_0"} for session in range(2))]


def verl_log(folder: Path, steps: Iterable[int] = (1, 2, 10)) -> Path:
    for step in steps:
        write_lines(folder / f"{step}.jsonl", verl_rows(step))
    return folder


def ragen_rows() -> list[Row]:
    return [
        {
            "custom_id": f"traj_{prompt}_{member}",
            "messages": [
                {"role": "user", "content": PROMPTS[prompt]},
                {"role": "assistant", "content": reply(prompt, member)},
                {"role": "user", "content": "you moved (reward: 0.1)"},
                {"role": "assistant", "content": "<think>stay</think><answer>stay</answer>"},
                {"role": "user", "content": "the end"},
            ],
            "metadata": {
                "env_id": 3 * prompt + member,
                "group_id": prompt,
                "num_turns": 2,
                "total_reward": reward,
                "success": False,
                "CoordSokoban/success": reward,
            },
        }
        for prompt, member, reward in members()
    ]


def trace_rows(step: int | None = 4) -> list[Row]:
    rows = []
    for prompt, member, reward in members():
        nodes = [
            {"message": {"role": "system", "content": "You walk."}},
            {"parent": 0, "message": {"role": "user", "content": PROMPTS[prompt]}},
            {
                "parent": 1,
                "sampled": True,
                "message": {"role": "assistant", "reasoning_content": f"walk by {member}", "content": f"{member}"},
            },
            {"parent": 2, "message": {"role": "tool", "tool_call_id": "a", "content": "moved"}},
            {"parent": 3, "sampled": True, "message": {"role": "assistant", "content": "done"}},
        ]
        trace = {
            "task": {"type": "Walk", "data": {"goal": prompt}, "key": f"walk-{prompt}"},
            "agent": {"name": "walker", "config": {}},
            "nodes": nodes,
            "calls": [{"node": 2, "sampling": {"temperature": 0.7}}],
            "rewards": {"solved": {"score": reward, "weight": 2.0}, "tidy": {"score": 0.5, "weight": 0.1}},
            "metrics": {"correct": reward},
            "ok": True,
        }
        judge = {**trace, "agent": {"name": "judge", "trainable": False}}
        row = {"env": {"id": "walk"}, "task": trace["task"], "ok": True, "traces": [trace, judge]}
        run = {"type": "train", "id": "r", "work": {"type": "train", "step": step}}
        rows.append(row if step is None else {**row, "run": run})
    return rows


def result_rows() -> list[Row]:
    return [
        {
            "example_id": prompt,
            "prompt": [{"role": "user", "content": PROMPTS[prompt]}],
            "completion": [
                {"role": "assistant", "content": reply(prompt, member)},
                {"role": "user", "content": "go on"},
                {"role": "assistant", "content": "done"},
            ],
            "answer": "",
            "reward": reward,
            "error": None,
            "metrics": {"correct_answer": reward},
        }
        for prompt, member, reward in members()
    ]


def plain_rows(step: int = 0) -> list[Row]:
    """The least that our own format needs, written by somebody else."""
    return [
        {
            "step": step,
            "new_prompt_text": PROMPTS[prompt],
            "reply_text": reply(prompt, member),
            "reward": reward,
            "success": bool(reward),
        }
        for prompt, member, reward in members()
    ]
