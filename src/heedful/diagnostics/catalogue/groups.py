"""Metrics of groups: what there is to learn from them, and what the filter keeps."""

from __future__ import annotations

from heedful.diagnostics.catalogue.entry import read_entries

SIGNAL = read_entries(
    """
    reward_std
    Standard deviation of the filtered value within a group, mean over groups. Sample statistic, divisor G - 1.
    Missing: no group with two scored members
    Covers: 89% with 16 groups
    Marked: clusters < 5

    reward_variance
    Variance of the filtered value within a group, mean over groups. Sample statistic, divisor G - 1.
    Missing: no group with two scored members

    variance_dispersion
    Standard deviation of the groups' variances over their mean. Near 0, all groups offer the same, and the filter has
    nothing to choose.
    Missing: fewer than two groups with two scored members; all groups constant

    mixed | share
    Groups whose members differ, the only ones that teach.

    solved | share
    Constant groups in which every member succeeds.

    blind | share
    Constant groups whose members differ in success or progress.
    Missing: the environment reports no progress

    failed | share
    Constant groups without any difference in progress.

    luck_share
    Part of the variance of rewards that is luck: what is left when the replies of an episode are played again under
    fresh noise. A sum over prompts of the mean variance of a sequence's replays, over the variance of all replays. An
    estimate near 1 can be above it.
    Written with full measurements where the environment says that it is noisy.
    Missing: no replayed reward varies; no prompt with two replayed sequences
    Cadence: full measurement

    luck_share_kept
    The same over the prompts that the filter keeps.
    Missing: as `signal/luck_share`
    Cadence: full measurement

    stale | share
    Groups with an episode that older weights sampled, at least in part. Written inside [verl](verl.md), whose trainers
    may sample ahead.
    """,
    prefix="signal/",
    missing="no scored group",
)

FILTER = read_entries(
    """
    kept_ratio | share
    Groups trained on, of all groups.
    Missing: no groups

    kept_groups | count
    Groups trained on.

    mass_kept | share
    Variance within the kept groups, of the variance within all groups.
    Missing: no group varies

    kept_without_signal | share
    Kept groups that are constant, by weight, of all kept groups. Only regularisers act on them. 0 under filters that
    drop constant groups.
    Missing: nothing was kept

    dropped/<reason> | count
    Groups dropped for this reason.

    empty | 0 or 1
    The step made no update.

    refill | label
    How the search for groups that vary ended: enough, bound or pool. Written with [dynamic
    sampling](training.md#dynamic-sampling).
    Missing: dynamic sampling is off

    draws | count
    Draws of tasks in the step.

    collected_groups | count
    Groups played in all draws of the step.

    starved_tasks | count
    Tasks of the pool that were visited many times since they were last trained on. At least `--coverage.patience`
    visits since the last training, or since the first visit. Solved and hopeless tasks are among them. `n` counts the
    tasks seen.
    Missing: no task pool

    longest_skip | count
    Most visits in a row of one task without training on it, up to now.
    Missing: no task pool

    readmitted | count
    Dropped groups of starved tasks that were taken back. The [guard](training.md#tasks-of-a-pool) takes them back.
    Missing: no task pool
    """,
    prefix="filter/",
)

RANKING = read_entries(
    """
    reward_variance
    Variance of the filtered value of a task over all its episodes, mean over tasks. Sample statistic.

    mean
    Filtered value, mean over tasks.

    constant | share
    Tasks whose episodes all earn the same.

    half_spearman
    Agreement of two rankings of the same tasks by variance, each from one half of the passes. Spearman's correlation.
    Missing: a single pass; all tasks have one variance

    group_spearman
    Agreement of the ranking by a single group with the ranking by all other passes. Spearman's correlation, mean over
    the passes. It is what a filter has that ranks tasks by the groups of one step.
    Missing: a single pass; all tasks have one variance

    same_part | share
    Tasks that both halves put into the same part. With four parts chance is 0.25.
    Missing: a single pass

    part_<k>/reward_variance
    Variance of the tasks of a part, chosen on one half of the passes and measured on the other, both ways.
    Missing: a single pass

    part_<k>/mean
    Filtered value of the tasks of a part, chosen on one half of the passes and measured on the other, both ways.
    Missing: a single pass

    part_<k>/hard | share
    Tasks of a part whose mean value is below the middle of the range. Parts of low variance hold tasks that are too
    hard and tasks that are too easy.
    Missing: a single pass
    """,
    prefix="ranking/",
    missing="no scored episode",
)
