"""Slopes and parts on a small transformer: forward mode against backward mode, and the parts against the step."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from transformers import GPT2Config, GPT2LMHeadModel  # noqa: E402

from heedful.algorithms.advantages import LeaveOneOut  # noqa: E402
from heedful.algorithms.table import Grpo  # noqa: E402
from heedful.training.batch import UpdateSettings  # noqa: E402
from heedful.training.gradients.adamw import product  # noqa: E402
from heedful.training.gradients.components import split_advantages  # noqa: E402
from heedful.training.gradients.slopes import central_slopes, slopes, weighted_gradient  # noqa: E402
from heedful.training.gradients.update_parts import TermMoments, UpdateParts  # noqa: E402
from heedful.training.learner import Learner  # noqa: E402
from heedful.training.samples import credit, merge_rows  # noqa: E402
from heedful.training.settings import OptimizerConfig  # noqa: E402
from heedful.types import Ending, Group, Prompt, Reply, Span, Task, Trajectory, Turn, Verdict  # noqa: E402
from tiny_models import narrow  # noqa: E402

VOCABULARY = 13
ROW = Grpo(kl=0.3, entropy=0.1, advantage=LeaveOneOut())  # float32 holds advantages of eighths exactly
STEADY = OptimizerConfig(lr=0.002, warmup_steps=0, weight_decay=0.01, gradient_clip=0.5)


def tiny(dtype: Any, seed: int = 0) -> Any:
    """In float64 a GPT-2, of which no layer is computed in float32. In float32 a Llama: GPT-2 has biases without any
    gradient but rounding, which AdamW makes a step of."""
    if dtype == torch.float32:
        return narrow(VOCABULARY, seed, dtype)
    sizes = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64, "vocab_size": VOCABULARY}
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return GPT2LMHeadModel(GPT2Config(**sizes, initializer_range=0.3)).to(dtype).eval()


def groups(seed: int = 5) -> list[Group]:
    rng = random.Random(seed)

    def ids(least: int, most: int) -> tuple[int, ...]:
        return tuple(rng.randrange(VOCABULARY) for _ in range(rng.randint(least, most)))

    found = []
    for number in range(4):
        members, prompt = [], ids(2, 5)
        for member in range(3):
            said = ids(2, 6)
            reply = Reply(Prompt("", prompt), said, "", (-2.5,) * len(said), (), Span(0, 0), Span(0, 0), True, False)
            solved = float(number < 2 and member == 0)
            turn = Turn(reply, {"solved": solved, "fluency": rng.randrange(8) / 8}, (), True, "", "")
            members.append(Trajectory(Task("t", 0, "train"), member, (turn,), Ending.FAILED, solved))
        found.append(Group(Task("t", 0, "train"), tuple(members)))
    return found


class Split:
    """Two updates of a learner, the second one split."""

    def __init__(self, dtype: Any, moments: TermMoments | None = None, row: Any = ROW) -> None:
        self.learner = Learner(tiny(dtype), row, STEADY, UpdateSettings(), reference=tiny(dtype, seed=1))
        for seed in (5, 6):
            of_step, verdicts = groups(seed), [Verdict(1.0, "kept", None)] * 4
            rows = merge_rows(of_step, verdicts)
            self.samples = credit(rows, of_step, row.advantage)
            advantages = split_advantages(self.samples, rows, of_step, row.advantage)
            self.parts = UpdateParts(self.learner, advantages, moments)
            self.learner.splits_steps = self.parts
            self.before = [one.detach().clone() for one in self.learner.parameters]
            self.learner.update(self.samples)
        self.step = [after.detach() - old for after, old in zip(self.learner.parameters, self.before, strict=True)]

    def gap(self) -> float:
        """The distance of the sum of the parts from the step, relative to the step."""
        total = [sum(found) for found in zip(*self.parts.parts.values(), strict=True)]
        rest = [one - other for one, other in zip(total, self.step, strict=True)]
        return (product(rest, rest) / product(self.step, self.step)) ** 0.5


@pytest.mark.parametrize("row", [ROW, replace(ROW, epochs=2, minibatches=2, clip_low=0.01, clip_high=0.01)])
@pytest.mark.parametrize("kept", [True, False])
def test_the_parts_add_up_to_the_learners_step(row: Any, kept: bool) -> None:
    found = Split(torch.float64, TermMoments() if kept else None, row)
    assert found.gap() < 1e-9
    assert {"solved_varied", "fluency_varied", "fluency_constant", "kl", "entropy", "decay"} <= set(found.parts.parts)
    # Kept from the first step on, every moment has a name: nothing is carried by none.
    nameless = product(found.parts.parts["carried"], found.parts.parts["carried"]) / product(found.step, found.step)
    assert nameless < 1e-18 if kept else nameless > 1e-3
    assert Split(torch.float32, TermMoments() if kept else None, row).gap() < 1e-4


def test_splitting_an_update_changes_no_byte_of_it() -> None:
    split = Split(torch.float32)
    plain = Learner(tiny(torch.float32), ROW, STEADY, UpdateSettings(), reference=tiny(torch.float32, seed=1))
    for seed in (5, 6):
        rows = merge_rows(groups(seed), [Verdict(1.0, "kept", None)] * 4)
        plain.update(credit(rows, groups(seed), ROW.advantage))
    pairs = zip(plain.parameters, split.learner.parameters, strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


def test_forward_mode_gives_what_backward_mode_gives() -> None:
    found = Split(torch.float64)
    weights = [0.25 + place for place in range(len(found.samples))]
    gradient = weighted_gradient(found.learner, found.samples, weights)
    along = slopes(found.learner, found.samples, found.step)
    total = sum(weight * float(one.logprobs_T.sum()) for weight, one in zip(weights, along, strict=True))
    assert total == pytest.approx(product(gradient, found.step), rel=1e-10)


def test_every_token_adds_its_pull_times_its_slope_to_the_part_of_its_term() -> None:
    found = Split(torch.float64)
    learner, parts = found.learner, found.parts
    with torch.no_grad():
        for one, old in zip(learner.parameters, found.before, strict=True):
            one.copy_(old)
    gradient = weighted_gradient(learner, found.samples, [1.0, -2.0] * 6)
    assert parts.first is not None
    along = slopes(learner, found.samples, parts.first.step(parts.first.moved(gradient)))
    for term, of_sample in parts.token_pulls.items():
        total = sum(float(pull.along(*along[place]).sum()) for place, pull in of_sample.items())
        if term in parts.parts:
            assert total == pytest.approx(product(gradient, parts.parts[term]), rel=1e-9, abs=1e-14)


def test_a_central_difference_stands_in_for_a_missing_forward_mode() -> None:
    found = Split(torch.float64)
    forward, central = (each(found.learner, found.samples, found.step) for each in (slopes, central_slopes))
    largest = max(float(one.logprobs_T.abs().max()) for one in forward)
    for one, other in zip(forward, central, strict=True):
        assert float((one.logprobs_T - other.logprobs_T).abs().max()) < 1e-4 * largest
        assert float((one.entropy_T - other.entropy_T).abs().max()) < 1e-4 * largest
