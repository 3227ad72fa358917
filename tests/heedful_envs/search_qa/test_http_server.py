"""The retrieval server's HTTP: addresses, hosts, tokens, sizes and its end."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from heedful import cli
from heedful_envs.search_qa.http_server import HttpServer, Refusal, check_address, is_named
from patience import PATIENCE

JSON = {"Content-Type": "application/json"}


class Counting:
    """Answers with the number of queries."""

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        if path not in ("/health", "/retrieve"):
            raise Refusal(404, "nothing there")
        return 200, {"queries": len(body.get("queries", []))}


@contextmanager
def serving(token: str = "", largest: int = 2**22, names: tuple[str, ...] = ()) -> Iterator[HttpServer]:
    server = HttpServer(("127.0.0.1", 0), Counting(), token, largest, lambda line: None, names)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()


def ask(server: HttpServer, path: str = "/retrieve", body: Any = None, headers: dict[str, str] | None = None) -> Any:
    """(status, answer) of one request."""
    host, port = server.server_address
    connection = http.client.HTTPConnection(str(host), int(port), timeout=PATIENCE)
    raw = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    connection.request("POST" if raw else "GET", path, raw, JSON if headers is None else headers)
    response = connection.getresponse()
    return response.status, json.loads(response.read())


def test_a_request_is_answered_or_refused_in_a_sentence() -> None:
    with serving(largest=2000) as server:
        assert ask(server, body={"queries": ["a", "b"]}) == (200, {"queries": 2})
        assert ask(server, "/other") == (404, {"error": "nothing there"})
        status, refused = ask(server, body=b"{")
        assert (status, "Expected the body as JSON" in refused["error"]) == (400, True)
        status, refused = ask(server, body={"queries": ["x" * 3000]})
        assert (status, "larger --largest-request" in refused["error"]) == (413, True)
        for headers in ({}, {"Content-Type": "text/plain"}):  # a page of another site can send these
            assert ask(server, body={"queries": []}, headers=headers)[0] == 415


def test_an_answer_does_not_wait_until_the_client_has_acknowledged_its_head() -> None:
    with serving() as server:
        host, port = server.server_address
        connection, seconds = http.client.HTTPConnection(str(host), int(port), timeout=PATIENCE), list[float]()
        for _ in range(40):  # the first answers are acknowledged at once
            began = time.perf_counter()
            connection.request("GET", "/health")
            connection.getresponse().read()
            seconds.append(time.perf_counter() - began)
    assert min(seconds[-10:]) < 0.03


def test_without_the_token_nothing_but_the_health_check_is_answered() -> None:
    with serving(token="secret") as server:
        assert ask(server, "/health")[0] == 200
        for headers in ({}, {"Authorization": "Bearer secre"}, {"Authorization": "Bearer s\xe9cret"}):
            status, refused = ask(server, headers=headers)
            assert (status, "Expected the server's token" in refused["error"]) == (401, True)
        strange = {"Authorization": "Bearer secret", "Host": "gpu7.example.org"}
        assert ask(server, headers=strange)[0] == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.5", "::", "example.org"])
def test_an_address_that_others_reach_needs_a_token(host: str) -> None:
    with pytest.raises(ValueError, match=f"Expected a token before listening on {host}"):
        check_address(host, "")
    check_address(host, "secret")
    check_address("::1", "")


def test_an_address_that_this_machine_does_not_have_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEEDFUL_ENV_TOKEN", "secret")
    with pytest.raises(ValueError, match=r"found port 0 of '192\.0\.2\.1'.*Give another --port or --host"):
        HttpServer(("192.0.2.1", 0), Counting(), "secret", 2**22, lambda line: None)
    assert cli.run(["serve-search", "nowhere", "--port", "70000"]) == 2
    assert "--port: expected a whole number of at least 0 and at most 65,535" in capsys.readouterr().err


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


def test_a_web_page_under_another_name_is_refused() -> None:
    with serving(names=("env.example.org",)) as server:
        assert ask(server, headers={"Host": "env.example.org"})[0] == 200
        status, refused = ask(server, headers={"Host": "evil.example.org"})
        assert (status, "--host-name NAME" in refused["error"]) == (421, True)
