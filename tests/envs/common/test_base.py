"""The base classes of the built-in environments, and an environment of one's own on them."""

from __future__ import annotations

import importlib
import random
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import pytest

from heedful.envs.checking.check import QUICK, check
from heedful.envs.common import BaseEnvironment, BaseEpisode, Played, SolvableEnvironment, remarks, task_of
from heedful.types import Ending, Observation, Task

EXAMPLES = Path(__file__).parents[3] / "examples"


@dataclass(frozen=True, slots=True, kw_only=True)
class Counter(SolvableEnvironment):
    """Ends when it is told to; everything else is the base."""

    name: ClassVar[str] = "counter"
    turns: int = 3
    most: int = 9

    def check(self) -> None:
        if self.most < 1:
            raise ValueError("counter: most must be at least 1.")

    def task(self, seed: int) -> Task:
        return task_of(self.name, str(seed % self.most), seed)

    def episode(self) -> Count:
        return Count(self)

    def demonstrate(self, task: Task, rng: random.Random) -> list[tuple[str, str]]:
        return []

    def full_rules(self) -> str:
        return "Count.\n"


class Count(BaseEpisode[Counter]):
    __slots__ = ()

    def begin(self, task: Task, member: int) -> str:
        return self.limits(2, "Two counts each.")

    def play(self, response: str) -> Played:
        ending = Ending(response) if response in [ending.value for ending in Ending] else None
        fault = "" if ending else "not an ending"
        return Played(
            fault=fault,
            rewards={"half": 0.5},
            ending=ending,
            progress=self.turn / 4,
            note="note\n",
            shown=self.limits(),
            effect=remarks("counted", "", fault),
        )


def test_the_first_observation_is_the_rules_and_the_state() -> None:
    env = Counter()
    shown = "Count.\nTurns left: 3. Two counts each."
    assert env.episode().start(env.task(1), 0) == Observation(shown, shown)
    brief = replace(env, instructions="brief")
    assert brief.episode().start(brief.task(1), 0) == Observation("turns 3 moves 2", "turns 3 moves 2")


def test_a_fault_costs_the_penalty_once_and_the_episode_goes_on() -> None:
    env = Counter(format_penalty=0.25, show_reward=True)
    episode = env.episode()
    episode.start(env.task(1), 0)
    step = episode.step("what?")
    assert step.rewards == {"half": 0.5, "format": -0.25}
    assert step.observation == Observation(
        "note\nreward 0.25\nTurns left: 2.", "Count.\nnote\nreward 0.25\nTurns left: 2."
    )
    assert (step.valid, step.ending, step.outcome, step.progress) == (False, None, None, None)
    assert step.effect == "counted; not an ending"


@pytest.mark.parametrize(
    ("ending", "outcome"), [(Ending.SOLVED, 1.0), (Ending.FAILED, 0.0), (Ending.OUT_OF_TURNS, 0.0)]
)
def test_the_outcome_follows_from_the_ending_where_none_is_given(ending: Ending, outcome: float) -> None:
    env = Counter()
    episode = env.episode()
    episode.start(env.task(1), 0)
    episode.step("what?")
    step = episode.step(ending.value)
    assert (step.ending, step.outcome, step.progress, step.valid) == (ending, outcome, 0.5, True)
    assert step.rewards == {"half": 0.5}


def test_an_observation_that_cannot_begin_a_conversation_has_no_opening() -> None:
    class Told(Count):
        restarts = False

    episode = Told(Counter())
    assert episode.start(Counter().task(1), 0).opening.startswith("Count.")
    assert episode.step("what?").observation == Observation("note\nTurns left: 2.")


def test_an_environment_without_a_task_cannot_be_made() -> None:
    class Unfinished(BaseEnvironment):
        name = "unfinished"

    with pytest.raises(TypeError, match="abstract method"):
        Unfinished()  # type: ignore[abstract]


def test_the_example_on_the_base_keeps_the_contract_and_has_the_shared_knobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    game = importlib.import_module("on_the_base")
    report = check(game.GuessNumber(), effort=QUICK)
    assert report.ok, str(report)
    env = game.GuessNumber(show_reward=True, instructions="brief")
    episode = env.episode()
    task = env.task(2)
    low, secret = env.draw(2)
    assert episode.start(task, 0).text == f"turns 3 moves 1\nfrom {low} to {low + 6}"
    assert (
        episode.step("<answer>x</answer>").observation.text
        == f"no number\nreward -0.1\nturns 2 moves 1\nfrom {low} to {low + 6}"
    )
    assert episode.step(f"<answer>{secret}</answer>").outcome == 1.0
