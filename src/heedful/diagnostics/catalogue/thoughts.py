"""Metrics of what thoughts tell of their prompts: information, retrieval, regime and text."""

from __future__ import annotations

from heedful.diagnostics.catalogue.entry import Cadence, Entry, Trend

_INFORMATION = "information[@<scorer>]/<scope>[/<environment>]/"
_RETRIEVAL = "retrieval[@<scorer>]/<scope>[/<environment>]/"


def _information(
    name: str, unit: str, text: str, detail: str = "", missing: str = "N < 2", collapse: Trend | None = None
) -> Entry:
    return Entry(_INFORMATION + name, unit, text, detail, missing, collapse, "measurement")


def _retrieval(name: str, text: str, missing: str, collapse: Trend | None = None, unit: str = "share") -> Entry:
    return Entry(_RETRIEVAL + name, unit, text, "", missing, collapse, "measurement")


def _text(name: str, unit: str, text: str, missing: str, collapse: Trend | None, detail: str = "") -> Entry:
    cadence: Cadence = "full measurement"
    return Entry(f"text/{name}", unit, text, detail, missing, collapse, cadence)


INFORMATION = (
    _information(
        "mi",
        "nats",
        "Mutual information of thought and prompt, I(Z;X), for this batch's prompts.",
        "mean(matched - marginal), the plug-in. At most `mi_ceiling`.",
        collapse="lower",
    ),
    _information(
        "mi_ceiling",
        "nats",
        "The entropy of the prompts' shares, which is the largest value that MI can take.",
        "log N when every prompt has the same number of thoughts.",
        "no thought to score",
        "lower",
    ),
    _information(
        "mi_saturated",
        "0 or 1",
        'MI is at least 95% of its ceiling and says only "not collapsed".',
        collapse="lower",
    ),
    _information(
        "mi_loo",
        "nats",
        "MI with the own prompt left out of the mixture, an upper bracket.",
        "In expectation at least the mutual information.",
        collapse="lower",
    ),
    _information(
        "mi_per_token",
        "nats per token",
        "MI with the term of each thought divided by the thought's length.",
        "mean((matched - marginal) / T): the form in the RAGEN-2 paper.",
        collapse="lower",
    ),
    _information(
        "mi_tempered",
        "nats",
        "MI from per-token means inside the mixture, a looser bound and not the MI.",
        "The form in the code that was released with the RAGEN-2 paper.",
        collapse="lower",
    ),
    _information(
        "mi_head_<k>",
        "nats",
        "MI of the first k tokens of each thought, comparable while lengths shrink.",
        "The first min(k, T) tokens. k = 16 and 32.",
        "N < 2; the scorer gave no scores of heads",
        "lower",
    ),
    _information(
        "n_reaching_<k>",
        "count",
        "Thoughts that have at least k tokens.",
        missing="no thought to score; the scorer gave no scores of heads",
    ),
    _information(
        "gap_per_token",
        "nats per token",
        "How much likelier the tokens of a thought are under its own prompt than under the others.",
        "Mean over i of (matched - weighted mean over the other prompts) / T. It has no ceiling and moves first. Watch "
        "it while MI is saturated.",
        collapse="lower",
    ),
    _information(
        "entropy_conditional_per_token",
        "nats per token",
        "H(Z given X) per token: how much thoughts vary when the prompt is held fixed.",
        "-mean(matched / T).",
        "no thought to score",
    ),
    _information(
        "entropy_conditional",
        "nats",
        "H(Z given X): how much thoughts vary for one prompt.",
        "-mean(matched).",
        "no thought to score",
    ),
    _information(
        "entropy_marginal_per_token",
        "nats per token",
        "H(Z) per token: how much thoughts vary over all prompts.",
        "-mean(marginal / T). The difference to H(Z given X) is the information.",
        "no thought to score",
    ),
    _information(
        "entropy_marginal",
        "nats",
        "H(Z): how much thoughts vary over all prompts.",
        "-mean(marginal). H(Z) = I + H(Z given X) holds row by row.",
        "no thought to score",
    ),
    _information(
        "zscore",
        "",
        "The per-token information in units of its spread over thoughts, as published.",
        "mean((matched - marginal) / T) / (std over thoughts of (marginal / T) + 1e-3).",
        collapse="lower",
    ),
    _information(
        "zscore_ema",
        "",
        "The z-score with a divisor that is smoothed over measurements.",
        "The divisor's std is .9 old + .1 new, and the first value is raw. As published, only the divisor is smoothed.",
        collapse="lower",
    ),
    _information("zscore_tempered", "", "The z-score of the tempered form.", collapse="lower"),
    _information("zscore_ema_tempered", "", "The smoothed z-score of the tempered form.", collapse="lower"),
)

RETRIEVAL = (
    _retrieval(
        "accuracy",
        "Thoughts whose own prompt scores highest among the batch's prompts; ties share the credit.",
        "N < 2",
        "lower",
    ),
    _retrieval("accuracy@<k>", "Thoughts whose own prompt is among the k best; k = 2, 4 and 8.", "N <= k", "lower"),
    _retrieval("chance", "The accuracy of guessing, exactly 1/N.", "N < 2"),
    _retrieval("chance@<k>", "The accuracy of guessing when k answers count, exactly k/N.", "N <= k"),
    _retrieval(
        "accuracy_2way",
        "Thoughts whose own prompt beats one rival drawn at random; does not depend on N.",
        "N < 2",
        "lower",
    ),
    _retrieval(
        "accuracy_8way",
        "Thoughts whose own prompt beats seven rivals drawn at random; does not depend on N.",
        "N < 8",
        "lower",
    ),
    _retrieval(
        "p_value",
        "The probability of such an accuracy if thoughts were independent of their prompts.",
        "N < 5",
        "higher",
        "",
    ),
)

TEXT = (
    _text(
        "judge_accuracy",
        "share",
        "Thoughts whose prompt a text classifier names.",
        "fewer than two prompts with 4 thoughts",
        "lower",
        "Character 1- to 4-grams, multinomial logistic regression, five folds within prompts. No language model takes "
        "part.",
    ),
    _text(
        "judge_accuracy_8way",
        "share",
        "Thoughts whose own prompt the text classifier prefers to seven rivals drawn at random.",
        "fewer than 8 prompts",
        "lower",
        "Exact from the ranks.",
    ),
    _text("judge_chance", "share", "The accuracy of guessing, 1/N.", "as `text/judge_accuracy`", None),
    _text(
        "template_share",
        "",
        "How alike thoughts are across prompts; 1 = as alike as thoughts of one prompt are.",
        "no prompt with two thoughts",
        "higher",
        "Share of a thought's word 3-grams found in thoughts of other prompts, over the share found in other thoughts "
        "of the same prompt. Both sides have equal numbers of thoughts. The mean over all draws is exact.",
    ),
)

DISTINCT_THOUGHTS = Entry(
    "text/distinct_thoughts",
    "share",
    "Different first thoughts in a group, divided by the number of its first thoughts.",
    "Thoughts are compared by token ids. Mean over groups, at least 1/G: compare values of equal group size.",
    "no group has two thoughts",
)

REGIME = (
    Entry(
        "regime[@<scorer>]/<scope>[/<environment>]",
        "label",
        "Diverse, template, compressed or low-entropy: information and entropy, each high or low; else undecided.",
        "Both are compared with their first three measurements.",
        "before the third measurement",
        cadence="measurement",
    ),
)
