"""Triage: why groups teach nothing, per group, per task over time, and by tag."""

import numpy as np
import pytest
from episodes import outcomes

from heedful.diagnostics.task_triage import (
    ADVICE,
    CAUSES,
    TaskHistory,
    Triaged,
    histories,
    reports_progress,
    room,
    room_of,
    shares_by_tag,
    triage,
)
from heedful.types import Group, Task


def causes(*groups, on="outcome"):
    return [one.cause for one in triage(0, groups, on)]


def test_groups_are_mixed_solved_unpaid_or_failed():
    assert causes(
        outcomes("a", 0.0, 1.0),
        outcomes("b", 1.0, 1.0),
        outcomes("c", 0.0, 0.0, progress=[1.0, 1.0]),
        outcomes("d", 0.0, 0.0, progress=[0.2, 0.9]),
        outcomes("e", 0.0, None),
    ) == ["mixed", "solved", "unpaid", "failed"], "a group with one scored member is left out"
    assert causes(outcomes("a", 0.0, 1.0), on="reward") == ["unpaid"], "one succeeded, and both earned nothing"


def test_there_is_advice_for_every_kind_without_signal():
    assert set(ADVICE) == set(CAUSES) - {"mixed"}


def test_progress_tells_unpaid_from_failed():
    assert reports_progress([outcomes("a", 0.0, 0.0, progress=[None, 0.5])])
    assert not reports_progress([outcomes("a", 0.0, 0.0)])


def test_a_task_has_its_visits_in_order():
    seen = [*triage(3, [outcomes("b", 1.0, 1.0)], "outcome"), *triage(1, [outcomes("b", 0.0, 0.0)], "outcome")]
    (history,) = histories(seen)
    assert [(visit.step, visit.cause) for visit in history.visits] == [(1, "failed"), (3, "solved")]


def tagged(kind, *tags):
    group = outcomes("a", *((1.0, 1.0) if kind == "solved" else (0.0, 0.0)))
    return triage(0, [Group(Task("a", 0, "train", tags), group.trajectories)], "outcome")


def test_shares_are_taken_by_tag():
    seen = [*tagged("solved", "easy"), *tagged("failed", "hard", "long"), *tagged("solved", "hard")]
    rows = shares_by_tag(seen)
    assert [(row.label, row.groups) for row in rows] == [("hard", 2), ("easy", 1), ("long", 1)]
    assert rows[0].shares == {"mixed": 0.0, "solved": 0.5, "unpaid": 0.0, "failed": 0.5}
    assert shares_by_tag(tagged("solved")) == []


def played(rng, paid, chances, members=8):
    """The history of a task: one visit for each chance of getting all the way."""
    visits = []
    for step, chance in enumerate(chances):
        right = rng.random(members) < chance
        progress = np.where(right, 1.0, rng.random(members) * 0.9)
        visits += triage(step, [outcomes("a", *(right * paid).tolist(), progress=progress.tolist())], "outcome")
    return TaskHistory("a", (), tuple(visits))


@pytest.mark.parametrize(
    ("kind", "paid", "low", "high", "least"),
    [
        ("solved", 1.0, 0.96, 1.0, 0.94),
        ("mixed", 1.0, 0.15, 0.8, 0.97),
        ("failed", 1.0, 0.0, 0.02, 0.97),
        ("unpaid", 0.0, 0.2, 0.9, 0.98),
    ],
)
def test_four_visits_of_eight_name_what_a_planted_task_is(kind, paid, low, high, least):
    """Failed members got differently far, which says nothing of the reward. 400 planted tasks of each kind."""
    rng = np.random.default_rng(11)
    named = [played(rng, paid, [rng.uniform(low, high)] * 4).now for _ in range(400)]
    assert named.count(kind) / len(named) >= least


def test_a_task_that_improved_is_named_by_its_last_visits():
    rng = np.random.default_rng(5)
    assert played(rng, 1.0, [0.0, 0.0, *[1.0] * 10]).now == "solved"
    assert played(rng, 1.0, [0.0, 0.0, 0.5]).now == "mixed"


def test_a_task_that_paid_once_is_not_unpaid():
    visits = [*triage(0, [outcomes("a", 0.0, 0.0, progress=[1.0, 1.0])], "outcome"), *visits_of_success()]
    assert TaskHistory("a", (), tuple(visits)).now == "mixed"


def visits_of_success():
    return triage(1, [outcomes("a", 1.0, 0.0, progress=[1.0, 0.0])], "outcome")


def test_room_is_what_the_best_eighth_varies_relative_to_all():
    names = [str(number) for number in range(16)]
    halves = [[float(number < 4) for number in range(16)]] * 2
    assert room(names, halves).value == 4.0, "two of the four that vary, each 1, over a mean of 4/16"
    assert room(names, [[0.25] * 16] * 2).value == pytest.approx(1.0)
    assert "fewer than 16" in room(names[:15], [[1.0] * 15] * 2).why
    assert "fewer than two tasks vary" in room(names, [[0.0] * 16] * 2).why


def test_the_order_of_tasks_does_not_change_room():
    rng = np.random.default_rng(2)
    halves, order = rng.integers(0, 3, (2, 40)) / 4.0, rng.permutation(40)
    names = [f"task {number}" for number in range(40)]
    found = room(names, halves), room([names[place] for place in order], halves[:, order])
    assert found[0].value == pytest.approx(found[1].value, abs=1e-12)
    assert found[0].low == pytest.approx(found[1].low, abs=1e-12)


@pytest.mark.parametrize("prior", [(0.5, 0.5), (50.0, 50.0)])
def test_the_interval_of_room_covers(prior):
    """The truth is the mean over 300 pools of 64 tasks with two visits of 8: 1.8 with much to choose, else 1.0."""
    rng = np.random.default_rng(9)
    found = []
    for _ in range(300):
        chance_P = rng.beta(*prior, size=64)
        variance_HP = (rng.random((2, 64, 8)) < chance_P[:, None]).var(axis=2, ddof=1)
        found.append(room([str(number) for number in range(64)], variance_HP))
    truth = np.mean([metric.value for metric in found])
    assert np.mean([metric.low <= truth <= metric.high for metric in found]) >= 0.9
    assert (truth > 1.5) == (prior[0] < 1), truth


def test_room_reads_every_other_visit():
    def history(number):
        visits = [Triaged(step, str(number), (), "mixed", float(number < 4), 8, 4) for step in range(3)]
        return TaskHistory(str(number), (), tuple(visits))

    assert room_of([history(number) for number in range(16)]).value == 4.0
