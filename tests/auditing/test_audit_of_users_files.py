"""What users' own files hold: sparse success, thoughts apart, groups by name, nested folders, late columns, lost tags.

Each log is the usual six episodes of two prompts (see `foreign_logs`), written in one of the ways of public reports.
"""

import copy
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import foreign_logs as logs
import pytest
from audit_watching import by_step, read

from heedful import cli
from heedful.auditing import AuditSettings
from heedful.auditing.steps import LoggedStep
from heedful.types import Metric

Rows = list[logs.Row]


def audited(
    log: Path, capsys: pytest.CaptureFixture[str], *more: str
) -> tuple[dict[int, dict[str, Metric]], str, list[str]]:
    """The readings of `heedful audit LOG` by step, what it printed, and its verdict."""
    out = log.parent / "audited"
    assert cli.run(["audit", str(log), "--out", str(out), *more]) == 0
    return by_step(out), capsys.readouterr().out, json.loads((out / "verdict.json").read_text())["sentences"]


def sizes(step: LoggedStep) -> list[int]:
    return [len(group.trajectories) for group in step.groups]


# Success is a mask of its own -----------------------------------------------------------------------------------------


def without(path: str) -> Callable[[logs.Row], None]:
    """Removes what is at a path like `metadata.x`."""

    def remove(row: Any) -> None:
        *above, last = path.split(".")
        for name in above:
            row = row[int(name) if isinstance(row, list) else name]
        del row[last]

    return remove


SPARSE: dict[str, tuple[Rows, Callable[[logs.Row], None]]] = {
    "TRL": ([{**row, "solved": row["accuracy"] == 1} for row in logs.trl_rows(1)], without("solved")),
    "by hand": (
        [{"prompt": r["prompt"], "completion": r["completion"], "reward": r["accuracy"], "success": r["accuracy"]}
         for r in logs.trl_rows(1)],
        without("success"),
    ),
    "verl": (logs.verl_rows(1), without("acc")),
    "verl, keyed": ([{**row, "acc": row["score"]} for row in logs.keyed_verl_rows(1)], without("acc")),
    "RAGEN": (logs.ragen_rows(), without("metadata.CoordSokoban/success")),
    "traces": (logs.trace_rows(), without("traces.0.metrics.correct")),
    "results": ([{**row, "metrics": {"correct": row["reward"]}} for row in logs.result_rows()],
                without("metrics.correct")),
    "own": (logs.plain_rows(), without("success")),
    "numbered": (logs.numbered_rows(1, 1), lambda row: row.update(heedful_outcome=None)),
}  # fmt: skip


@pytest.mark.parametrize("kind", SPARSE)
def test_rows_without_success_keep_their_reward_and_their_spread(tmp_path: Path, kind: str) -> None:
    rows, remove = SPARSE[kind]
    log = logs.write_lines(tmp_path / "whole" / "1.jsonl", rows)
    sparse = copy.deepcopy(rows)
    for row in sparse[-3 if "pad" not in str(rows[-1]) else -5 :]:
        remove(row)
    _, (whole,), _ = read(log)
    _, (step,), faults = read(logs.write_lines(tmp_path / "sparse" / "1.jsonl", sparse))
    assert faults.count == 0
    members = [member for group in step.groups for member in group.trajectories]
    assert [member.reward for member in members] == [m.reward for group in whole.groups for m in group.trajectories]
    assert [member.success for member in members] == [True, False, True, None, None, None]


@pytest.mark.parametrize("said", [("True", "False"), ("true", "false"), (1, 0), ("1", "0.0")])
@pytest.mark.parametrize("missing", [None, "", "nan", "None", "N/A"])
def test_success_may_be_written_as_text(tmp_path: Path, said: tuple[object, object], missing: object) -> None:
    rows = [{**row, "acc": said[0] if row["acc"] else said[1]} for row in logs.verl_rows(1)]
    rows[5]["acc"] = missing
    _, (step,), faults = read(logs.write_lines(tmp_path / "1.jsonl", rows))
    assert (faults.count, [m.success for m in step.groups[0].trajectories]) == (0, [True, False, True])
    assert step.groups[1].trajectories[2].success is None


def test_a_group_whose_success_is_unknown_is_called_neither_solved_nor_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = logs.verl_rows(1)
    for row in rows[3:]:
        del row["acc"]
    found = audited(logs.write_lines(tmp_path / "1.jsonl", rows), capsys)[0][1]
    assert (found["signal/mixed"].value, found["reward/mean"].n, found["success/rate"].n) == (0.5, 6, 3)
    assert (found["signal/failed"].value, found["signal/solved"].value) == (None, None)
    assert found["signal/failed"].why == "success is unknown in 1 of the groups without spread"


# Thoughts -------------------------------------------------------------------------------------------------------------

THOUGHTS: dict[str, logs.Row] = {
    "tags": {"content": "<think>hm</think>so"},
    "reasoning_content": {"content": "so", "reasoning_content": "hm"},
    "reasoning": {"content": "so", "reasoning": "hm", "reasoning_details": [{"type": "reasoning.text", "text": "hm"}]},
    "thinking": {"content": "so", "thinking": "hm", "reasoning_content": None},
    "details": {"content": "so", "reasoning": "", "reasoning_details": [{"type": "reasoning.text", "text": "hm"}]},
    "summary of details": {"content": "so", "reasoning_details": [{"type": "reasoning.summary", "summary": "hm"}]},
    "thinking part": {"content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "so"}]},
    "reasoning part": {"content": [{"type": "reasoning", "text": "hm"}, {"type": "text", "text": "so"}]},
    "summary part": {
        "content": [
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
            {"type": "output_text", "text": "so"},
        ]
    },
    "blocks": {"content": "so", "thinking_blocks": [{"type": "thinking", "thinking": "hm", "signature": "s"}]},
    "an object": {"content": "so", "reasoning": {"effort": "high", "content": "hm"}},
    "part that is a thought": {"content": [{"text": "hm", "thought": True}, {"text": "so"}]},
    "think part": {"content": [{"type": "think", "think": "hm"}, "so"]},
    "both": {"content": "<think>hm</think>so", "reasoning_content": "hm"},
}


@pytest.mark.parametrize("way", THOUGHTS)
def test_a_thought_is_found_wherever_its_message_holds_it(tmp_path: Path, way: str) -> None:
    said, asked = {"role": "assistant", **THOUGHTS[way]}, {"role": "user", "content": "go"}
    nodes = [{"message": asked}, {"parent": 0, "sampled": True, "message": said}]
    kinds: dict[str, logs.Row] = {
        "TRL": {"prompt": [asked], "completion": [said]},
        "RAGEN": {"messages": [asked, said], "metadata": {"group_id": 1, "total_reward": 1.0}},
        "traces": {"task": {}, "traces": [{"nodes": nodes, "rewards": {"a": 1.0}}]},
        "results": {"example_id": 1, "prompt": [asked], "completion": [said], "reward": 1.0},
        "messages": {"messages": [asked, said], "reward": 1.0},
    }
    for kind, row in kinds.items():
        log, (step,), faults = read(logs.write_lines(tmp_path / f"{kind}.jsonl", [row]))
        reply = step.groups[0].trajectories[0].turns[0].reply
        assert (faults.count, reply.text, reply.closed) == (0, "<think>hm</think>so", True), kind
        assert "no text are not read" not in " ".join(log.reader.knowledge.assumed)


def test_parts_that_call_a_tool_and_bring_its_result_keep_their_words(tmp_path: Path) -> None:
    call = {"type": "tool_use", "id": "t1", "name": "search", "input": {"query": "north"}, "text": None}
    back = {"type": "tool_result", "tool_use_id": "t1", "content": "it is cold"}
    roles = ("user", "assistant", "user", "assistant")
    contents = ("go", [{"type": "thinking", "thinking": "hm"}, call], [back], "so")
    rows = [{"messages": [{"role": r, "content": c} for r, c in zip(roles, contents, strict=True)], "reward": 1.0}]
    _, (step,), _ = read(logs.write_lines(tmp_path / "a.jsonl", rows))
    first, second = step.groups[0].trajectories[0].turns
    assert first.reply.text.startswith('<think>hm</think>{"id": "t1", "input": {"query": "north"}, "name": "search"}')
    assert "it is cold" in second.reply.prompt.text


@pytest.mark.parametrize(
    "said",
    [{"content": None, "reasoning": "hm"}, {"content": "", "reasoning_content": "hm"},
     {"content": [{"type": "thinking", "thinking": "hm"}]}],
)  # fmt: skip
def test_a_thought_that_nothing_follows_was_cut_off(tmp_path: Path, said: logs.Row) -> None:
    row = {"messages": [{"role": "user", "content": "go"}, {"role": "assistant", **said}], "reward": 1.0}
    _, (step,), _ = read(logs.write_lines(tmp_path / "a.jsonl", [row]))
    reply = step.groups[0].trajectories[0].turns[0].reply
    assert (reply.text, reply.closed) == ("<think>hm", False)


@pytest.mark.parametrize(
    "row",
    [{"prompt": "go", "completion": "so"}, {"new_prompt_text": "go", "reply_text": "so"}],
)
@pytest.mark.parametrize("column", ["reasoning", "reasoning_content", "thought"])
def test_a_thought_may_be_a_column_beside_the_text(tmp_path: Path, row: logs.Row, column: str) -> None:
    for write, name in ((logs.write_lines, "a.jsonl"), (logs.write_parquet, "a.parquet")):
        log, (step,), _ = read(write(tmp_path / name, [{**row, column: "hm"}]))
        assert step.groups[0].trajectories[0].turns[0].reply.text == "<think>hm</think>so"
        assert f"Thoughts are read from {column}, where the text closes none." in log.reader.knowledge.found


@pytest.mark.parametrize("rows_of", [logs.verl_rows, logs.trl_rows, logs.plain_rows])
def test_the_reasoning_of_a_grader_is_no_thought(tmp_path: Path, rows_of: Callable[[int], Rows]) -> None:
    """One reply was cut before it closed its thought. verl writes what the reward function returned beside all."""
    rows = [{**row, "reasoning": "the student is right"} for row in rows_of(1)]
    said = next(name for name in ("output", "completion", "reply_text") if name in rows[0])
    cut = rows if said == "output" else rows[:1]
    for row in cut:
        row[said] = "<think>walk on"
    log, (step,), _ = read(logs.write_lines(tmp_path / "1.jsonl", rows))
    texts = [member.turns[0].reply.text for group in step.groups for member in group.trajectories]
    assert texts == [row[said] for row in rows]
    assert "Thoughts are read" not in " ".join(log.reader.knowledge.found)


# Groups ---------------------------------------------------------------------------------------------------------------


def with_column(rows: Rows, name: str, *values: object) -> Rows:
    return [{**row, name: value} for row, value in zip(rows, values, strict=True)]


ONE_TEXT = [{**row, "input": "look", "gts": ""} for row in logs.verl_rows(1)]
BY_HAND = [{"prompt": "look", "completion": row["output"], "reward": row["score"]} for row in ONE_TEXT]
TWO_SETS = [  # more rows of the first one than the reader looks at
    {"prompt": f"{kind} {at}", "completion": "so", "reward": 1.0, "id": at, "step": 1}
    for kind, count in (("math", 22), ("code", 2))
    for at in range(count)
    for _ in range(3)
]
PLAIN = [{**row, "new_prompt_text": "look"} for row in logs.plain_rows()]


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        (with_column(ONE_TEXT, "uid", *"aaabbb"), [3, 3]),
        (with_column(ONE_TEXT, "uid", *"abcdef"), [6]),  # each names a row
        (with_column(ONE_TEXT, "id", 1, 1, 1, 2, 2, 2), [3, 3]),
        (with_column(ONE_TEXT, "gts", *"334444"), [2, 4]),
        (with_column(ONE_TEXT, "gts", *"333344"), [4, 2]),
        (with_column(BY_HAND, "uid", *"ababab"), [3, 3]),
        (with_column(BY_HAND, "group", 1, 1, 1, 1, 2, 2), [4, 2]),
        (with_column(BY_HAND, "ground_truth", *"aaabbb"), [3, 3]),
        (with_column(BY_HAND, "target", *"aaabbb"), [3, 3]),
        (with_column(BY_HAND, "problem_id", 1, 1, 1, 2, 2, 2), [3, 3]),
        (with_column(PLAIN, "uid", *"aaabbb"), [3, 3]),
        (with_column(logs.verl_rows(1), "id", *"xxxxxx"), [3, 3]),  # names something else
        (TWO_SETS, [3] * 24),
        ([{**row, "task_id": "7", "environment": row["new_prompt_text"]} for row in logs.plain_rows()], [3, 3]),
        ([{**row, "task": kind} for kind in ("math", "code") for row in logs.result_rows()], [3] * 4),
    ],
)
def test_a_group_is_what_the_log_calls_one(tmp_path: Path, rows: Rows, found: list[int]) -> None:
    _, (step,), faults = read(logs.write_lines(tmp_path / "1.jsonl", rows))
    assert (faults.count, sizes(step)) == (0, found)


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        (with_column(ONE_TEXT, "gts", *"333444"), "were read as 1 more groups, one for each answer"),
        (with_column(ONE_TEXT, "gts", *"333345"), "Some prompts have several right answers"),
        (
            [{**row, "group": {"id": "a" if at > 1 else "b"}} for at, row in enumerate(logs.trace_rows(1))]
            + [{**row, "group": {"id": "a"}} for row in logs.trace_rows(2)[:2]],
            "Some groups go on in a later step",
        ),
        (
            [{**row, "input": f"12:0{at // 2} {row['input']}"} for at, row in enumerate(logs.verl_rows(1))],
            "Groups of equal prompts have 1 to 2 episodes.",
        ),
        ([{**row, "group": 1} for row in logs.verl_rows(1)], "Some groups have several first prompts."),
        (
            [{**row, "prompt": "look", "format": 0.0} for row in logs.trl_rows(1)],
            "the same rewards have different advantages: equal prompts hide several groups",
        ),
        (
            [{**row, "length": -1.0 - 2 * row["accuracy"]} for row in logs.trl_rows(1)],
            "The logged advantages do not follow the sum of these columns",
        ),
    ],
)
def test_what_contradicts_the_groups_by_text_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], rows: Rows, sentence: str
) -> None:
    assert sentence in audited(logs.write_lines(tmp_path / "1.jsonl", rows), capsys)[1]


# Folders --------------------------------------------------------------------------------------------------------------


def prime_run(folder: Path) -> Path:
    """Steps 9 to 11 as prime-rl writes them: two groups of three, of which the second has equal rewards and was not
    trained on. One episode was begun a step before. One more failed without a trace, and one with a part of it."""
    for step in (9, 10, 11):
        rows = logs.trace_rows(step)
        rows[0]["run"] = {"type": "train", "id": "r", "work": {"type": "train", "step": step - 1}}
        failed = {**rows[0], "ok": False, "traces": [], "errors": [{"type": "SandboxError"}]}
        cut = {**failed, "traces": [{**rows[0]["traces"][0], "ok": False, "rewards": {}}]}
        for kind, subset, held in (("train", "all", [*rows, failed, cut]), ("train", "effective", rows[:3]),
                                   ("eval", "all", rows), ("eval", "effective", rows)):  # fmt: skip
            logs.write_lines(folder / "rollouts" / f"step_{step}" / kind / subset / "traces.jsonl", held)
    return folder


@pytest.mark.parametrize(
    ("named", "steps", "failures"),
    [
        ("", {9: 6, 10: 6, 11: 6}, 3),
        ("rollouts", {9: 6, 10: 6, 11: 6}, 3),
        ("rollouts/step_10", {10: 6}, 1),
        ("rollouts/step_10/train", {10: 6}, 1),
        ("rollouts/step_10/train/all", {10: 6}, 1),
        ("rollouts/step_10/eval", {10: 6}, 0),
        ("rollouts/step_10/train/effective/traces.jsonl", {10: 3}, 0),
    ],
)
def test_nested_folders_of_steps_are_one_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], named: str, steps: dict[int, int], failures: int
) -> None:
    found, said, _ = audited(prime_run(tmp_path / "run") / named, capsys)
    assert {step: metrics["reward/mean"].n for step, metrics in found.items()} == steps
    for what in ("episodes that failed", "traces that ended"):
        assert (f"{failures} row{'' if failures == 1 else 's'} of {what}" in said) == bool(failures)


@pytest.mark.parametrize(
    "name",
    ["step_{}/train/traces.jsonl", "step_{}/train_rollouts.jsonl", "global_step_{}/a.jsonl",
     "step_{}/effective/e/a.jsonl", "step_{}/rank_0.jsonl", "global_step_{}/train/worker7.jsonl",
     "step{}_2025-11-03.jsonl", "step_{}_rank_0.jsonl"],
)  # fmt: skip
def test_the_step_is_in_the_name_of_a_folder_or_of_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    rows = [{key: value for key, value in row.items() if key != "step"} for row in logs.verl_rows(1)]
    for step in (2, 10):
        logs.write_lines(tmp_path / "log" / name.format(step), rows)
    logs.write_lines(tmp_path / "log" / "step_2" / "eval_rollouts.jsonl", rows)
    if "/" not in name:
        (tmp_path / "log" / "step_2" / "eval_rollouts.jsonl").unlink()
    assert {at: found["reward/mean"].n for at, found in audited(tmp_path / "log", capsys)[0].items()} == {2: 6, 10: 6}


@pytest.mark.parametrize(
    ("training", "evaluation", "apart"),
    [("{}.jsonl", "val_{}.jsonl", True), ("train_step_{}.jsonl", "eval_step_{}.jsonl", True),
     ("rollouts_train.jsonl", "rollouts_test.jsonl", True), ("metrics.jsonl", "val_{}.jsonl", False)],
)  # fmt: skip
def test_an_evaluation_beside_its_training_is_left_aside_and_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], training: str, evaluation: str, apart: bool
) -> None:
    """Beside scalars alone it is the log."""
    steps = (2, 10) if "{}" in evaluation else (2,)
    for step in steps:
        rows = logs.verl_rows(step) if apart else [{"step": step, "loss": 0.5}]
        logs.write_lines(tmp_path / "log" / training.format(step), rows)
        logs.write_lines(tmp_path / "log" / evaluation.format(step), logs.verl_rows(step)[:2])
    found, said, _ = audited(tmp_path / "log", capsys)
    assert {at: metrics["reward/mean"].n for at, metrics in found.items()} == dict.fromkeys(steps, 6 if apart else 2)
    aside = [name.format(step) for name in ([evaluation] if apart else [training]) for step in steps]
    assert f"Files beside the log that were not read: {', '.join(dict.fromkeys(aside))}." in said


@pytest.mark.parametrize("rows_of", [logs.plain_rows, logs.trl_rows, logs.verl_rows, logs.keyed_verl_rows])
@pytest.mark.parametrize(("column", "training", "evaluation"), [("split", "train", "val"), ("phase", "rl", "eval")])
def test_rows_that_call_themselves_those_of_an_evaluation_are_left_out(
    tmp_path: Path, rows_of: Callable[[int], Rows], column: str, training: str, evaluation: str
) -> None:
    """Whichever comes first, and however many. In a log of evaluations alone they are the log."""
    first = [{**row, column: evaluation} for row in rows_of(0) * 20]
    rows = [{**row, column: training} for row in rows_of(1)]
    for at, held in enumerate(([*first, *rows], [*rows, *first])):
        _, (step,), faults = read(logs.write_lines(tmp_path / f"{at}.jsonl", held))
        assert (step.number, sizes(step), faults.aside["of evaluations"]) == (1, [3, 3], len(first))
    _, (step,), faults = read(logs.write_lines(tmp_path / "eval.jsonl", first))
    assert (step.number, faults.aside["of evaluations"]) == (0, 0)


@pytest.mark.parametrize("failed", [{"traces": None}, {"traces": []}, {}])
def test_an_episode_without_a_trace_is_counted_and_no_fault(tmp_path: Path, failed: logs.Row) -> None:
    rows = logs.trace_rows(1)
    rows.append({key: value for key, value in rows[0].items() if key != "traces"} | failed)
    _, (step,), faults = read(logs.write_lines(tmp_path / "a.jsonl", rows))
    assert (step.episodes, faults.count, sum(faults.aside.values())) == (6, 0, 1)


def test_a_line_may_be_a_trace_alone_and_a_folder_name_its_step(tmp_path: Path) -> None:
    traces = [{**row["traces"][0], "agent": {}} for row in logs.trace_rows()]
    logs.write_lines(tmp_path / "step_7" / "train" / "all" / "traces.jsonl", traces)
    log, (step,), faults = read(tmp_path)
    assert (log.format, step.number, sizes(step), faults.count) == ("verifiers traces", 7, [3, 3], 0)


# Columns that show late, and lines of lists ---------------------------------------------------------------------------


def long(rows: Rows, last: logs.Row) -> Rows:
    """Sixty rows, and one more that is not like them."""
    return [{**row, "step": 1} for row in rows * 20] + [{**rows[0], **last, "step": 1}]


@pytest.mark.parametrize(
    ("first", "last", "rewards"),
    [
        ({"late": None}, {"late": 0.5}, "accuracy, format, late"),
        ({}, {"late": 0.5}, "accuracy, format, late"),
        ({"late": 0.5}, {"late": "bad"}, "accuracy, format"),
        ({"solution": 4, "id": 9, "answer": 7, "extracted": 3}, {}, "accuracy, format"),
    ],
)
def test_rewards_are_the_columns_that_hold_numbers_in_the_whole_log(
    tmp_path: Path, first: logs.Row, last: logs.Row, rewards: str
) -> None:
    rows = long([{**row, **first} for row in logs.trl_rows(1)], last)
    for write, name in ((logs.write_lines, "a.jsonl"), (logs.write_parquet, "a.parquet")):
        if write is logs.write_lines or (first.keys() >= last.keys() and last != {"late": "bad"}):
            log, _, faults = read(write(tmp_path / name, rows))
            assert (log.reader.knowledge.found, faults.count) == ((f"Reward columns: {rewards}.",), 0)


@pytest.mark.parametrize(
    ("name", "values", "mean", "left_out"),
    [("reward", ["1.0", "0", 1, True], 0.75, 0), ("reward", [1.0, 0.0, "error", 0.0], 1 / 3, 1),
     ("score", [1.0, 0.0, None, 0.0], 1 / 3, 0)],
)  # fmt: skip
def test_a_reward_by_hand_may_be_text_and_a_wrong_one_costs_its_row(
    tmp_path: Path, name: str, values: list[object], mean: float, left_out: int
) -> None:
    rows = [{"prompt": "go", "completion": "so", name: value} for value in values]
    _, (step,), faults = read(logs.write_lines(tmp_path / "1.jsonl", rows))
    rewards = [member.reward for member in step.groups[0].trajectories if member.reward is not None]
    assert (sum(rewards) / len(rewards), faults.count) == (pytest.approx(mean), left_out)


def test_a_reward_beside_its_parts_is_the_whole_of_it(tmp_path: Path) -> None:
    rows = [{**row, "reward": row["accuracy"] + 0.2 * row["format"]} for row in logs.trl_rows(1)]
    log, (step,), _ = read(logs.write_lines(tmp_path / "1.jsonl", rows))
    assert log.reader.knowledge.found == ("Reward columns: reward.",)
    assert [member.reward for member in step.groups[0].trajectories] == pytest.approx([1.1, 0.1, 1.1])
    log, _, _ = read(tmp_path, AuditSettings(rewards=("accuracy", "format")))
    assert log.reader.knowledge.found == ("Reward columns: accuracy, format.",)


def test_a_score_by_hand_is_the_reward_alone(tmp_path: Path) -> None:
    rows = [
        {"step": 1, "prompt": row["input"], "completion": row["output"], "score": row["score"], "seconds": 12.5}
        for row in logs.verl_rows(1)
    ]
    log, (step,), _ = read(logs.write_lines(tmp_path / "1.jsonl", rows))
    assert log.reader.knowledge.found == ("Reward columns: score.",)
    assert [member.reward for member in step.groups[0].trajectories] == [1.0, 0.0, 1.0]


def test_a_column_that_exceeds_one_late_is_no_success_and_costs_no_row(tmp_path: Path) -> None:
    log, (step,), faults = read(logs.write_lines(tmp_path / "1.jsonl", long(logs.verl_rows(1), {"acc": 3})))
    assert (step.episodes, faults.count, log.unknown["success/rate"][:10]) == (121, 0, "no success")


def columnar(rows: Rows) -> logs.Row:
    return {name: [row[name] for row in rows] for name in rows[0]}


def test_a_line_that_holds_a_list_per_column_is_a_batch(tmp_path: Path) -> None:
    """As ms-swift writes it: `step` is text there, or the number of the generation."""
    batches = []
    for step in (1, 2):
        batch = columnar(logs.trl_rows(step))
        batches.append(batch | {"advantages": batch["advantage"], "step": [str(step)] * 6})
        del batches[-1]["advantage"]
    log, steps, faults = read(logs.write_lines(tmp_path / "completions.jsonl", batches))
    assert log.reader.knowledge.found == ("Reward columns: accuracy, format.",)
    assert [(step.number, sizes(step)) for step in steps] == [(1, [3, 3]), (2, [3, 3])]
    assert (faults.count, steps[0].contradicted) == (0, frozenset())
    for batch in batches:
        batch["gen_step"] = [int(step) + 6 for step in batch.pop("step")]
    _, steps, _ = read(logs.write_lines(tmp_path / "megatron.jsonl", batches))
    assert [step.number for step in steps] == [7, 8]


def test_a_step_that_roll_dumps_is_a_line_of_lists(tmp_path: Path) -> None:
    """`rollout_dump_dir`: the columns of the data set, decoded `responses`, and `scores`."""
    for step in (1, 2):
        rows = [
            {
                "id": f"q{row['input'][5:]}",
                "prompt": row["input"],
                "messages": json.dumps([{"role": "user", "content": row["input"]}]),
                "ground_truth": row["gts"],
                "difficulty": "0.5",
                "responses": row["output"],
                "scores": float(row["score"]),
                "sampling_params": "{}",
                "global_step": step,
            }
            for row in logs.verl_rows(step)
        ]
        logs.write_lines(tmp_path / f"rollout_dump_data.step_{step}.jsonl", [columnar(rows)])
    log, steps, faults = read(tmp_path)
    assert log.reader.knowledge.found == ("Reward columns: reward.", "Groups are those of the column id.")
    assert [(step.number, sizes(step), faults.count) for step in steps] == [(1, [3, 3], 0), (2, [3, 3], 0)]
    assert [member.reward for member in steps[0].groups[0].trajectories] == [1.0, 0.0, 1.0]


def test_the_step_of_a_row_of_areal_is_the_version_that_ended_it(tmp_path: Path) -> None:
    """`rollout/VERSION/TASK.jsonl`: a file for each task, and evaluations apart."""
    for folder, version in (("rollout", 0), ("rollout", 1), ("eval-rollout", 1)):
        for place, row in enumerate(logs.verl_rows(version)):
            texts = {"prompt": row["input"], "completion": row["output"], "reward": float(row["score"])}
            log = tmp_path / folder / str(version) / f"{40 + place // 3}.jsonl"
            more = {"task_id": 40 + place // 3, "sample_idx": place % 3, "seqlen": 90, "prompt_len": 40}
            log.parent.mkdir(parents=True, exist_ok=True)
            with log.open("a") as file:
                file.write(json.dumps(more | {"head_version": 0, "tail_version": version} | texts) + "\n")
    log, steps, faults = read(tmp_path)
    assert len(log.files.files) == 4
    assert [(step.number, sizes(step), faults.count) for step in steps] == [(0, [3, 3], 0), (1, [3, 3], 0)]
    assert "Reward columns: reward." in log.reader.knowledge.found


def test_messages_with_a_reward_are_conversations(tmp_path: Path) -> None:
    rows = [
        {"step": 3, "reward": row["metadata"]["total_reward"], "messages": row["messages"]} for row in logs.ragen_rows()
    ]
    log, (step,), faults = read(logs.write_lines(tmp_path / "mine.jsonl", rows))
    assert (step.number, sizes(step), faults.count) == (3, [3, 3], 0)
    assert [member.reward for member in step.groups[0].trajectories] == [1.0, 0.0, 1.0]
    assert {len(member.turns) for group in step.groups for member in group.trajectories} == {2}
    assert "`messages` is a reply of the agent, the first one, too" in " ".join(log.reader.knowledge.assumed)


# Steps ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("numbers", [[1, 2, 3, 4, 5, 6, 7, 6, 7, 8, 9], [1, 2, 3, 3, 4], [1, 2, 3, 4, 4]])
def test_steps_that_a_resumed_run_wrote_twice_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], numbers: list[int]
) -> None:
    rows = [row for step in numbers for row in logs.verl_rows(step)]
    twice = ", ".join(str(step) for step in sorted(set(numbers)) if numbers.count(step) > 1)
    said = audited(logs.write_lines(tmp_path / "log.jsonl", rows), capsys)[1]
    assert f"Steps {twice} hold more than the 6 episodes of other steps: a resumed run may have written them" in said


@pytest.mark.parametrize(("names", "told"), [(("math_7b", "code_7b"), True), (("3", "4"), False)])
def test_files_that_share_a_number_are_told_to_be_one_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], names: tuple[str, str], told: bool
) -> None:
    for name in names:
        rows = [{key: value for key, value in row.items() if key != "step"} for row in logs.verl_rows(1)]
        logs.write_lines(tmp_path / "log" / f"{name}.jsonl", rows)
    said = audited(tmp_path / "log", capsys)[1]
    assert ("read as one step, by the number in their names: code_7b.jsonl, math_7b.jsonl." in said) == told


@pytest.mark.parametrize(("later", "told"), [((4, 5), True), ((5,), True), ((3, 4), False), ((), False)])
def test_files_that_an_earlier_run_left_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], later: tuple[int, ...], told: bool
) -> None:
    """A second run in the folder of a longer one writes over its first steps. Steps 3 and 4 alone are an old copy."""
    logs.trl_log(tmp_path / "log", steps=5)
    for step in range(1, 6):
        written = 100 if step in later else 200 + step
        os.utime(tmp_path / "log" / "completions" / f"completions_{step:05d}.parquet", (written, written))
    said = audited(tmp_path / "log", capsys)[1]
    sentence = f"completions_{min(later, default=0):05d}.parquet and the files after it are older than all before"
    assert (sentence in said) == told


@pytest.mark.parametrize("name", ["global_step", "training_step", "train_step"])
def test_a_step_by_hand_may_have_another_name(tmp_path: Path, name: str) -> None:
    rows = [
        {"prompt": row["prompt"], "completion": row["completion"], "reward": row["accuracy"], name: step}
        for step in (3, 4)
        for row in logs.trl_rows(step)
    ]
    for write, ending in ((logs.write_lines, "jsonl"), (logs.write_parquet, "parquet")):
        log, steps, _ = read(write(tmp_path / f"a.{ending}", rows))
        assert [step.number for step in steps] == [3, 4]
        assert log.reader.rewards == ("reward",)


@pytest.mark.parametrize("rows_of", [logs.plain_rows, logs.trl_rows, logs.verl_rows])
def test_a_stray_row_with_a_step_costs_no_row_without_one(
    tmp_path: Path, rows_of: Callable[[int], Rows], capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{name: value for name, value in row.items() if name != "step"} for row in rows_of(1)]
    log = logs.write_lines(tmp_path / "log.jsonl", [*rows, {**rows[0], "step": 5}])
    found, said, _ = audited(log, capsys)
    assert {step: metrics["reward/mean"].n for step, metrics in found.items()} == {0: 6, 5: 1}
    assert "Few rows name a step" in said


# Tags that were lost, and evaluations ---------------------------------------------------------------------------------


def test_a_log_whose_tags_were_lost_gets_no_all_clear(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every thought is one template, and the answer names the prompt."""
    words = ["amber", "birch", "cedar", "delta", "ember", "frost", "grove", "heron", "inlet", "jade", "kelp", "larch"]
    tagged = [
        {"prompt": f"say {word}", "completion": f"<think>let me see what to do</think>the word is {word} {at}"}
        for word in words
        for at in range(4)
    ]
    lost = [{**row, "completion": row["completion"].replace("<think>", "").replace("</think>", "")} for row in tagged]
    verdict = audited(logs.write_lines(tmp_path / "tags" / "a.jsonl", tagged), capsys)[2]
    assert verdict[0].startswith("Template collapse: not excluded")
    verdict = audited(logs.write_lines(tmp_path / "lost" / "a.jsonl", lost), capsys)[2]
    assert verdict[0].startswith("Template collapse: not decided. No reply holds </think>, so thought and answer")
    lost[0]["completion"] += " </think>"  # one reply talks about the tag
    found, _, verdict = audited(logs.write_lines(tmp_path / "one" / "a.jsonl", lost), capsys)
    assert verdict[0].startswith("Template collapse: not decided. Only 1 of 48 replies hold </think>, so thought")
    assert found[0]["format/closed_rate"].value is None
    assert all(way in verdict[0] for way in ("--tags OPEN,CLOSE", "token ids", "record of the run"))
    assert not any("not seen" in sentence or "thought " in sentence for sentence in verdict[1:])


def test_a_log_of_empty_thoughts_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As Qwen3 writes where it is told not to think."""
    rows = [{**row, "output": f"<think>\n\n</think>\n\n{row['score']}"} for row in logs.verl_rows(1)]
    said = audited(logs.write_lines(tmp_path / "1" / "1.jsonl", rows), capsys)[1]
    assert "6 of 6 closed thoughts are empty: no reader finds a prompt in these." in said
    assert "are empty" not in audited(logs.write_lines(tmp_path / "2" / "1.jsonl", logs.verl_rows(1)), capsys)[1]


def test_evaluations_that_trl_wrote_over_training_rows_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = logs.trl_log(tmp_path / "out")
    said = audited(log, capsys)[1]
    assert "or that of an evaluation at that step (eval_steps)" in said
    assert "hold completions of an evaluation" not in said
    history = [{"step": 1, "reward": 0.75}, {"step": 2, "reward": 0.2125}, {"step": 2, "eval_reward": 0.225}]
    (log / "checkpoint-2").mkdir()
    (log / "checkpoint-2" / "trainer_state.json").write_text(json.dumps({"log_history": history}))
    said = audited(log / "completions", capsys)[1]
    assert "Steps 2 hold completions of an evaluation, which TRL wrote over those of training" in said
    assert "mean reward of training there: 2: 0.2125" in said
