"""`heedful doctor`: one screen, an exit code, and the same as JSON."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import tiny_architectures as tiny
from fake_server import fake_server
from heedful import cli
from ports import nobody_at

pytestmark = pytest.mark.usefixtures("small_caches")


def test_one_screen_says_what_is_installed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) < 25
    assert lines[0].startswith("heedful ")
    assert lines[-1] == "Nothing is wrong."
    assert [line.split()[0] for line in lines[1:4]] == ["CPU", "GPU", "extras"]


@pytest.mark.filterwarnings("ignore:The KV cache")
def test_a_model_is_shown_with_the_ways_that_are_exact_and_their_cost(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr("heedful.models.load.load_model", lambda *_: (tiny.built("openai-gpt"), None))
    assert cli.run(["doctor", "--model", "old"]) == 0
    shown = capsys.readouterr().out
    assert "model     old: OpenAIGPTLMHeadModel, scored by plain; not packed: " in shown
    assert "\n          The sampler reads the whole context for each token, since " in shown
    assert "\n          The scorer reads each pair of prompt and thought whole (plain; not packed: " in shown
    assert "\n          The learner reads each reply with its whole prompt: 3.3 times the tokens.\n" in shown
    monkeypatch.setattr("heedful.models.load.load_model", lambda *_: (tiny.built("llama"), None))
    assert cli.run(["doctor", "--model", "new", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["model"]
    assert told[:2] == ["new: LlamaForCausalLM, scored by packed", "Sampler, scorer and learner read each prompt once."]


def test_a_server_is_shown_with_what_it_lacks(capsys: pytest.CaptureFixture[str]) -> None:
    with fake_server() as server:
        server.scale_out = False
        assert cli.run(["doctor", "--server", f"{server.url}/v1", "--model-name", "policy"]) == 0
    shown = capsys.readouterr().out
    assert f"server    {server.url}: vLLM 0.32.0" in shown
    assert "models    policy (window 1024)" in shown
    assert "lacks     --enable-scale-out: " in shown
    assert "weights   would go out by: folder yes; broadcast no, needs" in shown


def test_a_server_that_cannot_be_reached_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    with nobody_at() as gone:
        assert cli.run(["doctor", "--server", gone]) == 1
    shown = capsys.readouterr().out
    assert f"server    {gone}: not reached" in shown
    assert "wrong: the server at" in shown


def test_a_server_of_another_kind_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    other = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)  # it answers 501 to everything
    thread = threading.Thread(target=other.serve_forever)
    thread.start()
    try:
        assert cli.run(["doctor", "--server", f"http://127.0.0.1:{other.server_port}"]) == 1
    finally:
        other.shutdown()
        other.server_close()
        thread.join()
    assert "wrong: nothing shows that an inference server answers at" in capsys.readouterr().out


def test_a_model_that_the_server_does_not_have_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    with fake_server() as server:
        assert cli.run(["doctor", "--server", server.url, "--model-name", "other"]) == 1
    assert "wrong: the server has no model other; it has policy" in capsys.readouterr().out


def test_what_a_server_names_without_end_is_cut(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    windows = {"a" * 100_000: 5}
    monkeypatch.setattr("heedful.policies.servers.examination.windows_in", lambda listed: windows)
    with fake_server() as server:
        assert cli.run(["doctor", "--server", server.url, "--model-name", "other"]) == 1
    assert max(map(len, capsys.readouterr().out.splitlines())) < 5000


def test_the_same_comes_as_json_without_the_key(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "sk-secret-4711")
    with fake_server(key="sk-secret-4711") as server:
        server.dev = False
        assert cli.run(["doctor", "--server", server.url, "--api-key-env", "MY_KEY", "--json"]) == 0
    shown = capsys.readouterr().out
    assert "sk-secret" not in shown
    tree = json.loads(shown)
    assert tree["server"]["reached"]
    assert [lack["flag"] for lack in tree["server"]["lacks"]] == ["VLLM_SERVER_DEV_MODE=1"]
    assert tree["server"]["ways_out"]["folder"] == "needs VLLM_SERVER_DEV_MODE=1"
    assert tree["faults"] == []
    assert {"train", "parquet"} <= {extra["name"] for extra in tree["machine"]["extras"]}


@pytest.mark.parametrize("flags", [["--server", "nonsense"], ["--model-name", "x"], ["--steps", "3"]])
def test_bad_input_has_another_exit_code(flags: list[str]) -> None:
    assert cli.run(["doctor", *flags]) == 2
