"""Cases of `information/*`, `retrieval/*` and `text/*`."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, partial

import numpy as np
from scipy.stats import norm

from benchmarks.truth.channels import BITS, HEAD, Bits, Channel, Gaussian, Integral, integral
from benchmarks.truth.simulation import Case, Later
from heedful.diagnostics.cross_scores.information import ZScoreState, information
from heedful.diagnostics.cross_scores.pictures import image_share
from heedful.diagnostics.text import _template_share, text_metrics
from heedful.types import CrossScores, Metric

SCOPE = "first_turn"


INFORMATIONS: dict[str, Callable[[Channel, Integral], float]] = {
    "mi": lambda channel, at_n: at_n.mi,
    "mi#population": lambda channel, at_n: channel.nats,
    "mi_loo": lambda channel, at_n: at_n.loo,
    "mi_per_token": lambda channel, at_n: at_n.mi / channel.length,
    "mi_tempered": lambda channel, at_n: at_n.tempered,
    "gap_per_token": lambda channel, at_n: channel.gap,
    "entropy_conditional": lambda channel, at_n: channel.conditional,
    "entropy_conditional_per_token": lambda channel, at_n: channel.conditional / channel.length,
    "entropy_marginal": lambda channel, at_n: channel.conditional + at_n.mi,
    "entropy_marginal_per_token": lambda channel, at_n: (channel.conditional + at_n.mi) / channel.length,
    "zscore": lambda channel, at_n: at_n.zscore,
    "zscore_ema": lambda channel, at_n: at_n.zscore,
    "zscore_tempered": lambda channel, at_n: at_n.zscore_tempered,
    "zscore_ema_tempered": lambda channel, at_n: at_n.zscore_tempered,
}


def _measured(channel: Channel, prompts: int, members: int) -> Case:
    at_n = cache(partial(integral, channel, prompts))

    def draw(rng: np.random.Generator) -> list[Metric]:
        state = ZScoreState(at_n().deviation, at_n().deviation_tempered)
        return information(channel.scores(rng, prompts, members), SCOPE, rng, state).metrics

    informations = dict(INFORMATIONS)
    if isinstance(channel, Bits):
        informations[f"mi_head_{HEAD}"] = lambda channel, at_n: at_n.head
    best = {"accuracy": (prompts, 1)} | {f"accuracy@{k}": (prompts, k) for k in (2, 4, 8)}
    best |= {f"accuracy_{ways}way": (ways, 1) for ways in (2, 8)}

    def truths() -> dict[str, float]:
        found = {f"information/{SCOPE}/{name}": of(channel, at_n()) for name, of in informations.items()}
        return found | {f"retrieval/{SCOPE}/{name}": channel.accuracy(*sizes) for name, sizes in best.items()}

    names = [*(f"information/{SCOPE}/{name}" for name in informations), *(f"retrieval/{SCOPE}/{name}" for name in best)]
    kind = "templates" if getattr(channel, "share", 0) else type(channel).__name__.lower()
    return Case(f"{kind}, {channel.nats:g} nats, {prompts} x {members}", draw, Later(names, truths))


CONTEXTS = 32
LEAD = 1.0
"""What the own context adds to a thought's score, mean over tasks."""


def _contexts(tasks: int) -> Case:
    """One thought for each context. Contexts of one task lead by about as much as each other."""
    task_M = np.arange(CONTEXTS) % tasks

    def draw(rng: np.random.Generator) -> list[Metric]:
        scores_MN = rng.normal(scale=0.3, size=(CONTEXTS, CONTEXTS))
        scores_MN[np.arange(CONTEXTS), np.arange(CONTEXTS)] += LEAD + rng.normal(scale=0.5, size=tasks)[task_M]
        names = [f"task-{task}" for task in task_M]
        scores = CrossScores(scores_MN, [1] * CONTEXTS, list(range(CONTEXTS)), tasks_M=names)  # type: ignore[arg-type]
        return information(scores, "any_turn", rng).metrics

    # The lead of a context over one other: N(1, .5^2 + 2 x .3^2).
    beaten = float(norm.cdf(LEAD / math.sqrt(0.25 + 0.18)))
    truths = {
        "information/any_turn/gap_per_token": LEAD,
        "information/any_turn/entropy_conditional": -LEAD,
        "retrieval/any_turn/accuracy_2way": beaten,
    }
    return Case(f"any_turn, 32 contexts of {tasks} tasks", draw, truths, batches=400, small=25)


def _of_pictures(bits: int, prompts: int, members: int, flip: float = 0.2) -> Case:
    """A thought copies `bits` bits of its picture and the rest of 16 bits of its text, each one flipped by chance."""

    def draw(rng: np.random.Generator) -> list[Metric]:
        own_M = np.repeat(np.arange(prompts), members)
        x_NT = rng.integers(0, 2, size=(prompts, BITS))
        z_MT = x_NT[own_M] ^ (rng.random((len(own_M), BITS)) < flip)
        differ_MNT = z_MT[:, None] != x_NT
        read_MNT = np.where(differ_MNT, math.log(flip), math.log(1 - flip))
        text_MN = read_MNT[:, :, bits:].sum(axis=2)
        picture_MN = read_MNT[:, :, :bits].sum(axis=2)
        own_text_M1 = text_MN[np.arange(len(own_M)), own_M][:, None]
        lengths, own = [BITS] * len(own_M), own_M.tolist()
        image, both = (CrossScores(s_MN, lengths, own) for s_MN in (picture_MN + own_text_M1, picture_MN + text_MN))
        return [image_share(image, both)]

    truths = {"grounding/image_share": bits / BITS}
    return Case(f"{bits} of {BITS} bits are the picture's, {prompts} x {members}", draw, truths, batches=1000, small=10)


WORDS = 40
"""Words of a vocabulary that says nothing about prompts."""


def _random_thoughts(prompts: int, members: int, rng: np.random.Generator) -> list[Metric]:
    """Thoughts that are independent of their prompts: each is 12 words of one vocabulary."""
    drawn = rng.integers(WORDS, size=(prompts, members, 12))
    thoughts = [[" ".join(f"w{word:02d}" for word in words) for words in group] for group in drawn]
    return text_metrics(thoughts, rng)


def _blind(prompts: int, members: int) -> Case:
    truths = {"text/judge_accuracy": 1 / prompts, "text/judge_accuracy_8way": 1 / 8, "text/template_share": 1.0}
    draw = partial(_random_thoughts, prompts, members)
    return Case(f"blind thoughts, {prompts} x {members}", draw, truths, batches=400, small=4)


TEMPLATE = "the goal is near so i go on and on until it is reached"


def _templates(share: float, prompts: int, members: int) -> Case:
    """A thought is a template with this probability, and else its prompt's own sentence: no word is in both."""

    def draw(rng: np.random.Generator) -> list[Metric]:
        own = [" ".join(f"p{prompt}w{word}" for word in range(13)) for prompt in range(prompts)]
        thoughts = [
            [TEMPLATE if rng.random() < share else own[prompt] for _ in range(members)] for prompt in range(prompts)
        ]
        return [_template_share(thoughts)]

    found = 1 - (1 - share) ** (members - 1)
    found_own = 1 - share ** (members - 1)
    truth = share * found / (share * found + (1 - share) * found_own)
    return Case(
        f"{share:.0%} templates, {prompts} x {members}", draw, {"text/template_share": truth}, batches=400, small=10
    )


CASES = (
    *(_measured(Gaussian(nats), 16, 8) for nats in (0.1, 0.5, 1.0, 2.0, 4.0)),
    *(_measured(Bits(nats), 16, 8) for nats in (0.1, 0.5, 2.0, 6.0)),
    *(_measured(Bits(nats, share=0.5), 16, 8) for nats in (0.1, 1.0, 4.0)),
    *(_measured(channel, 16, 2) for channel in (Gaussian(0.5), Gaussian(2.0), Bits(1.0), Bits(1.0, share=0.5))),
    *(_measured(channel, 32, 8) for channel in (Gaussian(1.0), Bits(2.0), Bits(4.0, share=0.5))),
    *(_contexts(tasks) for tasks in (16, 8, 4)),
    *(_of_pictures(bits, prompts, 2) for bits, prompts in ((8, 8), (2, 8), (8, 16))),
    *(_blind(prompts, members) for prompts, members in ((8, 4), (10, 4))),
    *(_templates(share, 16, 8) for share in (0.1, 0.5, 0.9)),
)
