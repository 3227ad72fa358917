"""Thoughts put into a policy's mouth: they are the ones they claim to be, and nothing else is changed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from heedful.envs.common.actions import CLOSE_THOUGHT, OPEN_THOUGHT  # noqa: E402
from heedful.envs.common.tasks import evaluation_tasks  # noqa: E402
from heedful.envs.toys.echo import Echo  # noqa: E402
from heedful.models.chat.render import Renderer  # noqa: E402
from heedful.models.load import load_model  # noqa: E402
from heedful.policies import Local, OpenPolicySource, Sampling, Weights, open_with  # noqa: E402
from heedful.policies.hf import HFPolicy  # noqa: E402
from heedful.rollout import LockStep, Request  # noqa: E402
from heedful.types import Group, Reply, Turn  # noqa: E402
from research.detector.forced_thoughts import KINDS, ForcedThoughts, Kind, forced_thought_success  # noqa: E402

ECHO = Echo(instructions="brief", turns=2)
SAMPLED = Sampling(tokens_per_turn=24)
GREEDY = Sampling(tokens_per_turn=24, greedy=True)
TASKS = evaluation_tasks(ECHO, "val", 12)


@pytest.fixture(scope="module")
def model(seedling_folder: Path) -> Any:
    return load_model(str(seedling_folder), torch.device("cpu"))[0]


@pytest.fixture(scope="module")
def source(model: Any) -> Iterator[OpenPolicySource]:
    with open_with(Local(), Weights(model)) as opened:
        yield opened


@pytest.fixture(scope="module")
def renderer(seedling_folder: Path) -> Renderer:
    return Renderer(load_model(str(seedling_folder), torch.device("cpu"))[1])


def forced(source: OpenPolicySource, renderer: Renderer, kind: Kind, sampling: Sampling = SAMPLED) -> list[Group]:
    return LockStep()(
        ForcedThoughts(source, renderer, sampling, kind, seed=3), Request(ECHO.episode, TASKS, 1, ECHO.turns)
    )


def turns_of(groups: list[Group]) -> list[Turn]:
    return [turn for group in groups for trajectory in group.trajectories for turn in trajectory.turns]


def thought_of(reply: Reply) -> str:
    return reply.text.removeprefix(OPEN_THOUGHT).partition(CLOSE_THOUGHT)[0]


def test_with_its_own_thoughts_a_greedy_policy_plays_as_it_always_does(
    model: Any, source: OpenPolicySource, renderer: Renderer
) -> None:
    plain = LockStep()(HFPolicy(model, renderer, GREEDY, seed=0), Request(ECHO.episode, TASKS, 1, ECHO.turns))
    own = forced(source, renderer, "own", GREEDY)
    assert [turn.reply.ids for turn in turns_of(own)] == [turn.reply.ids for turn in turns_of(plain)]
    assert [turn.reply.prompt for turn in turns_of(own)] == [turn.reply.prompt for turn in turns_of(plain)]
    assert [turn.reply.thought for turn in turns_of(own)] == [turn.reply.thought for turn in turns_of(plain)]


def test_a_foreign_thought_is_one_of_another_observation_of_the_turn(
    source: OpenPolicySource, renderer: Renderer
) -> None:
    own, foreign = forced(source, renderer, "own", GREEDY), forced(source, renderer, "foreign", GREEDY)
    first_own = [thought_of(group.trajectories[0].turns[0].reply) for group in own]
    first_foreign = [thought_of(group.trajectories[0].turns[0].reply) for group in foreign]
    assert first_foreign == [*first_own[1:], first_own[0]]


def test_an_empty_thought_is_its_closing_tag_alone(source: OpenPolicySource, renderer: Renderer) -> None:
    for turn in turns_of(forced(source, renderer, "empty")):
        assert turn.reply.text.startswith(OPEN_THOUGHT + CLOSE_THOUGHT)
        assert turn.reply.closed
        assert (
            renderer.tokenizer.decode(
                list(turn.reply.ids[: turn.reply.thought.end]),
                skip_special_tokens=False,
                clean_up_tokenization_spaces=False,
            )
            == CLOSE_THOUGHT
        )


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_forced_has_no_log_probability_and_what_was_sampled_has_one(
    source: OpenPolicySource, renderer: Renderer, kind: Kind
) -> None:
    for turn in turns_of(forced(source, renderer, kind)):
        reply = turn.reply
        known = [not math.isnan(value) for value in reply.logprobs]
        assert known == [False] * reply.thought.end + [True] * (len(reply.ids) - reply.thought.end)
        assert [not math.isnan(value) for value in reply.entropies] == known


def test_a_thought_that_is_never_closed_gets_no_answer(source: OpenPolicySource, renderer: Renderer) -> None:
    for turn in turns_of(forced(source, renderer, "own", Sampling(tokens_per_turn=2))):
        assert len(turn.reply.ids) <= 2
        assert not turn.reply.closed
        assert not turn.valid


def test_the_three_rates_rest_on_one_episode_per_task(source: OpenPolicySource, renderer: Renderer) -> None:
    env = Echo(instructions="brief")
    tasks = evaluation_tasks(env, "val", 40)
    rates = forced_thought_success(source, renderer, GREEDY, env, tasks)
    assert [rate.name for rate in rates] == [f"forced/{kind}/success" for kind in KINDS]
    assert all(rate.n == 40 and rate.low is not None for rate in rates)
    own, foreign, _ = (float(rate.value) for rate in rates if isinstance(rate.value, float))
    assert own >= 0.75
    assert foreign <= 0.5  # the answers of this seedling follow the thought, not the prompt
    again = forced_thought_success(source, renderer, GREEDY, env, tasks)
    assert rates == again
