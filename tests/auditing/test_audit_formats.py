"""Each format by itself: the same six episodes come out of it, with what it does not say named as unknown."""

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import foreign_logs as logs
import pytest
from audit_watching import read

from heedful.auditing import AuditSettings, open_log
from heedful.auditing.measure import spread_unknown, step_metrics
from heedful.auditing.recognised import RecognisedLog
from heedful.auditing.steps import LoggedStep
from heedful.diagnostics.names import unavailable
from heedful.types import Metric


def measured(log: RecognisedLog, step: LoggedStep) -> dict[str, Metric]:
    return {metric.name: metric for metric in unavailable(step_metrics(step, log.on), log.reader.knowledge.unknown)}


def rewards(step: LoggedStep) -> list[list[float | None]]:
    return [[member.reward for member in group.trajectories] for group in step.groups]


def test_trl_completions_are_grouped_by_prompt_and_their_reward_columns_added(tmp_path: Path) -> None:
    log, steps, faults = read(logs.trl_log(tmp_path))
    assert (log.format, faults.count) == ("TRL completions", 0)
    assert [step.number for step in steps] == [1, 2, 3]
    assert rewards(steps[0]) == [[1.5, 0.5, 1.5], [0.5, 0.5, 0.5]]
    metrics = measured(log, steps[0])
    assert metrics["reward/mean"].value == pytest.approx(5 / 6)
    assert metrics["reward/accuracy"].value == pytest.approx(1 / 3)
    assert metrics["signal/mixed"].value == 0.5
    assert metrics["signal/reward_variance"].value == pytest.approx((1 / 3) / 2)
    assert metrics["format/closed_rate"].value == 1.0
    for name in ("success/rate", "signal/failed", "length/response_tokens", "format/valid_rate", "length/turns"):
        assert metrics[name].value is None
        assert metrics[name].why
    assert metrics["text/distinct_thoughts"].why == "the log holds text, and thoughts are compared by their token ids"
    assert "Special tokens were dropped" in " ".join(log.reader.knowledge.assumed)
    assert "advantages" not in " ".join(log.reader.knowledge.assumed)


def test_prompts_and_completions_alone_are_a_log_of_one_step(tmp_path: Path) -> None:
    rows = [{"prompt": row["prompt"], "completion": row["completion"], "row": 7} for row in logs.trl_rows(1)]
    log, steps, faults = read(logs.write_lines(tmp_path / "mine.jsonl", rows))
    assert (log.format, faults.count) == ("TRL completions", 0)
    assert [(step.number, step.episodes, len(step.groups)) for step in steps] == [(0, 6, 2)]
    assert "No reward column: none holds only numbers (--rewards)." in log.reader.knowledge.found
    assert any("no training step" in sentence for sentence in log.reader.knowledge.assumed)
    assert measured(log, steps[0])["reward/mean"].value is None


@pytest.mark.parametrize(
    ("reward", "found", "mean"),
    [
        ({"reward": True}, "Reward columns: reward.", 1.0),
        ({"reward": "much"}, "No reward column: `reward` holds no numbers (str 'much').", None),
        ({}, "No reward column: none holds only numbers (--rewards).", None),
    ],
)
def test_success_is_read_without_a_reward_and_a_reward_may_be_a_truth_value(
    tmp_path: Path, reward: dict[str, object], found: str, mean: float | None
) -> None:
    rows = [
        {"prompt": row["prompt"], "completion": row["completion"], "success": row["accuracy"] == 1, **reward}
        for row in logs.trl_rows(1)
    ]
    log, (step,), _ = read(logs.write_lines(tmp_path / "mine.jsonl", rows))
    assert found in log.reader.knowledge.found
    metrics = measured(log, step)
    assert metrics["success/rate"].value == pytest.approx(1 / 3)
    assert metrics["reward/mean"].value == mean
    assert (log.on, metrics["signal/mixed"].value) == (("reward", 0.0) if mean else ("outcome", 0.5))


def test_a_step_of_an_own_log_without_a_reward_has_none(tmp_path: Path) -> None:
    rows = [{**row, "reward": row["reward"] if step else None} for step in (0, 1) for row in logs.plain_rows(step)]
    log, steps, _ = read(logs.write_lines(tmp_path / "mine.jsonl", rows))
    unknown = [spread_unknown(step, "reward", log.unknown) for step in steps]
    assert [each.get("reward/mean") for each in unknown] == ["no reward is in the first rows of the log", None]
    assert [each.get("signal/mixed") for each in unknown] == ["no reward is in the first rows of the log", None]


@pytest.mark.parametrize(
    ("name", "missing", "steps"),
    [
        ("log.jsonl", {"step": None}, {3: 6}),
        ("log_7.jsonl", {"step": None}, {3: 6}),
        ("log.jsonl", {}, {3: 6}),
        ("log_7.jsonl", {}, {3: 6, 7: 6}),  # written by an older trainer
    ],
)
@pytest.mark.parametrize("rows_of", [logs.plain_rows, logs.trl_rows, logs.verl_rows])
def test_a_row_without_a_step_among_rows_with_one_is_no_row_of_step_0(
    tmp_path: Path, rows_of: Callable[[int], list[logs.Row]], name: str, missing: logs.Row, steps: dict[int, int]
) -> None:
    rows = rows_of(3)
    without = [{key: value for key, value in row.items() if key != "step"} | missing for row in rows]
    _, found, faults = read(logs.write_lines(tmp_path / name, [*rows, *without]))
    assert {step.number: step.episodes for step in found} == steps
    assert faults.count == 6 * (2 - len(steps))


def test_prompts_that_differ_in_their_pictures_alone_are_two_groups(tmp_path: Path) -> None:
    def prompt(picture: str) -> list[dict[str, object]]:
        shown = {"type": "image_url", "image_url": {"url": picture}}
        return [{"role": "user", "content": [shown, {"type": "text", "text": "What is shown?"}]}]

    rows = [
        {"prompt": prompt(picture), "completion": completion} for picture in ("a.png", "b.png") for completion in "xyz"
    ]
    log, (step,), _ = read(logs.write_lines(tmp_path / "mine.jsonl", rows))
    assert [len(group.trajectories) for group in step.groups] == [3, 3]
    assert any(
        "parts of messages that are no text are not read" in sentence for sentence in log.reader.knowledge.assumed
    )


def test_decimals_of_a_data_base_are_numbers(tmp_path: Path) -> None:
    rows = [
        {
            "step": Decimal(3),
            "prompt": row["prompt"],
            "completion": row["completion"],
            "reward": Decimal(f"{row['accuracy']:.2f}") / 4,
            "success": Decimal(int(row["accuracy"])),
        }
        for row in logs.trl_rows(1)
    ]
    _, steps, faults = read(logs.write_parquet(tmp_path / "mine.parquet", rows))
    assert faults.count == 0
    assert [step.number for step in steps] == [3]
    assert rewards(steps[0]) == [[0.25, 0.0, 0.25], [0.0, 0.0, 0.0]]
    assert [member.outcome for group in steps[0].groups for member in group.trajectories] == [1, 0, 1, 0, 0, 0]


@pytest.mark.parametrize(
    ("on", "why"),
    [
        ("acuracy", "no reward acuracy (--on) in this step, whose rewards are accuracy, format"),
        ("outcome", "no success of 0 and 1 is in the log"),
        ("accuracy", ""),
        ("reward", ""),
    ],
)
def test_a_spread_of_what_the_log_does_not_hold_is_missing_with_the_reason(tmp_path: Path, on: str, why: str) -> None:
    log, (step,), _ = read(logs.write_parquet(tmp_path / "a.parquet", logs.trl_rows(1)), AuditSettings(on=on))
    unknown = spread_unknown(step, log.on, log.unknown)
    metrics = {metric.name: metric for metric in unavailable(step_metrics(step, log.on), unknown)}
    for name in ("signal/mixed", "signal/reward_std"):
        assert (metrics[name].value is None) == bool(why)
        assert why in metrics[name].why


def test_a_trl_column_that_is_no_reward_is_noticed_by_the_advantages_and_can_be_left_out(tmp_path: Path) -> None:
    rows = [{**row, "length": 100.0 * (5 - place)} for place, row in enumerate(logs.trl_rows(1))]
    logs.write_parquet(tmp_path / "a.parquet", rows)
    assert read(tmp_path)[1][0].contradicted == {"order"}
    _, steps, _ = read(tmp_path, AuditSettings(rewards=("accuracy", "format")))
    assert not steps[0].contradicted
    assert rewards(steps[0])[0] == [1.5, 0.5, 1.5]
    with pytest.raises(ValueError, match=r"--rewards to name columns of the log, found no speed\. Its columns are"):
        read(tmp_path, AuditSettings(rewards=("speed",)))


@pytest.mark.parametrize("rows", [logs.plain_rows(), logs.ragen_rows(), logs.trace_rows(), logs.result_rows()])
def test_columns_that_a_format_does_not_read_are_refused(tmp_path: Path, rows: list[logs.Row]) -> None:
    log = logs.write_lines(tmp_path / "a.jsonl", rows)
    with pytest.raises(ValueError, match=r"Expected no --rewards for .*, found speed for"):
        read(log, AuditSettings(rewards=("speed",)))
    with pytest.raises(ValueError, match="Expected --success to name columns of the log, found no speed"):
        read(log, AuditSettings(success="speed"))


def test_a_column_named_by_the_user_is_success(tmp_path: Path) -> None:
    log, steps, _ = read(logs.trl_log(tmp_path), AuditSettings(success="accuracy"))
    metrics = measured(log, steps[0])
    assert metrics["success/rate"].value == pytest.approx(1 / 3)
    assert (metrics["signal/failed"].value, metrics["signal/solved"].value) == (0.5, 0.0)
    rows = [{**row, "accuracy": 2 * row["accuracy"]} for row in logs.trl_rows(1)]
    _, steps, faults = read(logs.write_parquet(tmp_path / "b.parquet", rows), AuditSettings(success="accuracy"))
    assert (steps[0].episodes, faults.count) == (4, 2)
    assert "expected `accuracy` from 0 to 1, 1 = success, found 2.0" in str(faults.kept[0])


def test_a_reward_column_called_mean_is_kept_apart_from_the_mean_reward(tmp_path: Path) -> None:
    rows = [{**row, "mean": 3.0} for row in logs.trl_rows(1)]
    log, steps, _ = read(logs.write_parquet(tmp_path / "a.parquet", rows))
    metrics = step_metrics(steps[0], log.on)
    assert len({metric.name for metric in metrics}) == len(metrics)
    assert measured(log, steps[0])["reward/mean"].value == pytest.approx(3 + 5 / 6)
    assert measured(log, steps[0])["reward/component/mean"].value == 3.0


def test_an_unscored_completion_is_left_out_of_the_reward_not_counted_as_zero(tmp_path: Path) -> None:
    rows = logs.trl_rows(1)
    rows[1] |= {"accuracy": None, "format": float("nan")}
    log, steps, faults = read(logs.write_parquet(tmp_path / "a.parquet", rows))
    assert faults.count == 0
    assert rewards(steps[0])[0] == [1.5, None, 1.5]
    assert measured(log, steps[0])["reward/mean"].n == 5


def test_a_component_that_a_row_lacks_is_no_zero(tmp_path: Path) -> None:
    rows = logs.trl_rows(1)
    rows[1] |= {"accuracy": None}
    log, (step,), _ = read(logs.write_parquet(tmp_path / "a.parquet", rows), AuditSettings(on="accuracy"))
    members = [member for group in step.groups for member in group.trajectories]
    known = [float(row["accuracy"]) for row in rows if row["accuracy"] is not None]
    assert sorted(value for member in members if (value := member.component("accuracy")) == value) == sorted(known)
    assert sum(member.reward for member in members) == sum(known) + sum(row["format"] for row in rows)
    mean = measured(log, step)["reward/accuracy"]
    assert (mean.value, mean.n) == (pytest.approx(sum(known) / len(known)), len(known))


def test_prompts_as_lists_of_messages_are_kept_as_messages(tmp_path: Path) -> None:
    rows = [
        {
            **row,
            "prompt": [{"role": "user", "content": row["prompt"]}],
            "completion": [{"role": "assistant", "content": row["completion"]}],
        }
        for row in logs.trl_rows(1)
    ]
    log, steps, faults = read(logs.write_parquet(tmp_path / "a.parquet", rows))
    assert faults.count == 0
    assert [len(group.trajectories) for group in steps[0].groups] == [3, 3]
    text = steps[0].groups[0].trajectories[0].turns[0].reply.prompt.text
    assert steps[0].messages[text] == ({"role": "user", "content": rows[0]["prompt"][0]["content"]},)
    assert measured(log, steps[0])["length/turns"].value == 1.0


def test_verl_rollouts_are_read_in_the_order_of_their_steps_with_acc_as_success(tmp_path: Path) -> None:
    log, steps, faults = read(logs.verl_log(tmp_path))
    assert (log.format, faults.count) == ("verl rollouts", 0)
    assert [step.number for step in steps] == [1, 2, 10]
    assert rewards(steps[0]) == [[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]]
    metrics = measured(log, steps[2])
    assert metrics["success/rate"].value == pytest.approx(1 / 3)
    assert metrics["success/any_of_group"].value == 0.5
    assert set(metrics) >= {"reward/score"}
    assert "reward/acc" not in metrics


def test_ragen_success_is_read_where_it_is_right(tmp_path: Path) -> None:
    log, steps, faults = read(logs.write_lines(tmp_path / "val_7.jsonl", logs.ragen_rows()))
    assert (log.format, faults.count) == ("RAGEN trajectories", 0)
    assert [step.number for step in steps] == [7]
    assert rewards(steps[0]) == [[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]]
    metrics = measured(log, steps[0])
    assert metrics["success/rate"].value == pytest.approx(1 / 3)
    assert metrics["length/turns"].value == 2.0
    turns = steps[0].groups[0].trajectories[0].turns
    assert turns[1].reply.prompt.text == "user: you moved (reward: 0.1)"
    assert steps[0].messages["user: go to 3"] == ({"role": "user", "content": "go to 3"},)


def test_ragen_success_that_is_always_false_is_read_where_it_is_named_alone(tmp_path: Path) -> None:
    rows = logs.ragen_rows()
    for row in rows[1:]:
        row["metadata"] = {name: value for name, value in row["metadata"].items() if not name.endswith("/success")}
    path = logs.write_lines(tmp_path / "a.jsonl", rows)
    log, (step,), _ = read(path)
    assert measured(log, step)["success/rate"].n == 1
    log, (step,), _ = read(path, AuditSettings(success="success"))
    assert measured(log, step)["success/rate"].value == 0.0


def test_verifiers_traces_give_weighted_rewards_the_last_branch_and_the_agents_in_training(tmp_path: Path) -> None:
    log, steps, faults = read(logs.write_lines(tmp_path / "traces.jsonl", logs.trace_rows()))
    assert (log.format, faults.count) == ("verifiers traces", 0)
    assert [step.number for step in steps] == [4]
    assert rewards(steps[0])[0] == pytest.approx([2.05, 0.05, 2.05])
    metrics = measured(log, steps[0])
    assert metrics["success/rate"].value == pytest.approx(1 / 3)
    assert metrics["reward/solved"].value == pytest.approx(2 / 3)
    assert metrics["length/turns"].value == 2.0
    episode = steps[0].groups[0].trajectories[1]
    assert episode.temperature == 0.7
    assert log.reader.knowledge.temperature
    assert episode.turns[0].reply.text == "<think>walk by 1</think>1"
    assert episode.turns[0].reply.closed
    prompt = episode.turns[0].reply.prompt.text
    assert [message["role"] for message in steps[0].messages[prompt]] == ["system", "user"]
    assert prompt == "system: You walk.\n\nuser: go to 3"


def test_of_traces_that_branch_it_is_told_which_branch_is_read(tmp_path: Path) -> None:
    rows = logs.trace_rows()
    told = "Of traces that branch"
    assert told not in " ".join(read(logs.write_lines(tmp_path / "a.jsonl", rows))[0].reader.knowledge.assumed)
    nodes = rows[0]["traces"][0]["nodes"]
    nodes.append({"parent": 0, "sampled": False, "message": {"role": "user", "content": "so far: moved"}})
    nodes.append({"parent": len(nodes) - 1, "sampled": True, "message": {"role": "assistant", "content": "on"}})
    log, (step,), _ = read(logs.write_lines(tmp_path / "b.jsonl", rows))
    assert told in " ".join(log.reader.knowledge.assumed)
    assert step.groups[0].trajectories[0].turns[0].reply.text == "on"


def test_verifiers_traces_without_a_step_are_one_step_and_say_so(tmp_path: Path) -> None:
    log, steps, _ = read(logs.write_lines(tmp_path / "traces.jsonl", logs.trace_rows(step=None)))
    assert [step.number for step in steps] == [0]
    assert "no training step" in " ".join(log.reader.knowledge.assumed)


def test_verifiers_results_are_grouped_by_example(tmp_path: Path) -> None:
    log, steps, faults = read(logs.write_lines(tmp_path / "results.jsonl", logs.result_rows()))
    assert (log.format, faults.count) == ("verifiers results", 0)
    assert rewards(steps[0]) == [[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]]
    metrics = measured(log, steps[0])
    assert metrics["length/turns"].value == 2.0
    assert metrics["success/rate"].value is None


def test_plain_rows_of_other_origin_need_only_texts(tmp_path: Path) -> None:
    log, steps, faults = read(logs.write_lines(tmp_path / "mine.jsonl", [*logs.plain_rows(3), *logs.plain_rows(4)]))
    assert (log.format, faults.count) == ("heedful rollouts", 0)
    assert [step.number for step in steps] == [3, 4]
    assert rewards(steps[0]) == [[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]]
    metrics = measured(log, steps[0])
    assert metrics["success/rate"].value == pytest.approx(1 / 3)
    assert metrics["length/reasoning_tokens"].why.startswith("the log holds text")
    assumed = " ".join(log.reader.knowledge.assumed)
    assert "name no group" in assumed
    assert "each row is an episode of one turn" in assumed
    least = [{key: row[key] for key in ("new_prompt_text", "reply_text")} for row in logs.plain_rows()]
    log, steps, faults = read(logs.write_lines(tmp_path / "least_5.jsonl", least))
    assert faults.count == 0
    assert [step.number for step in steps] == [5]
    assert measured(log, steps[0])["reward/mean"].why == "no reward is in the first rows of the log"


def test_turns_of_other_origin_tell_success_in_the_last_row_validity_and_states(tmp_path: Path) -> None:
    turn = {"step": 0, "group": 0, "new_prompt_text": "a", "reply_text": "b", "actions": ["Up"], "state": "s"}
    one = [{**turn, "member": 0, "turn": at, "reward": 0.5, "success": at == 2, "valid": at == 2} for at in (1, 2)]
    two = {**turn, "member": 1, "turn": 1, "reward": 0.25, "success": False, "valid": True}
    three = {**turn, "member": 2, "turn": 1, "reward": 0.75, "success": False, "valid": False}
    log, [step], faults = read(logs.write_lines(tmp_path / "turns.jsonl", [*one, two, three]))
    assert (log.on, faults.count, rewards(step)) == ("reward", 0, [[1.0, 0.25, 0.75]])
    assert log.reader.knowledge.assumed[-1].endswith("an episode's reward is the sum over its rows.")
    metrics = measured(log, step)
    wanted = {
        "success/rate": 1 / 3,
        "format/valid_rate": 1 / 2,
        "grounding/oscillation_rate": 1 / 4,
        "signal/mixed": 1.0,
        "signal/reward_variance": (1 / 9 + 25 / 144 + 1 / 144) / 2,
    }
    assert {name: metrics[name].value for name in wanted} == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("rows", "damage", "sentence"),
    [
        (logs.verl_rows(1), {"score": "high"}, "expected a number as `score`, found str 'high'"),
        (logs.verl_rows(1), {"step": 1.5}, "expected a whole number as `step`, found float 1.5"),
        (logs.verl_rows(1), {"output": None}, "expected text as `output`, found NoneType None"),
        (logs.trl_rows(1), {"completion": {"a": 1}}, "expected a list of messages as `completion`"),
        (logs.ragen_rows(), {"messages": [{"role": "assistant", "content": "a"}]}, "a prompt before the first reply"),
        (logs.ragen_rows(), {"metadata": 3}, "expected `messages`, and `metadata` with a `group_id`"),
        (logs.trace_rows(), {"traces": [7]}, "expected an object as `traces`, found int"),
        (logs.trace_rows(), {"traces": [{"nodes": [{"parent": 0}]}]}, "expected `parent` to name an earlier node"),
        (logs.trace_rows(), {"run": {"work": 3}}, "expected an object as `run.work`"),
        (logs.result_rows(), {"completion": 5}, "expected a list of messages as `completion`"),
        (logs.plain_rows(), {"progress": 75}, "expected `progress` from 0 to 1, 1 = success, found 75"),
        (logs.plain_rows(), {"valid": "false"}, "expected true or false as `valid`, found str 'false'"),
        (logs.plain_rows(), {"components": [1]}, "expected named numbers as `components`"),
        (logs.plain_rows(), {"turn": 0}, "expected the turns of one episode, 1 and on, in order, found turns [0]"),
        (logs.plain_rows(), {"turn": 2}, "expected the turns of one episode, 1 and on, in order, found turns [2]"),
    ],
)
def test_a_row_that_does_not_fit_is_named_and_the_rest_goes_on(
    tmp_path: Path, rows: list[logs.Row], damage: logs.Row, sentence: str
) -> None:
    broken = [*rows[:3], {**rows[3], **damage}, *rows[4:]]
    _, steps, faults = read(logs.write_lines(tmp_path / "log_1.jsonl", broken))
    assert [step.episodes for step in steps] == [5]
    assert faults.count == 1
    assert str(faults.kept[0]).startswith("log_1.jsonl, line 4: ")
    assert sentence in str(faults.kept[0])


def test_turns_that_are_floats_are_numbers(tmp_path: Path) -> None:
    """As pandas writes them beside a missing one."""
    rows = [
        {**row, "member": number, "turn": turn} for number, row in enumerate(logs.plain_rows()) for turn in (1.0, 2.0)
    ]
    _, [step], faults = read(logs.write_lines(tmp_path / "mine.jsonl", rows))
    assert (step.episodes, faults.count) == (6, 0)


def test_turns_of_episodes_that_are_mixed_are_refused(tmp_path: Path) -> None:
    """All first turns, then all second ones: the first turns alone would be counted as the episodes."""
    rows = [
        {**row, "member": number, "turn": turn, "group": 0}
        for turn in (1, 2)
        for number, row in enumerate(logs.plain_rows())
    ]
    with pytest.raises(ValueError, match=r"found turn 2 at mine\.jsonl, line 7 after rows of other episodes\. Sort"):
        read(logs.write_lines(tmp_path / "mine.jsonl", rows))


def test_an_episode_that_lost_one_of_its_turns_is_left_out_as_a_whole(tmp_path: Path) -> None:
    rows = [
        {**row, "member": number, "turn": turn, "group": 0}
        for number, row in enumerate(logs.plain_rows())
        for turn in (1, 2)
    ]
    path = logs.write_lines(tmp_path / "mine.jsonl", rows)
    lines = path.read_text().splitlines()
    lines[5] = "{torn"
    path.write_text("\n".join(lines) + "\n")
    _, steps, faults = read(path)
    assert [member.member for member in steps[0].groups[0].trajectories] == [0, 1, 3, 4, 5]
    assert [fault.place.line for fault in faults.kept] == [6, 5]


def test_lone_surrogates_become_escapes(tmp_path: Path) -> None:
    rows = logs.verl_rows(1)
    rows[0]["output"] = "broken \ud800 text"
    _, steps, faults = read(logs.write_lines(tmp_path / "1.jsonl", rows))
    assert faults.count == 0
    assert steps[0].groups[0].trajectories[0].turns[0].reply.text == "broken \\ud800 text"


def test_files_of_two_formats_are_refused_and_strangers_left_aside(tmp_path: Path) -> None:
    logs.verl_log(tmp_path)
    logs.write_lines(tmp_path / "metrics.jsonl", [{"loss": 1.0}])
    log, steps, faults = read(tmp_path)
    assert (len(steps), faults.count) == (3, 0)
    assert log.files.aside == ("metrics.jsonl",)
    logs.write_parquet(tmp_path / "completions_00001.parquet", logs.trl_rows(1))
    with pytest.raises(ValueError, match=r"Expected one log in .*, found verl rollouts \(3 files: 1\.jsonl\) and TRL"):
        open_log(tmp_path, AuditSettings())
