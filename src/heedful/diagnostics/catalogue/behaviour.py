"""Metrics of what episodes look like: success, reward, format, length and entropy."""

from __future__ import annotations

from heedful.diagnostics.catalogue.entry import Cadence, Entry

_NO_TURN = "no turn was played"
_BY_EVAL = "Written by `heedful eval --json`."


def _evaluated(player: str, text: str, missing: str = "", cadence: Cadence = "evaluation") -> Entry:
    return Entry(f"eval/<split>/{player}/success", "share", text, "", missing, None, cadence)


EVALUATION = (
    _evaluated("sampled", "Success on tasks held out from training, sampled at the training temperature."),
    _evaluated("greedy", "Success on tasks held out from training when the likeliest token is always taken."),
    _evaluated(
        "random",
        "Success on the evaluated tasks of a player that draws valid actions uniformly, the lower baseline.",
        "the environment has no fixed list of actions",
    ),
    _evaluated(
        "fixed",
        "Success on the evaluated tasks of the best single policy that never reads its input.",
        "the environment offers no answer to a player who does not read; the search is off",
    ),
    *(
        Entry(f"eval/<split>/sampled/{name}", unit, text, _BY_EVAL, missing, None, "evaluation")
        for name, unit, text, missing in (
            (
                "any_of_group",
                "share",
                "Evaluated tasks that at least one sample solved.",
                "no episode was scored",
            ),
            ("valid_rate", "share", "Turns of the evaluation whose reply could be executed as written.", _NO_TURN),
            ("closed_rate", "share", "Turns of the evaluation whose thought was closed by its tag.", _NO_TURN),
            ("turns", "turns", "Mean number of turns of an evaluated trajectory.", "no episode"),
        )
    ),
    Entry(
        "gain/<kind>",
        "",
        "Evaluated success after training minus before, paired by task.",
        "Written to `verdict.json` for `sampled` and `greedy`.",
        "not evaluated before and after; no rollouts of evaluations kept",
        cadence="once",
    ),
    Entry(
        "forced/<kind>/success",
        "share",
        "Success when the thought is forced: the policy's own, another prompt's, or an empty one.",
        "`own`, `foreign` and `empty`. Written by a [study](studies.md) of forced thoughts.",
        cadence="once",
    ),
)

EPISODES = (
    Entry(
        "reward/mean",
        "reward",
        "Mean over trajectories of the sum of all reward components.",
        "Scored trajectories only.",
        "no episode was scored",
        "lower",
    ),
    Entry(
        "reward/<component>",
        "reward",
        "Mean over trajectories of the sum of this component.",
        "Scored trajectories only. The sum is over turns.",
        "no episode was scored",
        "lower",
    ),
    Entry(
        "success/rate",
        "share",
        "Trajectories with outcome 1, among those that were scored.",
        missing="no episode was scored",
        collapse="lower",
    ),
    Entry(
        "success/any_of_group",
        "share",
        "Groups in which at least one member succeeded.",
        missing="no episode was scored",
        collapse="lower",
    ),
    Entry(
        "success/progress",
        "0 to 1",
        "How far episodes got, with successes counted as 1.",
        "Mean over scored trajectories. It moves where success cannot: under a blind reward, or where success is rare.",
        "the environment reports no progress",
        "lower",
    ),
    Entry(
        "format/valid_rate",
        "share",
        "Turns whose reply could be executed as written.",
        missing=_NO_TURN,
        collapse="lower",
    ),
    Entry(
        "format/closed_rate",
        "share",
        "Turns whose thought was closed by its tag.",
        missing=_NO_TURN,
        collapse="lower",
    ),
    Entry(
        "format/trailing_tokens",
        "tokens",
        "Sampled tokens after the answer, which no environment reads.",
        "Mean over turns. The token that ends the turn is not counted.",
        _NO_TURN,
    ),
    Entry(
        "length/reasoning_tokens",
        "tokens",
        "Mean number of tokens of a thought, its closing tag included.",
        missing=_NO_TURN,
    ),
    Entry("length/response_tokens", "tokens", "Mean number of tokens of a reply.", missing=_NO_TURN),
    Entry("length/turns", "turns", "Mean number of turns of a trajectory.", missing="no episode"),
)

ENTROPY = (
    Entry(
        "policy/entropy_per_token",
        "nats per token",
        "Exact entropy of the next token under the sampling temperature, mean over sampled tokens.",
        missing="the sampler reports no entropies",
    ),
    Entry(
        "policy/thought_entropy_per_token",
        "nats per token",
        "Exact entropy of the next token, mean over the tokens of thoughts.",
        missing="as `policy/entropy_per_token`",
    ),
    Entry(
        "policy/answer_entropy_per_token",
        "nats per token",
        "Exact entropy of the next token, mean over the tokens of answers, given their thoughts.",
        "Where the thought decides, it is near 0. It rises early when the thought no longer decides.",
        "as `policy/entropy_per_token`",
    ),
    Entry(
        "policy/solved_entropy_per_token",
        "nats per token",
        "Exact entropy of the next token, mean over the sampled tokens of successful episodes.",
        "A changing share of failures, which have an entropy of their own, does not move it.",
        "no episode succeeded",
    ),
)
