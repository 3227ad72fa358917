"""A plausible run on disk: sixty steps in which success rises while the thoughts slowly stop heeding the prompt."""

from __future__ import annotations

import json
import math
import random
import shutil
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from heedful.storage import (
    EarlyAnswer,
    RunFolder,
    Swaps,
    TokenValues,
    write_early,
    write_rollouts,
    write_scores,
    write_whole,
)
from heedful.types import CrossScores, Ending, Group, Prompt, Reply, Span, Task, Trajectory, Turn, Verdict

STEPS = 60
PROMPTS = 16
HOSTILE = "</script><script>alert('owned')</script><img src=x onerror=alert(1)>"
"""What a model may write: it must reach the page as text only."""


def make_run(path: Path, seed: int = 0, decay: float = 1.0) -> RunFolder:
    """A whole run folder; `decay` 0 keeps its thoughts grounded. Each is written once, and copied from then on."""
    return RunFolder(shutil.copytree(_written(seed, decay).name, path, dirs_exist_ok=True))


@cache
def _written(seed: int, decay: float) -> TemporaryDirectory[str]:
    """Removed with the process."""
    place = TemporaryDirectory()
    run = RunFolder(Path(place.name))
    rng = random.Random(seed)
    config = {
        "environment": {"type": "frozen_lake", "size": 4, "slip": 0.0},
        "algorithm": {"type": "grpo", "clip_low": 0.2, "clip_high": 0.2},
        "filter": {"type": "top_p", "p": 0.9} if decay else {"type": "keep_all"},
        "seed": seed,
        "steps": STEPS,
        "tags": {"open": "<think>", "close": "</think>"},
    }
    write_whole(run.config, json.dumps(config))
    write_whole(run.environment, json.dumps({"versions": {"python": "3.11.9", "torch": None}, "threads": 1}))
    write_whole(run.metrics, "".join(_line(step, rng, decay) for step in range(STEPS + 1)))
    sentences = [
        "Success rose from 0.42 to 0.58 (95% intervals 0.36 to 0.48 and 0.52 to 0.64): more than noise.",
        "The gap per token fell to 31% of its start while entropy held: the thoughts are turning into a template.",
    ]
    gain = {"value": 0.16, "low": 0.11, "high": 0.21, "n": 256, "why": ""}
    regime = "template" if decay else "diverse"
    write_whole(run.verdict, json.dumps({"sentences": sentences, "regime": regime, "figures": {"gain/sampled": gain}}))
    for step in range(0, STEPS, 10):
        write_rollouts(run.rollouts(step), step, "train", *_groups(step, rng), "frozen_lake")
    for step in range(0, STEPS + 1, 20):
        _write_scores(run, step, rng, decay)
    early = EarlyAnswer("lake", "P G _ O", ("P 0 ", "plan ", "Left"), (0, 1, 2, 3), (0.2, 0.3, 0.4, 1.0), ("Up",) * 4)
    write_early(run.early(STEPS), [early])
    return place


def _line(step: int, rng: random.Random, decay: float) -> str:
    at = step / STEPS
    held = 1 / (1 + math.exp(9 * (at - 0.62) * (1 if decay else 0) - (0 if decay else 4)))
    readings: dict[str, object] = {
        "success/rate": {"value": round(0.41 + 0.17 * at**0.7 + rng.gauss(0, 0.03), 4), "n": 128},
        "reward/mean": 0.3 + 0.2 * at + rng.gauss(0, 0.03),
        "reward/solved": 0.41 + 0.17 * at + rng.gauss(0, 0.03),
        "reward/format": -0.01 - 0.03 * rng.random() * (1 - at),
        "format/valid_rate": min(1.0, 0.96 + 0.04 * at + rng.gauss(0, 0.004)),
        "format/closed_rate": min(1.0, 0.985 + 0.015 * at + rng.gauss(0, 0.003)),
        "length/reasoning_tokens": 14 - 3 * at + rng.gauss(0, 0.2),
        "length/response_tokens": 21 - 3 * at + rng.gauss(0, 0.3),
        "filter/kept_ratio": 0.5 + 0.1 * math.sin(step / 5) + rng.gauss(0, 0.04),
        "filter/mass_kept": 0.93 + rng.gauss(0, 0.01),
        "filter/dropped/constant": 5 + step % 3,
        "filter/empty": 0,
        "policy/entropy_per_token": 0.24 - 0.07 * at + rng.gauss(0, 0.006),
        "policy/kl_to_sampler": abs(rng.gauss(0, 2e-5)),
        "policy/gradient_norm": 0.8 + 0.3 * rng.random() + (1.5 if step == 41 else 0),
        "policy/learning_rate": 1.5e-4 * min(1.0, (step + 1) / 5),
        "signal/reward_variance": 0.14 + rng.gauss(0, 0.01),
        "time/collect": 2.1 + rng.random(),
        "time/update": 1.3 + 0.3 * rng.random(),
        "time/diagnostics": 0.12 if step % 4 else 0.9,
    }
    mixed, solved = 0.55 - 0.1 * at, 0.2 + 0.15 * at
    readings |= {"signal/mixed": mixed, "signal/solved": solved, "signal/failed": 1 - mixed - solved}
    readings["signal/unpaid"] = {"value": None, "why": "the environment reports no progress"}
    if step in (0, 30, 60):
        for how, start, gain in (("sampled", 0.42, 0.16), ("greedy", 0.55, 0.09)):
            value = start + gain * at
            readings[f"eval/val/{how}/success"] = {"value": value, "low": value - 0.06, "high": value + 0.06, "n": 256}
        readings["eval/val/random/success"] = {"value": 0.121, "low": 0.09, "high": 0.17, "n": 256}
        readings["eval/val/fixed/success"] = {"value": 0.199, "low": 0.15, "high": 0.25, "n": 256}
    if step % 4 == 0:
        readings["signal/variance_dispersion"] = 0.7 + rng.gauss(0, 0.05)
        readings |= _information(step, held, rng)
    return json.dumps({"step": step, "time": 4.0 * step, "metrics": readings}) + "\n"


def _information(step: int, held: float, rng: random.Random) -> dict[str, object]:
    ceiling, base = math.log(PROMPTS), "information/first_turn"
    mi, gap, width = ceiling * min(0.999, 1.15 * held**0.5), 2.9 * held + rng.gauss(0, 0.05), 0.28 * (1.1 - held)
    saturated = mi > 0.95 * ceiling
    bounds = {} if saturated else {"low": max(0.0, mi - width), "high": min(ceiling, mi + width)}
    readings: dict[str, object] = {
        f"{base}/mi": {"value": mi, "n": PROMPTS, "why": "saturated" if saturated else "", **bounds},
        f"{base}/mi_ceiling": ceiling,
        f"{base}/gap_per_token": {"value": gap, "low": gap - 0.3, "high": gap + 0.3, "n": PROMPTS},
        f"{base}/entropy_conditional_per_token": {"value": 0.31, "low": 0.26, "high": 0.36, "n": PROMPTS},
        f"{base}/entropy_marginal_per_token": 0.31 + mi / 14,
        "retrieval/first_turn/accuracy": {"value": 0.0625 + 0.9375 * held**0.6, "n": 32},
        "retrieval/first_turn/chance": 1 / PROMPTS,
        "grounding/thought_influence": {"value": 0.2 + 0.5 * held, "low": 0.1 + 0.5 * held, "high": 0.3 + 0.5 * held},
        "grounding/input_to_action": 0.5 + 0.1 * held,
        "regime/first_turn": "diverse" if held > 0.45 else "template",
        "alarm/template_collapse": {"value": int(held < 0.4), "why": "gap below half its baseline, success rising"},
    }
    if step < 12:
        readings["regime/first_turn"] = {"value": None, "why": "fewer than 3 measurements"}
    if step in (20, 24, 40):
        lost = {"value": None, "n": 1, "why": "one distinct prompt: N < 2"}
        readings |= {f"{base}/mi": lost, f"{base}/gap_per_token": lost}
    if step % 20 == 0:
        readings["information/any_turn/mi"] = {"value": 3.2 * held, "low": 2.8 * held, "high": 3.5 * held, "n": 40}
        readings["information/any_turn/mi_ceiling"] = math.log(40)
        readings["information/any_turn/gap_per_token"] = 2.4 * held
    return readings


def _board(rng: random.Random) -> str:
    cells = ["P", "G", *rng.choices("_O", weights=(4, 1), k=14)]
    rng.shuffle(cells)
    return "\n".join(" ".join(cells[row : row + 4]) for row in range(0, 16, 4))


def _groups(step: int, rng: random.Random) -> tuple[list[Group], list[Verdict]]:
    groups, verdicts = [], []
    for number in range(16):
        task = Task(f"frozen_lake/{rng.getrandbits(32):08x}", rng.getrandbits(40), "train")
        chance = (0.0, 0.5, 0.5, 1.0)[number % 4]
        members = tuple(_trajectory(task, member, rng.random() < chance, step, rng) for member in range(8))
        mixed = len({member.outcome for member in members}) > 1
        groups.append(Group(task, members))
        verdicts.append(Verdict(1.0, "kept", 0.25) if mixed else Verdict(0.0, "constant", 0.0))
    return groups, verdicts


def _trajectory(task: Task, member: int, solved: bool, step: int, rng: random.Random) -> Trajectory:
    if member == 7 and task.seed % 5 == 0:
        return Trajectory(task, member, (), Ending.ERROR, None, error=f"the board was empty {HOSTILE}")
    turns = []
    for number in range(rng.randint(1, 3)):
        board = _board(rng)
        opening = "<|im_start|>system\nYou walk over a frozen lake: P you, G goal, O hole, _ ice.<|im_end|>\n"
        user = f"<|im_start|>user\n{board}\n5 turns left.<|im_end|>\n"
        prompt = f"{'' if number else opening}{user}<|im_start|>assistant\n<think>"
        thought = "P 3 2 G 1 0 plan Left Up" if number or member else f"plan {HOSTILE}"
        closed = not (member == 6 and number == 0)
        text = f"<think>{thought}</think><answer>Left || Up</answer>" if closed else f"<think>{thought} Up Up Up"
        ids = tuple(rng.randrange(470) for _ in range(20))
        reply = Reply(
            Prompt(prompt, ids),
            ids,
            text,
            (-0.5,) * 20,
            (0.4,) * 20,
            Span(0, 13 if closed else 20),
            Span(13, 20) if closed else Span(20, 20),
            closed,
            not closed,
        )
        rewards = {"solved": 1.0 if solved else 0.0} | ({} if closed else {"format": -0.1})
        actions = ("Left", "Up") if closed else ()
        turns.append(Turn(reply, rewards, actions, closed, "moved left; hit the edge" if closed else "", _board(rng)))
    ending = Ending.SOLVED if solved else Ending.OUT_OF_TURNS
    return Trajectory(task, member, tuple(turns), ending, 1.0 if solved else 0.0, None, step, 1.0)


def _write_scores(run: RunFolder, step: int, rng: random.Random, decay: float) -> None:
    grip = 6.0 * (1 - decay * 0.93 * step / STEPS)
    own = [row // 2 for row in range(2 * PROMPTS)]
    scores = [
        [-12 + (grip if column == own_column else 0.0) + rng.gauss(0, 0.8) for column in range(PROMPTS)]
        for own_column in own
    ]
    thoughts = [f"P {column % 4} 2 G 1 0 plan Left Up {HOSTILE if row == 0 else ''}" for row, column in enumerate(own)]
    prompts = [f"You walk over a frozen lake.\n{_board(rng)}\n5 turns left." for _ in range(PROMPTS)]
    # A thought of an even prompt leads to Left, which is right there; each is read under the prompts of its block of 4.
    lefts = np.array([[0.9 - 0.8 * (number % 2)] for number in own]).repeat(PROMPTS, axis=1)
    lefts[np.array(own)[:, None] // 4 != np.arange(PROMPTS)[None, :] // 4] = np.nan
    chances = np.stack([lefts, 1 - lefts], axis=2)
    right = np.array([[1.0, 0.0], [0.0, 1.0]] * (PROMPTS // 2))
    swaps = Swaps(chances, np.array(own), np.array(own) % 2, right, ("Left", "Up"), tuple(thoughts), tuple(prompts))
    matrix = CrossScores(scores, [14] * len(own), own)
    words = [TokenValues(1, ("P 0 2 ", "G 1 0 ", "plan ", "Left Up "), (2.0, 0.4, -0.3, -2.0))]
    write_scores(run.scores(step), matrix, thoughts, prompts, words, swaps=swaps)


if __name__ == "__main__":
    import sys

    from heedful.report import write_comparison, write_report

    root = Path(sys.argv[1])
    runs = [make_run(root / "frozen_lake-grpo-s0-1"), make_run(root / "frozen_lake-grpo-s1-1", seed=1, decay=0.0)]
    print(*(write_report(run) for run in runs))
    print(write_comparison([run.path for run in runs], root / "comparison.html"))
