"""The wire of the environment server: what could be read in two ways is refused, and nobody is locked out."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from heedful.envs.toys.echo import Echo
from heedful.serving.connections import Connections, Limits
from heedful.serving.heads import is_named
from heedful.serving.server import EnvironmentServer
from patience import comes
from served import JSON, PATIENCE, Asker, serving


@contextlib.contextmanager
def connected(server: EnvironmentServer, source: str = "127.0.0.1") -> Iterator[socket.socket]:
    host, port = server.server_address[:2]
    with socket.create_connection((str(host), int(port)), PATIENCE, source_address=(source, 0)) as connection:
        yield connection


def answer_to(server: EnvironmentServer, request: bytes) -> bytes:
    """All that comes back. The client says that it is done, so the server closes."""
    with connected(server) as connection:
        with contextlib.suppress(OSError):  # it may have refused before it was sent whole
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
        said = b""
        with contextlib.suppress(ConnectionError):
            while part := connection.recv(2**16):
                said += part
        return said


TASKS = b'{"seeds":[0]}'
LENGTH = b"Content-Length: 13\r\n"
KIND = b"Content-Type: application/json\r\n"
POST = b"POST /tasks HTTP/1.1\r\n"


@pytest.fixture(scope="module")
def server() -> Iterator[EnvironmentServer]:
    told: list[str] = []
    with serving(Echo(), names=("env.example.org",), told=told) as server:
        yield server
    assert not [line for line in told if "could not be answered" in line]


def test_a_plain_request_is_answered(server: EnvironmentServer) -> None:
    assert b'"tasks":[{"id":' in answer_to(server, POST + KIND + LENGTH + b"\r\n" + TASKS)


@pytest.mark.parametrize(
    "head",
    [
        POST + KIND + LENGTH + LENGTH + b"\r\n",
        POST + KIND + LENGTH + b"content-length: 0\r\n\r\n",
        POST + KIND + b"Content-Length: 013\r\n\r\n",
        POST + KIND + b"Content-Length: 13, 13\r\n\r\n",
        POST + KIND + LENGTH + b"Transfer-Encoding: chunked\r\n\r\n",
        POST + KIND + b"Content-Length : 13\r\n\r\n",
        POST + KIND + LENGTH + b"X-A : b\r\n\r\n",
        POST + KIND + LENGTH + b"X-A: b\r\n c\r\n\r\n",
        POST + KIND + LENGTH + b"X-A: b\r\n\tc\r\n\r\n",
        POST + b" " + KIND + LENGTH + b"\r\n",
        POST + KIND + LENGTH + b"no colon\r\n\r\n",
        POST + KIND + LENGTH + b": no name\r\n\r\n",
        POST + KIND + LENGTH + b"X-A: b\0c\r\n\r\n",
        POST + KIND + b"Content-Length: 13\n\r\n",
        POST + KIND + LENGTH + b"\n",
        POST + KIND + LENGTH + b"X-A: b\rX-B: c\r\n\r\n",
        b"POST /tasks HTTP/1.1\n" + KIND + LENGTH + b"\r\n",
        POST + b"Host: 127.0.0.1\r\nHost: localhost\r\n" + KIND + LENGTH + b"\r\n",
    ],
)
def test_a_head_that_could_be_read_in_two_ways_is_refused(head: bytes, server: EnvironmentServer) -> None:
    said = answer_to(server, head + TASKS)
    status = int(said.split(b" ")[1])
    assert status == (411 if b"13, 13" in head else 400), said
    assert said.count(b"HTTP/1.1 ") == 1, "what follows such a head is not read as a request"
    assert json.loads(said.partition(b"\r\n\r\n")[2])["error"].endswith(".")


@pytest.mark.parametrize(
    ("host", "named"),
    [
        ("localhost", True),
        ("LOCALHOST:8765", True),
        ("127.0.0.1", True),
        ("127.0.0.1:80", True),
        ("127.8.9.1", True),
        ("[::1]:8765", True),
        ("localhost.", True),
        ("env.example.org", True),
        ("evil.example.org", False),
        ("127.0.0.1.evil.example.org", False),
        ("localhost.evil.example.org", False),
        ("evil@localhost", False),
        ("localhost/evil", False),
        ("192.168.1.5", False),
        ("0.0.0.0", False),
        ("", False),
        ("127.1", False),
        ("::1", False),
    ],
)
def test_a_host_that_is_not_this_machine_is_refused(host: str, named: bool, server: EnvironmentServer) -> None:
    assert is_named(host, ("127.0.0.1", "env.example.org")) == named
    for request in (("GET", "/environment", None), ("POST", "/tasks", {"seeds": [0]})):
        status, tree = Asker(server)(*request, headers=JSON | {"Host": host})
        assert (status == 200) == named
        assert named or (status == 421 and "--host-name NAME" in tree["error"])


def test_a_server_with_a_token_answers_to_every_name() -> None:
    with serving(Echo(), token="secret") as server:
        headers = {"Authorization": "Bearer secret", "Host": "gpu7.example.org"}
        assert Asker(server)("GET", "/environment", headers=headers)[0] == 200


DRIPS = [b"", b"G", b"GET /health HTTP/1.1\r\nX-A: ", POST + KIND + b"Content-Length: 9999\r\n\r\n{"]
"""Where a client may stop sending."""


@pytest.mark.parametrize("begun", DRIPS, ids=["nothing", "the first line", "the fields", "the body"])
def test_dripping_connections_lock_nobody_out(begun: bytes) -> None:
    limits = Limits(connections=16, safe_seconds=0.0, request_seconds=PATIENCE)
    with serving(Echo(), limits=limits) as server, contextlib.ExitStack() as stack:
        for _ in range(16):
            stack.enter_context(connected(server)).sendall(begun)
        assert Asker(server)("GET", "/health")[0] == 200


def test_a_request_that_drips_is_ended_at_its_deadline() -> None:
    with serving(Echo(), limits=Limits(request_seconds=0.3)) as server:
        for begun in DRIPS[1:]:
            with connected(server) as connection:
                connection.sendall(begun)
                connection.settimeout(0.02)
                said, until = b"", time.monotonic() + PATIENCE
                while b"\r\n\r\n" not in said:
                    assert time.monotonic() < until
                    with contextlib.suppress(TimeoutError):
                        said += connection.recv(2**16)
                    with contextlib.suppress(OSError):
                        connection.sendall(b"a")
                assert said.startswith(b"HTTP/1.1 408 "), said
        # A request of a busy machine may be late, too.
        assert comes(lambda: Asker(server)("GET", "/health")[0] == 200)


def test_one_address_does_not_take_all_connections() -> None:
    limits = Limits(connections=4, safe_seconds=PATIENCE)
    with serving(Echo(), limits=limits) as server, contextlib.ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(connected(server))
        status, refused = Asker(server)("GET", "/health")
        assert (status, refused["error"][:39]) == (503, "All 3 connections of one address are in")
        try:
            other = stack.enter_context(connected(server, "127.0.0.2"))
        except OSError:
            pytest.skip("this system has one loopback address")
        other.sendall(b"GET /health HTTP/1.1\r\n\r\n")
        assert other.recv(100).startswith(b"HTTP/1.1 200 ")


def test_the_connection_that_waits_longest_makes_room_and_one_at_work_never_does() -> None:
    clock = [0.0]
    held = Connections(Limits(connections=2, per_address=2, safe_seconds=5.0), lambda: clock[0])
    ends = [socket.socketpair() for _ in range(4)]
    first, second, third, fourth = (pair[0] for pair in ends)
    try:
        assert held.admit(first, "a") == ""
        clock[0] = 1.0
        assert held.admit(second, "b") == ""
        held.is_answered(first)
        clock[0] = 5.9
        assert held.admit(third, "c").startswith("All 2 connections of this server")
        clock[0] = 6.0
        assert held.admit(third, "c") == ""
        assert ends[1][1].recv(1) == b"", "the second was closed, not the first, which is at work"
        held.waits(first)
        clock[0] = 11.0
        assert held.admit(fourth, "a") == ""
        held.leave(second)
        held.leave(third)
    finally:
        for pair in ends:
            for end in pair:
                end.close()


trees = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
words = st.sampled_from(
    [
        *(b"GET", b"POST", b"DELETE", b"/tasks", b"/sessions", b"/sessions/x/step", b"/demonstrate", b"HTTP/1.1"),
        *(b" ", b"\r\n", b"\n", b"\r", b"\r\n\r\n", b":", b": ", b"\t", b"\0", b"\xff", b"{", b"}", b"[", b'"seeds"'),
        *(b"Content-Length", b"Transfer-Encoding", b"chunked", b"Host", b"Expect: 100-continue", b"0", b"13", b"-1"),
        *(KIND, LENGTH, POST, TASKS, b"9" * 30, b"Connection: keep-alive\r\n"),
    ]
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pieces=st.lists(words | st.binary(max_size=12), max_size=30))
def test_no_bytes_break_the_server(pieces: list[bytes], server: EnvironmentServer) -> None:
    assert_fine(answer_to(server, b"".join(pieces)), server)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    path=st.sampled_from(
        ["/tasks", "/sessions", "/sessions/x/step", "/demonstrate", "/random-answer", "/blind-answers"]
    ),
    names=st.dictionaries(
        st.sampled_from(
            [
                "seed",
                "seeds",
                "member",
                "key",
                "task",
                "tasks",
                "rng",
                "close",
                "digest",
                "turn",
                "response",
                "imperfect",
            ]
        ),
        trees,
    ),
)
def test_no_tree_breaks_the_server(path: str, names: dict[str, Any], server: EnvironmentServer) -> None:
    body = json.dumps(names).encode()
    head = b"POST %s HTTP/1.1\r\n%sContent-Length: %d\r\n\r\n" % (path.encode(), KIND, len(body))
    assert_fine(answer_to(server, head + body), server)


def assert_fine(said: bytes, server: EnvironmentServer) -> None:
    """Whatever was sent, each answer has a status and a tree, and the server goes on."""
    while said:
        head, _, said = said.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 "), head
        if head.startswith(b"HTTP/1.1 100 "):
            continue
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        tree, said = json.loads(said[:length]), said[length:]
        assert isinstance(tree, dict)
    assert server.sessions.open < 1000
