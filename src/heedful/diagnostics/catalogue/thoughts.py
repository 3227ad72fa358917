"""Metrics of what thoughts tell of their prompts, and of what actions follow."""

from __future__ import annotations

from heedful.diagnostics.catalogue.entry import Doubt, Entry, alike, under

_CONDITIONAL = "H(Z given X): how much thoughts vary for one prompt. -mean(matched / T), and -mean(matched)."
_MARGINAL = (
    "H(Z): how much thoughts vary over all prompts. -mean(marginal / T), and -mean(marginal). Row by row H(Z) = I + "
    "H(Z given X)."
)
_ZSCORE = (
    "As published: mean((matched - marginal) / T) / (std of marginal / T over thoughts + 1e-3). `_ema`: the std is .9 "
    "old + .1 new over measurements, and raw at first. `_tempered`: with the terms of `mi_tempered`."
)

# fmt: off
INFORMATION = under(
    "information[@<scorer>]/<scope>[/<environment>]/",
    Entry("mi", "nats", "Mutual information of thought and prompt, I(Z;X), for this batch's prompts.",
        "mean(matched - marginal), the plug-in.", collapse="lower",
        doubt=Doubt("0% of the information of all prompts, from about 2 nats on; it is for this number of prompts",
        above=0.3)),
    Entry("mi_ceiling", "nats", "The entropy of the prompts' shares, which is the largest value that MI can take.",
        "log N for equal shares.", missing="no thought to score", collapse="lower"),
    Entry("mi_saturated", "0 or 1", "MI is at least 95% of its ceiling and says only \"not collapsed\".",
        collapse="lower"),
    Entry("mi_loo", "nats", "MI with the own prompt left out of the mixture, an upper bracket in expectation.",
        collapse="lower", doubt=Doubt("83% where scores have heavy tails", clusters=4)),
    Entry("mi_per_token", "nats per token", "MI with the term of each thought divided by the thought's length.",
        "mean((matched - marginal) / T), as in the RAGEN-2 paper.", collapse="lower"),
    Entry("mi_tempered", "nats", "MI from per-token means inside the mixture, a looser bound and not the MI.",
        "As in that paper's code.", collapse="lower"),
    Entry("mi_head_<k>", "nats", "MI of the first k tokens of each thought, comparable while lengths shrink.",
        "Of min(k, T) tokens; k = 16 and 32.", missing="N < 2; the scorer gave no scores of heads", collapse="lower"),
    Entry("n_reaching_<k>", "count", "Thoughts that have at least k tokens.",
        missing="no thought to score; the scorer gave no scores of heads"),
    Entry("gap", "nats", "How much likelier a thought is under its own prompt than under the others.",
        "mean(matched - weighted mean over the other prompts). It has no ceiling. Words that are equally likely under "
        "every prompt do not move it. The alarms of collapse read it.",
        doubt=Doubt("87% where scores have heavy tails", clusters=4)),
    Entry("gap_per_token", "nats per token",
        "How much likelier the tokens of a thought are under its own prompt than under the others.",
        "The terms of `gap`, over T. It moves first: watch it while MI is saturated. Thoughts that get longer and say "
        "as much lower it: read `gap` and `thought_tokens` with it.", collapse="lower",
        doubt=Doubt("87% where scores have heavy tails", clusters=4)),
    Entry("thought_tokens", "tokens", "Mean number of tokens T of the thoughts that were scored, their end included.",
        missing="no thought to score", doubt=alike(68)),
    Entry("entropy_conditional_per_token", "nats per token",
        "H(Z given X) per token: how much thoughts vary when the prompt is held fixed.", row=_CONDITIONAL,
        missing="no thought to score"),
    Entry("entropy_conditional", "nats", "H(Z given X): how much thoughts vary for one prompt.", row=_CONDITIONAL,
        missing="no thought to score"),
    Entry("entropy_marginal_per_token", "nats per token", "H(Z) per token: how much thoughts vary over all prompts.",
        row=_MARGINAL, missing="no thought to score"),
    Entry("entropy_marginal", "nats", "H(Z): how much thoughts vary over all prompts.", row=_MARGINAL,
        missing="no thought to score"),
    Entry("zscore", "", "The per-token information in units of its spread over thoughts, as published.", row=_ZSCORE,
        collapse="lower"),
    Entry("zscore_ema", "", "The z-score with a divisor that is smoothed over measurements.", row=_ZSCORE,
        collapse="lower"),
    Entry("zscore_tempered", "", "The z-score of the tempered form.", row=_ZSCORE, collapse="lower"),
    Entry("zscore_ema_tempered", "", "The smoothed z-score of the tempered form.", row=_ZSCORE, collapse="lower"),
    missing="N < 2",
    cadence="measurement",
)

IMAGE = under(
    "",
    Entry("grounding[@<scorer>][/<environment>]/image_share", "",
        "The gap where pictures are exchanged, divided by the gap where pictures and texts are.",
        "`gap` of `image` over that of `first_turn`, of the same thoughts. 1: the thought follows the picture alone. "
        "0: it ignores the picture. It may leave this range.",
        missing="N < 3; the interval of the divisor includes 0"),
    cadence="full measurement",
)

_CHANCE = "The accuracy of guessing, exactly 1/N and k/N."
RETRIEVAL = under(
    "retrieval[@<scorer>]/<scope>[/<environment>]/",
    Entry("accuracy", "share",
        "Thoughts whose own prompt scores highest among the batch's prompts; ties share the credit.", collapse="lower"),
    Entry("accuracy@<k>", "share", "Thoughts whose own prompt is among the k best; k = 2, 4 and 8.", missing="N <= k",
        collapse="lower"),
    Entry("chance", "share", "The accuracy of guessing, exactly 1/N.", row=_CHANCE),
    Entry("chance@<k>", "share", "The accuracy of guessing when k answers count, exactly k/N.", row=_CHANCE,
        missing="N <= k"),
    Entry("accuracy_2way", "share", "Thoughts whose own prompt beats one rival drawn at random; does not depend on N.",
        collapse="lower"),
    Entry("accuracy_8way", "share",
        "Thoughts whose own prompt beats seven rivals drawn at random; does not depend on N.", missing="N < 8",
        collapse="lower"),
    Entry("p_value", "", "The probability of such an accuracy if thoughts were independent of their prompts.",
        missing="N < 5", collapse="higher"),
    missing="N < 2",
    cadence="measurement",
)

TEXT = under(
    "text/",
    Entry("judge_accuracy", "share", "Thoughts whose prompt a text classifier names.",
        "Character 1- to 4-grams, multinomial logistic regression, five folds within prompts.",
        missing="fewer than two prompts with 4 thoughts", collapse="lower"),
    Entry("judge_accuracy_8way", "share",
        "Thoughts whose own prompt the text classifier prefers to seven rivals drawn at random.",
        "Exact from the ranks.", missing="fewer than 8 prompts", collapse="lower"),
    Entry("judge_chance", "share", "The accuracy of guessing, 1/N.", missing="as `text/judge_accuracy`"),
    Entry("template_share", "", "How alike thoughts are across prompts; 1 = as alike as thoughts of one prompt are.",
        "Share of a thought's word 3-grams found in thoughts of other prompts, over the share found in as many other "
        "thoughts of its prompt. The mean over all draws is exact.", missing="no prompt with two thoughts",
        collapse="higher", doubt=Doubt("81% where nearly all thoughts are templates", above=0.8)),
    cadence="full measurement",
)

REGIME = under(
    "",
    Entry("regime[@<scorer>]/<scope>[/<environment>]", "label",
        "Diverse, template, compressed or low-entropy: information and entropy, each high or low; else undecided.",
        missing="before the third measurement"),
    cadence="measurement",
)

COUNTED = (
    Entry("grounding[/<environment>]/input_to_action", "nats",
        "I(X;A): what the first action tells about the prompt, corrected for few prompts and few actions.",
        "H(A) with the jackknife's correction over prompts, minus H(A|X) with the bias of a Dirichlet model. At most "
        "the log of the number of actions that occur. May be negative.",
        missing="fewer than two prompts with 4 actions; free text", collapse="lower", cadence="measurement",
        doubt=Doubt("78% with 8 prompts that mostly agree", clusters=5)),
    Entry("grounding/strategy_entropy", "nats", "Entropy of the executed action sequences within a group.",
        "Mean over groups, at most log G.", missing="no group has two episodes"),
    Entry("grounding/distinct_strategies", "share",
        "Different executed action sequences in a group, divided by the group's episodes.",
        "Mean over groups, at least 1/G.", missing="no group has two episodes"),
    Entry("grounding/oscillation_rate", "share", "Turns that repeat an earlier turn or change nothing, of all turns.",
        "Repeated: same actions, same state after. A first turn counts if nothing of it could be executed. Turns "
        "without a reported state are left out.", missing="no state reported"),
)

_RIGHT = "no right actions are known; free text; N < 3"
_AGREED = "no prompt with two executed actions; free text; N < 3"
_PARTS = (
    "The parts of `right` ([formulas](#how-right-and-by-what)). A part adds at most 1 - `right_by_chance`. If "
    "`right_by_thought` falls with `right`, thoughts have lost what to do. If it falls alone, the thought is bypassed."
)
_AGREED_PARTS = (
    "The parts of `agreed`. `agreed_by_thought` is about 0 where thoughts are templates or end in random numbers."
)
RIGHTNESS = (
    Entry("right", "0 to 1", "The probability of a right first action: own prompt, own thought.",
        missing=_RIGHT, collapse="lower"),
    Entry("right_by_chance", "0 to 1", "The part of `right` without the own prompt and without the own thought.",
        row=_PARTS, missing=_RIGHT),
    Entry("right_by_thought", "-1 to 1", "The part of `right` that the thought carries alone.", row=_PARTS,
        missing=_RIGHT, collapse="lower"),
    Entry("right_by_prompt", "-1 to 1", "The part of `right` that comes from the prompt past the thought.", row=_PARTS,
        missing=_RIGHT),
    Entry("right_by_both", "-1 to 1", "The part of `right` that needs the own prompt and the own thought together.",
        row=_PARTS, missing=_RIGHT),
    Entry("agreed", "0 to 1", "The probability of doing what another reply to the prompt did.",
        "As `right`, where each action is as right as its share among the other replies. It needs no solver, and "
        "cannot see an error that all replies make.", missing=_AGREED),
    Entry("agreed_by_chance", "0 to 1", "The part of `agreed` without the own prompt and without the own thought.",
        row=_AGREED_PARTS, missing=_AGREED),
    Entry("agreed_by_thought", "-1 to 1", "The part of `agreed` that the thought carries alone.", row=_AGREED_PARTS,
        missing=_AGREED, collapse="lower"),
    Entry("agreed_by_prompt", "-1 to 1", "The part of `agreed` that comes from the prompt past the thought.",
        row=_AGREED_PARTS, missing=_AGREED),
    Entry("agreed_by_both", "-1 to 1", "The part of `agreed` that needs the own prompt and the own thought together.",
        row=_AGREED_PARTS, missing=_AGREED),
    Entry("foreign_lost", "-1 to 1",
        "How much likelier none of the batch's actions is after a thought under a foreign prompt than under its own.",
        missing="N < 2; free text"),
)

_LATER = "no right actions are known; no later turn has a thought and an executed action; free text; fewer than 4 tasks"
_LATER_PARTS = "The parts of `later_right`. `later_right_by_memory` is 0 where no history is kept."
LATER = (
    Entry("later_right", "0 to 1", "The probability of a right first action at a later turn, given the actions so far.",
        missing=_LATER, collapse="lower"),
    Entry("later_right_by_chance", "0 to 1", "The part of `later_right` in which nothing is the episode's own.",
        row=_LATER_PARTS, missing=_LATER),
    Entry("later_right_by_memory", "-1 to 1", "The part of `later_right` that the own history carries alone.",
        row=_LATER_PARTS, missing=_LATER),
    Entry("later_right_by_thought", "-1 to 1",
        "The part of `later_right` that the own thought carries alone, behind the own history.",
        row=_LATER_PARTS, missing=_LATER, collapse="lower"),
    Entry("later_right_by_observation", "-1 to 1",
        "The part of `later_right` that the last observation carries past the thought, behind the own history.",
        row=_LATER_PARTS, missing=_LATER),
    Entry("later_right_by_both", "-1 to 1",
        "The part of `later_right` that needs the own last observation and the own thought together.",
        row=_LATER_PARTS, missing=_LATER),
    Entry("later_foreign_lost", "-1 to 1",
        "How much likelier none of the batch's actions is at later turns where something was exchanged.",
        missing=_LATER),
)

ASKED = under(
    "grounding[@<scorer>][/<environment>]/",
    Entry("reasoning_to_action", "nats",
        "I(Z;A given X): how much likelier the action is after its own thought than after its group's thoughts.",
        "Mean of log p(s_i, own(i), thought i) - log mean over m of p(s_i, own(i), thought m). m runs over the "
        "measured thoughts of the same prompt, its own included.",
        missing="every prompt has one distinct thought; all actions equal", collapse="lower",
        doubt=Doubt("74% with 8 prompts of 2 thoughts", clusters=5)),
    Entry("reasoning_to_action_ceiling", "nats",
        "The entropy of a group's thoughts, the largest value that I(Z;A given X) can take.",
        "Equal thoughts are counted together. Mean over thoughts.", missing="as `grounding/reasoning_to_action`"),
    Entry("thought_influence", "0 to 1",
        "How far the distribution of the first action moves when the thought is replaced by another prompt's thought.",
        "Total variation distance, mean over all pairs that are read.", missing="N < 2; free text", collapse="lower"),
    *RIGHTNESS,
    *LATER,
    cadence="full measurement",
)
