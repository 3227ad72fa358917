"""The environment `remote`: the served environment as it is, and a server that goes away costs what it held."""

from __future__ import annotations

import pickle
import random
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from heedful import cli
from heedful.boundary import from_json, to_json
from heedful.envs.common.actions import format_reply
from heedful.envs.common.contract import right_actions_of
from heedful.envs.common.tasks import evaluation_tasks
from heedful.envs.common.tools import call_text
from heedful.envs.frozen_lake.environment import FrozenLake
from heedful.envs.remote.environment import Remote, _host
from heedful.envs.sokoban.environment import Sokoban
from heedful.envs.toys.bandit import Bandit
from heedful.models.chat.calls import tools_of
from heedful.policies.scripted import ScriptedPolicy
from heedful.protocols import AnswersBlindly, AnswersFreely, Demonstrates, ListsActions
from heedful.rollout import LockStep, Request
from heedful.rollout.baselines import has_blind_player, has_random_player
from heedful.rollout.player import Player
from heedful.run.config import TrainConfig
from heedful.run.evaluation.held_out import measure_baselines
from heedful.serving.server import EnvironmentServer
from heedful.types import Conversation, Ending, Group, Reply
from patience import PATIENCE
from perilous import Perilous
from ports import lasting_port
from served import serving, start_server
from tool_toy import TOOLS, Dictionary

WORDS = ("Left", "down || RIGHT", "Up || Up || Up", "Fox", "Jump", "")


def varied(conversation: Conversation) -> str:
    """A reply that depends on who is asked and when, and on nothing else."""
    number = sum(map(ord, conversation.key)) + 7 * len(conversation.messages)
    return "<think>hm" if number % 11 == 0 else format_reply([WORDS[number % len(WORDS)]], "so")


def said(text: str) -> Reply:
    (reply,) = ScriptedPolicy(lambda conversation: text).respond([Conversation("k", ())])
    return reply


def remote(server: EnvironmentServer, **knobs: Any) -> Any:
    return Remote(server.url, timeout=PATIENCE, **knobs)


@pytest.fixture(scope="module")
def lake() -> Iterator[EnvironmentServer]:
    with serving(FrozenLake(slip=0.4, turns=4)) as server:
        yield server


@pytest.mark.parametrize(
    ("env", "workers"),
    [
        (FrozenLake(slip=0.4, turns=4), 0),
        (FrozenLake(slip=0.4, turns=4), 2),
        (Sokoban(turns=3), 0),
        (Bandit(turns=3), 0),
    ],
)
def test_the_episodes_are_the_same_here_and_there(env: Any, workers: int) -> None:
    def play(played: Any) -> list[Group]:
        tasks = evaluation_tasks(played, "val", 5)
        return LockStep()(ScriptedPolicy(varied), Request(played.episode, tasks, 3, played.turns))

    with serving(env, workers=workers) as server:
        assert repr(play(remote(server))) == repr(play(env))


def test_what_the_served_environment_offers_is_offered(lake: EnvironmentServer) -> None:
    env, served = FrozenLake(slip=0.4, turns=4), remote(lake)
    assert (served.turns, served.actions, served.actions_per_turn) == (4, env.actions, 2)
    assert served.summary == f"frozen_lake at {lake.url}: {env.summary}"
    assert served.served["knobs"]["slip"] == 0.4
    here, there = random.Random(3), random.Random(3)
    for seed in range(3):
        assert served.demonstrate(served.task(seed), there) == env.demonstrate(env.task(seed), here)
    env, served = replace(env, imperfect=0.5, template=0.5), replace(served, imperfect=0.5, template=0.5)
    assert served.demonstrate(served.task(7), there) == env.demonstrate(env.task(7), here)
    assert here.getstate() == there.getstate()
    assert isinstance(served, ListsActions)
    assert isinstance(served, Demonstrates)
    assert not isinstance(served, AnswersFreely | AnswersBlindly)
    assert served.task(0) == env.task(0)
    assert has_random_player(served)


def test_what_the_served_environment_lacks_is_not_offered() -> None:
    with serving(Perilous()) as server:
        served = remote(server)
        assert served.turns == 5
        assert not has_random_player(served)
        assert not has_blind_player(served)
        for name in ("actions", "demonstrate", "random_answer", "blind_answers", "right_actions", "nothing"):
            assert not hasattr(served, name)
        assert not isinstance(served, ListsActions | Demonstrates | AnswersFreely | AnswersBlindly)


def test_the_baselines_are_those_of_the_served_environment() -> None:
    env = Bandit()
    with serving(env) as server:
        assert measure_baselines(remote(server), "val", 10, 8) == measure_baselines(env, "val", 10, 8)


def test_right_actions_are_those_of_the_served_environment() -> None:
    env = FrozenLake()
    task, before = env.task(3), [env.actions[:1]]
    with serving(env) as server:
        assert right_actions_of(remote(server), task) == env.right_actions(task)
        assert right_actions_of(remote(server), task, before) == env.right_actions(task, before)


def test_players_of_free_text_answer_from_there() -> None:
    with serving(FreeText()) as server:
        served, env = remote(server), FreeText()
        assert isinstance(served, AnswersFreely)
        assert isinstance(served, AnswersBlindly)
        tasks = [env.task(seed) for seed in range(4)]
        here, there = random.Random(1), random.Random(1)
        for task in tasks:
            assert served.random_answer(task, there) == env.random_answer(task, here)
        assert list(served.blind_answers(tasks)) == env.blind_answers(tasks)


def test_a_client_has_the_tools_of_the_server() -> None:
    with serving(Dictionary(actions="tool_calls")) as server:
        env = remote(server)
        assert tools_of(env) == TOOLS
        episode = env.episode()
        assert episode.start(env.task(0), 0).role == "user"
        assert episode.step(call_text("search[oak]", TOOLS)).observation.role == "tool"
    with serving(Dictionary()) as server:
        assert tools_of(remote(server)) == ()


class FreeText(Perilous):
    def random_answer(self, task: Any, rng: random.Random) -> str:
        return f"{task.seed} {rng.random()}"

    def blind_answers(self, tasks: Any) -> list[str]:
        return [f"it is {task.id}" for task in tasks]


def test_it_is_a_plain_configuration(lake: EnvironmentServer) -> None:
    config = TrainConfig(env=remote(lake, wait=3.0))
    tree = to_json(config)
    assert tree["env"] == {
        "type": "remote",
        "url": lake.url,
        "timeout": PATIENCE,
        "wait": 3.0,
        "token_file": "",
        "imperfect": 0.0,
        "template": 0.0,
    }
    assert from_json(TrainConfig, tree) == config
    assert pickle.loads(pickle.dumps(config.env)) == config.env
    assert config.env.name == "remote"


@pytest.mark.parametrize("word", ["raise", "strange nan", "strange text"])
def test_what_the_environment_raises_there_reads_the_same_here(word: str) -> None:
    def ending(env: Any) -> tuple[Any, ...]:
        episode = Player(env.episode(), env.task(0), 0, 5)
        episode.advance(said("on"))
        episode.advance(said(word))
        trajectory = episode.trajectory(1.0, 0)
        return trajectory.ending, trajectory.outcome, len(trajectory.turns), trajectory.error

    with serving(Perilous()) as server:
        assert ending(remote(server)) == ending(Perilous())


@pytest.mark.parametrize(
    ("word", "timeout", "error"),
    [
        ("die", PATIENCE, "WorkerDied: the process died over this step (exit status 7)"),
        ("hang", 2.0, "WorkerTimedOut: this step took longer than 2 s; its process was killed"),
    ],
)
def test_an_environment_that_dies_or_hangs_there_ends_with_the_servers_word(
    word: str, timeout: float, error: str
) -> None:
    with serving(Perilous(), workers=1, timeout=timeout) as server:
        env = remote(server)
        episode = Player(env.episode(), env.task(0), 0, 5)
        episode.advance(said(word))
        assert (episode.ending, episode.trajectory(1.0, 0).error) == (Ending.ERROR, error)


def test_sessions_that_nobody_plays_any_more_are_closed() -> None:
    with serving(Perilous(), most=3) as server:
        env = remote(server)
        for seed in range(12):
            episode = Player(env.episode(), env.task(seed), 0, 5)
            episode.advance(said("on"))
            assert episode.ending is None
        assert server.sessions.open <= 2


def test_a_connection_that_the_server_has_closed_is_made_anew() -> None:
    with serving(Perilous(turns=50)) as server:
        env = remote(server)
        episode = Player(env.episode(), env.task(0), 0, 50)
        for stream in _host(env).calls._server._streams:
            stream.get_extra_info("socket").shutdown(2)  # as a server does that has waited for too long
        episode.advance(said("on"))
        assert episode.ending is None


def test_a_full_server_refuses_an_episode_in_a_sentence() -> None:
    with serving(Perilous(), most=1) as server:
        env = remote(server)
        first = Player(env.episode(), env.task(0), 0, 5)
        second = Player(env.episode(), env.task(1), 0, 5)
        assert first.ending is None
        error = second.trajectory(1.0, 0).error
        assert "refused POST /sessions (429): All 1 sessions of this server are in use." in error


def test_a_reply_too_long_for_the_server_is_told_so_and_the_connection_goes_on() -> None:
    with serving(Perilous(), largest=2**20) as server:
        env = remote(server)
        episode = Player(env.episode(), env.task(0), 0, 5)
        episode.advance(said("x" * 2**23))
        assert "(413): Expected a request of at most 1,048,576 bytes" in episode.trajectory(1.0, 0).error
        assert Player(env.episode(), env.task(1), 0, 5).ending is None


def test_the_token_is_read_from_a_file_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEEDFUL_ENV_TOKEN", raising=False)
    (tmp_path / "token").write_text("s3cret\n")
    with serving(Perilous(), token="s3cret") as server:
        with pytest.raises(ValueError, match=r"refused GET /environment \(401\): Expected the server's token"):
            _ = remote(server).turns
        assert remote(server, token_file=str(tmp_path / "token")).turns == 5
        monkeypatch.setenv("HEEDFUL_ENV_TOKEN", "s3cret")
        assert remote(server).turns == 5


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("http://127.0.0.1:9", "no environment server answers at http://127.0.0.1:9"),
        ("127.0.0.1:8765", "Expected the URL of an environment server, such as http://127.0.0.1:8765"),
    ],
)
def test_without_a_server_there_is_a_sentence(url: str, sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["play", "remote", "--by", "random", "--env.url", url]) == 2
    assert sentence in capsys.readouterr().err


def test_the_command_line_plays_it(lake: EnvironmentServer, capsys: pytest.CaptureFixture[str]) -> None:
    for by in ("random", "solver"):
        assert cli.run(["play", "remote", "--by", by, "--env.url", lake.url]) == 0
        assert "remote, task frozen_lake-" in capsys.readouterr().out


def test_another_environment_at_the_same_address_is_refused() -> None:
    port = lasting_port()
    with serving(FrozenLake(), port=port) as server:
        env = remote(server)
        task = env.task(0)
    with serving(FrozenLake(slip=0.1), port=port):
        episode = Player(env.episode(), task, 0, 5)
        assert "(409): Expected another environment than frozen_lake with its present knobs" in (
            episode.trajectory(1.0, 0).error
        )


def test_a_killed_server_costs_only_the_episodes_that_it_held() -> None:
    knobs = ("frozen_lake", "--env.turns", "6", "--env.actions-per-turn", "1")
    processes = [start_server(*knobs, "--port", str(lasting_port()))]
    url = processes[0][1]
    env: Any = Remote(url, timeout=PATIENCE, wait=PATIENCE)
    tasks = [env.task(seed) for seed in range(6)]

    def restart() -> None:
        time.sleep(0.5)
        processes.append(start_server(*knobs, "--port", url.rpartition(":")[2]))

    class Killing(ScriptedPolicy):
        """Members 0 and 1 stand still, members 2 and 3 run into whatever lies there. Kills the server once."""

        kills = False

        def respond(self, conversations: Any) -> Any:
            third_turn = len(conversations[0].messages) == 5
            if self.kills and third_turn:
                processes[-1][0].kill()
                processes[-1][0].wait(PATIENCE)
                threading.Thread(target=restart).start()
            return super().respond(conversations)

    def moves(conversation: Conversation) -> str:
        member = int(conversation.key[-1])
        return format_reply(["Jump" if member < 2 else ("Down", "Right")[member - 2]], "")

    def play(kills: bool) -> list[Any]:
        policy = Killing(moves)
        policy.kills = kills
        groups = LockStep()(policy, Request(env.episode, tasks, 4, env.turns))
        return [trajectory for group in groups for trajectory in group.trajectories]

    try:
        before, struck, after = play(False), play(True), play(False)
        assert repr(after) == repr(before)
        held = {index for index, trajectory in enumerate(before) if len(trajectory.turns) > 2}
        assert 12 <= len(held) < 24
        assert {index for index, trajectory in enumerate(struck) if trajectory.ending is Ending.ERROR} == held
        for index, trajectory in enumerate(struck):
            if index in held:
                assert trajectory.error.startswith("ServerLost: ")
                assert trajectory.error.endswith("It held this episode, which is lost.")
                assert trajectory.turns == before[index].turns[:2]
            else:
                assert trajectory == before[index]
    finally:
        for process, _ in processes:
            process.kill()
            process.wait(PATIENCE)
