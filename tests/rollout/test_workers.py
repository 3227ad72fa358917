"""Environments in worker processes: the same episodes, and whatever dies or hangs ends its own episodes alone."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from heedful.envs.common.actions import format_reply
from heedful.envs.frozen_lake.environment import FrozenLake
from heedful.envs.sokoban.environment import Sokoban
from heedful.envs.toys.bandit import Bandit
from heedful.policies.scripted import ScriptedPolicy
from heedful.rollout import LockStep, Request
from heedful.rollout.player import Player
from heedful.rollout.workers import WorkerPool, isolated
from heedful.types import Conversation, Ending, Group, Reply
from patience import PATIENCE, comes
from perilous import Perilous, Unloadable

WORDS = ("Left", "down || RIGHT", "Up || Up || Up", "A", "Jump", "", "fox")


def reply(text: str) -> Reply:
    (said,) = ScriptedPolicy(lambda conversation: text).respond([Conversation("k", ())])
    return said


def varied(conversation: Conversation) -> str:
    """A reply that depends on who is asked and when, and on nothing else."""
    number = sum(map(ord, conversation.key)) + 7 * len(conversation.messages)
    return "<think>hm" if number % 11 == 0 else format_reply([WORDS[number % len(WORDS)]], "so")


def wait_until(true: Callable[[], bool]) -> None:
    assert comes(true), "it did not happen"


def is_gone(process: int) -> bool:
    """Whether a process has ended (one that nobody has waited for counts)."""
    try:
        status = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):  # the second one where it ends between opening and reading
        return True
    return status == "Z"


@pytest.fixture(scope="module")
def shared_pool() -> Iterator[WorkerPool]:
    with WorkerPool(Perilous(), workers=2, timeout=PATIENCE) as pool:
        yield pool


def begin(pool: WorkerPool, count: int, env: Perilous | None = None) -> list[Player]:
    env = env or Perilous()
    return [Player(pool.episode(), env.task(seed), seed % 2, env.turns) for seed in range(count)]


def place_of(episode: Player) -> int:
    """The process that an episode lives in."""
    episode.advance(reply("pid"))
    return int(episode.observation.text.split()[-1])


@pytest.mark.parametrize(
    "env",
    [
        FrozenLake(slip=0.4, turns=4),
        Sokoban(size=6, turns=3, instructions="brief"),
        Bandit(turns=3),
    ],
    ids=lambda env: str(env.name),
)
def test_the_episodes_are_the_same_with_workers_and_without(env: Any) -> None:
    tasks = [env.task(seed) for seed in range(6)]

    def play(workers: int) -> list[Group]:
        with isolated(env, workers, PATIENCE) as played:
            return LockStep()(ScriptedPolicy(varied), Request(played.episode, tasks, 3, env.turns))

    alone = play(0)
    assert repr(play(2)) == repr(alone)
    assert [group.task for group in alone] == tasks
    assert len({repr(trajectory.turns) for group in alone for trajectory in group.trajectories}) > 6


def test_a_worker_starts_without_the_numerical_libraries(shared_pool: WorkerPool) -> None:
    for process in shared_pool.process_ids():
        loaded = Path(f"/proc/{process}/maps").read_text()
        assert "python" in loaded
        assert not [name for name in ("numpy", "scipy", "torch") if name in loaded]


@pytest.mark.parametrize(
    "word", ["raise", "exit", *(f"strange {kind}" for kind in ("none", "nan", "outcome", "ending", "actions", "text"))]
)
def test_what_an_environment_raises_reads_the_same_in_a_worker(word: str, shared_pool: WorkerPool) -> None:
    def ending(episode: Any) -> tuple[Any, ...]:
        player = Player(episode, Perilous().task(0), 0, 5)
        player.advance(reply("on"))
        player.advance(reply(word))
        trajectory = player.trajectory(1.0, 0)
        return trajectory.ending, trajectory.outcome, len(trajectory.turns), trajectory.error

    assert ending(shared_pool.episode()) == ending(Perilous().episode())
    assert ending(shared_pool.episode())[0] is Ending.ERROR
    assert shared_pool.replaced == 0


@pytest.mark.parametrize(
    ("env", "error"),
    [
        (Perilous("raise"), "KeyError: 'lost'"),
        (Perilous("make raises"), "RuntimeError: nothing can be made"),
        (
            Perilous("no observation"),
            "ContractError: the environment was expected to return an Observation with a text",
        ),
    ],
    ids=["start", "episode", "observation"],
)
def test_what_is_raised_before_the_first_observation_ends_the_episode_too(env: Perilous, error: str) -> None:
    with WorkerPool(env, 1) as pool:
        episodes = begin(pool, 3, env)
        assert {episode.ending for episode in episodes} == {Ending.ERROR}
        assert all(episode.trajectory(1.0, 0).error.startswith(error) for episode in episodes)
        assert pool.replaced == 0


@pytest.mark.parametrize(
    ("word", "status"),
    [
        ("die", "exit status 7"),
        ("kill", "SIGKILL, from outside or out of memory"),
    ],
)
def test_a_worker_that_dies_takes_its_own_episodes_and_no_others(word: str, status: str) -> None:
    with WorkerPool(Perilous(), 2) as pool:
        episodes = begin(pool, 6)
        places = [place_of(episode) for episode in episodes]
        assert sorted(places.count(place) for place in set(places)) == [3, 3]
        episodes[0].advance(reply(word))
        for episode in episodes[1:]:
            episode.advance(reply("on"))
        lost = [episode for episode, place in zip(episodes, places, strict=True) if place == places[0]]
        assert [episode for episode in episodes if episode.ending is Ending.ERROR] == lost
        errors = [episode.trajectory(1.0, 0).error for episode in lost]
        assert errors[0] == f"WorkerDied: the process died over this step ({status})"
        assert errors[1] == f"WorkerDied: the process that held this episode died over a step ({status})"
        assert all(episode.trajectory(1.0, 0).outcome is None for episode in lost)
        # A fresh process takes the place of the dead one, and new episodes go on there.
        later = begin(pool, 4)
        assert set(map(place_of, later)) == set(pool.process_ids())
        assert places[0] not in pool.process_ids()
        assert pool.replaced == 1


def test_a_worker_that_hangs_is_killed_at_the_time_out() -> None:
    with WorkerPool(Perilous(), 1, timeout=PATIENCE) as pool:
        hung, other = begin(pool, 2)
        (process,) = pool.process_ids()
        pool.timeout = 1.0  # a busy machine may take longer over the starts
        hung.advance(reply("hang"))
        other.advance(reply("on"))
        assert hung.trajectory(1.0, 0).error == (
            "WorkerTimedOut: this step took longer than 1 s; its process was killed"
        )
        assert other.trajectory(1.0, 0).error == (
            "WorkerTimedOut: the process that held this episode took longer than 1 s over a step and was killed"
        )
        assert is_gone(process)
        pool.timeout = PATIENCE
        assert begin(pool, 1)[0].ending is None


def test_without_a_limit_a_slow_step_is_waited_for() -> None:
    with WorkerPool(Perilous(), 1, timeout=0.0) as pool:
        assert begin(pool, 1)[0].ending is None


def test_a_worker_killed_between_two_batches_costs_no_new_episode() -> None:
    with WorkerPool(Perilous(), 2) as pool:
        begin(pool, 4)
        before = pool.process_ids()
        for process in before:
            os.kill(process, signal.SIGKILL)
        # At once, while the kill is still under way, and again when it is long done.
        assert {episode.ending for episode in begin(pool, 4)} == {None}
        assert not set(before) & set(pool.process_ids())
        for process in pool.process_ids():
            os.kill(process, signal.SIGKILL)
            wait_until(lambda process=process: is_gone(process))
        assert {episode.ending for episode in begin(pool, 4)} == {None}
        assert pool.replaced == 4


def test_a_worker_found_dead_by_a_step_loses_the_episode_with_the_reason() -> None:
    with WorkerPool(Perilous(), 1) as pool:
        (episode,) = begin(pool, 1)
        os.kill(pool.process_ids()[0], signal.SIGKILL)
        episode.advance(reply("on"))
        error = episode.trajectory(1.0, 0).error
        assert re.fullmatch(r"WorkerDied: the process (that held this episode )?died .* \(SIGKILL, .*\)", error), error


def test_a_start_that_kills_its_process_is_tried_once(tmp_path: Path) -> None:
    with WorkerPool(Perilous("die"), 1) as pool:
        episodes = begin(pool, 3)
        assert {episode.trajectory(1.0, 0).error for episode in episodes} == {
            "WorkerDied: the process died over this start (exit status 7)"
        }
        assert pool.replaced == 2  # one for each later episode, none for a repetition
    with WorkerPool(Perilous(f"die-once {tmp_path / 'died'}"), 1) as pool:
        assert [episode.ending for episode in begin(pool, 3)] == [Ending.ERROR, None, None]


def test_an_environment_that_writes_between_the_lines_loses_its_process_only() -> None:
    with WorkerPool(Perilous(), 1, timeout=20.0) as pool:
        (episode,) = begin(pool, 1)
        for _ in range(2):
            if episode.ending is None:
                episode.advance(reply("scribble"))
        assert episode.ending is Ending.ERROR
        assert begin(pool, 1)[0].ending is None


def test_an_environment_that_cannot_be_loaded_elsewhere_is_refused_in_a_sentence() -> None:
    with pytest.raises(ValueError, match=r"perilous could not be loaded in a worker .*LookupError: no such thing here"):
        WorkerPool(Unloadable(), 1)

    class Local(Perilous):
        pass

    with pytest.raises(ValueError, match=r"Local cannot be pickled: .* should stand at the top of a module"):
        WorkerPool(Local(), 1)


def test_episodes_that_nobody_plays_any_more_are_forgotten() -> None:
    with WorkerPool(Perilous(), 2) as pool:
        kept = begin(pool, 3)
        for _ in range(5):
            begin(pool, 4)
        here = [place_of(episode) for episode in [*kept, *begin(pool, 1)]]
        # With the abandoned ones counted, the balance of 3 kept and 1 new would not come out.
        assert sorted(here.count(place) for place in set(here)) == [2, 2]


def test_requests_from_many_threads_keep_their_answers_apart(shared_pool: WorkerPool) -> None:
    texts: dict[int, Sequence[str]] = {}

    def play(seed: int) -> None:
        episode = Player(shared_pool.episode(), Perilous().task(seed), seed, 5)
        seen = [episode.observation.text]
        while episode.ending is None:
            episode.advance(reply(f"reply {seed}"))
            seen.append(episode.observation.text)
        texts[seed] = [" ".join(text.split()[:2]) for text in seen]

    threads = [threading.Thread(target=play, args=(seed,)) for seed in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    for seed in range(12):
        name = f"{Perilous().task(seed).id}/{seed}"
        assert texts[seed][:5] == [f"{count} {name}" for count in range(5)]


def test_closing_a_pool_ends_its_processes_and_what_they_have_started(tmp_path: Path) -> None:
    pool = WorkerPool(Perilous(), 2)
    (episode, _) = begin(pool, 2)
    episode.advance(reply(f"child {tmp_path / 'pid'}"))
    processes = [*pool.process_ids(), int((tmp_path / "pid").read_text())]
    assert not any(map(is_gone, processes))
    pool.close()
    pool.close()
    for process in processes:
        wait_until(lambda process=process: is_gone(process))
    episode.advance(reply("on"))
    assert episode.trajectory(1.0, 0).error == "WorkerDied: the process that held this episode was ended by its owner"
    assert "the pool of worker processes is closed" in begin(pool, 1)[0].trajectory(1.0, 0).error


PARENT = """
import signal, sys
from patience import PATIENCE, comes
from perilous import Perilous
from heedful.rollout.player import Player
from heedful.rollout.workers import WorkerPool
from heedful.types import Conversation
from heedful.policies.scripted import ScriptedPolicy

signal.signal(signal.SIGINT, signal.default_int_handler)  # where the tests run in the background it is ignored
pool = WorkerPool(Perilous(), 2, timeout=0.0)
busy, _ = [Player(pool.episode(), Perilous().task(seed), 0, 5) for seed in (0, 1)]
print(*pool.process_ids(), flush=True)
try:
    busy.advance(ScriptedPolicy(lambda conversation: sys.argv[1]).respond([Conversation("k", ())])[0])
finally:
    print("left", flush=True)
"""


@pytest.mark.parametrize(
    ("end", "doing"),
    [(signal.SIGKILL, "spin"), (signal.SIGINT, "spin"), (signal.SIGTERM, "hang")],
    ids=lambda one: str(one),
)
def test_no_worker_outlives_whoever_started_it(end: signal.Signals, doing: str) -> None:
    paths = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, sys.path)])
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, doing],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | {"PYTHONPATH": paths},
    )
    assert parent.stdout is not None
    workers = [int(word) for word in parent.stdout.readline().split()]
    assert len(workers) == 2
    time.sleep(0.2)  # so that it waits for the answer; before that it would end just as well
    parent.send_signal(end)
    parent.wait(PATIENCE)
    for worker in workers:
        wait_until(lambda worker=worker: is_gone(worker))
