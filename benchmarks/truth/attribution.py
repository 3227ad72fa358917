"""Cases of the parts of an update: policies over a few thoughts, whose change is a sum over kinds of prompts.

Prompts are drawn from a few kinds. A step adds to the log-probabilities of each kind what a term of the loss would. Of
first actions it adds to those of each thought under each kind, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations_with_replacement
from math import factorial, prod

import numpy as np

from benchmarks.truth.simulation import Case, Floats, Later
from heedful.diagnostics.attribution import Attribution, attribution_metrics
from heedful.training.gradients.readings import (
    READINGS,
    Answers,
    Sampled,
    action_weights,
    change,
    drawn_foreign,
    path_weights,
    score_weights,
    worths_by_thought,
)
from heedful.types import Metric

OF_THOUGHTS = {name: reading for name, reading in READINGS.items() if not reading.acts}
"""The readings that no action behind a thought decides."""
BLOCKS, PROMPTS, MEMBERS, FOREIGN, KINDS = 6, 6, 4, 2, 4
RIGHT, WRONG, SHARED = 1, 3, 4
"""Thoughts of a kind of prompt: its right one, its wrong ones, and those that all kinds share."""


def _population(templates: float, right: float, spread: float) -> tuple[Floats, Floats]:
    """log p, `[kinds, thoughts]`, and which thoughts are right. `spread`: a floor under every thought."""
    own = RIGHT + WRONG
    chances = np.full((KINDS, KINDS * own + SHARED), spread)
    rights = np.zeros_like(chances)
    chances[:, KINDS * own :] += templates / SHARED
    for kind in range(KINDS):
        start = kind * own
        chances[kind, start] += right
        chances[kind, start + RIGHT : start + own] += (1 - templates - right) / WRONG
        rights[kind, start] = 1.0
    return np.log(chances / chances.sum(axis=1, keepdims=True)), rights


def _terms(logprobs_KZ: Floats, rights_KZ: Floats) -> dict[str, Floats]:
    """Term -> what it adds to the logits: the task, a reward for shared thoughts, an entropy bonus."""
    shared_KZ = np.zeros_like(rights_KZ)
    shared_KZ[:, -SHARED:] = 1.0
    return {"solved_varied": 0.1 * rights_KZ, "fluency_constant": 0.1 * shared_KZ, "entropy": -0.03 * logprobs_KZ}


def _normal(logits_KZ: Floats) -> Floats:
    """Over the last axis."""
    return np.asarray(logits_KZ - np.logaddexp.reduce(logits_KZ, axis=-1, keepdims=True))


def _values(logprobs_KZ: Floats, rights_KZ: Floats) -> dict[str, float]:
    """Every reading of blocks of prompts, exactly: a mean over the kinds that a block may have."""
    chances_KZ = np.exp(logprobs_KZ)
    divergences_KK = (chances_KZ[:, None] * (logprobs_KZ[:, None] - logprobs_KZ[None])).sum(axis=2)
    mi = 0.0
    for kinds in combinations_with_replacement(range(KINDS), PROMPTS):
        counts = np.bincount(kinds, minlength=KINDS)
        chance = factorial(PROMPTS) / prod(factorial(one) for one in counts) / KINDS**PROMPTS
        mixture_Z = counts @ chances_KZ / PROMPTS
        mi += chance * float(counts @ (chances_KZ * (logprobs_KZ - np.log(mixture_Z))).sum(axis=1)) / PROMPTS
    return {
        "gap": float(divergences_KK.mean()),
        "mi": mi,
        "thought_entropy": float(-(chances_KZ * logprobs_KZ).sum() / KINDS),
        "success": float((chances_KZ * rights_KZ).sum() / KINDS),
    }


def _truths(logprobs_KZ: Floats, rights_KZ: Floats) -> dict[str, float]:
    terms = _terms(logprobs_KZ, rights_KZ)
    before, after = (_values(each, rights_KZ) for each in (logprobs_KZ, _normal(logprobs_KZ + sum(terms.values()))))
    found = {}
    for name in OF_THOUGHTS:
        slopes = {}
        for term, step_KZ in terms.items():
            ends = [_values(_normal(logprobs_KZ + sign * 1e-4 * step_KZ), rights_KZ)[name] for sign in (1, -1)]
            slopes[f"attribution/{name}/{term}"] = (ends[0] - ends[1]) / 2e-4
        found |= slopes
        found[f"attribution/{name}/total"] = sum(slopes.values())
        found[f"attribution/{name}/before"] = before[name]
        found[f"attribution/{name}/measured"] = after[name] - before[name]
    return found


def _names() -> Iterator[str]:
    for name in OF_THOUGHTS:
        for part in ("solved_varied", "fluency_constant", "entropy", "total", "before", "measured"):
            yield f"attribution/{name}/{part}"


def _draw(logprobs_KZ: Floats, rights_KZ: Floats) -> Callable[[np.random.Generator], list[Metric]]:
    terms = _terms(logprobs_KZ, rights_KZ)
    moved_KZ = _normal(logprobs_KZ + sum(terms.values()))
    chances_KZ = np.exp(logprobs_KZ)
    slopes = {term: step_KZ - (chances_KZ * step_KZ).sum(axis=1)[:, None] for term, step_KZ in terms.items()}

    def sampled(at_KZ: Floats, kind_N: Floats, thought_M: Floats, own_M: Floats) -> Sampled:
        scores_MN = at_KZ[kind_N][:, thought_M].T.copy()
        outcomes_M = rights_KZ[kind_N[own_M], thought_M]
        return Sampled(scores_MN, own_M, np.full(PROMPTS, 1 / PROMPTS), outcomes_M, scores_MN[range(len(own_M)), own_M])

    def draw(rng: np.random.Generator) -> list[Metric]:
        found = Attribution(
            {}, {name: {term: [] for term in terms} for name in OF_THOUGHTS}, {}, BLOCKS * PROMPTS * MEMBERS
        )
        before: dict[str, list[float]] = {name: [] for name in OF_THOUGHTS}
        measured: dict[str, list[float]] = {name: [] for name in OF_THOUGHTS}
        for _ in range(BLOCKS):
            kind_N, own_M = rng.integers(KINDS, size=PROMPTS), np.repeat(np.arange(PROMPTS), MEMBERS)
            thought_M = np.array([rng.choice(chances_KZ.shape[1], p=chances_KZ[kind_N[own]]) for own in own_M])
            now, then = (sampled(each, kind_N, thought_M, own_M) for each in (logprobs_KZ, moved_KZ))
            order = [rng.permutation([one for one in range(PROMPTS) if one != own]).tolist() for own in own_M]
            for name, reading in OF_THOUGHTS.items():
                weights_MN = np.zeros(now.scores_MN.shape)
                if (foreign_MN := path_weights(reading, now)) is not None:
                    weights_MN = drawn_foreign(foreign_MN, FOREIGN, order)
                weights_MN[range(len(own_M)), own_M] = score_weights(reading, now)
                for term, slopes_KZ in slopes.items():
                    found.parts[name][term].append(float((weights_MN * slopes_KZ[kind_N][:, thought_M].T).sum()))  # type: ignore[attr-defined]
                before[name].append(float(reading.value(now).mean()))
                measured[name].append(change(reading, now, then))
        return attribution_metrics(Attribution(before, found.parts, measured, found.thoughts))

    return draw


def _case(label: str, templates: float, right: float, spread: float) -> Case:
    logprobs_KZ, rights_KZ = _population(templates, right, spread)
    size = f"{BLOCKS} blocks of {PROMPTS} prompts x {MEMBERS}"
    return Case(
        f"an update of {label}, {size}",
        _draw(logprobs_KZ, rights_KZ),
        Later(_names(), lambda: _truths(logprobs_KZ, rights_KZ)),
    )


# First actions: one is right for each kind of prompt.


def _actions() -> Floats:
    """log p(action given kind of prompt and thought), `[kinds, thoughts, kinds]`: by the thought, and by the prompt."""
    own = RIGHT + WRONG
    logits = np.zeros((KINDS, KINDS * own + SHARED, KINDS))
    for kind in range(KINDS):
        for place in range(own):
            logits[:, kind * own + place, (kind + place) % KINDS] += 2.0  # each wrong thought names another action
        logits[kind, :, kind] += 0.5
    return _normal(logits)


def _acting(actions_KZA: Floats) -> dict[str, Floats]:
    """Term -> what it adds to the logits of actions."""
    right_KZA = np.broadcast_to(np.eye(KINDS)[:, None], actions_KZA.shape)
    nothing_KZA = np.zeros_like(actions_KZA)
    return {"solved_varied": 0.2 * right_KZA, "fluency_constant": nothing_KZA, "entropy": -0.03 * actions_KZA}


def _right_by_thought(logprobs_KZ: Floats, actions_KZA: Floats) -> float:
    """C[k, j, i], an action that is right for k, under j, behind a thought of i: own thought less chance."""
    right_KJI = np.einsum("jzk,iz->kji", np.exp(actions_KZA), np.exp(logprobs_KZ))
    return float(np.einsum("kjk->kj", right_KJI).mean() - right_KJI.mean())


def _truths_of_actions(logprobs_KZ: Floats, rights_KZ: Floats, actions_KZA: Floats) -> dict[str, float]:
    steps, acts = _terms(logprobs_KZ, rights_KZ), _acting(actions_KZA)

    def at(reach: float, *terms: str) -> float:
        moved_KZ = logprobs_KZ + reach * sum(steps[term] for term in terms)
        return _right_by_thought(_normal(moved_KZ), _normal(actions_KZA + reach * sum(acts[term] for term in terms)))

    found = {term: (at(1e-4, term) - at(-1e-4, term)) / 2e-4 for term in steps}
    before = _right_by_thought(logprobs_KZ, actions_KZA)
    found |= {"total": sum(found.values()), "before": before, "measured": at(1.0, *steps) - before}
    return {f"attribution/right_by_thought/{name}": value for name, value in found.items()}


def _draw_actions(
    logprobs_KZ: Floats, rights_KZ: Floats, actions_KZA: Floats
) -> Callable[[np.random.Generator], list[Metric]]:
    steps, acts = _terms(logprobs_KZ, rights_KZ), _acting(actions_KZA)
    chances_KZ, reading = np.exp(logprobs_KZ), READINGS["right_by_thought"]
    policies = (
        (logprobs_KZ, actions_KZA),
        (_normal(logprobs_KZ + sum(steps.values())), _normal(actions_KZA + sum(acts.values()))),
    )
    slopes_KZ = {term: step_KZ - (chances_KZ * step_KZ).sum(axis=1)[:, None] for term, step_KZ in steps.items()}
    slopes_KZA = {
        term: step_KZA - (np.exp(actions_KZA) * step_KZA).sum(axis=2, keepdims=True) for term, step_KZA in acts.items()
    }
    own_M, shares_N = np.repeat(np.arange(PROMPTS), MEMBERS), np.full(PROMPTS, 1 / PROMPTS)

    def draw(rng: np.random.Generator) -> list[Metric]:
        parts: dict[str, list[float]] = {term: [] for term in steps}
        before, measured = list[float](), list[float]()
        for _ in range(BLOCKS):
            kind_N = rng.integers(KINDS, size=PROMPTS)
            thought_M = np.array([rng.choice(chances_KZ.shape[1], p=chances_KZ[kind_N[own]]) for own in own_M])
            worths_MNA = worths_by_thought(np.eye(KINDS)[kind_N])[own_M]
            now, then = (
                Sampled(
                    thoughts_KZ[kind_N][:, thought_M].T.copy(),
                    own_M,
                    shares_N,
                    np.zeros(len(own_M)),
                    np.zeros(len(own_M)),
                    answers=Answers(behind_KZA[kind_N][:, thought_M].transpose(1, 0, 2), worths_MNA),
                )
                for thoughts_KZ, behind_KZA in policies
            )
            order = [rng.permutation([one for one in range(PROMPTS) if one != own]).tolist() for own in own_M]
            weights_MNA, weights_M = action_weights(reading, now), score_weights(reading, now)
            assert weights_MNA is not None
            drawn_MNA = drawn_foreign(weights_MNA, FOREIGN, order)
            for term in parts:
                of_actions = (drawn_MNA * slopes_KZA[term][kind_N][:, thought_M].transpose(1, 0, 2)).sum()
                parts[term].append(float(weights_M @ slopes_KZ[term][kind_N[own_M], thought_M] + of_actions))
            before.append(float(reading.value(now).mean()))
            measured.append(change(reading, now, then))
        name = "right_by_thought"
        return attribution_metrics(
            Attribution({name: before}, {name: parts}, {name: measured}, BLOCKS * PROMPTS * MEMBERS)
        )

    return draw


def _case_of_actions(label: str, templates: float, right: float, spread: float) -> Case:
    policy = (*_population(templates, right, spread), _actions())
    names = (*_terms(*policy[:2]), "total", "before", "measured")
    return Case(
        f"first actions after an update of {label}, {BLOCKS} blocks of {PROMPTS} prompts x {MEMBERS}",
        _draw_actions(*policy),
        Later((f"attribution/right_by_thought/{name}" for name in names), lambda: _truths_of_actions(*policy)),
    )


CASES = (
    _case_of_actions("a mixed policy", 0.25, 0.3, 0.005),
    _case_of_actions("templates", 0.8, 0.1, 0.005),
    _case_of_actions("a good policy", 0.1, 0.7, 0.005),
    _case("a mixed policy", 0.25, 0.3, 0.005),
    _case("templates", 0.8, 0.1, 0.005),
    _case("noise", 0.1, 0.1, 0.05),
    _case("a good policy", 0.1, 0.7, 0.005),
)
