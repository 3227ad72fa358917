"""Unequal groups: their values against exact moments, their sizes against exhaustive search, and the control."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import product
from math import fsum, prod

import pytest

from heedful.diagnostics.statistics.beliefs import Belief
from heedful.filters import Visit
from heedful.rollout.plans import Dealt, Sized, allocate
from heedful.rollout.rounds import Ask, Plan, Standing, at_one_size, collect_in_rounds
from heedful.types import Ending, Group, Task, Trajectory

BELIEFS = [(0.5, 0.5), (1.0, 1.0), (0.5, 4.5), (6.0, 2.5), (3.25, 3.25), (0.75, 20.0)]


def moment(belief: tuple[float, float], right: int, wrong: int) -> Fraction:
    """E[p^right q^wrong] under a Beta, exactly."""
    a, b = map(Fraction, belief)
    parts = [a + each for each in range(right)] + [b + each for each in range(wrong)]
    return prod(parts, start=Fraction(1)) / prod((a + b + each for each in range(right + wrong)), start=Fraction(1))


@pytest.mark.parametrize("belief", BELIEFS)
@pytest.mark.parametrize("power", [1, 2])
def test_the_worth_of_a_size_is_the_exact_expectation(belief: tuple[float, float], power: int) -> None:
    for count in (1, 2, 8, 32):
        exact = moment(belief, 1, power) - moment(belief, count + 1, power) - moment(belief, 1, count + power)
        assert Belief(*belief).worth(count, power) == pytest.approx(float(exact), abs=1e-14)
        mixed = 1 - moment(belief, count, 0) - moment(belief, 0, count)
        assert Belief(*belief).mixed(count) == pytest.approx(float(mixed), abs=1e-14)
    gains = [Belief(*belief).worth(n + 1, power) - Belief(*belief).worth(n, power) for n in range(2, 40)]
    assert gains == sorted(gains, reverse=True), "each further episode adds less"


def pool(pasts: Mapping[str, Sequence[tuple[int, int]]], wanted: int, size: int) -> Standing:
    """Tasks in their order, with (episodes, successes) of their visits."""
    tasks = [Task(name, 0, "train") for name in pasts]
    visits = {name: [Visit.of([1.0] * k + [0.0] * (n - k)) for n, k in past] for name, past in pasts.items()}
    return Standing(wanted, size, "outcome", lambda count: tasks[:count], random.Random(3), visits.__getitem__)


@pytest.mark.parametrize("skips", [False, True])
def test_sizes_are_the_best_of_all_that_there_are(skips: bool) -> None:
    rng, sizes = random.Random(8), [*([0] if skips else []), 2, 3, 4, 5, 6, 7]
    values = [
        lambda p, n: (1 - p**n - (1 - p) ** n) * p * (1 - p) ** 2,
        lambda p, n: (1 - p**n - (1 - p) ** n) * p * (1 - p),
        lambda p, n: 1 - p**n - (1 - p) ** n,
        lambda p, n: -p * (1 - p) / (n - 1) if n > 1 else -1.0,
        lambda p, n: n * p * p,  # convex: all to one
        lambda p, n: rng.random(),  # any worths at all
    ]
    for value in values:
        chances = [rng.random() for _ in range(4)]
        worths = [[value(p, n) if n else 0.0 for n in sizes] for p in chances]
        found = allocate(worths, sizes, 16)
        assert sum(found) == 16
        totals = [
            fsum(each[place] for each, place in zip(worths, places, strict=True))
            for places in product(range(len(sizes)), repeat=4)
            if sum(sizes[place] for place in places) == 16
        ]
        total = fsum(each[sizes.index(size)] for each, size in zip(worths, found, strict=True))
        assert total == pytest.approx(max(totals), abs=1e-12)


def test_a_budget_that_no_sizes_add_up_to_is_refused() -> None:
    with pytest.raises(ValueError, match="no sizes of 2 tasks among 4, 5 add up to 7"):
        allocate([[0.1, 0.2]] * 2, [4, 5], 7)


def asked(plan: Plan, now: Standing) -> dict[str, int]:
    asks = plan.ask(now)
    assert len({ask.task.id for ask in asks}) == len(asks)
    return {ask.task.id: ask.members for ask in asks}


def test_where_nothing_is_known_groups_are_equal() -> None:
    assert set(asked(Sized(), pool(dict.fromkeys("abcdefgh", ()), 8, 8)).values()) == {8}


def test_a_solved_task_gets_the_least_and_a_hard_one_with_successes_the_most() -> None:
    now = pool({"solved": [(8, 8)] * 3, "even": [(8, 4)] * 3, "hard": [(8, 1)] * 3, "hopeless": [(8, 0)] * 6}, 4, 8)
    found = asked(Sized(), now)
    assert sum(found.values()) == 32
    assert found["solved"] == 4
    assert found["hard"] > found["even"] > found["solved"]
    middle = asked(Sized(value="middle"), now)
    assert middle["hard"] - middle["even"] < found["hard"] - found["even"]


def test_with_candidates_a_task_may_get_no_episode() -> None:
    pasts = {"even": [(8, 4)] * 3, "odd": [(8, 3)] * 3, **{f"solved{n}": [(8, 8)] * 4 for n in range(6)}}
    found = asked(Sized(candidates=2), pool(pasts, 4, 8))
    assert sum(found.values()) == 32
    assert {"even", "odd"} <= found.keys() < pasts.keys()
    assert min(found.values()) >= 4


def test_the_control_deals_the_same_sizes_to_any_task() -> None:
    pasts = {"solved": [(8, 8)] * 3, "even": [(8, 4)] * 3, "hard": [(8, 1)] * 3, "hopeless": [(8, 0)] * 6}
    sized = asked(Sized(), pool(pasts, 4, 8))
    now = pool(pasts, 4, 8)
    got: Counter[int] = Counter()
    for _ in range(400):
        dealt = asked(Dealt(), now)
        assert sorted(dealt.values()) == sorted(sized.values())
        got[dealt["hard"]] += 1
    expected = Counter(sized.values())
    for size, times in expected.items():
        assert got[size] == pytest.approx(100 * times, abs=40), "within 4.6 standard errors"


def group(name: str, outcomes: Sequence[float]) -> Group:
    task = Task(name, 0, "train")
    return Group(task, tuple(Trajectory(task, n, (), Ending.FAILED, each) for n, each in enumerate(outcomes)))


def test_unequal_groups_say_their_sizes_and_equal_ones_do_not() -> None:
    def play(number: int, asks: Sequence[Ask]) -> list[Group]:
        return [group(ask.task.id, [0.0] * ask.members) for ask in asks]

    now = pool({"solved": [(8, 8)] * 3, "even": [(8, 4)] * 3, "hard": [(8, 1)] * 3}, 3, 8)
    found = collect_in_rounds(Sized(), now, play)
    sizes = [len(each.trajectories) for each in found.groups]
    named = {metric.name: metric.value for metric in found.metrics()}
    assert (named["filter/least_members"], named["filter/most_members"]) == (min(sizes), max(sizes))
    assert (found.ending, found.rounds) == ("off", 1)
    equal = collect_in_rounds(Sized(), pool(dict.fromkeys("abc", ()), 3, 8), play)
    assert not [metric for metric in equal.metrics() if metric.name.endswith("_members")]


def test_readings_take_the_first_members_of_each_group_as_many_as_the_smallest_has() -> None:
    groups = [group("a", [1.0, 0.0, 1.0]), group("b", [0.0, 0.0, 1.0, 1.0, 1.0])]
    found = at_one_size(groups)
    assert [[member.outcome for member in each.trajectories] for each in found] == [[1.0, 0.0, 1.0], [0.0, 0.0, 1.0]]
    assert at_one_size(found) == found
    assert at_one_size([]) == []
    # The first m of n are m episodes of the task, so the share of mixed groups is that of groups of m, at every n.
    chance = 0.3
    for size in range(2, 7):
        mixed = sum(
            prod(chance if each else 1 - chance for each in outcomes)
            for outcomes in product((0.0, 1.0), repeat=size)
            if len({each.outcome for each in at_one_size([group("a", outcomes), group("b", [0, 0])])[0].trajectories})
            > 1
        )
        assert mixed == pytest.approx(1 - chance**2 - (1 - chance) ** 2)
