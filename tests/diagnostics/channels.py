"""Score matrices with known answers, shared by the tests of the scoring diagnostics."""

import numpy as np

from heedful.types import CrossScores


def cross_scores(scores_MN, own_M, lengths_M=None, heads=None, noise=0.0):
    return CrossScores(scores_MN, lengths_M or [1] * len(own_M), own_M, heads or {}, noise)


def balanced(prompts, members):
    return [prompt for prompt in range(prompts) for _ in range(members)]


def random_scores(seed, counts=(3, 1, 2, 4, 2, 1), heads=True, lead=1.5):
    """Unbalanced groups, uneven lengths, heads: nothing about it is special."""
    rng = np.random.default_rng(seed)
    own = rng.permutation(np.repeat(np.arange(len(counts)), counts))
    scores = rng.normal(-20, 2, size=(len(own), len(counts)))
    scores[np.arange(len(own)), own] += lead
    lengths = [int(length) for length in rng.integers(1, 40, size=len(own))]
    cut = {k: scores * rng.uniform(0.2, 1.0, size=(len(own), 1)) for k in (16, 32)} if heads else {}
    return CrossScores(scores, lengths, [int(column) for column in own], cut)


def gaussian_channel(rng, prompts, members, mutual_information):
    """Prompts x ~ N(0, 1), thoughts z ~ N(x, s^2) with I(X;Z) = log(1 + 1/s^2) / 2: log-densities of z under each x."""
    noise = 1 / np.sqrt(np.exp(2 * mutual_information) - 1)
    x = rng.normal(size=prompts)
    own = np.repeat(np.arange(prompts), members)
    z = x[own] + noise * rng.normal(size=len(own))
    scores = -((z[:, None] - x) ** 2) / (2 * noise**2) - np.log(noise * np.sqrt(2 * np.pi))
    return CrossScores(scores, [1] * len(own), [int(column) for column in own])


def permute(scores, rows, columns):
    """The same measurement with its thoughts and prompts listed in another order."""
    place = {column: position for position, column in enumerate(columns)}
    index = np.ix_(rows, columns)
    return CrossScores(
        np.asarray(scores.scores_MN)[index],
        [scores.lengths_M[row] for row in rows],
        [place[scores.own_M[row]] for row in rows],
        {k: np.asarray(head)[index] for k, head in scores.heads.items()},
        scores.noise,
    )


def delete_prompt(scores, prompt):
    rows = [row for row, own in enumerate(scores.own_M) if own != prompt]
    columns = [column for column in range(np.asarray(scores.scores_MN).shape[1]) if column != prompt]
    return permute(scores, rows, columns)


def by_name(metrics):
    """Metrics by what follows the scope."""
    found = {metric.name.split("/", 2)[2]: metric for metric in metrics}
    assert len(found) == len(metrics)
    return found
