"""Messages to a webhook: one for each new alarm, never in the way, and never with the URL in words."""

import json
import logging
import time
from pathlib import Path

import pytest
from watched import BROKEN, RUNAWAY

from heedful.types import Ending, Group, Metric, Prompt, Reply, Span, Task, Trajectory, Turn
from heedful.watching import webhook
from heedful.watching.sinks import Measured, Pending
from heedful.watching.webhook import Webhook, webhook_url
from webhook_receiver import SECRET, Receiver


def told_of(url: str, folder: Path, *steps: Measured, examples: bool = False) -> list[str]:
    """What is said of a watch of these steps, whose messages go to the URL."""
    told: list[str] = []
    sink = Webhook(url, "log", told.append, examples)
    sink.begin(folder)
    for step in steps or (Measured(7, [], (BROKEN,)),):
        sink.step(step)
    sink.end("")
    return told


def test_an_alarm_is_posted_with_its_evidence_and_causes_and_one_told_before_is_not(
    receiver: Receiver, tmp_path: Path
) -> None:
    sink = Webhook(receiver.url, "audit of log", pytest.fail)
    sink.begin(tmp_path)
    sink.step(Measured(6, [Metric("alarm/kl_runaway", 1.0)], (RUNAWAY,), replayed=True))
    sink.step(Measured(7, [], (BROKEN,)))
    sink.end("")
    ((path, body),) = receiver.bodies
    assert path == SECRET
    assert body["text"].startswith("audit of log: Alarm not_finite at step 7: trainer/loss is not finite. Go back.")
    told = body["heedful"]
    assert (told["run"], told["step"], told["alarm"], told["severity"]) == ("audit of log", 7, "not_finite", "collapse")
    assert told["evidence"] == "trainer/loss is not finite"
    assert any(cause.startswith("kl_runaway: ") for cause in told["causes"])  # raised first, so it leads


def test_a_slow_webhook_does_not_delay_a_step(receiver: Receiver, tmp_path: Path) -> None:
    receiver.delay = 0.3
    sink = Webhook(receiver.url, "log", pytest.fail)
    sink.begin(tmp_path)
    began = time.monotonic()
    sink.step(Measured(7, [], (BROKEN,)))
    assert time.monotonic() - began < 0.2
    sink.end("")
    assert len(receiver.bodies) == 1


def test_a_webhook_that_fails_is_tried_twice_told_once_and_not_named(receiver: Receiver, tmp_path: Path) -> None:
    receiver.status = 404
    told = told_of(receiver.url, tmp_path, Measured(6, [], (RUNAWAY,)), Measured(7, [], (BROKEN,)))
    assert len(receiver.bodies) == 4
    assert told == ["A message to the webhook did not arrive: it answered 404. The watch goes on without it."]


def test_a_webhook_that_nobody_serves_is_told(tmp_path: Path) -> None:
    (sentence,) = told_of("http://127.0.0.1:9/s3cr3t", tmp_path)
    assert "it was not reached" in sentence
    assert "s3cr3t" not in sentence


def test_no_log_of_the_http_library_holds_the_url(
    receiver: Receiver, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    assert told_of(receiver.url, tmp_path) == []
    assert len(receiver.bodies) == 1
    assert "s3cr3t" not in caplog.text


def test_text_of_rollouts_leaves_the_machine_only_where_examples_were_asked_for(
    receiver: Receiver, tmp_path: Path
) -> None:
    task = Task("a", 0, "train")

    def turn(word: str, score: float) -> Turn:
        reply = Reply(Prompt("Which way?", ()), (), word, (), (), Span(0, 0), Span(0, 0), True, False)
        return Turn(reply, {"score": score}, (), True, "", "")

    turns = (turn("Left.", 0.0), turn("Right.", 1.0))
    members = tuple(Trajectory(task, place, (each,), Ending.SOLVED, 1.0) for place, each in enumerate(turns))

    class Step:
        groups = (Group(task, members),)
        read = 0

    for examples in (False, True):
        assert told_of(receiver.url, tmp_path, Measured(7, [], (BROKEN,), Step()), examples=examples) == []
    without, with_examples = (body["heedful"] for _, body in receiver.bodies)
    assert "Which way?" not in json.dumps(without)
    assert [each["reply"] for each in with_examples["examples"]] == ["Right.", "Left."]


def test_a_run_that_stands_still_is_posted_once_also_over_a_new_start(receiver: Receiver, tmp_path: Path) -> None:
    for stalled in (False, True):
        (tmp_path / "status.json").write_text(json.dumps({"stalled": "No line." if stalled else ""}))
        sink = Webhook(receiver.url, "log", pytest.fail)
        sink.begin(tmp_path)
        for age in (700.0, 701.0):
            sink.pending(Pending(age, stalled="No line for 12 min."))
        sink.end("")
    ((_, body),) = receiver.bodies
    assert body["heedful"]["alarm"] == "stalled"


def test_the_url_comes_from_a_variable_and_no_message_shows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK", "https://hooks.example.org/s3cr3t")
    assert webhook_url("HOOK") == "https://hooks.example.org/s3cr3t"
    with pytest.raises(ValueError, match="name an environment variable that holds the URL, found a URL") as refused:
        webhook_url("https://hooks.example.org/s3cr3t")
    assert "s3cr3t" not in str(refused.value)
    with pytest.raises(ValueError, match="in the environment variable NONE, found nothing there"):
        webhook_url("NONE")
    monkeypatch.setenv("HOOK", "hooks.example.org/s3cr3t")
    with pytest.raises(ValueError, match="HOOK, found something else there"):
        webhook_url("HOOK")


def test_the_wait_at_the_end_is_bounded(receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook, "TIMEOUT", 0.05)
    receiver.delay = 0.2
    told = told_of(receiver.url, tmp_path)
    assert told == ["A message to the webhook did not arrive: no answer within 5 s. The watch goes on without it."]
