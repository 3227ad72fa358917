"""Dumps of verl's default trainer, whose rows name prompt, session and part. Two groups of three: rewards 1, 0, 1 and
0, 0, 0; the first episode has two parts, and two rows fill verl's batch."""

from pathlib import Path
from typing import Any

import foreign_logs as logs
import pytest
from audit_watching import Witness, by_step, read

from heedful.auditing import AuditSettings, measure_log, open_log
from heedful.auditing.steps import LoggedStep


def members(step: LoggedStep) -> list[list[tuple[int, int, float | None]]]:
    """Member, turns and reward of all episodes, by group."""
    return [[(m.member, len(m.turns), m.reward) for m in group.trajectories] for group in step.groups]


def changed(place: int, **columns: Any) -> list[logs.Row]:
    rows = logs.keyed_verl_rows(1)
    rows[place] |= columns
    return rows


def test_groups_members_and_parts_are_those_of_the_keys_and_padding_is_left_out(tmp_path: Path) -> None:
    log, steps, faults = read(logs.write_lines(tmp_path / "1.jsonl", logs.keyed_verl_rows(1)))
    assert (log.format, faults.count, dict(faults.aside)) == ("verl rollouts", 0, {"that only fill verl's batch": 2})
    assert members(steps[0]) == [[(0, 2, 1.0), (1, 1, 0.0), (2, 1, 1.0)], [(0, 1, 0.0), (1, 1, 0.0), (2, 1, 0.0)]]
    assert "column uid" in " ".join(log.reader.knowledge.found)
    assert "same input" not in " ".join(log.reader.knowledge.assumed)
    first = steps[0].groups[0].trajectories[0]
    assert [turn.reply.prompt.restarts for turn in first.turns] == [False, True]
    assert first.turns[1].reply.prompt.text == "user\nwhere now?\nassistant\n"


def test_the_reward_of_an_episode_is_counted_once_however_many_parts_it_has(tmp_path: Path, witness: Witness) -> None:
    path = logs.write_lines(tmp_path / "1.jsonl", logs.keyed_verl_rows(1))
    log = open_log(path, AuditSettings())
    found = by_step(measure_log(log, AuditSettings(), tmp_path / "out", [witness]))[1]
    assert found["reward/mean"].value == pytest.approx(2 / 6)
    assert found["reward/mean"].n == 6
    assert found["signal/mixed"].value == 0.5
    assert found["signal/reward_variance"].value == pytest.approx((1 / 3) / 2)
    assert found["success/rate"].value is None
    assert found["length/turns"].value is None


def test_two_draws_of_one_prompt_are_two_groups(tmp_path: Path) -> None:
    rows = [{**row, "input": "user\ngo\nassistant\n"} for row in logs.keyed_verl_rows(1)]
    _, steps, _ = read(logs.write_lines(tmp_path / "1.jsonl", rows))
    assert [len(group.trajectories) for group in steps[0].groups] == [3, 3]
    assert len({group.task.id for group in steps[0].groups}) == 1


def test_a_name_of_a_prompt_may_hold_underscores_and_parts_count_as_numbers(tmp_path: Path) -> None:
    row = logs.keyed_verl_rows(1)[0]
    rows = [{**row, "uid": f"a_b_1_{session}_{part}"} for session in (2, 10) for part in range(11)]
    _, steps, faults = read(logs.write_lines(tmp_path / "1.jsonl", rows))
    assert faults.count == 0
    assert members(steps[0]) == [[(2, 11, 1.0), (10, 11, 1.0)]]


def test_a_prompt_whose_name_begins_otherwise_than_padding_is_kept(tmp_path: Path) -> None:
    row = logs.keyed_verl_rows(1)[0]
    rows = [{**row, "uid": f"{name}_0_0"} for name in ("pad", "padded", "a-pad", "Pad")]
    _, steps, faults = read(logs.write_lines(tmp_path / "1.jsonl", rows))
    assert (steps[0].episodes, sum(faults.aside.values())) == (2, 2)


def test_the_success_of_a_validation_dump_is_that_of_the_last_part(tmp_path: Path) -> None:
    rows = [{**row, "acc": row["score"], "reward": row["score"]} for row in logs.keyed_verl_rows(1)]
    rows[0]["acc"] = 0.0
    log, steps, _ = read(logs.write_lines(tmp_path / "1.jsonl", rows))
    assert "Success is read from acc." in log.reader.knowledge.found
    assert [member.success for member in steps[0].groups[0].trajectories] == [True, False, True]


@pytest.mark.parametrize(
    ("place", "columns", "sentence"),
    [
        (1, {"uid": "1-draw_0_0_2"}, "all parts of an episode, 0 and on, in order, found parts [0, 2]"),
        (0, {"uid": "1-draw_0_0_1"}, "all parts of an episode, 0 and on, in order, found parts [1, 1]"),
        (1, {"output": 5}, "line 1: expected text as `output`, found int 5"),
        (2, {"uid": "me"}, "line 3: expected prompt_session_part as `uid`, as the first rows have it, found str 'me'"),
        (2, {"uid": 7}, "line 3: expected prompt_session_part as `uid`, as the first rows have it, found int 7"),
        (2, {"uid": "a_1_9999999999999999999"}, "line 3: expected prompt_session_part as `uid`"),
    ],
)
def test_a_bad_row_costs_its_episode_alone(tmp_path: Path, place: int, columns: dict[str, Any], sentence: str) -> None:
    _, steps, faults = read(logs.write_lines(tmp_path / "1.jsonl", changed(place, **columns)))
    assert sentence in str(faults.kept[0])
    assert steps[0].episodes in (4, 5)


def test_an_episode_that_lost_a_line_of_its_parts_is_left_out_as_a_whole(tmp_path: Path) -> None:
    path = logs.write_lines(tmp_path / "1.jsonl", logs.keyed_verl_rows(1))
    lines = path.read_text().splitlines()
    for torn, found in ((1, "parts [0]"), (0, "parts [1]")):
        path.write_text("\n".join("{torn" if at == torn else line for at, line in enumerate(lines)) + "\n")
        _, steps, faults = read(path)
        if torn == 0:
            assert found in str(faults.kept[1])
            assert steps[0].episodes == 5
        else:  # the line that is left is a whole episode, as far as the log says
            assert faults.count == 1
            assert members(steps[0])[0][0] == (0, 1, 1.0)
