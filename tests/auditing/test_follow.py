"""What a watch says while it waits, and what it does when the log is not the one that it was."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import foreign_logs as logs
import pytest
from audit_watching import by_step
from trainers import SETTINGS, Trainer, as_lines, watch

from heedful.auditing import follow as follow_module
from heedful.auditing import measure_log, open_log
from heedful.auditing.follow import Ends, follow
from heedful.auditing.scalars import scalar_files
from heedful.stopping import StoppedBySignal
from heedful.watching.status import Status

SCALARS = Path(__file__).parent / "fixtures" / "scalars"


class Player(Trainer):
    """Does one thing at each poll."""

    def play(self, *acts: object) -> Player:
        self.acts = list(acts)
        self._date()
        return self

    def sleep(self, seconds: float) -> None:
        self.time += seconds
        if self.acts and callable(act := self.acts.pop(0)):
            act()
        self._date()

    def _date(self) -> None:
        """Date what was written by this clock."""
        for path in self.root.rglob("*"):
            if path.stat().st_mtime > self.time:
                os.utime(path, (self.time, self.time))


@pytest.fixture
def player(tmp_path: Path) -> Player:
    (tmp_path / "log").mkdir()
    return Player(root=tmp_path)


def metrics(root: Path, folder: str = "out") -> bytes:
    return (root / folder / "metrics.jsonl").read_bytes()


def audited(root: Path, scalars: list[Path]) -> bytes:
    measure_log(open_log(root / "log", SETTINGS, scalars), SETTINGS, root / "audited", [])
    return metrics(root, "audited")


def test_a_watch_that_is_killed_goes_on_in_another_process(tmp_path: Path, player: Player) -> None:
    log, out = logs.verl_log(tmp_path / "log", range(1, 13)), tmp_path / "out"
    program = (
        "from pathlib import Path; from heedful.auditing.follow import follow; from trainers import SETTINGS; "
        f"follow(Path({str(log)!r}), SETTINGS, out=Path({str(out)!r}), poll=0.1)"
    )
    paths = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    with subprocess.Popen([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": paths}) as process:
        until = time.monotonic() + 120
        while not (out / "metrics.jsonl").exists() and process.poll() is None and time.monotonic() < until:
            time.sleep(0.01)
        process.kill()
    assert process.returncode == -signal.SIGKILL
    watch(tmp_path, player.play())
    assert metrics(tmp_path) == audited(tmp_path, [])


def test_a_poll_of_a_long_log_at_rest_looks_at_its_end_alone(
    tmp_path: Path, player: Player, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in range(300):
        logs.write_lines(tmp_path / "log" / f"{step}.jsonl", logs.verl_rows(step)[:1])
    looks, listings = [0], [0]
    signature, names = follow_module._signature, follow_module.names_of_files
    monkeypatch.setattr(follow_module, "_signature", lambda path: (looks.append(1), signature(path))[1])
    monkeypatch.setattr(follow_module, "names_of_files", lambda source: (listings.append(1), names(source))[1])
    counts: list[tuple[int, int]] = []
    settings = replace(SETTINGS, join=300)
    acts = [lambda: counts.append((len(looks), len(listings)))] * 20
    follow(tmp_path / "log", settings, out=tmp_path / "out", clock=player.play(*acts).clock, ends=Ends(idle=60.0))
    for (before, listed), (after, listed_again) in pairwise(counts[1:]):
        assert after - before < 80
        assert listed == listed_again


def test_rows_that_an_evaluation_writes_over_measured_ones_leave_the_line(tmp_path: Path, player: Player) -> None:
    log = logs.trl_log(tmp_path / "log", steps=2)
    last = log / "completions" / "completions_00002.parquet"
    (log / "checkpoint-2").mkdir()
    history = {"log_history": [{"step": 2, "reward": 0.5}, {"step": 2, "eval_reward": 0.25}]}
    (log / "checkpoint-2" / "trainer_state.json").write_text(json.dumps(history))
    for folder in ("out", "again"):  # while the watch is there, and while it is not
        logs.write_parquet(last, logs.trl_rows(2))
        act = (lambda: logs.write_parquet(last, logs.trl_rows(2)[:3])) if folder == "out" else None
        watch(tmp_path, player.play(None, act), out=tmp_path / folder)
        assert json.loads((tmp_path / folder / "audit.json").read_text())["complete"]
        before = metrics(tmp_path, folder)
        logs.write_parquet(last, logs.trl_rows(2)[:3])
        logs.write_parquet(log / "completions" / "completions_00003.parquet", logs.trl_rows(3))
        watch(tmp_path, player.play(), out=tmp_path / folder)
        (log / "completions" / "completions_00003.parquet").unlink()
        assert metrics(tmp_path, folder).startswith(before)
        assert by_step(tmp_path / folder)[2]["reward/mean"].n == 6
        record = json.loads((tmp_path / folder / "audit.json").read_text())
        assert record["rewritten"] == [2]
        assert any("Steps 2 were rewritten after they were measured" in sentence for sentence in record["found"])
        assert not any("hold completions of an evaluation" in sentence for sentence in record["found"])


def test_a_trainer_that_goes_back_supersedes_the_lines_from_there(tmp_path: Path, player: Player) -> None:
    log = logs.verl_log(tmp_path / "log", range(1, 7))

    def resumed() -> None:
        for step in (4, 5):
            logs.write_lines(log / f"{step}.jsonl", [row | {"output": "again"} for row in logs.verl_rows(step)])

    watch(tmp_path, player.play(None, None, None, None, None, resumed))
    gone = (tmp_path / "out" / "superseded.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in gone] == [4, 5, 6]
    assert any("From step 4 on the log has changed" in note for note in player.notes)
    assert metrics(tmp_path) == audited(tmp_path, [])


def test_scalars_whose_file_was_emptied_keep_the_lines_before_the_restart(tmp_path: Path, player: Player) -> None:
    scalars = tmp_path / "log" / "scalars.jsonl"
    scalars.write_bytes(as_lines([{"step": step, "reward": 0.5} for step in range(1, 9)]))
    later = as_lines([{"step": step, "reward": 0.6} for step in range(6, 12)])
    watch_file = {"out": tmp_path / "out", "sinks": [player], "ends": Ends(idle=60.0)}
    acts = [None, lambda: scalars.write_bytes(b""), None, lambda: scalars.write_bytes(later)]
    follow(scalars, SETTINGS, clock=player.play(*acts).clock, **watch_file)
    assert [json.loads(line)["step"] for line in metrics(tmp_path).splitlines()] == [*range(1, 12)]
    found = {step: metrics["trainer/reward"].value for step, metrics in by_step(tmp_path / "out").items()}
    assert found == {**dict.fromkeys(range(1, 6), 0.5), **dict.fromkeys(range(6, 12), 0.6)}
    before = metrics(tmp_path)
    follow(scalars, SETTINGS, clock=player.play().clock, **watch_file)
    assert metrics(tmp_path) == before


def test_silence_is_told_by_the_clock_and_in_no_line(tmp_path: Path, player: Player) -> None:
    log = logs.verl_log(tmp_path / "log", [1])
    acts = [lambda step=step: logs.verl_log(log, [step]) for step in (2, 3, 4)]
    watch(tmp_path, player.play(*acts), poll=100.0, settle=1.0, ends=Ends(idle=1500.0))
    assert any("verl rollouts: 4 files, 4 steps" in note for note in player.notes)
    told = {pending.age: pending.stalled for pending in player.pendings}
    assert (told[600.0], player.pendings[-1].interval) == ("", 100.0)
    assert told[900.0] == "Nothing has come for 900 s, where steps came every 100 s"
    assert b"stalled" not in metrics(tmp_path)
    ended = subprocess.Popen(["true"])
    ended.wait()
    player.pendings.clear()
    watch(tmp_path, player.play(), pid=ended.pid, ends=Ends(pid=ended.pid))
    assert player.pendings[0].stalled == f"Process {ended.pid} has ended"


def test_a_log_that_was_silent_before_the_watch_stands_still_only_once_it_has_grown(
    tmp_path: Path, player: Player
) -> None:
    log = logs.verl_log(tmp_path / "log", [1])
    os.utime(log / "1.jsonl", (player.time - 7200, player.time - 7200))
    acts = [None, None, lambda: logs.verl_log(log, [2])]
    watch(tmp_path, player.play(*acts), poll=300.0, settle=1.0, ends=Ends(idle=9000.0))
    assert [(each.age, bool(each.stalled)) for each in player.pendings[:6]] == [
        (7200.0, False),
        (7500.0, False),
        (7800.0, False),
        (0.0, False),
        (300.0, False),
        (600.0, False),
    ]
    assert player.pendings[-1].stalled == "Nothing has come for 9000 s"


def test_an_open_step_is_told_and_not_written(tmp_path: Path, player: Player) -> None:
    log = logs.write_lines(tmp_path / "log" / "mine.jsonl", [*logs.plain_rows(1), *logs.plain_rows(2)[:3]])
    written: list[list[int]] = []

    def grow() -> None:
        written.append(list(by_step(tmp_path / "out")))
        with log.open("ab") as stream:
            stream.write(as_lines(logs.plain_rows(2)[3:]))

    watch(tmp_path, player.play(None, grow))
    first = player.pendings[0]
    assert (first.open_step, first.provisional["reward/mean"].n, written) == (2, 2, [[1]])
    assert by_step(tmp_path / "out")[2]["reward/mean"].n == 6


def test_a_signal_ends_a_watch_with_its_page(tmp_path: Path, player: Player) -> None:
    logs.verl_log(tmp_path / "log", [1, 2])
    with pytest.raises(StoppedBySignal) as stopped:
        watch(tmp_path, player.play(*[None] * 5, lambda: os.kill(os.getpid(), signal.SIGTERM)), ends=Ends())
    assert stopped.value.number == signal.SIGTERM
    assert list(by_step(tmp_path / "out")) == [1, 2]
    assert (tmp_path / "out" / "report.html").exists()
    assert player.ended == "A signal ended the watch."


@pytest.mark.parametrize(("name", "kind"), [("dumps", "folder"), ("metrics.jsonl", "file")])
def test_what_is_to_be_watched_has_to_be_there_and_may_be_empty(name: str, kind: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=rf"at \S+{name}, found nothing there\. Make an empty {kind}"):
        follow(tmp_path / name, SETTINGS)


def test_a_watch_waits_for_its_log_and_ends_at_a_step(tmp_path: Path, player: Player) -> None:
    log, history = tmp_path / "log", [{"step": step, "reward": 0.25, "loss": 0.1} for step in (1, 2, 3)]

    def checkpoint() -> None:
        (log / "checkpoint-3").mkdir()
        (log / "checkpoint-3" / "trainer_state.json").write_text(json.dumps({"log_history": history}))

    acts = [None, lambda: logs.trl_log(log, steps=3), checkpoint]
    sinks = [player, Status(log)]
    folder = follow(log, SETTINGS, scalars=[log], clock=player.play(*acts).clock, ends=Ends(step=3), sinks=sinks)
    assert folder == log / "heedful-watch"
    assert any("Waiting for the log. So far: Expected logs" in note for note in player.notes)
    assert json.loads((folder / "status.json").read_text())["notes"][0].startswith("TRL completions in ")
    assert by_step(folder)[3]["trainer/reward"].value == 0.25
    assert player.ended == "The log has come to step 3."
    assert metrics(log, "heedful-watch") == audited(tmp_path, [log])


def test_an_evaluation_that_comes_before_its_training_is_left_out(tmp_path: Path, player: Player) -> None:
    def write(name: str, step: int) -> Path:
        return logs.write_lines(tmp_path / "log" / name, logs.verl_rows(step))

    write("val_0.jsonl", 0)
    acts = [None, lambda: write("1.jsonl", 1), None, lambda: write("2.jsonl", 2)]
    folder = follow(tmp_path / "log", SETTINGS, out=tmp_path / "out", clock=player.play(*acts).clock, ends=Ends(step=2))
    assert list(by_step(folder)) == [1, 2]


def test_a_watch_of_what_is_there_goes_on_the_next_time_and_reads_nothing_of_its_own(
    tmp_path: Path, player: Player
) -> None:
    log = tmp_path / "step_4"
    for rows in (logs.trace_rows(4), [*logs.trace_rows(4), *logs.trace_rows(5)]):
        logs.write_lines(log / "train" / "all" / "traces.jsonl", rows)
        folder = follow(log, SETTINGS, once=True, clock=player.play().clock, sinks=[player])
    assert (folder, list(by_step(folder))) == (log / "heedful-watch", [4])
    assert by_step(folder)[4]["reward/mean"].n == 12
    assert player.steps == [4, 4]
    assert player.ended == "What was there is measured."


def test_of_several_runs_in_a_folder_of_trackers_the_last_is_read(tmp_path: Path) -> None:
    for run, modified in (("Jan1_host", 2e9), ("Feb1_host", 1e9)):
        (tmp_path / run).mkdir()
        (tmp_path / run / "events.out.tfevents.1").write_bytes(
            (SCALARS / "events.out.tfevents.1.host.1.0").read_bytes()
        )
        os.utime(tmp_path / run, (modified, modified))
    assert scalar_files(tmp_path) == (tmp_path / "Jan1_host" / "events.out.tfevents.1",)


def test_rollouts_that_come_after_scalars_are_read(tmp_path: Path, player: Player) -> None:
    (tmp_path / "log" / "checkpoint-1").mkdir()
    state = tmp_path / "log" / "checkpoint-1" / "trainer_state.json"
    state.write_text(json.dumps({"log_history": [{"step": step, "reward": 0.25} for step in range(1, 4)]}))
    watch(
        tmp_path, player.play(None, None, lambda: logs.trl_log(tmp_path / "log", steps=2)), scalars=[tmp_path / "log"]
    )
    assert {"reward/mean", "trainer/reward"} <= by_step(tmp_path / "out")[2].keys()
    assert metrics(tmp_path) == audited(tmp_path, [tmp_path / "log"])


def test_a_parquet_file_that_is_written_anew_while_it_is_read_is_read_when_it_is_whole(
    tmp_path: Path, player: Player, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = logs.trl_log(tmp_path / "log", steps=2)
    first, opened = log / "completions" / "completions_00001.parquet", follow_module.open_log
    whole = first.read_bytes()

    def torn(*args: object) -> object:
        found = opened(*args)
        if not player.notes:
            first.write_bytes(whole[:500])
        return found

    monkeypatch.setattr(follow_module, "open_log", torn)
    watch(tmp_path, player.play(None, lambda: first.write_bytes(whole)))
    assert metrics(tmp_path) == audited(tmp_path, [])


def test_an_alarm_whose_line_is_measured_again_is_told_once(tmp_path: Path, player: Player) -> None:
    scalars = tmp_path / "log" / "scalars.jsonl"
    rows = [{"step": step, "reward": 0.5, "grad_norm": 0.3 if step != 8 else "NaN"} for step in range(1, 11)]
    scalars.write_bytes(as_lines(rows))

    def late() -> None:
        with scalars.open("ab") as stream:
            stream.write(as_lines([{"step": 7, "reward": 0.9}]))

    arguments = {"out": tmp_path / "out", "sinks": [player], "ends": Ends(idle=60.0)}
    follow(scalars, SETTINGS, clock=player.play(None, None, late).clock, **arguments)
    assert player.steps == [*range(1, 10), 7, 8, 9, 10]
    assert player.alarms == [("not_finite", 8)]
    assert by_step(tmp_path / "out")[7]["trainer/reward"].value == 0.9
