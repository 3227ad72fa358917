"""The batched sampler asked for some conversations at a time: the same replies, nothing read twice, nothing hoarded."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

import sampled  # noqa: E402
from heedful.envs.frozen_lake.environment import FrozenLake  # noqa: E402
from heedful.models.chat.render import Renderer  # noqa: E402
from heedful.policies.hf import HFPolicy  # noqa: E402
from heedful.protocols import AnswersSubsets, ContinuousBatching  # noqa: E402
from heedful.rollout import FULL_HISTORY, Asynchronous, Context, LockStep, Request  # noqa: E402
from heedful.types import Conversation, Group, Reply  # noqa: E402
from sampled import ask, columns_read, go_on, trajectories  # noqa: E402
from slow_environments import slow, up_to  # noqa: E402
from tiny_models import llama  # noqa: E402

LAKE = FrozenLake(instructions="brief", turns=4)
TASKS = [LAKE.task(seed) for seed in range(4)]


@pytest.fixture(scope="module")
def model(tokenizer: Any) -> Any:
    return llama(len(tokenizer))


def policy_of(model: Any, renderer: Renderer, seed: int = 0, **sampling: Any) -> HFPolicy:
    return sampled.policy_of(model, renderer, seed, **{"noise": "conversation", **sampling})


def assert_the_same_episodes(found: Sequence[Group], expected: Sequence[Group], tolerance: float) -> None:
    """Ids, rewards and endings exactly, log-probabilities and entropies up to `tolerance`."""
    for one, other in zip(trajectories(found), trajectories(expected), strict=True):
        assert (one.task, one.member, one.ending, one.outcome) == (
            other.task,
            other.member,
            other.ending,
            other.outcome,
        )
        for turn, its in zip(one.turns, other.turns, strict=True):
            assert turn.reply.ids == its.reply.ids
            assert turn.reply.prompt == its.reply.prompt
            assert (turn.rewards, turn.actions, turn.state) == (its.rewards, its.actions, its.state)
            assert turn.reply.logprobs == pytest.approx(its.reply.logprobs, abs=tolerance)
            assert turn.reply.entropies == pytest.approx(its.reply.entropies, abs=tolerance)


class BatchByBatch:
    """The same policy without the offer that newcomers may join."""

    def __init__(self, policy: HFPolicy) -> None:
        self.temperature, self.version, self.parallel = policy.temperature, policy.version, policy.parallel
        self.keep, self.respond = policy.keep, policy.respond


WAYS: dict[str, Any] = {"joining": lambda policy: policy, "batch by batch": BatchByBatch}


def test_the_sampler_offers_both_ways(model: Any, renderer: Renderer) -> None:
    policy = policy_of(model, renderer)
    assert isinstance(policy, AnswersSubsets)
    assert isinstance(policy, ContinuousBatching)
    assert isinstance(BatchByBatch(policy), AnswersSubsets)
    assert not isinstance(BatchByBatch(policy), ContinuousBatching)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("context", [FULL_HISTORY, Context(1), Context(0)], ids=["full", "last turn", "none"])
def test_asynchronous_episodes_are_those_of_lock_step(
    model: Any, renderer: Renderer, context: Context, way: str
) -> None:
    expected = LockStep()(policy_of(model, renderer), Request(LAKE.episode, TASKS, 4, LAKE.turns, context))
    assert len({turn.reply.ids for trajectory in trajectories(expected) for turn in trajectory.turns}) > 30
    make = slow(LAKE, up_to(0.03), context.turns or 0)
    policy = WAYS[way](policy_of(model, renderer))
    found = Asynchronous(6)(policy, Request(make, TASKS, 4, LAKE.turns, context))
    assert_the_same_episodes(found, expected, 1e-9)


def test_greedy_replies_are_the_same_too_whatever_the_noise(model: Any, renderer: Renderer) -> None:
    greedy = {"greedy": True, "noise": "batch"}
    expected = LockStep()(policy_of(model, renderer, **greedy), Request(LAKE.episode, TASKS, 2, LAKE.turns))
    found = Asynchronous()(
        policy_of(model, renderer, **greedy), Request(slow(LAKE, up_to(0.02), 1), TASKS, 2, LAKE.turns)
    )
    assert_the_same_episodes(found, expected, 1e-9)


def test_a_reply_does_not_depend_on_who_else_is_asked_nor_in_which_order(model: Any, renderer: Renderer) -> None:
    asked = [ask(str(number), f"echo {'ABCDEFGH'[number % 8]}" * (1 + number % 5)) for number in range(20)]
    together = policy_of(model, renderer).respond(asked)
    shuffled = list(range(20))
    random.Random(4).shuffle(shuffled)
    reordered = policy_of(model, renderer).respond([asked[number] for number in shuffled])
    for place, number in enumerate(shuffled):
        (alone,) = policy_of(model, renderer).respond([asked[number]])
        assert alone.ids == together[number].ids == reordered[place].ids
        assert alone.logprobs == pytest.approx(together[number].logprobs, abs=1e-9)


def test_seed_key_and_turn_decide_what_is_drawn(model: Any, renderer: Renderer) -> None:
    one = ask("a", "echo A")

    def drawn(conversation: Conversation, seed: int = 0) -> tuple[int, ...]:
        return policy_of(model, renderer, seed).respond([conversation])[0].ids

    assert drawn(one) == drawn(one)
    assert len({drawn(one), drawn(one, seed=1), drawn(ask("b", "echo A")), drawn(ask("a", "echo A", turn=1))}) == 4


def served(policy: HFPolicy, waves: Sequence[Sequence[Conversation]]) -> tuple[dict[str, Reply], list[str]]:
    """Replies to conversations that come wave by wave, and what happened in which order."""
    coming, replies, events = list(waves), dict[str, Reply](), list[str]()

    def arrivals(wait: bool) -> Sequence[Conversation]:
        came = coming.pop(0) if coming else []
        events.append(" ".join(["came", *(conversation.key for conversation in came)]))
        return came

    def hand_over(key: str, reply: Reply) -> None:
        events.append(f"over {key}")
        replies[key] = reply

    policy.serve(arrivals, hand_over)
    return replies, events


def test_newcomers_join_while_the_replies_of_others_grow_and_change_nothing(model: Any, renderer: Renderer) -> None:
    asked = [ask(str(number), f"echo {'ABCDEFGH'[number % 8]} " * (1 + number % 4)) for number in range(12)]
    alone = {one.key: policy_of(model, renderer).respond([one])[0] for one in asked}
    replies, events = served(policy_of(model, renderer), [asked[:5], asked[5:6], [], asked[6:]])
    assert replies.keys() == alone.keys()
    for key, reply in replies.items():
        assert reply.ids == alone[key].ids
        assert reply.logprobs == pytest.approx(alone[key].logprobs, abs=1e-9)
    longest = max(asked[:5], key=lambda one: len(alone[one.key].ids)).key
    assert len(alone[longest].ids) > 4
    assert events.index("came 5") < events.index(f"over {longest}"), "it joined while others were growing"


def test_a_reply_is_handed_over_at_the_token_that_ends_it(model: Any, renderer: Renderer) -> None:
    asked = [ask(str(number), "echo A") for number in range(12)]
    replies, events = served(policy_of(model, renderer), [asked])
    lengths = [len(replies[event.split()[1]].ids) for event in events if event.startswith("over")]
    assert lengths == sorted(lengths)
    assert len(set(lengths)) > 3


def test_a_context_without_room_is_handed_over_empty_and_the_others_go_on(tokenizer: Any, renderer: Renderer) -> None:
    policy = policy_of(llama(len(tokenizer), window=120), renderer)
    replies, _ = served(
        policy, [[ask("long", "echo A " * 60), ask("short", "echo A")], [ask("longer", "echo B " * 60)]]
    )
    assert [(replies[key].ids, replies[key].cut) for key in ("long", "longer")] == [((), True)] * 2
    assert replies["short"].ids


def test_the_model_is_left_as_it_was_when_serving_ends_in_an_error(tokenizer: Any, renderer: Renderer) -> None:
    model = llama(len(tokenizer)).train()

    def lost(key: str, reply: Reply) -> None:
        raise ConnectionError("nobody takes it")

    with pytest.raises(ConnectionError):
        policy_of(model, renderer).serve(lambda wait: [ask("a", "echo A")], lost)
    assert model.training


def distinct_tokens(groups: Sequence[Group]) -> int:
    """All tokens of all episodes but the last sampled one of each, which nobody reads."""
    return sum(
        len(trajectory.context_ids(len(trajectory.turns) - 1)) + len(trajectory.turns[-1].reply.ids) - 1
        for trajectory in trajectories(groups)
    )


@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_read_twice_when_conversations_are_asked_in_parts(
    model: Any, renderer: Renderer, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    read = columns_read(monkeypatch)
    # One member each, so that no prompt is shared: then every token of every episode is read exactly once.
    tasks = [LAKE.task(seed) for seed in range(12)]
    policy = WAYS[way](policy_of(model, renderer))
    groups = Asynchronous(4)(policy, Request(slow(LAKE, up_to(0.03), 5), tasks, 1, LAKE.turns))
    assert {len(trajectory.turns) for trajectory in trajectories(groups)} == {LAKE.turns}
    assert sum(int(new_BT.sum()) for new_BT in read) == distinct_tokens(groups)


def test_without_a_word_on_who_goes_on_others_are_let_go(
    model: Any, renderer: Renderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = columns_read(monkeypatch)
    asked = [ask(str(number), f"echo {'ABCDEFGH'[number]} " * 6) for number in range(8)]

    def second_turn_of_the_last(keep: bool) -> int:
        policy = policy_of(model, renderer)
        first = policy.respond(asked)
        later = [go_on(conversation, reply, "on") for conversation, reply in zip(asked, first, strict=True)]
        for part in (later[:4], later[4:]):
            if keep:
                policy.keep({conversation.key for conversation in asked})
            read.clear()
            policy.respond(part)
        return int(read[0].sum())

    # The last sampled token of each reply, and what stands between it and the next one.
    new = 4 * (
        1 + len(renderer.next_prompt(go_on(asked[0], policy_of(model, renderer).respond(asked[:1])[0], "on")).ids)
    )
    assert second_turn_of_the_last(keep=True) == pytest.approx(new, abs=4)
    assert second_turn_of_the_last(keep=False) > 3 * new


def test_what_is_held_is_at_most_twice_what_goes_on(model: Any, renderer: Renderer) -> None:
    policy, rng = policy_of(model, renderer, tokens_per_turn=3), random.Random(2)
    assert isinstance(policy, AnswersSubsets)
    talks = {str(number): ask(str(number), f"echo {number}") for number in range(40)}
    most = 0
    while talks:
        chosen = rng.sample(sorted(talks), min(len(talks), rng.randint(1, 9)))
        policy.keep(set(talks))
        held_before = policy._store.rows
        replies = policy.respond([talks[key] for key in chosen])
        for key, reply in zip(chosen, replies, strict=True):
            talks[key] = go_on(talks[key], reply, "on")
            if talks[key].turn == 4:
                del talks[key]
        policy._store.keep_only(set(talks))
        assert policy._store.rows <= 2 * len(talks)
        most = max(most, held_before)
    assert most > 10
    assert policy._store.rows == 0


def test_lock_step_holds_one_batch_and_no_more(model: Any, renderer: Renderer) -> None:
    policy = policy_of(model, renderer, tokens_per_turn=1)
    for _ in range(3):
        policy.respond([ask(str(number), "echo A") for number in range(8)])
        assert policy._store.rows == 8


def test_in_double_precision_episodes_are_the_same_to_the_bit(tokenizer: Any, renderer: Renderer) -> None:
    model = llama(len(tokenizer)).float()
    double = {"precision": "double", "temperature": 1.3}
    expected = LockStep()(policy_of(model, renderer, **double), Request(LAKE.episode, TASKS, 4, LAKE.turns))
    for seed in range(2):
        found = Asynchronous()(
            policy_of(model, renderer, **double), Request(slow(LAKE, up_to(0.02), seed), TASKS, 4, LAKE.turns)
        )
        assert found == expected
    assert model.dtype == torch.float32
    single = LockStep()(policy_of(model, renderer, temperature=1.3), Request(LAKE.episode, TASKS[:1], 1, LAKE.turns))
    errors = [
        abs(one - other)
        for turn, its in zip(single[0].trajectories[0].turns[:1], expected[0].trajectories[0].turns[:1], strict=True)
        for one, other in zip(turn.reply.logprobs, its.reply.logprobs, strict=True)
    ]
    assert max(errors) < 1e-5
