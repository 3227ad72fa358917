"""Episodes as rows of verl and back: nothing is lost. Without verl."""

from __future__ import annotations

import asyncio
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
