"""Episodes that are played with an asynchronous sampler, beside those of heedful's own collectors. Without verl."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import pytest
from verl_players import FakePolicy, FakeSampler, byte_renderer, byte_tokenizer, sampled_after, wander

from heedful.boundary import ConfigurationError
from heedful.envs.common import in_tags
from heedful.envs.frozen_lake.environment import FrozenLake
from heedful.envs.sokoban.environment import Sokoban
from heedful.envs.toys.echo import Echo
from heedful.models import Renderer, Tags
from heedful.rollout import Context, LockStep, Request
from heedful.types import Ending, Observation, Step, Task, Trajectory
from heedful_verl.play.episodes import outputs_of
from heedful_verl.play.playing import (
    Aborted,
    Limits,
    Played,
    Sampled,
    environment_of,
    play,
    reward_and_measures,
)

ROOMY = Limits(reply=200, window=4000)


def played(env: Any, task: Task, member: int = 0, context: Context = Context(), **change: Any) -> Played:  # noqa: B008
    sampler, limits = change.get("sampler", FakeSampler()), change.get("limits", ROOMY)
    return asyncio.run(play((env, task, member), context, byte_renderer(), sampler, limits, temperature=1.0))


def collected(env: Any, task: Task, members: int, context: Context) -> tuple[Trajectory, ...]:
    request = Request(env.episode, [task], members, env.turns, context)
    return LockStep()(FakePolicy(ROOMY.reply), request)[0].trajectories


@pytest.mark.parametrize("context", [Context(), Context(turns=1), Context(turns=0)])
@pytest.mark.parametrize("env", [FrozenLake(slip=0.3), Sokoban(), Echo(turns=3)], ids=lambda env: env.name)
def test_an_episode_equals_that_of_the_collectors(env: Any, context: Context) -> None:
    task = env.task(11)
    assert tuple(played(env, task, member, context).trajectory for member in range(3)) == collected(
        env, task, 3, context
    )


def test_a_run_with_other_tags_asks_for_them_and_reads_them() -> None:
    env, task = Echo(), Echo().task(0)
    tags = Tags(open="[think]", close="[/think]", answer_open="[answer]", answer_close="[/answer]")
    renderer = Renderer(byte_tokenizer(), tags)
    (_, reply), *_ = in_tags(env, tags).demonstrate(task, random.Random(0))

    async def right(ids: Sequence[int], most: int) -> Sampled:
        return Sampled(renderer.as_sampled(reply))

    episode = asyncio.run(play((env, task, 0), Context(), renderer, right, ROOMY, temperature=1.0)).trajectory
    prompt = episode.turns[0].reply.prompt.text
    assert ("[answer]" in prompt, "<answer>" in prompt) == (True, False)
    assert (episode.outcome, episode.turns[0].valid) == (1.0, True)


def test_the_full_history_is_one_row_and_a_window_one_per_restart() -> None:
    env, task = Echo(turns=3), Echo(turns=3).task(0)
    whole = played(env, task).trajectory
    (row,) = outputs_of(whole)
    assert row.prompt_ids == whole.turns[0].reply.prompt.ids
    assert sum(row.response_mask) == sum(len(turn.reply.ids) for turn in whole.turns)
    assert row.prompt_ids + row.response_ids == whole.context_ids(2) + whole.turns[2].reply.ids
    assert row.logprobs is not None
    assert [p for p, mask in zip(row.logprobs, row.response_mask, strict=True) if not mask] == [0.0] * (
        len(row.response_ids) - sum(row.response_mask)
    )
    cut = played(env, task, context=Context(turns=0)).trajectory
    rows = outputs_of(cut)
    assert [row.prompt_ids for row in rows] == [turn.reply.prompt.ids for turn in cut.turns]
    assert [row.response_ids for row in rows] == [turn.reply.ids for turn in cut.turns]
    assert all(all(row.response_mask) for row in rows)
    last_turns = outputs_of(played(env, task, context=Context(turns=1)).trajectory)
    assert [sum(row.response_mask) > 0 for row in last_turns] == [True, True]  # turns 1 and 2 share their row


def test_a_sampler_without_log_probabilities_gives_rows_without_them() -> None:
    class Silent(FakeSampler):
        async def __call__(self, ids: Sequence[int], most: int) -> Sampled:
            return Sampled(sampled_after(ids, wander, most).ids)

    episode = played(Echo(), Echo().task(0), sampler=Silent())
    assert outputs_of(episode.trajectory)[0].logprobs is None
    assert episode.versions is None


def test_a_context_without_room_ends_the_episode_and_the_sampler_is_not_asked() -> None:
    env, task, sampler = Echo(turns=3), Echo(turns=3).task(0), FakeSampler()
    first = len(played(env, task).trajectory.turns[0].reply.prompt.ids)
    reply = len(played(env, task).trajectory.turns[0].reply.ids)
    short = played(env, task, sampler=sampler, limits=Limits(200, first + reply + 3)).trajectory
    assert (short.ending, len(short.turns), short.outcome) == (Ending.OUT_OF_TOKENS, 1, 0.0)
    assert sampler.asked == [(first, reply + 3)]
    none = played(env, task, sampler=sampler, limits=Limits(200, first)).trajectory
    assert (none.ending, none.turns, len(sampler.asked)) == (Ending.OUT_OF_TOKENS, (), 1)
    assert reward_and_measures(none) is None


def test_a_reply_is_never_asked_for_more_than_its_limit_and_the_window_leave() -> None:
    sampler = FakeSampler()
    env, task = Echo(turns=2), Echo(turns=2).task(0)
    played(env, task, sampler=sampler, limits=Limits(20, 4000))
    assert [most for _, most in sampler.asked] == [20, 20]


def test_the_versions_are_the_first_and_the_last_of_all_turns() -> None:
    class Moving(FakeSampler):
        async def __call__(self, ids: Sequence[int], most: int) -> Sampled:
            now = 3 + len(self.asked)
            await FakeSampler.__call__(self, ids, most)
            found = sampled_after(ids, wander, most)
            return Sampled(found.ids, found.logprobs, (now, now + 1))

    episode = played(Echo(turns=3), Echo(turns=3).task(0), sampler=Moving())
    assert episode.versions == (3, 6)
    assert episode.trajectory.policy_version == 6


class Breaking:
    """Raises in its second turn."""

    name, turns = "breaking", 3

    def __init__(self) -> None:
        self.steps = 0

    def task(self, seed: int) -> Task:
        return Task("breaking-0", seed, "train")

    def episode(self) -> Breaking:
        return Breaking()

    def start(self, task: Task, member: int) -> Observation:
        return Observation("go")

    def step(self, response: str) -> Step:
        self.steps += 1
        if self.steps == 2:
            raise RuntimeError("the lake is on fire")
        return Step(Observation("on"), {"a": 1.0})


def test_an_environment_that_raises_costs_its_episode_and_has_no_reward() -> None:
    env = Breaking()
    trajectory = played(env, env.task(0)).trajectory
    assert (trajectory.ending, trajectory.outcome) == (Ending.ERROR, None)
    assert "the lake is on fire" in trajectory.error
    assert reward_and_measures(trajectory) is None


def test_a_sampler_that_stops_for_good_is_not_taken_for_a_policy_without_room() -> None:
    class Dead(FakeSampler):
        async def __call__(self, ids: Sequence[int], most: int) -> Sampled:
            raise Aborted("the server is gone")

    with pytest.raises(Aborted, match="the server is gone"):
        played(Echo(), Echo().task(0), sampler=Dead())


def test_a_slow_environment_does_not_hold_up_the_episodes_of_others() -> None:
    begun: list[str] = []

    class Waiting(Breaking):
        def __init__(self, name: str = "") -> None:
            super().__init__()
            self.id = name

        def episode(self) -> Waiting:
            return Waiting(self.id)

        def start(self, task: Task, member: int) -> Observation:
            begun.append(self.id)
            while len(begun) < 2:  # goes on only if the other one has begun too
                pass
            return Observation("go")

        def step(self, response: str) -> Step:
            return Step(Observation("end"), {}, Ending.SOLVED, 1.0)

    async def both() -> list[Played]:
        seats = [(Waiting(name), Task("w-0", 0, "train"), 0) for name in "ab"]
        return await asyncio.wait_for(
            asyncio.gather(*(play(s, Context(), byte_renderer(), FakeSampler(), ROOMY, 1.0) for s in seats)), 30
        )

    assert [one.trajectory.ending for one in asyncio.run(both())] == [Ending.SOLVED] * 2


def test_the_measures_of_every_episode_have_the_same_names() -> None:
    env = FrozenLake()
    found = [reward_and_measures(played(env, env.task(seed)).trajectory) for seed in range(6)]
    silly = played(env, env.task(0), sampler=FakeSampler(lambda context: "<think>no")).trajectory
    found.append(reward_and_measures(silly))
    names = {tuple(one[1]) for one in found if one is not None}
    assert names == {("acc", "valid", "closed", "cut", "turns")}
    assert "reward" not in next(iter(names))  # verl adds it
    last = found[-1]
    assert last is not None
    assert (last[1]["acc"], last[1]["valid"], last[1]["closed"]) == (0.0, 0.0, 0.0)
    assert last[0] == silly.reward


def test_an_environment_is_read_from_its_json_and_code_needs_trust() -> None:
    assert environment_of('{"type": "echo", "turns": 2}') == Echo(turns=2)
    assert environment_of('{"type": "echo", "turns": 2}') is environment_of('{"type": "echo", "turns": 2}')
    with pytest.raises(ConfigurationError, match="turnips"):
        environment_of('{"type": "echo", "turnips": 2}')
    with pytest.raises(ConfigurationError, match="a file does not decide what is imported"):
        environment_of('{"type": "my_verl_game:Maze"}')
    with pytest.raises(ConfigurationError, match="my_verl_game"):
        environment_of('{"type": "my_verl_game:Maze"}', ("my_verl_game",))  # trusted, and not there
