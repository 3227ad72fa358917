"""TRL's completions with heedful's columns: hand-written rows, the oddities of TRL's log among them.

Two groups of three: rewards 1, 0, 1 and 0, 0, 0; the second group was dropped as constant.
"""

import json
from pathlib import Path
from typing import Any

import foreign_logs as logs
import pytest
from audit_watching import Witness, by_step, read
from foreign_logs import numbered_rows

from heedful.auditing import AuditSettings, audit, measure_log, open_log
from heedful.auditing.follow import follow
from heedful.auditing.settings import OwnRun
from heedful.auditing.steps import LoggedStep
from heedful.storage import read_metrics, write_rollouts
from heedful.types import Ending, Group, Prompt, Reply, Span, Task, Trajectory, Turn, Verdict

CONFIG: dict[str, Any] = {
    "env": {"type": "trl"},
    "steps": 5,
    "algorithm": {"type": "dapo"},
    "filter": {"type": "DropConstant", "on": "reward"},
    "tags": {"open": "<think>", "close": "</think>"},
    "seed": 7,
    "reward_weights": {"accuracy": 2.0, "format": 0.5},
    "unknown": {"format/valid_rate": "TRL does not say"},
}


def evaluated(step: int) -> list[logs.Row]:
    """TRL logs the rows of an evaluation among the others; heedful leaves its columns empty."""
    columns = ("id", "task", "reason", "reward", "outcome", "progress", "thought")
    return [{**row, **{f"heedful_{name}": None for name in columns}} for row in logs.trl_rows(step)]


def write_log(folder: Path, *files: list[logs.Row], config: dict[str, Any] | None = CONFIG) -> Path:
    for number, content in enumerate(files, start=1):
        logs.write_lines(folder / "completions" / f"completions_{number:05d}.jsonl", content)
    if config is not None:
        (folder / "heedful").mkdir(exist_ok=True)
        (folder / "heedful" / "config.json").write_text(json.dumps(config))
    return folder / "completions"


def episodes(steps: list[LoggedStep]) -> list[int]:
    return [step.episodes for step in steps]


def test_groups_verdicts_rewards_and_success_are_those_of_the_columns(tmp_path: Path, witness: Witness) -> None:
    same = [{**row, "prompt": "one prompt for both groups"} for row in numbered_rows(1, 0)]
    log, steps, faults = read(write_log(tmp_path, same))
    assert (log.format, log.on, log.seed, faults.count) == ("numbered completions", "reward", 7, 0)
    assert [[member.reward for member in group.trajectories] for group in steps[0].groups] == [
        [2.25, 0.25, 2.25],
        [0.25, 0.25, 0.25],
    ]
    assert [group.task.id for group in steps[0].groups] == ["prompt-0", "prompt-1"]
    assert steps[0].verdicts == (Verdict(1.0, "kept", None), Verdict(0.0, "constant", None))
    log = open_log(tmp_path, AuditSettings())
    found = by_step(measure_log(log, AuditSettings(), tmp_path / "out", [witness]))[0]
    assert found["success/rate"].value == pytest.approx(1 / 3)
    assert found["reward/accuracy"].value == pytest.approx(2 / 3)  # weighted, as the run weighs it
    assert found["filter/kept_ratio"].value == 0.5
    assert found["filter/dropped/constant"].value == 1.0
    assert found["signal/reward_variance"].value == pytest.approx((4 / 3) / 2)
    for name in ("format/closed_rate", "format/valid_rate", "length/turns", "length/response_tokens"):
        assert found[name].value is None
        assert found[name].why
    assert found["format/valid_rate"].why == "TRL does not say"  # the run's own reason


def test_scalars_are_joined_to_the_generation_batch_of_their_update(tmp_path: Path) -> None:
    """TRL counts updates from 1, and an evaluation at a step is no sign that the rows of a batch are its own."""
    log = write_log(tmp_path, *(numbered_rows(step + 1, step) for step in range(3)))
    entries = [{"step": step + 1, "reward": 1.25 + step, "eval_reward": 1.25} for step in range(3)]
    state = tmp_path / "trainer_state.json"
    state.write_text(json.dumps({"log_history": [{"step": 0, "eval_reward": 0.5}, *entries]}))
    found = audit(log, scalars=[state], out=tmp_path / "audit", show=False)
    lines = {line.step: line.metrics for line in read_metrics(found.path / "metrics.jsonl")}
    assert {step: line["trainer/reward"].value for step, line in lines.items()} == {0: 1.25, 1: 2.25, 2: 3.25}
    assert all("reward/mean" in line for line in lines.values())
    watched = follow(log, AuditSettings(), scalars=[state], out=tmp_path / "watch", once=True)
    assert (watched / "metrics.jsonl").read_bytes() == (found.path / "metrics.jsonl").read_bytes()


def test_weights_that_do_not_explain_the_reward_are_not_used(tmp_path: Path) -> None:
    _, steps, _ = read(write_log(tmp_path, numbered_rows(1, 0), config=CONFIG | {"reward_weights": {"accuracy": 1.0}}))
    assert steps[0].groups[0].trajectories[0].turns[0].rewards == {"heedful_reward": 2.25}
    _, steps, _ = read(write_log(tmp_path / "alone", numbered_rows(1, 0), config=None))
    assert steps[0].groups[0].trajectories[0].turns[0].rewards == {"heedful_reward": 2.25}


def test_a_batch_that_was_logged_twice_counts_once_and_evaluations_not_at_all(tmp_path: Path) -> None:
    log = write_log(tmp_path, numbered_rows(1, 0), numbered_rows(2, 0)[3:] + evaluated(2)[:3], numbered_rows(3, 1))
    _, steps, faults = read(log)
    assert ([step.number for step in steps], episodes(steps)) == ([0, 1], [6, 6])
    assert faults.count == 0
    assert dict(faults.aside) == {"of batches that were logged before": 3, "of evaluations": 3}


def test_a_batch_whose_first_rows_an_evaluation_pushed_out_is_left_out_and_counted(tmp_path: Path) -> None:
    log = write_log(tmp_path, numbered_rows(1, 0), numbered_rows(2, 1)[4:] + evaluated(2)[:4], numbered_rows(3, 2))
    _, steps, faults = read(log)
    assert ([step.number for step in steps], episodes(steps)) == ([0, 2], [6, 6])
    assert faults.count == 2
    assert "expected generation batch 1 from its first completion, found 1/1 first" in str(faults.kept[0])


def test_the_thought_is_the_text_at_its_place_and_nothing_of_what_follows(tmp_path: Path) -> None:
    told = numbered_rows(1, 0)
    said = "plan up\n<answer>up</answer>board 2<think>plan down</think>"
    told[0] |= {"completion": said, "heedful_thought": "0:7"}  # cut off before its end
    told[1] |= {"completion": "lost", "heedful_thought": "=go <bell> on"}  # a special token that TRL dropped
    told[2] |= {"heedful_thought": ""}  # it never began to think
    told[3] |= {"prompt": "begin <think>\n", "completion": "x y</think> z", "heedful_thought": "0:3"}
    told[4] |= {"completion": [{"role": "tool", "content": "1"}, {"role": "assistant", "content": "a b"}]}
    told[4] |= {"heedful_thought": "2:3"}
    told[5] |= {"heedful_thought": "0:999"}
    log, steps, faults = read(write_log(tmp_path, told))
    texts = [member.turns[0].reply.text for group in steps[0].groups for member in group.trajectories]
    assert texts == ["<think>plan up", "<think>go <bell> on</think>", "", "<think>\nx y</think>", "<think>b"]
    reply = steps[0].groups[1].trajectories[0].turns[0].reply
    assert log.tags.split(reply) == ("begin <think>\n", "x y</think>")
    assert "a place in the completion (54 characters)" in str(faults.kept[0])


def test_what_the_filter_looked_at_and_the_log_does_not_hold_leaves_the_spread_unknown(
    tmp_path: Path, witness: Witness
) -> None:
    chosen = {"filter": {"on": "solved"}, "reward_weights": {}}  # a component of one of heedful's environments
    log = open_log(write_log(tmp_path, numbered_rows(1, 0), config=CONFIG | chosen), AuditSettings())
    found = by_step(measure_log(log, AuditSettings(), tmp_path / "out", [witness]))[0]
    assert found["signal/mixed"].value is None
    assert "the filter looked at solved" in found["signal/mixed"].why
    assert found["filter/kept_ratio"].value == 0.5


def test_the_last_record_in_an_output_folder_is_the_run_of_its_completions(tmp_path: Path) -> None:
    log = write_log(tmp_path, numbered_rows(1, 0))
    (tmp_path / "heedful-2").mkdir()
    (tmp_path / "heedful-2" / "config.json").write_text(json.dumps(CONFIG | {"seed": 8}))
    assert open_log(log, AuditSettings()).seed == 8
    assert open_log(tmp_path, AuditSettings()).seed == 8
    assert open_log(log / "completions_00001.jsonl", AuditSettings()).seed == 8


def test_the_checkpoints_of_a_watched_run_are_those_that_name_its_record(tmp_path: Path) -> None:
    write_log(tmp_path, numbered_rows(1, 0))
    run = OwnRun.of(tmp_path / "heedful")
    assert run is not None
    (tmp_path / "checkpoint-12").mkdir()
    assert run.version_of(str(tmp_path / "checkpoint-12")) is None  # saved by a run without heedful
    (tmp_path / "checkpoint-12" / "heedful.json").write_text('{"folder": "heedful"}')
    assert run.version_of(str(tmp_path / "checkpoint-12")) == 12
    (tmp_path / "checkpoint-12" / "heedful.json").write_text('{"folder": "heedful-2"}')
    assert run.version_of(str(tmp_path / "checkpoint-12")) is None


def test_an_unknown_success_in_a_record_stays_unknown_with_its_reason(tmp_path: Path, witness: Witness) -> None:
    task = Task("prompt-1", 0, "train")
    reply = Reply(Prompt("p", (1,)), (2, 3), "a b", (), (), Span(0, 2), Span(2, 2), closed=False, cut=False)
    members = tuple(
        Trajectory(task, member, (Turn(reply, {"accuracy": reward}, (), True, "", ""),), Ending.FAILED, outcome)
        for member, (reward, outcome) in enumerate([(1.0, 1.0), (0.0, float("nan"))])
    )
    record = tmp_path / "heedful"
    write_rollouts(record / "rollouts" / "step_000000.parquet", 0, "train", [Group(task, members)], None)
    (record / "config.json").write_text(json.dumps(CONFIG | {"unknown": {"success/rate": "nobody said it"}}))
    found = by_step(measure_log(open_log(record, AuditSettings()), AuditSettings(), tmp_path / "out", [witness]))[0]
    assert (found["reward/mean"].value, found["reward/mean"].n) == (0.5, 2)  # both were scored
    assert (found["success/rate"].value, found["success/rate"].why) == (None, "nobody said it")
    assert found["success/any_of_group"].value == 1.0
    named = AuditSettings(success="outcome")
    found = by_step(measure_log(open_log(record, named), named, tmp_path / "named", [witness]))[0]
    assert (found["success/rate"].value, found["success/rate"].n) == (1.0, 1)  # the user knows better
