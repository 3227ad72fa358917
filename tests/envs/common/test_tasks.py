"""Splits, task streams, evaluation tasks and the registry."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import heedful.envs
from heedful.envs.common.tasks import TaskStream, evaluation_tasks, split_of, task_of
from heedful.envs.frozen_lake.environment import FrozenLake
from heedful.envs.toys.echo import Echo
from heedful.types import Task


def test_the_splits_are_disjoint_by_start_state_and_hold_four_fifths_and_two_tenths() -> None:
    env = FrozenLake()
    ids: dict[str, set[str]] = {"train": set(), "val": set(), "test": set()}
    for seed in range(2_000):
        task = env.task(seed)
        ids[task.split].add(task.id)
    assert not ids["train"] & ids["val"]
    assert not ids["train"] & ids["test"]
    assert not ids["val"] & ids["test"]
    share = len(ids["train"]) / sum(map(len, ids.values()))
    assert 0.76 < share < 0.84


def test_a_split_is_the_same_on_every_machine() -> None:
    assert [split_of(text) for text in ("a", "start 12", "d")] == ["train", "val", "test"]
    assert split_of("a") == split_of(b"a")


def test_an_id_depends_on_the_start_state_alone() -> None:
    assert task_of("x", "s", 1).id == task_of("x", "s", 2).id
    assert task_of("x", "s", 1).id != task_of("x", "t", 1).id
    assert task_of("x", "s", 1).id != task_of("y", "s", 1).id


def test_a_stream_draws_distinct_tasks_of_its_split_and_goes_on() -> None:
    stream = TaskStream(FrozenLake(), "val", seed=3)
    first, second = stream.next(20), stream.next(20)
    for tasks in (first, second):
        assert len({task.id for task in tasks}) == 20
        assert {task.split for task in tasks} == {"val"}
    assert {task.seed for task in first}.isdisjoint(task.seed for task in second)


@pytest.mark.parametrize("pool", [None, 30])
def test_setting_the_cursor_continues_a_stream_where_it_was(pool: int | None) -> None:
    stream = TaskStream(FrozenLake(), "train", seed=0, pool=pool)
    stream.next(8)
    cursor = json.loads(json.dumps(stream.cursor))
    following = [stream.next(8) for _ in range(3)]
    resumed = TaskStream(FrozenLake(), "train", seed=0, pool=pool)
    resumed.cursor = cursor
    assert [resumed.next(8) for _ in range(3)] == following


def test_streams_of_other_seeds_draw_other_tasks() -> None:
    one, two = (TaskStream(FrozenLake(), "train", seed=seed).next(8) for seed in (0, 1))
    assert {task.seed for task in one}.isdisjoint(task.seed for task in two)


def test_a_pool_is_the_head_of_the_stream_and_is_drawn_from_without_replacement() -> None:
    stream = TaskStream(FrozenLake(), "train", seed=0, pool=10)
    assert stream.pool == tuple(TaskStream(FrozenLake(), "train", seed=0).next(10))
    draws = [stream.next(6) for _ in range(20)]
    assert all(len({task.id for task in tasks}) == 6 for tasks in draws)
    assert {task.id for tasks in draws for task in tasks} == {task.id for task in stream.pool}
    assert len({tuple(task.id for task in tasks) for tasks in draws}) > 10


def test_asking_a_pool_for_more_than_it_holds_is_refused() -> None:
    with pytest.raises(ValueError, match="the pool holds 4"):
        TaskStream(FrozenLake(), "train", seed=0, pool=4).next(5)


def test_a_split_without_enough_start_states_ends_in_a_sentence() -> None:
    with pytest.raises(ValueError, match="distinct tasks of split 'test' were asked for"):
        TaskStream(Echo(symbols=2, decoys=0), "test", seed=0).next(3)


def test_a_split_gives_all_that_it_has_where_fewer_tasks_will_do() -> None:
    small, split = Echo(symbols=4, decoys=1), "train"
    every = {task.id for task in map(small.task, range(1000)) if task.split == split}
    found = TaskStream(small, split, seed=0).next(200, fewer=True)
    assert {task.id for task in found} == every
    assert len(found) == len(every) < 12
    assert TaskStream(small, split, seed=0).next(3) == found[:3]


def test_a_task_that_an_environment_cannot_draw_ends_in_a_sentence_that_names_it() -> None:
    class Mapless(Echo):
        def task(self, seed: int) -> Task:
            raise KeyError("no map")

    class Empty(Echo):
        def task(self, seed: int) -> Task:
            return None  # type: ignore[return-value]

    with pytest.raises(ValueError, match=r"task of seed \d+ from the environment echo, found that it raised KeyError"):
        TaskStream(Mapless(), "train", 0).next(1)
    with pytest.raises(ValueError, match="found NoneType where a Task was expected"):
        TaskStream(Empty(), "train", 0).next(1)


def test_evaluation_tasks_are_fixed_and_more_of_them_begin_with_the_fewer() -> None:
    few, many = evaluation_tasks(FrozenLake(), "test", 20), evaluation_tasks(FrozenLake(), "test", 40)
    assert many[:20] == few
    assert len({task.id for task in many}) == 40


def test_every_registered_environment_loads_under_its_name() -> None:
    for name in heedful.envs.ENVIRONMENTS:
        assert heedful.envs.ENVIRONMENTS.get_class(name)().name == name


def test_a_mistyped_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"known are bandit, .*Did you mean frozen_lake\?"):
        heedful.envs.ENVIRONMENTS.get_class("frozenlake")


def test_importing_the_registry_loads_no_environment() -> None:
    code = "import sys, heedful.envs; print([m for m in sys.modules if m.startswith('heedful.envs.') or m == 'torch'])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize("pool", [None, 12], ids=["fresh", "pool"])
def test_further_tasks_of_a_step_are_none_that_it_has_seen(pool: int | None) -> None:
    stream = TaskStream(FrozenLake(), "train", seed=3, pool=pool)
    first = stream.next(6)
    further = stream.next(5, beside={task.id for task in first})
    assert not {task.id for task in first} & {task.id for task in further}
    again = TaskStream(FrozenLake(), "train", seed=3, pool=pool)
    assert again.next(6) == first
    cursor = again.cursor
    assert again.next(5, beside={task.id for task in first}) == further
    again.cursor = cursor
    assert again.next(5, beside={task.id for task in first}) == further


def test_a_pool_that_has_been_seen_whole_has_no_further_tasks() -> None:
    stream = TaskStream(FrozenLake(), "train", seed=3, pool=6)
    seen = {task.id for task in stream.next(4)}
    with pytest.raises(ValueError, match="the pool holds 2: enlarge the pool"):
        stream.next(3, beside=seen)
