"""The critic: where values are read, what its loss is, whom its gradient reaches, and that it learns to foresee."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from heedful.algorithms import losses  # noqa: E402
from heedful.algorithms.gae import Gae  # noqa: E402
from heedful.algorithms.table import Grpo, Ppo  # noqa: E402
from heedful.training.batch import UpdateSettings  # noqa: E402
from heedful.training.critic import Critic, value_metrics  # noqa: E402
from heedful.training.learner import Learner  # noqa: E402
from heedful.training.samples import credit, merge_rows  # noqa: E402
from heedful.training.settings import CriticConfig, OptimizerConfig  # noqa: E402
from heedful.types import (  # noqa: E402
    Ending,
    Group,
    Metric,
    Prompt,
    Reply,
    Span,
    Task,
    TrainingSample,
    Trajectory,
    Turn,
    Verdict,
)
from tiny_models import narrow  # noqa: E402

VOCABULARY = 13
STEADY = OptimizerConfig(lr=0.01, warmup_steps=0)
KEPT = Verdict(1.0, "kept", 0.25)


def tiny(seed: int = 0, dtype: Any = torch.float64) -> Any:
    return narrow(VOCABULARY, seed, dtype)


def episode(
    member: int, turns: Sequence[tuple[Sequence[int], Sequence[int]]], rewards: Sequence[float], restarts: bool = False
) -> Trajectory:
    made = []
    for number, (prompt, ids) in enumerate(turns):
        reply = Reply(
            Prompt("", tuple(prompt), restarts=restarts and number > 0),
            tuple(ids),
            "",
            (-2.5,) * len(ids),
            (),
            Span(0, 0),
            Span(0, 0),
            True,
            False,
        )
        made.append(Turn(reply, {"solved": rewards[number]}, (), True, "", ""))
    return Trajectory(Task("t", 0, "train"), member, tuple(made), Ending.FAILED, 0.0)


def drawn_groups(seed: int, count: int = 4, size: int = 3, restarts: bool = False) -> list[Group]:
    """Groups whose reward can be foreseen: an episode pays in its first turn if its prompt begins with an even id."""
    rng = random.Random(seed)

    def ids(first: int, most: int) -> list[int]:
        return [first, *(rng.randrange(VOCABULARY) for _ in range(rng.randint(0, most)))]

    groups = []
    for number in range(count):
        first = rng.randrange(VOCABULARY)
        episodes = [
            episode(member, [(ids(first, 3), ids(1, 3)), (ids(2, 2), ids(3, 2))], [1.0 - first % 2, 0.0], restarts)
            for member in range(size)
        ]
        groups.append(Group(Task(str(number), number, "train"), tuple(episodes)))
    return groups


def valued(critic: Critic, groups: Sequence[Group], estimator: Gae | None = None) -> list[TrainingSample]:
    rows = merge_rows(groups, [KEPT] * len(groups))
    return credit(rows, groups, estimator or Gae(), critic.values(rows))


def wake(critic: Critic) -> None:
    """Give the head weights, which begin at zero."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        critic._head.weight.copy_(torch.randn(critic._head.weight.shape, generator=generator))
        critic._head.bias.fill_(0.5)


def gradients(module: Any) -> list[Any]:
    return [None if parameter.grad is None else parameter.grad.clone() for parameter in module.parameters()]


def weights(module: Any) -> list[Any]:
    return [parameter.detach().clone() for parameter in module.parameters()]


def equal(one: Sequence[Any], other: Sequence[Any]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def read(metrics: Sequence[Metric]) -> dict[str, Any]:
    return {metric.name: metric.value for metric in metrics}


# The loss -------------------------------------------------------------------------------------------------------------


def test_half_the_squared_error_on_three_tokens_by_hand() -> None:
    values, before, returns = torch.tensor([[0.5, 1.0, 0.0], [0.0, 0.9, 0.5], [1.0, 1.0, 1.0]])
    term = losses.value(values, before, returns, None)
    assert term.loss.tolist() == pytest.approx([0.125, 0.0, 0.5])
    assert term.clip_binds.tolist() == [False] * 3


def test_the_clipped_error_on_three_tokens_by_hand() -> None:
    # Kept within .2 of before: .2, 1.0, .3. Errors to 1: .8 > .5; 0; .7 < 1: the first token passes no gradient.
    values = torch.tensor([0.5, 1.0, 0.0], requires_grad=True)
    term = losses.value(values, torch.tensor([0.0, 0.9, 0.5]), torch.ones(3), 0.2)
    assert term.loss.tolist() == pytest.approx([0.32, 0.0, 0.5])
    assert term.clip_binds.tolist() == [True, False, False]
    term.loss.sum().backward()
    assert values.grad.tolist() == pytest.approx([0.0, 0.0, -1.0])


# Values ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["model", "head"])
@pytest.mark.parametrize("micro_batch_tokens", [1, 30, 10_000])
def test_values_are_read_before_each_sampled_token_whatever_the_micro_batch(kind: Any, micro_batch_tokens: int) -> None:
    policy = tiny()
    critic = Critic(policy, CriticConfig(kind=kind), STEADY, UpdateSettings(micro_batch_tokens=micro_batch_tokens))
    wake(critic)
    rows = merge_rows(drawn_groups(1), [KEPT] * 4)
    for row, values in zip(rows, critic.values(rows), strict=True):
        for place, trained in enumerate(row.trained):
            if not trained:
                assert values[place] == 0.0
                continue
            before = torch.tensor([row.ids[:place]])
            hidden = policy.get_decoder()(input_ids=before).last_hidden_state[0, -1]
            expected = (critic._head.weight[0] * hidden).sum() + critic._head.bias[0]
            assert values[place] == pytest.approx(expected.item(), rel=1e-9)


def test_a_prompt_read_once_for_its_group_gives_the_same_values_and_gradients() -> None:
    rng = random.Random(4)
    prompt = [rng.randrange(VOCABULARY) for _ in range(20)]
    members = [episode(member, [(prompt, [1, member]), ([2], [member, 5, 6])], [1.0, 0.0]) for member in range(4)]
    groups = [Group(Task("t", 0, "train"), tuple(members))]
    rows = merge_rows(groups, [KEPT])
    found = []
    for share in (False, True):
        policy = tiny()
        critic = Critic(policy, CriticConfig(), STEADY, UpdateSettings(share_prompts=share))
        wake(critic)
        learner = Learner(policy, Ppo(), STEADY, UpdateSettings(share_prompts=share), critic=critic)
        cut = learner.cut(valued(critic, groups), None)
        assert [batch.prompts is not None for batch in cut] == [share]
        critic._backward(cut, 1.0, 0.0)
        found.append((critic.values(rows), gradients(critic._own)))
    (values, plain), (shared_values, shared) = found
    for one, other in zip(values, shared_values, strict=True):
        assert one == pytest.approx(other, rel=1e-9)
    whole, once = (torch.cat([gradient.flatten() for gradient in one]) for one in (plain, shared))
    assert float((whole - once).norm() / whole.norm()) < 1e-6


def test_a_fresh_critic_values_everything_at_zero_and_draws_no_global_random_number() -> None:
    policy = tiny(dtype=torch.float32)
    before = torch.random.get_rng_state()
    critic = Critic(policy, CriticConfig(), STEADY)
    assert torch.equal(torch.random.get_rng_state(), before)
    rows = merge_rows(drawn_groups(1), [KEPT] * 4)
    assert {value for values in critic.values(rows) for value in values} == {0.0}


def test_a_model_without_hidden_states_apart_is_refused_with_a_sentence() -> None:
    class Plain(torch.nn.Module):  # type: ignore[misc]
        def get_decoder(self) -> Any:
            return self

    with pytest.raises(ValueError, match="hidden states under the output head of Plain"):
        Critic(Plain(), CriticConfig(), STEADY)


# Credit ---------------------------------------------------------------------------------------------------------------


def test_credit_runs_over_the_rows_of_a_trajectory_in_order() -> None:
    # Prompt 1 2, reply 3 4; afresh prompt 5, reply 6. Values .5 .2 and .4, rewards .25 and 1: as in the test of GAE.
    group = Group(Task("t", 0, "train"), (episode(7, [([1, 2], [3, 4]), ([5], [6])], [0.25, 1.0], restarts=True),))
    rows = merge_rows([group], [KEPT])
    assert [row.ids for row in rows] == [(1, 2, 3, 4), (5, 6)]
    values = [(0.0, 0.0, 0.5, 0.2), (0.0, 0.4)]
    samples = credit(rows, [group], Gae(0.9, 0.8, per="token", whiten=False), values)
    assert [sample.member for sample in samples] == [7, 7]
    assert samples[0].advantages == pytest.approx((0, 0, 0.28624, 0.842))
    assert samples[1].advantages == pytest.approx((0, 0.6))
    assert samples[0].returns == pytest.approx((0, 0, 0.78624, 1.042))
    assert samples[1].returns == pytest.approx((0, 1.0))
    assert [sample.values for sample in samples] == values


def test_whitening_spans_all_samples_of_the_step() -> None:
    groups = drawn_groups(2)
    rows = merge_rows(groups, [KEPT] * 4)
    samples = credit(rows, groups, Gae(), [[0.0] * len(row.ids) for row in rows])
    trained = [a for s in samples for a, one in zip(s.advantages, s.trained, strict=True) if one]
    assert sum(trained) == pytest.approx(0, abs=1e-9)
    assert sum(a * a for a in trained) / (len(trained) - 1) == pytest.approx(1)


def test_how_well_values_foresaw_by_hand() -> None:
    # Two episodes of one token each: rewards 1 and 0, values .75 and .25. Errors .25, -.25: variance .125 of .5.
    group = Group(Task("t", 0, "train"), (episode(0, [([1], [2])], [1.0]), episode(1, [([1], [3])], [0.0])))
    rows = merge_rows([group], [KEPT])
    metrics = value_metrics(rows, [group], [(0.0, 0.75), (0.0, 0.25)], Gae(lam=0.5))
    assert read(metrics) == {
        "policy/explained_variance": pytest.approx(0.75),
        "critic/value_mean": 0.5,
        "critic/return_mean": 0.5,
    }
    assert [metric.n for metric in metrics] == [2, 2, 2]
    paid = Group(Task("t", 0, "train"), (episode(0, [([1], [2])], [1.0]), episode(1, [([1], [3])], [1.0])))
    (explained, *_) = value_metrics(rows, [paid], [(0.0, 0.75), (0.0, 0.25)], Gae())
    assert explained.value is None
    assert "nothing to explain" in explained.why


# The gradient ---------------------------------------------------------------------------------------------------------


def spelled_out(critic: Critic, model: Any, samples: Sequence[TrainingSample], share: float) -> Any:
    """The critic's loss one sequence and one token at a time, all tokens alike."""
    terms = []
    for sample in samples:
        hidden_TD = model(input_ids=torch.tensor([sample.ids])).last_hidden_state[0]
        hidden_TD = share * hidden_TD + (1 - share) * hidden_TD.detach()
        for place in range(1, len(sample.ids)):
            if sample.trained[place]:
                value = critic._head(hidden_TD[place - 1])[0]
                terms.append((value - sample.returns[place]) ** 2 / 2)
    return torch.stack(terms).mean()


@pytest.mark.parametrize("micro_batch_tokens", [1, 40, 10_000])
@pytest.mark.parametrize(
    "config",
    [CriticConfig(coefficient=0.5), CriticConfig(kind="head"), CriticConfig(kind="head", trunk=0.3)],
    ids=["model", "head", "head through the trunk"],
)
def test_the_gradient_is_that_of_the_loss_spelled_out_whatever_the_micro_batch(
    config: CriticConfig, micro_batch_tokens: int
) -> None:
    policy = tiny()
    critic = Critic(policy, config, STEADY, UpdateSettings(micro_batch_tokens=micro_batch_tokens))
    wake(critic)
    learner = Learner(policy, Ppo(), STEADY, UpdateSettings(micro_batch_tokens=micro_batch_tokens), critic=critic)
    samples = valued(critic, drawn_groups(1))
    reading = critic._backward(learner.cut(samples, None), 2.0, config.trunk)
    found = [one for one in [*gradients(critic._backbone), *gradients(critic._head)] if one is not None]
    for parameter in [*critic._backbone.parameters(), *critic._head.parameters()]:
        parameter.grad = None
    loss = spelled_out(critic, critic._backbone, samples, 1.0 if config.kind == "model" else config.trunk)
    (2.0 * config.coefficient * loss).backward()
    expected = [one for one in [*gradients(critic._backbone), *gradients(critic._head)] if one is not None]
    if config.kind == "head" and config.trunk == 0:
        assert len(found) == 2, "the policy's layers must not be reached"
        expected = expected[-2:]
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert torch.allclose(one, other, rtol=1e-5, atol=1e-7)
    assert reading.loss == pytest.approx(loss.item(), rel=1e-6)


@pytest.mark.parametrize("config", [CriticConfig(), CriticConfig(kind="head", trunk=1.0)], ids=["model", "head"])
def test_computing_layers_again_changes_no_gradient(config: CriticConfig) -> None:
    found = []
    for recompute in (False, True):
        policy = tiny()
        critic = Critic(policy, config, STEADY, UpdateSettings(recompute=recompute, share_prompts=False))
        wake(critic)
        learner = Learner(policy, Ppo(), STEADY, critic=critic)
        critic._backward(learner.cut(valued(critic, drawn_groups(1)), None), 1.0, config.trunk)
        found.append([one for one in gradients(critic._backbone) if one is not None])
    assert len(found[0]) > 10
    assert equal(*found)


def test_only_a_head_through_the_trunk_moves_the_policy() -> None:
    updated = []
    for config in (CriticConfig(), CriticConfig(kind="head"), CriticConfig(kind="head", trunk=0.5)):
        policy = tiny()
        critic = Critic(policy, config, STEADY)
        wake(critic)
        # Advantages that do not tell the critics apart.
        samples = [replace(one, advantages=(0.25,) * len(one.ids)) for one in valued(critic, drawn_groups(1))]
        Learner(policy, Ppo(epochs=2, minibatches=2), STEADY, critic=critic).update(samples)
        updated.append(weights(policy))
    assert equal(updated[0], updated[1])
    assert not equal(updated[0], updated[2])


def test_while_the_critic_warms_up_it_alone_learns() -> None:
    policy = tiny()
    critic = Critic(policy, CriticConfig(kind="head", trunk=1.0, warmup_steps=2), STEADY)
    learner = Learner(policy, Ppo(minibatches=2), STEADY, critic=critic)
    start = weights(policy)
    for step in range(3):
        before = weights(critic._head)
        metrics = {metric.name: metric for metric in learner.update(valued(critic, drawn_groups(step)))}
        assert not equal(weights(critic._head), before)
        assert metrics["critic/gradient_norm"].value > 0
        assert metrics["filter/empty"].value == 0.0
        assert equal(weights(policy), start) == (step < 2)
        if step < 2:
            assert metrics["policy/loss"].value is None
            assert "warms up" in metrics["policy/loss"].why
    assert (critic.updates, learner.updates) == (3, 1)
    assert learner.state_dict()["descent"]["steps"] == 2


def test_an_empty_update_changes_no_critic_and_names_what_could_not_be_read() -> None:
    policy, groups = tiny(), drawn_groups(1)
    critic = Critic(policy, CriticConfig(warmup_steps=1), STEADY)
    learner = Learner(policy, Ppo(), STEADY, critic=critic)
    before = weights(critic._own)
    empty = {metric.name: metric for metric in learner.update([])}
    assert equal(weights(critic._own), before)
    assert critic.updates == 0
    rows = merge_rows(groups, [KEPT] * 4)
    values = critic.values(rows)
    full = [*value_metrics(rows, groups, values, Gae()), *learner.update(credit(rows, groups, Gae(), values))]
    assert {metric.name for metric in full} == set(empty)
    assert all(empty[name].value is None and empty[name].why for name in empty if name.startswith("critic/"))


def test_the_critic_learns_to_foresee_what_can_be_foreseen() -> None:
    policy = tiny(dtype=torch.float32)
    critic = Critic(policy, CriticConfig(lr=0.01, warmup_steps=1000), OptimizerConfig(warmup_steps=0))
    learner = Learner(policy, Ppo(minibatches=2), STEADY, critic=critic)
    for step in range(30):
        learner.update(valued(critic, drawn_groups(step, count=12)))
    groups = drawn_groups(999, count=12)
    rows = merge_rows(groups, [KEPT] * 12)
    explained, value, observed = value_metrics(rows, groups, critic.values(rows), Gae())
    assert isinstance(explained.value, float)
    assert explained.value > 0.8
    assert value.value == pytest.approx(observed.value, abs=0.15)


def test_the_clip_of_values_holds_them_near_what_they_were() -> None:
    moved = []
    for clip in (None, 1e-3):
        policy = tiny(dtype=torch.float32)
        critic = Critic(policy, CriticConfig(lr=0.01, clip=clip), STEADY)
        learner = Learner(policy, Ppo(epochs=8), STEADY, critic=critic)
        metrics = read(learner.update(valued(critic, drawn_groups(1))))
        rows = merge_rows(drawn_groups(1), [KEPT] * 4)
        moved.append(max(abs(value) for values in critic.values(rows) for value in values))
        assert metrics["critic/clip_fraction"] is None if clip is None else metrics["critic/clip_fraction"] > 0.2
    assert moved[1] < moved[0] / 2


def test_half_precision_is_stepped_in_float32() -> None:
    policy = tiny(dtype=torch.bfloat16)
    critic = Critic(policy, CriticConfig(lr=1e-6), OptimizerConfig(warmup_steps=0))
    wake(critic)
    learner = Learner(policy, Ppo(), STEADY, critic=critic)
    learner.update(valued(critic, drawn_groups(1)))
    state = critic.state_dict()
    assert critic._head.weight.dtype == torch.float32
    assert {copy.dtype for copy in state["descent"]["masters"]} == {torch.float32}
    pairs = zip(state["descent"]["masters"], critic._backbone.parameters(), strict=False)
    changed = [not torch.equal(copy, parameter.float()) for copy, parameter in pairs]
    assert any(changed), "steps below the spacing of bfloat16 must not be lost"


# State ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["model", "head"])
def test_a_critic_goes_on_from_its_state_with_the_same_bytes(kind: Any) -> None:
    config = CriticConfig(kind=kind, warmup_steps=2)

    def fresh() -> Learner:
        policy = tiny(dtype=torch.float32)
        return Learner(policy, Ppo(minibatches=2), STEADY, critic=Critic(policy, config, STEADY))

    def step(learner: Learner, number: int) -> None:
        assert learner.critic is not None
        learner.update(valued(learner.critic, drawn_groups(number)))

    straight = fresh()
    for number in range(4):
        step(straight, number)
    first = fresh()
    for number in range(2):
        step(first, number)
    resumed = fresh()
    resumed.model.load_state_dict(first.model.state_dict())
    resumed.load_state_dict(first.state_dict())
    for number in range(2, 4):
        step(resumed, number)
    assert equal(weights(straight.model), weights(resumed.model))
    rows = merge_rows(drawn_groups(9), [KEPT] * 4)
    assert straight.critic is not None
    assert resumed.critic is not None
    assert straight.critic.values(rows) == resumed.critic.values(rows)
    assert any(value for values in resumed.critic.values(rows) for value in values)


def test_a_state_with_a_critic_is_not_taken_for_one_without() -> None:
    with_critic = Learner(tiny(), Ppo(), STEADY, critic=Critic(tiny(), CriticConfig(), STEADY))
    with pytest.raises(ValueError, match="with no critic, found the other"):
        Learner(tiny(), Grpo(), STEADY).load_state_dict(with_critic.state_dict())


def test_a_critic_with_layers_of_its_own_has_no_trunk() -> None:
    with pytest.raises(ValueError, match="layers of its own"):
        CriticConfig(trunk=0.5)
