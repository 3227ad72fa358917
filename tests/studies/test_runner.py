"""Running a study: what is left of it and nothing else, through failures, interruptions and kills."""

import json
import os
import shutil
import signal
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from heedful import cli
from heedful.storage import RunFolder, held, read_metrics
from heedful.studies.declaration import Arm, Measure, Pair, Study, settings, train
from heedful.studies.jobs import TrainingJob
from heedful.studies.running import processes
from heedful.studies.running.processes import Child
from heedful.studies.running.runner import Request, estimate, run_study
from heedful.studies.study_folder import StudyFolder
from patience import comes
from research.jobs import SamplingJob
from stand_in import in_place_of_heedful


@pytest.fixture
def behaviours(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Label of a run -> what stands in for it does; without an entry it succeeds."""
    found: dict[str, str] = {}
    in_place_of_heedful(monkeypatch, found)
    return found


def request(**asked: Any) -> Request:
    """Two arms x two seeds of a loaded model, so that no seedling is grown."""
    arms = tuple(Arm(name, train("echo", "--model some/model --device cpu")) for name in ("a", "b"))
    study = Study(
        "little", "What?", arms, (0, 1), (Pair("a", "b"),), (Measure("success", "success/rate"),), minutes=2.0
    )
    return Request(study, Path("out"), processes=asked.pop("processes", 1), **asked)


def begun(label: str) -> int:
    """How often a run was begun."""
    path = Path("out") / f"{label}.began"
    return len(path.read_text()) if path.exists() else 0


@pytest.fixture
def console() -> Console:
    return Console(highlight=False, width=160)


def test_all_runs_are_run_once_and_never_again(
    behaviours: dict[str, str], console: Console, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_study(request(processes=2), console) == 0
    assert run_study(request(), console) == 0
    assert [begun(label) for label in ("a/s0", "b/s0", "a/s1", "b/s1")] == [1, 1, 1, 1]
    shown = capsys.readouterr().out
    assert "4 runs in out, 2 at a time" in shown
    assert "4 runs in out, 4 of them over already" in shown
    for name in ("results.json", "results.md", "study.html", "study.json", "runs.json"):
        assert (Path("out") / name).exists()
    states = json.loads(Path("out/runs.json").read_text())
    assert {label: known["state"] for label, known in states.items()} == dict.fromkeys(states, "done")
    assert all(known["seconds"] >= 0 for known in states.values())


def test_a_run_that_ended_after_its_study_was_killed_is_noted_as_done(
    behaviours: dict[str, str], console: Console
) -> None:
    assert run_study(request(), console) == 0
    states = json.loads(Path("out/runs.json").read_text())
    left = states | {"a/s0": {"state": "running", "seconds": 7.0}}
    Path("out/runs.json").write_text(json.dumps(left))
    assert run_study(request(), console) == 0
    assert json.loads(Path("out/runs.json").read_text()) == left | {"a/s0": {"state": "done", "seconds": 7.0}}
    assert begun("a/s0") == 1


def test_a_failed_run_stops_no_other_is_named_and_is_tried_again(
    behaviours: dict[str, str], console: Console, capsys: pytest.CaptureFixture[str]
) -> None:
    behaviours["b/s0"] = "fails"
    assert run_study(request(), console) == 1
    shown = capsys.readouterr().out
    assert "b/s0 failed (exit code 5)" in shown
    assert "  its last words" in shown
    assert "1 of 4 runs failed: b/s0" in shown
    assert "Unfinished: 3 of 4 runs are over" in shown
    assert begun("b/s1") == 1
    del behaviours["b/s0"]
    assert run_study(request(), console) == 0
    assert (begun("b/s0"), begun("a/s0")) == (2, 1)


def test_a_run_whose_measurements_are_gone_is_named_and_left_out(
    behaviours: dict[str, str], console: Console, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_study(request(seeds=(0,)), console) == 0
    Path("out/b/s0/metrics.jsonl").unlink()
    assert run_study(request(), console) == 1
    shown = capsys.readouterr().out
    assert "Runs that cannot be read are left out: b/s0 (Expected measurements in out/b/s0/metrics.jsonl" in shown
    assert begun("b/s1") == 1
    assert cli.run(["report", "out"]) == 1


def test_arms_of_which_no_run_is_over_are_not_in_the_tables(
    behaviours: dict[str, str], console: Console, capsys: pytest.CaptureFixture[str]
) -> None:
    behaviours |= {"b/s0": "fails", "b/s1": "fails"}
    assert run_study(request(), console) == 1
    assert "What follows is of those, without the arms of which none is over." in capsys.readouterr().out
    assert "| measure | a |" in Path("out/results.md").read_text()
    behaviours.clear()
    assert run_study(request(), console) == 0
    assert "| measure | a | b |" in Path("out/results.md").read_text()


def test_a_run_that_its_alarm_stopped_is_over(behaviours: dict[str, str], console: Console) -> None:
    behaviours["a/s0"] = "alarms"
    assert run_study(request(), console) == 0
    assert run_study(request(), console) == 0
    assert begun("a/s0") == 1
    results = json.loads(Path("out/results.json").read_text())
    assert results["runs"] == ["a/s0", "b/s0", "a/s1", "b/s1"]
    shutil.rmtree("out/a/s0")  # to have it made anew
    behaviours.clear()
    assert run_study(request(), console) == 0
    assert begun("a/s0") == 2


def test_checkpoints_of_finished_runs_go_unless_they_are_to_be_kept(
    behaviours: dict[str, str], console: Console
) -> None:
    behaviours["b/s1"] = "fails"
    run_study(request(), console)
    assert not Path("out/a/s0/checkpoints").exists()
    (Path("out/b/s1/checkpoints")).mkdir()
    run_study(request(), console)
    assert Path("out/b/s1/checkpoints").exists()  # it failed again, and may go on from there


@pytest.mark.parametrize(("before", "heard"), [(signal.SIG_IGN, []), (signal.SIG_DFL, [signal.SIGHUP])])
def test_a_closed_terminal_stops_a_study_but_not_under_nohup(
    before: signal.Handlers, heard: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "leave_the_terminal", lambda: None)
    usual = signal.signal(signal.SIGHUP, before)
    try:
        with processes._passing_on_signals([]) as asked:
            signal.raise_signal(signal.SIGHUP)
        assert asked == heard
        assert signal.getsignal(signal.SIGHUP) is before
    finally:
        signal.signal(signal.SIGHUP, usual)


def interrupted_at(label: str, console: Console) -> int:
    """The exit code of the study, which gets a Ctrl-C when this run listens for it."""

    def interrupt() -> None:
        comes(Path("out", label, "listening").exists)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    code = run_study(request(), console)
    thread.join()
    return code


def test_ctrl_c_reaches_the_runs_and_the_same_command_goes_on(
    behaviours: dict[str, str], console: Console, capsys: pytest.CaptureFixture[str]
) -> None:
    behaviours |= {"a/s0": "waits", "b/s0": "waits"}
    assert interrupted_at("a/s0", console) == 130
    assert "interrupted; go on with the same command" in capsys.readouterr().out
    assert [begun(label) for label in ("a/s0", "b/s0")] == [1, 0]
    assert json.loads(Path("out/runs.json").read_text())["a/s0"]["state"] == "interrupted"
    behaviours.clear()
    assert run_study(request(), console) == 0
    assert [begun(label) for label in ("a/s0", "b/s0")] == [2, 1]


def test_a_quick_look_runs_what_it_is_asked_for(behaviours: dict[str, str], console: Console) -> None:
    assert run_study(request(arms=("b",), seeds=(7,)), console) == 0
    assert [begun(label) for label in ("b/s7", "a/s7", "b/s0")] == [1, 0, 0]
    assert json.loads(Path("out/study.json").read_text())["starts"] == [{"arms": ["b"], "seeds": [7]}]
    # The whole study joins in the same folder.
    assert run_study(request(), console) == 0
    assert begun("b/s7") == 1


def test_a_folder_is_held_by_one_process_at_a_time(behaviours: dict[str, str], console: Console) -> None:
    with held(Path("out")), pytest.raises(ValueError, match="Another process is at work"):
        run_study(request(), console)


def test_the_cost_is_told_beforehand() -> None:
    study = request().study
    assert estimate(study, 1) == "4 runs of about 2 min: 8m00s on one core"
    assert estimate(study, 2) == "4 runs of about 2 min: 8m00s on one core, 4m00s with 2 at a time"


def test_a_run_goes_on_from_its_configuration_and_is_begun_without_one(tmp_path: Path) -> None:
    job = train("echo", "--steps 3")
    folder = RunFolder(tmp_path / "a" / "s4")
    (folder.path / "rollouts").mkdir(parents=True)  # killed before its configuration was written
    arguments = job.command(folder, 4)
    config = tmp_path / "a" / "s4.json"
    assert arguments == ["train", "echo", "--config", str(config), "--out", str(folder.path)]
    assert not folder.path.exists()
    written = json.loads(config.read_text())
    assert (written["seed"], written["steps"]) == (4, 3)
    folder.path.mkdir()
    folder.config.write_text("{}")
    assert job.command(folder, 4) == ["train", "--resume", str(folder.path)]
    folder.config.unlink()
    (folder.path / "checkpoints").mkdir()  # something was computed: it is not thrown away
    with pytest.raises(ValueError, match=r"found none\. Copy .*s4\.json there to go on with the run, or delete"):
        job.command(folder, 4)
    assert (folder.path / "checkpoints").exists()


SMALL = (
    "--seedling.steps 30 --seedling.layers 1 --steps 6 --groups 4 --group-size 4 --checkpoint-every 2 "
    "--evaluation.tasks 8 "
    "--evaluation.samples 2 --evaluation.times 2 --diagnostics.every 2 --diagnostics.full-every 4 "
    "--keep-rollouts evaluations"
)


KILLED_MIDWAY = """
import os, signal, sys
from heedful import cli
from heedful.storage.trackers import JsonlTracker

write, steps = JsonlTracker.write, set()

def written(self, step, metrics):
    write(self, step, metrics)
    steps.add(step)
    if len(steps) == 3:
        os.kill(os.getpid(), signal.SIGKILL)

JsonlTracker.write = written
sys.exit(cli.run(sys.argv[1:]))
"""
"""In place of `heedful`: the same command, which is killed when the metrics of three steps are written."""


def real_study(out: str) -> Request:
    pytest.importorskip("transformers")
    sampled = settings("echo", "--seedling.steps 30 --seedling.layers 1 --groups 4 --group-size 4 --keep-rollouts none")
    arms = (Arm("trained", train("echo", SMALL)), Arm("sampled", SamplingJob(sampled, batches=6, forced=4)))
    study = Study("real", "What?", arms, (1,), measures=(Measure("success", "success/rate", "mean"),))
    return Request(study, Path(out), processes=1)


def measured(out: str, arm: str) -> list[tuple[int, dict[str, Any]]]:
    lines = read_metrics(Path(out) / arm / "s1" / "metrics.jsonl")
    return [
        (line.step, {name: metric for name, metric in line.metrics.items() if not name.startswith("time/")})
        for line in lines
    ]


def test_killed_runs_go_on_to_the_same_results(started: list[Child], console: Console) -> None:
    study = real_study("killed").study
    for arm in study.arms:  # in this process, without a study around it
        assert cli.run(arm.job.command(StudyFolder(Path("whole")).run(arm.name, 1).folder, 1)) == 0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes, "heedful_command", lambda arguments: [sys.executable, "-c", KILLED_MIDWAY, *arguments])
        assert run_study(real_study("killed"), console) == 1
    assert [child.exit_code for child in started] == [-signal.SIGKILL] * 2
    for arm in ("trained", "sampled"):
        assert len(measured("killed", arm)) == 3 < len(measured("whole", arm))
    assert run_study(real_study("killed"), console) == 0
    for arm in ("trained", "sampled"):
        assert measured("killed", arm) == measured("whole", arm)
    assert json.loads(Path("killed/results.json").read_text())["runs"] == ["trained/s1", "sampled/s1"]
    forced = [metrics["forced/own/success"].n for _, metrics in measured("whole", "sampled")]
    assert forced == [4] * 6
    assert list(Path("whole/trained/s1/rollouts").glob("step_??????.parquet")) == []
    assert len(list(Path("whole/trained/s1/rollouts").glob("*_val_*"))) == 4


@dataclass(frozen=True)
class ReadingJob(TrainingJob):
    """A job that reads the run of another arm."""

    after: str = "read"


def reading(processes: int) -> Request:
    """Two runs that read a third one's folder, which is declared after them."""
    job = train("echo", "--model some/model --device cpu")
    reader = ReadingJob(job.config)
    arms = (Arm("a", reader), Arm("b", reader), Arm("read", job))
    return Request(Study("order", "What?", arms, (0,), minutes=1.0), Path("out"), processes=processes)


def test_a_run_begins_when_the_run_that_it_reads_is_over(
    behaviours: dict[str, str], console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = []

    def command(job: ReadingJob, folder: RunFolder, seed: int) -> list[str]:
        over.append(Path("out/read/s0/verdict.json").exists())
        return ["train", str(folder.path)]

    monkeypatch.setattr(ReadingJob, "command", command)
    assert run_study(reading(processes=3), console) == 0
    assert over == [True, True]
    assert [begun(f"{arm}/s0") for arm in ("a", "b", "read")] == [1, 1, 1]


def test_a_run_whose_source_is_damaged_fails_and_stops_no_other(
    behaviours: dict[str, str], console: Console, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def command(job: ReadingJob, folder: RunFolder, seed: int) -> list[str]:
        if folder.path.parent.name == "a":
            raise ValueError("Expected ranked tasks in ranking.json, found none.")
        return ["train", str(folder.path)]

    monkeypatch.setattr(ReadingJob, "command", command)
    assert run_study(reading(processes=3), console) == 1
    assert [begun(f"{arm}/s0") for arm in ("a", "b", "read")] == [0, 1, 1]
    shown = capsys.readouterr().out
    assert "a/s0 failed (exit code 2)" in shown
    assert "heedful: Expected ranked tasks in ranking.json, found none." in shown


def test_runs_whose_source_failed_are_named_and_not_begun(
    behaviours: dict[str, str], console: Console, capsys: pytest.CaptureFixture[str]
) -> None:
    behaviours["read/s0"] = "fails"
    assert run_study(reading(processes=1), console) == 1
    assert [begun(f"{arm}/s0") for arm in ("a", "b", "read")] == [0, 0, 1]
    assert "not begun, since what failed is needed for them: a/s0, b/s0" in capsys.readouterr().out


def test_runs_that_an_interruption_left_waiting_are_not_said_to_wait_for_a_failed_one(
    behaviours: dict[str, str], console: Console, capsys: pytest.CaptureFixture[str]
) -> None:
    behaviours |= {"a/s0": "fails", "b/s0": "waits"}
    assert interrupted_at("b/s0", console) == 1
    shown = capsys.readouterr().out
    assert "interrupted; go on with the same command" in shown
    assert "runs failed: a/s0" in shown
    assert "not begun" not in shown


def test_the_last_words_of_a_log_of_any_size_are_read_from_its_end(tmp_path: Path) -> None:
    log = tmp_path / "s0.log"
    with log.open("wb") as stream:
        stream.truncate(1 << 40)  # a hole, which takes no room
        stream.seek(0, os.SEEK_END)
        stream.write(b"\nits last words\n")
    assert Child("s0", log, list).last_words(1) == ["its last words"]
    assert Child("s0", tmp_path / "none.log", list).last_words(1) == []
