"""Files of version 0.1.0, written before the packages moved, are read and continued.

`fixtures/run_of_0_1_0` is `heedful train echo --steps 3 --tasks 8 ...` on a tiny seedling, with `heedful gradients` and
`heedful audit` run on it, as of commit a2ba05f. Its last checkpoint is removed, so that a resume has a step to do.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import heedful
from heedful.report import write_report
from heedful.storage import read_gradients, read_scores

OLD = Path(__file__).parent / "fixtures" / "run_of_0_1_0"
REPAIRED = {"grounding/input_to_action"}
"""Metrics whose estimator was wrong in 0.1.0: their numbers differ on purpose."""
YOUNGER = {"policy/advantage_without_outcome", "signal/unpaid"}
"""Metrics that were added since: the steps after a resume have them."""


@pytest.fixture
def run(tmp_path: Path) -> heedful.Run:
    shutil.copytree(OLD, tmp_path / "run", ignore=shutil.ignore_patterns("audit"))
    return heedful.Run.open(tmp_path / "run")


def values(path: Path) -> list[dict[str, object]]:
    """The values by name of each line, times left out."""
    lines = [json.loads(line)["metrics"] for line in path.read_text().splitlines()]
    return [
        {
            name: metric["value"] if isinstance(metric, dict) else metric
            for name, metric in line.items()
            if not name.startswith("time/")
        }
        for line in lines
    ]


def test_an_older_run_is_opened_with_its_configuration_metrics_rollouts_and_verdict(run: heedful.Run) -> None:
    assert (run.config.env.name, run.config.steps, run.config.tasks, run.config.seed) == ("echo", 3, 8, 4)
    assert [round(float(metric.value or 0), 4) for _, metric in run.series("success/rate")] == [0.125, 0.3125, 0.0625]
    rollouts = run.rollouts(1)
    assert (rollouts.environment, len(rollouts.groups), len(rollouts.groups[0].trajectories)) == ("echo", 4, 4)
    assert {group.task.environment for group in rollouts.groups} == {"echo"}
    assert sum(t.outcome == 1.0 for group in rollouts.groups for t in group.trajectories) == 5
    assert run.verdict[0].startswith("Sampled success on 6 held-out tasks")
    assert read_scores(run.folder.scores(0)).scores_MN.shape == (16, 4)
    assert read_gradients(run.folder.gradients(3)).step == 3


def test_settings_that_are_given_up_since_are_passed_over(run: heedful.Run) -> None:
    written = json.loads(run.folder.config.read_text())
    written["diagnostics"]["alarms"]["sampler"] = 0.01
    run.folder.config.write_text(json.dumps(written))
    assert heedful.Run.open(run.path).config == run.config


def test_the_page_of_an_older_run_is_written_again(run: heedful.Run) -> None:
    page = write_report(run.folder).read_text(encoding="utf-8")
    assert run.verdict[0] in page


def test_an_older_run_is_resumed_from_its_checkpoint(run: heedful.Run) -> None:
    pytest.importorskip("torch")
    before = values(OLD / "metrics.jsonl")
    resumed = run.resume(show=False)
    assert resumed.outcome is not None
    assert (resumed.outcome.version, resumed.outcome.interrupted) == (3, False)
    after = values(resumed.folder.metrics)
    assert after[:2] == before[:2]
    assert after[2].keys() - YOUNGER <= before[2].keys()
    assert after[2].keys() >= YOUNGER


def test_an_older_checkpoint_is_evaluated(run: heedful.Run) -> None:
    pytest.importorskip("torch")
    found = {metric.name: metric for metric in heedful.evaluate(run.path, show=False).metrics}
    assert found["eval/val/sampled/success"].n == 12


def test_an_audit_of_older_rollouts_gives_the_same_numbers_unless_repaired(run: heedful.Run, tmp_path: Path) -> None:
    audit = heedful.audit(run.path, out=tmp_path / "audit", show=False)
    now, then = values(audit.path / "metrics.jsonl"), values(OLD / "audit" / "metrics.jsonl")
    assert len(now) == len(then)
    for line, old in zip(now, then, strict=True):
        assert line.keys() - YOUNGER <= old.keys()  # readings that are given up since are missing
        assert len(line) > 0.8 * len(old)
        assert {name: old[name] for name in line if name not in REPAIRED | YOUNGER} == {
            name: value for name, value in line.items() if name not in REPAIRED | YOUNGER
        }
