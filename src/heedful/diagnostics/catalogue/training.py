"""Metrics of the update, of the gradient, of what each stage costs, and the alarms."""

from __future__ import annotations

from heedful.diagnostics.catalogue.entry import Doubt, Entry, under

_UNCOMPARED = "TRL computed no log-probabilities of the learner"
_DIFFERENCE = (
    "Inside TRL: absolute difference between the log-probabilities of the engine that sampled and of the learner, over "
    "the sampled tokens of the update, before it and before the filter. Its mean, its largest value, and the tokens at "
    "which it is above .1 (not TRL's own; 0 where the engine holds the learner's weights in float32)."
)
_OUTSIDE = (
    "Trained tokens whose importance weight lies beyond `--algorithm.importance-cap` or `-floor`, and was cut, or left "
    "the loss with `--algorithm.importance-outside mask`. 0 where sampler and learner agree."
)
_TARGETS = "Means over the trained tokens of the critic's values V, and of R."
_NORMS = "Norm of this part of the mean gradient, and of a single group's (root mean square), noise included."
_BOUNDS = "Norm of the undivided task gradient over its upper bound: of the mean, and mean over the groups that vary."
_SAMPLE = "Sample variance of rewards within groups: of the members that sorted them, and of those that were measured."
_SIZES = "Groups whose first turns the measurement read, and members of each. Written with a `--diagnostics.share`."

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
        "Summed over trained tokens, times their group's weight. [Why it matters](results/shaped.md). 0 with a filter "
        "on the outcome.", missing="an outcome is unknown, or every advantage is 0"),
    Entry("policy/entropy_coefficient", "", "Coefficient of the entropy bonus in this update.",
        "An entropy control moves it."),
    Entry("policy/importance_truncated", "share",
        "Trained tokens whose importance weight was cut to `--algorithm.importance-cap` or `-floor`.",
        row=_OUTSIDE),
    Entry("policy/importance_masked", "share",
        "Trained tokens that left the loss, since their importance weight lies beyond cap or floor.",
        row=_OUTSIDE),
    Entry("policy/importance_kl", "nats per token",
        "Mean of k3 between sampler and learner before the update: r - 1 - log r, with r = learner / sampler.",
        "Above .01 they are not the same policy."),
    Entry("policy/importance_ess", "share",
        "Effective share of the tokens under their importance weights w: (sum w)^2 / (n sum w^2), before anything is "
        "cut.", "1 where sampler and learner agree."),
    Entry("sampler/probe_error", "nats",
        "Largest difference between the servers' and the learner's log-probabilities on fixed probes, after the "
        "weights of this step went out.", "Written with `--sampler vllm`. Above `--sampler.tolerance` the run stops."),
    Entry("sampling/sampling_logp_difference/mean", "nats",
        "Mean absolute difference between the log-probabilities of the engine that sampled and of the learner.",
        row=_DIFFERENCE,
        missing=_UNCOMPARED),
    Entry("sampling/sampling_logp_difference/max", "nats", "The largest of these differences.", row=_DIFFERENCE,
        missing=_UNCOMPARED),
    Entry("sampling/sampling_logp_difference/share", "share", "Sampled tokens at which it is above .1.",
        row=_DIFFERENCE, missing=_UNCOMPARED),
    Entry("policy/explained_variance", "at most 1",
        "Part of the variance of future rewards that the critic predicted; 0 = no better than a constant.",
        "1 - variance(R - V) / variance(R) over the trained tokens, with V before the update. It may be negative. R "
        "does not depend on lambda, so values compare.", missing="R is constant"),
    Entry("critic/loss", "", "Half the squared error of the critic's values, mean over the critic's steps.",
        "Before its coefficient."),
    Entry("critic/gradient_norm", "",
        "Euclidean norm of the critic's gradient before clipping, mean over the critic's steps."),
    Entry("critic/clip_fraction", "share", "Trained tokens at which the clipped error of the critic is the larger one.",
        missing="no `--critic.clip`"),
    Entry("critic/value_mean", "reward", "Mean of the critic's values V over the trained tokens.",
        row=_TARGETS),
    Entry("critic/return_mean", "reward",
        "Mean of the discounted rewards R from the token on, over the trained tokens.", row=_TARGETS),
    missing="the step made no update",
)

COST = (
    Entry("tokens/<stage>", "count", "Tokens of this stage.",
        "`collect`: sampled tokens. `update`: tokens in the rows of the update. `diagnose`: tokens that measurements "
        "read, written with a `--diagnostics.share`."),
    Entry("time/cpu", "s", "CPU seconds of collecting and updating, in this process alone.",
        "Other processes on the machine hardly change it."),
    Entry("time/<stage>", "s", "Seconds of this stage.",
        "`collect`, `diagnose`, `gradients`, `update`, `store` and `evaluate`."),
    Entry("cost[/<environment>]/diagnosis_share", "",
        "Tokens that the measurement read, as a part of the tokens of the steps that it pays for.",
        "[Which these are](diagnostics.md#what-a-measurement-costs). Above the share only where the smallest "
        "measurement needs more, or after a full one ahead of time. Written with a `--diagnostics.share`.",
        missing="thoughts could not be scored", cadence="measurement"),
    Entry("cost[/<environment>]/diagnosis_prompts", "", "Groups whose first turns the measurement read.", row=_SIZES,
        missing="thoughts could not be scored", cadence="measurement"),
    Entry("cost[/<environment>]/diagnosis_thoughts", "",
        "Members of each group whose first turns the measurement read.", row=_SIZES,
        missing="thoughts could not be scored", cadence="measurement"),
)

ALARMS = under(
    "alarm/",
    Entry("template_collapse", "", "Thoughts no longer tell their prompts apart although their entropy has not halved.",
        "`gap` has fallen by 25%, or `p_value` > .05 twice in a row after it was not. A fall of `gap_per_token` alone "
        "is a change of length: the alarm is 0 and says so."),
    Entry("low_entropy_collapse", "", "The entropy of thoughts has halved, and information or success is worse."),
    Entry("noise_collapse", "", "The entropy of thoughts has risen by 10%, and information or success is worse."),
    Entry("format_collapse", "", "The share of valid or closed replies has fallen by .1.",
        "`format/valid_rate` or `format/closed_rate`."),
    Entry("entropy_gaming", "", "The entropy of words has risen while the variety of strategies has fallen.",
        "`policy/entropy_per_token` by 10%, `strategy_entropy` or `distinct_strategies` by 25%."),
    Entry("entropy_rise", "", "An entropy has risen: an early warning.",
        "Of answers: doubled, and by .05 nats per token. Of thoughts or solved episodes: by 10%."),
    Entry("thought_bypassed", "", "The thought's influence on the action has fallen by 30%.",
        "`thought_influence`."),
    Entry("action_uninformed", "", "What the first action tells about the prompt has halved.",
        "`input_to_action`, twice in a row. Written from the fifth reading on."),
    Entry("input_blind", "", "Thoughts cannot be told from thoughts about other prompts.",
        "`p_value` > .05 twice in a row, from the start or later."),
    Entry("picture_ignored", "", "Thoughts follow the picture less, or not at all.",
        "In the scope `image`, `gap` has fallen by 25%, or `p_value` as for `input_blind`. Written where pictures were "
        "exchanged."),
    Entry("oscillation", "", "The share of turns that repeat or change nothing has risen by .1.",
        "`oscillation_rate`."),
    Entry("starvation", "", "At most a tenth of the groups teaches, and at most half of the groups is solved.",
        "`kept_ratio` or `signal/mixed`, for five steps."),
    Entry("reward_blind", "", "Members get all the way to the goal, and the reward does not pay them.",
        "`signal/unpaid`, pooled over ten steps, is 5 standard errors above .1."),
    Entry("unpaid_tasks", "", "Tasks of the pool have a broken reward.",
        "`treat/unpaid` is above 0. The alarm names them. Written with treatments."),
    Entry("shaping_dominates", "",
        "Much of the update comes from groups of one outcome that differ in other parts of the reward alone.",
        "`policy/advantage_without_outcome` is above .35 at five steps in a row, with at most a quarter of the groups "
        "solved. Written after the update, where heedful gives the advantages."),
    Entry("success_drop", "", "Success or progress has fallen by .05: the decline itself, not a warning of it."),
    unit="0 or 1",
    missing="too few values for a baseline",
)

LOGGED_ALARMS = under(
    "alarm/",
    Entry("not_finite", "", "The gradient norm, the loss or the reward is no finite number."),
    Entry("rate_jump", "", "The learning rate is more than twice its highest value before.",
        "After five values. A warm-up, a decay and a warm restart never are."),
    Entry("gradient_spike", "", "One gradient norm is above three times the median, and six robust deviations.",
        "Of the 32 values before. Not in the log's first ten."),
    Entry("kl_runaway", "", "The divergence from the reference has grown fourfold since the middle of the run.",
        "`trainer/kl`: means of five values, in the last 64, and at least .01. Linear growth gives 2, quadratic 4."),
    Entry("sampler_mismatch", "", "Sampler and learner differ three times as much as before, and by .002 nats more.",
        "`trainer/mismatch`."),
    Entry("truncation", "", "The share of cut replies has risen by .1, or is above .25 for five steps."),
    Entry("length_rise", "", "Replies are longer by half, and success or reward is not .05 higher."),
    Entry("outgrown", "", "For eight steps, over three quarters of groups have no spread and success is above .8, or "
        "success is above .95.",
        "By `trainer/zero_std` or `signal/solved`."),
    Entry("validation_drop", "", "The validation score has fallen by .05.",
        "It has an interval with `--validation-tasks`. Without one, falls show late or never."),
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
    Entry("zero_std", "share", "Groups whose rewards are all equal.",
        "TRL logs 0 or 1 for the whole batch with `scale_rewards=\"batch\"` or `normalize_then_sum`. "
        "prime-rl counts groups of zeros and of ones alone."),
    Entry("entropy", "nats per token", "Entropy of the policy.",
        "verl averages it as `loss_agg_mode` says: `seq-mean-token-sum` gives nats per reply."),
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
        "It may be negative and is never clipped."),
    Entry("<part>_noise2", "", "Variance of the mean gradient of n groups, summed over parameters.",
        "In a bucket `signal2` + `noise2` = `norm`² up to the averaging over two halves.",
        doubt=Doubt("82% for the divided gradient, with 16 groups of which few are constant", clusters=5)),
    Entry("snr", "", "Squared signal over squared noise of the task gradient of n groups.",
        missing="fewer than two groups; no group has a task gradient"),
    Entry("<part>_prompt_signal2", "", "Squared norm of a prompt's own expected gradient, mean over prompts, unbiased.",
        "Mean over splits, too. It may be negative.", missing="no group has four members to halve"),
    Entry("<part>_norm", "", "Norm of this part of the mean gradient, noise included.", row=_NORMS),
    Entry("<part>_group_norm", "", "Norm of this part of a single group's gradient (root mean square), noise included.",
        row=_NORMS,
        doubt=Doubt("74% for the divided gradient, with 16 groups of which few are constant", clusters=5)),
    Entry("<part>_trend", "",
        "Growth of a single group's gradient from the lowest variance of rewards to the highest, in units of its mean "
        "norm.",
        "0 = flat.", missing="fewer than eight groups; all have one variance; no gradient"),
    Entry("task_undivided_trend_over_<regulariser>", "",
        "Trend of the undivided task gradient minus that of the regulariser.",
        missing="one of the two trends is missing"),
    Entry("<regulariser>_weighted_norm", "", "Norm of this part of the gradient times the run's own coefficient.",
        "Written where the coefficient is above 0."),
    Entry("cosine_<p>_<q>", "−1 to 1",
        "Cosine between two parts of the expected gradient; above 0 they push the same way.",
        "Noise neither shrinks nor adds to it.",
        missing="fewer than three groups; a squared signal that is not clearly above zero"),
    Entry("bound_tightness", "0 to 1", "Norm of the mean undivided task gradient over its upper bound.",
        row=_BOUNDS, missing="every group is constant"),
    Entry("bound_tightness_prompt", "0 to 1",
        "Norm of a single group's undivided task gradient over its bound, mean over groups that vary.",
        row=_BOUNDS, missing="every group is constant"),
    Entry("bound_tightness2_expected", "",
        "Squared share of the bound that a prompt's expected gradient uses, unbiased.", "It may be negative.",
        missing="every group is constant, or too small to halve"),
    Entry("sorted_variance", "", "Sample variance of rewards within groups, of the members that sorted the groups.",
        row=_SAMPLE, missing="no group", doubt=Doubt("77% in buckets of about five groups", clusters=5)),
    Entry("reward_variance", "", "Sample variance of rewards within groups, of the members that were measured.",
        row=_SAMPLE, missing="no group", doubt=Doubt("77% in buckets of about five groups", clusters=5)),
    missing="fewer than two groups",
    cadence="gradients",
)

ATTRIBUTION = under(
    "attribution/<read>/",
    Entry("<term>", "", "Change of the reading by this part of the update, to first order."),
    Entry("total", "", "Sum of all parts."),
    Entry("measured", "", "Change of the reading in the update, measured on the same fresh thoughts.",
        "Also of `greedy_success`, which has no parts."),
    Entry("explained", "", "Total over measured: near 1 where the first order is enough.",
        missing="the measured change is not clear of 0"),
    Entry("before", "", "The reading before the update."),
    missing="no update, fewer than two prompts with a thought in a block, or no right actions",
    cadence="gradients",
)
