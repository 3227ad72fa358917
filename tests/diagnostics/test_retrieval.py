"""Retrieval: credit against brute force over rivals, ties, chance, and the permutation test's error rate."""

import itertools
import math

import numpy as np
import pytest
from channels import balanced, by_name, cross_scores, gaussian_channel

from heedful.diagnostics.cross_scores.information import information
from heedful.diagnostics.cross_scores.retrieval import j_way_credit, p_value, top_k_credit
from heedful.diagnostics.cross_scores.score_matrix import score_matrix


def values(scores, seed=0):
    return by_name(information(scores, "first_turn", np.random.default_rng(seed)).metrics)


def duels(above, tied, prompts, ways):
    """Expected credit over all sets of rivals, ties broken evenly."""
    rivals = [1] * above + [0] * tied + [-1] * (prompts - 1 - above - tied)
    credits = [0.0 if 1 in drawn else 1 / (1 + drawn.count(0)) for drawn in itertools.combinations(rivals, ways - 1)]
    return sum(credits) / len(credits)


@pytest.mark.parametrize("ways", [2, 3, 8])
@pytest.mark.parametrize("prompts", [8, 10])
def test_j_way_credit_is_exact_from_ranks(ways, prompts):
    for above in range(prompts):
        for tied in range(prompts - above):
            found = j_way_credit(ways)(np.array([above]), np.array([tied]), prompts)
            assert found[0] == pytest.approx(duels(above, tied, prompts, ways), abs=1e-12)


@pytest.mark.parametrize("k", [1, 2, 4])
def test_top_k_credit_shares_the_places_that_a_tie_straddles(k):
    for above in range(6):
        for tied in range(6 - above):
            places = range(above, above + tied + 1)
            expected = sum(place < k for place in places) / len(places)
            assert top_k_credit(k)(np.array([above]), np.array([tied]), 6)[0] == pytest.approx(expected)


def test_accuracies_by_hand():
    scores = [[3.0, 1.0, 2.0], [3.0, 2.0, 1.0], [1.0, 1.0, 1.0]]
    found = values(cross_scores(scores, [0, 1, 2]))
    assert found["accuracy"].value == pytest.approx((1 + 0 + 1 / 3) / 3)
    assert found["accuracy@2"].value == pytest.approx((1 + 1 + 2 / 3) / 3)
    assert found["accuracy_2way"].value == pytest.approx((1 + 1 / 2 + 1 / 2) / 3)
    assert (found["chance"].value, found["chance@2"].value) == (1 / 3, 2 / 3)


def test_readings_that_need_more_prompts_say_so():
    found = values(cross_scores(np.eye(4), [0, 1, 2, 3]))
    for name, fewest in (("accuracy@4", 5), ("chance@4", 5), ("accuracy@8", 9), ("accuracy_8way", 8), ("p_value", 5)):
        assert found[name].value is None
        assert found[name].why == f"needs at least {fewest} prompts, found 4"
    assert found["accuracy@2"].value == 1.0


def test_scores_within_the_stated_rounding_share_the_credit():
    scores = [[0.0, 1e-5], [1e-5, 0.0]]
    assert values(cross_scores(scores, [0, 1]))["accuracy"].value == 0.0
    assert values(cross_scores(scores, [0, 1], noise=1e-4))["accuracy"].value == 0.5


def test_chance_is_one_over_the_prompts_for_unbalanced_groups_too():
    own = [0] * 6 + [1, 2, 3, 4]
    found = values(cross_scores(np.zeros((10, 5)), own))
    assert found["chance"].value == found["accuracy"].value == 0.2
    # Random scores: expected accuracy is 1/N, whatever the shares.
    rng = np.random.default_rng(0)
    accuracies = [values(cross_scores(rng.normal(size=(10, 5)), own))["accuracy"].value for _ in range(150)]
    assert np.mean(accuracies) == pytest.approx(0.2, abs=4 * np.std(accuracies) / math.sqrt(150))


def test_two_way_accuracy_does_not_depend_on_the_number_of_prompts():
    rng = np.random.default_rng(1)
    means = [
        np.mean([values(gaussian_channel(rng, prompts, 2, 0.5))["accuracy_2way"].value for _ in range(40)])
        for prompts in (8, 24)
    ]
    assert means[0] == pytest.approx(means[1], abs=0.04)


def test_few_prompts_count_all_permutations_exactly():
    # Five prompts, perfect retrieval: only the true deal of 120 does as well.
    assert values(cross_scores(np.eye(5), balanced(5, 1)))["p_value"].value == pytest.approx(1 / 120)
    # Prompts 0 and 1 tie with each other: credits 1/2 whichever of the two deals.
    scores = np.eye(6)
    scores[0, 1] = scores[1, 0] = 1.0
    assert values(cross_scores(scores, balanced(6, 1)))["p_value"].value == pytest.approx(2 / 720)


@pytest.mark.parametrize("seed", range(3))
def test_the_p_value_counts_the_deals_that_retrieve_as_well_ties_and_groups_included(seed):
    rng = np.random.default_rng(seed)
    own = [0, 0, 0, 1, 2, 2, 3, 4]
    # Few levels, so that many columns tie; a rounding of 1/2 ties neighbouring levels too.
    scores = rng.integers(0, 4, size=(8, 5)) / 2.0
    accuracies = []
    for deal in itertools.permutations(range(5)):
        lead = scores - scores[range(8), [deal[column] for column in own]][:, None]
        accuracies.append(np.mean(np.all(lead <= 0.5, axis=1) / (np.abs(lead) <= 0.5).sum(axis=1)))
    assert len(set(np.round(accuracies, 9))) > 3, "the deals must differ, or this proves nothing"
    expected = np.mean(np.array(accuracies) >= accuracies[0] - 1e-9)
    assert values(cross_scores(scores, own, noise=0.5))["p_value"].value == pytest.approx(expected)


def test_many_prompts_draw_999_permutations_from_the_given_generator():
    scores = cross_scores(np.eye(12), balanced(12, 1))
    assert values(scores)["p_value"].value == 1 / 1000
    noisy = cross_scores(np.random.default_rng(3).normal(size=(24, 12)), balanced(12, 2))
    assert values(noisy, seed=1)["p_value"] == values(noisy, seed=1)["p_value"]
    assert len({values(noisy, seed=seed)["p_value"].value for seed in range(5)}) > 1


def _p_values(batches, prompts, members, seed):
    """Under a null with everything that misleads: hub prompts, and a latent that the thoughts of a group share."""
    rng, found = np.random.default_rng(seed), []
    own = balanced(prompts, members)
    for _ in range(batches):
        hubs, shared = rng.normal(size=prompts), rng.normal(size=(prompts, prompts))
        scores = hubs + shared[own] + rng.normal(size=(len(own), prompts))
        found.append(p_value(score_matrix(cross_scores(scores, own)), rng))
    return np.array(found)


@pytest.mark.parametrize("prompts", [6, 10])
def test_the_permutation_test_keeps_its_level_when_groups_share_a_latent(prompts):
    found = _p_values(500, prompts, 4, seed=4)
    for level in (0.05, 0.2, 0.5):
        assert np.mean(found <= level) <= level + 3 * math.sqrt(level * (1 - level) / 500)
    assert np.mean(found <= 0.5) > 0.3, "or the test would be blind"


@pytest.mark.proof
@pytest.mark.parametrize("prompts", [5, 6, 16])
def test_the_permutation_test_keeps_its_level_at_full_size(prompts):
    found = _p_values(10_000, prompts, 8, seed=5)
    for level in (0.01, 0.05, 0.1, 0.2, 0.5):
        assert np.mean(found <= level) <= level + 3 * math.sqrt(level * (1 - level) / 10_000)


def test_the_permutation_test_sees_one_nat_in_a_full_measurement():
    rng = np.random.default_rng(6)
    found = [p_value(score_matrix(gaussian_channel(rng, 16, 8, 1.0)), rng) for _ in range(40)]
    assert np.mean(np.array(found) <= 0.05) > 0.9
