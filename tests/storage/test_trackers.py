"""Trackers: the bytes of metrics.jsonl, and dashboards that neither touch the network nor stop a run."""

import inspect
import json
import math
import os
import socket
import sqlite3
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from heedful.diagnostics.alarms.watch import Alarm
from heedful.integrations.watching.settings import WatchingConfig
from heedful.storage import trackers
from heedful.storage.measurements import read_metrics
from heedful.storage.trackers import TRACKERS, Guarded, JsonlTracker, completion_rows, open_trackers
from heedful.types import Ending, Group, Metric, Prompt, Reply, Span, Task, Trajectory, Turn, Verdict
from patience import PATIENCE

READINGS = [
    Metric("reward/mean", 0.25),
    Metric("information/first_turn/mi", 1.5, n=16, low=1.25, high=1.75),
    Metric("text/judge_accuracy", None, why="fewer than 4 thoughts per prompt"),
    Metric("regime/first_turn", "diverse"),
]


def refuse_to_leave_the_machine(host: str | bytes | None, *_: object, **__: object) -> list[object]:
    if host not in (None, "localhost", "127.0.0.1", "::1"):
        raise AssertionError(f"a tracker looked up {host!r}")
    return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0))]


def track_in_a_process_of_its_own(tracker: str, folder: Path) -> None:
    """One step and a close, without the network, without the user's tokens and stores.

    A process of its own, because trackio fixes the place of its store when it is imported and wandb's service may still
    be writing when `close` returns; it has finished when the process ends.
    """
    program = f"""
import socket
from pathlib import Path
from heedful.diagnostics.alarms.watch import Alarm
from heedful.storage.trackers import {tracker}
from heedful.types import Ending, Group, Metric, Prompt, Reply, Span, Task, Trajectory, Turn, Verdict
{inspect.getsource(refuse_to_leave_the_machine)}
socket.getaddrinfo = refuse_to_leave_the_machine
tracker = {tracker}(Path({str(folder / "a-run")!r}), {{"steps": 3}})
tracker.write(0, [Metric("reward/mean", 0.25), Metric("regime/first_turn", "diverse"), Metric("x", None, why="-")])
tracker.alert(Alarm("not_finite", 0, "the loss is no number", "Go back.", "collapse"))
tracker.close()
"""
    foreign = ("WANDB_MODE", "WANDB_API_KEY", "HF_TOKEN", "TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL")
    homes = ("HF_HOME", "TRACKIO_DIR", "WANDB_CONFIG_DIR", "WANDB_CACHE_DIR", "WANDB_DATA_DIR")
    environment = {name: value for name, value in os.environ.items() if name not in foreign}
    environment |= {name: str(folder / name) for name in homes} | {"HF_HUB_OFFLINE": "1"}
    ended = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=PATIENCE
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == ""


def ticking() -> Callable[[], float]:
    seconds = iter(range(100, 200))
    return lambda: float(next(seconds))


def test_a_number_alone_is_written_as_a_number_and_everything_else_with_its_reason(tmp_path: Path) -> None:
    tracker = JsonlTracker(tmp_path / "metrics.jsonl", clock=ticking())
    tracker.write(3, READINGS)
    tracker.close()
    line = (tmp_path / "metrics.jsonl").read_text()
    assert line == (
        '{"step":3,"time":100.0,"metrics":{"reward/mean":0.25,'
        '"information/first_turn/mi":{"value":1.5,"low":1.25,"high":1.75,"n":16},'
        '"text/judge_accuracy":{"value":null,"why":"fewer than 4 thoughts per prompt"},'
        '"regime/first_turn":{"value":"diverse"}}}\n'
    )


def test_what_is_written_is_read_back_by_the_storage_module(tmp_path: Path) -> None:
    tracker = JsonlTracker(tmp_path / "metrics.jsonl", clock=ticking())
    tracker.write(0, READINGS)
    (row,) = read_metrics(tmp_path / "metrics.jsonl")
    assert list(row.metrics.values()) == READINGS


def test_what_json_cannot_hold_is_written_as_missing_with_the_reason(tmp_path: Path) -> None:
    tracker = JsonlTracker(tmp_path / "metrics.jsonl")
    tracker.write(0, [Metric("a", math.nan), Metric("b", 1.0, low=-math.inf, high=2.0)])
    metrics = json.loads((tmp_path / "metrics.jsonl").read_text())["metrics"]
    assert metrics["a"] == {"value": None, "why": "the value was nan"}
    assert metrics["b"] == {"value": 1.0, "high": 2.0, "why": "the interval was not finite"}


def test_a_file_that_may_not_grow_is_named_when_it_is_written_and_when_it_is_closed(tmp_path: Path) -> None:
    program = (
        "import pathlib, resource, signal, sys\n"
        "from heedful.storage.trackers import JsonlTracker\n"
        "from heedful.types import Metric\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)); signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "tracker = JsonlTracker(pathlib.Path(sys.argv[1]))\n"
        "for call in (lambda: tracker.write(0, [Metric('a' * 200, 1.0)]), tracker.close):\n"
        "    try: call()\n"
        "    except OSError as error: print(type(error).__name__, error)\n"
    )
    path = tmp_path / "metrics.jsonl"
    done = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, timeout=PATIENCE)
    assert done.stdout.count(f"DiskFull Expected to write {path}, but") == 2, done.stderr


class Failing:
    """Fails at every call."""

    def __init__(self) -> None:
        self.attempts = 0

    def write(self, step: int, metrics: object) -> None:
        self.attempts += 1
        raise ConnectionError("no route")

    def close(self) -> None:
        raise ConnectionError("no route")


def test_names_that_environments_gave_reach_no_other_log_with_controls() -> None:
    odd = Metric("reward/\ud800\x1b[2J\nstep 9", 1.0)
    plain = r"reward/\ud800\x1b[2J\nstep 9"
    assert WatchingConfig(logs="all").logged([odd, Metric("reward/mean", 0.5)]) == {plain: 1.0, "reward/mean": 0.5}
    assert trackers._numbers([odd]) == {plain: 1.0}
    assert trackers._labels([Metric("regime\n", "a\x1b")]) == {r"regime\n": r"a\x1b"}


def test_a_failing_tracker_warns_once_and_is_still_tried() -> None:
    failing = Failing()
    tracker = Guarded(failing)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for step in range(3):
            tracker.write(step, [])
        tracker.close()
    assert [str(warning.message).split(". ")[0] for warning in caught] == [
        "Failing could not write step 0: ConnectionError: no route"
    ]
    assert failing.attempts == 3


def test_an_interrupt_passes_through_a_guarded_tracker() -> None:
    class Interrupted(Failing):
        def write(self, step: int, metrics: object) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Guarded(Interrupted()).write(0, [])


@pytest.mark.parametrize("name", TRACKERS)
def test_a_missing_extra_is_named_when_the_tracker_is_started(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (name, "tensorboard.summary"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ValueError, match=rf'pip install "heedful\[{name}\]"'):
        open_trackers([name], tmp_path, {})


class Dashboard:
    """The part of wandb and trackio that trackers use. Remembers its calls."""

    class AlertLevel:
        INFO, WARN, ERROR = "info", "warn", "error"

    class Error(Exception):
        pass

    def __init__(self, refuses: str = "") -> None:
        self.refuses = refuses
        self.calls: list[tuple[str, object]] = []

    def Settings(self, **settings: object) -> dict[str, object]:
        return settings

    def init(self, **arguments: object) -> "Dashboard":
        print("A run begins.")
        if self.refuses:
            raise self.Error(self.refuses)
        self.calls.append(("init", arguments))
        return self

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *given, **named: self.calls.append((name, given[0] if given else named))


ALARM = Alarm("not_finite", 7, "the loss is no number", "Go back.", "collapse")


@pytest.mark.parametrize(("name", "level"), [("wandb", "ERROR"), ("trackio", "error")])
def test_a_dashboard_is_told_of_an_alarm_under_its_own_level(
    name: str, level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    dashboard = Dashboard()
    monkeypatch.setitem(sys.modules, name, dashboard)
    (tracker,) = open_trackers([name], tmp_path, {})
    tracker.alert(ALARM)
    said = {"title": "not_finite at step 7", "text": "the loss is no number. Go back.", "level": level}
    assert dashboard.calls[-1] == ("alert", said)
    assert name == "wandb" or capsys.readouterr().out == ""  # wandb is told to be silent


def groups_of(members: int) -> list[Group]:
    task = Task("lake-1", 1, "train")
    turns = [
        Turn(
            Reply(Prompt(f"p{turn}", ()), (), f"r{turn}", (), (), Span(0, 0), Span(0, 0), True, False),
            {},
            (),
            True,
            "",
            "",
        )
        for turn in (1, 2)
    ]
    outcomes = (float("nan"), *[1.0] * (members - 1))
    return [Group(task, tuple(Trajectory(task, n, tuple(turns), Ending.SOLVED, o) for n, o in enumerate(outcomes)))]


def test_completions_are_rows_of_episodes_spread_over_a_step() -> None:
    rows = completion_rows(groups_of(5), [Verdict(1.0, "kept", 0.0)], most=3)
    assert [row["member"] for row in rows] == [0, 2, 4]
    first = {"group": 0, "member": 0, "task": "lake-1", "prompt": "p1", "replies": "r1\n\nr2"}
    assert rows[0] == first | {"reward": 0, "outcome": None, "verdict": "kept"}


@pytest.mark.parametrize(
    ("name", "beside", "logged"),
    [("wandb", "", "completions"), ("wandb", "us/agents/a1b2", "heedful/completions"), ("trackio", "", "completions")],
)
def test_each_step_has_a_table_of_its_completions(
    name: str, beside: str, logged: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dashboard = Dashboard()
    monkeypatch.setitem(sys.modules, name, dashboard)
    monkeypatch.setattr(dashboard, "Table", lambda **given: given, raising=False)
    (tracker,) = open_trackers([name], tmp_path, {}, beside)
    for step in (3, 4):
        tracker.completions(step, completion_rows(groups_of(2), [Verdict(1.0, "kept", 0.0)], 8))
    tables = [given for call, given in dashboard.calls if call == "log"]
    assert len(tables) == 2
    table = tables[0][logged]  # type: ignore[index]
    assert table["columns"][:2] == ["group", "member"]
    assert [row[1] for row in table["data"]] == [0, 1]


def test_a_tracker_that_shows_no_alarms_is_not_asked_to() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Guarded(Failing()).alert(ALARM)
        Guarded(Failing()).completions(0, [{}])


def test_a_trainers_own_run_is_written_beside_and_not_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dashboard = Dashboard()
    monkeypatch.setitem(sys.modules, "wandb", dashboard)
    (tracker,) = open_trackers(["wandb"], tmp_path, {}, "us/agents/a1b2")
    tracker.write(3, READINGS)
    begun = dict(dashboard.calls)["init"]
    assert isinstance(begun, dict)
    assert (begun["entity"], begun["project"], begun["id"]) == ("us", "agents", "a1b2")
    assert {"mode": "shared", "x_primary": False, "x_update_finish_state": False}.items() <= begun["settings"].items()
    logged = dashboard.calls[-1][1]
    assert isinstance(logged, dict)
    assert (logged["heedful/step"], logged["heedful/reward/mean"]) == (3, 0.25)


def test_a_run_that_wandb_does_not_open_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", Dashboard(refuses="no such project"))
    with pytest.raises(ValueError, match=r"open the run agents/a1b2, found: no such project"):
        open_trackers(["wandb"], tmp_path, {}, "agents/a1b2")


def test_tensorboard_gets_the_numbers_and_only_those(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="the extra `tensorboard` is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (tracker,) = open_trackers(["tensorboard"], tmp_path, {})
    tracker.write(0, READINGS)
    tracker.write(4, [Metric("reward/mean", 0.5)])
    tracker.close()
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert set(events.Tags()["tensors"]) == {"reward/mean", "information/first_turn/mi"}
    readings = [(event.step, event.tensor_proto.float_val[0]) for event in events.Tensors("reward/mean")]
    assert readings == [(0, 0.25), (4, 0.5)]


def test_wandb_keeps_a_run_in_its_folder_unless_told_otherwise(tmp_path: Path) -> None:
    pytest.importorskip("wandb", reason="the extra `wandb` is not installed")
    track_in_a_process_of_its_own("WandbTracker", tmp_path)
    (record,) = (tmp_path / "a-run" / "wandb").glob("offline-run-*/*.wandb")
    content = record.read_bytes()
    assert all(word in content for word in (b"reward/mean", b"diverse", b"steps", b"not_finite at step 0"))


def test_trackio_keeps_a_run_on_this_machine(tmp_path: Path) -> None:
    pytest.importorskip("trackio", reason="the extra `trackio` is not installed")
    track_in_a_process_of_its_own("TrackioTracker", tmp_path)
    with sqlite3.connect(tmp_path / "TRACKIO_DIR" / "heedful.db") as store:
        rows = store.execute("select run_name, step, metrics from metrics").fetchall()
        assert store.execute("select title, level from alerts").fetchall() == [("not_finite at step 0", "error")]
    assert [(name, step, json.loads(metrics)) for name, step, metrics in rows] == [
        ("a-run", 0, {"reward/mean": 0.25, "regime/first_turn": "diverse"})
    ]
