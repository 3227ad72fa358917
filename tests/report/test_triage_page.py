"""The page's alarms and triage: what is raised, what taught nothing, and a sentence where there is nothing to show."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from heedful.diagnostics.task_triage import UNTOLD
from heedful.envs.common.helped import is_helped
from heedful.report import write_report
from heedful.report.outcome import Outcome, Raised
from heedful.report.record import read_run
from heedful.report.triage import triage_of
from heedful.storage import RunFolder, write_rollouts
from heedful.types import HELPED, Ending, Group, Task, Trajectory, Verdict

WHY = "success/rate fell from 0.8 (steps 0 to 3) to 0.4 [0.35, 0.45] since step 4, 6.0 standard errors"


def run_with(path: Path, *lines: dict[str, object]) -> RunFolder:
    path.mkdir()
    rows = ({"step": step, "time": 0.0, "metrics": readings} for step, readings in enumerate(lines))
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return RunFolder(path)


def alarm(name: str, *values: float | None) -> list[dict[str, object]]:
    return [
        {
            f"alarm/{name}": {
                "value": value,
                "why": "2 of the first 7 readings" if value is None else WHY if value else "",
            }
        }
        for value in values
    ]


def stored(run: RunFolder, step: int, *tasks: tuple[str, float, float]) -> None:
    """Groups of two with these outcomes; a task's tag is the first letter of its name, and `helped` where it is."""
    groups = []
    for name, *outcomes in tasks:
        task = Task(name, 0, "train", (name[0], *([HELPED] if is_helped(name) else [])))
        members = (Trajectory(task, i, (), Ending.FAILED, outcome) for i, outcome in enumerate(outcomes))
        groups.append(Group(task, tuple(members)))
    verdicts = [Verdict(float(len(set(outcomes)) > 1), "kept", 0.0) for _, *outcomes in tasks]
    write_rollouts(run.rollouts(step), step, "train", groups, verdicts, "lake")


def test_alarms_are_listed_with_when_they_stood_and_on_what_evidence(tmp_path: Path) -> None:
    first, late = alarm("noise_collapse", None, 0, 1, 1, 0, 0, 1), alarm("success_drop", None, 1, 0, 0, 1, 1, 1)
    quiet, unknown = alarm("oscillation", *[None, *[0] * 6]), alarm("reward_blind", *[None] * 7)
    lines = [a | b | c | d for a, b, c, d in zip(first, late, quiet, unknown, strict=True)]
    run = run_with(tmp_path / "run", *lines)
    outcome = Outcome.of(run.path)
    assert outcome.raised == (
        Raised("success_drop", "warning", 1, 6, WHY),
        Raised("noise_collapse", "collapse", 2, 6, WHY),
    )
    assert outcome.quiet == ["oscillation"]
    assert outcome.unknown == {"reward_blind": "2 of the first 7 readings"}
    page = write_report(run).read_text()
    assert '<th scope="row">success_drop</th><td>1 to 6</td>' in page
    assert '<th scope="row" class="flag">noise_collapse</th><td>2 to 6</td>' in page


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ((None, 0, 0), "No alarm was raised."),
        ((None, None), "No alarm had the values that it needs."),
        ((), "No alarm/"),
    ],
)
def test_a_page_without_alarms_says_so(tmp_path: Path, values: tuple[float | None, ...], sentence: str) -> None:
    lines = alarm("success_drop", *values) or [{"success/rate": 0.5}]
    page = write_report(run_with(tmp_path / "run", *lines)).read_text()
    assert sentence in page


def test_groups_are_counted_by_kind_and_by_tag_with_advice(tmp_path: Path) -> None:
    run = run_with(tmp_path / "run", *({"signal/mixed": 0.25, "signal/failed": 0.75} for _ in range(4)))
    for step in range(4):
        stored(run, step, ("hard", 0.0, 0.0), ("fit", 0.0, 1.0), ("grown", float(step > 1), 1.0))
    found = triage_of(read_run(run))
    assert found["tags"][0] == ("f", "4", ["100%", "0%", "0%", "0%"])
    kinds = "3 tasks were seen more than once. By all their visits: 1 mixed, 1 solved, 0 unpaid, 1 failed."
    spent = "3 tasks were played, effectively 3.0 of them alike. A task got 4.0 groups of 2 episodes, 8.0 episodes."
    assert found["notes"] == [UNTOLD, spent, kinds]
    assert [(row["cause"], row["early"], row["late"]) for row in found["causes"]] == [
        ("mixed", "25%", "25%"),
        ("failed", "75%", "75%"),
    ]
    assert "Nothing to imitate" in write_report(run).read_text()


def test_a_pool_of_tasks_says_what_a_choice_could_gain(tmp_path: Path) -> None:
    run = run_with(tmp_path / "run", {"signal/mixed": 1.0})
    for step in range(2):
        stored(run, step, *((f"task {number:02}", 0.0, float(number < 4)) for number in range(16)))
    assert "varies 4.00 [" in triage_of(read_run(run))["notes"][-1], "two of the four that vary, over all sixteen"


def test_a_pool_says_what_its_tasks_got(tmp_path: Path) -> None:
    run = run_with(tmp_path / "run", *[{"tokens/collect": 60.0, "filter/draws": n} for n in (1.0, 2.0)])
    stored(run, 0, ("often", 0.0, 1.0, 1.0, 1.0), ("once", 0.0, 0.0))
    stored(run, 1, ("often", 0.0, 1.0, 0.0), ("often", 1.0, 1.0))
    # Three groups and one: (3 + 1)^2 / (9 + 1). 11 episodes and 120 tokens over two tasks.
    assert triage_of(read_run(run))["notes"][1] == (
        "2 tasks were played, effectively 1.6 of them alike. A task got 2.0 groups of 2 to 4 (median 2.5) episodes, "
        "5.5 episodes and 60 sampled tokens. A step had 1.50 rounds."
    )


def test_groups_with_help_are_of_the_task_and_do_not_say_what_it_is(tmp_path: Path) -> None:
    run = run_with(tmp_path / "run", {"signal/mixed": 1.0})
    for step, hard in enumerate([("hard", 0.0, 0.0), ("hard+h2", 1.0, 1.0), ("hard+h1", 0.0, 1.0), ("hard", 0.0, 0.0)]):
        stored(run, step, hard, ("easy", 1.0, 1.0))
    assert triage_of(read_run(run))["notes"][1:] == [
        "2 tasks were played, effectively 2.0 of them alike. A task got 4.0 groups of 2 episodes, 8.0 episodes.",
        "2 tasks were seen more than once. By all their visits: 0 mixed, 1 solved, 0 unpaid, 1 failed.",
    ]


def test_without_rollouts_nothing_is_known_of_tasks(tmp_path: Path) -> None:
    run = run_with(tmp_path / "run", {"signal/mixed": 1.0})
    assert (
        triage_of(read_run(run))["notes"][-1]
        == "Task by task nothing is known. The run stored no rollouts (folder rollouts/)."
    )
