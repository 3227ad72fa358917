"""Choosers: which tasks they take, against chances known by hand; the floor, its tag, and that nothing has a state."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from heedful.envs.common.tasks import TaskStream
from heedful.envs.toys.echo import Echo
from heedful.filters import Visit
from heedful.rollout import Chooser
from heedful.rollout.choosers import ByPool, InOrder, Offer, SkipSettled, Thompson, Yoked
from heedful.storage import RunFolder, write_rollouts
from heedful.types import HELPED, PROBE, Ending, Group, Task, Trajectory, Verdict

TIMES = 3000
ALL = [Thompson(), Thompson(value="middle", floor=0.0), SkipSettled(), ByPool()]


def stream(size: int) -> TaskStream:
    return TaskStream(Echo(), "train", 7, size)


def visits(*successes: int, episodes: int = 8) -> list[Visit]:
    return [Visit.of([1.0] * each + [0.0] * (episodes - each)) for each in successes]


def offer(tasks: TaskStream, pasts: Sequence[Sequence[Visit]] = (), seed: int = 0, drawn: Sequence[str] = ()) -> Offer:
    """`pasts`: of the first tasks of the pool. The others were never visited."""
    assert tasks.pool is not None
    past = dict(zip((task.id for task in tasks.pool), pasts, strict=False))
    return Offer(tasks, lambda task: past.get(task, ()), 0, drawn, random.Random(seed))


def share(chooser: Chooser, pasts: Sequence[Sequence[Visit]], count: int = 1) -> list[float]:
    """How often each task of a pool is chosen."""
    tasks = stream(len(pasts))
    assert tasks.pool is not None
    asked, found = offer(tasks, pasts), Counter[str]()
    for _ in range(TIMES):
        found.update(task.id for task in chooser.choose(count, asked))
    return [found[task.id] / TIMES for task in tasks.pool]


@pytest.mark.parametrize("chooser", [InOrder(), *ALL], ids=repr)
def test_a_choice_is_distinct_and_leaves_out_what_the_step_has_drawn(chooser: Chooser) -> None:
    tasks = stream(12)
    pool = [task.id for task in tasks.pool or ()]
    chosen = [task.id for task in chooser.choose(8, offer(tasks, [visits(4)] * 6, drawn=pool[:4]))]
    assert sorted(chosen) == sorted(pool[4:])


@pytest.mark.parametrize("chooser", ALL, ids=repr)
def test_the_same_past_and_the_same_stream_give_the_same_choice(chooser: Chooser) -> None:
    found = [chooser.choose(5, offer(stream(20), [visits(1, 3), visits(8)] * 5, seed)) for seed in (1, 1, 2)]
    assert found[0] == found[1] != found[2]


@pytest.mark.parametrize(("floor", "probes"), [(0.0, 0), (0.125, 2), (0.2, 4), (1.0, 16)])
def test_the_floor_is_a_share_of_the_draws_rounded_up_and_tagged(floor: float, probes: int) -> None:
    chosen = Thompson(floor=floor).choose(16, offer(stream(40)))
    assert [PROBE in task.tags for task in chosen] == [False] * (16 - probes) + [True] * probes


@pytest.mark.parametrize(("count", "floor", "mean"), [(1, 0.125, 0.125), (1, 1.0, 1.0), (2, 0.75, 1.5), (3, 0.0, 0.0)])
def test_where_all_tasks_would_be_probes_their_number_is_rounded_by_chance(
    count: int, floor: float, mean: float
) -> None:
    asked = offer(stream(40))
    probes = [PROBE in task.tags for _ in range(TIMES) for task in Thompson(floor=floor).choose(count, asked)]
    assert sum(probes) / TIMES == pytest.approx(mean, abs=0.05)  # 5 standard errors


def test_probes_are_drawn_uniformly_whatever_is_known() -> None:
    pasts = [visits(8, 8, 8), visits(0, 0, 0), visits(4, 4, 4), visits(2, 2, 2)]
    tasks, asked = stream(4), offer(stream(4), pasts)
    found = Counter(task.id for _ in range(TIMES) for task in Thompson(floor=1.0).choose(1, asked))
    for task in tasks.pool or ():
        assert found[task.id] / TIMES == pytest.approx(0.25, abs=0.04)  # 5 standard errors


def test_thompson_takes_the_task_of_the_largest_value_where_much_is_known() -> None:
    pasts = [visits(*[k] * 12, episodes=400) for k in (40, 132, 200, 268, 360)]
    assert share(Thompson(floor=0.0, discount=1.0), pasts)[1] > 0.95
    assert share(Thompson(floor=0.0, discount=1.0, value="middle"), pasts)[2] > 0.95


def test_thompson_takes_either_of_two_tasks_as_often_as_its_draw_is_larger() -> None:
    # Beta(1/2, 1/2) against the same: one half. Known to be even: p (1 - p) of the other is smaller always.
    assert share(Thompson(floor=0.0), [[], []])[0] == pytest.approx(0.5, abs=0.05)
    even = visits(*[200] * 12, episodes=400)
    # 1/4 against p (1 - p)^2 of arcsine p at p = 1/2: 1/8. It is larger where .5 > p > .191: (2/pi)(asin sqrt .5 -
    # asin sqrt .191) = .2124.
    assert share(Thompson(floor=0.0, discount=1.0), [even, []])[1] == pytest.approx(0.2124, abs=0.04)


def test_forgetting_lets_a_task_that_was_solved_long_ago_come_back() -> None:
    solved = [visits(8, 8, 8, 8), visits(4, 4, 4, 4)]
    assert share(Thompson(floor=0.0, discount=1.0), solved)[0] < share(Thompson(floor=0.0, discount=0.2), solved)[0]


@pytest.mark.parametrize(("past", "settled"), [((8, 8), 2), ((0,), 1), ((8, 0), 1), ((0, 8, 4), 0), ((0, 0, 0), 3)])
def test_a_settled_task_is_skipped_more_often_the_longer_it_is_settled(past: tuple[int, ...], settled: int) -> None:
    # Beside a task without a visit, which is always offered: played where its own draw lets it, and a coin agrees.
    assert share(SkipSettled(floor=0.0), [visits(*past), []])[0] == pytest.approx(0.5 ** (settled + 1), abs=0.04)


def test_whole_numbers_are_thresholds_as_well() -> None:
    assert share(SkipSettled(floor=0.0, easy=1, hard=0), [visits(4), []])[0] == pytest.approx(0.5, abs=0.04)


def test_skipped_tasks_are_played_where_no_others_are_left() -> None:
    assert share(SkipSettled(floor=0.0), [visits(8), visits(0)], count=2) == [1.0, 1.0]


def test_pools_weigh_tasks_by_their_last_group() -> None:
    chooser = ByPool(floor=0.0, easy_weight=0.5, hard_weight=0.25)
    assert share(chooser, [visits(4, 8), visits(8, 4)])[0] == pytest.approx(1 / 3, abs=0.04)
    assert share(chooser, [visits(8, 0), []])[0] == pytest.approx(0.2, abs=0.04)
    assert share(ByPool(floor=0.0, easy_weight=0.0), [visits(8), visits(1)])[0] == 0.0


def written(path: Path, steps: Sequence[Sequence[Task]]) -> str:
    folder = RunFolder(path)
    for step, tasks in enumerate(steps):
        groups = [Group(task, (Trajectory(task, 0, (), Ending.FAILED, 0.0),)) for task in tasks]
        write_rollouts(folder.rollouts(step), step, "train", groups, [Verdict(1.0, "kept", None)] * len(groups), "echo")
    return str(path)


def test_the_yoked_control_repeats_the_schedule_on_other_tasks(tmp_path: Path) -> None:
    a, b, c = (Task(name, 0, "train") for name in "abc")
    run = written(tmp_path / "run", [[b, a], [b, replace(c, tags=(PROBE,))], [c, b]])
    tasks = stream(3)
    pool = list(tasks.pool or ())
    found = [list(Yoked(run).choose(2, replace(offer(tasks), step=step))) for step in range(3)]
    assert [[task.id for task in each] for each in found] == [
        [pool[place].id for place in places] for places in ([0, 1], [0, 2], [2, 0])
    ]
    assert [[PROBE in task.tags for task in each] for each in found] == [[False] * 2, [False, True], [False] * 2]
    (later,) = Yoked(run).choose(1, replace(offer(tasks), step=1, drawn=[pool[0].id, pool[2].id]))
    assert later == pool[1], "a round that the other run did not play takes any task"


def test_help_makes_no_other_task_of_a_schedule_and_a_prompt_that_is_there_twice_is_taken_once(tmp_path: Path) -> None:
    a, b = (Task(name, 0, "train") for name in "ab")
    helped = replace(a, id="a+h3", tags=(HELPED,))
    run, tasks = Yoked(written(tmp_path / "run", [[a, b], [b, helped], [a, a]])), stream(3)
    pool = list(tasks.pool or ())
    run.check(3, 2)
    assert list(run.choose(2, replace(offer(tasks), step=1))) == [pool[1], pool[0]]
    first, other = run.choose(2, replace(offer(tasks), step=2))
    assert (first, other in pool[1:]) == (pool[0], True)


def test_a_schedule_that_is_missing_or_too_large_is_named(tmp_path: Path) -> None:
    a, b, c = (Task(name, 0, "train") for name in "abc")
    run = written(tmp_path / "run", [[a, b], [c, a]])
    Yoked(run).check(2, 3)
    with pytest.raises(ValueError, match="of 3 steps of a run with at most 3 tasks, found none of step 2"):
        Yoked(run).check(3, 3)
    with pytest.raises(ValueError, match="at most 2 tasks, found 3 tasks"):
        Yoked(run).check(2, 2)
    with pytest.raises(ValueError, match="found none of step 0"):
        Yoked(str(tmp_path)).check(1, 3)
