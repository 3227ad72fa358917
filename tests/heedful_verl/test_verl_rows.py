"""Rows of verl's batches as groups of completions, without verl."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace

import numpy as np
import pytest

from heedful.boundary import to_json
from heedful.envs.toys.echo import Echo
from heedful.filters import TopP
from heedful.integrations.watching.completions import BatchReader, Completion, values_of
from heedful.models.chat.replies import ReplyParser, Tags
from heedful.types import Ending, Group, Prompt, Reply, Span, Task, Trajectory, Turn
from heedful_verl.batch.rows import MISSING, Row, mini_batch_counts, parts_of, sampled_of
from heedful_verl.batch.watcher import rightness_in
from heedful_verl.play.episodes import ENVIRONMENT, FIELD, outputs_of, write_episode
from heedful_verl.play.playing import PlayedEnvironment

END = 0


def decode(ids: object) -> str:
    """Ids as letters: 1 = a, 2 = b, ... and the end of a turn as a dot."""
    return "".join("." if token == END else chr(96 + token) for token in ids)  # type: ignore[attr-defined]


def reader() -> BatchReader:
    tags = Tags()
    return BatchReader(ReplyParser(decode, tags, [END]), decode, tags)


def row(key: str, score: float = 0.0, **given: object) -> Row:
    fields: dict[str, object] = {"prompt_ids": (1, 2), "response_ids": (3, END), "sampled": (True, True)}
    return Row(key=key, score=score, **(fields | given))  # type: ignore[arg-type]


def groups_of(rows: list[Row], size: int = 2, outcome: str | None = None) -> list[Group]:
    return reader().groups(sampled_of(rows, size, outcome, 3).members_PG, 3, 1.0)


def test_rows_in_any_order_become_groups_with_members_in_order() -> None:
    rows = [row("b_1_0", 4), row("a_0_0", 1), row("b_0_0", 3), row("a_1_0", 2)]
    groups = groups_of(rows)
    assert [[member.reward for member in group.trajectories] for group in groups] == [[3, 4], [1, 2]]
    assert sampled_of(rows, 2, None, 3).keys_P == [["b_1_0", "b_0_0"], ["a_0_0", "a_1_0"]]


def test_a_uid_may_hold_underscores() -> None:
    assert parts_of("my_uid_3_11") == ("my_uid", 3, 11)


@pytest.mark.parametrize("key", ["plain", "a_b", "a_b_c", "a_1_x"])
def test_a_key_of_another_form_is_a_sentence(key: str) -> None:
    with pytest.raises(ValueError, match="<uid>_<session>_<part>"):
        parts_of(key)


def test_a_session_without_a_row_is_a_member_that_was_never_scored() -> None:
    group = groups_of([row("a_0_0", 1.0), row("a_2_0", 0.0)], size=3)[0]
    assert [member.reward for member in group.trajectories] == [1.0, None, 0.0]
    assert group.trajectories[1].error == MISSING
    assert [member.member for member in group.trajectories] == [0, 1, 2]


def test_a_group_whose_first_session_failed_has_the_task_of_the_others() -> None:
    first, second = groups_of([row("a_1_0", 1.0), row("b_0_0", 0.0), row("b_1_0", 0.0)])
    assert first.task.id == second.task.id  # the same prompt


def test_a_group_with_one_row_is_unscored_for_a_filter() -> None:
    sampled = sampled_of([row("a_0_0", 1.0), row("b_0_0", 1.0), row("b_1_0", 0.0)], 2, None, 3)
    groups = reader().groups(sampled.members_PG, 3, 1.0)
    verdicts = TopP(on="reward")(values_of(sampled.members_PG, groups, "reward"), random.Random(0))
    assert [verdict.reason for verdict in verdicts] == ["unscored", "kept"]


def test_a_filter_may_use_any_number_of_reward_extra_info() -> None:
    extra = {"reward_extra_info": {"acc": 1.0, "note": "text", "length": 7, "broken": math.nan}}
    sampled = sampled_of([row("a_0_0", 2.0, extra=extra), row("a_1_0", 2.0)], 2, None, 3)
    groups = reader().groups(sampled.members_PG, 3, 1.0)
    assert values_of(sampled.members_PG, groups, "length") == [[7.0, None]]
    assert sampled.measures == {"acc", "length"}
    assert groups[0].trajectories[0].reward == 2.0  # a measure is no part of the reward


def test_numbers_of_numpy_count_and_numbers_beyond_a_float_do_not() -> None:
    info = {"acc": np.float32(1), "solved": np.bool_(True), "steps": np.int64(3), "large": 10**400}
    sampled = sampled_of([row("a_0_0", extra={"reward_extra_info": info})], 1, "acc", 3)
    assert sampled.members_PG[0][0].measures == {"acc": 1.0, "solved": 1.0, "steps": 3.0}
    assert sampled.members_PG[0][0].outcome == 1.0


def test_an_infinite_reward_names_its_row() -> None:
    with pytest.raises(ValueError, match=r"finite reward of verl .* found -inf in the row .*a_0_0.*Return a finite"):
        sampled_of([row("a_0_0", -math.inf)], 1, None, 3)


def test_the_outcome_is_read_from_the_key_that_is_named() -> None:
    found = groups_of([row("a_0_0", extra={"reward_extra_info": {"acc": 0.5}}), row("a_1_0", extra=_acc(1))], 2, "acc")
    assert [member.outcome for member in found[0].trajectories] == [0.5, 1.0]
    assert math.isnan(groups_of([row("a_0_0"), row("a_1_0")])[0].trajectories[0].outcome or 0.0)


def _acc(value: float) -> dict[str, object]:
    return {"reward_extra_info": {"acc": value}}


def test_an_outcome_that_is_missing_or_no_success_is_a_sentence() -> None:
    with pytest.raises(ValueError, match=r"Expected the key 'acc'.* found no numbers"):
        groups_of([row("a_0_0")], 1, "acc")
    with pytest.raises(ValueError, match=r"Expected success from 0 to 1 of 'acc'.* found 3"):
        groups_of([row("a_0_0", extra=_acc(3))], 1, "acc")


def test_parts_of_a_session_are_one_episode_with_the_score_of_the_last() -> None:
    rows = [
        row("a_0_1", 1.0, prompt_ids=(5,), response_ids=(6, END), logprobs=(-0.5, -0.1)),
        row("a_0_0", 1.0, logprobs=(-1.0, -2.0)),
    ]
    member = groups_of(rows, 1)[0].trajectories[0]
    assert member.reward == 1.0
    assert [turn.reply.prompt.restarts for turn in member.turns] == [False, True]
    assert [turn.reply.ids for turn in member.turns] == [(3, END), (6, END)]
    assert [turn.reply.logprobs for turn in member.turns] == [(-1.0, -2.0), (-0.5, -0.1)]
    assert member.context_ids(1) == (5,)


def test_ids_that_were_not_sampled_are_the_prompt_of_the_next_reply() -> None:
    long = row("a_0_0", response_ids=(3, END, 7, 4, END), sampled=(True, True, False, True, True), logprobs=(-1,) * 5)
    turns = groups_of([long], 1)[0].trajectories[0].turns
    assert [turn.reply.prompt.ids for turn in turns] == [(1, 2), (7,)]
    assert [turn.reply.ids for turn in turns] == [(3, END), (4, END)]
    assert [len(turn.reply.logprobs) for turn in turns] == [2, 2]


def test_the_version_of_a_row_is_that_of_its_last_weights() -> None:
    rows = [row("a_0_0", versions=(1, 2)), row("a_1_0", versions=(3, 3)), row("b_0_0", versions=(3, 3)), row("b_1_0")]
    sampled = sampled_of(rows, 2, None, 3)
    groups = reader().groups(sampled.members_PG, 3, 1.0)
    assert [member.policy_version for group in groups for member in group.trajectories] == [2, 3, 3, 3]
    assert (sampled.stale, sampled.stale_share().value) == (1, 0.5)


def test_an_episode_of_heedfuls_agent_loop_is_read_back_with_its_components() -> None:
    episode = played()
    (output,) = outputs_of(episode)
    ours = row(
        "a_0_0",
        0.30000001,  # verl keeps the reward in float32
        prompt_ids=output.prompt_ids,
        response_ids=output.response_ids,
        sampled=tuple(map(bool, output.response_mask)),
        logprobs=output.logprobs,
        extra={FIELD: write_episode(episode), "reward_extra_info": {"acc": 1.0}},
    )
    sampled = sampled_of([ours], 1, None, 0)
    (group,) = reader().groups(sampled.members_PG, 0, 1.0)
    assert group == Group(episode.task, (episode,))
    assert sampled.played
    assert values_of(sampled.members_PG, [group], "goal") == [[0.5]]
    assert values_of(sampled.members_PG, [group], "acc") == [[1.0]]


def test_the_environment_of_an_episode_tells_its_right_first_actions() -> None:
    env = Echo()
    task = env.task(3)
    played_by = json.dumps(to_json(PlayedEnvironment(env=env))["env"])
    episode = replace(played(), task=task)
    (output,) = outputs_of(episode)
    ours = row("a_0_0", prompt_ids=output.prompt_ids, response_ids=output.response_ids)
    ours = replace(ours, extra={FIELD: write_episode(episode), ENVIRONMENT: played_by})
    right = rightness_in(sampled_of([ours], 1, None, 0), ())
    assert right(task) == env.right_actions(task)
    assert right(env.task(4)) is None


def played() -> Trajectory:
    reply = Reply(Prompt("ab", (1, 2)), (3, END), "c", (-1.0, -2.0), (), Span(0, 1), Span(1, 1), True, False)
    turn = Turn(reply, {"goal": 0.5, "cost": -0.2}, ("Up",), True, "moved", "s1")
    return Trajectory(Task("toy-1", 7, "train", environment="toy"), 0, (turn,), Ending.SOLVED, 1.0)


def test_an_episode_of_an_unknown_form_is_a_sentence() -> None:
    with pytest.raises(ValueError, match="same version of heedful on every node"):
        sampled_of([row("a_0_0", extra={FIELD: '{"form": 99}'})], 1, None, 0)


@pytest.mark.parametrize(
    ("real", "ranks", "rows", "counts"),
    [
        ("1110", 1, 4, [3, 3, 3, 3]),
        ("1110", 2, 2, [2, 1, 2, 1]),
        ("11111100", 1, 4, [4, 4, 4, 4, 2, 2, 2, 2]),
        ("11101000", 2, 4, [3, 3, 1, 1, 3, 3, 1, 1]),
        ("1000", 2, 4, [1, 1, 1, 1]),
    ],
)
def test_the_real_rows_of_a_mini_batch_are_counted_over_all_ranks(
    real: str, ranks: int, rows: int, counts: list[int]
) -> None:
    assert mini_batch_counts([letter == "1" for letter in real], ranks, rows) == counts


def test_a_completion_without_rows_has_no_values() -> None:
    broken = sampled_of([row("a_1_0", 1.0)], 2, None, 0).members_PG[0][0]
    assert isinstance(broken, Completion)
    assert not broken.ids
    assert broken.played is not None
    assert broken.played.reward is None
