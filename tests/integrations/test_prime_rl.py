"""A chooser as a task sampler of prime-rl. prime-rl itself is not run: a stand-in calls it as prime-rl's loop does."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from heedful.filters import Visit
from heedful.integrations.prime_rl import ChooserSampler
from heedful.rollout.choosers import ByPool, InOrder, Listed, Offer, SkipSettled, Thompson, Yoked
from heedful.seeds import stream
from heedful.types import Task


@dataclass
class StandInTask:
    key: str


@dataclass(frozen=True)
class StandInAgent:
    trainable: bool = True


@dataclass
class StandInTrace:
    reward: float
    has_error: bool = False
    agent: StandInAgent = StandInAgent()


@dataclass
class StandInEpisode:
    task: StandInTask
    traces: list[StandInTrace]


class StandInForPrimeRL:
    """The calls of prime-rl's `TrainSource` and `Curriculum`: groups in flight end in any order, all are observed."""

    def __init__(self, sampler: ChooserSampler, chances: dict[str, float], in_flight: int = 6) -> None:
        self.sampler, self.chances, self.in_flight = sampler, chances, in_flight
        self.rng = random.Random(5)
        self.flying: list[StandInTask] = []
        self.asked: list[str] = []

    def run(self, groups: int) -> list[str]:
        """The keys that were asked for while so many groups ended."""
        for _ in range(groups):
            while len(self.flying) < self.in_flight:
                self.flying.append(next(self.sampler))
                self.asked.append(self.flying[-1].key)
            task = self.flying.pop(self.rng.randrange(len(self.flying)))
            traces = [StandInTrace(float(self.rng.random() < self.chances[task.key])) for _ in range(8)]
            self.sampler.observe([StandInEpisode(task, [trace]) for trace in traces])
        return self.asked


def tasks(count: int = 12) -> list[StandInTask]:
    return [StandInTask(f"task {number}") for number in range(count)]


CHANCES = {f"task {number}": (1.0, 0.0, 0.4)[number % 3] for number in range(12)}


@pytest.mark.parametrize("chooser", [Thompson(), SkipSettled(), ByPool()], ids=repr)
def test_tasks_are_those_of_our_own_choosers(chooser: Any) -> None:
    sampler, past = ChooserSampler(tasks(), chooser, seed=4, at_once=5), dict[str, list[Visit]]()
    pool = tuple(Task(task.key, 0, "train") for task in tasks())
    for step in range(6):
        rng = stream(4, "choose", step)
        offer = Offer(Listed(pool, rng), lambda key: past.get(key, ()), step, (), rng)
        expected = [task.id for task in chooser.choose(5, offer)]
        assert [next(sampler).key for _ in range(5)] == expected
        for key in expected:
            rewards = [1.0] * round(8 * CHANCES[key]) + [0.0] * (8 - round(8 * CHANCES[key]))
            past.setdefault(key, []).append(Visit.of(rewards))
            sampler.observe([StandInEpisode(StandInTask(key), [StandInTrace(reward)]) for reward in rewards])


def test_draws_move_away_from_settled_tasks_and_the_floor_stays() -> None:
    found = StandInForPrimeRL(ChooserSampler(tasks(), Thompson(value="middle"), at_once=8), CHANCES).run(400)[100:]
    visits = Counter(found)
    varying = sum(visits[key] for key, chance in CHANCES.items() if 0 < chance < 1) / len(found)
    assert varying > 0.45, "a third without a choice"
    assert min(visits[key] for key in CHANCES) > 0
    plain = StandInForPrimeRL(ChooserSampler(tasks(), InOrder(), at_once=8), CHANCES).run(400)
    assert sum(0 < CHANCES[key] < 1 for key in plain) / len(plain) == pytest.approx(1 / 3, abs=0.05)


def test_a_resumed_sampler_chooses_as_one_that_was_never_stopped() -> None:
    whole = StandInForPrimeRL(ChooserSampler(tasks(), Thompson(), at_once=5), CHANCES)
    whole.run(40)
    state = json.loads(json.dumps(whole.sampler.state_dict()))
    again = StandInForPrimeRL(ChooserSampler(tasks(), Thompson(), at_once=5), CHANCES)
    again.sampler.load_state_dict(state)
    again.rng.setstate(whole.rng.getstate())
    again.flying = list(whole.flying)
    before = len(whole.asked)
    assert again.run(40) == whole.run(40)[before:]
    assert whole.sampler.metrics() == again.sampler.metrics()


def observed(success: Callable[[Any], float] | None, *traces: StandInTrace) -> tuple[Visit, ...]:
    sampler = ChooserSampler(tasks(), Thompson(), **({} if success is None else {"success": success}))
    sampler.observe([StandInEpisode(StandInTask("task 0"), list(traces))])
    return tuple(sampler.memory.past("task 0"))


def test_traces_with_an_error_and_of_agents_that_do_not_learn_do_not_count() -> None:
    traces = StandInTrace(1.0), StandInTrace(0.0), StandInTrace(0.0, True), StandInTrace(0.0, agent=StandInAgent(False))
    assert observed(None, *traces) == (Visit.of([1.0, 0.0]),)
    assert observed(None, *traces[2:]) == ()


def test_success_may_be_another_number_than_the_reward_and_lies_between_0_and_1() -> None:
    assert observed(lambda trace: float(trace.reward > 2), StandInTrace(3.0), StandInTrace(1.0)) == (
        Visit.of([1.0, 0.0]),
    )
    with pytest.raises(ValueError, match=r"Expected success from 0 to 1 .* success= names, found 3\.0"):
        observed(None, StandInTrace(3.0))


def test_an_endless_set_of_tasks_and_a_schedule_that_ends_are_refused() -> None:
    with pytest.raises(ValueError, match="expected a finite sequence of tasks"):
        ChooserSampler(None, Thompson())
    with pytest.raises(ValueError, match="Expected a chooser without an end"):
        ChooserSampler(tasks(), Yoked("other"))
