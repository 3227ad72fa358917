"""The environment server: sessions, limits, repeated requests, and refusals in sentences."""

from __future__ import annotations

import random
import signal
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from heedful import cli
from heedful.envs.common.actions import format_reply
from heedful.envs.common.wire import generator_tree, observation_tree, read_step, read_task, step_tree, task_tree
from heedful.envs.frozen_lake.environment import FrozenLake
from heedful.envs.toys.echo import Echo
from heedful.serving.server import EnvironmentServer, check_address, is_named
from heedful.serving.sessions import Refusal, Sessions
from heedful.types import Ending
from patience import PATIENCE, comes
from served import JSON, Asker, server_process, serving

ENV = FrozenLake(slip=0.4, turns=4)
LEFT = format_reply(["Left", "Down"], "so")


@pytest.fixture(scope="module")
def lake() -> Iterator[EnvironmentServer]:
    with serving(ENV) as server:
        yield server


def test_an_episode_over_http_is_the_episode_itself() -> None:
    with serving(ENV) as server:
        ask = Asker(server)
        status, tasks = ask("POST", "/tasks", {"seeds": [3, 4]})
        assert status == 200
        assert [read_task(tree) for tree in tasks["tasks"]] == [ENV.task(3), ENV.task(4)]
        episode = ENV.episode()
        first = episode.start(ENV.task(3), 7)
        status, begun = ask("POST", "/sessions", {"seed": 3, "member": 7})
        assert (status, begun["observation"]) == (201, observation_tree(first))
        for _ in range(ENV.turns):
            status, answer = ask("POST", f"/sessions/{begun['session']}/step", {"response": LEFT})
            step = episode.step(LEFT)
            assert (status, answer["step"]) == (200, step_tree(step))
            assert read_step(answer["step"]) == step
            if step.ending is not None:
                break
        status, refused = ask("POST", f"/sessions/{begun['session']}/step", {"response": LEFT})
        assert (status, "is over: begin another one" in refused["error"]) == (409, True)
        assert ask("DELETE", f"/sessions/{begun['session']}") == (200, {"closed": True})
        assert ask("DELETE", f"/sessions/{begun['session']}") == (200, {"closed": False})


def test_the_environment_is_described_and_its_digest_names_its_knobs() -> None:
    with serving(ENV) as server, serving(FrozenLake(slip=0.3, turns=4)) as other:
        _, env = Asker(server)("GET", "/environment")
        assert (env["name"], env["turns"], env["actions"]) == ("frozen_lake", 4, list(ENV.actions))
        assert (env["knobs"]["slip"], env["offers"]) == (0.4, ["demonstrate", "right_actions"])
        assert Asker(other)("GET", "/environment")[1]["digest"] != env["digest"]
        status, refused = Asker(other)("POST", "/sessions", {"seed": 0, "digest": env["digest"]})
        assert (status, "was restarted with other ones" in refused["error"]) == (409, True)


def test_a_repeated_turn_gets_the_same_answer_and_is_executed_once() -> None:
    with serving(ENV) as server:
        ask = Asker(server)
        path = f"/sessions/{ask('POST', '/sessions', {'seed': 1, 'member': 0})[1]['session']}/step"
        first = ask("POST", path, {"response": LEFT, "turn": 0})
        assert ask("POST", path, {"response": LEFT, "turn": 0}) == first
        status, refused = ask("POST", path, {"response": "another", "turn": 0})
        assert (status, "Expected turn 1" in refused["error"], "found turn 0" in refused["error"]) == (409, True, True)
        assert ask("POST", path, {"response": LEFT, "turn": 2})[0] == 409
        second = ask("POST", path, {"response": LEFT, "turn": 1})
        assert second[0] == 200
        assert second != first


def test_a_repeated_opening_under_the_same_key_is_one_session() -> None:
    with serving(ENV) as server:
        ask = Asker(server)
        body = {"seed": 1, "member": 0, "key": "k1"}
        assert ask("POST", "/sessions", body) == ask("POST", "/sessions", body)
        assert ask("GET", "/health")[1]["sessions"] == 1
        assert (
            ask("POST", "/sessions", body | {"key": "k2"})[1]["session"] != ask("POST", "/sessions", body)[1]["session"]
        )


def test_there_are_so_many_sessions_and_those_that_are_over_make_room() -> None:
    with serving(Echo(turns=1), most=2) as server:
        ask = Asker(server)
        first, second = (ask("POST", "/sessions", {"seed": seed})[1]["session"] for seed in (0, 1))
        status, refused = ask("POST", "/sessions", {"seed": 2})
        assert (status, refused["error"].startswith("All 2 sessions of this server are in use.")) == (429, True)
        ask("POST", f"/sessions/{first}/step", {"response": "x"})
        assert ask("POST", "/sessions", {"seed": 2})[0] == 201
        assert ask("POST", "/sessions", {"seed": 3})[0] == 429
        assert ask("POST", "/sessions", {"seed": 3, "close": [second]})[0] == 201


def test_a_session_that_is_not_used_is_closed() -> None:
    now = [0.0]
    env = Echo(turns=3)
    sessions = Sessions(env.episode, most=5, idle=10.0, clock=lambda: now[0])
    used, unused = (sessions.start(env.task(seed), 0, "")["session"] for seed in (0, 1))
    now[0] = 9.0
    sessions.step(used, LEFT, None)
    assert sessions.sweep() == 0
    now[0] = 11.0
    assert sessions.sweep() == 1
    assert (sessions.open, sessions.expired) == (1, 1)
    with pytest.raises(Refusal, match=r"There is no session .*idle for more than 10 s, or the server was restarted"):
        sessions.step(unused, LEFT, None)
    sessions.step(used, LEFT, None)


def test_a_server_closes_idle_sessions_by_itself_and_says_so() -> None:
    told: list[str] = []
    with serving(ENV, idle=0.2, told=told) as server:
        Asker(server)("POST", "/sessions", {"seed": 0})
        assert comes(lambda: told)
    assert told[0].startswith("1 idle session closed; 1 episodes begun, 0 open, 1 closed as idle")


BAD: list[tuple[int, str, str, Any, str]] = [
    (404, "GET", "/", None, "There is nothing at GET /; known are GET /health"),
    (404, "POST", "/sessions/nobody/step", {"response": "x"}, "There is no session 'nobody'"),
    (400, "POST", "/sessions", b"{", "Expected the body as JSON"),
    (400, "POST", "/sessions", [1], "as docs/isolation.md has it"),
    (400, "POST", "/sessions", {}, "as docs/isolation.md has it, found no 'seed'."),
    (500, "POST", "/sessions", {"seed": 10**30}, "a whole number of 64 bits was expected"),
    (400, "POST", "/sessions", {"task": {"id": 1}}, "Expected a task, found {'id': 1} (no 'seed')."),
    (404, "POST", "/random-answer", {"task": {"id": "", "seed": 0, "split": "", "tags": []}}, "has no `random_answer`"),
]


@pytest.mark.parametrize(("status", "method", "path", "body", "sentence"), BAD)
def test_what_is_not_understood_is_refused_in_a_sentence(
    lake: EnvironmentServer, status: int, method: str, path: str, body: Any, sentence: str
) -> None:
    ask = Asker(lake)
    found, refused = ask(method, path, body)
    assert (found, sentence in refused["error"]) == (status, True), refused
    assert ask("GET", "/health")[0] == 200  # the connection goes on


def test_a_request_of_any_other_form_is_refused_and_the_server_goes_on() -> None:
    with serving(ENV, largest=2000) as server:
        ask = Asker(server)
        status, refused = ask("POST", "/sessions", {"seed": 0, "padding": "x" * 3000})
        assert (status, "at most 2,000 bytes, found one of 3," in refused["error"]) == (413, True)
        assert "larger --largest-request" in refused["error"]
        assert ask("POST", "/sessions", {"seed": 0}, {"Content-Type": "text/plain"})[0] == 415
        assert ask("PUT", "/sessions", {"seed": 0})[0] == 404
        assert ask("GET", "/health")[0] == 200


def test_an_answer_does_not_wait_until_the_client_has_acknowledged_its_head(lake: EnvironmentServer) -> None:
    ask, seconds = Asker(lake), list[float]()
    for _ in range(40):  # the first answers are acknowledged at once
        began = time.perf_counter()
        ask("GET", "/health")
        seconds.append(time.perf_counter() - began)
    assert min(seconds[-10:]) < 0.03


def test_without_the_token_nothing_but_the_health_check_is_answered() -> None:
    with serving(ENV, token="secret") as server:
        assert Asker(server)("GET", "/health")[0] == 200
        for headers in ({}, JSON | {"Authorization": "Bearer secre"}, {"Authorization": "Bearer s\xe9cret"}):
            status, refused = Asker(server)("GET", "/environment", headers=headers)
            assert (status, "Expected the server's token" in refused["error"]) == (401, True)
        assert Asker(server)("GET", "/environment", headers={"Authorization": "Bearer secret"})[0] == 200


@pytest.mark.parametrize("host", ["\udcff", "192.0.2.1"])
def test_an_address_that_this_machine_does_not_have_is_named(
    host: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEEDFUL_ENV_TOKEN", "secret")
    assert cli.run(["serve-env", "echo", "--port", "0", "--host", host]) == 2
    said = capsys.readouterr().err
    assert "Expected a free port of an address of this machine, found port 0 of '" in said
    assert "Give another --port or --host." in said


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.5", "::", "example.org"])
def test_an_address_that_others_reach_needs_a_token(host: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(
        ValueError, match=f"Expected a token before listening on {host}, which other machines may reach"
    ):
        check_address(host, "")
    check_address(host, "secret")
    check_address("::1", "")
    assert cli.run(["serve-env", "echo", "--host", host]) == 2
    assert "Expected a token before listening" in capsys.readouterr().err


def test_what_the_environment_raises_ends_its_session_alone() -> None:
    from perilous import Perilous

    with serving(Perilous()) as server:
        ask = Asker(server)
        broken, other = (ask("POST", "/sessions", {"seed": seed})[1]["session"] for seed in (0, 1))
        answer = ask("POST", f"/sessions/{broken}/step", {"response": "raise", "turn": 0})
        assert answer == (200, {"raised": "KeyError: 'lost'"})
        assert ask("POST", f"/sessions/{broken}/step", {"response": "raise", "turn": 0}) == answer
        assert ask("POST", f"/sessions/{broken}/step", {"response": "on", "turn": 1})[0] == 409
        assert ask("POST", f"/sessions/{other}/step", {"response": "on"})[0] == 200
    with serving(Perilous("raise")) as server:
        status, answer = Asker(server)("POST", "/sessions", {"seed": 0})
        assert (status, answer["raised"]) == (201, "KeyError: 'lost'")
        assert Asker(server)("GET", "/health")[1]["sessions"] == 0


def test_what_the_environment_raises_outside_of_an_episode_is_an_answer_of_its_own() -> None:
    task = task_tree(ENV.task(0)) | {"id": "frozen_lake-0"}
    with serving(ENV) as server:
        rng = generator_tree(random.Random(1))
        status, answer = Asker(server)("POST", "/demonstrate", {"task": task, "rng": rng})
    assert status == 500
    assert "Use the configuration that drew the task." in answer["error"]


@pytest.mark.parametrize(
    ("path", "body", "sentence"),
    [
        ("/tasks", {"seed": 0}, "found int where a Task was expected"),
        ("/demonstrate", {}, "int in place of two texts"),
        ("/random-answer", {}, "`random_answer` of the environment odd"),
        ("/right-actions", {}, "Expected `right_actions` of the environment odd to serve task"),
        ("/blind-answers", {}, "Expected texts from `blind_answers` of the environment odd, found 5 in place"),
    ],
)
def test_what_is_no_answer_of_an_environment_is_named(path: str, body: dict[str, Any], sentence: str) -> None:
    @dataclass(frozen=True)
    class Odd:
        name = "odd"
        turns = 1
        imperfect: float = 0.0

        def task(self, seed: int) -> Any:
            return seed

        def episode(self) -> Any:
            return None

        def demonstrate(self, task: Any, rng: Any) -> Any:
            return [5]

        def random_answer(self, task: Any, rng: Any) -> Any:
            return 5

        def blind_answers(self, tasks: Any) -> Any:
            return [5]

        def right_actions(self, task: Any, before: Any) -> Any:
            return [5]

    shared = {"task": task_tree(ENV.task(0)), "tasks": [], "rng": generator_tree(random.Random(1))}
    with serving(Odd()) as server:
        status, answer = Asker(server)("POST", path, body or shared)
    assert status == 500
    assert sentence in answer["error"]


def test_sessions_of_many_threads_keep_apart() -> None:
    with serving(ENV) as server:
        found: dict[int, list[Any]] = {}

        def play(seed: int) -> None:
            ask = Asker(server)
            begun = ask("POST", "/sessions", {"seed": seed, "member": seed})[1]
            steps = [begun["observation"]]
            while "ending" not in steps[-1] or steps[-1]["ending"] is None:
                steps.append(ask("POST", f"/sessions/{begun['session']}/step", {"response": LEFT})[1]["step"])
            found[seed] = steps

        threads = [threading.Thread(target=play, args=(seed,)) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
    for seed in range(8):
        episode = ENV.episode()
        steps: list[Any] = [observation_tree(episode.start(ENV.task(seed), seed))]
        while len(steps) < len(found[seed]):
            steps.append(step_tree(episode.step(LEFT)))
        assert found[seed] == steps
        assert steps[-1]["ending"] in (Ending.SOLVED.value, Ending.FAILED.value, Ending.OUT_OF_TURNS.value)


def test_a_generator_goes_there_and_comes_back_as_if_drawn_from_here() -> None:
    here, there = random.Random(5), random.Random(5)
    with serving(ENV) as server:
        task = {"id": ENV.task(0).id, "seed": 0, "split": ENV.task(0).split, "tags": []}
        _, answer = Asker(server)("POST", "/demonstrate", {"task": task, "rng": generator_tree(there)})
    pairs = ENV.demonstrate(ENV.task(0), here)
    assert [tuple(pair) for pair in answer["pairs"]] == pairs
    assert answer["rng"] == generator_tree(here)


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM], ids=lambda end: str(end.name))
def test_the_command_serves_until_it_is_told_to_stop(end: signal.Signals) -> None:
    with server_process("echo", "--port", "0", "--env-workers", "1") as (process, url):
        host, _, port = url.removeprefix("http://").partition(":")
        for _ in range(4):
            with socket.create_connection((host, int(port)), timeout=PATIENCE) as connection:
                connection.sendall(b"GET /environment HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                assert b'"name":"echo"' in connection.makefile("rb").read()
        process.send_signal(end)
        _, log = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0
        assert log.count("stopping") == 1
        assert "4 requests in all; 0 episodes begun" in log


def test_the_command_explains_itself_and_refuses_in_sentences(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert cli.run(["serve-env", "--help"]) == 0
    assert "usage: heedful serve-env ENV" in capsys.readouterr().out
    (tmp_path / "token").write_text("two words\n")
    for words, sentence in (
        ([], "expected ENV after `heedful serve-env`. ENV: An environment"),
        (["echo", "--sessions", "0"], "--sessions: expected a whole number of at least 1"),
        (["echo", "--env-timeout", "-1"], "--env-timeout: expected a number of at least 0"),
        (["echo", "--idle", "0"], "--idle: expected a number above 0"),
        (["echo", "--env-timeout", "1e18"], "and at most 1,000,000, found 1e+18"),
        (["echo", "--port", "70000"], "--port: expected a whole number of at least 0 and at most 65,535"),
        (["echo", "--token-file", str(tmp_path / "token")], "as ASCII characters without spaces"),
    ):
        assert cli.run(["serve-env", *words]) == 2
        assert sentence in capsys.readouterr().err


@pytest.mark.parametrize(
    ("host", "named"),
    [
        ("LOCALHOST:8765", True),
        ("127.8.9.1", True),
        ("[::1]:8765", True),
        ("localhost.", True),
        ("env.example.org", True),
        ("evil.example.org", False),
        ("127.0.0.1.evil.example.org", False),
        ("evil@localhost", False),
        ("192.168.1.5", False),
        ("", False),
        ("::1", False),
    ],
)
def test_a_host_that_is_not_this_machine_is_refused(host: str, named: bool) -> None:
    assert is_named(host, ("127.0.0.1", "env.example.org")) == named


def test_a_web_page_under_another_name_is_refused_and_a_token_answers_to_every_name() -> None:
    with serving(ENV, names=("env.example.org",)) as server, serving(ENV, token="secret") as other:
        assert Asker(server)("GET", "/environment", headers={"Host": "env.example.org"})[0] == 200
        status, tree = Asker(server)("GET", "/environment", headers={"Host": "evil.example.org"})
        assert (status, "--host-name NAME" in tree["error"]) == (421, True)
        headers = {"Authorization": "Bearer secret", "Host": "gpu7.example.org"}
        assert Asker(other)("GET", "/environment", headers=headers)[0] == 200
