"""Metrics of what episodes look like: success, reward, format, length and entropy."""

from __future__ import annotations

from heedful.diagnostics.catalogue.entry import read_entries

EVALUATION = read_entries(
    """
    eval/<split>/sampled/success | share
    Success on tasks held out from training, sampled at the training temperature.

    eval/<split>/greedy/success | share
    Success on tasks held out from training when the likeliest token is always taken.
    Covers: 85% where 0.2 successes are expected
    Marked: rarer < 2

    eval/<split>/random/success | share
    Success on the evaluated tasks of a player that draws valid actions uniformly, the lower baseline.
    Missing: the environment has no fixed list of actions
    Covers: 85% where 0.2 successes are expected
    Marked: rarer < 2

    eval/<split>/fixed/success | share
    Success on the evaluated tasks of the best single policy that never reads its input.
    Missing: the environment offers no answer to a player who does not read; the search is off
    Covers: 85% where 0.2 successes are expected
    Marked: rarer < 2

    eval/<split>/best/success | share
    Success on the evaluated tasks of the best possible policy that reads its input, computed exactly. FrozenLake
    knows it, by value iteration. Where moves slip, it is below 1.
    Missing: the environment does not know it for every task

    eval/<split>/sampled/any_of_group | share
    Evaluated tasks that at least one sample solved. Written by `heedful eval --json`.
    Missing: no episode was scored

    eval/<split>/sampled/valid_rate | share
    Turns of the evaluation whose reply could be executed as written. Written by `heedful eval --json`.
    Missing: no turn was played

    eval/<split>/sampled/closed_rate | share
    Turns of the evaluation whose thought was closed by its tag. Written by `heedful eval --json`.
    Missing: no turn was played

    eval/<split>/sampled/turns | turns
    Mean number of turns of an evaluated trajectory. Written by `heedful eval --json`.
    Missing: no episode
    Covers: 76% where nearly all tasks are alike and few differ
    Marked: clusters < 3

    gain/<kind>
    Evaluated success after training minus before, paired by task. Written to `verdict.json` for `sampled` and `greedy`.
    Missing: not evaluated before and after; no rollouts of evaluations kept
    Cadence: once
    Covers: 85% with 32 tasks of one sample, of which a tenth is learned
    Marked: clusters < 3

    forced/<kind>/success | share
    Success when the thought is forced: the policy's own, another prompt's, or an empty one. `own`, `foreign` and
    `empty`. Written by a [study](studies.md) of forced thoughts.
    Cadence: once
    Covers: 85% where 0.2 successes are expected
    Marked: rarer < 2
    """,
    cadence="evaluation",
)

EPISODES = read_entries(
    """
    reward/mean | reward | lower
    Mean over trajectories of the sum of all reward components. Scored trajectories only.
    Missing: no episode was scored
    Covers: 79% where nearly all tasks are alike and few differ
    Marked: clusters < 3

    reward/<component> | reward | lower
    Mean over trajectories of the sum of this component. Scored trajectories only. The sum is over turns.
    `mean` is `reward/component/mean`.
    Missing: no episode was scored
    Covers: 82% where nearly all tasks are alike and few differ
    Marked: clusters < 3

    success/rate | share | lower
    Trajectories with outcome 1, among those that were scored.
    Missing: no episode was scored

    success/any_of_group | share | lower
    Groups in which at least one member succeeded.
    Missing: no episode was scored

    success/progress | 0 to 1 | lower
    How far episodes got, with successes counted as 1. Mean over scored trajectories. It moves where success cannot:
    under a blind reward, or where success is rare.
    Missing: the environment reports no progress
    Covers: 87% where nearly all tasks are alike and few differ
    Marked: clusters < 3

    format/valid_rate | share | lower
    Turns whose reply could be executed as written.
    Missing: no turn was played

    format/closed_rate | share | lower
    Turns whose thought was closed by its tag.
    Missing: no turn was played

    format/trailing_tokens | tokens
    Sampled tokens after the answer, which no environment reads. Mean over turns. The token that ends the turn is not
    counted.
    Missing: no turn was played

    length/reasoning_tokens | tokens
    Mean number of tokens of a thought, its closing tag included.
    Missing: no turn was played
    Covers: 68% where nearly all tasks are alike and few differ
    Marked: clusters < 3

    length/response_tokens | tokens
    Mean number of tokens of a reply.
    Missing: no turn was played
    Covers: 76% where nearly all tasks are alike and few differ
    Marked: clusters < 3

    length/turns | turns
    Mean number of turns of a trajectory.
    Missing: no episode
    Covers: 76% where nearly all tasks are alike and few differ
    Marked: clusters < 3
    """,
)

ENTROPY = read_entries(
    """
    policy/entropy_per_token
    Exact entropy of the next token under the sampling temperature, mean over sampled tokens.
    Missing: the sampler reports no entropies
    Covers: 88% where nearly all tasks are alike and few differ
    Marked: clusters < 3

    policy/thought_entropy_per_token
    Exact entropy of the next token, mean over the tokens of thoughts.
    Missing: as `policy/entropy_per_token`
    Covers: 89% where nearly all tasks are alike and few differ
    Marked: clusters < 3

    policy/answer_entropy_per_token
    Exact entropy of the next token, mean over the tokens of answers, given their thoughts. Where the thought decides,
    it is near 0. It rises early when the thought no longer decides.
    Missing: as `policy/entropy_per_token`
    Covers: 90% where nearly all tasks are alike and few differ
    Marked: clusters < 3

    policy/solved_entropy_per_token
    Exact entropy of the next token, mean over the sampled tokens of successful episodes. A changing share of failures,
    which have an entropy of their own, does not move it.
    Missing: no episode succeeded
    Covers: 88% where nearly all tasks are alike and few differ
    Marked: clusters < 3

    text/distinct_thoughts | share
    Different first thoughts in a group, divided by the number of its first thoughts. Thoughts are compared by token
    ids. Mean over groups, at least 1/G: compare values of equal group size.
    Missing: no group has two thoughts
    """,
    unit="nats per token",
)
