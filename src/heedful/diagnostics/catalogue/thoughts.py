"""Metrics of what thoughts tell of their prompts, and of what actions follow."""

from __future__ import annotations

from heedful.diagnostics.catalogue.entry import Doubt, Entry, alike, under

# fmt: off
INFORMATION = under(
    "information[@<scorer>]/<scope>[/<environment>]/",
    Entry("mi", "nats", "Mutual information of thought and prompt, I(Z;X), for this batch's prompts.",
        "mean(matched - marginal), the plug-in. At most `mi_ceiling`.", collapse="lower",
        doubt=Doubt("0% of the information of all prompts, from about 2 nats on; it is for this number of prompts",
        above=0.3)),
    Entry("mi_ceiling", "nats", "The entropy of the prompts' shares, which is the largest value that MI can take.",
        "log N when every prompt has the same number of thoughts.", missing="no thought to score", collapse="lower"),
    Entry("mi_saturated", "0 or 1", "MI is at least 95% of its ceiling and says only \"not collapsed\".",
        collapse="lower"),
    Entry("mi_loo", "nats", "MI with the own prompt left out of the mixture, an upper bracket.",
        "In expectation at least the mutual information.", collapse="lower",
        doubt=Doubt("83% where scores have heavy tails", clusters=4)),
    Entry("mi_per_token", "nats per token", "MI with the term of each thought divided by the thought's length.",
        "mean((matched - marginal) / T): the form in the RAGEN-2 paper.", collapse="lower"),
    Entry("mi_tempered", "nats", "MI from per-token means inside the mixture, a looser bound and not the MI.",
        "The form in the code that was released with the RAGEN-2 paper.", collapse="lower"),
    Entry("mi_head_<k>", "nats", "MI of the first k tokens of each thought, comparable while lengths shrink.",
        "The first min(k, T) tokens. k = 16 and 32.", missing="N < 2; the scorer gave no scores of heads",
        collapse="lower"),
    Entry("n_reaching_<k>", "count", "Thoughts that have at least k tokens.",
        missing="no thought to score; the scorer gave no scores of heads"),
    Entry("gap", "nats", "How much likelier a thought is under its own prompt than under the others.",
        "Mean over i of (matched - weighted mean over the other prompts). It has no ceiling, and words that are "
        "equally likely under every prompt do not move it. The alarms of collapse read it.",
        doubt=Doubt("87% where scores have heavy tails", clusters=4)),
    Entry("gap_per_token", "nats per token",
        "How much likelier the tokens of a thought are under its own prompt than under the others.",
        "Mean over i of (matched - weighted mean over the other prompts) / T. It has no ceiling and moves first. Watch "
        "it while MI is saturated. It falls when thoughts get longer and say as much as before: read it with `gap` and "
        "`thought_tokens`.", collapse="lower", doubt=Doubt("87% where scores have heavy tails", clusters=4)),
    Entry("thought_tokens", "tokens", "Mean number of tokens T of the thoughts that were scored, their end included.",
        missing="no thought to score", doubt=alike(68)),
    Entry("entropy_conditional_per_token", "nats per token",
        "H(Z given X) per token: how much thoughts vary when the prompt is held fixed.", "-mean(matched / T).",
        missing="no thought to score"),
    Entry("entropy_conditional", "nats", "H(Z given X): how much thoughts vary for one prompt.", "-mean(matched).",
        missing="no thought to score"),
    Entry("entropy_marginal_per_token", "nats per token", "H(Z) per token: how much thoughts vary over all prompts.",
        "-mean(marginal / T). The difference to H(Z given X) is the information.", missing="no thought to score"),
    Entry("entropy_marginal", "nats", "H(Z): how much thoughts vary over all prompts.",
        "-mean(marginal). H(Z) = I + H(Z given X) holds row by row.", missing="no thought to score"),
    Entry("zscore", "", "The per-token information in units of its spread over thoughts, as published.",
        "mean((matched - marginal) / T) / (std over thoughts of (marginal / T) + 1e-3).", collapse="lower"),
    Entry("zscore_ema", "", "The z-score with a divisor that is smoothed over measurements.",
        "The divisor's std is .9 old + .1 new, and the first value is raw. As published, only the divisor is smoothed.",
        collapse="lower"),
    Entry("zscore_tempered", "", "The z-score of the tempered form.", collapse="lower"),
    Entry("zscore_ema_tempered", "", "The smoothed z-score of the tempered form.", collapse="lower"),
    missing="N < 2",
    cadence="measurement",
)

IMAGE = under(
    "",
    Entry("grounding[@<scorer>][/<environment>]/image_share", "",
        "The gap where pictures are exchanged, divided by the gap where pictures and texts are.",
        "`gap` of `image` over `gap` of `first_turn`, of the same thoughts. 1 = the thought follows the picture alone, "
        "0 = it ignores the picture. May be below 0 or above 1.",
        missing="N < 3; the interval of the divisor includes 0"),
    cadence="full measurement",
)

RETRIEVAL = under(
    "retrieval[@<scorer>]/<scope>[/<environment>]/",
    Entry("accuracy", "share",
        "Thoughts whose own prompt scores highest among the batch's prompts; ties share the credit.", collapse="lower"),
    Entry("accuracy@<k>", "share", "Thoughts whose own prompt is among the k best; k = 2, 4 and 8.", missing="N <= k",
        collapse="lower"),
    Entry("chance", "share", "The accuracy of guessing, exactly 1/N."),
    Entry("chance@<k>", "share", "The accuracy of guessing when k answers count, exactly k/N.", missing="N <= k"),
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
        "Character 1- to 4-grams, multinomial logistic regression, five folds within prompts. No language model takes "
        "part.", missing="fewer than two prompts with 4 thoughts", collapse="lower"),
    Entry("judge_accuracy_8way", "share",
        "Thoughts whose own prompt the text classifier prefers to seven rivals drawn at random.",
        "Exact from the ranks.", missing="fewer than 8 prompts", collapse="lower"),
    Entry("judge_chance", "share", "The accuracy of guessing, 1/N.", missing="as `text/judge_accuracy`"),
    Entry("template_share", "", "How alike thoughts are across prompts; 1 = as alike as thoughts of one prompt are.",
        "Share of a thought's word 3-grams found in thoughts of other prompts, over the share found in other thoughts "
        "of the same prompt. Both sides have equal numbers of thoughts. The mean over all draws is exact.",
        missing="no prompt with two thoughts", collapse="higher",
        doubt=Doubt("81% where nearly all thoughts are templates", above=0.8)),
    cadence="full measurement",
)

REGIME = under(
    "",
    Entry("regime[@<scorer>]/<scope>[/<environment>]", "label",
        "Diverse, template, compressed or low-entropy: information and entropy, each high or low; else undecided.",
        "Both are compared with their first three measurements.", missing="before the third measurement"),
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
        "Mean over groups, at most log G: compare values of equal group size.", missing="no group has two episodes"),
    Entry("grounding/distinct_strategies", "share",
        "Different executed action sequences in a group, divided by the group's episodes.",
        "Mean over groups, at least 1/G: compare values of equal group size.", missing="no group has two episodes"),
    Entry("grounding/oscillation_rate", "share", "Turns that repeat an earlier turn or change nothing, of all turns.",
        "A turn counts in three cases. It repeats an earlier turn of its episode (same actions, same state after). It "
        "changes no state. It is a first turn of which nothing could be executed. Only turns whose state is reported "
        "are considered.", missing="no state reported"),
)

_RIGHT = "no right actions are known; free text; N < 3"
_AGREED = "no prompt with two executed actions; free text; N < 3"
RIGHTNESS = (
    Entry("right", "0 to 1", "The probability of a right first action: own prompt, own thought.",
        "C[k, j, l] is the probability of an action that is right for prompt k, under prompt j, behind a thought of "
        "prompt l. This is the mean of C[k, k, k], and the sum of the four parts below.",
        missing=_RIGHT, collapse="lower"),
    Entry("right_by_chance", "0 to 1", "The part of `right` without the own prompt and without the own thought.",
        "Mean of C[k, j, l] over different k, j and l. 1 less this value is the most that a part can add.",
        missing=_RIGHT),
    Entry("right_by_thought", "-1 to 1", "The part of `right` that the thought carries alone.",
        "Mean of C[k, j, k] over different k and j, less the part of chance. Unbiased at every N. Where it falls with "
        "`right`, thoughts have lost what to do. Where `right` holds, the thought is bypassed.",
        missing=_RIGHT, collapse="lower"),
    Entry("right_by_prompt", "-1 to 1", "The part of `right` that comes from the prompt past the thought.",
        "Mean of C[k, k, l] over different k and l, less the part of chance: of each thought, less its readings under "
        "other foreign prompts.", missing=_RIGHT),
    Entry("right_by_both", "-1 to 1", "The part of `right` that needs the own prompt and the own thought together.",
        "The rest of `right`. It is large where a thought speaks relative to its prompt, or is believed only if it "
        "fits.", missing=_RIGHT),
    Entry("agreed", "0 to 1", "The probability of doing what another reply to the prompt did.",
        "As `right`, where each action is as right as its share among the other replies to the prompt. It needs no "
        "solver, and cannot see an error that all replies make.", missing=_AGREED),
    Entry("agreed_by_chance", "0 to 1", "The part of `agreed` without the own prompt and without the own thought.",
        "As `right_by_chance`.", missing=_AGREED),
    Entry("agreed_by_thought", "-1 to 1", "The part of `agreed` that the thought carries alone.",
        "As `right_by_thought`. About 0 where thoughts are templates or end in random numbers.",
        missing=_AGREED, collapse="lower"),
    Entry("agreed_by_prompt", "-1 to 1", "The part of `agreed` that comes from the prompt past the thought.",
        "As `right_by_prompt`.", missing=_AGREED),
    Entry("agreed_by_both", "-1 to 1", "The part of `agreed` that needs the own prompt and the own thought together.",
        "As `right_by_both`.", missing=_AGREED),
    Entry("foreign_lost", "-1 to 1",
        "How much likelier none of the batch's actions is after a thought under a foreign prompt than under its own.",
        "Above .1 the model is confused by such pairs, and the parts of `right` and `agreed` are doubtful.",
        missing="N < 2; free text"),
)

_LATER = "no right actions are known; no later turn has a thought and an executed action; free text; fewer than 4 tasks"
LATER = (
    Entry("later_right", "0 to 1", "The probability of a right first action at a later turn, given the actions so far.",
        "C[k, m, j, l] is the probability of an action that is right for episode k, behind the history of m, the last "
        "observation of j and the thought of l. This is the mean of C[k, k, k, k], and the sum of the parts below.",
        missing=_LATER, collapse="lower"),
    Entry("later_right_by_chance", "0 to 1", "The part of `later_right` in which nothing is the episode's own.",
        "Mean of C[k, m, j, l] over different k, m, j and l.", missing=_LATER),
    Entry("later_right_by_memory", "-1 to 1", "The part of `later_right` that the own history carries alone.",
        "Mean of C[k, k, j, l] over different k, j and l, less the part of chance. 0 where no history is kept.",
        missing=_LATER),
    Entry("later_right_by_thought", "-1 to 1",
        "The part of `later_right` that the own thought carries alone, behind the own history.",
        "Mean of C[k, k, j, k] less mean of C[k, k, j, l].", missing=_LATER, collapse="lower"),
    Entry("later_right_by_observation", "-1 to 1",
        "The part of `later_right` that the last observation carries past the thought, behind the own history.",
        "Mean of C[k, k, k, l] less mean of C[k, k, j, l].", missing=_LATER),
    Entry("later_right_by_both", "-1 to 1",
        "The part of `later_right` that needs the own last observation and the own thought together.",
        "The rest of `later_right`.", missing=_LATER),
    Entry("later_foreign_lost", "-1 to 1",
        "How much likelier none of the batch's actions is at later turns where something was exchanged.",
        "As `foreign_lost`.", missing=_LATER),
)

ASKED = under(
    "grounding[@<scorer>][/<environment>]/",
    Entry("reasoning_to_action", "nats",
        "I(Z;A given X): how much likelier the action is after its own thought than after its group's thoughts.",
        "Mean of log p(s_i, own(i), thought i) - log mean over m of p(s_i, own(i), thought m). m runs over the "
        "measured thoughts of the same prompt, its own included. At most the ceiling.",
        missing="every prompt has one distinct thought; all actions equal", collapse="lower",
        doubt=Doubt("74% with 8 prompts of 2 thoughts", clusters=5)),
    Entry("reasoning_to_action_ceiling", "nats",
        "The entropy of a group's thoughts, the largest value that I(Z;A given X) can take.",
        "Equal thoughts are counted together. Mean over thoughts.", missing="as `grounding/reasoning_to_action`"),
    Entry("thought_influence", "0 to 1",
        "How far the distribution of the first action moves when the thought is replaced by another prompt's thought.",
        "Total variation distance, mean over all pairs that are read. It says that the action depends on the thought, "
        "not that the thought is right.", missing="N < 2; free text", collapse="lower"),
    *RIGHTNESS,
    *LATER,
    cadence="full measurement",
)
