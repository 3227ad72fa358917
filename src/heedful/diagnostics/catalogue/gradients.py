"""Metrics of the gradient: signal, noise and regularisers, of all groups and by buckets of reward variance."""

from __future__ import annotations

from heedful.diagnostics.catalogue.entry import read_entries

GRADIENT = read_entries(
    """
    <part>_signal2
    Squared norm of the expected gradient, unbiased. Mean inner product over pairs of different groups. It may be
    negative and is never clipped.

    <part>_noise2
    Variance of the mean gradient of n groups, summed over parameters. Trace of the covariance. With `signal2` it adds
    up to `norm` squared (in a bucket: up to the averaging over the two halves).
    Covers: 82% for the divided gradient, with 16 groups of which few are constant
    Marked: clusters < 5

    snr
    Squared signal over squared noise of the task gradient of n groups. `task_signal2` over `task_noise2`.
    Missing: fewer than two groups; no group has a task gradient

    <part>_prompt_signal2
    Squared norm of a prompt's own expected gradient, mean over prompts, unbiased. Inner product of the gradients of two
    halves of a group's members, each with a baseline of its own. Mean over splits and groups. It may be negative.
    Missing: no group has four members to halve

    <part>_norm
    Norm of this part of the mean gradient, noise included.

    <part>_group_norm
    Norm of this part of a single group's gradient (root mean square), noise included.
    Covers: 74% for the divided gradient, with 16 groups of which few are constant
    Marked: clusters < 5

    <part>_trend
    Growth of a single group's gradient from the lowest variance of rewards to the highest, in units of its mean norm.
    Slope over the rank by variance. Ranked on one half of the members and measured on the other, both ways. 0 = flat.
    Missing: fewer than eight groups; all have one variance; no gradient

    task_undivided_trend_over_<regulariser>
    Trend of the undivided task gradient minus that of the regulariser.
    Missing: one of the two trends is missing

    <regulariser>_weighted_norm
    Norm of this part of the gradient times the run's own coefficient. Written where the coefficient is above 0.

    cosine_<p>_<q> | −1 to 1
    Cosine between two parts of the expected gradient; above 0 they push the same way. Both are directions of the loss.
    Products of different groups only, so noise neither shrinks nor adds to it.
    Missing: fewer than three groups; a squared signal that is not clearly above zero

    bound_tightness | 0 to 1
    Norm of the mean undivided task gradient over its upper bound. The bound is sqrt(mean (R - mean)^2) sqrt(mean
    norm(s)^2), with s the score of a trajectory under the loss's averaging.
    Missing: every group is constant

    bound_tightness_prompt | 0 to 1
    Norm of a single group's undivided task gradient over its bound, mean over groups that vary.
    Missing: every group is constant

    bound_tightness2_expected
    Squared share of the bound that a prompt's expected gradient uses, unbiased. It may be negative.
    Missing: every group is constant, or too small to halve

    sorted_variance
    Sample variance of rewards within groups, of the members that sorted the groups.
    Missing: no group
    Covers: 77% in buckets of about five groups
    Marked: clusters < 5

    reward_variance
    Sample variance of rewards within groups, of the members that were measured.
    Missing: no group
    Covers: 77% in buckets of about five groups
    Marked: clusters < 5
    """,
    prefix="gradient/<bucket>/",
    missing="fewer than two groups",
    cadence="gradients",
)
