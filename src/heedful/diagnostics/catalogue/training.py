"""Metrics of the update, of the gradient, of what each stage costs, and the alarms."""

from __future__ import annotations

from heedful.diagnostics.catalogue.entry import Doubt, Entry, under

_UNCOMPARED = "TRL computed no log-probabilities of the learner"

# fmt: off
UPDATE = under(
    "",
    Entry("policy/loss", "", "The loss of the update, regularisers included."),
    Entry("policy/gradient_norm", "", "Norm of the gradient before clipping."),
    Entry("policy/learning_rate", "", "Learning rate of the update."),
    Entry("policy/clip_fraction", "share", "Trained tokens at which the clip binds."),
    Entry("policy/kl_to_sampler", "nats per token",
        "Mean of the sampler's minus the learner's log-probability, before the update."),
    Entry("policy/logprob_error", "nats",
        "Largest absolute difference of the sampler's and the learner's log-probability, before the update."),
    Entry("policy/kl_to_reference", "nats per token", "Estimate (k3) of the divergence from the reference model.",
        missing="no KL penalty, since no reference is held then"),
    Entry("policy/advantage_without_outcome", "share",
        "Part of the absolute advantage that comes from groups whose episodes all failed, or were all solved.",
        "It is summed over the trained tokens, times the weight of their group. Such a group differs in other parts of "
        "the reward alone, such as a cost per step. 0 with a filter on the outcome. [Why it "
        "matters](results/shaped.md).", missing="an outcome is unknown, or every advantage is 0"),
    Entry("policy/entropy_coefficient", "", "Coefficient of the entropy bonus in this update.",
        "An [entropy control](training.md#advantage-and-loss) moves it."),
    Entry("policy/importance_truncated", "share",
        "Trained tokens whose importance weight was cut to `--algorithm.importance-cap` or `-floor`.",
        "Written only with a cap. 0 where sampler and learner agree."),
    Entry("policy/importance_masked", "share",
        "Trained tokens that left the loss, since their importance weight lies beyond cap or floor.",
        "With `--algorithm.importance-outside mask`. Written only with a cap."),
    Entry("policy/importance_kl", "nats per token",
        "Mean of k3 between sampler and learner before the update: r - 1 - log r, with r = learner / sampler.",
        "Above .01 they are not the same policy. Written only with a cap."),
    Entry("policy/importance_ess", "share",
        "Effective share of the tokens under their importance weights w: (sum w)^2 / (n sum w^2), before anything is "
        "cut.", "1 where sampler and learner agree. Written only with a cap."),
    Entry("sampler/probe_error", "nats",
        "Largest difference between the servers' and the learner's log-probabilities on fixed probes, after the "
        "weights of this step went out.", "Written with `--sampler vllm`. Above `--sampler.tolerance` the run stops."),
    Entry("sampling/sampling_logp_difference/mean", "nats",
        "Mean absolute difference between the log-probabilities of the engine that sampled and of the learner.",
        "Inside TRL alone, under TRL's name. Over the sampled tokens of the update, before it and before the filter.",
        missing=_UNCOMPARED),
    Entry("sampling/sampling_logp_difference/max", "nats", "The largest of these differences.", missing=_UNCOMPARED),
    Entry("sampling/sampling_logp_difference/share", "share", "Sampled tokens at which it is above .1.",
        "TRL does not log it. 0 where the engine holds the learner's weights in float32.", missing=_UNCOMPARED),
    Entry("policy/explained_variance", "at most 1",
        "Part of the variance of future rewards that the critic predicted; 0 = no better than a constant.",
        "1 - variance(R - V) / variance(R) over the trained tokens. V is the value before the update. R is the sum of "
        "discounted rewards from the token on. 1 = predicted exactly, and it may be negative. R holds no estimate of "
        "the critic for any lambda, so values compare. Written with a critic.", missing="R is constant"),
    Entry("critic/loss", "", "Half the squared error of the critic's values, mean over the critic's steps.",
        "Before its coefficient."),
    Entry("critic/gradient_norm", "",
        "Euclidean norm of the critic's gradient before clipping, mean over the critic's steps."),
    Entry("critic/clip_fraction", "share", "Trained tokens at which the clipped error of the critic is the larger one.",
        missing="no `--critic.clip`"),
    Entry("critic/value_mean", "reward", "Mean of the critic's values V over the trained tokens."),
    Entry("critic/return_mean", "reward",
        "Mean of the discounted rewards R from the token on, over the trained tokens."),
    missing="the step made no update",
)

COST = (
    Entry("tokens/<stage>", "count", "Tokens of this stage.",
        "`collect`: sampled tokens. `update`: tokens in the rows of the update. `diagnose`: tokens that the "
        "measurements of the thoughts read, written with a `--diagnostics.share`."),
    Entry("time/cpu", "s", "CPU seconds of collecting and updating, in this process alone.",
        "Other processes on the machine hardly change it."),
    Entry("time/<stage>", "s", "Seconds of this stage.",
        "`collect`, `diagnose`, `gradients`, `update`, `store` and `evaluate`."),
    Entry("cost[/<environment>]/diagnosis_share", "",
        "Tokens that the measurement read, as a part of the tokens of the steps that it pays for.",
        "[What a measurement costs](diagnostics.md#what-a-measurement-costs) says which these are. Above "
        "`--diagnostics.share` only where the smallest measurement needs more, or after a full one ahead of time. "
        "Written with a share.", missing="thoughts could not be scored", cadence="measurement"),
    Entry("cost[/<environment>]/diagnosis_prompts", "", "Groups whose first turns the measurement read.",
        "Written with a `--diagnostics.share`.", missing="thoughts could not be scored", cadence="measurement"),
    Entry("cost[/<environment>]/diagnosis_thoughts", "",
        "Members of each group whose first turns the measurement read.", "Written with a `--diagnostics.share`.",
        missing="thoughts could not be scored", cadence="measurement"),
)

ALARMS = under(
    "alarm/",
    Entry("template_collapse", "", "Thoughts no longer tell their prompts apart although their entropy has not halved.",
        "The information of a thought (`gap`) has fallen by 25%, whatever its length, or `p_value` > .05 twice in a "
        "row after it was not. Not while an entropy of thoughts has halved. A fall of `gap_per_token` alone is a "
        "change of length: the alarm is 0 and says so."),
    Entry("low_entropy_collapse", "", "The entropy of thoughts has halved, and information or success is worse.",
        "Worse: `gap`, `p_value` or success."),
    Entry("noise_collapse", "", "The entropy of thoughts has risen by 10%, and information or success is worse.",
        "Worse: `gap`, `p_value` or success."),
    Entry("format_collapse", "", "The share of valid or closed replies has fallen by .1.",
        "`format/valid_rate` or `format/closed_rate`."),
    Entry("entropy_gaming", "", "The entropy of words has risen while the variety of strategies has fallen.",
        "`policy/entropy_per_token` has risen by 10%, and `strategy_entropy` or `distinct_strategies` has fallen by "
        "25%."),
    Entry("entropy_rise", "", "An entropy has risen: an early warning.",
        "The entropy of answers has doubled and risen by .05 nats per token, or the entropy of thoughts or of solved "
        "episodes has risen by 10%."),
    Entry("thought_bypassed", "", "The thought's influence on the action has fallen by 30%.",
        "`thought_influence`."),
    Entry("action_uninformed", "", "What the first action tells about the prompt has halved.",
        "`input_to_action`, at two measurements in a row. Written from the fifth reading on."),
    Entry("input_blind", "", "Thoughts cannot be told from thoughts about other prompts.",
        "`p_value` > .05 at two measurements in a row, from the start or later."),
    Entry("picture_ignored", "", "Thoughts follow the picture less, or not at all.",
        "`gap` of the scope `image` has fallen by 25%, or `p_value` of that scope is > .05 at two measurements in a "
        "row, from the start or later. Written only where prompts hold pictures."),
    Entry("oscillation", "", "The share of turns that repeat or change nothing has risen by .1.",
        "`oscillation_rate`."),
    Entry("starvation", "", "At most a tenth of the groups teaches, and at most half of the groups is solved.",
        "`kept_ratio` or `signal/mixed` is at most .1 for five steps. Not while more than half of the groups are "
        "solved."),
    Entry("reward_blind", "", "Members get all the way to the goal, and the reward does not pay them.",
        "`signal/unpaid`, pooled over ten steps, is 5 standard errors above .1."),
    Entry("unpaid_tasks", "", "Tasks of the pool have a broken reward.",
        "The alarm names them. `treat/unpaid` is above 0. Written only with "
        "[treatments](training.md#treatments-by-cause)."),
    Entry("shaping_dominates", "",
        "Much of the update comes from groups whose episodes have one outcome, and that differ in other parts of the "
        "reward alone.",
        "`policy/advantage_without_outcome` is above .35 at five steps in a row. Not while more than a quarter of the "
        "groups are solved at these steps. Judged after the update, and written only where heedful gives the "
        "advantages."),
    Entry("success_drop", "", "Success or progress has fallen by .05: the decline itself, not a warning of it.",
        "`success/rate` or `success/progress`."),
    unit="0 or 1",
    missing="too few values for a baseline",
)

LOGGED_ALARMS = under(
    "alarm/",
    Entry("not_finite", "", "The gradient norm, the loss or the reward is no finite number.", "`trainer/not_finite`."),
    Entry("rate_jump", "", "The learning rate is more than twice its highest value before.",
        "`trainer/learning_rate`, after five values. A warm-up, a decay and a warm restart never are."),
    Entry("gradient_spike", "", "One gradient norm is above three times the median, and six robust deviations.",
        "`trainer/grad_norm`, against the 32 values before. Not in the log's first ten."),
    Entry("kl_runaway", "", "The divergence from the reference has grown fourfold since the middle of the run.",
        "`trainer/kl`: means of five values, of the last 64, and at least .01. Linear growth gives 2, quadratic 4."),
    Entry("sampler_mismatch", "", "Sampler and learner differ three times as much as before, and by .002 nats more.",
        "`trainer/mismatch`."),
    Entry("truncation", "", "The share of cut replies has risen by .1, or is above .25 for five steps.",
        "`trainer/truncated`."),
    Entry("length_rise", "", "Replies are longer by half, and success or reward is not .05 higher.",
        "`trainer/length`."),
    Entry("outgrown", "", "For eight steps, over three quarters of groups have no spread and success is above .8, or "
        "success is above .95.",
        "`trainer/zero_std` or `signal/solved`, with `success/rate` or `trainer/success`."),
    Entry("validation_drop", "", "The validation score has fallen by .05.",
        "`trainer/validation`. With `--validation-tasks` it has an interval, without it falls are seen late or never."),
    Entry("train_validation_gap", "", "The validation score has fallen, and the reward of training has not."),
    Entry("words_uninformed", "", "A judge of words names prompts from thoughts less often than before, by a quarter.",
        "`text/judge_accuracy_8way`. Words are no proof."),
    unit="0 or 1",
    missing="too few values for a baseline",
)

TRAINER = under(
    "trainer/",
    Entry("reward", "", "Mean reward of the batch."),
    Entry("success", "", "Success, where `--map success=KEY` names its key."),
    Entry("reward_std", "", "Spread of rewards, as the trainer takes it."),
    Entry("zero_std", "share", "Groups whose rewards are all equal."),
    Entry("entropy", "nats per token", "Entropy of the policy."),
    Entry("kl", "", "Divergence from the reference, as the trainer estimates it."),
    Entry("clip_share", "share", "Tokens at which the clip binds."),
    Entry("grad_norm", "", "Norm of the gradient."),
    Entry("length", "tokens", "Mean length of a reply."),
    Entry("truncated", "share", "Replies that were cut at the limit of tokens."),
    Entry("validation", "", "Score of the evaluation."),
    Entry("learning_rate", "", "Learning rate."),
    Entry("mismatch", "nats", "Divergence of the engine that samples from the policy that learns, or where the trainer "
        "logs none, the mean distance of their log-probabilities (or probabilities)."),
    Entry("loss", "", "Loss of the update."),
    Entry("not_finite", "count", "How many of gradient norm, loss and reward are no finite numbers, and which.",
        "After five steps in a row with one of them, its absence counts too."),
    missing="the trainer logged no finite number",
)

GRADIENT = under(
    "gradient/<bucket>/",
    Entry("<part>_signal2", "", "Squared norm of the expected gradient, unbiased.",
        "Mean inner product over pairs of different groups. It may be negative and is never clipped."),
    Entry("<part>_noise2", "", "Variance of the mean gradient of n groups, summed over parameters.",
        "Trace of the covariance. With `signal2` it adds up to `norm` squared (in a bucket: up to the averaging over "
        "the two halves).", doubt=Doubt("82% for the divided gradient, with 16 groups of which few are constant",
        clusters=5)),
    Entry("snr", "", "Squared signal over squared noise of the task gradient of n groups.",
        "`task_signal2` over `task_noise2`.", missing="fewer than two groups; no group has a task gradient"),
    Entry("<part>_prompt_signal2", "", "Squared norm of a prompt's own expected gradient, mean over prompts, unbiased.",
        "Inner product of the gradients of two halves of a group's members, each with a baseline of its own. Mean over "
        "splits and groups. It may be negative.", missing="no group has four members to halve"),
    Entry("<part>_norm", "", "Norm of this part of the mean gradient, noise included."),
    Entry("<part>_group_norm", "", "Norm of this part of a single group's gradient (root mean square), noise included.",
        doubt=Doubt("74% for the divided gradient, with 16 groups of which few are constant", clusters=5)),
    Entry("<part>_trend", "",
        "Growth of a single group's gradient from the lowest variance of rewards to the highest, in units of its mean "
        "norm.",
        "Slope over the rank by variance. Ranked on one half of the members and measured on the other, both ways. 0 = "
        "flat.", missing="fewer than eight groups; all have one variance; no gradient"),
    Entry("task_undivided_trend_over_<regulariser>", "",
        "Trend of the undivided task gradient minus that of the regulariser.",
        missing="one of the two trends is missing"),
    Entry("<regulariser>_weighted_norm", "", "Norm of this part of the gradient times the run's own coefficient.",
        "Written where the coefficient is above 0."),
    Entry("cosine_<p>_<q>", "−1 to 1",
        "Cosine between two parts of the expected gradient; above 0 they push the same way.",
        "Both are directions of the loss. Products of different groups only, so noise neither shrinks nor adds to it.",
        missing="fewer than three groups; a squared signal that is not clearly above zero"),
    Entry("bound_tightness", "0 to 1", "Norm of the mean undivided task gradient over its upper bound.",
        "The bound is sqrt(mean (R - mean)^2) sqrt(mean norm(s)^2), with s the score of a trajectory under the loss's "
        "averaging.", missing="every group is constant"),
    Entry("bound_tightness_prompt", "0 to 1",
        "Norm of a single group's undivided task gradient over its bound, mean over groups that vary.",
        missing="every group is constant"),
    Entry("bound_tightness2_expected", "",
        "Squared share of the bound that a prompt's expected gradient uses, unbiased.", "It may be negative.",
        missing="every group is constant, or too small to halve"),
    Entry("sorted_variance", "", "Sample variance of rewards within groups, of the members that sorted the groups.",
        missing="no group", doubt=Doubt("77% in buckets of about five groups", clusters=5)),
    Entry("reward_variance", "", "Sample variance of rewards within groups, of the members that were measured.",
        missing="no group", doubt=Doubt("77% in buckets of about five groups", clusters=5)),
    missing="fewer than two groups",
    cadence="gradients",
)

ATTRIBUTION = under(
    "attribution/<read>/",
    Entry("<term>", "", "Change of the reading by this part of the update, to first order.",
        "`<component>_varied` and `<component>_constant`: one component of the reward, in groups whose outcome varies "
        "and in groups of one outcome. `carried`: moments of earlier steps that have no name. `critic`: what values "
        "and whitening add to the advantages."),
    Entry("total", "", "Sum of all parts."),
    Entry("measured", "", "Change of the reading in the update, measured on the same fresh thoughts.",
        "Thoughts are weighed by what the update made of their probability. `greedy_success` has no parts: greedy "
        "episodes of the same tasks are played before and after."),
    Entry("explained", "", "Total over measured: near 1 where the first order is enough.",
        missing="the measured change is not clear of 0"),
    Entry("before", "", "The reading before the update.",
        "`gap`: mean over pairs of prompts of the divergence of their thoughts, in nats. `mi`: among the prompts of a "
        "block. `thought_entropy`: of a thought given its prompt, in nats. `success`, `greedy_success`: mean outcome. "
        "`right_by_thought`: as in `grounding`, on first actions of the fresh episodes."),
    missing="no update, fewer than two prompts with a thought in a block, or no right actions",
    cadence="gradients",
)
