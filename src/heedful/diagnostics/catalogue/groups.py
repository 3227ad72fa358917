"""Metrics of groups: what there is to learn from them, and what the filter keeps."""

from __future__ import annotations

from heedful.diagnostics.catalogue.entry import Entry

SIGNAL = (
    Entry(
        "signal/reward_std",
        "",
        "Standard deviation of the filtered value within a group, mean over groups.",
        "Sample statistic, divisor G - 1.",
        "no group with two scored members",
    ),
    Entry(
        "signal/reward_variance",
        "",
        "Variance of the filtered value within a group, mean over groups.",
        "Sample statistic, divisor G - 1.",
        "no group with two scored members",
    ),
    Entry(
        "signal/variance_dispersion",
        "",
        "Standard deviation of the groups' variances over their mean.",
        "Near 0, all groups offer the same, and the filter has nothing to choose.",
        "fewer than two groups with two scored members; all groups constant",
    ),
    Entry("signal/mixed", "share", "Groups whose members differ, the only ones that teach.", "", "no scored group"),
    Entry("signal/solved", "share", "Constant groups in which every member succeeds.", "", "no scored group"),
    Entry(
        "signal/blind",
        "share",
        "Constant groups whose members differ in success or progress.",
        "",
        "the environment reports no progress",
    ),
    Entry("signal/failed", "share", "Constant groups without any difference in progress.", "", "no scored group"),
)

FILTER = (
    Entry("filter/kept_ratio", "share", "Groups trained on, of all groups.", missing="no groups"),
    Entry("filter/kept_groups", "count", "Groups trained on."),
    Entry(
        "filter/mass_kept",
        "share",
        "Variance within the kept groups, of the variance within all groups.",
        missing="no group varies",
    ),
    Entry(
        "filter/kept_without_signal",
        "share",
        "Kept groups that are constant, by weight, of all kept groups.",
        "Only regularisers act on them. 0 under filters that drop constant groups.",
        "nothing was kept",
    ),
    Entry("filter/dropped/<reason>", "count", "Groups dropped for this reason."),
    Entry("filter/empty", "0 or 1", "The step made no update."),
    Entry(
        "filter/refill",
        "label",
        "How the search for groups that vary ended: enough, bound or pool.",
        "Written with [dynamic sampling](training.md#dynamic-sampling).",
        "dynamic sampling is off",
    ),
    Entry("filter/draws", "count", "Draws of tasks in the step."),
    Entry("filter/collected_groups", "count", "Groups played in all draws of the step."),
    Entry(
        "filter/starved_tasks",
        "count",
        "Tasks of the pool that were visited many times since they were last trained on.",
        "At least `--coverage.patience` visits since the last training, or since the first visit. Solved and hopeless "
        "tasks are among them. `n` counts the tasks seen.",
        "no task pool",
    ),
    Entry(
        "filter/longest_skip",
        "count",
        "Most visits in a row of one task without training on it, up to now.",
        missing="no task pool",
    ),
    Entry(
        "filter/readmitted",
        "count",
        "Dropped groups of starved tasks that were taken back.",
        "The [guard](training.md#tasks-of-a-pool) takes them back.",
        "no task pool",
    ),
)
