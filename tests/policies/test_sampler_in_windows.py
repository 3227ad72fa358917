"""The batched sampler where contexts restart: what it reports is still one plain forward pass over what it read."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from heedful.envs.frozen_lake.environment import FrozenLake  # noqa: E402
from heedful.models.chat.render import Renderer  # noqa: E402
from heedful.rollout import Context, LockStep, Request  # noqa: E402
from heedful.types import Conversation, Ending, Group, Message  # noqa: E402
from sampled import columns_read, go_on, largest_error, policy_of, trajectories  # noqa: E402
from tiny_models import llama  # noqa: E402

LAKE = FrozenLake(instructions="brief", turns=5)


@pytest.fixture(scope="module")
def model(tokenizer: Any) -> Any:
    return llama(len(tokenizer))


def played(policy: Any, context: Context = Context(), tasks: int = 3, members: int = 3) -> list[Group]:  # noqa: B008
    return LockStep()(
        policy, Request(LAKE.episode, [LAKE.task(seed) for seed in range(tasks)], members, LAKE.turns, context)
    )


@pytest.mark.parametrize("turns", [0, 1, 2, 3])
def test_what_is_reported_is_a_forward_pass_over_the_window(model: Any, renderer: Renderer, turns: int) -> None:
    found = trajectories(played(policy_of(model, renderer, tokens_per_turn=10), Context(turns)))
    cut = [turn.reply.cut for trajectory in found for turn in trajectory.turns]
    assert any(cut)
    assert not all(cut)
    for trajectory in found:
        assert len(trajectory.turns) == LAKE.turns
        for number, turn in enumerate(trajectory.turns):
            assert turn.reply.prompt.restarts == (number > turns)
            assert largest_error(model, trajectory.context_ids(number), turn.reply) < 1e-9


def test_kept_replies_stand_in_later_windows_with_their_sampled_ids(model: Any, renderer: Renderer) -> None:
    for trajectory in trajectories(played(policy_of(model, renderer), Context(2))):
        for number in (3, 4):
            window = trajectory.context_ids(number)
            history = window[: trajectory.turns[number].reply.prompt.history]
            last, before = (trajectory.turns[number - back].reply for back in (1, 2))
            ended = history if not last.cut else history[:-1]
            assert ended[-len(last.ids) :] == last.ids
            assert any(window[at : at + len(before.ids)] == before.ids for at in range(len(window)))


@pytest.mark.parametrize("turns", [4, 7])
def test_a_window_longer_than_the_episode_samples_the_same_bits(model: Any, renderer: Renderer, turns: int) -> None:
    assert played(policy_of(model, renderer), Context(turns)) == played(policy_of(model, renderer))


def test_rows_that_restart_beside_rows_that_go_on_sample_what_they_would_alone(model: Any, renderer: Renderer) -> None:
    def ask(key: str, text: str, *before: Message, restarts: bool = False) -> Conversation:
        return Conversation(key, (*before, Message("user", text)), restarts)

    policy = policy_of(model, renderer, greedy=True)
    first = [ask("on", "echo A not B"), ask("anew", "echo C not D"), ask("window", "echo E")]
    on, _, window = policy.respond(first)
    asked = [
        ask("on", "next", *first[0].messages, Message("assistant", on.text, on.ids)),
        ask("anew", "echo F not G", restarts=True),
        ask("window", "go", Message("user", "x"), Message("assistant", window.text, window.ids), restarts=True),
    ]
    together = policy.respond(asked)
    for conversation, reply in zip(asked, together, strict=True):
        (alone,) = policy_of(model, renderer, greedy=True).respond([conversation])
        assert reply.ids == alone.ids
        assert largest_error(model, renderer.context_ids(conversation), reply) < 1e-9
    # Their caches are those of what was read last, so a third turn goes on from there.
    third = [go_on(one, said, "more") for one, said in zip(asked, together, strict=True)]
    for conversation, reply in zip(third, policy.respond(third), strict=True):
        assert largest_error(model, renderer.context_ids(conversation), reply) < 1e-9


def test_a_turn_after_a_restart_reads_its_window_once_per_distinct_context(
    model: Any, renderer: Renderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    played(policy_of(model, renderer), Context(0))  # a model's first reply checks its KV cache: reads of its own
    read = columns_read(monkeypatch)
    found = trajectories(played(policy_of(model, renderer), Context(0)))
    reads = [tuple(new_BT.shape) for new_BT in read if new_BT.shape[1] > 1]
    for number, shape in enumerate(reads):
        contexts = {trajectory.turns[number].reply.prompt.ids for trajectory in found}
        assert shape == (len(contexts), max(map(len, contexts)))
    assert len(reads) == LAKE.turns


def test_a_model_too_short_for_the_episode_plays_on_in_windows_and_never_forgets_in_silence(
    tokenizer: Any, renderer: Renderer
) -> None:
    """RAGEN cuts the oldest turns there: they train nothing, and later ones are trained under what they never read."""
    prompt = max(
        len(renderer.start([Message("user", LAKE.episode().start(LAKE.task(s), 0).text)]).ids) for s in range(3)
    )
    short = llama(len(tokenizer), window=2 * prompt + 24)
    for trajectory in trajectories(played(policy_of(short, renderer))):
        assert trajectory.ending is Ending.OUT_OF_TOKENS
    for trajectory in trajectories(played(policy_of(short, renderer), Context(0))):
        assert trajectory.ending is Ending.OUT_OF_TURNS
        assert len(trajectory.turns) == LAKE.turns
