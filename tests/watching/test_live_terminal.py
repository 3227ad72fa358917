"""The terminal of a watch: a live table with alarms below it, or plain lines now and then."""

import io
import re
from pathlib import Path

import pytest
from watched import BROKEN, RUNAWAY, Clock

from heedful.console import SafeConsole
from heedful.types import Group, Metric, Task
from heedful.watching.sinks import Measured, Pending
from heedful.watching.terminal import Terminal


def of(number: int, **values: float) -> Measured:
    return Measured(number, [Metric(f"trainer/{name}", value) for name, value in values.items()])


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def plain(clock: Clock) -> Terminal:
    return Terminal(SafeConsole(file=io.StringIO(), width=200), clock=clock)


@pytest.fixture
def live(clock: Clock) -> Terminal:
    return Terminal(
        SafeConsole(file=io.StringIO(), force_terminal=True, width=120, no_color=True, soft_wrap=True), clock=clock
    )


def text(terminal: Terminal) -> str:
    assert isinstance(terminal.console.file, io.StringIO)
    return re.sub(r"\x1b\[[^A-Za-z]*[A-Za-z]", "", terminal.console.file.getvalue())


def test_the_table_has_a_row_for_each_step_and_dashes_for_what_is_missing(live: Terminal) -> None:
    live.begin(Path("out"))
    live.step(of(4, reward=0.25, kl=0.5))
    live.end("The trainer has ended.")
    table = text(live).splitlines()
    heading = next(line for line in reversed(table) if "reward" in line)
    row = next(line for line in reversed(table) if "0.250" in line)
    assert heading.split() == ["step", "reward", "success", "entropy", "words", "KL", "cut"]
    assert row.split() == ["4", "0.250", "-", "-", "-", "0.500", "-"]
    assert table[-1] == "The trainer has ended."


def test_the_step_that_is_still_written_is_marked(live: Terminal) -> None:
    live.begin(Path("out"))
    live.step(of(4, reward=0.25))
    live.pending(Pending(3.0, 30.0, "", 5, {"reward/mean": Metric("reward/mean", 0.75)}))
    live.end("")
    assert "5...   0.750" in text(live)
    assert "last line 3s ago, a step every 30s" in text(live)


def test_alarms_stand_below_the_table_with_evidence_and_the_likeliest_cause(live: Terminal) -> None:
    live.begin(Path("out"))
    live.step(Measured(6, [Metric("alarm/kl_runaway", 1.0)], (RUNAWAY,)))
    live.step(Measured(7, [Metric("alarm/kl_runaway", 0.0), Metric("alarm/not_finite", 1.0)], (BROKEN,)))
    live.end("")
    shown = text(live)
    assert "kl_runaway, warning at step 6, over: trainer/kl is 4 times as large" in shown
    assert "not_finite, collapse at step 7: trainer/loss is not finite" in shown
    assert "likely: kl_runaway: the learning rate is too high" in shown
    assert "go back to a checkpoint before" in shown  # on the next line, and not cut


def test_without_a_terminal_there_is_a_line_in_five_seconds(plain: Terminal, clock: Clock) -> None:
    plain.begin(Path("out"))
    for step in range(4):
        plain.step(of(step, reward=0.5))
        clock.now += 2
    plain.step(of(4, validation=0.5))
    plain.pending(Pending(0.0))
    plain.end("")
    assert text(plain).splitlines() == ["step 0: reward 0.500", "step 3: reward 0.500", "step 4: -"]


def test_a_step_that_is_measured_again_replaces_its_row_and_takes_its_alarms_back(live: Terminal) -> None:
    live.begin(Path("out"))
    live.step(of(5, reward=0.25))
    live.step(Measured(6, [Metric("trainer/reward", 0.5), Metric("alarm/kl_runaway", 1.0)], (RUNAWAY,)))
    live.step(of(5, reward=0.75))
    live.end("")
    last = text(live).rpartition("step")[2]
    assert "0.750" in last
    assert not any(gone in last for gone in ("0.250", "0.500", "kl_runaway"))


def test_lines_say_the_share_of_a_log_that_is_read_to_its_end(clock: Clock) -> None:
    class Step:
        groups = (Group(Task("a", 0, "train"), ()),)
        read = 50

    terminal = Terminal(SafeConsole(file=io.StringIO(), width=200), size=200, clock=clock)
    terminal.step(Measured(1, [], (), Step()))
    assert text(terminal) == "step 1: 0 episodes of 1 groups, 25% of the log read\n"


def test_lines_say_an_alarm_once_and_nothing_of_one_that_was_told_before(plain: Terminal) -> None:
    plain.step(Measured(6, [], (RUNAWAY,), replayed=True))
    plain.step(Measured(7, [], (BROKEN,)))
    assert "kl_runaway at" not in text(plain)
    assert text(plain).count("Alarm not_finite at step 7: trainer/loss is not finite. Go back.") == 1


def test_a_run_that_stands_still_is_told_once_and_again_after_it_went_on(plain: Terminal) -> None:
    for stalled in ("", "No line for 12 min.", "No line for 13 min.", "", "No line for 11 min."):
        plain.pending(Pending(700.0, stalled=stalled))
    assert text(plain).count("Alarm stalled at step 0: No line for") == 2
