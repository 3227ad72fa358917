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


def facts_channel(rng, facts=16, flip=0.1, filler=0, variety=0.3, templates=0.0, prompts=16, members=4):
    """A prompt is yes-or-no facts and a thought repeats them, each wrong with probability `flip`.

    Each of `facts` tells (1 - 2 flip) log((1 - flip) / flip) / 2 nats against another prompt, on average over prompts.
    `filler` words of entropy h(`variety`) follow that say nothing. A share `templates` of the thoughts is a phrase of
    the same length that ignores the prompt.
    """
    x, own = rng.integers(2, size=(prompts, facts)), np.repeat(np.arange(prompts), members)
    template = rng.random(len(own)) < templates
    wrong = rng.random((len(own), facts)) < np.where(template, variety, flip)[:, None]
    z = np.where(template[:, None], 0, x[own]) ^ wrong

    def log_p(wrong, of, chance):
        return wrong * np.log(chance) + (of - wrong) * np.log(1 - chance)

    scores = np.log(1 - templates) + log_p((z[:, None] != x).sum(axis=2), facts, flip)
    if templates:
        phrase = np.log(templates) + log_p(z.sum(axis=1), facts, variety)
        scores = np.where(template[:, None], phrase[:, None], scores)
    words = rng.binomial(filler, variety, size=len(own))
    scores = scores + log_p(words, filler, variety)[:, None]
    return CrossScores(scores, [facts + filler] * len(own), own.tolist(), noise=1e-6)
