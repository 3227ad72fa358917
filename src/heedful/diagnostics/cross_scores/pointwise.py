"""The information of each token of a thought about the prompt that the thought was sampled under.

Promise: over a thought the tokens' values add to matched - marginal, exactly.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from heedful.diagnostics.cross_scores.score_matrix import Floats


def pointwise_information(logprobs_NT: npt.ArrayLike, own: int, shares_N: npt.ArrayLike) -> Floats:
    """log p(z_t | x_own, z_<t) - log sum_j w_j(z_<t) p(z_t | x_j, z_<t) for each token t, in nats.

    Args:
        logprobs_NT: log p(z_t | x_j, z_<t) of one thought's T tokens under each of N prompts.
        own: the prompt that the thought was sampled under.
        shares_N: w_j, the prompts' shares before the first token; they must add to 1.

    w_j(z_<t) is the posterior over prompts after the tokens so far. Positive: the token was likelier under its own
    prompt than a reader who knows all but the prompt would have said, so it tells of the prompt. Negative: it misleads
    that reader. About 0: it would have come anyway, or earlier tokens told the same. The sum over tokens, matched -
    marginal, is at most -log w_own.
    """
    values_NT = np.asarray(logprobs_NT, dtype=np.float64)
    shares = np.asarray(shares_N, dtype=np.float64)
    joint_NT = np.log(shares)[:, None] + np.cumsum(values_NT, axis=1)
    heard_T = np.logaddexp.reduce(joint_NT, axis=0)
    marginal_T: Floats = np.diff(heard_T, prepend=0.0)
    told_T: Floats = values_NT[own] - marginal_T
    return told_T
