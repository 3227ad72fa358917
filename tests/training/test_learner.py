import math
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from transformers import LlamaForCausalLM

from heedful.algorithms.entropy_control import EntropyTarget, LinearEntropy, StepEntropy
from heedful.algorithms.table import ALGORITHMS, Algorithm, Grpo
from heedful.protocols import UsesCritic
from heedful.training.batch import UpdateSettings
from heedful.training.learner import Learner
from heedful.training.samples import make_samples
from heedful.training.settings import OptimizerConfig
from heedful.types import Ending, Group, Metric, Prompt, Reply, Span, Task, TrainingSample, Trajectory, Turn, Verdict
from tiny_models import narrow

VOCABULARY = 13
BUDGET = 20
STEADY = OptimizerConfig(lr=0.01, warmup_steps=0)
KEPT = Verdict(1.0, "kept", 0.25)
DROPPED = Verdict(0.0, "constant", 0.0)


CRITIC_FREE = [name for name, row in ALGORITHMS.items() if not isinstance(row().advantage, UsesCritic)]


def tiny(seed: int = 0, dtype: torch.dtype = torch.float64) -> LlamaForCausalLM:
    return narrow(VOCABULARY, seed, dtype)


def random_samples(count: int = 9) -> list[TrainingSample]:
    rng = random.Random(5)
    samples = []
    for member in range(count):
        length = rng.randint(4, 17)
        trained = (False, True, *(rng.random() < 0.5 for _ in range(length - 2)))
        samples.append(
            TrainingSample(
                ids=tuple(rng.randrange(VOCABULARY) for _ in range(length)),
                trained=trained,
                logprobs=tuple(-rng.randint(8, 30) / 8 if one else 0.0 for one in trained),
                advantages=tuple((1.5 if member % 3 else -0.75) if one else 0.0 for one in trained),
                group=member // 3,
                member=member % 3,
                weight=1.0 + member % 2,
            )
        )
    return samples


def episode(member: int, reward: float, turns: Sequence[tuple[Sequence[int], Sequence[int]]]) -> Trajectory:
    made = []
    for number, (prompt, ids) in enumerate(turns):
        reply = Reply(
            Prompt("", tuple(prompt)), tuple(ids), "", (-2.5,) * len(ids), (), Span(0, 0), Span(0, 0), True, False
        )
        made.append(Turn(reply, {"solved": reward} if number == 0 else {}, (), True, "", ""))
    return Trajectory(Task("t", 0, "train"), member, tuple(made), Ending.FAILED, 0.0)


def random_groups(rewards_PG: Sequence[Sequence[float]]) -> list[Group]:
    rng = random.Random(9)

    def ids(most: int) -> list[int]:
        return [rng.randrange(VOCABULARY) for _ in range(rng.randint(1, most))]

    return [
        Group(
            Task("t", 0, "train"),
            tuple(
                episode(member, reward, [(ids(4), ids(5)), (ids(3), ids(2))]) for member, reward in enumerate(rewards_G)
            ),
        )
        for rewards_G in rewards_PG
    ]


def gradient(learner: Learner, samples: Sequence[TrainingSample], scale: float = 1.0) -> torch.Tensor:
    learner.model.zero_grad(set_to_none=True)
    learner.accumulate_gradient(samples, scale=scale, token_budget=BUDGET)
    return torch.cat([parameter.grad.flatten() for parameter in learner.model.parameters()])


def weights(learner: Learner) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in learner.model.parameters()]).clone()


def values(metrics: Sequence[Metric]) -> dict[str, float | str | None]:
    return {metric.name: metric.value for metric in metrics}


def assert_same(actual: torch.Tensor, expected: torch.Tensor) -> None:
    assert float((actual - expected).norm() / expected.norm()) < 1e-6


def plain_loss(
    model: LlamaForCausalLM,
    reference: LlamaForCausalLM,
    algorithm: Algorithm,
    samples: Sequence[TrainingSample],
    temperature: float,
) -> torch.Tensor:
    """The same loss spelled out: one sequence at a time, one token at a time, no padding, averages as written."""
    sums, means, count = [], [], 0.0
    for sample in samples:
        ids = torch.tensor([sample.ids])
        logprobs_TV = (model(input_ids=ids).logits[0] / temperature).log_softmax(-1)
        with torch.no_grad():
            reference_TV = (reference(input_ids=ids).logits[0] / temperature).log_softmax(-1)
        terms = []
        places = [place for place in range(1, len(sample.ids)) if sample.trained[place]]
        log_ratios = [logprobs_TV[place - 1, sample.ids[place]] - sample.logprobs[place] for place in places]
        for place, log_ratio in zip(places, log_ratios, strict=True):
            logprob, other = logprobs_TV[place - 1, sample.ids[place]], reference_TV[place - 1, sample.ids[place]]
            ratio = (torch.stack(log_ratios).mean() if algorithm.ratio == "sequence" else log_ratio).exp()
            bounded = ratio.clamp(1 - algorithm.clip_low, 1 + algorithm.clip_high)
            if algorithm.surrogate == "weight":
                surrogate = bounded.detach() * sample.advantages[place] * logprob
            else:
                surrogate = torch.minimum(ratio * sample.advantages[place], bounded * sample.advantages[place])
            entropy = -(logprobs_TV[place - 1].exp() * logprobs_TV[place - 1]).sum()
            terms.append(-surrogate + algorithm.kl * (logprob - other) ** 2 / 2 - algorithm.entropy * entropy)
        sums.append(sample.weight * torch.stack(terms).sum())
        means.append(sample.weight * torch.stack(terms).mean())
        count += sample.weight * len(terms)
    total = sum(sample.weight for sample in samples)
    if algorithm.average == "sequence":
        return torch.stack(means).sum() / total
    return torch.stack(sums).sum() / (count if algorithm.average == "token" else total * BUDGET)


@pytest.mark.parametrize("name", CRITIC_FREE)
def test_the_gradient_is_that_of_the_loss_spelled_out_whatever_the_micro_batch(name: str) -> None:
    algorithm = replace(ALGORITHMS[name](), kl=0.3, entropy=0.05)
    model, reference, samples = tiny(), tiny(1), random_samples()
    loss = plain_loss(model, reference, algorithm, samples, temperature=0.7)
    expected = torch.cat([one.flatten() for one in torch.autograd.grad(loss, list(model.parameters()))])
    for micro_batch_tokens in (1, 40, 10_000):
        batch = UpdateSettings(temperature=0.7, micro_batch_tokens=micro_batch_tokens)
        learner = Learner(model, algorithm, STEADY, batch, reference=reference)
        assert_same(gradient(learner, samples), expected)
        reading = learner.accumulate_gradient(samples, token_budget=BUDGET)
        assert reading.loss == pytest.approx(loss.item(), rel=1e-6)


@pytest.mark.parametrize("name", CRITIC_FREE)
def test_the_gradient_does_not_depend_on_the_order_of_the_samples(name: str) -> None:
    samples = random_samples()
    learner = Learner(tiny(), ALGORITHMS[name](), STEADY, UpdateSettings(micro_batch_tokens=40))
    expected = gradient(learner, samples)
    assert_same(gradient(learner, random.Random(0).sample(samples, len(samples))), expected)


@pytest.mark.parametrize("name", CRITIC_FREE)
def test_dropping_a_group_equals_a_batch_that_never_held_it(name: str) -> None:
    algorithm = replace(ALGORITHMS[name](), entropy=0.1)
    groups = random_groups([[1, 0, 0], [1, 1, 1], [0, 1, 1]])
    learner = Learner(tiny(), algorithm, STEADY)
    filtered = make_samples(groups, [KEPT, DROPPED, KEPT], algorithm.advantage)
    never_held = make_samples([groups[0], groups[2]], [KEPT, KEPT], algorithm.advantage)
    held = make_samples(groups, [KEPT] * 3, algorithm.advantage)
    assert torch.equal(gradient(learner, filtered), gradient(learner, never_held))
    assert not torch.allclose(gradient(learner, filtered), gradient(learner, held), rtol=0.01)


@pytest.mark.parametrize("name", CRITIC_FREE)
def test_a_group_of_weight_two_counts_like_the_group_held_twice(name: str) -> None:
    algorithm = replace(ALGORITHMS[name](), entropy=0.1)
    groups = random_groups([[1, 0, 0], [0, 1, 1]])
    learner = Learner(tiny(), algorithm, STEADY)
    weighted = make_samples(groups, [Verdict(2.0, "kept", None), KEPT], algorithm.advantage)
    twice = make_samples([groups[0], *groups], [KEPT] * 3, algorithm.advantage)
    assert_same(gradient(learner, weighted), gradient(learner, twice))


def test_only_predictions_of_trained_tokens_matter() -> None:
    learner = Learner(tiny(), Grpo(), STEADY)
    (sample,) = random_samples(1)
    last = max(place for place, one in enumerate(sample.trained) if one)

    def spoiled(kept: Sequence[float], elsewhere: float) -> tuple[float, ...]:
        values = [value if one else elsewhere for value, one in zip(kept, sample.trained, strict=True)]
        return (*values[: last + 1], elsewhere, elsewhere)

    changed = replace(
        sample,
        ids=(*sample.ids[: last + 1], 7, 8),
        trained=(*sample.trained[: last + 1], False, False),
        logprobs=spoiled(sample.logprobs, -9.0),
        advantages=spoiled(sample.advantages, 9.0),
    )
    assert_same(gradient(learner, [changed]), gradient(learner, [sample]))


def test_the_scale_multiplies_the_whole_loss_regularisers_too() -> None:
    samples = random_samples()
    learner = Learner(tiny(), Grpo(kl=0.3, entropy=0.1), STEADY, reference=tiny(1))
    assert_same(gradient(learner, samples, scale=0.25), 0.25 * gradient(learner, samples))


def test_an_empty_update_leaves_weights_optimizer_and_schedule_untouched() -> None:
    config = OptimizerConfig(lr=0.01, warmup_steps=4, weight_decay=0.5)
    paused, straight = Learner(tiny(), Grpo(), config), Learner(tiny(), Grpo(), config)
    samples = random_samples()
    for learner in (paused, straight):
        learner.update(samples)
    before = weights(paused)
    metrics = paused.update([])
    assert torch.equal(weights(paused), before)
    assert paused.updates == 1
    assert values(metrics)["filter/empty"] == 1.0
    assert values(metrics)["tokens/update"] == 0.0
    unread = [metric for metric in metrics if metric.name.startswith("policy/")]
    assert len(unread) == 8
    assert all(metric.value is None and "no sample to train on" in metric.why for metric in unread)
    paused.update(samples)
    straight.update(samples)
    assert torch.equal(weights(paused), weights(straight))


def test_full_and_empty_updates_emit_the_same_names() -> None:
    learner = Learner(tiny(), Grpo(), STEADY)
    full, empty = learner.update(random_samples()), learner.update([])
    assert {metric.name for metric in full} == {metric.name for metric in empty}
    assert values(full)["filter/empty"] == 0.0


def test_a_batch_of_constant_groups_moves_nothing() -> None:
    groups = random_groups([[1, 1, 1], [-0.3, -0.3, -0.1 - 0.2]])
    learner = Learner(tiny(), Grpo(), STEADY)
    before = weights(learner)
    metrics = learner.update(make_samples(groups, [KEPT, KEPT], learner.algorithm.advantage))
    assert values(metrics)["policy/gradient_norm"] == 0.0
    assert torch.equal(weights(learner), before)


def test_the_update_is_adamw_on_the_clipped_gradient_at_the_warm_up_rate() -> None:
    samples = random_samples()
    learner = Learner(tiny(), Grpo(), OptimizerConfig(lr=0.01, warmup_steps=2, gradient_clip=0.01, weight_decay=0.1))
    before, raw = weights(learner), gradient(learner, samples)
    metrics = values(learner.update(samples))
    assert metrics["policy/gradient_norm"] == pytest.approx(float(raw.norm()), rel=1e-6)
    assert float(raw.norm()) > 0.01
    assert metrics["policy/learning_rate"] == pytest.approx(0.005)
    # The first step of Adam is g / (|g| + eps), whatever the betas.
    clip = raw * (0.01 / raw.norm())
    expected = before * (1 - 0.005 * 0.1) - 0.005 * clip / (clip.abs() + 1e-8)
    torch.testing.assert_close(weights(learner), expected, rtol=1e-4, atol=1e-7)


def test_the_metrics_before_the_update_compare_with_the_sampler() -> None:
    model = tiny()
    shifts = (0.5, 0.5, -0.5, 0.0)
    advantages = (1.0, -1.0, 1.0, 1.0)
    ids = (3, 1, 4, 1, 5)
    with torch.no_grad():
        logprobs_TV = (model(input_ids=torch.tensor([ids])).logits[0] / 0.5).log_softmax(-1)
    own = [float(logprobs_TV[place - 1, ids[place]]) for place in range(1, 5)]
    sample = TrainingSample(
        ids=ids,
        trained=(False, True, True, True, True),
        logprobs=(0.0, *(one + shift for one, shift in zip(own, shifts, strict=True))),
        advantages=(0.0, *advantages),
        group=0,
        member=0,
        weight=1.0,
    )
    metrics = Learner(model, Grpo(), STEADY, UpdateSettings(temperature=0.5), reference=tiny(1)).update([sample])
    read = values(metrics)
    assert read["policy/kl_to_sampler"] == pytest.approx(0.125, abs=1e-6)
    assert read["policy/logprob_error"] == pytest.approx(0.5, abs=1e-6)
    # Ratios e^-.5, e^-.5, e^.5, 1: the clip binds on the second (A < 0, low) and the third (A > 0, high).
    assert read["policy/clip_fraction"] == 0.5
    ratios = [math.exp(-shift) for shift in shifts]
    assert read["policy/loss"] == pytest.approx(-(ratios[0] - 0.8 + 1.2 + 1.0) / 4, rel=1e-6)
    assert read["tokens/update"] == 5.0
    with torch.no_grad():
        reference_TV = (tiny(1)(input_ids=torch.tensor([ids])).logits[0] / 0.5).log_softmax(-1)
    gaps = [float(reference_TV[place - 1, ids[place]]) - own[place - 1] for place in range(1, 5)]
    k3 = sum(math.exp(gap) - 1 - gap for gap in gaps) / 4
    assert read["policy/kl_to_reference"] == pytest.approx(k3, rel=1e-6)
    assert all(metric.n == 4 for metric in metrics if metric.name.startswith(("policy/kl", "policy/clip")))


def test_without_a_reference_its_divergence_is_missing_not_zero() -> None:
    (reading,) = (
        metric
        for metric in Learner(tiny(), Grpo(), STEADY).update(random_samples())
        if metric.name == "policy/kl_to_reference"
    )
    assert reading.value is None
    assert reading.why == "no reference model"


def test_the_reference_is_never_trained() -> None:
    reference = tiny(1)
    before = [parameter.detach().clone() for parameter in reference.parameters()]
    Learner(tiny(), Grpo(kl=1.0), STEADY, reference=reference).update(random_samples())
    assert all(torch.equal(old, new) for old, new in zip(before, reference.parameters(), strict=True))
    assert all(parameter.grad is None for parameter in reference.parameters())


def test_two_epochs_are_two_steps_on_the_same_samples() -> None:
    samples = random_samples()
    config = OptimizerConfig(lr=0.01, warmup_steps=3)
    twice, once = Learner(tiny(), Grpo(epochs=2), config), Learner(tiny(), Grpo(), config)
    metrics = values(twice.update(samples))
    first, second = values(once.update(samples)), values(once.update(samples))
    assert torch.equal(weights(twice), weights(once))
    assert (twice.updates, once.updates) == (1, 2)
    assert metrics["policy/kl_to_sampler"] == first["policy/kl_to_sampler"]
    assert metrics["policy/learning_rate"] == second["policy/learning_rate"]
    assert metrics["policy/loss"] == pytest.approx((first["policy/loss"] + second["policy/loss"]) / 2)
    assert metrics["tokens/update"] == 2 * first["tokens/update"]


def test_a_resumed_learner_goes_on_as_if_it_had_never_stopped() -> None:
    samples = random_samples()
    config = OptimizerConfig(lr=0.01, warmup_steps=5)
    straight = Learner(tiny(), Grpo(), config)
    straight.update(samples)
    resumed_model = tiny(3)
    resumed_model.load_state_dict(straight.model.state_dict())
    resumed = Learner(resumed_model, Grpo(), config)
    resumed.load_state_dict(straight.state_dict())
    assert values(straight.update(samples)) == values(resumed.update(samples))
    assert torch.equal(weights(straight), weights(resumed))
    assert resumed.updates == 2


def test_settings_of_the_optimizer_are_those_of_the_configuration_and_not_of_the_state() -> None:
    samples = random_samples()
    first = Learner(tiny(), Grpo(), STEADY)
    first.update(samples)
    changed = replace(STEADY, betas=(0.5, 0.6), weight_decay=0.25)
    resumed = Learner(tiny(), Grpo(), changed)
    resumed.load_state_dict(first.state_dict())
    (group,) = resumed.state_dict()["descent"]["optimizer"]["param_groups"]
    assert group["betas"] == (0.5, 0.6)
    assert group["weight_decay"] == 0.25
    assert resumed.updates == 1


def test_a_gradient_that_is_not_finite_is_refused_and_changes_nothing() -> None:
    learner = Learner(tiny(), Grpo(), STEADY)
    before = weights(learner)
    (sample,) = random_samples(1)
    broken = replace(sample, logprobs=tuple(-1e4 if one else 0.0 for one in sample.trained))
    with pytest.raises(FloatingPointError, match="not finite"):
        learner.update([broken])
    assert torch.equal(weights(learner), before)
    assert learner.updates == 0


def test_a_kl_penalty_without_a_reference_is_refused() -> None:
    with pytest.raises(ValueError, match="no reference model"):
        Learner(tiny(), Grpo(kl=0.1), STEADY)


def one_trajectory(samples: Sequence[TrainingSample]) -> list[TrainingSample]:
    return [replace(sample, group=0, member=0, weight=1.0) for sample in samples]


def test_a_trajectory_of_several_samples_counts_as_one() -> None:
    # Three rows of one trajectory and one row of another: each trajectory carries half of a sequence average.
    rows = random_samples(4)
    samples = [*one_trajectory(rows[:3]), replace(rows[3], group=1, member=0, weight=1.0)]
    learner = Learner(tiny(), Grpo(), STEADY)
    means = [gradient(learner, one_trajectory(part)) for part in (rows[:3], rows[3:])]
    assert_same(gradient(learner, samples), sum(means) / 2)
    counts = [sum(sample.trained) for sample in rows[:3]]
    alone = [gradient(learner, one_trajectory([row])) for row in rows[:3]]
    assert_same(means[0], sum(n * part for n, part in zip(counts, alone, strict=True)) / sum(counts))


def test_mini_batches_hold_every_trajectory_once_whole_and_shuffled_anew() -> None:
    samples = [replace(sample, member=0) for sample in random_samples(9)]  # three trajectories of three samples
    learner = Learner(tiny(), Grpo(minibatches=2, epochs=2), STEADY, UpdateSettings(seed=3))
    for epoch in range(2):
        dealt = learner._deal(samples, epoch)
        assert sorted(place for places in dealt for place in places) == list(range(9))
        assert all(len({samples[place].group for place in places}) == len(places) / 3 for places in dealt)
    assert len(Learner(tiny(), Grpo(minibatches=10**12), STEADY)._deal(samples, 0)) == 3
    many = random_samples(9)
    assert learner._deal(many, 0) != learner._deal(many, 1)


def test_mini_batches_are_optimizer_steps_on_their_own_averages() -> None:
    samples, config = random_samples(), OptimizerConfig(lr=0.01, warmup_steps=0, gradient_clip=1e9)
    learner = Learner(tiny(), Grpo(minibatches=3), config)
    by_hand = Learner(tiny(), Grpo(), config)
    for places in learner._deal(samples, 0):
        by_hand.update([samples[place] for place in places])
    learner.update(samples)
    assert_same(weights(learner), weights(by_hand))
    assert learner.state_dict()["descent"]["steps"] == 3


def shifted(samples: Sequence[TrainingSample], learner: Learner, by: float) -> list[TrainingSample]:
    """The same samples as if drawn by a sampler whose log-probabilities lie `by` below the learner's."""
    scored = learner._score(learner._token_logits, samples)
    moved = []
    for sample, logprobs in zip(samples, scored, strict=True):
        left = iter((logprobs - by).tolist())
        moved.append(replace(sample, logprobs=tuple(next(left) if one else 0.0 for one in sample.trained)))
    return moved


def test_a_sampler_that_is_not_the_learner_is_corrected_by_truncated_weights() -> None:
    # Learner / sampler = e^.5 = 1.65 for every token: the weight, or the cap where that is smaller.
    plain, capped = Learner(tiny(), Grpo(), STEADY), Learner(tiny(), Grpo(importance_cap=1.2), STEADY)
    free = Learner(tiny(), Grpo(importance_cap=2.0), STEADY)
    exact, off = shifted(random_samples(), plain, 0.0), shifted(random_samples(), plain, 0.5)
    on_policy = gradient(plain, exact)
    assert_same(gradient(capped, off), 1.2 * on_policy)
    assert_same(gradient(free, off), math.exp(0.5) * on_policy)
    metrics = values(capped.update(off))
    assert metrics["policy/importance_truncated"] == 1.0
    assert metrics["policy/kl_to_sampler"] == pytest.approx(-0.5, abs=1e-6)


def test_without_the_correction_such_a_sampler_meets_the_clip() -> None:
    learner = Learner(tiny(), Grpo(), STEADY)
    samples = [replace(sample, advantages=tuple(map(abs, sample.advantages))) for sample in random_samples()]
    assert values(learner.update(shifted(samples, learner, 0.5)))["policy/clip_fraction"] == 1.0


def test_the_correction_is_off_where_the_sampler_is_exact() -> None:
    plain, capped = Learner(tiny(), Grpo(epochs=2), STEADY), Learner(tiny(), Grpo(epochs=2, importance_cap=2.0), STEADY)
    samples = shifted(random_samples(), plain, 0.0)
    plain.update(samples)
    metrics = values(capped.update(samples))
    assert torch.equal(weights(plain), weights(capped))
    assert metrics["policy/importance_truncated"] == 0.0


def test_the_entropy_bonus_follows_its_schedule_and_is_resumed() -> None:
    algorithm = Grpo(entropy=0.2, entropy_control=LinearEntropy(end=0.0, updates=4))
    learner, samples = Learner(tiny(), algorithm, STEADY), random_samples()
    told = [values(learner.update(samples))["policy/entropy_coefficient"] for _ in range(2)]
    resumed = Learner(tiny(), algorithm, STEADY)
    resumed.load_state_dict(learner.state_dict())
    told += [values(resumed.update(samples))["policy/entropy_coefficient"] for _ in range(4)]
    assert told == pytest.approx([0.2, 0.15, 0.1, 0.05, 0.0, 0.0])


def test_a_step_of_the_entropy_bonus_comes_after_its_updates() -> None:
    control = StepEntropy(end=0.1, updates=3)
    assert [control.next(0.2, 0.2, update, 1.0) for update in range(1, 5)] == [0.2, 0.2, 0.1, 0.1]


def test_a_target_raises_the_bonus_while_the_entropy_is_below_it_and_holds_it_there() -> None:
    # Every update makes the same tokens likelier, so without a bonus the entropy falls.
    target, rows = 1.5, random_samples()
    samples = [replace(row, advantages=tuple(0.5 if one else 0.0 for one in row.trained)) for row in rows]

    def last_entropies(algorithm: Algorithm) -> list[float]:
        learner, seen = Learner(tiny(), algorithm, OptimizerConfig(lr=5e-3, warmup_steps=0)), []
        reader = Learner(learner.model, replace(algorithm, entropy_control=EntropyTarget()), STEADY)
        for number in range(70):
            if number >= 50:
                seen.append(float(reader.accumulate_gradient(samples).mean_entropy or 0.0))
            learner.update(samples)
        return seen

    free = Algorithm(surrogate="weight")
    held = last_entropies(replace(free, entropy_control=EntropyTarget(nats=target, rate=0.5, most=5.0)))
    assert sum(last_entropies(free)) / 20 < target - 0.5
    assert sum(held) / 20 == pytest.approx(target, abs=0.1)


@pytest.mark.parametrize("cap", [None, 2.0])
def test_readings_of_an_update_leave_replayed_successes_out(cap: float | None) -> None:
    algorithm = Grpo(kl=0.1, entropy_control=EntropyTarget(nats=3.0, rate=0.1, most=5.0), importance_cap=cap)
    before, others = Learner(tiny(), Grpo(), STEADY), random_samples(12)
    own = shifted(others[:9], before, 0.3)
    replays = [replace(sample, regularised=False) for sample in shifted(others[9:], before, 0.0)]

    def read(samples: Sequence[TrainingSample]) -> tuple[dict[str, Metric], float]:
        learner = Learner(tiny(), algorithm, STEADY, reference=tiny(seed=1))
        found = {metric.name: metric for metric in learner.update(samples)}
        return found, learner.entropy_coefficient

    (plain, bonus), (both, same_bonus), (alone, kept_bonus) = map(read, (own, [*own, *replays], replays))
    names = ["clip_fraction", "kl_to_sampler", "logprob_error", "kl_to_reference"]
    names += ["importance_truncated", "importance_masked", "importance_kl", "importance_ess"] if cap else []
    for name in (f"policy/{name}" for name in names):
        assert both[name].value == pytest.approx(plain[name].value, abs=1e-9), name
        assert both[name].n == plain[name].n, name
        assert alone[name].value is None, name
        assert alone[name].why, name
    assert same_bonus == pytest.approx(bonus)
    assert bonus > 0.0 == kept_bonus
    assert both["policy/loss"].value != plain["policy/loss"].value


def test_dropout_is_off_since_the_sampler_had_none() -> None:
    model = tiny().train()
    model.config.attention_dropout = 0.5
    for layer in model.model.layers:
        layer.self_attn.attention_dropout = 0.5
    learner, samples = Learner(model, Grpo(), STEADY), random_samples()
    assert torch.equal(gradient(learner, samples), gradient(learner, samples))


@pytest.mark.parametrize("name", CRITIC_FREE)
def test_each_algorithm_learns_a_bandit_that_must_read_its_prompt(name: str) -> None:
    algorithm = ALGORITHMS[name]()
    # Prompt `1 x`; the reply is one token, and only x + 4 pays.
    model = tiny(dtype=torch.float32)
    learner = Learner(model, algorithm, OptimizerConfig(lr=0.02 / algorithm.minibatches))
    generator = torch.Generator().manual_seed(0)
    success = 0.0
    for _ in range(24):
        groups, paid = [], 0
        for x in (2, 3, 4, 5):
            with torch.no_grad():
                logprobs_V = model(input_ids=torch.tensor([[1, x]])).logits[0, -1].log_softmax(-1)
            members = []
            for member, token in enumerate(torch.multinomial(logprobs_V.exp(), 16, True, generator=generator).tolist()):
                one = episode(member, float(token == x + 4), [((1, x), (token,))])
                reply = replace(one.turns[0].reply, logprobs=(float(logprobs_V[token]),))
                members.append(replace(one, turns=(replace(one.turns[0], reply=reply),)))
                paid += token == x + 4
            groups.append(Group(Task(str(x), x, "train"), tuple(members)))
        samples = make_samples(groups, [KEPT] * 4, algorithm.advantage)
        metrics = values(learner.update(samples, token_budget=1))
        assert metrics["policy/logprob_error"] < 1e-4  # type: ignore[operator]
        success = paid / 64
        if success == 1.0:
            break
    assert success > 0.9
