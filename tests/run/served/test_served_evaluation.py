"""The evaluation of a served model: its folder, its costs, its interruptions, and the key that is written nowhere."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fake_server import FakeServer, Fault, ModelBrain, counting, fake_server
from heedful import cli
from heedful.envs.toys.echo import EchoEpisode
from heedful.report.embedding import unpacked
from heedful.run.served.evaluation import others
from heedful.run.served.journal import Totals
from heedful.storage import RunFolder, held, read_metrics, read_rollouts
from ports import nobody_at

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
QUICK = ["--tasks", "6", "--samples", "2", "--search-tasks", "8", "--out", "eval"]


class Echoes:
    """Answers with the letter after the last word `echo`."""

    __call__ = staticmethod(counting)

    def text(self, messages: list[dict[str, str]]) -> str:
        letter = messages[-1]["content"].rpartition("echo ")[2][0]
        return f"<think>the letter is {letter}</think><answer>{letter}</answer>"


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def evaluate(server: FakeServer, *flags: str) -> int:
    return cli.run(["eval", "echo", "--server", server.url, "--model-name", "policy", *QUICK, *flags])


def test_a_chat_endpoint_is_evaluated_beside_its_baselines(capsys: pytest.CaptureFixture[str]) -> None:
    with fake_server(Echoes()) as server:
        assert evaluate(server, "--price-in", "2", "--price-out", "10", "--json", "numbers.json") == 0
    shown = capsys.readouterr().out
    metrics = json.loads(Path("numbers.json").read_text())["metrics"]
    assert metrics["eval/val/sampled/success"]["value"] == 1.0
    assert metrics["eval/val/greedy/success"]["n"] == 6
    assert metrics["eval/val/random/success"]["value"] < 1.0
    record = json.loads(Path("eval/evaluation.json").read_text())
    totals = record["totals"]
    assert (record["complete"], totals["replies"], record["served"]["ids"]) == (True, 18, False)
    price = (2 * totals["prompt_tokens"] + 10 * totals["sampled_tokens"]) / 1e6
    assert f"Cost: {price:.4g}, at 2 and 10 per million tokens." in shown
    assert "18 replies with" in shown
    assert not Path("eval/replies.jsonl").exists()
    assert Path("eval/report.html").exists()


def test_a_server_that_cuts_thoughts_and_refuses_fields_is_measured_as_that(capsys: pytest.CaptureFixture[str]) -> None:
    class Cuts(Echoes):
        def text(self, messages: list[dict[str, str]]) -> Any:
            return {"message": {"content": None, "reasoning_content": "it may be"}, "finish_reason": "length"}

    with fake_server(Cuts()) as server:
        server.refuses = {"presence_penalty": "presence_penalty is unsupported"}
        assert evaluate(server, "--json", "numbers.json") == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "The server refuses presence_penalty, so the requests did without." in shown
    assert shown.count("refuses `presence_penalty`: it is left out from now on") == 1
    assert json.loads(Path("numbers.json").read_text())["metrics"]["eval/val/sampled/closed_rate"]["value"] == 0.0


def test_an_environment_that_breaks_everywhere_is_told_and_is_no_success(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> str:
        raise ConnectionError("nobody answers")

    monkeypatch.setattr(EchoEpisode, "begin", broken)
    with fake_server(Echoes()) as server:
        assert evaluate(server) == 1
    told = "12 of 12 sampled episodes broke and were not scored. The first: ConnectionError: nobody answers"
    assert told in capsys.readouterr().out


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_other_names_than_the_asked_one_in_answers_are_told(
    path: str, capsys: pytest.CaptureFixture[str], seedling_folder: Path
) -> None:
    flags = ["--tokenizer", str(seedling_folder), "--env.instructions", "brief"] if path == COMPLETIONS else []
    with fake_server(Echoes()) as server:
        server.names = ["policy", "cheaper", "cheaper", "other"]
        assert evaluate(server, "--no-greedy", *flags) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "Expected replies of policy, found other names" in shown
    assert "cheaper (6), other (3)" in shown
    assert "mix several models" in shown
    assert json.loads(Path("eval/evaluation.json").read_text())["totals"]["models"]["cheaper"] == 6


def test_other_names_stand_in_the_order_of_their_replies_whichever_came_first() -> None:
    assert "odd\\nheedful: fake (1)" in others(Totals(models={"odd\nheedful: fake": 1}), "policy")[0]
    several = {"b": 2, "other": 3, "policy": 3, "a": 2, "cheaper": 6}
    for models in (several, dict(reversed(several.items()))):
        (line,) = others(Totals(models=models), "policy")
        assert "cheaper (6), other (3), a (2), b (2)." in line


def test_a_folder_in_which_another_evaluation_is_at_work_is_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with fake_server(Echoes()) as server, held(Path("eval")):
        assert evaluate(server) == 2
        assert server.bodies(CHAT) == []
    assert "Another process is at work in eval" in capsys.readouterr().err


def test_of_text_alone_no_metric_of_ids_is_written() -> None:
    with fake_server(Echoes()) as server:
        assert evaluate(server) == 0
    (line,) = read_metrics(Path("eval/metrics.jsonl"))
    for name in ("length/reasoning_tokens", "length/response_tokens", "format/trailing_tokens"):
        assert line.metrics[name].value is None
        assert "text alone" in line.metrics[name].why
    assert line.metrics["success/rate"].value == 1.0
    groups = read_rollouts(RunFolder(Path("eval")).rollouts(0)).groups
    replies = [turn.reply for group in groups for member in group.trajectories for turn in member.turns]
    assert len(replies) == 12
    assert not any(reply.ids or reply.logprobs or reply.prompt.ids for reply in replies)
    assert all(reply.closed and "the letter is" in reply.text for reply in replies)


def test_its_folder_is_audited_and_its_page_shows_thoughts(capsys: pytest.CaptureFixture[str]) -> None:
    with fake_server(Echoes()) as server:
        assert evaluate(server, "--tasks", "8", "--samples", "4") == 0
    assert cli.run(["audit", "eval", "--out", "audited"]) == 0
    assert "known as text alone" in capsys.readouterr().out
    (line,) = read_metrics(Path("audited/metrics.jsonl"))
    chance = 1 / 8
    assert float(line.metrics["text/judge_accuracy_8way"].value or 0) > 2 * chance  # every thought names its letter
    page = Path("eval/report.html").read_text()
    packs = dict(re.findall(r'<script type="text/plain" id="pack-([\w-]+)"[^>]*>([^<]*)</script>', page))
    assert "the letter is" in str(unpacked(packs["0-0"])["groups"])
    assert cli.run(["report", "eval"]) == 0


def test_tasks_are_those_of_an_evaluation_in_this_process() -> None:
    from heedful.envs.common.tasks import evaluation_tasks
    from heedful.envs.toys.echo import Echo

    with fake_server(Echoes()) as server:
        assert evaluate(server) == 0
    groups = read_rollouts(RunFolder(Path("eval")).rollouts(0)).groups
    assert [group.task.id for group in groups] == [task.id for task in evaluation_tasks(Echo(), "val", 6)]


def test_an_interrupted_evaluation_goes_on_and_asks_for_nothing_twice(capsys: pytest.CaptureFixture[str]) -> None:
    def asked(server: FakeServer) -> list[str]:
        return [json.dumps(body, sort_keys=True) for body in server.bodies(CHAT)]

    with fake_server(Echoes()) as whole:
        assert evaluate(whole) == 0
    expected = read_rollouts(RunFolder(Path("eval")).rollouts(0))
    Path("eval").rename("whole")
    with fake_server(Echoes()) as server:
        # The client gives up at once where a request is refused.
        after = [Fault("status", CHAT, 401, "no more credit")]
        server.brain.text = _failing_after(5, server, after)
        assert evaluate(server, "--connections", "1") == 2
        assert "no more credit" in capsys.readouterr().err
        before = len(Path("eval/replies.jsonl").read_text().splitlines())
        assert 5 <= before < 18
        server.calls.clear()
        server.faults.clear()
        assert evaluate(server, "--connections", "2") == 0
        assert len(asked(server)) == 18 - before
    assert f"Going on: {before} replies are here already." in capsys.readouterr().out
    assert read_rollouts(RunFolder(Path("eval")).rollouts(0)).groups == expected.groups
    assert json.loads(Path("eval/evaluation.json").read_text())["totals"]["replies"] == 18


def _failing_after(replies: int, server: FakeServer, faults: list[Fault]) -> Callable[[Any], str]:
    count, brain = [0], Echoes()

    def text(messages: Any) -> str:
        count[0] += 1
        if count[0] == replies:
            server.faults += faults
        return brain.text(messages)

    return text


def test_an_evaluation_goes_on_with_the_same_settings_only(capsys: pytest.CaptureFixture[str]) -> None:
    with fake_server(Echoes()) as server:
        server.faults.append(Fault("status", CHAT, 401, "no"))
        assert evaluate(server) == 2
        assert evaluate(server, "--temperature", "0.5") == 2
        assert "found others of sampling" in capsys.readouterr().err
        assert evaluate(server, "--connections", "3") == 0  # changes no reply
        assert evaluate(server) == 2
        assert "is complete" in capsys.readouterr().err
        Path("other").mkdir()
        Path("other/notes.txt").write_text("mine")
        assert evaluate(server, "--out", "other") == 2
        assert "Expected a new folder" in capsys.readouterr().err
        assert [entry.name for entry in Path("other").iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("kind", ["complete", "refused", "interrupted"])
def test_the_key_is_in_no_file_and_in_no_line(
    kind: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    key = "sk-very-secret-4711"
    monkeypatch.setenv("MY_KEY", key)
    with fake_server(Echoes(), key=key if kind != "refused" else "another") as server:
        if kind == "interrupted":
            server.faults.append(Fault("status", CHAT, 400, f"bad request, your key was {key}"))
        code = evaluate(server, "--api-key-env", "MY_KEY", "--json", "numbers.json")
        sent = len(server.bodies(CHAT))
    assert code == (0 if kind == "complete" else 2)
    assert bool(sent) == (kind != "refused")
    out, err = capfd.readouterr()
    assert key not in out + err
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert bool(written) == (kind != "refused")
    assert [path for path in written if key.encode() in path.read_bytes()] == []


def test_a_key_that_is_not_set_is_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with fake_server(Echoes()) as server:
        assert evaluate(server, "--api-key-env", "NOT_SET_ANYWHERE") == 2
    assert "Expected an API key in the environment variable NOT_SET_ANYWHERE" in capsys.readouterr().err


def test_rate_limits_and_faults_in_between_change_nothing() -> None:
    with fake_server(Echoes()) as server:
        assert evaluate(server) == 0
    expected = read_rollouts(RunFolder(Path("eval")).rollouts(0)).groups
    with fake_server(Echoes()) as server:
        server.faults += [
            Fault("status", CHAT, 429, "slow down", headers={"Retry-After": "0"}),
            Fault("garbage", CHAT),
            Fault("refuse", CHAT),
            Fault("status", CHAT, 503, "busy"),
        ]
        assert evaluate(server, "--out", "again") == 0
        assert server.faults == []
    assert read_rollouts(RunFolder(Path("again")).rollouts(0)).groups == expected


def test_a_server_that_is_not_there_is_a_sentence_and_leaves_no_folder(capsys: pytest.CaptureFixture[str]) -> None:
    with nobody_at() as gone:
        assert cli.run(["eval", "echo", "--server", gone, "--model-name", "policy", *QUICK]) == 2
    assert gone in capsys.readouterr().err
    assert not Path("eval").exists()


def test_with_a_tokenizer_ids_and_log_probabilities_come_back(seedling_folder: Path) -> None:
    from transformers import AutoModelForCausalLM

    brain = ModelBrain(AutoModelForCausalLM.from_pretrained(seedling_folder).eval())
    brief = ["--env.instructions", "brief", "--sampling.tokens-per-turn", "16", "--no-greedy"]
    with fake_server(brain) as server:
        assert evaluate(server, "--tokenizer", str(seedling_folder), *brief) == 0
        assert server.bodies(CHAT) == []
        prompts = [len(body["prompt"]) for body in server.bodies(COMPLETIONS)]
        served = ["--server", server.url, "--model-name", "policy", "--tokenizer", str(seedling_folder)]
        assert cli.run(["audit", "eval", *served, "--out", "by_server"]) == 0
    assert cli.run(["audit", "eval", "--model", str(seedling_folder), "--out", "in_process"]) == 0
    groups = read_rollouts(RunFolder(Path("eval")).rollouts(0)).groups
    replies = [turn.reply for group in groups for member in group.trajectories for turn in member.turns]
    assert all(len(reply.logprobs) == len(reply.ids) > 0 for reply in replies)
    totals = json.loads(Path("eval/evaluation.json").read_text())["totals"]
    assert totals["prompt_tokens"] == sum(prompts)
    assert totals["sampled_tokens"] == sum(len(reply.ids) for reply in replies)
    (line,) = read_metrics(Path("eval/metrics.jsonl"))
    assert line.metrics["length/response_tokens"].value == pytest.approx(totals["sampled_tokens"] / 12)
    assert line.metrics["eval/val/greedy/success"].why == "greedy episodes were not asked for"
    (by_server,), (in_process,) = (read_metrics(Path(f"{of}/metrics.jsonl")) for of in ("by_server", "in_process"))
    mi = [
        next(metric.value for name, metric in line.metrics.items() if name.endswith("first_turn/mi"))
        for line in (by_server, in_process)
    ]
    assert mi[0] == pytest.approx(mi[1], abs=1e-4)


def test_a_reply_ends_at_each_stop_id_of_the_generation_configuration(seedling_folder: Path) -> None:
    """The server is told to ignore its own, so that it stops where the sampler in this process would."""
    from transformers import AutoModelForCausalLM

    shutil.copytree(seedling_folder, "own")
    config = json.loads(Path("own/generation_config.json").read_text())
    Path("own/generation_config.json").write_text(json.dumps({"eos_token_id": [config["eos_token_id"], 7]}))
    brain = ModelBrain(AutoModelForCausalLM.from_pretrained(seedling_folder).eval())
    few = ["--env.instructions", "brief", "--sampling.tokens-per-turn", "4", "--no-greedy", "--tasks", "2"]
    with fake_server(brain) as server:
        assert evaluate(server, "--tokenizer", "own", *few) == 0
        sent = [set(body["stop_token_ids"]) for body in server.bodies(COMPLETIONS)]
    assert sent
    assert all(ids == {config["eos_token_id"], 7} for ids in sent)


def test_log_probabilities_of_an_unknown_temperature_are_not_stored(
    seedling_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from transformers import AutoModelForCausalLM

    brain = ModelBrain(AutoModelForCausalLM.from_pretrained(seedling_folder).eval())
    flags = ["--tokenizer", str(seedling_folder), "--env.instructions", "brief", "--temperature", "0.7", "--no-greedy"]
    with fake_server(brain) as server:
        server.dev = False
        assert evaluate(server, *flags, "--sampling.tokens-per-turn", "8") == 0
    assert "No log-probabilities were stored" in capsys.readouterr().out
    groups = read_rollouts(RunFolder(Path("eval")).rollouts(0)).groups
    replies = [turn.reply for group in groups for member in group.trajectories for turn in member.turns]
    assert all(reply.ids and not reply.logprobs for reply in replies)


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--model-name", "other"], "which has policy, found --model-name other"),
        (["--price-in", "1"], "price_in and price_out belong together"),
        (["--sampling.greedy"], "both the sampled and the greedy policy are evaluated"),
        (["--checkpoint", "3"], "the server's model plays"),
        (["--connections", "0"], "--connections: expected a whole number of at least 1"),
        (["--template-options", "enable_thinking"], "a template option as name=value, found 'enable_thinking'"),
    ],
)
def test_what_cannot_be_evaluated_is_refused_before_anything_is_asked(
    flags: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with fake_server(Echoes()) as server:
        assert evaluate(server, *flags) == 2
        assert server.bodies(CHAT) == []
    assert sentence in capsys.readouterr().err
    assert not Path("eval").exists()


def test_words_of_a_served_model_need_a_server(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["eval", "echo", "--model-name", "policy"]) == 2
    assert "--model-name is for a served model" in capsys.readouterr().err
    assert cli.run(["eval", "echo", "--server", "http://127.0.0.1:1"]) == 2
    assert "--server needs --model-name" in capsys.readouterr().err


def test_help_shows_the_settings_of_a_served_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["eval", "echo", "--server", "http://127.0.0.1:1", "--help"]) == 0
    shown = capsys.readouterr().out
    assert "--price-in" in shown
    assert "--price-out" in shown
