"""Success with intervals over tasks, gains paired by task, and the two policies that do not read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from heedful.envs.common.tasks import evaluation_tasks
from heedful.envs.toys.echo import Echo
from heedful.policies.scripted import ScriptedPolicy
from heedful.run.evaluation.held_out import (
    broken_sentence,
    evaluation_seed,
    measure_baselines,
    paired_gain,
    play_tasks,
    success_metric,
)
from heedful.types import Ending, Group, Task, Trajectory

Outcomes = dict[str, Sequence[float | None]]


def groups(outcomes: Outcomes) -> list[Group]:
    """One group per task; `None` is an episode that broke."""
    made = []
    for name, values in outcomes.items():
        task = Task(name, 0, "val")
        made.append(Group(task, tuple(Trajectory(task, n, (), Ending.FAILED, value) for n, value in enumerate(values))))
    return made


def test_one_episode_a_task_has_wilsons_interval() -> None:
    metric = success_metric("s", groups({"a": [1.0], "b": [1.0], "c": [0.0], "d": [1.0]}))
    assert (metric.name, metric.value, metric.n) == ("s", 0.75, 4)
    assert (metric.low, metric.high) == (pytest.approx(0.300642, abs=1e-6), pytest.approx(0.954413, abs=1e-6))


def test_several_episodes_a_task_have_wilsons_interval_for_fewer_trials_than_episodes() -> None:
    metric = success_metric("s", groups({name: [1.0, 1.0] if name in "abc" else [1.0, 0.0] for name in "abcdef"}))
    # Means of tasks 1 1 1 .5 .5 .5: squared error .0125. So 12 episodes are worth .75 x .25 / .0125 = 15, at most 12.
    # t with 5 degrees of freedom 2.570582.
    assert (metric.value, metric.n) == (0.75, 12)
    t2 = 2.570582**2
    centre, scale = 0.75 + t2 / 24, 1 + t2 / 12
    half = math.sqrt(t2 * (0.75 * 0.25 / 12 + t2 / (4 * 12**2)))
    assert (metric.low, metric.high) == pytest.approx(((centre - half) / scale, (centre + half) / scale), abs=1e-6)


def test_partial_credit_is_no_success() -> None:
    assert success_metric("s", groups({"a": [0.9, 1.0], "b": [0.5, 0.0]})).value == 0.25


@pytest.mark.parametrize("outcome", [0.0, 1.0])
def test_agreement_of_all_tasks_is_not_certainty(outcome: float) -> None:
    metric = success_metric("s", groups({name: [outcome] * 3 for name in "abcd"}))
    edge = 4 / (4 + 3.841459)  # Wilson's for 4 of 4 tasks, however many episodes each had
    expected = (edge, 1.0) if outcome else (0.0, 1 - edge)
    assert (metric.value, metric.n) == (outcome, 12)
    assert (metric.low, metric.high) == pytest.approx(expected, abs=1e-6)


def test_broken_episodes_are_left_out_and_not_counted_as_failures() -> None:
    metric = success_metric("s", groups({"a": [1.0, None], "b": [None, 0.0], "c": [None, None]}))
    assert (metric.value, metric.n) == (0.5, 2)
    nothing = success_metric("s", groups({"a": [None], "b": []}))
    assert (nothing.value, nothing.n, nothing.why) == (None, 0, "no episode was scored")
    told = broken_sentence(groups({"a": [1.0, None], "b": [None, 0.0, None]}), "sampled")
    assert told == "3 of 5 sampled episodes broke and were not scored."
    assert broken_sentence(groups({"a": [1.0, 0.0]}), "sampled") is None


def test_episodes_whose_prompt_fills_the_window_are_told() -> None:
    (group,) = groups({"a": [0.0, 0.0, None]})
    full = replace(group.trajectories[0], ending=Ending.OUT_OF_TOKENS)
    told = broken_sentence([replace(group, trajectories=(full, *group.trajectories[1:]))], "greedy")
    assert told == (
        "1 of 3 greedy episodes broke and were not scored. "
        "1 of 3 greedy episodes failed as out_of_tokens: the model's window was full."
    )


def test_a_gain_is_the_mean_of_the_tasks_own_gains() -> None:
    before = groups({"a": [1.0, 0.0], "b": [0.0, 0.0], "c": [0.0, 0.0], "gone": [1.0]})
    after = groups({"c": [1.0, 0.0], "a": [1.0, 1.0], "b": [0.0, None], "new": [1.0]})
    metric = paired_gain("g", before, after)
    # Gains .5 0 .5: standard deviation .288675, standard error .166667, t with 2 degrees of freedom 4.302653.
    assert (metric.name, metric.n, metric.value) == ("g", 3, pytest.approx(1 / 3))
    # The upper end, 1.05, is more than a rate can gain.
    assert (metric.low, metric.high) == pytest.approx((1 / 3 - 0.717109, 1.0), abs=1e-6)


def test_a_gain_does_not_depend_on_how_many_episodes_a_task_had() -> None:
    before = groups({"a": [0.0], "b": [0.0], "c": [1.0]})
    once = paired_gain("g", before, groups({"a": [1.0], "b": [0.0], "c": [1.0]}))
    often = paired_gain("g", before, groups({"a": [1.0] * 50, "b": [0.0], "c": [1.0] * 3}))
    assert once == often


def test_a_gain_that_cannot_be_taken_says_why() -> None:
    nothing = paired_gain("g", groups({"a": [None], "b": [1.0]}), groups({"a": [1.0], "b": [None], "c": [1.0]}))
    assert (nothing.value, nothing.n, nothing.why) == (None, 0, "no task was scored both before and after")
    single = paired_gain("g", groups({"a": [0.0]}), groups({"a": [1.0]}))
    assert (single.value, single.n, single.low, single.why) == (1.0, 1, None, "a single task has no interval")
    alike = paired_gain("g", groups({"a": [0.0], "b": [1.0]}), groups({"a": [0.0], "b": [1.0]}))
    assert (alike.value, alike.n, alike.low) == (0.0, 2, None)
    assert alike.why == "all gains are equal: no spread to take an interval from"


def test_the_players_that_do_not_read_are_measured_on_the_evaluations_tasks() -> None:
    env = Echo(instructions="brief")
    found = measure_baselines(env, "val", 60)
    assert [metric.name for metric in found.metrics] == ["eval/val/random/success", "eval/val/fixed/success"]
    assert len(found.sequence) == 1
    assert found.sequence[0] in env.actions
    for metric in found.metrics:
        assert metric.n == 60
        assert isinstance(metric.value, float)
        assert metric.low is not None
        assert metric.high is not None
        assert metric.low <= 1 / 8 <= metric.high
    assert found == measure_baselines(env, "val", 60)


def test_without_a_list_of_actions_there_is_nothing_to_play_blindly() -> None:
    @dataclass(frozen=True)
    class Talk:
        name: str = "talk"

    found = measure_baselines(Talk(), "test", 8)
    assert (found.random.value, found.fixed.value, found.sequence) == (None, None, ())
    assert found.random.why == "the environment has no fixed list of actions"


def test_without_tasks_to_search_on_there_is_no_best_sequence() -> None:
    found = measure_baselines(Echo(instructions="brief"), "val", 8, search_tasks=0)
    assert (found.fixed.value, found.fixed.why, found.sequence) == (None, "it was not searched (search_tasks 0)", ())
    assert found.random.n == 8


def test_the_best_sequence_of_a_small_environment_is_searched_on_all_its_training_tasks() -> None:
    found = measure_baselines(Echo(symbols=8, decoys=1), "val", 3)
    assert len(found.sequence) == 1


def test_episodes_that_break_are_not_counted_by_the_players_that_do_not_read() -> None:
    @dataclass(frozen=True)
    class Fragile(Echo):
        """Breaks where the seed is odd, or always."""

        always: bool = False

        def episode(self) -> Any:
            return Breaking(self, Echo.episode(self))

    class Breaking:
        def __init__(self, env: Fragile, episode: Any) -> None:
            self.env, self.episode = env, episode

        def start(self, task: Any, member: int) -> Any:
            if task.seed % 2 or self.env.always:
                raise RuntimeError("broken")
            return self.episode.start(task, member)

        def step(self, response: str) -> Any:
            return self.episode.step(response)

    found = measure_baselines(Fragile(), "val", 20, search_tasks=20)
    odd = sum(task.seed % 2 for task in evaluation_tasks(Fragile(), "val", 20))
    assert 0 < odd < 20
    assert (found.random.n, found.fixed.n) == (20 - odd, 20 - odd)
    broken = measure_baselines(Fragile(always=True), "val", 5, search_tasks=5)
    assert {(metric.value, metric.n, metric.why) for metric in broken.metrics} == {
        (None, 0, "the environment broke in every episode")
    }


def test_the_noise_of_an_evaluation_depends_on_its_seed_kind_and_version() -> None:
    seeds = {
        evaluation_seed(seed, kind, version) for seed in (0, 1) for kind in ("sampled", "greedy") for version in (0, 9)
    }
    assert len(seeds) == 8
    assert evaluation_seed(0, "sampled", 9) == evaluation_seed(0, "sampled", 9)


def test_tasks_are_played_in_chunks_each_with_a_seed_of_its_own() -> None:
    seeds: list[int] = []

    def policy_of(seed: int) -> ScriptedPolicy:
        seeds.append(seed)
        return ScriptedPolicy(lambda conversation: "<think></think><answer>A</answer>")

    env = Echo()
    tasks = evaluation_tasks(env, "val", 5)
    played = play_tasks(policy_of, 7, env, tasks, samples=2, at_once=4)
    assert [group.task for group in played] == tasks
    assert all(len(group.trajectories) == 2 for group in played)
    assert (seeds[0], len(set(seeds))) == (7, 3)
    seeds.clear()
    play_tasks(policy_of, 7, env, tasks, samples=2, at_once=1024)
    assert seeds == [7]
