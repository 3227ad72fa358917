"""`heedful watch`: logs that are there and logs that grow, alarms at a webhook and in a stop file, exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from heedful import cli
from webhook_receiver import receiving


def line(step: int, **values: float) -> str:
    """Of a trainer's log: the loss is no number from step 8 on."""
    return json.dumps({"step": step, "reward": 0.5, "loss": float("nan") if step >= 8 else 0.25, **values}) + "\n"


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path / "metrics.jsonl"


def watch(*words: str) -> int:
    return cli.run(["watch", "metrics.jsonl", "--out", "watch", *words])


def test_what_is_there_is_measured_once_and_comes_as_one_object(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log.write_text("".join(map(line, range(10))))
    assert watch("--once", "--json", "--fail-on", "warning", "--summary", "summary.md") == 3
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    (alarm,) = told["alarms"]
    assert (alarm["name"], alarm["step"], told["steps"]) == ("not_finite", 8, [0, 9])
    assert "| not_finite | collapse |" in (log.parent / "summary.md").read_text()
    status = json.loads((log.parent / "watch" / "status.json").read_text())
    assert (status["step"], status["health"], status["ended"]) == (9, "collapse", "What was there is measured.")
    assert 'http-equiv="refresh"' not in (log.parent / "watch" / "report.html").read_text()


def test_what_grows_raises_an_alarm_at_a_webhook_and_in_a_stop_file(
    log: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log.write_text(line(0))

    def train() -> None:
        for step in range(1, 10):
            time.sleep(0.02)
            with log.open("a") as stream:
                stream.write(line(step)[:9])  # torn for a moment
                stream.flush()
                stream.write(line(step)[9:])

    trainer = threading.Thread(target=train)
    with receiving() as receiver:
        monkeypatch.setenv("HOOK", receiver.url)
        trainer.start()
        words = "--poll 0.02 --settle 0.2 --ends step:9 --webhook HOOK --on-collapse stop-file:STOP --fail-on collapse"
        assert watch(*words.split()) == 3
        trainer.join()
        assert watch(*words.split()) == 3  # a new start, which tells nobody again
    ((_, body),) = receiver.bodies
    assert (body["heedful"]["alarm"], body["heedful"]["step"]) == ("not_finite", 8)
    assert "Alarm not_finite at step 8" in (log.parent / "STOP").read_text()
    said = capsys.readouterr().out
    assert said.count("Alarm not_finite at step 8") == 1
    assert "The log has come to step 9." in said
    for file in (log.parent / "watch").iterdir():
        assert receiver.url.encode() not in file.read_bytes()
    assert receiver.url not in said


def test_the_first_alarm_that_fails_ends_a_watch_that_would_go_on(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log.write_text("".join(map(line, range(6))))

    def train() -> None:
        with log.open("a") as stream:
            stream.write("".join(map(line, range(6, 12))))

    after = threading.Timer(0.5, train)
    after.start()
    assert watch("--poll", "0.02", "--fail-on", "collapse") == 3
    assert "Alarm not_finite was raised at step 8." in capsys.readouterr().out
    assert watch("--poll", "0.02", "--fail-on", "warning") == 3  # it was raised before this start
    after.join()


def test_readings_and_alarms_go_to_trackers(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tensorboard", reason="the extra `tensorboard` is not installed")
    log.write_text("".join(map(line, range(3))))
    assert watch("--once", "--trackers", "tensorboard") == 0
    assert [*(log.parent / "watch" / "tensorboard").iterdir()]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--ends soon", "Expected --ends idle:MINUTES, pid:N, step:N or never, found 'soon'."),
        ("--ends pid:x", "found 'pid:x'"),
        ("--on-collapse stop-file:", "Expected --on-collapse note, stop-file:PATH or signal:N, found 'stop-file:'."),
        ("--on-collapse signal:99999999", "found no process 99999999"),
        ("--json", "--json prints one outcome: add --once"),
        ("--webhook-examples", "--webhook-examples belongs to --webhook VARIABLE"),
        ("--wandb-run us/agents/a1", "--wandb-run belongs to --trackers wandb"),
        ("--webhook NOT_SET", "in the environment variable NOT_SET, found nothing there"),
        ("--fail-on everything", "Expected --fail-on never"),
    ],
)
def test_what_cannot_be_done_is_refused_before_the_watch(
    words: str, sentence: str, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log.write_text(line(0))
    assert watch(*words.split()) == 2
    assert sentence in capsys.readouterr().err
    assert not (log.parent / "watch").exists()


def test_the_end_of_the_trainer_is_the_end_of_the_watch_and_no_alarm(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log.write_text("".join(map(line, range(3))))
    with subprocess.Popen([sys.executable, "-c", ""]) as trainer:
        assert watch("--poll", "0.02", "--settle", "0.1", "--ends", f"pid:{trainer.pid}") == 0
    said = capsys.readouterr().out
    assert f"Process {trainer.pid} has ended." in said
    assert "Alarm" not in said
