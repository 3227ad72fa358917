"""Metrics of what actions follow: the input, the thought, or neither."""

from __future__ import annotations

from heedful.diagnostics.catalogue.entry import read_entries

COUNTED = read_entries(
    """
    grounding[/<environment>]/input_to_action | nats | lower
    I(X;A): what the first action tells about the prompt, corrected for few prompts and few actions. H(A) with the
    jackknife's correction over prompts, minus H(A|X) with the bias of a Dirichlet model. At most the log of the number
    of actions that occur. May be negative.
    Missing: fewer than two prompts with 4 actions; free text
    Cadence: measurement
    Covers: 78% with 8 prompts that mostly agree
    Marked: clusters < 5

    grounding[/<environment>]/input_to_action_plugin | nats
    I(X;A) as counted, with the part that chance adds when a prompt has few actions.
    Missing: as `grounding/input_to_action`
    Cadence: measurement

    grounding[/<environment>]/input_to_action_p_value
    The probability of such an I(X;A) if actions were independent of their prompts. (1 + permutations with as large a
    plug-in) / (200 + 1).
    Missing: as `grounding/input_to_action`
    Cadence: measurement

    grounding/strategy_entropy | nats
    Entropy of the executed action sequences within a group. Mean over groups, at most log G: compare values of equal
    group size.
    Missing: no group has two episodes

    grounding/distinct_strategies | share
    Different executed action sequences in a group, divided by the group's episodes. Mean over groups, at least 1/G:
    compare values of equal group size.
    Missing: no group has two episodes

    grounding/oscillation_rate | share
    Turns that repeat an earlier turn or change nothing, of all turns. A turn counts in three cases. It repeats an
    earlier turn of its episode (same actions, same state after). It changes no state. It is a first turn of which
    nothing could be executed. Only turns whose state is reported are considered.
    Missing: no state reported
    """,
)

ASKED = read_entries(
    """
    reasoning_to_action | nats | lower
    I(Z;A given X): how much likelier the action is after its own thought than after its group's thoughts. Mean of log
    p(s_i, own(i), thought i) - log mean over m of p(s_i, own(i), thought m). m runs over the measured thoughts of the
    same prompt, its own included. At most the ceiling.
    Missing: every prompt has one distinct thought; all actions equal
    Covers: 74% with 8 prompts of 2 thoughts
    Marked: clusters < 5

    reasoning_to_action_ceiling | nats
    The entropy of a group's thoughts, the largest value that I(Z;A given X) can take. Equal thoughts are counted
    together. Mean over thoughts.
    Missing: as `grounding/reasoning_to_action`

    reasoning_to_action_loo | nats
    I(Z;A given X) with the own thought left out of the mixture, an upper bracket. Thoughts equal to the own one are
    left out too. It is a bracket in expectation. Only rows with a rival count.
    Missing: as `grounding/reasoning_to_action`
    Covers: 54% with 8 prompts of 2 thoughts
    Marked: clusters < 5

    direct_input_to_action | nats
    How much the action still depends on the prompt when the thought is kept; 0 = it follows the thought alone. The
    prompt is swapped: mean of log p(s_i, own(i), thought i) - log sum_j w_j p(s_i, j, thought i). At most the entropy
    of the prompts' shares.
    Missing: N < 2

    foreign_thought_obeyed | −1 to 1 | lower
    Own prompt with another prompt's thought: share that follows that thought minus share that keeps its action. Only
    pairs count in which the two thoughts have different likeliest actions under their own prompts. The likeliest action
    is compared.
    Missing: N < 2; no such pair; free text

    thought_influence | 0 to 1 | lower
    How far the distribution of the first action moves when the thought is replaced by another prompt's thought. Total
    variation distance, mean over all pairs. It says that the action depends on the thought, not that the thought is
    right.
    Missing: N < 2; free text

    thought_influence_same_prompt | 0 to 1 | lower
    How far the distribution of the first action moves with another thought of the same prompt. The other thought may be
    an equal one, at distance 0.
    Missing: no prompt has two thoughts; free text
    Covers: 85% with 8 prompts of 2 thoughts
    Marked: clusters < 5
    """,
    prefix="grounding[@<scorer>][/<environment>]/",
    cadence="full measurement",
)
