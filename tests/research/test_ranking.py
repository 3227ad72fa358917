"""Ranking a pool of tasks: variances by hand, parts of equal size, and what separate episodes say of a ranking."""

import random
from pathlib import Path

import numpy as np
import pytest

from research.ranking import (
    RankedTask,
    parts_of,
    ranked,
    ranking_metrics,
    read_ranking,
    tasks_of_part,
    values_of,
    variances,
    write_ranking,
)


def pool(values_PKG: object) -> list[RankedTask]:
    return [
        RankedTask(f"t{place}", place, tuple(map(tuple, passes)))
        for place, passes in enumerate(np.asarray(values_PKG).tolist())
    ]


def simulated(rates_P: np.ndarray, passes: int, group: int, seed: int = 0) -> list[RankedTask]:
    """Tasks with known probabilities of success."""
    noise = np.random.default_rng(seed).random((len(rates_P), passes, group))
    return pool((noise < rates_P[:, None, None]).astype(float))


def found(tasks: list[RankedTask], parts: int = 4) -> dict[str, object]:
    return {metric.name.removeprefix("ranking/"): metric.value for metric in ranking_metrics(tasks, parts)}


def test_the_variance_of_a_task_is_that_of_all_its_scored_episodes() -> None:
    tasks = pool([[[0, 0], [0, 0]], [[1, 0], [1, 0]], [[1, 1], [1, 0]]])
    assert variances(values_of(tasks)).tolist() == pytest.approx([0, 1 / 3, 1 / 4])
    one_lost = [RankedTask("a", 0, ((1.0, None), (0.0, 1.0))), RankedTask("b", 1, ((None, None), (None, 1.0)))]
    assert variances(values_of(one_lost))[0] == pytest.approx(1 / 3)
    assert np.isnan(variances(values_of(one_lost))[1])


def test_parts_have_one_size_and_follow_the_variances() -> None:
    variance_P = np.array([0.3, 0.1, np.nan, 0.0, 0.2, 0.25, 0.05, 0.01, 0.15])
    parts = parts_of(variance_P, [f"t{place}" for place in range(9)], 4)
    assert parts.tolist() == [4, 2, 0, 1, 3, 4, 2, 1, 3]
    # Seven tasks in two parts of three: the one in the middle is in neither.
    assert parts_of(np.arange(7.0), [str(place) for place in range(7)], 2).tolist() == [1, 1, 1, 0, 2, 2, 2]


def test_equal_variances_are_ordered_by_the_name_and_not_by_the_place() -> None:
    names = [f"t{place}" for place in range(40)]
    parts = dict(zip(names, parts_of(np.zeros(40), names, 4), strict=True))
    backwards = dict(zip(names[::-1], parts_of(np.zeros(40), names[::-1], 4), strict=True))
    assert parts == backwards
    assert list(parts.values()) != sorted(parts.values())


def test_a_ranking_of_known_tasks_agrees_with_itself_and_one_of_equal_tasks_does_not() -> None:
    spread = np.linspace(0.01, 0.5, 120)
    known = ranking_metrics(ranked(simulated(spread, 8, 8), 4), 4)
    values = {metric.name.removeprefix("ranking/"): metric for metric in known}
    half, group = values["half_spearman"], values["group_spearman"]
    assert isinstance(half.value, float)
    assert isinstance(group.value, float)
    assert half.value > 0.7
    # One group of eight ranks worse than half of sixty-four.
    assert group.value < half.value - 0.1
    equal = {m.name.removeprefix("ranking/"): m for m in ranking_metrics(simulated(np.full(120, 0.3), 8, 8), 4)}
    assert equal["half_spearman"].value == pytest.approx(0, abs=0.3)
    assert equal["same_part"].value == pytest.approx(0.25, abs=0.12)
    solved = {m.name.removeprefix("ranking/"): m for m in ranking_metrics(simulated(np.zeros(240), 2, 8), 4)}
    assert solved["constant"].value == 1
    assert solved["same_part"].value == pytest.approx(0.25, abs=0.12)


def test_a_part_is_measured_on_episodes_that_did_not_choose_it() -> None:
    # All tasks are equal, so no part differs - except on the episodes that chose it.
    tasks = ranked(simulated(np.full(400, 0.2), 4, 4), 4)
    crossed = found(tasks)
    for part in (1, 2, 3, 4):
        assert crossed[f"part_{part}/reward_variance"] == pytest.approx(0.16, abs=0.03)
    own = [task.variance for task in tasks if task.part == 4]
    assert np.mean([value for value in own if value is not None]) > 0.2
    # And where they differ, it shows.
    differing = found(ranked(simulated(np.repeat([0.0, 0.05, 0.2, 0.5], 50), 4, 8), 4))
    assert differing["part_1/hard"] == 1.0
    rising = [differing[f"part_{part}/reward_variance"] for part in (1, 2, 3, 4)]
    assert rising == sorted(rising, key=lambda value: float(str(value)))


def test_a_single_pass_says_nothing_of_agreement() -> None:
    values = found(simulated(np.linspace(0, 1, 20), 1, 8))
    assert set(values) == {"reward_variance", "mean", "constant"}


def test_a_written_ranking_is_read_back(tmp_path: Path) -> None:
    tasks = ranked(simulated(np.linspace(0.1, 0.9, 8), 2, 4), 4)
    tasks.append(RankedTask("t", 1, ((0.0, None, 1.0, 1.0),) * 2, 0.5, 1))
    write_ranking(tmp_path / "ranking.json", tasks, {"passes": 2})
    assert read_ranking(tmp_path / "ranking.json") == tasks


def test_a_random_part_is_as_large_as_the_others() -> None:
    tasks = ranked(simulated(np.linspace(0.05, 0.5, 40), 4, 8), 4)
    chosen = tasks_of_part(tasks, None, random.Random(0))
    assert len(chosen) == len({task.id for task in chosen}) == 10
    assert len({task.part for task in chosen}) > 1
    assert {task.part for task in tasks_of_part(tasks, 4, random.Random(0))} == {4}
