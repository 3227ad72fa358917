"""Treatments by cause, each by hand: what is left out, what is helped and how far, and the control."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from heedful.envs.common.helped import Helped
from heedful.envs.common.tasks import TaskStream
from heedful.envs.toys.chain import UNREWARDED, Chain
from heedful.envs.toys.echo import Echo
from heedful.run.selection import TaskMemory, TaskRecord
from heedful.run.treatments import Action, Treated, Treatments
from heedful.types import (
    HELPED,
    PROBE,
    Ending,
    Group,
    Observation,
    Prompt,
    Reply,
    Span,
    Step,
    Task,
    Trajectory,
    Turn,
    Verdict,
)

ALL: tuple[Action, ...] = ("skip", "exclude", "help")
LONG = Helped(Chain(turns=8, least=1, most=2))
PLANTED = Helped(Chain(turns=3, least=1, most=2, unrewarded=0.25))


def pool_of(env: Helped, count: int) -> list[Task]:
    return TaskStream(env, "train", 0).next(count)


def treating(env: Helped, pool: Sequence[Task], actions: Sequence[Action] = ALL, **others: Any) -> Treatments:
    settings = {"dealt": False, "memory": TaskMemory(), "groups": 4, "seed": 0, **others}
    return Treatments(actions, env=env, pool=pool, **settings)


def played(task: Task, step: int, successes: int, episodes: int = 8, progress: float = 0) -> Group:
    """A group whose first members succeed. Each episode has one token, the number of its member."""
    members = []
    for member in range(episodes):
        reply = Reply(Prompt("", (9,)), (member,), "", (-1.5,), (), Span(0, 0), Span(0, 1), True, False)
        turn = Turn(reply, {"solved": float(member < successes)}, (), True, "", "")
        outcome = float(member < successes)
        members.append(Trajectory(task, member, (turn,), Ending.FAILED, outcome, progress, policy_version=step))
    return Group(task, tuple(members))


def visit(
    treatments: Treatments, step: int, task: Task, successes: int, episodes: int = 8, progress: float = 0
) -> None:
    group = played(task, step, successes, episodes, progress)
    values = [[float(member < successes) for member in range(episodes)]]
    treatments.memory.observe(step, [group], values, [Verdict(1.0, "kept", None)])


@pytest.mark.parametrize(
    ("length", "visits", "turns"),
    [
        (8, [], 7),
        (8, [(7, 0)], 7),
        (8, [(7, 0), (7, 0)], 7),
        (8, [(7, 5)], 3),
        (8, [(7, 4)], 7),
        (8, [(7, 5), (3, 0)], 3),
        (8, [(7, 5), (3, 0), (3, 0)], 5),
        (8, [(7, 5), (3, 0), (3, 0), (5, 1)], 5),
        (8, [(7, 5), (3, 0), (3, 0), (5, 8)], 2),
        (8, [(7, 5), (3, 5), (1, 0)], 1),
        (8, [(7, 5), (3, 5), (1, 0), (0, 0), (1, 0)], 4),
        (8, [(7, 5), (3, 5), (1, 5)], 0),
        (8, [(7, 5), (3, 5), (1, 5), (0, 0)], 4),
        (8, [(7, 5), (3, 5), (1, 5), (0, 1)], 0),
        (3, [(2, 0), (2, 0)], 2),
        (3, [(2, 5)], 1),
        (3, [(2, 5), (1, 8)], 0),
    ],
)
def test_help_is_taken_back_by_halves_and_given_again_after_two_failures(
    length: int, visits: list[tuple[int, int]], turns: int
) -> None:
    env = LONG if length == 8 else PLANTED
    treatments = treating(env, pool_of(env, 6))
    task = next(task for task in treatments.pool if UNREWARDED not in task.tags)
    for step in range(2):
        visit(treatments, step, task, 0)
    assert treatments.cause(task) == "failed"
    for step, (given, successes) in enumerate(visits, 2):
        visit(treatments, step, env.given(task, given), successes)
    assert treatments.turns(task) == turns
    again = TaskMemory()
    again.load_state(json.loads(json.dumps(treatments.memory.state())))
    assert treating(env, treatments.pool, memory=again).at(9) == treatments.at(9)


def test_a_helped_task_whose_only_visit_without_help_broke_is_played_without_help_again() -> None:
    treatments = treating(LONG, pool := pool_of(LONG, 6), dealt=True)  # the control may help a task without a visit
    visit(treatments, 0, LONG.given(pool[0], 1), 5)
    visit(treatments, 1, pool[0], 0, episodes=0)
    assert treatments.turns(pool[0]) == 0


def test_solved_tasks_are_left_out_but_for_the_floor_and_where_too_few_are_left() -> None:
    env = Helped(Echo())
    pool = pool_of(env, 20)
    treatments = treating(env, pool, ["skip"])
    solved = {task.id for task in pool[:12]}
    for step in range(6):
        for task in pool[:12]:
            visit(treatments, step, task, 8)
        for task in pool[12:]:
            visit(treatments, step, task, 3)
    looked_at = set()
    for step in range(6, 206):
        treated = treatments.at(step)
        (probe,) = treated.probes
        assert PROBE in probe.tags
        assert treated.left_out == solved - {probe.id}
        looked_at.add(probe.id)
    assert looked_at == {task.id for task in pool}
    few = treating(env, pool, ["skip"], memory=treatments.memory, groups=10)
    assert len(few.at(9).left_out) == 10
    assert few.at(9) == few.at(9)
    assert few.at(9) != few.at(10)


def test_tasks_that_do_not_pay_the_solver_are_excluded_before_the_first_visit_and_named() -> None:
    pool = pool_of(PLANTED, 30)
    unpaid = {task.id for task in pool if UNREWARDED in task.tags}
    treated = treating(PLANTED, pool).at(0)
    assert treated.left_out == unpaid
    named = next(metric for metric in treated.metrics if metric.name == "treat/unpaid")
    assert (named.value, named.n) == (len(unpaid), 30)
    assert all(name in unpaid for name in named.why.split(" and ")[0].split(", "))
    assert not {probe.id for probe in treated.probes} & unpaid
    with pytest.raises(ValueError, match=r"at least the 28 tasks of a step that pay success, found \d+ in the pool"):
        treating(PLANTED, pool, groups=28).at(0)


@pytest.mark.parametrize("refuses", [None, "demonstrate", "step", "way"])
def test_without_a_solver_two_members_that_got_all_the_way_show_an_unpaid_task(refuses: str | None) -> None:
    class Blind:
        """An environment without a solver."""

        name, turns = "blind", 1

        def task(self, seed: int) -> Task:
            return Task(f"blind-{seed}", seed, "train")

        def episode(self) -> Any:
            return Lost() if refuses == "way" else None

    class Lost:
        """An episode in which the solver gets half of the way."""

        def start(self, task: Task, member: int) -> Observation:
            return Observation("")

        def step(self, response: str) -> Step:
            return Step(Observation(""), {}, Ending.FAILED, 0.0, 0.5)

    class Refusing(Blind):
        """One whose solver cannot play its tasks, such as problems of a file without solutions."""

        def demonstrate(self, task: Task, rng: random.Random) -> list[tuple[str, str]]:
            if refuses == "demonstrate":
                raise ValueError("nothing to demonstrate")
            return [("a", "b")]

    env = Helped(Refusing() if refuses else Blind())
    pool = pool_of(env, 12)
    treatments = treating(env, pool, ["exclude"])
    assert treatments.at(0) == Treated(metrics=treatments.at(0).metrics)
    visit(treatments, 0, pool[3], 0, progress=1.0)
    visit(treatments, 0, pool[4], 0, progress=0.9)
    visit(treatments, 0, pool[5], 8, progress=1.0)
    assert treatments.at(1).left_out == {pool[3].id}
    visit(treatments, 1, pool[3], 1, progress=1.0)
    assert treatments.at(2).left_out == frozenset()
    for task in pool[2:]:  # a run does not end since its visits call so many tasks unpaid
        visit(treatments, 2, task, 0, progress=1.0)
    short = treating(env, pool, ["exclude"], memory=treatments.memory, groups=6)
    late = [short.at(step) for step in range(3, 6)]
    assert {len(treated.left_out) for treated in late} == {6}
    assert len({treated.left_out for treated in late}) > 1
    assert next(metric.value for metric in late[0].metrics if metric.name == "treat/unpaid") == 8
    whys = {None: r"blind, which has no solver \(`demonstrate`\)", "way": "blind, whose solver needs one turn"}
    why = whys.get(refuses, f"`{refuses}` of the environment blind")
    with pytest.raises(ValueError, match=why):
        treating(env, pool, ["help"])


def test_failed_tasks_begin_with_help_and_probes_do_not() -> None:
    pool = pool_of(LONG, 12)
    treatments = treating(LONG, pool)
    for task in pool:
        visit(treatments, 0, task, 0)
    treated = treatments.at(1)
    (probe,) = treated.probes
    others = [task for task in pool if task.id != probe.id][:3]
    begun = treatments.begun([probe, *others], treated)
    assert [task.id for task in begun] == [probe.id, *(f"{task.id}+h7" for task in others)]
    assert [HELPED in task.tags for task in begun] == [False, True, True, True]
    groups = [Group(task, ()) for task in begun]
    values = {metric.name: metric.value for metric in treatments.metrics(treated, groups)}
    assert values == {"treat/unpaid": 0.0, "treat/skipped": 0.0, "treat/helped": 3.0, "treat/turns": 7.0}


def test_the_control_gives_as_many_treatments_to_other_tasks() -> None:
    pool = pool_of(PLANTED, 60)
    memory, rng = TaskMemory(), random.Random(0)
    true, dealt = (treating(PLANTED, pool, memory=memory, dealt=each) for each in (False, True))
    for step in range(5):
        for place, task in enumerate(pool):
            visit(true, step, task, (0, 8, rng.randint(1, 7))[place % 3] if UNREWARDED not in task.tags else 0)
    causes = [true.cause(task) for task in pool]
    assert len(set(causes)) == 4
    for step in range(5, 8):
        here, there = true.at(step), dealt.at(step)
        assert here.metrics[0].value == causes.count("unpaid")
        assert abs(len(here.left_out) - len(there.left_out)) <= 1  # the floor may look at a task that is skipped
        assert len(here.turns) == len(there.turns) == causes.count("failed")
        assert set(here.turns) == {task.id for task, cause in zip(pool, causes, strict=True) if cause == "failed"}
        shared = len(set(here.turns) & set(there.turns))
        assert shared < len(here.turns)
    assert set(dealt.at(5).turns) == set(dealt.at(6).turns)


def test_without_treatments_nothing_is_left_out_or_written() -> None:
    pool = pool_of(PLANTED, 8)
    treatments = treating(PLANTED, pool, ())
    visit(treatments, 0, pool[0], 0)
    treated = treatments.at(1)
    assert treated == Treated()
    assert treatments.begun(pool, treated) == pool
    assert treatments.metrics(treated, []) == []


def test_the_memory_knows_the_step_and_the_outcomes_of_each_visit() -> None:
    treatments = treating(PLANTED, pool := pool_of(PLANTED, 2))
    visit(treatments, 3, pool[0], 2)
    visit(treatments, 7, pool[0], 0, episodes=4, progress=1.0)
    record = treatments.memory.of(pool[0].id)
    assert (record.outcomes, record.seen, record.unpaid) == (((8, 2), (4, 0)), 7, 1)
    assert treatments.memory.of(pool[1].id) == TaskRecord()


REPLAY: tuple[Action, ...] = ("replay",)


def failing(env: Helped, actions: Sequence[Action], **others: Any) -> Treatments:
    """Eight tasks that fail by now. The even ones have succeeded once, in two members of eight."""
    pool = pool_of(env, 8)
    treatments = treating(env, pool, actions, memory=TaskMemory(keeps_successes=True), **others)
    for place, task in enumerate(pool):
        visit(treatments, 0, task, 0 if place % 2 else 2)
        for step in range(1, 6):
            visit(treatments, step, task, 0)
        assert treatments.cause(task) == "failed"
    return treatments


def test_a_failed_task_with_a_success_replays_its_newest_one_and_is_drawn_as_before() -> None:
    treatments = failing(LONG, REPLAY)
    pool = treatments.pool
    treated = treatments.at(6)
    assert (treated.left_out, treated.probes, treated.turns) == (frozenset(), (), {})
    assert set(treated.successes) == {task.id for task in pool[::2]}
    success = treated.successes[pool[0].id]
    assert (success.version, success.reward, success.chance) == (0, 1.0, pytest.approx(2.5 / 9))
    (row,) = success.rows
    assert (row.ids, row.turns, row.logprobs) == ((9, 0), (-1, 0), (0.0, -1.5))
    probe = replace(pool[2], tags=(PROBE,))
    unscored = tuple(replace(each, outcome=None) for each in played(pool[4], 6, 0).trajectories)
    groups = [played(pool[1], 6, 0), played(probe, 6, 0), played(pool[0], 6, 1), Group(pool[4], unscored)]
    assert treatments.replays(treated, groups) == {2: success}
    visit(treatments, 6, pool[0], 1)
    for step in range(7, 11):
        visit(treatments, step, pool[0], 0)
    again = TaskMemory(keeps_successes=True)
    again.load_state(json.loads(json.dumps(treatments.memory.state())))
    assert treating(LONG, pool, REPLAY, memory=again).at(11) == treatments.at(11)
    assert again.of(pool[0].id).success != success
    assert treatments.at(11).successes[pool[0].id].version == 6


def test_help_is_for_failed_tasks_without_a_success_and_helped_successes_are_not_stored() -> None:
    treatments = failing(LONG, ("help", "replay"))
    pool = treatments.pool
    treated = treatments.at(6)
    assert set(treated.successes) == {task.id for task in pool[::2]}
    assert set(treated.turns) == {task.id for task in pool[1::2]}
    helped = LONG.given(pool[1], 7)
    visit(treatments, 6, helped, 3)
    assert treatments.memory.of(helped.id).success is None
    assert treating(LONG, pool, ALL, memory=treatments.memory).replays(treated, [played(pool[0], 6, 0)]) is None


def test_the_control_replays_successes_of_tasks_that_get_the_treatment_of_failed_ones() -> None:
    treatments = failing(LONG, REPLAY)
    pool = treatments.pool
    for task in pool[4:]:
        visit(treatments, 6, task, 4)
    dealt = treating(LONG, pool, REPLAY, memory=treatments.memory, dealt=True)
    assert set(treatments.at(7).successes) == {pool[0].id, pool[2].id}
    shared = dict(zip((task.id for task in dealt._targets()), map(dealt.cause, pool), strict=True))
    assert set(dealt.at(7).successes) == {
        task.id for task in pool if shared[task.id] == "failed" and dealt.memory.of(task.id).success
    }


def test_a_memory_that_keeps_no_successes_has_the_state_that_it_had_before() -> None:
    treatments = treating(LONG, pool := pool_of(LONG, 2))
    visit(treatments, 0, pool[0], 2)
    (tree,) = treatments.memory.state().values()
    assert tree.keys() == set(TaskRecord.__slots__) - {"success"}
    assert "success" not in treatments.memory.table()[0]


def test_of_single_tasks_an_eighth_is_a_probe() -> None:
    treatments = treating(LONG, pool_of(LONG, 8), groups=1)
    probes = [len(treatments.at(step).probes) for step in range(800)]
    assert set(probes) == {0, 1}
    assert 70 < sum(probes) < 130
