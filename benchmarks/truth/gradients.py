"""Cases of `gradient/*`: prompts, rewards and scores of trajectories with a known expected gradient.

A prompt has a chance of success p and a direction v. A member succeeds with chance p. Its score is (R - p) v plus
normal noise, so a group's gradient is exact up to that noise. Rewards and scores pass through the code that a
measurement uses. Buckets have groups of four kinds, each with its own variance and its own gradient.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.stats import binom

from benchmarks.truth.simulation import Case, Floats, Later
from heedful.algorithms.advantages import GroupRelative
from heedful.diagnostics.gradient.metrics import GRAMS, PARTS, gradient_metrics
from heedful.diagnostics.gradient.scope import GradientNoise, Side
from heedful.training.gradients.meter import _Collection
from heedful.training.gradients.trajectory_gradients import Unit
from heedful.types import Ending, Metric, Prompt, Reply, Span, Task, Trajectory, Turn

REGULARISERS = ("kl", "entropy")
ALL = "gradient/all"


@dataclass(frozen=True)
class Prompts:
    """Two kinds of prompts, equally likely, with chances of success and directions of their own."""

    groups: int
    members: int
    numbers: int
    """Directions of the noise, which has variance 1 in each."""
    sizes: tuple[float, float]
    """Length of the common direction, and of the direction in which the two kinds differ."""
    chances: tuple[float, float] = (0.3, 0.6)

    def directions(self) -> Floats:
        common, apart = np.eye(self.numbers)[:2] * np.array(self.sizes)[:, None]
        return np.stack([common + apart, common - apart])

    def regulariser(self, part: str) -> Floats:
        """Mean of the gradient of KL or entropy: at a known angle to the common direction."""
        along, across = (0.8, 0.6) if part == "kl" else (-0.6, 0.8)
        unit = along * np.eye(self.numbers)[0] + across * np.eye(self.numbers)[2]
        return unit * 1.5 * self.sizes[0]

    def draw(self, rng: np.random.Generator) -> list[Metric]:
        collection = _Collection(self.groups, self.numbers, GroupRelative(standardize=False))
        directions = self.directions()
        for place in range(self.groups):
            kind = int(rng.integers(2))
            success_G = rng.random(self.members) < self.chances[kind]
            scores_GD = (success_G - self.chances[kind])[:, None] * directions[kind]
            scores_GD = scores_GD + rng.normal(size=(self.members, self.numbers))
            vectors = {"score": scores_GD}
            for part in REGULARISERS:
                vectors[part] = self.regulariser(part) + rng.normal(size=(self.members, self.numbers))
            units = [
                Unit(kind_of, member, {0: 1}, torch.from_numpy(rows[member]).float())  # type: ignore[arg-type]
                for kind_of, rows in vectors.items()
                for member in range(self.members)
            ]
            collection.take(place, _trajectories(place, success_G), units)
        return gradient_metrics(collection.noise(), 4, {"kl": 0.5})

    def truths(self) -> Mapping[str, float]:
        """All of them. The one that takes seconds is worked out at the first look at a value."""
        found, whole = self._enumerated(), f"{ALL}/bound_tightness_prompt"
        return Later([*found, whole], lambda: {**found, whole: self._prompt_tightness()})

    def _enumerated(self) -> dict[str, float]:
        n, size, noise = self.groups, self.members, float(self.numbers)
        hits = np.arange(size + 1)
        parts = {name: [] for name in ("mean", "square", "divided mean", "divided square", "prompt", "unbiased")}
        bound = {name: [] for name in ("deviation2", "score2", "variance x score2", "std")}
        for p, v in zip(self.chances, self.directions(), strict=True):
            chance, length2 = binom.pmf(hits, size, p), float(v @ v)
            spread = hits * (size - hits) / size**2  # mean squared deviation
            deviation = np.sqrt(spread * size / (size - 1))  # sample
            varied = (spread > 0) * (size - 1) / size
            half = size // 2
            parts["mean"].append(chance @ spread * v)
            parts["square"].append(chance @ (length2 * spread**2 + noise * spread / size))
            parts["divided mean"].append((size - 1) / size * (chance @ deviation) * v)
            divided = length2 * ((size - 1) / size * deviation) ** 2 + noise * varied / size
            parts["divided square"].append(chance @ divided)
            parts["prompt"].append(length2 * (p * (1 - p) * (half - 1) / half) ** 2)
            parts["unbiased"].append(length2 * (p * (1 - p)) ** 2)
            score2 = length2 * (hits * (1 - p) ** 2 + (size - hits) * p**2) / size + noise
            bound["deviation2"].append(chance @ spread)
            bound["score2"].append(chance @ score2)
            bound["variance x score2"].append(chance @ (deviation**2 * score2))
            bound["std"].append(chance @ deviation**2)
        mean = {name: float(np.mean(values)) for name, values in (parts | bound).items() if "mean" not in name}
        means = {name: np.mean(parts[name], axis=0) for name in ("mean", "divided mean")}
        squares = {"task_undivided": mean["square"], "task_divided": mean["divided square"]}
        vectors = {"task_undivided": -means["mean"], "task_divided": -means["divided mean"]}
        for part in REGULARISERS:
            vectors[part] = self.regulariser(part)
            squares[part] = float(vectors[part] @ vectors[part]) + noise / size
        vectors["task"], squares["task"] = vectors["task_undivided"], squares["task_undivided"]
        found: dict[str, float] = {}
        for part, vector in vectors.items():
            signal2 = float(vector @ vector)
            noise2 = (squares[part] - signal2) / n
            found |= {f"{part}_signal2": signal2, f"{part}_noise2": noise2, f"{part}_norm": math.sqrt(signal2 + noise2)}
            found[f"{part}_group_norm"] = math.sqrt(squares[part])
        found["kl_weighted_norm"] = 0.5 * found["kl_norm"]
        found["task_prompt_signal2"] = found["task_undivided_prompt_signal2"] = mean["prompt"]
        found["snr"] = found["task_signal2"] / found["task_noise2"]
        for one, other in (("task", "kl"), ("task", "entropy"), ("kl", "entropy")):
            lengths = math.sqrt(found[f"{one}_signal2"] * found[f"{other}_signal2"])
            found[f"cosine_{one}_{other}"] = float(vectors[one] @ vectors[other]) / lengths
        found["bound_tightness"] = found["task_undivided_norm"] / math.sqrt(mean["deviation2"] * mean["score2"])
        found["bound_tightness2_expected"] = mean["unbiased"] / mean["variance x score2"]
        found["reward_variance"] = mean["std"]
        return {f"{ALL}/{name}": value for name, value in found.items()}

    def _prompt_tightness(self, draws: int = 1_000_000) -> float:
        """An integral of the definition: |g| over its bound, mean over groups that vary."""
        rng, found = np.random.default_rng(self.numbers), []
        for p, v in zip(self.chances, self.directions(), strict=True):
            success_BG = rng.random((draws // self.numbers, self.members)) < p
            success_BG = success_BG[(success_BG.mean(axis=1) % 1) > 0]
            scores_BGD = (success_BG - p)[..., None] * v + rng.normal(size=(*success_BG.shape, self.numbers))
            deviation_BG = success_BG - success_BG.mean(axis=1, keepdims=True)
            norms_B = np.linalg.norm(np.einsum("bg,bgd->bd", deviation_BG, scores_BGD) / self.members, axis=1)
            bounds_B = np.sqrt((deviation_BG**2).mean(axis=1) * (scores_BGD**2).sum(axis=2).mean(axis=1))
            found.append((norms_B / bounds_B).sum() / draws * self.numbers)
            found.append(len(norms_B) / draws * self.numbers)
        return float(sum(found[::2]) / sum(found[1::2]))

    def case(self) -> Case:
        size = f"{self.groups} groups x {self.members}, {self.numbers} directions"
        ratio = self._enumerated()[f"{ALL}/snr"]
        return Case(f"{size}, SNR {ratio:.2g}", self.draw, self.truths(), batches=400, small=8)


def _trajectories(place: int, success_G: Floats) -> list[Trajectory]:
    task = Task(f"task-{place}", place, "train")
    reply = Reply(Prompt("", (1,)), (1,), "", (0.0,), (), Span(0, 0), Span(0, 1), True, False)
    return [
        Trajectory(
            task, member, (Turn(reply, {"outcome": float(solved)}, (), True, "", ""),), Ending.FAILED, float(solved)
        )
        for member, solved in enumerate(success_G)
    ]


KINDS = np.array([0.05, 0.1, 0.2, 0.3])
"""Variances of the rewards of four kinds of prompts, equally likely."""
SHARES = np.array([[0.75, 0.25, 0, 0], [0, 0.5, 0.5, 0], [0, 0, 0.25, 0.75]])
"""Of each kind in three buckets of equal size."""
MEANS = np.array([1.0, 1.2, 1.6, 2.0])
"""Length of each kind's expected gradient. All have one direction."""
SPREAD = np.array([1.0, 2.0, 4.0, 8.0])
"""Squared noise of each kind's gradient."""


def _buckets(groups: int, ties: bool) -> Case:
    def draw(rng: np.random.Generator) -> list[Metric]:
        kind_P = rng.integers(0, 4, size=groups)
        variance_P = KINDS[kind_P] if ties else KINDS[kind_P] * (1 + 0.01 * rng.random(groups))
        halves = []
        for _ in range(2):
            noise_PD = np.sqrt(SPREAD[kind_P] / 8)[:, None] * rng.normal(size=(groups, 8))
            vectors_PD = MEANS[kind_P][:, None] * np.eye(8)[0] + noise_PD
            halves.append(_side(vectors_PD, variance_P, MEANS[kind_P] ** 2))
        return gradient_metrics(GradientNoise(halves[0], (halves[0], halves[1])), 4)

    truths = {}
    for bucket, share_K in enumerate(SHARES):
        prefix, signal = f"gradient/bucket_{bucket + 1}", float(share_K @ MEANS) ** 2
        truths[f"{prefix}/task_group_norm"] = math.sqrt(float(share_K @ (MEANS**2 + SPREAD)))
        truths[f"{prefix}/task_signal2"] = signal
        truths[f"{prefix}/cosine_task_kl"] = 1.0
        truths[f"{prefix}/reward_variance"] = float(share_K @ KINDS) * (1 if ties else 1.005)
        truths[f"{prefix}/sorted_variance"] = truths[f"{prefix}/reward_variance"]
    kind = "equal variances within a kind" if ties else "all variances different"
    return Case(f"buckets of {groups} groups, {kind}", draw, truths, batches=400, small=10)


def _side(vectors_PD: Floats, variance_P: Floats, prompt_P: Floats) -> Side:
    """All parts have the same gradients."""
    groups, gram_PP = len(vectors_PD), vectors_PD @ vectors_PD.T
    return Side(
        grams=dict.fromkeys(GRAMS, gram_PP),
        prompt_products=dict.fromkeys(PARTS, prompt_P),
        unbiased_products_P=prompt_P,
        variance_P=variance_P,
        deviation2_P=variance_P,
        score2_P=np.full(groups, 1e3),
    )


def _cases() -> Sequence[Case]:
    whole = [Prompts(16, 8, numbers, (3.0, 2.0)).case() for numbers in (20, 400)]
    return (*whole, *(_buckets(groups, ties) for groups in (16, 32) for ties in (True, False)))


CASES = tuple(_cases())
