"""Requests to stop: a scheduler's signal is like Ctrl-C, several at once are one, and a user's handler stays."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType

import pytest

from heedful import stopping
from heedful.stopping import STOP_SIGNALS, StoppedBySignal, end_at_once, exit_code, finish_the_step_first
from patience import PATIENCE

SIGNALS = (signal.SIGINT, *STOP_SIGNALS)


@pytest.fixture(autouse=True)
def handlers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The system's handlers before each test, and the same after it. The terminal of pytest stays."""
    monkeypatch.setattr(stopping, "leave_the_terminal", lambda: None)
    monkeypatch.setattr(stopping, "SAME_REQUEST", PATIENCE)  # a busy machine may pause between two signals
    before = {number: signal.getsignal(number) for number in SIGNALS}
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    left = {number: signal.getsignal(number) for number in SIGNALS}
    for number, handler in before.items():
        signal.signal(number, handler)
    expected = dict.fromkeys(STOP_SIGNALS, signal.SIG_DFL) | {signal.SIGINT: signal.default_int_handler}
    assert left == expected


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: str(number.name))
def test_the_first_signal_is_noted_and_a_later_one_ends_at_once(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [100.0]
    monkeypatch.setattr(stopping.time, "monotonic", lambda: clock[0])
    with finish_the_step_first() as request:
        assert not request.asked
        signal.raise_signal(number)
        assert (request.asked, request.signal) == (True, number)
        clock[0] += stopping.SAME_REQUEST
        with pytest.raises(KeyboardInterrupt) as stopped:
            signal.raise_signal(number)
    assert getattr(stopped.value, "number", signal.SIGINT) == number
    assert exit_code(number) == 128 + number


def test_signals_that_arrive_together_are_one_request_but_two_ctrl_c_are_two() -> None:
    with finish_the_step_first() as request:
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
            signal.raise_signal(number)
        assert request.signal == signal.SIGTERM
    with finish_the_step_first() as request:
        signal.raise_signal(signal.SIGINT)
        assert request.asked
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("number", STOP_SIGNALS, ids=lambda number: str(number.name))
def test_a_command_that_cannot_save_ends_at_once_and_cleans_up_undisturbed(number: signal.Signals) -> None:
    cleaned = []

    def command() -> None:
        try:
            signal.raise_signal(number)
        finally:
            signal.raise_signal(number)  # the same request, passed on by another process
            cleaned.append(True)

    with end_at_once(), pytest.raises(StoppedBySignal, match=number.name):
        command()
    assert cleaned == [True]


def test_a_request_in_a_loop_is_not_a_new_one_after_it() -> None:
    with end_at_once():
        with finish_the_step_first() as request:
            signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)  # while the page of the run is written
        assert request.asked


def test_the_handler_of_a_user_s_program_stays() -> None:
    seen: list[int] = []

    def own(number: int, frame: FrameType | None) -> None:
        seen.append(number)

    signal.signal(signal.SIGUSR1, own)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with finish_the_step_first() as request:
        signal.raise_signal(signal.SIGUSR1)
        signal.raise_signal(signal.SIGTERM)
        assert not request.asked
    assert seen == [signal.SIGUSR1]
    assert signal.getsignal(signal.SIGUSR1) is own
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_DFL)


def test_another_thread_listens_for_no_signals() -> None:
    found: list[object] = []

    def body() -> None:
        with finish_the_step_first() as request, end_at_once():
            found.extend([request.asked, *(signal.getsignal(number) for number in STOP_SIGNALS)])

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    assert found == [False, *[signal.SIG_DFL] * len(STOP_SIGNALS)]


CHILD = """
import signal, subprocess, sys, time
from heedful.stopping import leave_signals_to_the_parent
leave_signals_to_the_parent()
print("listening", flush=True)
sys.stdin.readline()
grandchild = subprocess.Popen(["sleep", "600"])
grandchild.terminate()
print(grandchild.wait(), flush=True)
"""


def test_a_worker_outlives_the_signals_of_a_scheduler_but_what_it_starts_does_not() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    assert child.stdin is not None
    assert child.stdout is not None
    assert child.stdout.readline() == "listening\n"
    for number in SIGNALS:
        child.send_signal(number)
        time.sleep(0.05)
    said, _ = child.communicate("go on\n", timeout=600)
    assert (said, child.returncode) == (f"{-signal.SIGTERM}\n", 0)


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    """As `nohup` does it with SIGHUP."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with end_at_once(), finish_the_step_first() as request:
            signal.raise_signal(signal.SIGHUP)
            assert not request.asked
    finally:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
