"""The parts of the gradient against the learner's own, on a model of a few thousand weights in float64."""

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
import torch

from heedful.algorithms.advantages import GroupRelative, LeaveOneOut
from heedful.algorithms.gae import Gae
from heedful.algorithms.returns import TurnReturns
from heedful.algorithms.table import Algorithm
from heedful.diagnostics.gradient.metrics import GRAMS, gradient_metrics
from heedful.training.batch import UpdateSettings
from heedful.training.critic import Critic
from heedful.training.gradients import meter as anatomy
from heedful.training.gradients.meter import GradientMeter
from heedful.training.learner import Learner
from heedful.training.samples import credit, make_samples, merge_rows
from heedful.training.settings import CriticConfig, OptimizerConfig
from heedful.types import Ending, Group, Prompt, Reply, Span, Task, Trajectory, Turn, Verdict
from tiny_models import llama

VOCABULARY, BUDGET, TEMPERATURE = 13, 20, 1.3
KEPT = Verdict(1.0, "kept", None)
REWARDS = [[1.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.0, 0.5], [1.0, 1.0, 1.0, 1.0], [0.2, 0.9, None, 0.1]]


def wide(model: torch.nn.Module) -> list[torch.nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def on_policy(model: torch.nn.Module, context: Sequence[int], ids: Sequence[int]) -> tuple[float, ...]:
    """What a sampler with this model would have noted."""
    with torch.no_grad():
        logits_TV = model(input_ids=torch.tensor([[*context, *ids]])).logits[0] / TEMPERATURE
    logprobs_TV = logits_TV.log_softmax(-1)
    return tuple(float(logprobs_TV[len(context) + place - 1, token]) for place, token in enumerate(ids))


def groups_of(
    model: torch.nn.Module, rewards_PG: Sequence[Sequence[float | None]], restarts: bool = False
) -> list[Group]:
    rng = random.Random(3)

    def ids(most: int) -> list[int]:
        return [rng.randrange(VOCABULARY) for _ in range(rng.randint(1, most))]

    groups = []
    for rewards_G in rewards_PG:
        trajectories = []
        for member, reward in enumerate(rewards_G):
            context: list[int] = []
            turns = []
            for number in range(2):
                again = restarts and number == 1
                prompt, sampled = ids(4), ids(5)
                context = [*([] if again else context), *prompt]
                logprobs = on_policy(model, context, sampled)
                context += sampled
                reply = Reply(
                    Prompt("", tuple(prompt), again),
                    tuple(sampled),
                    "",
                    logprobs,
                    (),
                    Span(0, 0),
                    Span(0, 0),
                    True,
                    False,
                )
                share = 0.0 if reward is None else (reward if number else 0.25 * reward)
                turns.append(Turn(reply, {"solved": share}, (), True, "", ""))
            outcome = None if reward is None else 0.0
            trajectories.append(Trajectory(Task("t", 0, "train"), member, tuple(turns), Ending.FAILED, outcome))
        groups.append(Group(Task("t", 0, "train"), tuple(trajectories)))
    return groups


@pytest.fixture(scope="module")
def sampled() -> dict[bool, list[Group]]:
    """Groups whose trajectories keep their history, and groups that begin anew with each turn."""
    model = llama(VOCABULARY)
    return {restarts: groups_of(model, REWARDS, restarts) for restarts in (False, True)}


def gradient_of_the_learner(
    model: torch.nn.Module, reference: torch.nn.Module, algorithm: Algorithm, groups: Sequence[Group]
) -> torch.Tensor:
    learner = Learner(
        model,
        algorithm,
        OptimizerConfig(),
        UpdateSettings(temperature=TEMPERATURE, micro_batch_tokens=64),
        reference=reference,
    )
    samples = make_samples(groups, [KEPT] * len(groups), algorithm.advantage)
    learner.accumulate_gradient(samples, token_budget=BUDGET)
    gradient = torch.cat([parameter.grad.flatten() for parameter in wide(model)])
    model.zero_grad(set_to_none=True)
    return gradient


class Kept:
    """Catches the vectors that a measurement makes, before only their inner products are left."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.collections: list[anatomy._Collection] = []
        made = anatomy._Collection.__init__

        def note(collection: anatomy._Collection, *arguments: object) -> None:
            made(collection, *arguments)
            self.collections.append(collection)

        monkeypatch.setattr(anatomy._Collection, "__init__", note)

    def mean(self, part: str, side: int = 0) -> torch.Tensor:
        collection = self.collections[-1]
        return collection._vectors[side][collection._source[part]].sum(dim=0) / collection._sizes[side].sum()


def gradient_meter(
    model: torch.nn.Module, reference: torch.nn.Module, algorithm: Algorithm, memory_mb: int = 64
) -> GradientMeter:
    return GradientMeter(model, reference, algorithm, temperature=TEMPERATURE, token_budget=BUDGET, memory_mb=memory_mb)


ESTIMATORS = {
    "divided": GroupRelative(),
    "undivided": GroupRelative(standardize=False),
    "leave_one_out": LeaveOneOut(),
    "turns": TurnReturns(gamma=0.9),
}


def pairs(*chosen: tuple[str, str]) -> list[Any]:
    """The chosen averages with their estimators. The other pairs are proofs."""
    every = product(("token", "sequence", "fixed"), ESTIMATORS)
    return [pytest.param(*pair, "token", marks=() if pair in chosen else pytest.mark.proof) for pair in every]


@pytest.mark.parametrize(
    ("average", "estimator", "ratio"),
    [
        *pairs(("token", "divided"), ("sequence", "leave_one_out"), ("fixed", "undivided"), ("fixed", "turns")),
        ("token", "turns", "sequence"),
        ("sequence", "divided", "sequence"),
    ],
)
def test_the_parts_add_up_to_the_gradient_of_the_learner(
    average: str, estimator: str, ratio: str, sampled: dict[bool, list[Group]], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, reference, kept = llama(VOCABULARY), llama(VOCABULARY, seed=1), Kept(monkeypatch)
    algorithm = Algorithm(
        advantage=ESTIMATORS[estimator], average=average, ratio=ratio, kl=0.3, kl_kind="k3", entropy=0.2
    )
    for groups in sampled.values():
        expected = gradient_of_the_learner(model, reference, algorithm, groups)
        gradient_meter(model, reference, algorithm).measure(groups)
        found = kept.mean("task") + 0.3 * kept.mean("kl") + 0.2 * kept.mean("entropy")
        assert float((found - expected).norm() / expected.norm()) < 1e-5


@pytest.mark.parametrize("whiten", [False, True])
def test_credit_of_a_critic_adds_up_to_the_gradient_of_the_learner(
    whiten: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, reference, kept = llama(VOCABULARY), llama(VOCABULARY, seed=1), Kept(monkeypatch)
    algorithm = Algorithm(advantage=Gae(gamma=0.9, lam=0.8, whiten=whiten), average="token")
    critic = Critic(model, CriticConfig(), OptimizerConfig())
    torch.nn.init.normal_(critic._head.weight, generator=torch.Generator().manual_seed(0))
    groups = groups_of(model, REWARDS[:3])
    rows = merge_rows(groups, [KEPT] * len(groups))
    learner = Learner(model, algorithm, OptimizerConfig(), UpdateSettings(temperature=TEMPERATURE))
    learner.accumulate_gradient(credit(rows, groups, algorithm.advantage, critic.values(rows)), token_budget=BUDGET)
    expected = torch.cat([parameter.grad.flatten() for parameter in wide(model)])
    model.zero_grad(set_to_none=True)
    GradientMeter(
        model, reference, algorithm, temperature=TEMPERATURE, token_budget=BUDGET, memory_mb=64, critic=critic
    ).measure(groups)
    found = kept.mean("task")
    assert float((found - expected).norm() / expected.norm()) < 1e-5
    # No baseline depends on who else is measured: the halves add up to the whole.
    halves = (kept.mean("task", 1) + kept.mean("task", 2)) / 2
    assert float((halves - expected).norm() / expected.norm()) < 1e-5


def test_grams_are_the_inner_products_of_the_groups_whose_mean_is_the_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    model, reference, kept = llama(VOCABULARY), llama(VOCABULARY, seed=1), Kept(monkeypatch)
    found = gradient_meter(model, reference, Algorithm()).measure(groups_of(model, REWARDS))
    sides = (found.noise.whole, *found.noise.halves)
    for number, (side, groups) in enumerate(zip(sides, (4, 3, 3), strict=True)):
        for one, other in GRAMS:
            product = float(side.grams[one, other].sum()) / groups**2
            assert product == pytest.approx(float(kept.mean(one, number) @ kept.mean(other, number)), rel=1e-4)
    assert found.trajectories == 15
    assert found.sketched is None
    assert found.parameters == sum(parameter.numel() for parameter in wide(model))


def test_halves_have_baselines_of_their_own_and_the_products_average_over_splits() -> None:
    """Against one backward pass per trajectory and the definitions, spelled out."""
    model, reference = llama(VOCABULARY), llama(VOCABULARY, seed=1)
    algorithm = Algorithm(advantage=GroupRelative(standardize=False), average="sequence")
    groups = groups_of(model, REWARDS[:2])
    found = gradient_meter(model, reference, algorithm).measure(groups).noise
    for place, group in enumerate(groups):
        scores = []
        for trajectory in group.trajectories:
            first, last = trajectory.turns
            better = replace(last, rewards={"solved": last.reward + 2.0})
            twice = replace(trajectory, member=0), replace(trajectory, member=1, turns=(first, better))
            # Two points worse than its double its advantage is -1: alone, its loss is its mean log-probability.
            alone = Group(group.task, twice)
            samples = make_samples([alone], [KEPT], algorithm.advantage)
            learner = Learner(model, algorithm, OptimizerConfig(), UpdateSettings(temperature=TEMPERATURE))
            learner.accumulate_gradient(samples[:1], token_budget=BUDGET)
            scores.append(torch.cat([parameter.grad.flatten() for parameter in wide(model)]).numpy())
            model.zero_grad(set_to_none=True)
        rewards = [float(trajectory.reward) for trajectory in group.trajectories]

        def mean_gradient(members: Sequence[int], rewards=rewards, scores=scores) -> np.ndarray:
            mean = math.fsum(rewards[member] for member in members) / len(members)
            return -sum((rewards[member] - mean) * scores[member] for member in members) / len(members)

        splits = [set(one) for one in combinations(range(4), 2) if set(one) in ({0, 1}, {1, 2})]
        products = [mean_gradient(sorted(one)) @ mean_gradient(sorted({0, 1, 2, 3} - one)) for one in splits]
        assert found.whole.prompt_products["task"][place] == pytest.approx(np.mean(products), rel=1e-4)
        assert found.whole.unbiased_products_P[place] == pytest.approx(4 * np.mean(products), rel=1e-4)
        assert found.whole.variance_P[place] == pytest.approx(np.var(rewards, ddof=1))
        assert found.whole.deviation2_P[place] == pytest.approx(np.var(rewards))
        assert found.whole.score2_P[place] == pytest.approx(np.mean([score @ score for score in scores]), rel=1e-4)
        for half, members in zip(found.halves, ([0, 2], [1, 3]), strict=True):
            gradient = mean_gradient(members)
            assert half.grams["task", "task"][place, place] == pytest.approx(gradient @ gradient, rel=1e-4)
            assert math.isnan(half.prompt_products["task"][place])


def test_the_measurement_leaves_no_gradient_and_no_weight_changed() -> None:
    model, reference = llama(VOCABULARY), llama(VOCABULARY, seed=1)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    state = torch.random.get_rng_state()
    told = []
    gradient_meter(model, reference, Algorithm()).measure(groups_of(model, REWARDS), lambda *at: told.append(at))
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(map(torch.equal, model.parameters(), before))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert told == [(number, 15) for number in range(1, 16)]


def test_gradients_that_do_not_fit_are_projected_and_agree_within_the_sketch() -> None:
    model, reference = llama(VOCABULARY), llama(VOCABULARY, seed=1)
    groups = groups_of(model, REWARDS)
    whole = gradient_meter(model, reference, Algorithm()).measure(groups)
    sketched = gradient_meter(model, reference, Algorithm(), memory_mb=1).measure(groups)
    assert whole.parameters > sketched.sketched == 4096
    squares, about = (one.noise.whole.grams["task", "task"].sum() for one in (whole, sketched))
    assert about == pytest.approx(squares, rel=4 * math.sqrt(2 / 4096))
    assert about != squares


def test_a_policy_that_is_its_own_reference_has_no_kl_gradient() -> None:
    model = llama(VOCABULARY)
    metrics = gradient_metrics(gradient_meter(model, model, Algorithm()).measure(groups_of(model, REWARDS)).noise, 3)
    readings = {metric.name: metric for metric in metrics}
    assert readings["gradient/all/kl_norm"].value == pytest.approx(0.0, abs=1e-12)
    assert readings["gradient/all/entropy_norm"].value > 0


def test_nothing_sampled_is_nothing_measured() -> None:
    model = llama(VOCABULARY)
    broken = groups_of(model, [[None, None]])
    found = gradient_meter(model, model, Algorithm()).measure(broken)
    assert found.trajectories == 0
    metrics = gradient_metrics(found.noise, 2)
    assert {metric.value for metric in metrics} == {None}
