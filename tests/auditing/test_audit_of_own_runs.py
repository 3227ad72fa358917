"""An audit of our own run says what the run itself said, and its own checkpoint finds the training-time information."""

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from audit_watching import Witness, by_step, read

from heedful.auditing import AuditSettings, measure_log, open_log
from heedful.diagnostics.cross_scores.thoughts import observed
from heedful.storage import RunFolder, read_rollouts, rollout_rows, write_rollouts
from heedful.types import Ending, Group, Metric, Prompt, Reply, Span, Task, Trajectory, Turn

ENVIRONMENTS = ("signal/", "filter/", "reward/", "success/", "format/", "length/", "text/", "policy/entropy_per_token")
ENVIRONMENTS += (
    "grounding/strategy_entropy",
    "grounding/distinct",
    "grounding/oscillation",
    "grounding/input_to_action",
)
OF_THE_LOOP = {
    f"filter/{name}"
    for name in ("empty", "refill", "draws", "collected_groups", "starved_tasks", "longest_skip", "readmitted")
}
"""What stands in no rollout: how a batch was collected, and what became of it."""


def readable(metrics: dict[str, Metric]) -> dict[str, Metric]:
    return {name: metric for name, metric in metrics.items() if name.startswith(ENVIRONMENTS)}


def as_lines(run: Path, path: Path) -> Path:
    """A run's rollouts as one file of JSON lines, the documented plain form."""
    with path.open("w") as stream:
        for step in RunFolder(run).rollout_steps():
            rows: list[dict[str, Any]] = rollout_rows(read_rollouts(RunFolder(run).rollouts(step)))
            stream.writelines(json.dumps(row) + "\n" for row in rows)
    return path


def test_an_audit_of_a_run_equals_the_runs_own_measurements(own_run: Path, tmp_path: Path, witness: Witness) -> None:
    settings = AuditSettings()
    log = open_log(own_run, settings)
    folder = measure_log(log, settings, tmp_path / "out", [witness])
    measured, told = by_step(folder), by_step(own_run)
    assert witness.steps == [0, 1, 2]
    assert witness.read == log.files.size > 0
    for step in (0, 1, 2):
        mine, its = readable(measured[step]), readable(told[step])
        assert mine == {name: its[name] for name in mine}
        assert {"signal/mixed", "filter/kept_ratio", "policy/entropy_per_token", "reward/mean"} <= mine.keys()
        assert its.keys() - mine.keys() == OF_THE_LOOP


def test_the_same_rows_as_json_lines_give_the_same_readings(own_run: Path, tmp_path: Path, witness: Witness) -> None:
    path, settings = as_lines(own_run, tmp_path / "rollouts.jsonl"), AuditSettings(seed=5)  # no config.json beside it
    folder = measure_log(open_log(path, settings), settings, tmp_path / "out", [witness])
    told = by_step(own_run)
    for step, metrics in by_step(folder).items():
        mine = readable(metrics)
        assert mine == {name: told[step][name] for name in mine}


def test_rows_give_back_the_stored_episodes(own_run: Path) -> None:
    log, steps, _ = read(own_run)
    assert log.on == "outcome"
    for step in steps:
        stored = read_rollouts(RunFolder(own_run).rollouts(step.number))
        assert step.verdicts == stored.verdicts
        assert [group.task for group in step.groups] == [group.task for group in stored.groups]
        for mine, its in zip(step.groups, stored.groups, strict=True):
            for a, b in zip(mine.trajectories, its.trajectories, strict=True):
                assert (a.member, a.ending, a.outcome, a.progress, a.temperature, a.policy_version) == (
                    b.member,
                    b.ending,
                    b.outcome,
                    b.progress,
                    b.temperature,
                    b.policy_version,
                )
                for turn, other in zip(a.turns, b.turns, strict=True):
                    assert turn.rewards == other.rewards
                    for name in ("prompt", "ids", "text", "entropies", "thought", "answer", "closed", "cut"):
                        assert getattr(turn.reply, name) == getattr(other.reply, name)


def test_the_runs_checkpoint_finds_the_training_time_information(
    own_run: Path, tmp_path: Path, witness: Witness
) -> None:
    checkpoint = RunFolder(own_run).checkpoint(2)
    settings = AuditSettings(model=str(checkpoint), device="cpu")
    folder = measure_log(open_log(own_run, settings), settings, tmp_path / "out", [witness])
    measured, told = by_step(folder), by_step(own_run)
    compared = 0
    for name, metric in measured[2].items():
        if name.startswith(("information/", "retrieval/", "grounding/")) and "zscore_ema" not in name:
            other = told[2][name]
            assert (metric.value is None) == (other.value is None), name
            if metric.value is not None:
                assert metric.value == pytest.approx(other.value, abs=1e-4), name
                compared += metric.value != 0
    assert compared > 20
    assert measured[2]["information/first_turn/mi"].n == 24
    assert measured[2]["retrieval/first_turn/p_value"].value == told[2]["retrieval/first_turn/p_value"].value
    assert not any(name.startswith("information@") for name in measured[2])
    # The weights of step 2 did not sample the earlier steps.
    assert "information@step_000002/first_turn/mi" in measured[1]
    assert "grounding@step_000002/thought_influence" in measured[1]
    assert not any(name.startswith("information/") for name in measured[1])
    assert RunFolder(folder).score_steps() == [0, 1, 2]


def test_text_alone_gives_the_information_of_the_ids_where_it_round_trips(
    own_run: Path, tmp_path: Path, witness: Witness
) -> None:
    """The seedling's sampled thoughts are almost all tokenised as its tokenizer would, so little is lost."""
    path = tmp_path / "texts.jsonl"
    keep = ("step", "new_prompt_text", "reply_text", "reward", "outcome", "closed", "temperature")
    with path.open("w") as stream:
        for step in RunFolder(own_run).rollout_steps():
            rows = pyarrow.parquet.read_table(RunFolder(own_run).rollouts(step)).to_pylist()
            stream.writelines(json.dumps({name: row[name] for name in keep}) + "\n" for row in rows)
    settings = AuditSettings(model=str(RunFolder(own_run).checkpoint(2)), device="cpu", tags=("<think>", "</think>"))
    folder = measure_log(open_log(path, settings), settings, tmp_path / "out", [witness])
    told, measured = by_step(own_run)[2], by_step(folder)[2]
    mine = measured["information@step_000002/first_turn_closed/mi"]
    assert mine.value == pytest.approx(told["information/first_turn_closed/mi"].value, abs=0.05)
    lengths = measured["length/reasoning_tokens"]
    assert lengths.value == pytest.approx(told["length/reasoning_tokens"].value, rel=0.1)
    record = json.loads((folder / "audit.json").read_text())
    assert any("tokenised from text by step_000002" in sentence for sentence in record["assumed"])


def test_windows_of_history_are_read_as_they_were_sampled(tmp_path: Path) -> None:
    task, spans = Task("lake-0123456789abcdef", 0, "train"), (Span(0, 2), Span(2, 3))
    prompts = Prompt("a", (7,)), Prompt("b c", (20, 3, 4, 30), restarts=True, history=3)
    replies = [Reply(prompt, (3, 4), "x", (), (0.5, 0.5), *spans, True, False) for prompt in prompts]
    turns = tuple(Turn(reply, {"r": 1.0}, (), True, "", "") for reply in replies)
    members = tuple(Trajectory(task, member, turns, Ending.SOLVED, 1.0) for member in range(2))
    write_rollouts(tmp_path / "step_000000.parquet", 0, "train", [Group(task, members)], None)
    _, steps, faults = read(tmp_path)
    assert faults.count == 0
    for trajectory in steps[0].groups[0].trajectories:
        assert tuple(turn.reply.prompt for turn in trajectory.turns) == prompts
        assert trajectory.context_ids(1) == (20, 3, 4, 30)
        assert observed(trajectory, 1) == ((20, 3, 4), (30,))


def test_an_audit_of_a_run_with_an_unreadable_configuration_does_not_guess_its_tags(
    own_run: Path, tmp_path: Path
) -> None:
    rollouts = shutil.copytree(RunFolder(own_run).rollouts(0).parent, tmp_path / "run" / "rollouts")
    assert open_log(rollouts, AuditSettings()).own is None
    RunFolder(tmp_path / "run").config.write_text('{"env"')
    with pytest.raises(ValueError, match=r"Expected JSON in \S+config\.json, found .* Restore the file"):
        open_log(rollouts, AuditSettings())


def test_a_folder_of_heedful_without_episodes_is_named_as_what_it_is(own_run: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(own_run, tmp_path / "run"))
    shutil.rmtree(run / "rollouts")
    with pytest.raises(ValueError, match=r"found a run without stored episodes: it kept none.*--keep-rollouts all"):
        open_log(run, AuditSettings())
    for name, told in (("evaluation.json", "an evaluation without finished episodes"), ("audit.json", "an audit")):
        folder = tmp_path / name.removesuffix(".json")
        folder.mkdir()
        (folder / name).write_text('{\n "a": 1\n}\n')
        with pytest.raises(ValueError, match=f"Expected a log in {folder}, found {told}"):
            open_log(folder, AuditSettings())
