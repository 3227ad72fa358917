"""Asynchronous collection: the episodes of lock-step, whatever anything took, and nobody waits for a straggler."""

from __future__ import annotations

import gc
import random
import threading
import time
from collections.abc import Callable, Collection, Sequence
from itertools import pairwise

import pytest

from heedful.envs.frozen_lake.environment import FrozenLake
from heedful.envs.toys.echo import Echo
from heedful.policies.sampling import Sampling
from heedful.policies.scripted import ScriptedPolicy
from heedful.protocols import AnswersSubsets, Episode
from heedful.rollout import COLLECTORS, Asynchronous, Collector, Context, LockStep, Request, collectors
from heedful.rollout.workers import isolated
from heedful.types import Conversation, Ending, Observation, Reply, Step, Task
from patience import PATIENCE, comes
from slow_environments import AtWork, slow, up_to

LAKE = FrozenLake(instructions="brief", turns=4, slip=0.3)
TASKS = [LAKE.task(seed) for seed in range(6)]


def wander(conversation: Conversation) -> str:
    """A walk that depends on everything that was said so far."""
    rng = random.Random(conversation.key + "".join(message.content for message in conversation.messages))
    return f"<think>on</think><answer>{rng.choice(LAKE.actions)}</answer>"


def test_the_episodes_are_those_of_lock_step_whatever_anything_took() -> None:
    expected = LockStep()(ScriptedPolicy(wander), Request(LAKE.episode, TASKS, 4, LAKE.turns))
    assert len({len(trajectory.turns) for group in expected for trajectory in group.trajectories}) > 1
    for seed in range(4):
        make = slow(LAKE, up_to(0.02), seed)
        assert Asynchronous(7)(ScriptedPolicy(wander), Request(make, TASKS, 4, LAKE.turns)) == expected
        assert LockStep(7)(ScriptedPolicy(wander), Request(make, TASKS, 4, LAKE.turns)) == expected


def test_windows_of_history_are_the_same_too() -> None:
    play = LockStep()(ScriptedPolicy(wander), Request(LAKE.episode, TASKS, 2, LAKE.turns, Context(turns=1)))
    make = slow(LAKE, up_to(0.01))
    assert Asynchronous()(ScriptedPolicy(wander), Request(make, TASKS, 2, LAKE.turns, Context(turns=1))) == play


def until(most: int, at_work: AtWork) -> Callable[[random.Random], float]:
    """Every call lasts until so many have been at work at once, and then a moment more."""
    return lambda rng: up_to(0.004)(rng) if comes(lambda: at_work.most >= most) else 0.0


@pytest.mark.parametrize("threads", [1, 5])
def test_no_more_environments_work_at_once_than_there_are_threads(threads: int) -> None:
    for collector in (LockStep(threads), Asynchronous(threads)):
        at_work = AtWork()
        make = slow(LAKE, until(threads, at_work), 0, at_work)
        collector(ScriptedPolicy(wander), Request(make, TASKS, 4, LAKE.turns))
        assert at_work.most == threads
        assert at_work.starts == 24


class Gate:
    """An environment of two turns whose step waits until it is let through."""

    def __init__(self, wait: Callable[[str], None]) -> None:
        self._wait = wait
        self._turn = 0

    def start(self, task: Task, member: int) -> Observation:
        self._name = f"{task.id}/{member}"
        return Observation("go")

    def step(self, response: str) -> Step:
        self._turn += 1
        self._wait(f"{self._name} turn {self._turn}")
        over = self._turn == 3
        return Step(Observation("on"), ending=Ending.SOLVED if over else None, outcome=1.0 if over else None)


def test_a_straggler_holds_nobody() -> None:
    # The first step of a/0 returns only when everybody else has come to an end.
    ended = {f"a/{member} turn 3": threading.Event() for member in (1, 2, 3)}

    def wait(place: str) -> None:
        if place == "a/0 turn 1":
            assert all(event.wait(PATIENCE) for event in ended.values()), "the straggler held the others"
        elif place in ended:
            ended[place].set()

    groups = Asynchronous(2)(ScriptedPolicy(lambda _: "x"), Request(lambda: Gate(wait), [Task("a", 0, "train")], 4, 3))
    assert [trajectory.ending for trajectory in groups[0].trajectories] == [Ending.SOLVED] * 4


def test_a_slow_start_holds_nobody_either_and_runs_in_the_pool() -> None:
    ended = threading.Event()
    seen: dict[str, str] = {}

    class Late(Gate):
        def start(self, task: Task, member: int) -> Observation:
            seen[f"{member}"] = threading.current_thread().name
            if member == 0:
                assert ended.wait(PATIENCE), "the others waited for a start"
            return super().start(task, member)

    def wait(place: str) -> None:
        if place == "a/1 turn 3":
            ended.set()

    groups = Asynchronous(2)(ScriptedPolicy(lambda _: "x"), Request(lambda: Late(wait), [Task("a", 0, "train")], 2, 3))
    assert len(groups[0].trajectories) == 2
    assert all(name.startswith("environment") for name in seen.values())


class Noting:
    """A policy that notes who asks it for what, and takes `seconds` for each call.

    The first calls wait until `together` of them are under way.
    """

    temperature = 1.0
    version = 3

    def __init__(
        self, answer: Callable[[Conversation], str], parallel: int = 1, seconds: float = 0.0, together: int = 0
    ) -> None:
        self.parallel = parallel
        self.batches: list[list[str]] = []
        self.kept: list[set[str]] = []
        self.threads: set[str] = set()
        self.at_work = AtWork()
        self._seconds, self._together = seconds, together
        self._scripted = ScriptedPolicy(answer)

    def keep(self, keys: Collection[str]) -> None:
        self.kept.append(set(keys))

    def respond(self, conversations: Sequence[Conversation]) -> list[Reply]:
        self.threads.add(threading.current_thread().name)
        self.batches.append([conversation.key for conversation in conversations])
        with self.at_work:
            comes(lambda: self.at_work.most >= self._together)
            time.sleep(self._seconds)
            return self._scripted.respond(conversations)


def test_the_policy_is_asked_in_the_callers_thread_alone() -> None:
    policy = Noting(wander)
    Asynchronous(8)(policy, Request(slow(LAKE, up_to(0.005)), TASKS, 4, LAKE.turns))
    assert policy.threads == {threading.current_thread().name}
    assert policy.at_work.most == 1
    assert isinstance(policy, AnswersSubsets)


def test_whoever_becomes_ready_while_the_policy_answers_is_asked_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collectors, "PATIENCE", 1e6)  # of a call's duration: nobody is late on a busy machine
    done: list[str] = []

    class Counted(Gate):
        def start(self, task: Task, member: int) -> Observation:
            done.append("start")
            return super().start(task, member)

        def step(self, response: str) -> Step:
            done.append("step")
            return super().step(response)

    class Late(Noting):
        def respond(self, conversations: Sequence[Conversation]) -> list[Reply]:
            assert comes(lambda: len(done) == 16 + sum(map(len, self.batches)))  # everybody else is ready
            return super().respond(conversations)

    policy = Late(lambda _: "x", seconds=0.3)
    Asynchronous(16)(policy, Request(lambda: Counted(lambda _: None), [Task("a", 0, "train")], 16, 3))
    # The sixteen may begin in two batches, and are together from then on.
    assert len(policy.batches) <= 5
    assert max(map(len, policy.batches)) >= 15


def test_every_reply_is_asked_for_once_and_open_episodes_are_kept() -> None:
    policy = Noting(wander)
    groups = Asynchronous(9)(policy, Request(slow(LAKE, up_to(0.01)), TASKS, 3, LAKE.turns))
    asked = [key for batch in policy.batches for key in batch]
    for group in groups:
        for trajectory in group.trajectories:
            assert asked.count(f"{group.task.id}/{trajectory.member}") == len(trajectory.turns)
            assert trajectory.policy_version == 3
    last = {key: number for number, batch in enumerate(policy.batches) for key in batch}
    first = {key: number for number, batch in reversed(list(enumerate(policy.batches))) for key in batch}
    for key in last:
        for number in range(first[key], last[key] + 1):
            assert key in policy.kept[number], "an episode that goes on is never dropped"
    assert sum(map(len, policy.kept)) < len(policy.kept) * 18, "one that has ended is"


def test_several_calls_of_a_slow_policy_are_under_way_at_once() -> None:
    expected = LockStep()(ScriptedPolicy(wander), Request(LAKE.episode, TASKS, 4, LAKE.turns))
    policy = Noting(wander, parallel=4, seconds=0.01, together=4)
    assert [
        [trajectory.turns for trajectory in group.trajectories]
        for group in Asynchronous(8)(policy, Request(slow(LAKE, up_to(0.01)), TASKS, 4, LAKE.turns))
    ] == [[trajectory.turns for trajectory in group.trajectories] for group in expected]
    assert policy.at_work.most == 4
    assert all(name.startswith("sampler") for name in policy.threads)


def test_the_first_who_are_ready_are_dealt_to_all_idle_samplers() -> None:
    began = threading.Barrier(4)

    def answer(conversation: Conversation) -> str:
        if conversation.turn == 0:
            began.wait(PATIENCE)  # passes when four calls are under way
        return "x"

    policy = Noting(answer, parallel=4)
    (group,) = Asynchronous(1)(policy, Request(lambda: Gate(lambda _: None), [Task("a", 0, "train")], 4, 3))
    assert [len(trajectory.turns) for trajectory in group.trajectories] == [3] * 4


def test_an_environment_that_raises_ends_its_own_episode() -> None:
    def fail(place: str) -> None:
        if place == "a/1 turn 2":
            raise ConnectionError("the server is gone")

    policy = ScriptedPolicy(lambda _: "x")
    groups = Asynchronous(2)(policy, Request(lambda: Gate(fail), [Task("a", 0, "train"), Task("b", 1, "train")], 2, 3))
    endings = [[trajectory.ending for trajectory in group.trajectories] for group in groups]
    assert endings == [[Ending.SOLVED, Ending.ERROR], [Ending.SOLVED, Ending.SOLVED]]
    broken = groups[0].trajectories[1]
    assert (broken.error, broken.outcome, len(broken.turns)) == ("ConnectionError: the server is gone", None, 1)


def test_when_every_environment_breaks_at_its_start_nobody_is_asked() -> None:
    class Broken(Gate):
        def start(self, task: Task, member: int) -> Observation:
            raise OSError("no board")

    def never(conversation: Conversation) -> str:
        raise AssertionError("no one is there to be answered")

    (group,) = Asynchronous()(ScriptedPolicy(never), Request(lambda: Broken(print), [Task("a", 0, "train")], 3, 3))
    assert [trajectory.error for trajectory in group.trajectories] == ["OSError: no board"] * 3


def test_no_tasks_are_no_groups() -> None:
    assert Asynchronous()(ScriptedPolicy(wander), Request(LAKE.episode, [], 4, 4)) == []
    assert LockStep(3)(ScriptedPolicy(wander), Request(LAKE.episode, [], 4, 4)) == []


def test_episodes_in_worker_processes_are_the_same_in_either_collector() -> None:
    expected = LockStep()(ScriptedPolicy(wander), Request(LAKE.episode, TASKS, 4, LAKE.turns))
    with isolated(LAKE, 2, 30.0) as env:
        for collector in (LockStep(4), Asynchronous(4)):
            assert collector(ScriptedPolicy(wander), Request(env.episode, TASKS, 4, LAKE.turns)) == expected


def threads_left() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(("environment", "sampler"))]


@pytest.mark.parametrize("parallel", [1, 3])
@pytest.mark.parametrize(
    ("error", "told"),
    [
        (RuntimeError("no memory"), RuntimeError),
        (KeyboardInterrupt(), KeyboardInterrupt),
        (SystemExit(2), SystemExit),
    ],
)
def test_what_the_policy_raises_ends_the_collection_and_its_threads(
    error: BaseException, told: type[BaseException], parallel: int
) -> None:
    def answer(conversation: Conversation) -> str:
        if conversation.turn == 1:
            raise error
        return wander(conversation)

    at_work = AtWork()
    make = slow(LAKE, lambda rng: 0.05, 0, at_work)
    with pytest.raises(told):
        Asynchronous(2)(Noting(answer, parallel), Request(make, TASKS, 4, LAKE.turns))
    begun = at_work.starts + at_work.steps
    assert comes(lambda: not threads_left())
    assert at_work.starts + at_work.steps <= begun + 2, "only calls that had been taken up go on"


@pytest.mark.parametrize("collector", [LockStep(2), Asynchronous(2)])
def test_what_interrupts_an_environment_ends_the_collection(collector: Collector) -> None:
    def interrupt(place: str) -> None:
        if place == "a/1 turn 2":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        collector(ScriptedPolicy(lambda _: "x"), Request(lambda: Gate(interrupt), [Task("a", 0, "train")], 3, 3))
    assert comes(lambda: not threads_left())


def test_threads_end_with_the_collection() -> None:
    Asynchronous(4)(Noting(wander, parallel=3), Request(slow(LAKE, up_to(0.01)), TASKS, 2, LAKE.turns))
    gc.collect()
    assert comes(lambda: not threads_left())


def test_collectors_say_how_a_policy_has_to_sample() -> None:
    assert list(COLLECTORS) == ["lock_step", "async"]
    assert LockStep().sampling(Sampling()).noise == "batch"
    assert LockStep().sampling(Sampling(noise="conversation")).noise == "conversation"
    assert Asynchronous().sampling(Sampling()).noise == "conversation"
    with pytest.raises(ValueError, match=r"--collect async .* leave --sampling.noise out \(auto\)"):
        Asynchronous().sampling(Sampling(noise="batch"))


def test_collectors_play_with_the_threads_they_were_given() -> None:
    env = Echo(instructions="brief", turns=2)
    for collector in (LockStep(3), Asynchronous(3)):
        at_work = AtWork()
        make = slow(env, until(3, at_work), 0, at_work)
        groups = collector(ScriptedPolicy(wander), Request(make, [env.task(seed) for seed in range(5)], 2, env.turns))
        assert at_work.most == 3
        assert [len(group.trajectories) for group in groups] == [2] * 5


def test_environments_are_made_in_order_by_the_caller() -> None:
    made: list[str] = []

    def make() -> Episode:
        made.append(threading.current_thread().name)
        return LAKE.episode()

    Asynchronous(4)(ScriptedPolicy(wander), Request(make, TASKS, 2, LAKE.turns))
    assert made == [threading.current_thread().name] * 12


def test_the_turns_of_a_conversation_are_numbered() -> None:
    asked: dict[str, list[int]] = {}

    def answer(conversation: Conversation) -> str:
        asked.setdefault(conversation.key, []).append(conversation.turn)
        return "x"

    for context in (Context(), Context(turns=0)):
        asked.clear()
        Asynchronous(3)(ScriptedPolicy(answer), Request(LAKE.episode, TASKS, 2, LAKE.turns, context))
        assert all(later == earlier + 1 for turns in asked.values() for earlier, later in pairwise(turns))
        assert {turns[0] for turns in asked.values()} == {0}
        assert {len(turns) for turns in asked.values()} == {LAKE.turns}
