"""What an alarm does to a run: told once, recorded at every step, and with --on-collapse stop the end of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from test_loop import assert_the_same_run, command, trained, without_time

from heedful import cli
from heedful.algorithms.entropy_control import EntropyTarget
from heedful.algorithms.table import Grpo
from heedful.diagnostics.alarms.conditions import Beyond, Rule
from heedful.diagnostics.alarms.rules import AlarmConfig
from heedful.run import checkpoint
from heedful.run.config import DiagnosticsConfig, EvaluationConfig, TrainConfig

QUICK: dict[str, Any] = {"evaluation": EvaluationConfig(times=0), "diagnostics": DiagnosticsConfig(enabled=False)}


@pytest.fixture
def collapsing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two rules that a short run meets for certain: a collapse from step 2 on, a warning from step 1 on."""

    def rules(config: AlarmConfig) -> Sequence[Rule]:
        def entropy(count: int) -> Beyond:
            return Beyond("policy/entropy_per_token", 1e-6, above=True, count=count)

        return (
            Rule("some_collapse", ((entropy(3),),), severity="collapse"),
            Rule("some_warning", ((entropy(2),),)),
        )

    monkeypatch.setattr("heedful.diagnostics.alarms.watch.standard_rules", rules)


def test_an_alarm_is_told_once_and_recorded_at_every_step(
    echo_run: TrainConfig, tmp_path: Path, collapsing: None
) -> None:
    run = trained(replace(echo_run, steps=5, **QUICK), tmp_path / "run")
    assert run.outcome.stopped_by == ()
    assert run.watch.values["alarm/some_collapse"] == [None, None, 1.0, 1.0, 1.0]
    told = [note for note in run.watch.notes if note.startswith("Alarm")]
    assert [note.split(":")[0] for note in told] == ["Alarm some_warning at step 1", "Alarm some_collapse at step 2"]
    line = json.loads((run.folder.metrics).read_text().splitlines()[2])
    assert line["metrics"]["alarm/some_collapse"]["why"].startswith(
        "policy/entropy_per_token is above 1e-06 since step 0"
    )


def test_a_collapse_stops_the_run_saved_and_it_goes_on_as_if_it_had_only_warned(
    echo_run: TrainConfig, tmp_path: Path, collapsing: None, capsys: pytest.CaptureFixture[str]
) -> None:
    stopping, out = replace(echo_run, on_collapse="stop"), tmp_path / "stopped"
    assert cli.run(command(stopping, out)) == 3
    shown = capsys.readouterr().out
    assert "Alarm some_collapse at step 2" in shown
    assert f"stopped after step 3 by some_collapse, saved; look at {out / 'report.html'}" in shown
    assert f"heedful train --resume {out}" in shown
    assert checkpoint.checkpoints(out / "checkpoints")[-1].version == 3
    assert [row["step"] for row in without_time(out)] == [0, 1, 2]
    assert "some_collapse" in (out / "report.html").read_text()
    assert not (out / "verdict.json").exists(), "the run is not over"

    assert cli.run(["train", "--resume", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "Alarm some_collapse at step" not in shown.partition("Verdict")[0], "it stands since before"
    assert "Alarms raised: some_warning at step 1, some_collapse at step 2." in shown
    assert cli.run(command(echo_run, tmp_path / "warned")) == 0
    assert_the_same_run(tmp_path / "warned", out)


def test_a_collapse_cuts_the_entropy_bonus_for_good_also_in_a_resumed_run(
    echo_run: TrainConfig, tmp_path: Path, collapsing: None
) -> None:
    bonus = replace(Grpo(entropy=0.05), entropy_control=EntropyTarget(nats=9.0, rate=0.01))  # it would rise for ever
    config = replace(echo_run, steps=5, algorithm=bonus, **QUICK)
    cutting = replace(config, on_collapse="cut", keep_checkpoints="all")
    whole = trained(cutting, tmp_path / "whole")
    found = whole.watch.values["policy/entropy_coefficient"]
    warned = trained(config, tmp_path / "warned").watch.values["policy/entropy_coefficient"]
    assert found[:3] == warned[:3]  # the alarm is raised at step 2
    assert found[3:] == [0.0, 0.0]
    assert min(warned) > 0
    told = [note for note in whole.watch.notes if note.startswith("The entropy bonus is off")]
    assert told == ["The entropy bonus is off from step 3 on, because of some_collapse."]
    saved = checkpoint.checkpoints(whole.folder.path / "checkpoints")[-2]
    rest = trained(cutting, tmp_path / "rest", saved)
    assert rest.watch.values["policy/entropy_coefficient"] == [0.0]
    assert without_time(rest.folder.path) == without_time(whole.folder.path)[4:]
    given = replace(cutting, algorithm=replace(bonus, entropy=0.02), steps=6)  # a coefficient that is typed is given
    coefficients = trained(given, tmp_path / "given", saved).watch.values["policy/entropy_coefficient"]
    assert 0.02 == coefficients[0] < coefficients[1]


def test_the_checkpoint_before_a_collapse_stays_among_those_around_to_the_end_of_the_run(
    echo_run: TrainConfig, tmp_path: Path, collapsing: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("heedful.run.loop.before_change", lambda step, evidence: step)  # of a change at this step
    config = replace(echo_run, steps=9, checkpoint_every=1, keep_checkpoints="around", **QUICK)
    kept = checkpoint.checkpoints(trained(config, tmp_path / "run").folder.path / "checkpoints")
    assert [each.version for each in kept] == [2, 4, 6, 8, 9]  # without a collapse all but 2
    rest = trained(replace(config, steps=10), tmp_path / "rest", kept[-1])
    assert checkpoint.checkpoints(rest.folder.path / "checkpoints")[-1].state()["pinned"] == {"some_collapse": 2}


def test_to_cut_a_bonus_that_is_not_there_is_refused(echo_run: TrainConfig) -> None:
    with pytest.raises(ValueError, match=r"on_collapse cut takes the entropy bonus away, and there is none"):
        replace(echo_run, on_collapse="cut")
