"""Updates by rewards that were permuted within their groups: they move readings, to either side."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.truth.attribution import OF_THOUGHTS, _population
from heedful.training.gradients.readings import Sampled, drawn_foreign, path_weights, score_weights

UPDATES = 150


def null_parts(seed: int) -> dict[str, list[float]]:
    """Reading -> its part of each update on 16 groups of 8, read by 6 fresh prompts x 4."""
    rng = np.random.default_rng(seed)
    logprobs_KZ, rights_KZ = _population(0.25, 0.3, 0.005)
    chances_KZ = np.exp(logprobs_KZ)
    kinds, thoughts = chances_KZ.shape
    found: dict[str, list[float]] = {name: [] for name in OF_THOUGHTS}
    for _ in range(UPDATES):
        step_KZ = np.zeros((kinds, thoughts))
        for kind in rng.integers(kinds, size=16):
            thought_G = rng.choice(thoughts, 8, p=chances_KZ[kind])
            rewards_G = rng.permutation(rights_KZ[kind, thought_G])
            for thought, advantage in zip(thought_G, rewards_G - rewards_G.mean(), strict=True):
                step_KZ[kind, thought] += advantage
        slopes_KZ = step_KZ - (chances_KZ * step_KZ).sum(axis=1)[:, None]
        kind_N, own_M = rng.integers(kinds, size=6), np.repeat(np.arange(6), 4)
        thought_M = np.array([rng.choice(thoughts, p=chances_KZ[kind_N[own]]) for own in own_M])
        scores_MN = logprobs_KZ[kind_N][:, thought_M].T.copy()
        at = Sampled(scores_MN, own_M, np.full(6, 1 / 6), rights_KZ[kind_N[own_M], thought_M], scores_MN[:, 0])
        order = [rng.permutation([one for one in range(6) if one != own]).tolist() for own in own_M]
        for name, reading in OF_THOUGHTS.items():
            foreign_MN = path_weights(reading, at)
            weights_MN = np.zeros_like(scores_MN) if foreign_MN is None else drawn_foreign(foreign_MN, 2, order)
            weights_MN[range(24), own_M] = score_weights(reading, at)
            found[name].append(float((weights_MN * slopes_KZ[kind_N][:, thought_M].T).sum()))
    return found


def test_a_reward_of_noise_moves_no_reading_on_average() -> None:
    for name, parts in null_parts(seed=4).items():
        error = float(np.std(parts, ddof=1)) / UPDATES**0.5
        assert float(np.mean(parts)) == pytest.approx(0.0, abs=4.5 * error), name
        assert error > 0
