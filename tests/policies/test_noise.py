"""Noise of a conversation's own: the right distribution, and the same numbers whoever else is there."""

from __future__ import annotations

import math
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from heedful.policies.drawing import gumbels  # noqa: E402
from heedful.seeds import derive  # noqa: E402

SINGLE, DOUBLE = torch.zeros(1, dtype=torch.float32), torch.zeros(1, dtype=torch.float64)


def seeds(count: int) -> list[int]:
    return [derive(7, f"task-{number}/0", 0) for number in range(count)]


def splitmix(state: int) -> int:
    """The reference in Python's unbounded integers."""
    mask = (1 << 64) - 1
    z = state & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return z ^ (z >> 31)


def test_the_bits_are_those_of_splitmix64() -> None:
    # SplitMix64 seeded with 1234567 gives these numbers; its first one is the hash of seed + one golden step.
    assert splitmix(1234567 + 0x9E3779B97F4A7C15) == 6457827717110365317
    for place in (0, 3):
        row = gumbels([1234567], [place], 4, DOUBLE)[0]
        for token in range(4):
            counter = (place << 32) + token + 1
            uniform = ((splitmix(1234567 + counter * 0x9E3779B97F4A7C15) >> 11) + 0.5) / 2**53
            assert float(row[token]) == pytest.approx(-math.log(-math.log1p(-uniform)), rel=1e-12)


@pytest.mark.parametrize("like", [SINGLE, DOUBLE], ids=["single", "double"])
def test_they_are_gumbel_variables(like: Any) -> None:
    drawn = gumbels(seeds(200), [5] * 200, 1000, like).flatten().double()
    assert drawn.dtype == torch.float64
    assert bool(drawn.isfinite().all())
    uniforms = (-(-drawn).exp()).exp().sort().values
    ideal = (torch.arange(len(uniforms), dtype=torch.float64) + 0.5) / len(uniforms)
    # Kolmogorov-Smirnov: beyond 2 / sqrt(n) once in 1,500 times.
    assert float((uniforms - ideal).abs().max()) < 2 / len(uniforms) ** 0.5


def test_single_and_double_precision_hold_the_same_draws() -> None:
    one, other = (gumbels(seeds(20), [2] * 20, 300, like) for like in (SINGLE, DOUBLE))
    assert one.dtype == torch.float32
    assert float((one.double() - other).abs().max()) < 1e-5


def test_the_noise_of_a_row_does_not_depend_on_the_rows_beside_it_nor_on_the_size_of_the_vocabulary() -> None:
    many = seeds(50)
    together = gumbels(many, [3] * 50, 80, SINGLE)
    for row in (0, 17, 49):
        assert torch.equal(gumbels([many[row]], [3], 80, SINGLE)[0], together[row])
        assert torch.equal(gumbels([many[row]], [3], 200, SINGLE)[0, :80], together[row])


def test_rows_places_and_tokens_are_not_correlated() -> None:
    draws = gumbels(seeds(400), [0] * 400, 400, DOUBLE)
    other_place = gumbels(seeds(400), [1] * 400, 400, DOUBLE)
    count = draws.numel()
    for one, other in ((draws, other_place), (draws[1:], draws[:-1]), (draws[:, 1:], draws[:, :-1])):
        pair = torch.stack([one.flatten(), other.flatten()])
        assert abs(float(torch.corrcoef(pair)[0, 1])) < 4 / count**0.5


@pytest.mark.parametrize("like", [SINGLE, DOUBLE], ids=["single", "double"])
def test_the_largest_sum_is_a_draw_from_the_distribution(like: Any) -> None:
    chances = torch.tensor([0.5, 0.3, 0.15, 0.04, 0.0099, 0.0001, 0.0], dtype=torch.float64)
    rows = 40_000
    counts = torch.zeros(7, dtype=torch.float64)
    for place in range(5):
        noise = gumbels(seeds(rows), [place] * rows, 7, like)
        drawn = (noise + chances.log().to(like.dtype)).argmax(-1)
        counts += torch.bincount(drawn, minlength=7)
    expected = chances * 5 * rows
    assert counts[6] == 0
    chi2 = float(((counts - expected)[:6] ** 2 / expected[:6]).sum())
    assert chi2 < 20.5, "five degrees of freedom: above this once in a thousand times"


def test_many_rare_tokens_are_drawn_as_often_as_they_should() -> None:
    # One token of .9, and a tail of 20,000 that share .1: each of them five in a million.
    rare = 20_000
    logprobs = torch.full((rare + 1,), math.log(0.1 / rare))
    logprobs[0] = math.log(0.9)
    drawn = torch.cat(
        [(gumbels(seeds(200), [place] * 200, rare + 1, SINGLE) + logprobs).argmax(-1) for place in range(5)]
    )
    tail = drawn[drawn > 0]
    assert abs(len(tail) - 100) < 4 * (1000 * 0.9 * 0.1) ** 0.5
    assert len(set(tail.tolist())) > 0.98 * len(tail)


def test_small_changes_of_the_logits_change_few_draws() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(2000, 5000, generator=generator)
    moved = logits + 1e-4 * torch.randn(2000, 5000, generator=generator)
    noise = gumbels(seeds(2000), [0] * 2000, 5000, SINGLE)
    changed = int(((logits + noise).argmax(-1) != (moved + noise).argmax(-1)).sum())
    assert changed <= 4
