"""Rounds of asks: what a plan asks for, how it ends, and that a group is counted as one whatever it is made of."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.rollout.plans import Fixed, Refill
from heedful.rollout.rounds import Ask, Collection, Plan, Standing, collect_in_rounds, count_varying, refill_size
from heedful.types import Ending, Group, Prompt, Reply, Span, Task, Trajectory, Turn


def turn(reward: float, restarts: bool = False) -> Turn:
    reply = Reply(Prompt("", (1,), restarts), (2,), "", (0.0,), (), Span(0, 0), Span(0, 0), True, False)
    return Turn(reply, {"reward": reward}, (), True, "", "")


def group(name: str, outcomes: list[float | None], turns: int = 1, windows: bool = False) -> Group:
    task = Task(name, 0, "train")
    members = tuple(
        Trajectory(task, member, tuple(turn(0.1 * n, windows and n > 0) for n in range(turns)), Ending.FAILED, outcome)
        for member, outcome in enumerate(outcomes)
    )
    return Group(task, members)


Draw = Callable[[int, int], list[Group]]


def drawing(varies: Callable[[int], bool]) -> tuple[list[int], Draw]:
    """The sizes asked for, and a draw whose n-th group in all varies if `varies` says so."""
    sizes: list[int] = []

    def draw(number: int, count: int) -> list[Group]:
        assert number == len(sizes)
        first = sum(sizes)
        sizes.append(count)
        return [group(str(n), [0.0, float(varies(n))]) for n in range(first, first + count)]

    return sizes, draw


def collect(plan: Plan, draw: Draw, wanted: int, tasks: int | None = None) -> Collection:
    """The collection of a plan whose asks are all of two members."""

    def play(number: int, asks: Sequence[Ask]) -> list[Group]:
        assert {ask.members for ask in asks} == {2}
        return draw(number, len(asks))

    def tasks_of(count: int) -> list[Task]:
        assert count, "a draw of none would move on the stream of tasks"
        return [Task("", 0, "train")] * count

    now = Standing(wanted, 2, "outcome", tasks_of, random.Random(0), tasks=tasks)
    return collect_in_rounds(plan, now, play)


@pytest.mark.parametrize("plan", [Fixed(), Refill(1)], ids=repr)
def test_with_one_round_nothing_is_refilled(plan: Plan) -> None:
    sizes, draw = drawing(lambda n: False)
    found = collect(plan, draw, 8)
    assert (sizes, found.ending, found.rounds, len(found.groups)) == ([8], "off", 1, 8)


def test_a_batch_that_varies_throughout_needs_no_second_draw() -> None:
    sizes, draw = drawing(lambda n: True)
    found = collect(Refill(3), draw, 8)
    assert (sizes, found.ending, found.rounds) == ([8], "enough", 1)


def test_a_refill_asks_for_what_is_likely_to_be_needed() -> None:
    # 14 of 16 vary: q = 15/18 with one of each kind added. 3 q - sqrt(3 q (1 - q)) = 1.85 < 2, with 4 it is 2.59.
    sizes, draw = drawing(lambda n: n not in (3, 7))
    found = collect(Refill(3), draw, 16)
    assert (sizes, found.ending, found.rounds) == ([16, 4], "enough", 2)


def test_the_bound_has_a_name_and_no_draw_is_larger_than_the_first() -> None:
    sizes, draw = drawing(lambda n: n == 0)
    found = collect(Refill(3), draw, 8)
    assert (sizes, found.ending, found.rounds) == ([8, 8, 8], "bound", 3)


def test_a_pool_that_has_been_drawn_has_a_name_too() -> None:
    sizes, draw = drawing(lambda n: n % 2 == 0)
    found = collect(Refill(9), draw, 8, tasks=13)
    assert (sizes, found.ending, found.rounds, len(found.groups)) == ([8, 5], "pool", 2, 13)


@given(
    st.integers(1, 12), st.integers(1, 5), st.lists(st.booleans(), min_size=60, max_size=60), st.none() | st.just(20)
)
def test_every_collection_ends_as_it_says(wanted: int, draws: int, varies: list[bool], tasks: int | None) -> None:
    sizes, draw = drawing(varies.__getitem__)
    found = collect(Refill(draws), draw, wanted, tasks)
    assert sizes[0] == wanted
    assert all(1 <= size <= wanted for size in sizes)
    assert found.rounds == len(sizes) <= draws
    assert len(found.groups) == sum(sizes) <= (tasks or 1000)
    varying = sum(varies[: len(found.groups)])
    endings = {
        "off": draws == 1,
        "enough": draws > 1 and varying >= wanted,
        "bound": draws > 1 and varying < wanted and len(sizes) == draws,
        "pool": varying < wanted and sum(sizes) == tasks,
    }
    assert endings[found.ending]
    # Groups enough stood before the last draw in no case.
    assert draws == 1 or len(sizes) == 1 or sum(varies[: sum(sizes[:-1])]) < wanted


@pytest.mark.parametrize(("share", "groups", "draws"), [(0.9, 20, 2), (0.7, 27, 2.2), (0.5, 36, 2.6)])
def test_refills_by_size_save_groups_and_cost_hardly_a_draw(share: float, groups: float, draws: float) -> None:
    rng = random.Random(2)
    found = []
    for _ in range(400):
        varies = [rng.random() < share for _ in range(200)]
        found.append(collect(Refill(3), drawing(varies.__getitem__)[1], 16))
    assert fmean(len(each.groups) for each in found) < groups  # whole batches: 29, 32, 39
    assert fmean(each.rounds for each in found) < draws  # whole batches: 1.8, 2.0, 2.4
    assert fmean(each.ending == "enough" for each in found) > 0.95


def test_the_size_grows_with_the_need_and_falls_with_the_share() -> None:
    assert refill_size(1, 16, 16, 16) == 2
    assert refill_size(4, 8, 16, 16) < refill_size(8, 8, 16, 16)
    assert refill_size(4, 12, 16, 16) < refill_size(4, 4, 16, 16)
    assert refill_size(16, 0, 16, 16) == 16
    assert refill_size(6, 6, 12, 100, margin=0.0) == 12


def test_metrics_say_how_it_ended_or_that_it_is_off() -> None:
    named = {metric.name: metric for metric in Collection((group("a", [0.0, 1.0]),), 1, "enough", 2).metrics()}
    assert named["filter/refill"].value == "enough"
    assert (named["filter/draws"].value, named["filter/collected_groups"].value) == (2.0, 1.0)
    off = Collection((), 1, "off").metrics()[0]
    assert off.value is None
    assert "--algorithm.sampling-batches" in off.why


# Faults that other trainers had ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("windows", [False, True], ids=["one row", "a row per turn"])
def test_a_group_is_one_however_many_turns_and_rows_its_members_have(windows: bool) -> None:
    # Counted by fragments (slime #2381), five turns of four members would be enough for any batch.
    groups = [group("a", [1.0, 0.0, 0.0, 0.0], turns=5, windows=windows), group("b", [0.0] * 4, turns=5)]
    assert count_varying(groups, "outcome") == 1
    sizes: list[int] = []

    def draw(number: int, count: int) -> list[Group]:
        sizes.append(count)
        return groups[:count] if number == 0 else [group(f"{number}/{n}", [0.0, 1.0], 5, windows) for n in range(count)]

    assert collect(Refill(3), draw, 2).ending == "enough"
    assert len(sizes) == 2


def test_a_constant_reward_between_the_ends_of_its_range_is_no_signal() -> None:
    # A filter on the range of means (OpenRLHF #1272) takes 0.5, 0.5, 0.5 for mixed.
    assert count_varying([group("a", [0.5, 0.5, 0.5]), group("b", [0.1 + 0.2, 0.3, 0.3])], "outcome") == 0


def test_members_that_broke_and_unscored_groups_do_not_vary() -> None:
    assert (
        count_varying([group("a", [1.0, None]), group("b", [None, None]), group("c", [1.0, None, 0.0])], "outcome") == 1
    )
