"""Thoughts and prompts with known information, and the values that a batch of N prompts should read.

- `gaussian`: prompts x ~ N(0, 1), thoughts z ~ N(x, s^2), I(X;Z) = log(1 + 1 / s^2) / 2.
- `bits`: a prompt is 16 bits, a thought its copy, each bit flipped with probability e. I = 16 (log 2 - h(e)).
- `templates`: as `bits`, but half of the thoughts are 16 random bits marked as a template. I = 16 (log 2 - h(e)) / 2.

Values at N prompts are integrals: thoughts are drawn with N prompts of their own each, 100,000 times.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.optimize import brentq
from scipy.special import logsumexp
from scipy.stats import binom, multinomial, norm

from benchmarks.truth.simulation import Floats
from heedful.types import CrossScores

BITS = 16
HEAD = 8
"""Bits of the head of a thought."""
DRAWS = 100_000
EPSILON = 1e-3
"""Added to the divisor of the z-score, as published."""


@dataclass(frozen=True)
class Integral:
    """Means over thoughts that meet N prompts each."""

    mi: float
    loo: float
    head: float
    zscore: float
    """The mean of the gain per token over the deviation of the marginal per token."""
    tempered: float
    zscore_tempered: float
    deviation: float
    deviation_tempered: float


@dataclass(frozen=True)
class Gaussian:
    nats: float
    length: int = 1

    @property
    def noise(self) -> float:
        return 1 / math.sqrt(math.exp(2 * self.nats) - 1)

    @property
    def conditional(self) -> float:
        return 0.5 * math.log(2 * math.pi * math.e * self.noise**2)

    @property
    def gap(self) -> float:
        """E[(x - x')^2] / (2 s^2) for two independent prompts."""
        return 1 / self.noise**2

    def scores(self, rng: np.random.Generator, prompts: int, members: int) -> CrossScores:
        x_N, own_M = rng.normal(size=prompts), np.repeat(np.arange(prompts), members)
        z_M = x_N[own_M] + self.noise * rng.normal(size=len(own_M))
        scores_MN = norm.logpdf(z_M[:, None], x_N, self.noise)
        return CrossScores(scores_MN, [1] * len(own_M), own_M.tolist())  # type: ignore[arg-type]

    def meetings(self, rng: np.random.Generator, prompts: int) -> tuple[Floats, Floats]:
        x_MN = rng.normal(size=(DRAWS, prompts))
        z_M1 = x_MN[:, :1] + self.noise * rng.normal(size=(DRAWS, 1))
        scores_MN: Floats = norm.logpdf(z_M1, x_MN, self.noise)
        return scores_MN, scores_MN

    def accuracy(self, prompts: int, best: int) -> float:
        """The chance that fewer than `best` rivals are nearer: given x and z they are independent."""
        rng = np.random.default_rng(prompts)
        x_M, e_M = rng.normal(size=(2, DRAWS))
        z_M, distance_M = x_M + self.noise * e_M, self.noise * np.abs(e_M)
        nearer_M = norm.cdf(z_M + distance_M) - norm.cdf(z_M - distance_M)
        return float(binom.cdf(best - 1, prompts - 1, nearer_M).mean())


@dataclass(frozen=True)
class Bits:
    nats: float
    share: float = 0.0
    """Thoughts that are templates."""
    length: int = BITS

    @cached_property
    def flip(self) -> float:
        """The flip probability that leaves nats / (1 - share) of information in a copy."""

        def left(e: float) -> float:
            return BITS * (math.log(2) + e * math.log(e) + (1 - e) * math.log(1 - e))

        return float(brentq(lambda e: left(e) - self.nats / (1 - self.share), 1e-9, 0.5 - 1e-12))

    @property
    def conditional(self) -> float:
        copied = BITS * math.log(2) - self.nats / (1 - self.share)
        if not self.share:
            return copied
        kinds = -self.share * math.log(self.share) - (1 - self.share) * math.log(1 - self.share)
        return kinds + self.share * BITS * math.log(2) + (1 - self.share) * copied

    @property
    def gap(self) -> float:
        """Per bit: half of the bits of a rival differ."""
        return (1 - self.share) * (0.5 - self.flip) * math.log((1 - self.flip) / self.flip)

    def scores(self, rng: np.random.Generator, prompts: int, members: int) -> CrossScores:
        own_M = np.repeat(np.arange(prompts), members)
        x_NT = rng.integers(0, 2, size=(prompts, BITS))
        z_MT = x_NT[own_M] ^ (rng.random((len(own_M), BITS)) < self.flip)
        differ_MNT = z_MT[:, None] != x_NT
        template_M = rng.random(len(own_M)) < self.share
        whole, head = (self._scored(differ_MNT[..., :kept], template_M) for kept in (BITS, HEAD))
        return CrossScores(whole, [BITS] * len(own_M), own_M.tolist(), {HEAD: head}, noise=1e-9)  # type: ignore

    def _scored(self, differ_MNT: Floats, template_M: Floats) -> Floats:
        length, flipped_MN = differ_MNT.shape[-1], differ_MNT.sum(axis=-1)
        scores_MN = flipped_MN * math.log(self.flip) + (length - flipped_MN) * math.log(1 - self.flip)
        if not self.share:
            return scores_MN
        of_template = math.log(self.share) - length * math.log(2)
        found: Floats = np.where(template_M[:, None], of_template, math.log(1 - self.share) + scores_MN)
        return found

    def meetings(self, rng: np.random.Generator, prompts: int) -> tuple[Floats, Floats]:
        """Only the numbers of differing bits matter: the own prompt's are the flips, half of a rival's differ."""
        template_M = rng.random(DRAWS) < self.share
        found = []
        halves = [rng.binomial(HEAD, 0.5, size=(DRAWS, prompts)) for _ in range(2)]
        for differ_MN in halves:
            differ_MN[:, 0] = rng.binomial(HEAD, self.flip, size=DRAWS)
        for length, differ_MN in ((HEAD, halves[0]), (BITS, halves[0] + halves[1])):
            scores_MN = differ_MN * math.log(self.flip) + (length - differ_MN) * math.log(1 - self.flip)
            if self.share:
                of_template = math.log(self.share) - length * math.log(2)
                scores_MN = np.where(template_M[:, None], of_template, math.log(1 - self.share) + scores_MN)
            found.append(scores_MN)
        return found[1], found[0]

    def accuracy(self, prompts: int, best: int) -> float:
        """Exact: own and rival distances are binomial, and ties share the credit."""
        above, tied = np.meshgrid(np.arange(prompts), np.arange(prompts), indexing="ij")
        possible = above + tied < prompts
        above, tied = above[possible], tied[possible]
        credit = np.clip((best - above) / (tied + 1), 0, 1)
        right = 0.0
        for own in range(BITS + 1):
            nearer, equal = binom.cdf(own - 1, BITS, 0.5), binom.pmf(own, BITS, 0.5)
            counts = np.stack([above, tied, prompts - 1 - above - tied], axis=-1)
            chances = multinomial.pmf(counts, prompts - 1, [nearer, equal, 1 - nearer - equal])
            right += binom.pmf(own, BITS, self.flip) * float(chances @ credit)
        return self.share * best / prompts + (1 - self.share) * right


Channel = Gaussian | Bits


def integral(channel: Channel, prompts: int) -> Integral:
    """Expected readings of a batch of this many prompts with equally many thoughts each."""
    rng = np.random.default_rng(zlib.crc32(f"{channel} {prompts}".encode()))
    whole_MN, head_MN = channel.meetings(rng, prompts)

    def gains(scores_MN: Floats) -> tuple[Floats, Floats]:
        marginal_M = logsumexp(scores_MN, axis=1) - math.log(prompts)
        return scores_MN[:, 0] - marginal_M, marginal_M

    gain_M, marginal_M = gains(whole_MN)
    others_M = logsumexp(whole_MN[:, 1:], axis=1) - math.log(prompts - 1)
    tempered_M, tempered_marginal_M = gains(whole_MN / channel.length)
    deviation, tempered = float(marginal_M.std() / channel.length), float(tempered_marginal_M.std())
    mi = float(gain_M.mean())
    return Integral(
        mi=mi,
        loo=float((whole_MN[:, 0] - others_M).mean()),
        head=float(gains(head_MN)[0].mean()),
        zscore=mi / channel.length / (deviation + EPSILON),
        tempered=float(tempered_M.mean()),
        zscore_tempered=float(tempered_M.mean()) / (tempered + EPSILON),
        deviation=deviation,
        deviation_tempered=tempered,
    )
