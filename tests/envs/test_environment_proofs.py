"""What every environment of our own promises, proved on ten thousand seeds and a hundred thousand fuzzed replies.

The same statements on a few seeds are ordinary tests in `test_every_environment.py`. To have an environment proved, add
it to `ENVIRONMENTS`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import random
from collections.abc import Callable
from typing import Any

import pytest
from test_every_environment import each, play

from heedful.envs.common.actions import CLOSE_ANSWER, CLOSE_THOUGHT, OPEN_ANSWER, OPEN_THOUGHT, SEPARATOR
from heedful.envs.countdown.environment import Countdown
from heedful.envs.frozen_lake.environment import FrozenLake
from heedful.envs.math.environment import MathProblems
from heedful.envs.sokoban.environment import Sokoban
from heedful.envs.toys.bandit import Bandit
from heedful.envs.toys.chain import Chain
from heedful.envs.toys.echo import Echo
from heedful.rollout.baselines import random_reply
from heedful.run.presets import preset
from heedful.types import Ending, Task

SEEDS = 10_000
FUZZED_REPLIES = 100_000

ENVIRONMENTS: list[Any] = [
    FrozenLake(instructions="brief"),
    FrozenLake(size=6, turns=8, slip=0.2),
    Sokoban(instructions="brief"),
    Sokoban(size=7, boxes=2, turns=10),
    Bandit(),
    Echo(),
    Chain(),
    Chain(turns=3, modulus=5, operations=("+1", "-2", "*3")),
    MathProblems(instructions="brief"),
    MathProblems(least=2, most=5, largest=30, turns=2),
    Countdown(),
    Countdown(turns=3, least_numbers=4, most_numbers=5, largest=25, lowest_target=1),
    preset("countdown").env,
]
ENDINGS = {Ending.SOLVED, Ending.FAILED, Ending.OUT_OF_TURNS}

PIECES = (
    *(OPEN_THOUGHT, CLOSE_THOUGHT, OPEN_ANSWER, CLOSE_ANSWER, SEPARATOR),
    *" \n\t\x00\ud800\u202e<>|\\'\"()+-*/=.017½٣²é漢A",
    *("", "<|im_end|>", "<|im_start|>", "{}", "%s", "((((((", "-0", "1e9", "1/0", "9" * 40, "NaN", "inf", "1_000"),
    *("0x1f", "1,000", "3.5", "Left", "up", "DOWN", "plan", "r1c1=1", "r9c9=9", "\\boxed{4}", "#### 4"),
    "__import__('os')",
)

every_env = each(ENVIRONMENTS)

Record = Callable[[str, object], None]


def fuzzed(env: Any, task: Task, rng: random.Random) -> str:
    """Pieces in any order; or what a random player says, whole or with pieces put into it."""
    kind = rng.random()
    if kind < 0.4:
        return "".join(rng.choices(PIECES, k=rng.randint(0, 14)))
    reply = random_reply(env, task, rng)
    for _ in range(rng.randint(0, 3)):
        place = rng.randint(0, len(reply))
        reply = reply[:place] + rng.choice(PIECES) + reply[place + rng.randint(0, 3) :]
    return reply


@pytest.mark.proof
@every_env
def test_every_task_is_solved_by_the_solver_within_its_limits(env: Any, record_property: Record) -> None:
    record_property("cases", SEEDS)
    still = dataclasses.replace(env, slip=0.0) if hasattr(env, "slip") else env
    for seed in range(SEEDS):
        task = still.task(seed)
        replies = [reply for _, reply in still.demonstrate(task, random.Random(seed))]
        _, steps = play(still, task, 0, replies)
        last = steps[-1]
        assert (last.ending, last.outcome) == (Ending.SOLVED, 1.0), f"seed {seed}"
        assert len(steps) <= still.turns
        assert all(step.valid for step in steps)


@pytest.mark.proof
@every_env
def test_no_start_state_is_in_two_splits(env: Any, record_property: Record) -> None:
    record_property("cases", SEEDS)
    split_of_id: dict[str, str] = {}
    id_of_view: dict[bytes, str] = {}  # all that is shown on the solver's way: a link of a chain shows up late
    for seed in range(SEEDS):
        task = env.task(seed)
        shown = "\n".join(text for text, _ in env.demonstrate(task, random.Random(0)))
        view = hashlib.sha256(shown.encode()).digest()
        assert split_of_id.setdefault(task.id, task.split) == task.split, f"seed {seed}"
        assert id_of_view.setdefault(view, task.id) == task.id, f"seed {seed}: two tasks look the same"
    assert set(split_of_id.values()) == {"train", "val", "test"}


@pytest.mark.proof
@every_env
def test_task_member_and_replies_replay_every_episode(env: Any, record_property: Record) -> None:
    record_property("cases", SEEDS)
    again = dataclasses.replace(env)
    for seed in range(SEEDS):
        rng = random.Random(f"replay {seed}")
        task = env.task(seed)
        replies = [random_reply(env, task, rng) for _ in range(env.turns)]
        assert again.task(seed) == task
        assert play(env, task, seed % 16, replies) == play(again, task, seed % 16, replies), f"seed {seed}"


@pytest.mark.proof
@every_env
def test_fuzzed_replies_crash_nothing_and_every_episode_ends_in_time(env: Any, record_property: Record) -> None:
    record_property("cases", FUZZED_REPLIES)
    replied = seed = 0
    while replied < FUZZED_REPLIES:
        rng = random.Random(f"fuzz {seed}")
        task = env.task(seed % SEEDS)
        _, steps = play(env, task, seed, [fuzzed(env, task, rng) for _ in range(env.turns)])
        replied += len(steps)
        seed += 1
        last = steps[-1]
        assert last.ending in ENDINGS, f"seed {seed}"
        assert last.outcome is not None
        assert 0.0 <= last.outcome <= 1.0
        assert (last.outcome == 1.0) == (last.ending is Ending.SOLVED)
        assert all(step.ending is None and step.outcome is None for step in steps[:-1])
        assert all(abs(value) < 1e6 for step in steps for value in step.rewards.values())
        assert all("<|im_" not in step.observation.text for step in steps)
