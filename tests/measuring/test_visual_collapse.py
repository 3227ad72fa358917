"""The simulated visual collapse: its policy scores as it samples, and its readings move as they should."""

import math

import numpy as np
import pytest

from benchmarks.visual_collapse import FACTS, KINDS, METRICS, SHARES, STORED, Policy, facts, measured


def read(kind: str, share: float) -> dict[str, float | None]:
    found = measured(Policy(kind, share, flip=0.1), np.random.default_rng(0))
    return {name: found[name].value for name in METRICS}  # type: ignore[misc]


@pytest.mark.parametrize("kind", KINDS)
def test_the_policy_scores_as_it_samples(kind: str) -> None:
    """The share of thoughts with a feature agrees with the scores of all thoughts that have it."""
    policy, rng = Policy(kind, 0.4, 0.1), np.random.default_rng(1)
    picture, text = facts(0b1010110011100011), facts(0)
    prompt = (-1 - 0b1010110011100011, *map(int, text))
    sampled = [policy.sample(picture, text, rng) for _ in range(2000)]
    scores = policy.cross_score([prompt], [tuple(map(int, ids)) for ids in sampled], [0] * 2000, 1.0).scores_MN
    near = [(np.array(ids[1:]) != picture).sum() <= 1 and ids[0] == 0 for ids in sampled]
    chance = 0.6 * (0.9**FACTS + FACTS * 0.1 * 0.9 ** (FACTS - 1))
    assert np.mean(near) == pytest.approx(chance, abs=4 * math.sqrt(chance / 2000))
    exact = [
        ids
        for ids, found in zip(sampled, np.array(scores)[:, 0], strict=True)
        if math.isclose(found, TOP, abs_tol=1e-6)
    ]
    assert np.mean([(ids[1:] == picture).all() for ids in exact]) == 1.0
    assert len(exact) / 2000 == pytest.approx(0.6 * 0.9**FACTS, abs=0.03)


TOP = math.log(0.6 * 0.9**FACTS)
"""Of the thought that repeats the picture without a mistake. The text is far from it."""


def test_a_text_that_tells_the_same_hides_the_collapse_from_first_turns_alone() -> None:
    healthy, blind = read("text", 0.0), read("text", 1.0)
    assert blind["information/image/gap"] == pytest.approx(0.0, abs=1e-9)
    assert blind["retrieval/image/p_value"] == 1.0
    assert blind["information/first_turn/gap"] == pytest.approx(healthy["information/first_turn/gap"])
    assert healthy["grounding/image_share"] == pytest.approx(1.0, abs=0.2)
    assert blind["grounding/image_share"] == pytest.approx(0.0, abs=1e-9)


def test_without_such_a_text_first_turns_show_it_as_well() -> None:
    healthy, half = read("template", 0.0), read("template", 0.5)
    assert half["information/image/gap"] == half["information/first_turn/gap"]
    assert float(half["information/image/gap"] or 0) < 0.8 * float(healthy["information/image/gap"] or 0)


def test_a_tenth_that_reads_the_text_leaves_log_10_of_the_gap_at_most() -> None:
    assert float(read("text", 0.1)["information/image/gap"] or 0) <= math.log(10)


def test_the_stored_tables_have_a_row_for_each_case() -> None:
    lines = STORED.read_text(encoding="utf-8").splitlines()
    for kind in KINDS:
        for share in SHARES:
            assert sum(line.startswith(f"| {kind} | {share:g} |") for line in lines) >= 1
    assert all(any(f"`{name}`" in line for line in lines) for name in METRICS)
