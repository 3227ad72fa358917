"""Metrics of what thoughts tell of their prompts: information, retrieval, regime and text."""

from __future__ import annotations

from heedful.diagnostics.catalogue.entry import read_entries

INFORMATION = read_entries(
    """
    mi | nats | lower
    Mutual information of thought and prompt, I(Z;X), for this batch's prompts. mean(matched - marginal), the plug-in.
    At most `mi_ceiling`.
    Covers: 0% of the information of all prompts, from about 2 nats on; it is for this number of prompts
    Marked: value > 0.3

    mi_ceiling | nats | lower
    The entropy of the prompts' shares, which is the largest value that MI can take. log N when every prompt has the
    same number of thoughts.
    Missing: no thought to score

    mi_saturated | 0 or 1 | lower
    MI is at least 95% of its ceiling and says only "not collapsed".

    mi_loo | nats | lower
    MI with the own prompt left out of the mixture, an upper bracket. In expectation at least the mutual information.
    Covers: 83% where scores have heavy tails
    Marked: clusters < 4

    mi_per_token | nats per token | lower
    MI with the term of each thought divided by the thought's length. mean((matched - marginal) / T): the form in the
    RAGEN-2 paper.

    mi_tempered | nats | lower
    MI from per-token means inside the mixture, a looser bound and not the MI. The form in the code that was released
    with the RAGEN-2 paper.

    mi_head_<k> | nats | lower
    MI of the first k tokens of each thought, comparable while lengths shrink. The first min(k, T) tokens. k = 16 and
    32.
    Missing: N < 2; the scorer gave no scores of heads

    n_reaching_<k> | count
    Thoughts that have at least k tokens.
    Missing: no thought to score; the scorer gave no scores of heads

    gap | nats
    How much likelier a thought is under its own prompt than under the others. Mean over i of (matched - weighted mean
    over the other prompts). It has no ceiling, and words that are equally likely under every prompt do not move it.
    The alarms of collapse read it.
    Covers: 87% where scores have heavy tails
    Marked: clusters < 4

    gap_per_token | nats per token | lower
    How much likelier the tokens of a thought are under its own prompt than under the others. Mean over i of (matched -
    weighted mean over the other prompts) / T. It has no ceiling and moves first. Watch it while MI is saturated. It
    falls when thoughts get longer and say as much as before: read it with `gap` and `thought_tokens`.
    Covers: 87% where scores have heavy tails
    Marked: clusters < 4

    thought_tokens | tokens
    Mean number of tokens T of the thoughts that were scored, their end included.
    Missing: no thought to score
    Covers: 68% where nearly all tasks are alike and few differ
    Marked: clusters < 3

    entropy_conditional_per_token | nats per token
    H(Z given X) per token: how much thoughts vary when the prompt is held fixed. -mean(matched / T).
    Missing: no thought to score

    entropy_conditional | nats
    H(Z given X): how much thoughts vary for one prompt. -mean(matched).
    Missing: no thought to score

    entropy_marginal_per_token | nats per token
    H(Z) per token: how much thoughts vary over all prompts. -mean(marginal / T). The difference to H(Z given X) is the
    information.
    Missing: no thought to score

    entropy_marginal | nats
    H(Z): how much thoughts vary over all prompts. -mean(marginal). H(Z) = I + H(Z given X) holds row by row.
    Missing: no thought to score

    zscore | | lower
    The per-token information in units of its spread over thoughts, as published. mean((matched - marginal) / T) / (std
    over thoughts of (marginal / T) + 1e-3).

    zscore_ema | | lower
    The z-score with a divisor that is smoothed over measurements. The divisor's std is .9 old + .1 new, and the first
    value is raw. As published, only the divisor is smoothed.

    zscore_tempered | | lower
    The z-score of the tempered form.

    zscore_ema_tempered | | lower
    The smoothed z-score of the tempered form.
    """,
    prefix="information[@<scorer>]/<scope>[/<environment>]/",
    missing="N < 2",
    cadence="measurement",
)

IMAGE = read_entries(
    """
    information[@<scorer>]/image_given_text[/<environment>]/mi | nats
    Mutual information of thought and picture given the text, I(picture; Z given the text). The plug-in among prompts of
    first turns that differ in pictures alone. Mean over the thoughts that have such a prompt.
    Missing: no two prompts share a text
    Covers: 0% of the information of all prompts, from about 2 nats on; it is for this number of prompts
    Marked: value > 0.3

    information[@<scorer>]/image_given_text[/<environment>]/mi_ceiling | nats
    The entropy of the prompts' shares among the prompts of one text. Mean over the same thoughts.
    Missing: no two prompts share a text

    grounding[@<scorer>][/<environment>]/image_share
    The gap where pictures are exchanged, divided by the gap where pictures and texts are. `gap` of `image` over `gap`
    of `first_turn`, of the same thoughts. 1 = the thought follows the picture alone, 0 = it ignores the picture. May be
    below 0 or above 1.
    Missing: N < 3; the interval of the divisor includes 0
    """,
    cadence="full measurement",
)

RETRIEVAL = read_entries(
    """
    accuracy | share | lower
    Thoughts whose own prompt scores highest among the batch's prompts; ties share the credit.

    accuracy@<k> | share | lower
    Thoughts whose own prompt is among the k best; k = 2, 4 and 8.
    Missing: N <= k

    chance | share
    The accuracy of guessing, exactly 1/N.

    chance@<k> | share
    The accuracy of guessing when k answers count, exactly k/N.
    Missing: N <= k

    accuracy_2way | share | lower
    Thoughts whose own prompt beats one rival drawn at random; does not depend on N.

    accuracy_8way | share | lower
    Thoughts whose own prompt beats seven rivals drawn at random; does not depend on N.
    Missing: N < 8

    p_value | | higher
    The probability of such an accuracy if thoughts were independent of their prompts.
    Missing: N < 5
    """,
    prefix="retrieval[@<scorer>]/<scope>[/<environment>]/",
    missing="N < 2",
    cadence="measurement",
)

TEXT = read_entries(
    """
    judge_accuracy | share | lower
    Thoughts whose prompt a text classifier names. Character 1- to 4-grams, multinomial logistic regression, five folds
    within prompts. No language model takes part.
    Missing: fewer than two prompts with 4 thoughts

    judge_accuracy_8way | share | lower
    Thoughts whose own prompt the text classifier prefers to seven rivals drawn at random. Exact from the ranks.
    Missing: fewer than 8 prompts

    judge_chance | share
    The accuracy of guessing, 1/N.
    Missing: as `text/judge_accuracy`

    template_share | | higher
    How alike thoughts are across prompts; 1 = as alike as thoughts of one prompt are. Share of a thought's word 3-grams
    found in thoughts of other prompts, over the share found in other thoughts of the same prompt. Both sides have equal
    numbers of thoughts. The mean over all draws is exact.
    Missing: no prompt with two thoughts
    Covers: 81% where nearly all thoughts are templates
    Marked: value > 0.8
    """,
    prefix="text/",
    cadence="full measurement",
)

REGIME = read_entries(
    """
    regime[@<scorer>]/<scope>[/<environment>] | label
    Diverse, template, compressed or low-entropy: information and entropy, each high or low; else undecided. Both are
    compared with their first three measurements.
    Missing: before the third measurement
    """,
    cadence="measurement",
)
