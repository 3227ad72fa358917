"""Searches over HTTP: both protocols, from a server of ours to the environment, and what an outage is."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from heedful import cli
from heedful.envs.common.actions import format_reply
from heedful.guarded import Raised, guarded_call
from heedful.policies.servers import ForeignAnswer, ServerRefused, ServerUnreachable
from heedful.serving.server import EnvironmentServer
from heedful.serving.sessions import Refusal
from heedful_envs.search_qa.environment import SearchQA
from heedful_envs.search_qa.index_command import index_file
from heedful_envs.search_qa.passages import open_index
from heedful_envs.search_qa.retrieval_service import RetrievalService
from heedful_envs.search_qa.server import passages_in
from patience import PATIENCE

EXAMPLES = Path(__file__).parents[3] / "examples" / "search_qa"
QUESTIONS = str(EXAMPLES / "flashrag.jsonl")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return index_file(EXAMPLES / "corpus.jsonl", tmp_path_factory.mktemp("index"))


@pytest.fixture(scope="module")
def service(folder: Path) -> RetrievalService:
    return RetrievalService(open_index(folder))


@pytest.fixture(scope="module")
def url(service: RetrievalService) -> Iterator[str]:
    yield from served(service)


def served(service: Any, token: str = "") -> Iterator[str]:
    server = EnvironmentServer(("127.0.0.1", 0), service, None, token, 2**22, lambda line: None)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.url
    finally:
        server.shutdown()
        thread.join(PATIENCE)


def search(env: SearchQA, seed: int, words: str) -> str:
    episode = env.episode()
    episode.start(env.task(seed), 0)
    return episode.step(format_reply([f"search[{words}]"], "")).observation.text


@pytest.mark.parametrize("protocol", ["search_r1", "ragen"])
@pytest.mark.parametrize("ending", ["", "/", "/retrieve"])
def test_a_served_index_shows_an_agent_what_the_index_itself_shows(
    protocol: Any, ending: str, url: str, folder: Path
) -> None:
    served_one = SearchQA(questions=QUESTIONS, url=f"{url}{ending}", protocol=protocol)
    own = SearchQA(questions=QUESTIONS, index=str(folder))
    for seed in range(5):
        for words in (own.question(seed), "town river", "nothing-like-this"):
            assert search(served_one, seed, words) == search(own, seed, words)


def test_the_first_protocol_answers_every_query_with_and_without_scores(service: RetrievalService) -> None:
    body = {"queries": ["river", "bees born", "zzz"], "topk": 2, "return_scores": True}
    status, answer = service.answer("POST", "/retrieve", body)
    assert status == 200
    assert [len(row) for row in answer["result"]] == [2, 2, 0]
    first = answer["result"][0][0]
    assert set(first["document"]) == {"id", "contents", "title", "text"}
    assert first["document"]["contents"] == f'"{first["document"]["title"]}"\n{first["document"]["text"]}'
    plain = service.answer("POST", "/retrieve", body | {"return_scores": False})[1]
    assert plain["result"] == [[each["document"] for each in row] for row in answer["result"]]
    # The published server mixes up two queries without scores.
    two = service.answer("POST", "/retrieve", {"queries": ["river", "bees"], "topk": 1})[1]
    assert [len(row) for row in two["result"]] == [1, 1]


def test_the_second_protocol_numbers_its_results_by_rank(service: RetrievalService) -> None:
    _, answer = service.answer("POST", "/retrieve", {"query": "river town"})
    assert [each["id"] for each in answer["results"]] == [1, 2, 3, 4, 5]
    assert answer["num_results"] == 5
    assert service.answer("GET", "/health", {}) == (200, {"status": "ok", "passages": 48})


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({}, "found no 'query'"),
        ({"queries": [1]}, "as docs/search.md has it"),
        ({"queries": ["a"], "topk": 1000}, "at most 100 passages a query, found 1000"),
        ({"query": ["a"]}, "as docs/search.md has it"),
        ([], "as docs/search.md has it"),
    ],
)
def test_a_request_of_another_form_is_refused(body: Any, sentence: str, service: RetrievalService) -> None:
    with pytest.raises(Refusal, match=sentence) as refused:
        service.answer("POST", "/retrieve", body)
    assert refused.value.status == 400


def test_other_paths_are_told_what_there_is(service: RetrievalService) -> None:
    with pytest.raises(Refusal, match="known are GET /health, POST /retrieve"):
        service.answer("GET", "/retrieve", {})


def test_a_token_is_sent_from_an_environment_variable(
    service: RetrievalService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEARCH_KEY", "s3cret")
    for address in served(service, token="s3cret"):
        assert "[1]" in search(SearchQA(questions=QUESTIONS, url=address, key_env="SEARCH_KEY"), 0, "river")
        with pytest.raises(ServerRefused, match="401"):
            search(SearchQA(questions=QUESTIONS, url=address), 0, "river")


class Flaky:
    """Answers in another way than it should, the first times."""

    def __init__(self, service: RetrievalService, failures: list[Any]) -> None:
        self.service, self.failures, self.asked = service, failures, 0

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        self.asked += 1
        if self.failures:
            failure = self.failures.pop(0)
            if isinstance(failure, int):
                raise Refusal(failure, "not now")
            return 200, failure
        return self.service.answer(method, path, body)


def test_a_server_that_fails_twice_is_asked_again(service: RetrievalService) -> None:
    flaky = Flaky(service, [{"result": []}, 500])
    for address in served(flaky):
        assert "[1]" in search(SearchQA(questions=QUESTIONS, url=address), 0, "river")
    assert flaky.asked == 3


@pytest.mark.parametrize("failures", [[503] * 100, [{"result": "x"}] * 3, [500] * 3])
def test_an_outage_is_an_error_and_neither_an_observation_nor_a_reward(
    failures: list[Any], service: RetrievalService
) -> None:
    for address in served(Flaky(service, failures)):
        env = SearchQA(questions=QUESTIONS, url=address, patience=0.5)
        episode = env.episode()
        episode.start(env.task(0), 0)
        failed = guarded_call(lambda: episode.step(format_reply(["search[river]"], "")))  # noqa: B023
        assert isinstance(failed, Raised)
        assert isinstance(failed.error, ServerUnreachable)


def test_a_refusal_is_not_repeated_and_gives_no_advice_on_models(service: RetrievalService) -> None:
    flaky = Flaky(service, [404])
    for address in served(flaky):
        with pytest.raises(ServerRefused, match=r"404\): not now$"):
            search(SearchQA(questions=QUESTIONS, url=address), 0, "river")
    assert flaky.asked == 1


@pytest.mark.parametrize(
    ("protocol", "tree"),
    [
        ("search_r1", None),
        ("search_r1", {"result": []}),
        ("search_r1", {"result": [[], []]}),
        ("search_r1", {"result": [[3]]}),
        ("search_r1", {"result": [[{"document": {}, "score": 1}]]}),
        ("ragen", {"result": []}),
        ("ragen", {"results": [{"content": 3, "score": 1}]}),
        ("ragen", {"results": ["x", 3]}),
    ],
)
def test_an_answer_of_another_form_is_no_answer(protocol: Any, tree: Any) -> None:
    with pytest.raises(ForeignAnswer, match=r"Expected \{"):
        passages_in(tree, protocol)


@pytest.fixture
def silent() -> Iterator[str]:
    """A server that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.parametrize("command", ["play search_qa --by solver", "check-env search_qa --quick"])
def test_a_server_that_hangs_is_answered_with_advice_on_the_server(
    command: str, silent: str, capsys: pytest.CaptureFixture[str]
) -> None:
    knobs = ["--env.questions", QUESTIONS, "--env.url", silent, "--env.timeout", "0.1"]
    assert cli.run([*command.split(), *knobs]) != 0
    said = capsys.readouterr()
    assert f"the server at {silent} gave no whole answer within 0.1 s" in said.err
    assert "Look after the retrieval server that --env.url names" in said.err
    assert not any(advice in said.out + said.err for advice in ("Mend", "mend", "valid=False", "demonstrations"))


def test_the_commands_build_an_index_and_serve_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "indexes")
    for how in ("built", "found"):
        assert cli.run(["index", str(EXAMPLES / "hotpotqa.json"), "--out", out]) == 0
        assert f"{how}: 48 passages of hotpotqa.json" in capsys.readouterr().err
    command = [sys.executable, "-m", "heedful", "serve-search", out, "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        line = server.stdout.readline()
        port = int(re.findall(r"at http://127\.0\.0\.1:(\d+); Ctrl-C ends it", line)[0])
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        connection.request("GET", "/health")
        assert json.loads(connection.getresponse().read()) == {"status": "ok", "passages": 48}
        connection.request("POST", "/retrieve", "9" * 2**23, {"Content-Type": "application/json"})
        refused = json.loads(connection.getresponse().read())["error"]
        assert "start the server with a larger --largest-request" in refused
    finally:
        os.kill(server.pid, signal.SIGINT)
        assert server.wait(PATIENCE) == 0
