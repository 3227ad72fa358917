"""`heedful train --seeds`: processes side by side, Ctrl-C for all of them, and one table at the end."""

import json
import os
import shutil
import signal
import subprocess
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from heedful import cli
from heedful.run.config import read_config
from heedful.run.presets import preset
from heedful.storage import RunFolder
from heedful.storage.trackers import JsonlTracker
from heedful.studies.declared import several_seeds
from heedful.studies.running import processes, runner
from heedful.studies.running.progress import TAIL_BYTES, RunRow, RunsView, tail, wide_console
from heedful.studies.running.runner import Request, run_study
from heedful.studies.study_folder import StudyFolder
from heedful.types import Metric
from patience import comes
from stand_in import in_place_of_heedful
from warm import in_place_of_popen

NO_SEEDLING = ["--model", "some/model", "--device", "cpu", "--threads", "1"]
"""Names a model, so that no seedling is grown."""


def stand_in(monkeypatch: pytest.MonkeyPatch, behaviours: dict[int, str], at_once: int) -> None:
    in_place_of_heedful(monkeypatch, {f"s{seed}": behaviour for seed, behaviour in behaviours.items()})
    monkeypatch.setattr(processes, "cores", lambda: at_once)


def train(seeds: str, out: str = "out") -> int:
    return cli.run(["train", "echo", "--seeds", seeds, "--out", out, *NO_SEEDLING])


def states(folder: str) -> dict[str, str]:
    return {label: known["state"] for label, known in StudyFolder(Path(folder)).read_states().items()}


def test_seeds_run_side_by_side_as_far_as_there_are_cores_for_their_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(processes, "cores", lambda: 8)
    assert [processes.at_once("cpu", threads) for threads in (1, 3, 16)] == [8, 2, 1]
    assert processes.at_once("cuda", 1) == 1


def test_with_one_core_one_seed_follows_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, {}, at_once=1)
    config = replace(preset("echo"), model="some/model", device="cpu", seed=9)
    assert run_study(Request(several_seeds(config, [5, 6]), Path("out")), wide_console()) == 0
    assert float(Path("out/s5/ended").read_text()) <= float(Path("out/s6/began").read_text())
    written = json.loads(Path("out/s6.json").read_text())
    assert (written["seed"], written["model"]) == (6, "some/model")
    assert Path("out/s6/checkpoints").exists()  # to be looked at afterwards


def test_a_seed_that_its_alarm_stopped_is_over_and_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in(monkeypatch, {0: "alarms"}, at_once=2)
    assert train("0,1") == 3
    shown = capsys.readouterr().out
    assert "an alarm stopped seed 0:" in shown
    assert "heedful train --resume out/s0\n" in shown
    assert "heedful report out\n" in shown
    assert states("out")["s0"] == "stopped"
    assert "| 0 | 0.250 | – | – | – | – | – | stopped by an alarm |" in Path("out/results.md").read_text()


def test_ctrl_c_reaches_every_running_seed_once_and_starts_no_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in(monkeypatch, dict.fromkeys((0, 1, 2), "waits"), at_once=2)

    def interrupt_when_both_listen() -> None:
        comes(lambda: all(Path(f"out/s{seed}/listening").exists() for seed in (0, 1)))
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=interrupt_when_both_listen)
    thread.start()
    code = train("0,1,2")
    thread.join()
    assert code == 130
    assert [Path(f"out/s{seed}.log").read_text() for seed in (0, 1)] == ["asked 1\n", "asked 1\n"]
    assert not Path("out/s2").exists()
    assert "interrupted; go on with heedful train --resume out\n" in capsys.readouterr().out
    assert signal.getsignal(signal.SIGINT) is before
    stand_in(monkeypatch, {}, at_once=2)
    assert cli.run(["train", "--resume", "out"]) == 0
    assert states("out") == {"s0": "done", "s1": "done", "s2": "done"}


def test_several_runs_are_not_resumed_under_torchrun(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in(monkeypatch, {}, at_once=2)
    assert train("0") == 0
    started = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}
    for name, value in started.items():
        monkeypatch.setenv(name, value)
    assert cli.run(["train", "--resume", "out"]) == 2
    assert "starts processes of its own, one for each seed" in capsys.readouterr().err


def test_what_is_refused_before_any_seed_begins_leaves_no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ValueError("nothing can be grown")

    monkeypatch.setattr(runner, "growths", refuse)
    assert cli.run(["train", "echo", "--seeds", "0,1"]) == 2
    assert list(Path("runs").iterdir()) == []


def test_the_flags_of_several_seeds_hold_or_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[Request] = []

    def remember(request: Request, _: Console) -> int:
        asked.append(request)
        return 0

    monkeypatch.setattr(runner, "run_study", remember)
    assert cli.run(["train", "echo", "--seeds", "0,1", "--out", "out", "--take-over", *NO_SEEDLING]) == 0
    assert asked[0].take_over
    Path("out").mkdir()
    Path("out/study.json").touch()
    assert cli.run(["train", "--resume", "out", "--steps", "9"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "found also --steps. out holds several runs, whose settings stay: give --resume out alone" in said


def test_without_a_folder_the_first_free_one_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, {}, at_once=2)
    for number in (1, 2):
        assert cli.run(["train", "echo", "--seeds", "3", *NO_SEEDLING]) == 0
        assert Path(f"runs/echo-grpo-seeds-{number}/s3/ended").exists()


def test_the_progress_of_a_seed_is_read_off_the_end_of_its_measurements(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    row = RunRow("0", path, 4, "eval/val/sampled/success")
    row.refresh()
    assert row.cells() == ("0/4", "-", "-", "-", "-")
    tracker = JsonlTracker(path)
    thought = Metric("grounding/right_by_thought", 0.75, 8, 0.5, 1.0)
    evaluated = Metric("eval/val/sampled/success", 0.125, 16, 0.0, 0.25)
    tracker.write(0, [evaluated, Metric("success/rate", 0.25), Metric("filter/kept_ratio", 1.0), thought])
    tracker.write(1, [Metric("success/rate", None, why="nothing scored"), Metric("filter/kept_ratio", 0.5)])
    tracker.close()
    with path.open("ab") as stream:
        stream.write(b'{"step": 2, "metri')  # still being written
    row.refresh()
    # What was not measured in step 1 stays as it was last read.
    assert row.cells() == ("2/4", "0.250", "0.500", "0.750", "0.125")


def test_the_last_evaluation_counts_no_step_that_was_not_trained(tmp_path: Path) -> None:
    tracker = JsonlTracker(tmp_path / "metrics.jsonl")
    tracker.write(3, [Metric("success/rate", 0.5)])
    tracker.write(4, [Metric("eval/val/sampled/success", 0.5)])
    tracker.close()
    row = RunRow("0", tmp_path / "metrics.jsonl", 4, "eval/val/sampled/success")
    row.refresh()
    assert row.cells()[0] == "4/4"


def test_of_long_measurements_only_whole_lines_at_the_end_are_read(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    line = json.dumps({"step": 1, "time": 0, "metrics": {"text": "x" * 1000}})
    path.write_text("".join(f"{line.replace('1,', f'{step},', 1)}\n" for step in range(400)))
    steps = [step for step, _ in tail(path)]
    assert steps == list(range(400 - len(steps), 400))
    assert len(steps) == pytest.approx(TAIL_BYTES / (len(line) + 3), abs=1.5)


def test_outside_a_terminal_a_line_is_printed_when_a_state_changes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = RunRow("7", tmp_path / "metrics.jsonl", 4, "eval/val/sampled/success")
    with RunsView([row], Console(highlight=False, width=160)) as view:
        for state in ("waiting", "running", "running", "done"):
            view.show({"7": state})
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "run 7 waiting"
    assert [line.split(":")[0] for line in lines[1:]] == ["run 7 running", "run 7 done"]


def test_in_a_terminal_there_is_one_live_table(tmp_path: Path) -> None:
    console = Console(force_terminal=True, width=100, record=True)
    rows = [RunRow(str(seed), tmp_path / "none", 4, "eval/val/sampled/success") for seed in (0, 1)]
    with RunsView(rows, console) as view:
        view.show({"0": "running", "1": "waiting"})
    shown = console.export_text()
    assert "held out" in shown
    assert "waiting" in shown


def two_copies(echo_run: Path) -> Path:
    """The folder of three seeds: two are done, one has not begun."""
    parent = Path("many")
    StudyFolder(parent).claim(several_seeds(read_config(RunFolder(echo_run)), [0, 1, 2]), {}, False)
    for seed in (0, 1):
        shutil.copytree(echo_run, parent / f"s{seed}")
    return parent


def gain(folder: Path) -> dict[str, Any]:
    measures = json.loads((folder / "results.json").read_text())["measures"]
    found = next(measure for measure in measures if measure["measure"]["title"] == "sampled gain")
    arm: dict[str, Any] = found["arms"][0]
    return arm


def test_a_folder_of_seeds_is_summed_up_again(echo_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parent = two_copies(echo_run)
    assert cli.run(["report", "many"]) == 0
    shown = capsys.readouterr().out
    pooled = gain(parent)
    # Two copies of one run: the mean gain is the run's own, and seeds that agree exactly give no interval.
    own = json.loads((echo_run / "verdict.json").read_text())["figures"]["gain/sampled"]
    assert list(pooled["by_seed"].values()) == pytest.approx([own["value"]] * 2)
    assert pooled["readings"]["0"]["high"] == pytest.approx(own["high"])
    assert pooled["mean"]["value"] == pytest.approx(own["value"])
    assert (pooled["mean"]["n"], pooled["mean"]["low"], pooled["mean"]["high"]) == (2, None, None)
    assert (pooled["over_tasks"]["n"], pooled["over_tasks"]["low"]) == (12, pytest.approx(own["low"]))
    table = (parent / "results.md").read_text()
    assert table.count("\n| 0 |") == table.count("\n| 2 | – |") == 1
    for text in (table, shown):
        assert "sampled gain over 2 seeds (would another seed gain as much?): " in text
        assert "sampled gain over 12 tasks (would these seeds gain as much on other tasks?): " in text
    assert "Each seed" in (parent / "study.html").read_text()
    assert (parent / "s0" / "checkpoints").exists()


def test_without_the_evaluations_rollouts_a_gain_is_not_paired_by_task(
    echo_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parent = two_copies(echo_run)
    for path in parent.glob("s*/rollouts/step_000000_val_*"):
        path.unlink()
    assert cli.run(["report", "many"]) == 0
    pooled = gain(parent)
    assert (pooled["mean"]["n"], pooled["readings"]["0"]["low"]) == (2, None)
    assert pooled["over_tasks"]["value"] is None
    assert "its rollouts are not kept" in capsys.readouterr().out


def test_two_seeds_train_from_one_seedling_and_end_in_a_table(
    echo_run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # The stand-ins of the other tests start cold, as a seed does for a user.
    start = SimpleNamespace(DEVNULL=subprocess.DEVNULL, STDOUT=subprocess.STDOUT, Popen=in_place_of_popen)
    monkeypatch.setattr(processes, "subprocess", start)
    flags = "--steps 1 --groups 4 --group-size 4 --evaluation.tasks 8 --evaluation.samples 2 --evaluation.times 2"
    flags += " --seedling.steps 30 --seedling.layers 1"
    assert cli.run(["train", "echo", "--seeds", "0,1", "--out", "two", *flags.split()]) == 0
    shown = capsys.readouterr().out
    assert states("two") == {"s0": "done", "s1": "done"}
    measures = json.loads(Path("two/results.json").read_text())["measures"]
    before = next(each for each in measures if each["measure"]["title"] == "greedy before")["arms"][0]["by_seed"]
    assert before["0"] == before["1"]  # one warm start, no noise
    assert "sampled gain over 2 seeds" in shown
    for name in ("s0/report.html", "s1/report.html", "study.html", "results.md", "s0.log"):
        assert (Path("two") / name).exists()
        assert name.endswith(("log", "md")) or str(Path("two") / name) in shown
    assert "growing" not in Path("two/s0.log").read_text()
    assert "heedful train echo --config s0.json --seeds 0,1" in Path("two/results.md").read_text()
    written = Path("two/results.md").read_bytes()
    Path("two/results.md").unlink()
    assert cli.run(["report", "two"]) == 0
    assert Path("two/results.md").read_bytes() == written
