"""Hostile servers: an answer that drips has a deadline, and one of a wrong form is a sentence when it arrives."""

from __future__ import annotations

import contextlib
import json
import random
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from heedful import cli
from heedful.boundary.foreign_text import brief
from heedful.boundary.http import ServerRefused, ServerUnreachable
from heedful.envs.common.wire import WireError, generator_tree, read_task
from heedful.envs.remote.answers import described
from heedful.envs.remote.environment import Remote
from heedful.envs.remote.server_calls import ServerCalls
from heedful.guarded import RaisedElsewhere
from served import PATIENCE

GOOD = {
    "protocol": 1,
    "name": "echo",
    "summary": "Repeat.",
    "turns": 2,
    "actions": ["A", "B"],
    "actions_per_turn": 1,
    "offers": ["demonstrate", "random_answer", "blind_answers"],
    "knobs": {},
    "digest": "d",
}
TASK = {"id": "echo-1", "seed": 0, "split": "train", "tags": [], "environment": "echo"}
STEP = {
    "observation": {"text": "x", "opening": ""},
    "rewards": {"solved": 1.0},
    "ending": None,
    "outcome": None,
    "progress": None,
    "actions": [],
    "valid": True,
    "effect": "",
    "state": "",
}
DEEP = "[" * 900 + "]" * 900


@contextlib.contextmanager
def hostile(answer: Callable[[bytes, socket.socket], None]) -> Iterator[str]:
    """A server that reads each request and then does what `answer` does. Yields its url.

    It reads the body, too, which may come later than the head: a socket that is closed with unread bytes resets the
    connection, and the client loses the answer.
    """
    listening = socket.create_server(("127.0.0.1", 0))
    listening.settimeout(0.05)
    over = threading.Event()

    def serve(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.settimeout(PATIENCE)
            with connection.makefile("rb") as file:
                head = b""
                while (line := file.readline()) != b"\r\n":
                    if not line:
                        return
                    head += line
                length = re.search(rb"content-length: *(\d+)", head, flags=re.IGNORECASE)
                request = head + file.read(int(length[1]) if length else 0)
            answer(request, connection)

    def listen() -> None:
        while not over.is_set():
            with contextlib.suppress(TimeoutError):
                threading.Thread(target=serve, args=(listening.accept()[0],), daemon=True).start()

    thread = threading.Thread(target=listen)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        over.set()
        thread.join()
        listening.close()


def telling(bodies: dict[str, Any]) -> Callable[[bytes, socket.socket], None]:
    """Answers by the beginning of the path. A text is sent as it is, everything else as JSON."""

    def answer(request: bytes, connection: socket.socket) -> None:
        path = request.split(b" ")[1].decode()
        name = "/step" if path.endswith("/step") else path
        body = bodies[name] if isinstance(bodies[name], str) else json.dumps(bodies[name])
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body.encode())}\r\nConnection: close\r\n\r\n"
        connection.sendall(head.encode() + body.encode())

    return answer


HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"


@pytest.mark.parametrize(
    "begun",
    [HEAD, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"],
    ids=["the body", "chunks"],
)
def test_an_answer_that_drips_ends_at_the_deadline(begun: bytes) -> None:
    def drip(request: bytes, connection: socket.socket) -> None:
        connection.sendall(begun)
        for _ in range(2000):
            connection.sendall(b"1\r\n1\r\n" if b"chunked" in begun else b"1")
            time.sleep(0.02)

    with hostile(drip) as url, pytest.raises(ServerUnreachable, match=r"gave no whole answer within 0\.3 s"):
        ServerCalls(url, 0.3, 0.0, "").call("GET", "/environment")


TOKEN = "a-token-of-somebody-0123456789"


@pytest.mark.parametrize(
    "told", [{"error": TOKEN}, {"error": "x" * 1990 + TOKEN}, TOKEN, f"<{TOKEN}", "x" * 60 + TOKEN]
)
@pytest.mark.parametrize("status", [200, 400])
def test_a_server_that_repeats_the_token_does_not_have_it_told(told: Any, status: int) -> None:
    body = told if isinstance(told, str) and told.startswith("<") else json.dumps(told)

    def echo(request: bytes, connection: socket.socket) -> None:
        assert TOKEN.encode() in request
        head = f"HTTP/1.1 {status} OK\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        connection.sendall(head.encode() + body.encode())

    with hostile(echo) as url:
        try:
            answer = ServerCalls(url, PATIENCE, 0.0, TOKEN).call("GET", "/environment")
        except (ServerRefused, WireError) as error:
            answer = str(error)
            assert url in answer
        assert "a-token" not in str(answer)


@pytest.mark.parametrize(
    "change",
    [
        {"protocol": 2},
        {"name": ""},
        {"turns": 0},
        {"actions": ["A", 1]},
        {"offers": None},
        {"tools": [{"name": "x"}]},
        {"actions_per_turn": 0},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_wrong_description_is_a_sentence_when_it_arrives(change: dict[str, Any]) -> None:
    for wrong in (GOOD | change, {key: value for key, value in GOOD.items() if key not in change or key == "tools"}):
        if wrong != GOOD:
            with pytest.raises(WireError, match="at http://there to describe its environment with protocol 1") as told:
                described(wrong, "http://there")
            assert len(str(told.value)) < 600


@pytest.mark.parametrize("body", [DEEP, "[1]", "{", '{"name": NaN}'])
def test_the_command_line_tells_a_strange_description_in_a_sentence(
    body: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with hostile(telling({"/environment": body})) as url:
        assert cli.run(["play", "remote", "--env.url", url]) == 2
    said = capsys.readouterr().err
    assert said.startswith("heedful: Expected ")
    assert len(said) < 700


def test_strange_answers_about_tasks_episodes_and_players_are_sentences() -> None:
    bodies: dict[str, Any] = {"/environment": GOOD}
    task = read_task(TASK)
    with hostile(telling(bodies)) as url:
        env = Remote(url, timeout=PATIENCE, wait=0.0)
        rng = random.Random(0)
        state = generator_tree(rng)
        for path, ask, strange in (
            ("/tasks", lambda: env.task(0), [{}, [], {"tasks": []}, {"tasks": None}, {"tasks": [TASK] * 2}]),
            (
                "/tasks",
                lambda: env.task(0),
                [{"tasks": [TASK | {"seed": value}]} for value in (10**30, 0.5, "0", True)]
                + [{"tasks": [TASK | {"id": 3}]}, {"tasks": [TASK | {"split": "none"}]}],
            ),
            (
                "/sessions",
                lambda: env.episode().start(task, 0),
                [{"session": value, "observation": STEP["observation"]} for value in (None, 3, "", "../x", "a\r\nb")]
                + [{"session": "a"}, {"session": "a", "observation": {"text": None, "opening": ""}}],
            ),
            (
                "/random-answer",
                lambda: env.random_answer(task, rng),
                [{}, {"answer": "A"}, {"answer": 1, "rng": state}, {"answer": "A", "rng": [3, [1], None]}],
            ),
            ("/blind-answers", lambda: env.blind_answers([task]), [{}, {"answers": [1]}, {"answers": "AB"}]),
            (
                "/demonstrate",
                lambda: env.demonstrate(task, rng),
                [{"rng": state}, {"rng": state, "pairs": [["a"]]}, {"rng": state, "pairs": ["ab"]}, {"pairs": []}],
            ),
        ):
            for tree in strange:
                bodies[path] = tree
                with pytest.raises(WireError, match=r"^Expected .*found "):
                    ask()


def test_a_long_error_of_a_served_environment_is_cut() -> None:
    with hostile(telling({"/environment": GOOD, "/sessions": {"raised": "x" * 1_000_000}})) as url:
        with pytest.raises(RaisedElsewhere) as raised:
            Remote(url, timeout=PATIENCE, wait=0.0).episode().start(read_task(TASK), 0)
        assert len(str(raised.value)) < 5000


def test_values_of_strangers_are_shown_short_whatever_they_are() -> None:
    for value in (json.loads(DEEP), "x" * 10**7, b"x" * 10**7, [10**4000] * 10**5, {"a": {"b": {"c": {"d": 1}}}}):
        assert len(brief(value)) <= 80
