"""From what was collected to what is trained on: surplus, filter, guard and memory, each by hand."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from math import comb
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.algorithms.advantages import GroupRelative, LeaveOneOut
from heedful.algorithms.table import Dapo, DrGrpo, Grpo, Ppo, Rloo
from heedful.filters import DropConstant, KeepAll, RandomSubset, Shrunken, SoftWeight, TopK, TopP, Visit, values_on
from heedful.rollout.choosers import REMEMBERED, Thompson
from heedful.rollout.plans import Dealt, Refill, Sized
from heedful.rollout.rounds import Collection, RefillEnding
from heedful.run.config import TrainConfig
from heedful.run.selection import Coverage, Selection, TaskMemory, TaskRecord, readmit, weigh_by_task
from heedful.training.replay import Success
from heedful.types import Ending, Group, Prompt, Reply, Span, Task, Trajectory, Turn, Verdict

RNG = random.Random(0)
KEPT, BELOW = Verdict(1.0, "kept", 0.3), Verdict(0.0, "below_mass", 0.2)


def group(name: str, *outcomes: float | None) -> Group:
    task = Task(name, 0, "train")
    members = [Trajectory(task, member, (), Ending.FAILED, outcome) for member, outcome in enumerate(outcomes)]
    return Group(task, tuple(members))


def rewarded(name: str, *rewards: float | None) -> Group:
    """A group whose members earn these rewards in one turn."""
    reply = Reply(Prompt("", (1,)), (2,), "", (0.0,), (), Span(0, 0), Span(0, 0), True, False)
    task = Task(name, 0, "train")
    members = [
        Trajectory(task, member, (Turn(reply, {"solved": reward or 0.0}, (), True, "", ""),), Ending.FAILED, reward)
        for member, reward in enumerate(rewards)
    ]
    return Group(task, tuple(members))


def ones(successes: int, episodes: int = 4) -> tuple[float, ...]:
    return (1.0,) * successes + (0.0,) * (episodes - successes)


def collected(*groups: Group, wanted: int | None = None, ending: RefillEnding = "off") -> Collection:
    return Collection(groups, len(groups) if wanted is None else wanted, ending)


def reasons(verdicts: list[Verdict]) -> list[str]:
    return [verdict.reason for verdict in verdicts]


# Without more than a filter -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("filter", [TopP(), KeepAll(), RandomSubset(), SoftWeight(), Shrunken()], ids=repr)
def test_without_pool_and_refill_the_verdicts_are_the_filters(filter: Any) -> None:
    groups = [group("a", *ones(2)), group("b", *ones(0)), group("c", *ones(1)), group("d", None, 1.0)]
    expected = filter(values_on(groups, "outcome"), random.Random(3))
    selection = Selection(filter)
    assert selection.choose(0, collected(*groups), random.Random(3)) == expected
    assert [metric.value for metric in selection.metrics(expected)] == [None, None, None]
    assert "--tasks N" in selection.metrics(expected)[0].why


# Dynamic sampling -----------------------------------------------------------------------------------------------------


def test_the_filter_sees_the_first_groups_that_vary_as_many_as_were_asked_for() -> None:
    groups = [
        group("solved", *ones(4)),
        group("even", *ones(2)),
        group("broken", None, None, None, 1.0),
        group("odd", *ones(1)),
        group("later", *ones(2)),
    ]
    verdicts = Selection(KeepAll()).choose(0, collected(*groups, wanted=2, ending="enough"), RNG)
    assert reasons(verdicts) == ["constant", "kept", "unscored", "kept", "surplus"]
    assert [verdict.weight for verdict in verdicts] == [0, 1, 0, 1, 0]
    assert [verdict.spread for verdict in verdicts] == [0.0, pytest.approx(1 / 3), None, 0.25, pytest.approx(1 / 3)]
    chosen = Selection(TopK(k=1)).choose(0, collected(*groups, wanted=2, ending="enough"), RNG)
    assert reasons(chosen) == ["constant", "kept", "unscored", "below_rank", "surplus"]


def test_a_refill_that_fell_short_leaves_what_varies_to_the_filter() -> None:
    groups = [group("a", *ones(0)), group("b", *ones(1)), group("c", *ones(4))]
    for ending in ("bound", "pool"):
        verdicts = Selection(DropConstant()).choose(0, collected(*groups, wanted=2, ending=ending), RNG)
        assert reasons(verdicts) == ["constant", "kept", "constant"]


@given(st.lists(st.lists(st.sampled_from([0.0, 1.0, None]), min_size=2, max_size=4), max_size=12), st.integers(1, 6))
def test_every_collected_group_has_one_verdict_and_surplus_only_beyond_enough(
    outcomes: list[list[float | None]], wanted: int
) -> None:
    groups = [group(str(number), *values) for number, values in enumerate(outcomes)]
    verdicts = Selection(KeepAll()).choose(0, collected(*groups, wanted=wanted, ending="bound"), RNG)
    assert len(verdicts) == len(groups)
    kept = sum(verdict.kept for verdict in verdicts)
    assert kept <= wanted
    assert kept == wanted or "surplus" not in reasons(verdicts)


# Memory ---------------------------------------------------------------------------------------------------------------


def test_the_memory_counts_visits_successes_and_what_was_passed_over() -> None:
    selection = Selection(TopK(k=1), memory=TaskMemory())
    assert selection.memory is not None
    selection.choose(3, collected(group("a", *ones(2)), group("b", *ones(1))), RNG)
    selection.choose(5, collected(group("b", *ones(1)), group("c", *ones(2))), RNG)
    verdicts = selection.choose(6, collected(group("a", *ones(4)), group("c", None, 1.0)), RNG)
    a, b, c = (selection.memory.of(name) for name in "abc")
    assert (a.visits, a.episodes, a.successes, a.trained, a.last_trained, a.skips) == (2, 8, 6, 1, 3, 1)
    assert (b.visits, b.episodes, b.successes, b.trained, b.last_trained, b.skips) == (2, 8, 2, 0, None, 2)
    assert (c.visits, c.episodes, c.successes, c.trained, c.last_trained, c.skips) == (2, 5, 3, 1, 5, 1)
    assert b.earlier == (Visit.of(ones(1)), Visit.of(ones(1)))
    named = {metric.name: (metric.value, metric.n) for metric in selection.metrics(verdicts)}
    assert named == {
        "filter/starved_tasks": (0.0, 3),
        "filter/longest_skip": (2.0, 3),
        "filter/readmitted": (0.0, 2),
    }
    assert selection.memory.of("never drawn") == TaskRecord()


def test_a_task_with_help_neither_starves_nor_counts_as_a_task_of_the_pool() -> None:
    selection = Selection(TopK(k=1), memory=TaskMemory())
    assert selection.memory is not None
    for step in range(6):
        selection.choose(step, collected(group("a", *ones(2)), group("a+h3", *ones(1)), group("b", *ones(1))), RNG)
    found = {metric.name: (metric.value, metric.n) for metric in selection.metrics([])}
    assert selection.memory.of("a+h3").skips == 6
    assert (found["filter/starved_tasks"], found["filter/longest_skip"]) == ((1.0, 2), (6.0, 2))


def test_the_memory_comes_back_from_json_as_it_was() -> None:
    memory = TaskMemory()
    for step in range(REMEMBERED + 3):
        groups = [group("a", *ones(step % 4)), group("b", 0.25, None, 1.0)]
        memory.observe(step, groups, values_on(groups, "outcome"), [KEPT, BELOW])
    again = TaskMemory()
    again.load_state(json.loads(json.dumps(memory.state())))
    assert again.records == memory.records
    assert len(memory.of("a").earlier) == REMEMBERED
    assert [row["task"] for row in memory.table()] == ["a", "b"]
    assert set(memory.table()[0]) == {
        "task", "visits", "episodes", "successes", "trained", "last_trained", "skips"
    }  # fmt: skip


def test_the_table_of_tasks_copies_no_stored_success() -> None:
    class Large:
        def __deepcopy__(self, memo: object) -> None:
            raise AssertionError("copied")

    memory = TaskMemory(keeps_successes=True)
    memory.records["a"] = TaskRecord(visits=2, success=Success(1, 1.0, 0.5, (Large(),)))  # type: ignore[arg-type]
    assert memory.table()[0]["visits"] == 2


def test_the_past_of_a_task_enters_a_filter_that_learns_from_it() -> None:
    filter = Shrunken(like=TopK(k=1), discount=0.8)
    selection = Selection(filter, memory=TaskMemory())
    for step in range(3):  # a is all but solved, b is open
        selection.choose(step, collected(group("a", *ones(8, 8)), group("b", *ones(4, 8))), RNG)
    now = collected(group("a", *ones(2)), group("b", *ones(1)))
    assert reasons(Selection(filter, memory=TaskMemory()).choose(3, now, RNG)) == ["kept", "below_rank"]
    assert reasons(selection.choose(3, now, RNG)) == ["below_rank", "kept"]


def test_under_dynamic_sampling_each_group_keeps_its_own_past() -> None:
    filter = Shrunken(like=TopK(k=1), discount=0.8)
    selection = Selection(filter, memory=TaskMemory())
    for step in range(3):
        selection.choose(step, collected(group("a", *ones(8, 8)), group("b", *ones(4, 8))), RNG)
    now = collected(group("z", *ones(4)), group("a", *ones(2)), group("b", *ones(1)), wanted=2, ending="enough")
    assert reasons(selection.choose(3, now, RNG)) == ["constant", "below_rank", "kept"]


# The guard ------------------------------------------------------------------------------------------------------------


def test_the_longest_starved_come_first_and_no_more_than_the_rate_allows() -> None:
    verdicts = [BELOW, BELOW, KEPT, BELOW, BELOW]
    names, skips = ["a", "b", "c", "d", "e"], [4, 9, 20, 3, 9]
    chosen = readmit(verdicts, names, skips, [True] * 5, patience=4, most=2)
    assert reasons(chosen) == ["below_mass", "readmitted", "kept", "below_mass", "readmitted"]
    assert chosen[1] == Verdict(1.0, "readmitted", 0.2)
    assert reasons(readmit(verdicts, names, skips, [True] * 5, 4, 1))[1] == "readmitted"  # of equal ones, by name
    assert readmit(verdicts, names, skips, [True] * 5, 4, 0) == verdicts
    assert [Coverage(rate=rate).most(16) for rate in (0.0, 0.01, 0.125, 0.13, 1.0)] == [0, 1, 2, 3, 16]


def test_a_group_that_does_not_vary_is_never_re_admitted() -> None:
    verdicts = [Verdict(0.0, "constant", 0.0), BELOW]
    assert reasons(readmit(verdicts, ["a", "b"], [50, 4], [False, True], 4, 5)) == ["constant", "readmitted"]


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 9), st.booleans()), max_size=10),
    st.integers(1, 6),
    st.integers(0, 5),
    st.randoms(use_true_random=False),
)
def test_the_guard_takes_back_whom_it_may_and_does_not_depend_on_the_order(
    rows: list[tuple[bool, int, bool]], patience: int, most: int, rng: random.Random
) -> None:
    names = [f"task {number}" for number in range(len(rows))]
    verdicts = [KEPT if kept else BELOW for kept, _, _ in rows]
    skips, varies = [skipped for _, skipped, _ in rows], [each for _, _, each in rows]
    chosen = readmit(verdicts, names, skips, varies, patience, most)
    may = [i for i, (kept, skipped, each) in enumerate(rows) if each and not kept and skipped >= patience]
    taken = [i for i, verdict in enumerate(chosen) if verdict.reason == "readmitted"]
    assert set(taken) <= set(may)
    assert len(taken) == min(most, len(may))
    assert all(skips[i] >= skips[j] for i in taken for j in may if j not in taken)
    assert [verdict for i, verdict in enumerate(chosen) if i not in taken] == [
        verdict for i, verdict in enumerate(verdicts) if i not in taken
    ]
    order = rng.sample(range(len(rows)), len(rows))
    shuffled = readmit(*([each[i] for i in order] for each in (verdicts, names, skips, varies)), patience, most)
    assert shuffled == [chosen[i] for i in order]


def test_a_task_that_is_always_ranked_out_is_trained_on_again_once_it_is_starved() -> None:
    selection = Selection(TopK(k=1), Coverage(rate=0.5, patience=2), TaskMemory())
    seen = [selection.choose(step, collected(group("a", *ones(2)), group("b", *ones(1))), RNG) for step in range(7)]
    assert [verdicts[1].reason for verdicts in seen] == ["below_rank", "below_rank", "readmitted"] * 2 + ["below_rank"]
    assert [metric.value for metric in selection.metrics(seen[2])][2] == 1.0


def test_surplus_groups_of_starved_tasks_may_come_back_too() -> None:
    selection = Selection(KeepAll(), Coverage(rate=0.1, patience=1), TaskMemory())
    groups = [group("a", *ones(2)), group("b", *ones(1))]
    seen = [selection.choose(step, collected(*groups, wanted=1, ending="enough"), RNG) for step in range(3)]
    assert [verdicts[1].reason for verdicts in seen] == ["surplus", "readmitted", "surplus"]


# Groups of unequal size -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("estimator", "less"), [(LeaveOneOut(), 0), (GroupRelative(standardize=False), 1)], ids=repr)
def test_weights_keep_the_gradient_of_the_mean_success_at_every_size(estimator: Any, less: int) -> None:
    # One log-odds a task: an episode of outcome r has the score r - p. Every outcome of a group is enumerated.
    chances, sizes = (0.02, 0.2, 0.5, 0.83, 0.97), (2, 9, 4, 7, 3)
    pulls = []
    for chance, size in zip(chances, sizes, strict=True):
        pull = 0.0
        for right in range(size + 1):
            outcomes = ones(right, size)
            (verdict,) = weigh_by_task([Verdict(1.0, "kept", None)], [rewarded("a", *outcomes)], 8, less)
            step = sum(a * (r - chance) for a, r in zip(estimator(outcomes), outcomes, strict=True))
            pull += comb(size, right) * chance**right * (1 - chance) ** (size - right) * verdict.weight * step
        pulls.append(pull)
    # The gradient of the mean of p is p (1 - p) / 5 for each task. All pulls are the same multiple of it.
    expected = [(8 - less) * chance * (1 - chance) for chance in chances]
    assert pulls == pytest.approx(expected, abs=1e-10)


def test_a_group_of_the_usual_size_keeps_its_weight_and_a_dropped_one_stays_dropped() -> None:
    soft = Verdict(0.3, "kept", 0.2)
    groups = [rewarded("a", *ones(2)), rewarded("b", *ones(2, 7), None), rewarded("c", *ones(1, 2))]
    assert weigh_by_task([soft, soft, BELOW], groups, 4, 0)[0] == soft
    assert [each.weight for each in weigh_by_task([soft, soft, BELOW], groups, 4, 0)] == [0.3, 0.3 * 4 / 7, 0.0]


@pytest.mark.parametrize(
    ("algorithm", "weigh", "unit"),
    [
        (Rloo(), "auto", (8, 0)),
        (DrGrpo(), "task", (8, 1)),
        (Rloo(), "episode", None),
        (Grpo(), "auto", None),
    ],
)
def test_tasks_weigh_alike_where_a_weight_can_do_it(algorithm: Any, weigh: Any, unit: tuple[int, int] | None) -> None:
    plan = Sized(weigh=weigh)
    config = TrainConfig(algorithm=algorithm, plan=plan, tasks=64)
    assert config.unit_of_groups == replace(config, plan=Dealt(plan)).unit_of_groups == unit
    assert TrainConfig(algorithm=algorithm).unit_of_groups is None


# Configuration --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"coverage": {"rate": 0.1}}, "every step draws fresh tasks; give a pool with --tasks N"),
        ({"coverage": {"patience": 0}}, "patience: expected a whole number of at least 1"),
        ({"algorithm": {"overlong_penalty": -1.0}}, "overlong_penalty: expected a number of at least 0"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_a_sentence(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        TrainConfig(
            coverage=Coverage(**changes.get("coverage", {})),
            algorithm=replace(Dapo(), **changes.get("algorithm", {})),
        )


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"choose": Thompson()}, "every step draws fresh tasks; give a pool with --tasks N"),
        ({"choose": Thompson(), "tasks": 64, "filter": TopP(on="reward")}, "set --filter.on outcome"),
        ({"plan": Sized()}, "at least as many .--tasks N., found fresh tasks at every step"),
        ({"plan": Sized(candidates=4), "tasks": 63}, "draws 4 x 16 tasks .* found 63"),
        ({"plan": Sized(least=9), "tasks": 64}, "gives a task 9 to 32 episodes .* found 8"),
        ({"plan": Dealt(Sized(weigh="task")), "tasks": 64}, "no weight does under GroupRelative as it is set"),
        ({"plan": Refill(), "group_size": 1, "filter": KeepAll(), "algorithm": Ppo()}, "a group of 1 never does"),
    ],
)
def test_plans_and_choosers_that_cannot_work_are_refused_with_a_sentence(
    changes: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        TrainConfig(**changes)


def test_batches_of_the_algorithm_are_a_spelling_of_the_plan_refill() -> None:
    assert TrainConfig(algorithm=Dapo(sampling_batches=4)).rounds == Refill(4)
    assert TrainConfig(algorithm=Dapo(), plan=Refill(2)).rounds == Refill(2)
    assert TrainConfig(algorithm=Dapo(), plan=Sized(), tasks=32).rounds == Sized()
    assert TrainConfig().rounds == TrainConfig().plan
