"""The batched sampler against one plain forward pass over each whole episode."""

from __future__ import annotations

import copy
import random
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from benchmarks.families.models import built  # noqa: E402
from heedful.algorithms.table import Grpo  # noqa: E402
from heedful.envs.frozen_lake.environment import FrozenLake  # noqa: E402
from heedful.envs.toys.echo import Echo  # noqa: E402
from heedful.models.chat.render import Renderer  # noqa: E402
from heedful.policies import Local, Weights, open_with  # noqa: E402
from heedful.policies.hf import HFPolicy  # noqa: E402
from heedful.policies.kv import KVBatch  # noqa: E402
from heedful.policies.sampling import Sampling  # noqa: E402
from heedful.rollout import LockStep, Request  # noqa: E402
from heedful.training.samples import make_samples  # noqa: E402
from heedful.types import Conversation, Ending, Group, Reply, Trajectory, Verdict  # noqa: E402
from sampled import (  # noqa: E402
    ask,
    assert_drawn_from,
    columns_read,
    go_on,
    largest_error,
    policy_of,
    read_at_once,
    trajectories,
)
from tiny_models import llama, narrow, qwen2  # noqa: E402

LAKE = FrozenLake(instructions="brief", turns=4)
MODELS: dict[str, Callable[[int], Any]] = {
    "llama_full_heads": lambda vocabulary: llama(vocabulary, kv_heads=4),
    "qwen2_grouped_heads": qwen2,
}
"""Tests of one model take a Llama of grouped heads."""


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest, tokenizer: Any) -> Any:
    return MODELS[request.param](len(tokenizer))


def probed(model: Any, renderer: Renderer) -> Any:
    """The model, after the probe of its KV cache: what is counted afterwards is sampling."""
    assert policy_of(model, renderer).obstacle == ""
    return model


def played(policy: Any, env: Any = LAKE, tasks: int = 3, members: int = 4) -> list[Group]:
    return LockStep()(policy, Request(env.episode, [env.task(seed) for seed in range(tasks)], members, env.turns))


def replies(groups: Sequence[Group]) -> list[Reply]:
    return [turn.reply for trajectory in trajectories(groups) for turn in trajectory.turns]


def whole_ids(trajectory: Trajectory) -> tuple[int, ...]:
    """Everything that was read and sampled, in order."""
    last = len(trajectory.turns) - 1
    return trajectory.context_ids(last) + trajectory.turns[last].reply.ids


def largest_errors(model: Any, trajectory: Trajectory, temperature: float = 1.0) -> tuple[float, float]:
    """Of log-probabilities and of entropies, over all sampled tokens of an episode."""
    logprobs_TV = read_at_once(model, whole_ids(trajectory), temperature)
    logprob_error = entropy_error = 0.0
    for number, turn in enumerate(trajectory.turns):
        start = len(trajectory.context_ids(number))
        for offset, token in enumerate(turn.reply.ids):
            row = logprobs_TV[start + offset - 1]
            logprob_error = max(logprob_error, abs(float(row[token]) - turn.reply.logprobs[offset]))
            entropy_error = max(entropy_error, abs(float(-(row.exp() * row).sum()) - turn.reply.entropies[offset]))
    return logprob_error, entropy_error


def ragged(count: int = 9) -> list[Conversation]:
    """Questions of 1 to 300 characters."""
    rng = random.Random(3)
    lengths = [1, 300, *(rng.randint(1, 120) for _ in range(count - 2))]
    return [ask(str(row), "".join(rng.choices("echo not ABCDEFG\n", k=n))) for row, n in enumerate(lengths)]


class FreshEachTurn:
    """Forgets its cache before every turn."""

    temperature = 1.0
    version = 0

    def __init__(self, make: Callable[[], HFPolicy]) -> None:
        self._make = make

    def respond(self, conversations: Sequence[Conversation]) -> list[Reply]:
        return self._make().respond(conversations)


@pytest.mark.parametrize("env", [LAKE, Echo(instructions="brief", turns=3)], ids=["frozen_lake", "echo"])
def test_what_the_sampler_reports_is_one_plain_forward_pass(model: Any, renderer: Renderer, env: Any) -> None:
    groups = played(policy_of(model, renderer), env)
    lengths = Counter(len(reply.ids) for reply in replies(groups))
    assert min(lengths) <= 2, "early finishers are part of this test"
    assert lengths[12] > 0, "and so are replies that meet the limit"
    for trajectory in trajectories(groups):
        assert len(trajectory.turns) == env.turns
        assert max(largest_errors(model, trajectory)) < 1e-9


def test_float32_stays_within_rounding_of_one_forward_pass(model: Any, renderer: Renderer) -> None:
    single = copy.deepcopy(model).float()
    for trajectory in trajectories(played(policy_of(single, renderer))):
        assert max(largest_errors(single, trajectory)) < 1e-5


@pytest.mark.parametrize("temperature", [0.5, 2.5])
def test_log_probabilities_are_those_under_the_temperature(
    tokenizer: Any, renderer: Renderer, temperature: float
) -> None:
    model = llama(len(tokenizer))
    groups = played(policy_of(model, renderer, temperature=temperature))
    assert all(trajectory.temperature == temperature for trajectory in trajectories(groups))
    for trajectory in trajectories(groups):
        assert max(largest_errors(model, trajectory, temperature)) < 1e-9


def test_tokens_are_drawn_from_the_distribution_that_is_reported(tokenizer: Any, renderer: Renderer) -> None:
    model = llama(len(tokenizer))
    asked = [ask(str(number), "echo A not B") for number in range(3000)]
    expected_V = read_at_once(model, [*renderer.context_ids(asked[0]), 0], 0.7)[-1].exp()
    for noise in ("batch", "conversation"):
        policy = policy_of(model, renderer, temperature=0.7, tokens_per_turn=1, noise=noise)
        assert_drawn_from(expected_V, policy.respond(asked))


def test_rows_of_very_different_lengths_do_not_see_each_other(model: Any, renderer: Renderer) -> None:
    asked = ragged()
    together = policy_of(model, renderer, greedy=True).respond(asked)
    for conversation, reply in zip(asked, together, strict=True):
        (alone,) = policy_of(model, renderer, greedy=True).respond([conversation])
        assert reply.ids == alone.ids
        assert reply.logprobs == pytest.approx(alone.logprobs, abs=1e-9)
        assert reply.entropies == pytest.approx(alone.entropies, abs=1e-9)


def test_greedy_takes_the_likeliest_token_and_reports_it_under_the_temperature(model: Any, renderer: Renderer) -> None:
    for trajectory in trajectories(played(policy_of(model, renderer, greedy=True, temperature=1.7))):
        logprobs_TV = read_at_once(model, whole_ids(trajectory), 1.7)
        for number, turn in enumerate(trajectory.turns):
            start = len(trajectory.context_ids(number)) - 1
            rows = logprobs_TV[start : start + len(turn.reply.ids)]
            assert tuple(rows.argmax(-1).tolist()) == turn.reply.ids
        assert max(largest_errors(model, trajectory, 1.7)) < 1e-9


def test_a_cache_kept_over_turns_changes_nothing(model: Any, renderer: Renderer) -> None:
    kept = played(policy_of(model, renderer, greedy=True))
    fresh = played(FreshEachTurn(lambda: policy_of(model, renderer, greedy=True)))
    assert [reply.ids for reply in replies(kept)] == [reply.ids for reply in replies(fresh)]
    for one, other in zip(replies(kept), replies(fresh), strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-9)


def test_a_compiled_pass_of_one_token_is_one_graph_for_all_lengths_and_weights(
    tokenizer: Any, renderer: Renderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Growing caches, fewer rows and new weights compile nothing again. The pass is taken whole: no graph breaks."""
    model = narrow(len(tokenizer), dtype=torch.float64, num_hidden_layers=1, max_position_embeddings=1024)
    passes: list[int] = []

    def counted(graph: Any, inputs: Any) -> Any:
        passes.append(0)
        number = len(passes) - 1

        def read(*given: Any) -> Any:
            passes[number] += 1
            return graph(*given)

        return read

    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=counted, fullgraph=True))
    with open_with(Local(compile=True), Weights(model)) as source:
        for version in range(2):
            source.weights_changed(Weights(model, version))
            policy = source.policy(renderer, Sampling(tokens_per_turn=12), version)
            assert replies(played(policy)) == replies(played(policy_of(model, renderer, version, version)))
            with torch.no_grad():
                model.get_input_embeddings().weight.mul_(1.5)
    assert len(passes) <= 2, "torch compiles a batch of one row apart"
    assert sum(passes) > 50


def test_each_turn_reads_only_what_is_new(tokenizer: Any, renderer: Renderer, monkeypatch: pytest.MonkeyPatch) -> None:
    model = probed(llama(len(tokenizer)), renderer)
    read = columns_read(monkeypatch)
    policy = policy_of(model, renderer)
    asked = ragged()
    first = policy.respond(asked)
    assert read[0].shape[1] == max(len(renderer.context_ids(conversation)) for conversation in asked)
    read.clear()
    asked = [go_on(conversation, reply, "on") for conversation, reply in zip(asked, first, strict=True)]
    policy.respond(asked)
    # The last sampled token of a reply has not been read yet.
    glue = max(len(renderer.next_prompt(conversation).ids) for conversation in asked)
    assert read[0].shape[1] == 1 + glue
    assert {new_BT.shape[1] for new_BT in read[1:]} == {1}


def test_a_prompt_that_members_share_is_read_once(
    tokenizer: Any, renderer: Renderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = probed(llama(len(tokenizer)), renderer)
    read = columns_read(monkeypatch)
    played(policy_of(model, renderer), tasks=3, members=5)
    assert list(map(len, read[:2])) == [3, 15]


def test_rows_that_have_ended_leave_the_batch(
    tokenizer: Any, renderer: Renderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = probed(llama(len(tokenizer)), renderer)
    read = columns_read(monkeypatch)
    sampled = policy_of(model, renderer, tokens_per_turn=20).respond(ragged(40))
    for number, held in enumerate(map(len, read[1:]), start=1):
        going = sum(len(reply.ids) > number for reply in sampled)
        assert going <= held <= max(going, 2 * going - 1)


def test_what_is_trained_on_is_what_was_sampled(model: Any, renderer: Renderer) -> None:
    groups = played(policy_of(model, renderer))
    samples = make_samples(groups, [Verdict(1.0, "kept", None)] * len(groups), Grpo().advantage)
    assert len(samples) == 12
    for sample, trajectory in zip(samples, trajectories(groups), strict=True):
        assert sample.ids == whole_ids(trajectory)
        assert sample.trained.count(True) == sum(len(turn.reply.ids) for turn in trajectory.turns)
        logprobs_TV = read_at_once(model, sample.ids)
        for place, (token, trained) in enumerate(zip(sample.ids, sample.trained, strict=True)):
            expected = float(logprobs_TV[place - 1, token]) if trained else 0.0
            assert sample.logprobs[place] == pytest.approx(expected, abs=1e-9)


def test_one_seed_gives_the_same_replies_and_another_one_others(model: Any, renderer: Renderer) -> None:
    first = played(policy_of(model, renderer, seed=5))
    torch.rand(3)  # the global generator is nobody's business
    assert first == played(policy_of(model, renderer, seed=5))
    assert first != played(policy_of(model, renderer, seed=6))


def test_the_global_generator_is_left_alone(tokenizer: Any, renderer: Renderer) -> None:
    before = torch.get_rng_state()
    played(policy_of(llama(len(tokenizer)), renderer))
    assert torch.equal(before, torch.get_rng_state())


def test_members_that_share_a_prompt_draw_different_replies(tokenizer: Any, renderer: Renderer) -> None:
    (group,) = played(policy_of(llama(len(tokenizer)), renderer), tasks=1, members=6)
    assert len({trajectory.turns[0].reply.prompt.ids for trajectory in group.trajectories}) == 1
    assert len({trajectory.turns[0].reply.ids for trajectory in group.trajectories}) == 6


def test_a_single_conversation_is_a_batch_too(model: Any, renderer: Renderer) -> None:
    (group,) = played(policy_of(model, renderer, version=7), tasks=1, members=1)
    (trajectory,) = group.trajectories
    assert max(largest_errors(model, trajectory)) < 1e-9
    assert trajectory.policy_version == 7


def test_the_same_question_again_gets_the_same_greedy_answer(tokenizer: Any, renderer: Renderer) -> None:
    # A reply of one token leaves a cache that holds the whole context, and then there is nothing new to read.
    policy = policy_of(llama(len(tokenizer)), renderer, greedy=True, tokens_per_turn=1)
    asked = ragged()
    assert policy.respond(asked) == policy.respond(asked)


def test_a_conversation_that_was_changed_is_read_anew(tokenizer: Any, renderer: Renderer) -> None:
    model = llama(len(tokenizer))
    policy = policy_of(model, renderer, greedy=True)
    policy.respond(ragged())
    changed = [ask(conversation.key, conversation.messages[0].content + "!") for conversation in ragged()]
    # The texts of a batch, not of a conversation, decide how its rows are padded: equal but for rounding.
    assert [reply.ids for reply in policy.respond(changed)] == [
        reply.ids for reply in policy_of(model, renderer, greedy=True).respond(changed)
    ]


def test_a_subset_of_the_conversations_goes_on_in_any_order(model: Any, renderer: Renderer) -> None:
    policy = policy_of(model, renderer)
    asked = ragged(12)
    answered = policy.respond(asked)
    chosen = [7, 2, 11, 0, 5]
    second = [go_on(asked[row], answered[row], "go on " * row) for row in chosen]
    for conversation, reply in zip(second, policy.respond(second), strict=True):
        assert largest_error(model, renderer.context_ids(conversation), reply) < 1e-9


def test_a_context_that_fills_the_window_gets_no_reply_and_the_others_go_on(tokenizer: Any) -> None:
    window = 120
    plain = Renderer(tokenizer)
    groups = played(policy_of(llama(len(tokenizer), window=window), plain, tokens_per_turn=16), tasks=4)
    ended = trajectories(groups)
    assert {trajectory.ending for trajectory in ended} == {Ending.OUT_OF_TOKENS}
    assert all(trajectory.outcome == 0.0 for trajectory in ended)
    assert all(len(whole_ids(trajectory)) <= window for trajectory in ended)
    assert any(len(whole_ids(trajectory)) == window for trajectory in ended), "a last reply fills the window"

    policy = policy_of(llama(len(tokenizer), window=window), plain)
    short, long, other = policy.respond([ask("a", "echo A"), ask("b", "echo A " * 60), ask("c", "echo B")])
    assert (long.ids, long.text, long.cut) == ((), "", True)
    assert short.ids
    assert other.ids
    assert not policy.respond([ask("b", "echo A " * 60)])[0].ids


def test_dropout_is_off_while_sampling_and_the_model_is_left_as_it_was(tokenizer: Any, renderer: Renderer) -> None:
    model = llama(len(tokenizer), attention_dropout=0.5)
    expected = policy_of(model, renderer).respond(ragged())
    model.train().lm_head.eval()  # a frozen part may stay in evaluation mode
    assert policy_of(model, renderer).respond(ragged()) == expected
    assert [module for module in model.modules() if not module.training] == [model.lm_head]


def test_weights_that_are_not_numbers_are_named_before_anything_is_drawn(tokenizer: Any, renderer: Renderer) -> None:
    model = llama(len(tokenizer))
    with torch.no_grad():
        model.get_input_embeddings().weight[:] = float("nan")
    with pytest.raises(ValueError, match=r"expected logits that are numbers, found NaN .* earlier checkpoint"):
        policy_of(model, renderer).respond(ragged())


def test_out_of_memory_names_the_knobs_and_leaves_the_model_as_it_was(
    tokenizer: Any, renderer: Renderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: KVBatch, new_BT: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(KVBatch, "extend", full)
    model = llama(len(tokenizer)).train()
    with pytest.raises(MemoryError, match=r"9 conversations .* lower --groups, --group-size"):
        policy_of(model, renderer).respond(ragged())
    assert model.training


def test_eager_attention_keeps_its_cache_too(tokenizer: Any, renderer: Renderer) -> None:
    model = llama(len(tokenizer), attn_implementation="eager")
    policy = policy_of(model, renderer)
    for trajectory in trajectories(played(policy, tasks=1, members=2)):
        assert max(largest_errors(model, trajectory)) < 1e-9
    assert policy.obstacle == ""


@pytest.mark.parametrize("kind", ["qwen3_moe", "qwen3_next"])
def test_experts_sample_in_double_precision(kind: str, tokenizer: Any, renderer: Renderer) -> None:
    model = built(kind, vocab_size=len(tokenizer))
    policy = policy_of(model, renderer, precision="double")
    asked = ask("one", "go")
    (first,) = policy.respond([asked])
    (second,) = policy.respond([again := go_on(asked, first, "and")])
    for conversation, reply in ((asked, first), (again, second)):
        assert largest_error(policy.model, renderer.context_ids(conversation), reply) < 1e-6
    assert model.config._experts_implementation == "grouped_mm"


def test_positions_that_turn_with_length_end_the_window_where_they_begin_to(tokenizer: Any, renderer: Renderer) -> None:
    # Dynamic scaling would rotate cached tokens differently once the context is longer than the original window.
    scaled = {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 1e4, "original_max_position_embeddings": 64}
    model = llama(len(tokenizer), window=256, rope_parameters=scaled)
    groups = played(policy_of(model, renderer, tokens_per_turn=24), tasks=4)
    assert {trajectory.ending for trajectory in trajectories(groups)} == {Ending.OUT_OF_TOKENS}
    for trajectory in trajectories(groups):
        if trajectory.turns:
            assert len(whole_ids(trajectory)) <= 64
            assert max(largest_errors(model, trajectory)) < 1e-9
