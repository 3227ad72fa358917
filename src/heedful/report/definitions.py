"""What each measurement means, in a sentence and a unit.

Promise: one wording per metric, used by every page; a metric that is not listed here has no definition, not a guess.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Definition:
    """One kind of metric."""

    pattern: str
    """`*` stands for any run of characters within one part of a name, `**` for any number of parts."""
    unit: str
    text: str


DEFINITIONS: tuple[Definition, ...] = (
    Definition(
        "eval/*/sampled/success",
        "share",
        "Success on tasks held out from training, sampled at the training temperature.",
    ),
    Definition("eval/*/greedy/success", "share", "The same tasks, always taking the likeliest token."),
    Definition(
        "eval/*/random/success", "share", "The same tasks, with uniformly random valid actions: the lower baseline."
    ),
    Definition(
        "eval/*/fixed/success", "share", "The best single policy that never reads its input, on the same tasks."
    ),
    Definition("success/rate", "share", "Trajectories of this step with outcome 1, among those that were scored."),
    Definition("success/any_of_group", "share", "Groups in which at least one member succeeded."),
    Definition("success/progress", "0 to 1", "How far episodes got, successes counting as 1."),
    Definition("reward/mean", "reward", "Mean over trajectories of the sum of all reward components."),
    Definition("reward/*", "reward", "Mean over trajectories of the sum of this component."),
    Definition(
        "information*/**/mi",
        "nats",
        "Mutual information of thought and prompt, I(Z;X): the mean over thoughts of log p(thought | its own prompt) "
        "minus log p(thought) under the mixture of this batch's prompts. Cannot exceed the ceiling.",
    ),
    Definition(
        "information*/**/mi_loo", "nats", "The same with the own prompt left out of the mixture: an upper bracket."
    ),
    Definition("information*/**/mi_ceiling", "nats", "The entropy of the prompts' shares: the most that MI can show."),
    Definition(
        "information*/**/mi_saturated", "0 or 1", 'MI lies within 5% of its ceiling: says only "not collapsed".'
    ),
    Definition(
        "information*/**/mi_per_token", "nats per token", "MI with each thought's term divided by its length first."
    ),
    Definition(
        "information*/**/mi_tempered", "nats", "Per-token means inside the mixture: a looser bound, not the MI."
    ),
    Definition("information*/**/mi_head_*", "nats", "MI of the first tokens only: comparable while lengths shrink."),
    Definition("information*/**/n_reaching_*", "share", "Thoughts that have at least this many tokens."),
    Definition(
        "information*/**/gap_per_token",
        "nats per token",
        "How much likelier a thought's tokens are under its own prompt than under the others, on average. Has no "
        "ceiling and moves first: the one to watch while MI is saturated.",
    ),
    Definition(
        "information*/**/entropy_conditional_per_token",
        "nats per token",
        "H(Z|X) per token: how much thoughts vary when the prompt is held fixed.",
    ),
    Definition("information*/**/entropy_conditional", "nats", "H(Z|X): how much thoughts vary for one prompt."),
    Definition(
        "information*/**/entropy_marginal_per_token",
        "nats per token",
        "H(Z) per token: how much thoughts vary over all prompts; the difference to H(Z|X) is the information.",
    ),
    Definition("information*/**/entropy_marginal", "nats", "H(Z) = I(Z;X) + H(Z|X), thought by thought."),
    Definition("information*/**/zscore*", "", "The per-token information in units of its spread, as published."),
    Definition(
        "retrieval*/**/accuracy",
        "share",
        "Thoughts whose own prompt scores highest among the batch's prompts; ties share the credit.",
    ),
    Definition("retrieval*/**/accuracy_2way", "share", "The same against one random rival; does not depend on N."),
    Definition("retrieval*/**/accuracy_8way", "share", "The same against seven random rivals; does not depend on N."),
    Definition("retrieval*/**/accuracy@*", "share", "The own prompt is among this many best."),
    Definition("retrieval*/**/chance", "share", "What guessing would reach: 1/N."),
    Definition("retrieval*/**/chance@*", "share", "What guessing would reach when this many answers count."),
    Definition("retrieval*/**/p_value", "", "Chance of such an accuracy if thoughts had nothing to do with prompts."),
    Definition(
        "grounding*/**/thought_influence",
        "0 to 1",
        "How far the distribution of the first action moves when the thought is replaced by one from another prompt "
        "(total variation distance). Says that the action reads the thought, not that the thought is right.",
    ),
    Definition(
        "grounding*/**/thought_influence_same_prompt", "0 to 1", "The same with another thought of the same prompt."
    ),
    Definition(
        "grounding*/**/foreign_thought_obeyed",
        "−1 to 1",
        "Own prompt with a foreign thought: share that follows the foreign thought minus share that keeps its action.",
    ),
    Definition(
        "grounding/**/input_to_action",
        "nats",
        "I(X;A): what the first action tells about the prompt, less what as few actions would tell by chance.",
    ),
    Definition("grounding/**/input_to_action_plugin", "nats", "I(X;A) as counted, chance included."),
    Definition(
        "grounding/**/input_to_action_p_value",
        "",
        "Chance of such an I(X;A) if actions had nothing to do with prompts.",
    ),
    Definition(
        "grounding*/**/reasoning_to_action",
        "nats",
        "I(Z;A|X): what the thought decides beyond the prompt: how much likelier the action is behind its own thought "
        "than behind those of its group. Cannot exceed its ceiling.",
    ),
    Definition(
        "grounding*/**/reasoning_to_action_ceiling", "nats", "The entropy of a group's thoughts: the most it can show."
    ),
    Definition(
        "grounding*/**/reasoning_to_action_loo", "nats", "The same with the own thought left out: an upper bracket."
    ),
    Definition(
        "grounding*/**/direct_input_to_action",
        "nats",
        "How much the action still depends on the prompt when the thought is kept: 0 = it follows the thought alone.",
    ),
    Definition("grounding/strategy_entropy", "nats", "Entropy of the executed action sequences within a group."),
    Definition(
        "grounding/distinct_strategies", "share", "Distinct executed action sequences in a group, of its episodes."
    ),
    Definition(
        "grounding/oscillation_rate", "share", "Turns that repeat an earlier turn or change nothing, of all turns."
    ),
    Definition(
        "text/judge_accuracy*", "share", "A text classifier names the prompt from the thought; no model of ours."
    ),
    Definition("text/template_share", "", "1 = thoughts are as alike across prompts as they are within one."),
    Definition("text/distinct_thoughts", "share", "Different first thoughts in a group, of its episodes."),
    Definition("signal/reward_std", "", "Standard deviation of the filtered value within a group, mean over groups."),
    Definition("signal/reward_variance", "", "Variance of the filtered value within a group, mean over groups."),
    Definition("signal/variance_dispersion", "", "Spread of the groups' variances over their mean: is there a choice?"),
    Definition("signal/mixed", "share", "Groups whose members differ: the only ones that teach."),
    Definition("signal/solved", "share", "Groups in which every member succeeds."),
    Definition("signal/blind", "share", "Groups with equal values although their members got differently far."),
    Definition("signal/failed", "share", "Groups with equal values and no sign of progress."),
    Definition("filter/kept_ratio", "share", "Groups trained on, of all groups."),
    Definition("filter/kept_groups", "count", "Groups trained on."),
    Definition("filter/mass_kept", "share", "Variance within the kept groups, of the variance within all."),
    Definition(
        "filter/kept_without_signal",
        "share",
        "Kept groups whose members all got the same: they pull nothing but the regularisers.",
    ),
    Definition("filter/dropped/*", "count", "Groups dropped for this reason."),
    Definition("filter/empty", "count", "Steps without an update because nothing was kept."),
    Definition("filter/refill", "", "How the search for groups that vary ended: enough, bound or pool."),
    Definition("filter/draws", "count", "Draws of tasks in the step."),
    Definition("filter/collected_groups", "count", "Groups played in all draws of the step."),
    Definition("filter/starved_tasks", "count", "Tasks visited again and again without being trained on."),
    Definition("filter/longest_skip", "count", "Most visits in a row of one task without being trained on."),
    Definition("filter/readmitted", "count", "Dropped groups of starved tasks that were taken back."),
    Definition("format/valid_rate", "share", "Turns that could be executed as written."),
    Definition("format/closed_rate", "share", "Thoughts that were closed by their tag."),
    Definition("format/trailing_tokens", "tokens", "Tokens after the answer, which no environment reads."),
    Definition("length/reasoning_tokens", "tokens", "Mean tokens of a thought, its closing tag included."),
    Definition("length/response_tokens", "tokens", "Mean tokens of a reply."),
    Definition("length/turns", "turns", "Mean turns of a trajectory."),
    Definition(
        "policy/entropy_per_token", "nats per token", "Exact entropy of the next token, mean over sampled tokens."
    ),
    Definition("policy/thought_entropy_per_token", "nats per token", "The same over the tokens of thoughts."),
    Definition(
        "policy/answer_entropy_per_token",
        "nats per token",
        "The same over the tokens of answers, given their thoughts: small while the thought decides.",
    ),
    Definition("policy/solved_entropy_per_token", "nats per token", "The same over successful episodes."),
    Definition(
        "policy/kl_to_sampler", "nats per token", "Sampler's minus learner's log-probability, before the update."
    ),
    Definition("policy/kl_to_reference", "nats per token", "Estimate (k3) of the divergence from the reference model."),
    Definition("policy/logprob_error", "nats", "Largest difference of sampler's and learner's log-probability."),
    Definition("policy/clip_fraction", "share", "Trained tokens at which the clip binds."),
    Definition("policy/loss", "", "The loss of the update, regularisers included."),
    Definition("policy/gradient_norm", "", "Norm of the gradient before clipping."),
    Definition("policy/learning_rate", "", "Learning rate of the update."),
    Definition(
        "policy/explained_variance",
        "share",
        "Variance of the rewards that were still to come that the critic foresaw; 0 = as good as a constant.",
    ),
    Definition("critic/loss", "", "Half the squared error of the critic's values, before the step."),
    Definition("critic/clip_fraction", "share", "Trained tokens at which the clip of values binds."),
    Definition("critic/gradient_norm", "", "Euclidean norm of the critic's gradient before clipping."),
    Definition("critic/value_mean", "reward", "Mean of the critic's values over trained tokens, before the update."),
    Definition("critic/return_mean", "reward", "Mean of the rewards that were still to come at trained tokens."),
    Definition("gradient/**/snr", "", "Squared signal over squared noise of the task gradient of so many groups."),
    Definition(
        "gradient/**/*_prompt_signal2",
        "",
        "Squared norm of a prompt's own expected gradient, mean over prompts, unbiased; may be negative.",
    ),
    Definition("gradient/**/*_signal2", "", "Squared norm of the expected gradient, unbiased; may be negative."),
    Definition("gradient/**/*_noise2", "", "Variance of the mean gradient of so many groups, summed over parameters."),
    Definition("gradient/**/*_group_norm", "", "Norm of a single group's gradient (root mean square), noise included."),
    Definition("gradient/**/*_weighted_norm", "", "Norm of this part of the gradient with the run's own coefficient."),
    Definition("gradient/**/*_norm", "", "Norm of this part of the mean gradient, noise included."),
    Definition(
        "gradient/**/cosine_*", "−1 to 1", "Angle between two parts of the gradient; above 0 they pull together."
    ),
    Definition("gradient/**/bound_tightness", "0 to 1", "Norm of the undivided task gradient over its bound."),
    Definition(
        "gradient/**/bound_tightness_prompt", "0 to 1", "The same of a single group, mean over those that vary."
    ),
    Definition(
        "gradient/**/bound_tightness2_expected",
        "",
        "Squared share of the bound that a prompt's expected gradient uses, unbiased; may be negative.",
    ),
    Definition("gradient/**/sorted_variance", "", "Variance of rewards within groups, of the members that sorted."),
    Definition("gradient/**/reward_variance", "", "Variance of rewards within groups, of the members measured."),
    Definition(
        "regime/**",
        "label",
        "Diverse, template, compressed or low-entropy: information and entropy, each high or low "
        "against their first three measurements; else undecided.",
    ),
    Definition(
        "alarm/*", "0 or 1", "1 while the alarm is raised, with its evidence; missing before it has a baseline."
    ),
    Definition("time/*", "s", "Seconds of this stage."),
    Definition("tokens/*", "count", "Tokens of this stage."),
)


def definition_of(name: str) -> Definition | None:
    """The first definition whose pattern fits the metric's name."""
    return next((known for known, fits in _COMPILED if fits.fullmatch(name)), None)


def _compiled(pattern: str) -> re.Pattern[str]:
    parts = re.split(r"(/\*\*/|\*\*|\*)", pattern)
    found = {"/**/": "/(?:.+/)?", "**": ".+", "*": "[^/]*"}
    return re.compile("".join(found.get(part, re.escape(part)) for part in parts))


_COMPILED = tuple((known, _compiled(known.pattern)) for known in DEFINITIONS)
