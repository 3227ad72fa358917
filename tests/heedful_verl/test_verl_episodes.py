"""Episodes as rows of verl and back: nothing is lost, and what does not belong together is refused. Without verl."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
from verl_players import FakeSampler, byte_renderer

from heedful.envs.frozen_lake.environment import FrozenLake
from heedful.envs.toys.echo import Echo
from heedful.rollout import Context
from heedful.types import Ending, Trajectory
from heedful_verl.play.episodes import outputs_of, read_episode, write_episode
from heedful_verl.play.playing import Limits, play


def episode(env: Any, context: Context, seed: int = 3, window: int = 4000) -> Trajectory:
    seat = env, env.task(seed), 1
    return asyncio.run(play(seat, context, byte_renderer(), FakeSampler(), Limits(200, window), 0.7)).trajectory


@pytest.mark.parametrize("context", [Context(), Context(turns=2), Context(turns=1), Context(turns=0)])
@pytest.mark.parametrize("env", [FrozenLake(slip=0.5, instructions="full"), Echo(turns=4)], ids=lambda env: env.name)
def test_what_is_read_back_is_the_episode(env: Any, context: Context) -> None:
    for seed in range(4):
        trajectory = episode(env, context, seed)
        assert read_episode(write_episode(trajectory), outputs_of(trajectory)) == trajectory


def test_an_episode_out_of_room_with_text_of_all_kinds_is_read_back() -> None:
    trajectory = episode(Echo(turns=4), Context(), window=150)
    assert trajectory.ending is Ending.OUT_OF_TOKENS
    told = replace(trajectory, error="\u2028 \U0001f600 \ud800 \x1b[31m", progress=0.1 + 0.2)
    assert read_episode(write_episode(told), outputs_of(told)) == told


def test_rows_without_log_probabilities_give_replies_without_them() -> None:
    trajectory = episode(Echo(turns=2), Context())
    rows = [replace(row, logprobs=None) for row in outputs_of(trajectory)]
    found = read_episode(write_episode(trajectory), rows)
    assert [turn.reply.logprobs for turn in found.turns] == [(), ()]
    assert [turn.reply.ids for turn in found.turns] == [turn.reply.ids for turn in trajectory.turns]


def test_rows_of_another_episode_are_refused() -> None:
    trajectory = episode(Echo(turns=3), Context(turns=0))
    text, rows = write_episode(trajectory), outputs_of(trajectory)
    longer = replace(rows[1], response_ids=(*rows[1].response_ids, 5))
    shorter = replace(rows[2], response_ids=rows[2].response_ids[:-1])
    for wrong, found in [
        (rows[:2], "3 rows in the JSON, but 2 in the batch"),
        ([*rows, rows[0]], "3 rows in the JSON, but 4 in the batch"),
        ([rows[0], longer, rows[2]], "of row 2 in the JSON"),
        ([*rows[:2], shorter], "ids in the row"),
    ]:
        with pytest.raises(ValueError, match=found):
            read_episode(text, wrong)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda tree: tree | {"form": 2},
        lambda tree: tree | {"ending": "eaten"},
        lambda tree: {name: value for name, value in tree.items() if name != "task"},
        lambda tree: tree | {"turns": [{"begins": True}]},
        lambda tree: [tree],
        lambda tree: tree | {"member": 1e999},
        lambda tree: tree | {"temperature": 10**400},
        lambda tree: tree | {"outcome": "x"},
        lambda tree: tree | {"progress": {}},
        *(
            lambda tree, given=given: tree | {"turns": [turn | given for turn in tree["turns"]]}
            for given in (
                *({"rewards": None}, {"rewards": {"a": 10**400}}, {"actions": [1]}, {"effect": 3}, {"valid": "yes"}),
                *({"text": 3}, {"prompt": {"text": 3, "ids": (), "restarts": True, "history": 0}}, {"thought": [1]}),
            )
        ),
    ],
)
def test_json_of_another_form_is_refused_in_a_sentence(spoil: Any) -> None:
    trajectory = episode(Echo(), Context())
    text = json.dumps(spoil(json.loads(write_episode(trajectory))))
    with pytest.raises(ValueError, match=r"Expected an episode of heedful's agent loop \(form 1\)"):
        read_episode(text, outputs_of(trajectory))
    with pytest.raises(ValueError, match="not JSON"):
        read_episode("{", outputs_of(trajectory))
    no_text: Any = 5
    with pytest.raises(ValueError, match=r"Expected an episode of heedful's agent loop \(form 1\)"):
        read_episode(no_text, outputs_of(trajectory))
