"""Metrics of episodes and of their groups: what they were like, what there is to learn, and what the filter keeps."""

from __future__ import annotations

from heedful.diagnostics.catalogue.entry import Doubt, Entry, alike, under

_RIGHT = "as `grounding/right`; the share allows fewer than 8 tasks"
_WORTH = "the environment does not grade whole answers; the share allows fewer than 8 tasks; N < 3"
_RIGHT_PARTS = (
    "`grounding/right` and its parts, of at most 32 evaluated tasks, as many as the share allows. A run's evaluations "
    "write them of `greedy` thoughts, `heedful eval --json` of `sampled` ones as well."
)
_WORTH_PARTS = (
    "The same with the worth of each [whole answer](#how-right-and-by-what) in place of a right first action. "
    "`worth_by_prompt` sees a policy that does less: one right action where two were possible keeps `right`. "
    "`worth_lost` is as `grounding/foreign_lost`, of the evaluation's answers."
)
_JSON = (
    "As `success/any_of_group`, `format/valid_rate`, `format/closed_rate` and `length/turns`, on the evaluated tasks. "
    "Written by `heedful eval --json`."
)
_RARE = Doubt("85% where 0.2 successes are expected", rarer=2)

# fmt: off
EVALUATION = under(
    "",
    Entry("eval/<split>/sampled/success", "share",
        "Success on tasks held out from training, sampled at the training temperature."),
    Entry("eval/<split>/greedy/success", "share",
        "Success on tasks held out from training when the likeliest token is always taken.", doubt=_RARE),
    Entry("eval/<split>/random/success", "share",
        "Success on the evaluated tasks of a player that draws valid actions uniformly, the lower baseline.",
        missing="the environment has no fixed list of actions", doubt=_RARE),
    Entry("eval/<split>/fixed/success", "share",
        "Success on the evaluated tasks of the best single policy that never reads its input.",
        missing="the environment offers no answer to a player who does not read; the search is off", doubt=_RARE),
    Entry("eval/<split>/best/success", "share",
        "Success on the evaluated tasks of the best possible policy that reads its input, computed exactly.",
        "FrozenLake knows it, by value iteration. Where moves slip, it is below 1.",
        missing="the environment does not know it for every task"),
    Entry("eval/<split>/sampled/any_of_group", "share", "Evaluated tasks that at least one sample solved.", row=_JSON,
        missing="no episode was scored"),
    Entry("eval/<split>/sampled/valid_rate", "share",
        "Turns of the evaluation whose reply could be executed as written.", row=_JSON, missing="no turn was played"),
    Entry("eval/<split>/sampled/closed_rate", "share", "Turns of the evaluation whose thought was closed by its tag.",
        row=_JSON, missing="no turn was played"),
    Entry("eval/<split>/sampled/turns", "turns", "Mean number of turns of an evaluated trajectory.", row=_JSON,
        missing="no episode", doubt=alike(76)),
    Entry("eval/<split>/<kind>/right", "0 to 1", "The probability of a right first action on evaluated tasks.",
        row=_RIGHT_PARTS, missing=_RIGHT),
    Entry("eval/<split>/<kind>/right_by_chance", "0 to 1",
        "The part of `right` without the own prompt and without the own thought.", row=_RIGHT_PARTS, missing=_RIGHT),
    Entry("eval/<split>/<kind>/right_by_thought", "-1 to 1", "The part of `right` that the thought carries alone.",
        row=_RIGHT_PARTS, missing=_RIGHT),
    Entry("eval/<split>/<kind>/right_by_prompt", "-1 to 1",
        "The part of `right` that comes from the prompt past the thought.", row=_RIGHT_PARTS, missing=_RIGHT),
    Entry("eval/<split>/<kind>/right_by_both", "-1 to 1",
        "The part of `right` that needs the own prompt and the own thought together.", row=_RIGHT_PARTS,
        missing=_RIGHT),
    Entry("eval/<split>/<kind>/worth", "0 to 1", "How good whole first answers are, own prompt and own thought.",
        row=_WORTH_PARTS, missing=_WORTH),
    Entry("eval/<split>/<kind>/worth_by_chance", "0 to 1",
        "The part of `worth` without the own prompt and without the own thought.", row=_WORTH_PARTS, missing=_WORTH),
    Entry("eval/<split>/<kind>/worth_by_thought", "-1 to 1", "The part of `worth` that the thought carries alone.",
        row=_WORTH_PARTS, missing=_WORTH),
    Entry("eval/<split>/<kind>/worth_by_prompt", "-1 to 1",
        "The part of `worth` that comes from the prompt past the thought.", row=_WORTH_PARTS, missing=_WORTH),
    Entry("eval/<split>/<kind>/worth_by_both", "-1 to 1",
        "The part of `worth` that needs the own prompt and the own thought together.", row=_WORTH_PARTS,
        missing=_WORTH),
    Entry("eval/<split>/<kind>/worth_lost", "-1 to 1",
        "How much likelier none of the evaluation's answers is under a foreign prompt than under the own one.",
        row=_WORTH_PARTS, missing=_WORTH),
    Entry("gain/<kind>", "", "Evaluated success after training minus before, paired by task.",
        "In `verdict.json`, for `sampled` and `greedy`.",
        missing="not evaluated before and after; no rollouts of evaluations kept", cadence="once",
        doubt=Doubt("85% with 32 tasks of one sample, of which a tenth is learned", clusters=3)),
    Entry("forced/<kind>/success", "share",
        "Success when the thought is forced: the policy's own, another prompt's, or an empty one.",
        "`own`, `foreign` and `empty`. Written by a [study](studies.md) of forced thoughts.", cadence="once",
        doubt=_RARE),
    cadence="evaluation",
)

EPISODES = (
    Entry("reward/mean", "reward", "Mean over trajectories of the sum of all reward components.",
        missing="no episode was scored", collapse="lower", doubt=alike(79)),
    Entry("reward/<component>", "reward", "Mean over trajectories of the sum of this component.",
        "The sum is over turns. A component named `mean` is `reward/component/mean`.",
        missing="no episode was scored", collapse="lower", doubt=alike(82)),
    Entry("success/rate", "share", "Trajectories with outcome 1, among those that were scored.",
        missing="no episode was scored", collapse="lower"),
    Entry("success/chosen", "share", "The same of the tasks that are no probes, help included.",
        "Written where [choosers](training.md#choosing-tasks-before-sampling) or [treatments]"
        "(training.md#treatments-by-cause) draw probes. All other readings of episodes are of probes alone.",
        missing="no episode was scored"),
    Entry("success/any_of_group", "share", "Groups in which at least one member succeeded.",
        missing="no episode was scored", collapse="lower"),
    Entry("success/progress", "0 to 1", "How far episodes got, with successes counted as 1.",
        "It moves where success cannot: under a blind reward, or where success is rare.",
        missing="the environment reports no progress", collapse="lower", doubt=alike(87)),
    Entry("format/valid_rate", "share", "Turns whose reply could be executed as written.", missing="no turn was played",
        collapse="lower"),
    Entry("format/closed_rate", "share", "Turns whose thought was closed by its tag.", missing="no turn was played",
        collapse="lower"),
    Entry("format/trailing_tokens", "tokens", "Sampled tokens after the answer, which no environment reads.",
        "Mean over turns, without the token that ends the turn.", missing="no turn was played"),
    Entry("length/reasoning_tokens", "tokens", "Mean number of tokens of a thought, its closing tag included.",
        missing="no turn was played", doubt=alike(68)),
    Entry("length/response_tokens", "tokens", "Mean number of tokens of a reply.", missing="no turn was played",
        doubt=alike(76)),
    Entry("length/turns", "turns", "Mean number of turns of a trajectory.", missing="no episode", doubt=alike(76)),
)

_ENTROPIES = (
    "Exact entropy of the next token under the sampling temperature. Means over all sampled tokens, over tokens of "
    "thoughts, of answers given their thoughts, and of successful episodes. That of answers is near 0 where the "
    "thought decides. It rises early when the thought no longer does. The share of failures, whose entropy differs, "
    "does not move that of successful episodes."
)
_NO_ENTROPIES = "the sampler reports no entropies"
ENTROPY = under(
    "",
    Entry("policy/entropy_per_token", "",
        "Exact entropy of the next token under the sampling temperature, mean over sampled tokens.",
        row=_ENTROPIES, missing=_NO_ENTROPIES, doubt=alike(88)),
    Entry("policy/thought_entropy_per_token", "", "Exact entropy of the next token, mean over the tokens of thoughts.",
        row=_ENTROPIES, missing=_NO_ENTROPIES, doubt=alike(89)),
    Entry("policy/answer_entropy_per_token", "",
        "Exact entropy of the next token, mean over the tokens of answers, given their thoughts.",
        row=_ENTROPIES, missing=_NO_ENTROPIES, doubt=alike(90)),
    Entry("policy/solved_entropy_per_token", "",
        "Exact entropy of the next token, mean over the sampled tokens of successful episodes.",
        row=_ENTROPIES, missing="no episode succeeded", doubt=alike(88)),
    Entry("text/distinct_thoughts", "share",
        "Different first thoughts in a group, divided by the number of its first thoughts.",
        "Compared by token ids. Mean over groups, at least 1/G: compare values of equal group size.",
        missing="no group has two thoughts"),
    unit="nats per token",
)

_WITHIN = "Standard deviation, and variance, of the filtered value within a group (divisor G - 1), mean over groups."
_LUCK = (
    "Part of the variance of rewards that is luck, over all prompts and over those that the filter keeps. The replies "
    "of an episode are played again under fresh noise ([luck](diagnostics.md#luck)). The mean variance of the replays "
    "of a sequence, over the variance of all replays, both summed over prompts. It can exceed 1. Written where the "
    "environment is noisy."
)
SIGNAL = under(
    "signal/",
    Entry("reward_std", "", "Standard deviation of the filtered value within a group, mean over groups.",
        row=_WITHIN, missing="no group with two scored members",
        doubt=Doubt("89% with 16 groups", clusters=5)),
    Entry("reward_variance", "", "Variance of the filtered value within a group, mean over groups.",
        row=_WITHIN, missing="no group with two scored members"),
    Entry("variance_dispersion", "", "Standard deviation of the groups' variances over their mean.",
        "Near 0 a filter has nothing to choose.",
        missing="fewer than two groups with two scored members; all groups constant"),
    Entry("mixed", "share", "Groups whose members differ, the only ones that teach."),
    Entry("solved", "share", "Constant groups in which every member succeeds."),
    Entry("unpaid", "share", "Constant groups in which a member succeeded, or two got all the way and none succeeded.",
        "The reward is broken there.", missing="the environment reports no progress"),
    Entry("failed", "share", "The other constant groups: no member got all the way, or one did."),
    Entry("luck_share", "",
        "Part of the variance of rewards that is luck: what is left when the replies of an episode are played again "
        "under fresh noise.",
        row=_LUCK,
        missing="no replayed reward varies; no prompt with two replayed sequences", cadence="full measurement"),
    Entry("luck_share_kept", "", "The same over the prompts that the filter keeps.", row=_LUCK,
        missing="no replayed reward varies; no prompt with two replayed sequences",
        cadence="full measurement"),
    Entry("stale", "share", "Groups with an episode that older weights sampled, at least in part.",
        "Written inside [verl](verl.md), whose trainers may sample ahead."),
    missing="no scored group",
)

_MEMBERS = (
    "Episodes of the smallest and of the largest group. Written where [groups are "
    "unequal](training.md#groups-of-unequal-size)."
)
FILTER = under(
    "filter/",
    Entry("kept_ratio", "share", "Groups trained on, of all groups.", missing="no groups"),
    Entry("kept_groups", "count", "Groups trained on."),
    Entry("mass_kept", "share", "Variance within the kept groups, of the variance within all groups.",
        missing="no group varies"),
    Entry("kept_without_signal", "share", "Kept groups that are constant, by weight, of all kept groups.",
        "Only regularisers act on them.", missing="nothing was kept"),
    Entry("dropped/<reason>", "count", "Groups dropped for this reason."),
    Entry("empty", "0 or 1", "The step made no update."),
    Entry("refill", "label", "How the search for groups that vary ended: enough, bound or pool.",
        "Written with [dynamic sampling](training.md#dynamic-sampling).", missing="dynamic sampling is off"),
    Entry("draws", "count", "Draws of tasks in the step."),
    Entry("collected_groups", "count", "Groups played in all draws of the step."),
    Entry("least_members", "count", "Episodes of the smallest group.", row=_MEMBERS),
    Entry("most_members", "count", "Episodes of the largest group.", row=_MEMBERS),
    Entry("starved_tasks", "count", "Tasks of the pool that were visited many times since they were last trained on.",
        "By `--coverage.patience`. Solved and hopeless tasks count. `n` counts the tasks seen.",
        missing="no task pool"),
    Entry("longest_skip", "count", "Most visits in a row of one task without training on it, up to now.",
        missing="no task pool"),
    Entry("readmitted", "count", "Dropped groups of starved tasks that were taken back.",
        "See [pools](training.md#tasks-of-a-pool).", missing="no task pool"),
)

TREAT = under(
    "treat/",
    Entry("unpaid", "count", "Tasks of the pool whose reward is broken.",
        "By the [rule](training.md#treatments-by-cause) of `exclude`."),
    Entry("skipped", "count", "Tasks that the step left out as solved."),
    Entry("helped", "count", "Groups that began with turns of the solver."),
    Entry("turns", "", "Turns of the solver, or steps, before the agent's first: mean over these groups.",
        missing="no task was helped"),
    Entry("replayed", "count", "Groups with a stored success as one more member of the update.",
        "Only with `--treat replay`. Such members are read by `policy/loss`, `policy/gradient_norm` and "
        "`tokens/update` alone."),
    Entry("replay_age", "steps", "Steps since these successes were sampled, empty ones included: mean.",
        missing="no success was replayed"),
    Entry("replay_ratio", "", "Probability of a replayed success now, over that when it was sampled, at most 2: mean.",
        missing="no success was replayed"),
)

_SPEARMAN = (
    "Spearman's correlation of two rankings of the tasks by variance: of the two halves of the passes, and of one "
    "group and all other passes. The latter, a mean over passes, judges a filter that ranks by one step."
)
_PART = "Variance, and filtered value, of the tasks of a part."
RANKING = under(
    "ranking/",
    Entry("reward_variance", "", "Variance of the filtered value of a task over all its episodes, mean over tasks.",
        "Sample statistic."),
    Entry("mean", "", "Filtered value, mean over tasks."),
    Entry("constant", "share", "Tasks whose episodes all earn the same."),
    Entry("half_spearman", "",
        "Agreement of two rankings of the same tasks by variance, each from one half of the passes.",
        row=_SPEARMAN, missing="a single pass; all tasks have one variance"),
    Entry("group_spearman", "", "Agreement of the ranking by a single group with the ranking by all other passes.",
        row=_SPEARMAN, missing="a single pass; all tasks have one variance"),
    Entry("room", "", "What a choice of tasks can gain: the best eighth's mean variance, over that of all tasks.",
        "Near 1 there is nothing to choose.",
        missing="a single pass; fewer than 16 tasks; an episode without a score"),
    Entry("same_part", "share", "Tasks that both halves put into the same part.", "Chance is 0.25 with four parts.",
        missing="a single pass"),
    Entry("part_<k>/reward_variance", "",
        "Variance of the tasks of a part, chosen on one half of the passes and measured on the other, both ways.",
        row=_PART, missing="a single pass"),
    Entry("part_<k>/mean", "",
        "Filtered value of the tasks of a part, chosen on one half of the passes and measured on the other, both ways.",
        row=_PART, missing="a single pass"),
    Entry("part_<k>/hard", "share", "Tasks of a part whose mean value is below the middle of the range.",
        "Parts of low variance mix too hard and too easy tasks.", missing="a single pass"),
    missing="no scored episode",
)
