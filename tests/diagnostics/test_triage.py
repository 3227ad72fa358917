"""Triage: why groups teach nothing, per group, per task over time, and by tag."""

from episodes import outcomes

from heedful.diagnostics.task_triage import (
    ADVICE,
    CAUSES,
    Stay,
    histories,
    reports_progress,
    shares_by_tag,
    triage,
)
from heedful.types import Group, Task, Verdict


def causes(*groups, on="outcome"):
    return [one.cause for one in triage(0, groups, None, on)]


def test_groups_are_mixed_solved_blind_or_failed():
    assert causes(
        outcomes("a", 0.0, 1.0),
        outcomes("b", 1.0, 1.0),
        outcomes("c", 0.0, 0.0, progress=[0.2, 0.9]),
        outcomes("d", 0.0, 0.0, progress=[0.4, 0.4]),
        outcomes("e", 0.0, None),
    ) == ["mixed", "solved", "blind", "failed"], "a group with one scored member is left out"
    assert causes(outcomes("a", 0.0, 1.0), on="reward") == ["blind"], "one succeeded, and both earned nothing"


def test_there_is_advice_for_every_kind_without_signal():
    assert set(ADVICE) == set(CAUSES) - {"mixed"}


def test_progress_tells_blind_from_failed():
    assert reports_progress([outcomes("a", 0.0, 0.0, progress=[None, 0.5])])
    assert not reports_progress([outcomes("a", 0.0, 0.0)])


def visits(task, *kinds, kept=None):
    pairs = {"mixed": (0.0, 1.0), "solved": (1.0, 1.0), "failed": (0.0, 0.0)}
    found = []
    for step, kind in enumerate(kinds):
        if kind:
            verdicts = None if kept is None else [Verdict(float(kept(step)), "kept", 0.0)]
            found += triage(step, [outcomes(task, *pairs[kind])], verdicts, "outcome")
    return found


def test_a_task_has_a_history_with_its_stays():
    (history,) = histories(
        visits("a", "failed", "failed", None, "mixed", "solved", "solved", kept=lambda step: step == 3)
    )
    assert history.stays == (Stay("failed", 2, 0, 1), Stay("mixed", 1, 3, 3), Stay("solved", 2, 4, 5))
    assert history.longest == Stay("solved", 2, 4, 5), "the latest of equals"
    assert history.trained == 1
    assert [visit.step for visit in history.visits] == [0, 1, 3, 4, 5]


def test_the_tasks_that_taught_nothing_for_longest_come_first():
    seen = [*visits("b", "failed"), *visits("a", "mixed", "mixed"), *visits("c", "solved", "solved")]
    found = histories(seen)
    assert [history.task for history in found] == ["c", "b", "a"]
    assert found[2].longest is None
    assert found[2].trained is None, "nothing was filtered"


def tagged(kind, *tags):
    group = outcomes("a", *((1.0, 1.0) if kind == "solved" else (0.0, 0.0)))
    return triage(0, [Group(Task("a", 0, "train", tags), group.trajectories)], None, "outcome")


def test_shares_are_taken_by_tag():
    seen = [*tagged("solved", "easy"), *tagged("failed", "hard", "long"), *tagged("solved", "hard")]
    rows = shares_by_tag(seen)
    assert [(row.label, row.groups) for row in rows] == [("hard", 2), ("easy", 1), ("long", 1)]
    assert rows[0].shares == {"mixed": 0.0, "solved": 0.5, "blind": 0.0, "failed": 0.5}
    assert shares_by_tag(tagged("solved")) == []
