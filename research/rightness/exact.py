"""Tests 1 and 2: the enumerated policies, exactly and in drawn batches, and the bound that no label gets past."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import numpy.typing as npt

from heedful.diagnostics.actions.exchanged import Exchange
from heedful.diagnostics.actions.rightness import PARTS, rightness, split, tensor
from heedful.diagnostics.catalogue import mark_of
from heedful.seeds import derive
from heedful.types import Metric, Task
from research.rightness.enumerated import ACTIONS, POLICIES, PROMPTS, RIGHT_XA, Floats, population, tensor_of
from research.rightness.figures import Result, figure

Ints = npt.NDArray[np.int_]

DIGITS = 6e-7
"""The values of the policies are stated to six digits."""
READ = ("right", "right_by_thought", "right_by_prompt", "right_by_both")


def exact(seed: int, batches: int = 2000, each: int = 60) -> Result:
    """Test 1. `batches`: for the bias of each policy. `each`: for the coverage of each policy and size."""
    rng = np.random.default_rng(derive(seed, "rightness", "exact"))
    off = max(float(np.abs(np.subtract(_truths(name), POLICIES[name].parts)).max()) for name in POLICIES)
    worst = max(_worst_bias(name, batches, rng) for name in POLICIES)
    figures = [
        figure("policies", len(POLICIES)),
        figure("largest distance to the stated values", off),
        figure("largest distance of a mean, in standard errors", worst, batches),
    ]
    shares = []
    for prompts in (8, 16):
        by_policy = {policy: covered(policy, prompts, each, rng) for policy in POLICIES}
        for name in READ:
            counts = {policy: found[name] for policy, found in by_policy.items()}
            worst_share, policy = min((hits / of, policy) for policy, (hits, of) in counts.items() if of)
            marked = each * len(POLICIES) - sum(of for _, of in counts.values())
            shares.append(worst_share)
            title = f"{name}, {prompts} x 2: smallest share of unmarked intervals with the truth"
            note = f"{policy}; {marked} of all {each * len(POLICIES)} are marked or have no interval"
            figures.append(figure(title, worst_share, counts[policy][1], note))
    moved, dealt = _moved_by_order(rng), _dealt(rng)
    figures += [
        figure("largest change with the order of the batch", moved),
        figure("all 35 ways to deal 8 prompts into 2 blocks, against all pairs", dealt),
    ]
    passed = off <= DIGITS and worst <= 4 and min(shares) >= 0.9 and moved <= 1e-12 and dealt <= 1e-12
    return Result(passed, figures)


def bound(seed: int, cases: int = 5000) -> Result:
    """Test 2."""
    rng = np.random.default_rng(derive(seed, "rightness", "bound"))
    worst = max(_violation(rng) for _ in range(cases))
    return Result(worst <= 1e-9, [figure("largest H(Y) - task - (H(X) - MI), in nats", worst, cases)])


@cache
def _population(name: str) -> tuple[Floats, Floats]:
    return population(POLICIES[name].thinking, POLICIES[name].acting)


def _truths(name: str) -> Floats:
    return split(tensor_of(*_population(name), RIGHT_XA))


def _drawn(name: str, prompts: int, members: int, rng: np.random.Generator) -> tuple[Ints, Ints, Floats]:
    """Different prompts, whose thoughts each row is, and the probabilities of all actions under all prompts."""
    said, acts = _population(name)
    xs = rng.permutation(len(PROMPTS))[:prompts]
    own_M = np.repeat(np.arange(prompts), members)
    thoughts_M = (rng.random((len(own_M), 1)) > said[xs[own_M]].cumsum(axis=1)).sum(axis=1)
    return xs, own_M, acts[xs[None], thoughts_M[:, None]]


def _worst_bias(name: str, batches: int, rng: np.random.Generator) -> float:
    """The largest distance of a part's mean over batches of 4 x 1 from its truth, in standard errors."""
    values = []
    for _ in range(batches):
        xs, own_M, chances_MNA = _drawn(name, 4, 1, rng)
        values.append(split(tensor(chances_MNA, own_M, RIGHT_XA[xs], RIGHT_XA[xs[own_M]])))
    errors = np.std(values, axis=0, ddof=1) / math.sqrt(batches)
    distance = np.abs(np.mean(values, axis=0) - _truths(name))
    # A part that no draw moves has no error: it has to be the truth, up to rounding.
    return float(np.where(distance < 1e-12, 0.0, distance / np.maximum(errors, 1e-15)).max())


def _batch(name: str, prompts: int, rng: np.random.Generator) -> tuple[Exchange, Floats]:
    """A batch of two thoughts a prompt as a run reads it, in blocks."""
    xs, own_M, chances_MNA = _drawn(name, prompts, 2, rng)
    taken_M = (rng.random((len(own_M), 1)) > chances_MNA[np.arange(len(own_M)), own_M].cumsum(axis=1)).sum(axis=1)
    counts_NA = np.zeros((prompts, ACTIONS), dtype=int)
    np.add.at(counts_NA, (own_M, taken_M), 1)
    asked = Exchange(
        prompts_N=tuple((1000 + int(x),) for x in xs),
        thoughts_M=tuple((row,) for row in range(len(own_M))),
        own_M=tuple(own_M.tolist()),
        spellings_S=tuple((action,) for action in range(ACTIONS)),
        action_S=tuple(range(ACTIONS)),
        taken_M=tuple(taken_M.tolist()),
        tasks_N=tuple(Task(str(x), int(x), "train") for x in xs),
        names_A=tuple(map(str, range(ACTIONS))),
        counts_NA=tuple(map(tuple, counts_NA.tolist())),
    )
    logs_MNS = np.log(chances_MNA)
    for row in range(len(own_M)):
        logs_MNS[row, [column for column in range(prompts) if column not in asked.under(row)]] = np.nan
    return asked, logs_MNS


def _right(task: Task, before: Sequence[Sequence[str]] = ()) -> dict[str, float]:
    return {str(PROMPTS[task.seed][0]): 1.0}


def covered(policy: str, prompts: int, batches: int, rng: np.random.Generator) -> dict[str, tuple[int, int]]:
    """Metric -> unmarked intervals that hold the truth, and all unmarked ones, of drawn batches of 2 thoughts each."""
    truths = dict(zip((f"right{part}" for part in PARTS), _truths(policy).tolist(), strict=True))
    found = dict.fromkeys(READ, (0, 0))
    for _ in range(batches):
        for metric in rightness(*_batch(policy, prompts, rng), _right):
            if metric.name not in READ or metric.low is None or metric.high is None or mark_of(_grounding(metric)):
                continue
            hits, of = found[metric.name]
            hit = metric.low - 1e-12 <= truths[metric.name] <= metric.high + 1e-12
            found[metric.name] = hits + hit, of + 1
    return found


def _grounding(metric: Metric) -> Metric:
    """Under the name by which the catalogue knows it."""
    return replace(metric, name=f"grounding/{metric.name}")


def _moved_by_order(rng: np.random.Generator) -> float:
    """The largest change of a part when the prompts of a batch, all pairs read, come in another order."""
    worst = 0.0
    for name in POLICIES:
        xs, own_M, chances_MNA = _drawn(name, 6, 2, rng)
        before = split(tensor(chances_MNA, own_M, RIGHT_XA[xs], RIGHT_XA[xs[own_M]]))
        order = rng.permutation(6)
        rows = np.concatenate([np.flatnonzero(own_M == old) for old in order])
        xs, chances_MNA = xs[order], chances_MNA[rows][:, order]
        after = split(tensor(chances_MNA, own_M, RIGHT_XA[xs], RIGHT_XA[xs[own_M]]))
        worst = max(worst, float(np.abs(after - before).max()))
    return worst


def _dealt(rng: np.random.Generator) -> float:
    """The largest distance of the mean over all deals into two blocks of 4 from the value of all pairs."""
    worst = 0.0
    for name in POLICIES:
        xs, own_M, chances_MNA = _drawn(name, 8, 1, rng)
        whole = split(tensor(chances_MNA, own_M, RIGHT_XA[xs], RIGHT_XA[xs[own_M]]))
        values = []
        for first in _halves():
            apart_MN = np.isin(own_M, first)[:, None] != np.isin(np.arange(8), first)[None]
            dealt_MNA = np.where(apart_MN[:, :, None], np.nan, chances_MNA)
            values.append(split(tensor(dealt_MNA, own_M, RIGHT_XA[xs], RIGHT_XA[xs[own_M]])))
        worst = max(worst, float(np.abs(np.mean(values, axis=0) - whole).max()))
    return worst


def _halves() -> Iterator[Sequence[int]]:
    """One block of each of the 35 deals of 8 prompts into two blocks of 4."""
    return ((0, *rest) for rest in itertools.combinations(range(1, 8), 3))


def _violation(rng: np.random.Generator) -> float:
    """How far the part of a random label lacks more of its ceiling than mutual information lacks of its own."""
    prompts, labels = int(rng.integers(2, 12)), int(rng.integers(1, 5))
    y_N, w_N = rng.integers(labels, size=prompts), rng.dirichlet(np.ones(prompts))
    own_M = rng.integers(prompts, size=20)
    joint_MN = rng.normal(scale=rng.choice([0.1, 3.0, 30.0]), size=(20, prompts)) + np.log(w_N)
    all_M = np.logaddexp.reduce(joint_MN, axis=1)
    same_MN = y_N[None] == y_N[own_M][:, None]
    of_label_M = np.logaddexp.reduce(np.where(same_MN, joint_MN, -np.inf), axis=1)
    mi_M = joint_MN[np.arange(20), own_M] - np.log(w_N[own_M]) - all_M
    share_M = np.bincount(y_N, w_N, labels)[y_N[own_M]]
    task_M = of_label_M - np.log(share_M) - all_M
    return float(((-np.log(share_M) - task_M) - (-np.log(w_N[own_M]) - mi_M)).max())
