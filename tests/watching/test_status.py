"""The files that a watch keeps up to date: STATUS.md, status.json and the live page."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from watched import BROKEN, RUNAWAY, Clock, Run

from heedful.diagnostics.alarms.watch import Alarm
from heedful.report import write_report
from heedful.storage.trackers import JsonlTracker
from heedful.types import Metric
from heedful.watching.sinks import Pending
from heedful.watching.status import PAGE, Pace, Status, last_checkpoint

SPIKE = Alarm("gradient_spike", 2, "one norm was 9", "Look at the batch.", "notice")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def run(tmp_path: Path, clock: Clock) -> Run:
    return Run(tmp_path / "watch", [Status(tmp_path / "completions", clock)])


def status(run: Run) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run.folder / "status.json").read_text())
    return found


def test_the_status_says_step_figures_and_the_best_validation(run: Run, clock: Clock) -> None:
    for step, score in enumerate((0.25, 0.75, 0.5)):
        run.step(step, trainer_validation=score, trainer_reward=float(step))
    clock.now += 10
    run.sinks[0].pending(Pending(4.0, 2.0, "", 3))
    found = status(run)
    assert (found["schema"], found["step"], found["open_step"], found["age"], found["health"]) == (
        1,
        2,
        3,
        4,
        "healthy",
    )
    assert found["best_validation"] == {"step": 1, "value": 0.75}
    assert found["figures"]["trainer/reward"] == {"words": "reward, as the trainer says", "first": 0.0, "last": 2.0}


@pytest.mark.parametrize(
    ("alarms", "stalled", "health"),
    [
        ((SPIKE,), "", "healthy"),
        ((RUNAWAY,), "", "warning"),
        ((RUNAWAY, BROKEN), "No line for 12 min.", "collapse"),
        ((RUNAWAY,), "No line for 12 min.", "stalled"),
    ],
)
def test_health_is_the_worst_of_what_stands(
    alarms: tuple[Alarm, ...], stalled: str, health: str, run: Run, clock: Clock
) -> None:
    run.step(7, *alarms)
    clock.now += 10
    run.sinks[0].pending(Pending(1.0, stalled=stalled))
    assert status(run)["health"] == health


def test_an_alarm_that_is_over_stays_listed_and_does_not_make_a_run_ill(run: Run) -> None:
    run.step(6, RUNAWAY)
    assert status(run)["health"] == "warning"
    run.standing.clear()
    run.step(7, alarm_kl_runaway=0.0)
    run.sinks[0].end("")
    (alarm,) = status(run)["alarms"]
    assert (alarm["name"], alarm["step"], alarm["standing"], status(run)["health"]) == (
        "kl_runaway",
        6,
        False,
        "healthy",
    )


def test_both_files_tell_an_alarm_its_cause_and_the_checkpoint_before_it(run: Run, tmp_path: Path) -> None:
    for name in ("checkpoint-2", "checkpoint-5", "checkpoint-6"):
        (tmp_path / name).mkdir()
    run.step(6, RUNAWAY)
    found = status(run)
    assert found["checkpoint"] == str(tmp_path / "checkpoint-5")
    assert (found["causes"][0]["alarm"], found["causes"][0]["name"]) == ("kl_runaway", "rate")
    page = (run.folder / "STATUS.md").read_text()
    assert f"# {tmp_path.name}/completions: warning" in page
    assert "- **kl_runaway** (warning, since step 6): trainer/kl is 4 times as large." in page
    assert str(tmp_path / "checkpoint-5") in page
    assert [line[:3] for line in page.splitlines() if "Try:" in line] == ["1. ", "2. ", "3. "]


def test_a_run_whose_words_cannot_be_judged_says_why(run: Run) -> None:
    few = Metric("text/judge_accuracy_8way", None, 8, why="needs at least 8 prompts, found 2")
    tracker = JsonlTracker(run.folder / "metrics.jsonl")
    tracker.write(0, [few])
    run.step(1, trainer_reward=0.5)
    assert status(run)["notes"] == [
        "The alarm words_uninformed is not judged: needs at least 8 prompts, found 2. `--join N` reads N steps as one."
    ]
    tracker.write(2, [replace(few, value=0.5)])
    tracker.close()
    run.sinks[0].end("")
    assert status(run)["notes"] == []


def test_before_the_first_step_a_run_that_stands_still_has_a_status(run: Run) -> None:
    run.sinks[0].pending(Pending(900.0, stalled="No line for 15 min."))
    assert (status(run)["step"], status(run)["health"]) == (None, "stalled")
    assert status(run)["causes"][0]["name"] == "ended"
    page = (run.folder / "STATUS.md").read_text()
    assert "No step is closed yet, last line 15m00s before" in page
    assert "| first |" not in page


def test_a_status_that_does_not_change_is_written_twice_a_minute(run: Run, clock: Clock) -> None:
    run.step(1)
    times = set()
    for _ in range(60):
        clock.now += 1
        run.sinks[0].pending(Pending(1.0))
        times.add(status(run)["time"])
    assert times == {1000.0, 1030.0, 1060.0}


def test_the_live_page_loads_itself_again_and_shows_an_alarm_at_once(run: Run, clock: Clock) -> None:
    page = run.folder / "report.html"
    run.folder.mkdir()
    (run.folder / "verdict.json").write_text('{"sentences": ["All was well."]}')  # of a watch before this one
    run.step(1, trainer_reward=1.0)
    assert "All was well." not in page.read_text()
    refreshing = f'<meta http-equiv="refresh" content="{PAGE}">'
    assert refreshing in page.read_text()
    before = page.read_bytes()
    clock.now += PAGE - 1
    run.step(2, trainer_reward=2.0)
    assert page.read_bytes() == before  # not before its time, unless an alarm is raised
    run.step(3, RUNAWAY)
    assert "kl_runaway" in page.read_text()
    assert refreshing not in write_report(run.folder).read_text()


def test_what_takes_long_to_write_is_written_seldom(clock: Clock) -> None:
    def slow() -> None:
        clock.now += 10

    pace = Pace(30.0, clock)
    pace.run(slow)
    clock.now += 499
    assert not pace.due()
    clock.now += 1
    assert pace.due()


def test_checkpoints_are_found_where_trainers_put_them_and_rollouts_are_none(tmp_path: Path) -> None:
    for name in ("rollouts/step_9", "weights/step_4", "checkpoints/global_step_6", "logs/a"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "metrics.jsonl").touch()
    assert last_checkpoint(tmp_path / "rollouts", 100) == str(tmp_path / "checkpoints/global_step_6")
    assert last_checkpoint(tmp_path / "metrics.jsonl", 6) == str(tmp_path / "weights/step_4")
    assert last_checkpoint(tmp_path, 4) is None
