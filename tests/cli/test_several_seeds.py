"""`heedful train --seeds`: processes side by side, Ctrl-C for all of them, and one table at the end."""

import json
import os
import shutil
import signal
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from heedful import cli
from heedful.cli import seeds
from heedful.cli.seed_summary import read_list, summarise, write_list
from heedful.run.config import TrainConfig
from heedful.run.presets import preset
from heedful.storage.trackers import JsonlTracker
from heedful.studies import processes
from heedful.studies.progress import TAIL_BYTES, RunRow, RunsView, tail
from heedful.types import Metric

STAND_IN = """
import json, signal, sys, time
from pathlib import Path

folder, behaviour = Path(sys.argv[1]), sys.argv[2]
folder.mkdir(parents=True)
(folder / "began").write_text(repr(time.time()))
if behaviour == "fails":
    print("what it said last")
    sys.exit(5)
if behaviour == "alarms":
    sys.exit(3)
if behaviour == "waits":
    asked = []
    signal.signal(signal.SIGINT, lambda *_: asked.append(1))
    (folder / "config.json").write_text("{}")
    (folder / "listening").touch()
    while not asked:
        time.sleep(0.02)
    time.sleep(0.3)  # the step it is in
    print("asked", len(asked))
    sys.exit(130)
time.sleep(0.1)
(folder / "ended").write_text(repr(time.time()))
"""
"""In place of `heedful train`: a run without torch that succeeds, fails, or waits to be interrupted."""


@pytest.fixture
def config() -> TrainConfig:
    """Names a model, so that no seedling is grown."""
    return replace(preset("echo"), model="some/model")


def stand_in(monkeypatch: pytest.MonkeyPatch, behaviours: dict[int, str], at_once: int) -> None:
    def command(arguments: list[str]) -> list[str]:
        folder = Path(arguments[-1])
        return [sys.executable, "-c", STAND_IN, str(folder), behaviours.get(int(folder.name[1:]), "works")]

    monkeypatch.setattr(processes, "heedful_command", command)
    monkeypatch.setattr(processes, "cores", lambda: at_once)
    monkeypatch.setattr(processes, "POLL_SECONDS", 0.05)


def test_seeds_run_side_by_side_as_far_as_there_are_cores_for_their_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(processes, "cores", lambda: 8)
    assert [processes.at_once("cpu", threads) for threads in (1, 3, 16)] == [8, 2, 1]
    assert processes.at_once("cuda", 1) == 1


def test_with_one_core_one_seed_follows_the_other(config: TrainConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, {}, at_once=1)
    assert seeds.run_seeds(replace(config, device="cpu"), [5, 6], Path("out")) == 0
    assert float(Path("out/s5/ended").read_text()) <= float(Path("out/s6/began").read_text())
    written = json.loads(Path("out/s6.json").read_text())
    assert (written["seed"], written["model"]) == (6, "some/model")


def test_a_failed_seed_says_its_last_words_and_the_others_go_on(
    config: TrainConfig, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in(monkeypatch, {0: "fails"}, at_once=2)
    assert seeds.run_seeds(config, [0, 1], Path("out")) == 1
    shown = capsys.readouterr().out
    assert "seed 0 failed (exit code 5); the end of out/s0.log:" in shown
    assert "  what it said last" in shown
    assert Path("out/s1/ended").exists()
    assert read_list(Path("out")) == [(0, "s0", "failed"), (1, "s1", "unfinished")]


def test_a_seed_that_its_alarm_stopped_is_over_and_named(
    config: TrainConfig, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in(monkeypatch, {0: "alarms"}, at_once=2)
    assert seeds.run_seeds(config, [0, 1], Path("out")) == 3
    shown = capsys.readouterr().out
    assert "an alarm stopped seed 0:" in shown
    assert "heedful train --resume out/s0\n" in shown
    assert read_list(Path("out"))[0] == (0, "s0", "stopped")


def test_ctrl_c_reaches_every_running_seed_once_and_starts_no_other(
    config: TrainConfig, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in(monkeypatch, dict.fromkeys((0, 1, 2), "waits"), at_once=2)

    def interrupt_when_both_listen() -> None:
        limit = time.time() + 20
        while time.time() < limit and not all(Path(f"out/s{seed}/listening").exists() for seed in (0, 1)):
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=interrupt_when_both_listen)
    thread.start()
    code = seeds.run_seeds(replace(config, device="cpu"), [0, 1, 2], Path("out"))
    thread.join()
    assert code == 130
    assert [Path(f"out/s{seed}.log").read_text() for seed in (0, 1)] == ["asked 1\n", "asked 1\n"]
    assert not Path("out/s2").exists()
    shown = capsys.readouterr().out
    assert "heedful train --resume out/s0\n" in shown
    assert "heedful train --resume out/s1\n" in shown
    assert "heedful train echo --config out/s2.json --out out/s2\n" in shown
    assert "heedful report out\n" in shown
    assert signal.getsignal(signal.SIGINT) is before


def test_a_folder_that_is_in_use_is_refused_before_anything_runs(config: TrainConfig) -> None:
    Path("out").mkdir()
    Path("out/something").touch()
    with pytest.raises(ValueError, match="Expected an empty or new folder"):
        seeds.run_seeds(config, [0, 1], Path("out"))


def test_without_a_folder_the_first_free_one_is_taken(config: TrainConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, {}, at_once=2)
    for number in (1, 2):
        assert seeds.run_seeds(config, [3], None) == 0
        assert Path(f"runs/echo-grpo-seeds-{number}/s3/ended").exists()


def test_the_progress_of_a_seed_is_read_off_the_end_of_its_measurements(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    row = RunRow("0", path, 4, "eval/val/sampled/success")
    row.refresh()
    assert row.cells() == ("0/4", "-", "-", "-", "-")
    tracker = JsonlTracker(path)
    gap = Metric("information/first_turn/gap_per_token", 0.75, 8, 0.5, 1.0)
    evaluated = Metric("eval/val/sampled/success", 0.125, 16, 0.0, 0.25)
    tracker.write(0, [evaluated, Metric("success/rate", 0.25), Metric("filter/kept_ratio", 1.0), gap])
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
    with RunsView([row], Console(highlight=False, width=160), "seed") as view:
        for state in ("waiting", "running", "running", "done"):
            view.show({"7": state})
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "seed 7 waiting"
    assert [line.split(":")[0] for line in lines[1:]] == ["seed 7 running", "seed 7 done"]


def test_in_a_terminal_there_is_one_live_table(tmp_path: Path) -> None:
    console = Console(force_terminal=True, width=100, record=True)
    rows = [RunRow(str(seed), tmp_path / "none", 4, "eval/val/sampled/success") for seed in (0, 1)]
    with RunsView(rows, console, "seed") as view:
        view.show({"0": "running", "1": "waiting"})
    shown = console.export_text()
    assert "held out" in shown
    assert "waiting" in shown


def test_a_folder_of_seeds_is_summed_up_again_once_its_runs_are_done(
    echo_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parent = Path("many")
    for seed in (0, 1):
        shutil.copytree(echo_run, parent / f"s{seed}")
    write_list(parent, [0, 1, 2])
    assert cli.run(["report", "many"]) == 0
    shown = capsys.readouterr().out
    tree = json.loads((parent / "seeds.json").read_text())
    gains = [row["sampled"]["gain"]["value"] for row in tree["seeds"][:2]]
    assert [row["state"] for row in tree["seeds"]] == ["done", "done", "waiting"]
    # Two copies of one run: the mean gain is the run's own, and seeds that agree exactly give no interval.
    pooled = tree["pooled"]["sampled"]
    assert pooled["over_seeds"]["value"] == pytest.approx(gains[0])
    assert (pooled["over_seeds"]["n"], pooled["over_tasks"]["n"]) == (2, 12)
    assert (pooled["over_seeds"]["low"], pooled["over_seeds"]["high"]) == (None, None)
    own = json.loads((echo_run / "verdict.json").read_text())["figures"]["gain/sampled"]
    assert pooled["over_tasks"]["low"] == pytest.approx(own["low"])
    assert tree["seeds"][0]["sampled"]["gain"]["high"] == own["high"]
    assert (parent / "comparison.html").exists()
    table = (parent / "seeds.md").read_text()
    assert table.count("\n| 0 |") == table.count("\n| 2 | - |") == 1
    assert "over 2 seeds" in table
    assert "over 2 seeds" in shown


def test_a_run_that_was_not_evaluated_twice_has_no_gain_and_says_why(
    echo_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = shutil.copytree(echo_run, Path("many") / "s0")
    for path in (run / "rollouts").glob("step_000000_val_*"):
        path.unlink()
    write_list(Path("many"), [0])
    summary = summarise(Path("many"), Console(width=160))
    assert summary.results[0].gain["sampled"].value is None
    assert "sampled gain: unknown (no seed was evaluated both before and after training)" in capsys.readouterr().out
    assert not Path("many/comparison.html").exists()


def test_a_damaged_list_of_seeds_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    Path("many").mkdir()
    Path("many/seeds.json").write_text('{"seeds": [{"seed": 0}]}')
    assert cli.run(["report", "many"]) == 2
    assert "Expected the list of seeds" in capsys.readouterr().err


def test_two_seeds_train_from_one_seedling_and_end_in_a_table(
    echo_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = "--steps 1 --groups 4 --group-size 4 --evaluation.tasks 8 --evaluation.samples 2 --evaluation.times 2"
    assert cli.run(["train", "echo", "--seeds", "0,1", "--out", "two", *flags.split()]) == 0
    shown = capsys.readouterr().out
    tree = json.loads(Path("two/seeds.json").read_text())
    assert [row["state"] for row in tree["seeds"]] == ["done", "done"]
    greedy = [row["greedy"]["before"]["value"] for row in tree["seeds"]]
    assert greedy[0] == greedy[1]  # one warm start, no noise
    assert "sampled gain over 2 seeds" in shown
    for name in ("s0/report.html", "s1/report.html", "comparison.html", "seeds.md", "s0.log"):
        assert (Path("two") / name).exists()
    assert "growing" not in Path("two/s0.log").read_text()
