"""The client's table of failures, row by row, against a fake server."""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from fake_server import GENERATE, FakeServer, Fault, counting, fake_server
from heedful.policies.servers import (
    Client,
    Draw,
    Drawn,
    Limits,
    OtherWeights,
    Server,
    ServerRefused,
    ServerUnreachable,
    Vllm,
    read_key,
)
from heedful.policies.servers import client as client_module
from heedful.policies.servers.dialects import MODELS
from heedful.policies.servers.examination import examine
from patience import PATIENCE, comes
from ports import nobody_at

QUICK = Limits(timeout=60.0, patience=60.0, pause=0.01)
DRAW = Draw(temperature=1.0, greedy=False, most=4, seed=7)
EXPECTED = counting([1, 2], {"seed": 7, "max_tokens": 4})


def ask(client: Client, ids: tuple[int, ...] = (1, 2), version: str = "", conversation: str = "") -> Drawn:
    def read(tree: Any) -> Drawn:
        drawn = Vllm().drawn(tree, 4)
        if version and drawn.versions != (version,):
            raise OtherWeights(f"expected {version}, found {drawn.versions}")
        return drawn

    return client.ask(Vllm().draw(ids, DRAW, "policy"), read, conversation=conversation)


def is_right(drawn: Drawn) -> bool:
    return (list(drawn.ids), list(drawn.logprobs)) == EXPECTED


def one(server: FakeServer, limits: Limits = QUICK, **named: Any) -> Client:
    return Client([server.url], limits, **named)


@pytest.mark.parametrize(
    "fault",
    [
        Fault("refuse"),
        Fault("cut"),
        Fault("status", status=502),
        Fault("status", status=503),
        Fault("status", status=504),
        Fault("status", status=429),
        Fault("status", status=500, body="CUDA error"),
        Fault("garbage"),
        Fault("status", status=500, body="EngineCore encountered an issue. See stack trace"),
    ],
    ids=lambda fault: f"{fault.kind}-{fault.status}-{fault.body[:6]}",
)
def test_a_failure_that_may_pass_is_repeated_and_the_reply_is_the_same(fault: Fault) -> None:
    with fake_server() as server:
        server.faults += [fault]
        client = one(server, note=lambda sentence: None)
        assert is_right(ask(client))
        assert len(server.bodies()) == 2
        assert server.bodies()[0] == server.bodies()[1], "the same request, to the byte"
        assert client.repeats.total() == 1


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_a_refusal_is_raised_at_once_with_the_servers_sentence(status: int) -> None:
    with fake_server() as server:
        server.faults += [Fault("status", status=status, body="the prompt is too long")]
        with pytest.raises(ServerRefused, match="the prompt is too long") as caught:
            ask(one(server))
        assert caught.value.status == status
        assert len(server.bodies()) == 1


def test_the_missing_flag_is_named() -> None:
    with fake_server() as server:
        server.scale_out = False
        with pytest.raises(ServerRefused, match="Start vLLM with --enable-scale-out"):
            ask(one(server))


@pytest.mark.parametrize("kind", ["slow", "drip"])
def test_a_server_that_gives_no_whole_answer_in_time_is_asked_three_times(kind: str) -> None:
    with fake_server() as server:
        server.faults += [Fault(kind, seconds=3.0)] * 3
        told: list[str] = []
        with pytest.raises(ServerUnreachable, match=r"no whole answer within 1 s\. This was attempt 3"):
            ask(one(server, Limits(timeout=1.0, patience=PATIENCE, pause=0.01), note=told.append))
        assert told == [f"asking again: the server at {server.url} gave no whole answer within 1 s"]
        assert comes(lambda: len(server.bodies()) == 3)


def test_the_patience_is_for_a_server_that_is_away_and_not_for_one_that_is_slow() -> None:
    with fake_server() as server:
        server.faults += [Fault("mute"), Fault("refuse")]
        assert is_right(ask(one(server, Limits(timeout=3.0, patience=2.5, pause=0.01))))


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("garbage", "is no JSON"),
        ("deep", "is no JSON"),  # nested without end
        ("large", r"with too much: an answer of more than 4,218,880 bytes\. This was"),
    ],
)
def test_what_is_no_answer_to_what_was_asked_is_repeated_twice(kind: str, said: str) -> None:
    with fake_server() as server:
        server.faults += [Fault(kind)] * 2
        assert is_right(ask(one(server)))
        server.faults += [Fault(kind)] * 3
        with pytest.raises(ServerUnreachable, match=said):
            ask(one(server))


def test_an_absent_server_is_waited_for_within_the_patience_and_a_line_tells_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    readings = count(0.0, 0.5)
    monkeypatch.setattr(client_module, "time", SimpleNamespace(monotonic=lambda: next(readings)))
    told: list[str] = []
    with nobody_at() as url:
        client = Client([url], Limits(patience=3.0, pause=0.02, tell_after=1.0), note=told.append)
        with pytest.raises(ServerUnreachable, match=r"not reached: .*Connection refused\. It was waited for 3 s"):
            ask(client)
    assert client.repeats == {"away": 3}
    assert len(told) == 1
    assert "waiting: the server at" in told[0]


def failing_to_connect(error: OSError) -> Any:
    def connect(*given: Any, **named: Any) -> None:
        raise error

    return connect


def test_a_name_that_no_machine_has_is_no_broken_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = failing_to_connect(socket.gaierror(-2, "Name or service not known"))
    monkeypatch.setattr(socket, "create_connection", unknown)
    client = Client(["http://localhsot:8000"], Limits(patience=1e-9))
    with pytest.raises(ServerUnreachable, match=r"with the name localhsot was found .*\. Check the spelling\. It was"):
        ask(client)


def test_a_certificate_that_is_not_trusted_is_no_server_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_message = "self-signed certificate"
    monkeypatch.setattr(socket, "create_connection", failing_to_connect(error))
    client = Client(["https://127.0.0.1:1"], Limits(patience=PATIENCE))
    with pytest.raises(ServerRefused, match=r"not trusted \(self-signed certificate\)\. .* SSL_CERT_FILE"):
        ask(client)
    with pytest.raises(ServerRefused, match="not trusted"):
        examine(client, client.servers[0])


def test_pauses_double() -> None:
    with fake_server() as server:
        server.faults += [Fault("status", status=503)] * 3
        began = time.monotonic()
        ask(one(server, Limits(pause=0.05)))
        assert time.monotonic() - began >= 0.05 + 0.1 + 0.2


def test_retry_after_is_honoured_and_a_longer_one_than_the_patience_ends_the_request() -> None:
    with fake_server() as server:
        server.faults += [Fault("status", status=429, headers={"Retry-After": "0.4"})]
        began = time.monotonic()
        assert is_right(ask(one(server)))
        assert time.monotonic() - began >= 0.4
        server.faults += [Fault("status", status=429, headers={"Retry-After": "3600"})]
        with pytest.raises(ServerUnreachable, match="asks to be left alone for 3600 s"):
            ask(one(server))
        server.faults += [Fault("status", status=429, headers={"Retry-After": "1e308"})]
        with pytest.raises(ServerUnreachable, match=r"asks to be left alone for 1e\+308 s"):
            ask(one(server))
        server.faults += [Fault("refuse")]
        with pytest.raises(ServerUnreachable, match="broke off the connection") as caught:
            ask(one(server, Limits(patience=1e-9)))
        assert "left alone" not in str(caught.value), "it named no time"


@pytest.mark.parametrize("said", ["Mon, 01 Jan 2030 00:00:00 GMT", "nan", "-3"])
def test_a_retry_after_that_is_no_time_is_none(said: str) -> None:
    with fake_server() as server:
        server.faults += [Fault("status", status=429, headers={"Retry-After": said})]
        assert is_right(ask(one(server)))


def test_a_429_halves_the_requests_at_once_for_all_together_and_answers_raise_them_again() -> None:
    with fake_server() as server, ThreadPoolExecutor(8) as pool:
        server.together = 8
        client = one(server, Limits(connections=8, pause=0.3))
        server.faults += [Fault("status", status=429)] * 8
        assert all(is_right(drawn) for drawn in pool.map(lambda _: ask(client), range(8)))
        assert server.most_at_once == 8
        assert 4 < client.servers[0].most < 6


def test_no_server_gets_more_requests_at_once_than_it_may() -> None:
    with fake_server() as server, ThreadPoolExecutor(12) as pool:
        server.together = 3
        client = one(server, Limits(connections=3))
        assert all(is_right(drawn) for drawn in pool.map(lambda _: ask(client), range(12)))
        assert server.most_at_once == 3


def test_a_conversation_stays_with_its_server_and_new_ones_go_where_least_is_open() -> None:
    with fake_server() as left, fake_server() as right:
        client = Client([left.url, right.url], QUICK)
        client.servers[0].open = 1
        ask(client, conversation="a")
        assert len(right.bodies()) == 1
        client.servers[1].open = 5
        ask(client, conversation="b")
        for name in "aab":
            ask(client, conversation=name)
        assert (len(left.bodies()), len(right.bodies())) == (2, 3)


def test_another_server_answers_for_one_that_is_away() -> None:
    with fake_server() as left, fake_server() as right:
        client = Client([left.url, right.url], QUICK)
        client.servers[1].open = 1
        left.faults += [Fault("refuse")] * 100
        assert is_right(ask(client, conversation="a"))
        assert is_right(ask(client, conversation="a"))
        assert (len(left.bodies()), len(right.bodies())) == (1, 2), "the conversation has moved"


@pytest.mark.parametrize("fault", [Fault("restart"), Fault("status", status=500, body="EngineCore encountered")])
def test_a_server_that_lost_its_weights_is_restored_once_for_all_threads(fault: Fault) -> None:
    with fake_server() as server, ThreadPoolExecutor(8) as pool:
        server.version, server.together = "v3", 8
        server.faults += [fault] * (8 if fault.kind == "status" else 1)
        client = one(server, note=lambda sentence: None)
        restored = []

        def restore(which: Server) -> None:
            restored.append(which.url)
            server.version = "v3"

        client.restore = restore
        assert all(is_right(drawn) for drawn in pool.map(lambda _: ask(client, version="v3"), range(8)))
        assert restored == [server.url]


def test_a_server_is_restored_when_its_other_requests_have_ended() -> None:
    with fake_server() as server, ThreadPoolExecutor(2) as pool:
        server.version, server.delay = "v2", 0.5
        client = one(server, note=lambda sentence: None)
        open_then = []

        def restore(which: Server) -> None:
            open_then.append(which.open)
            server.version = "v3"

        client.restore = restore
        slow = pool.submit(ask, client, version="v2")
        assert comes(server.bodies)
        server.delay = 0.0
        assert is_right(ask(client, version="v3"))
        assert is_right(slow.result())
        assert open_then == [0]


def test_a_server_whose_weights_change_again_and_again_is_given_up() -> None:
    with fake_server() as server:
        with pytest.raises(ServerUnreachable, match="Two runs seem to share the server"):
            ask(one(server, note=lambda sentence: None), version="v3")
        assert len(server.bodies()) == 3


def test_a_server_that_cannot_be_restored_gets_no_more_requests() -> None:
    with fake_server() as left, fake_server() as right:
        right.version = "v3"
        told: list[str] = []
        client = Client([left.url, right.url], QUICK, note=told.append)

        def restore(which: Server) -> None:
            raise ServerUnreachable("the disk is full")

        client.restore = restore
        client.servers[1].open = 1
        assert is_right(ask(client, version="v3"))
        assert told[-1] == f"going on without {left.url}: the disk is full"
        client.servers[1].open = 5
        assert is_right(ask(client, version="v3"))
        assert len(left.bodies()) == 1
        client.servers[1].open = 0
        right.version = "v4"
        with pytest.raises(ServerUnreachable, match="the disk is full"):
            ask(client, version="v3")


def test_closing_ends_a_request_that_waits_for_its_answer() -> None:
    with fake_server() as server:
        server.delay = PATIENCE / 2
        client = one(server)
        failures: list[BaseException] = []

        def wait() -> None:
            try:
                ask(client)
            except ServerUnreachable as error:
                failures.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        assert comes(server.bodies)
        client.close()
        thread.join(PATIENCE)
        assert not thread.is_alive()
        assert "closed" in str(failures[0])
        server.delay = 0.0


def test_a_connection_is_kept_and_one_that_the_server_closed_is_opened_again() -> None:
    with fake_server() as server:
        client = one(server)
        ask(client)
        server.faults += [Fault("refuse")]
        assert is_right(ask(client))
        assert client.repeats.total() == 0


def test_the_key_is_sent_and_appears_in_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "abc123")
    with fake_server(key="abc123") as server:
        assert is_right(ask(one(server, key=read_key("MY_KEY"))))
        with pytest.raises(ServerRefused, match=r"wrong key Bearer \(the key\)") as caught:
            ask(one(server, key="zzz999"))
        assert "zzz999" not in str(caught.value)
        # A sentence of the server that is cut in the middle of the key.
        server.key, server.faults = "", [Fault("status", status=400, body=f"{'x' * 295}zzz999")]
        with pytest.raises(ServerRefused) as caught:
            ask(one(server, key="zzz999"))
        assert "zzz" not in str(caught.value)
        server.faults = [Fault("version", body="zzz999")] * 3
        with pytest.raises(ServerUnreachable, match=r"\(the key\)") as lost:
            ask(one(server, key="zzz999"), version="7")
        assert "zzz999" not in str(lost.value)
        server.faults = [Fault("line", body="zzz999 is the key")] * 9
        with pytest.raises(ServerUnreachable, match=r"\(the key\) is the key") as lost:
            ask(one(server, Limits(patience=0.001), key="zzz999"))
        assert "zzz999" not in str(lost.value)
    monkeypatch.delenv("MY_KEY")
    with pytest.raises(ValueError, match="environment variable MY_KEY, found nothing"):
        read_key("MY_KEY")
    monkeypatch.setenv("MY_KEY", "secret\nkey")
    with pytest.raises(ValueError, match="characters that no header can carry") as bad:
        read_key("MY_KEY")
    assert "secret" not in str(bad.value)
    assert read_key("") == ""


LONG = "sk-proj-" + "0123456789abcdef" * 10


@pytest.mark.parametrize("answer", [{"choices": LONG}, {"data": [{"id": LONG}]}, [LONG], {"choices": [{LONG: 1}]}])
def test_a_long_key_that_a_server_repeats_is_neither_in_data_nor_in_a_message_that_cuts_it(answer: Any) -> None:
    with fake_server() as server:
        client = one(server, key=LONG)
        server.faults = [Fault("status", status=200, body=json.dumps(answer))] * 3
        with pytest.raises(ServerUnreachable) as lost:
            ask(client)
        assert "sk-proj" not in str(lost.value)
        assert "0123456789abcdef" not in str(lost.value)
        server.faults = [Fault("status", path="/v1/models", status=200, body=LONG)]
        told = client.tell(client.servers[0], MODELS)
        assert told == {"error": {"message": "(the key)"}}


@pytest.mark.parametrize("status", [302, 308])
def test_a_redirection_is_named_and_neither_followed_nor_read_as_an_answer(status: int) -> None:
    with fake_server() as server, fake_server() as elsewhere:
        place = f"{elsewhere.url}/{LONG}"
        server.faults = [Fault("status", status=status, body="moved", headers={"Location": place})]
        with pytest.raises(ServerRefused, match=rf"redirects /inference/v1/generate to .*\({status}\)") as caught:
            ask(one(server, key=LONG))
        assert "0123456789abcdef" not in str(caught.value)
        assert not elsewhere.calls


@pytest.mark.parametrize(
    "url",
    [
        "127.0.0.1:8000",
        "ftp://a",
        "http://",
        "http://ada:pass@host:1",
        "ftp://ada:pass@a",
        "http://a:99999",
        "http://[",
        "http://a/v1?key=pass@",
        "http://a#pass@",
    ],
)
def test_what_is_no_url_of_a_server_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="Expected the URL of") as caught:
        Client([url])
    assert "pass@" not in str(caught.value)


def test_a_path_before_the_endpoints_is_kept() -> None:
    with fake_server() as server:
        client = Client([server.url + "/prefix/"], QUICK)
        with pytest.raises(ServerRefused):
            ask(client)
        assert server.paths() == [f"/prefix{GENERATE}"]
