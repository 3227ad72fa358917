"""How right first actions are, split by what carries it: the thought, the prompt past the thought, both, or chance.

Let C[k, j, l] be the probability of an action that is right for prompt k, under prompt j, behind a thought of prompt l.
Means over different k, j and l split it, and the parts add up exactly:

    right            = mean C[k, k, k]                   own prompt, own thought
    right_by_chance  = mean C[k, j, l]                   neither is k's
    right_by_thought = mean C[k, j, k] - by chance       the own thought under the prompts of others
    right_by_prompt  = mean C[k, k, l] - by chance       the own prompt behind the thoughts of others
    right_by_both    = right - the three parts           only own prompt and own thought together

Each mean is a U-statistic over different prompts, so it is unbiased at every number of prompts. Source: the three-way
decomposition of a mediated effect (VanderWeele 2013), with the thought as the mediator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from heedful.diagnostics.actions.exchanged import Exchange
from heedful.diagnostics.catalogue import CONFUSED, mark_of
from heedful.diagnostics.cross_scores.jackknife import Estimate, metric_from, rate_from
from heedful.types import Metric, Rightness, Worth

Floats = npt.NDArray[np.float64]

PARTS = ("", "_by_chance", "_by_thought", "_by_prompt", "_by_both")
RIGHTNESS_NAMES = (*(f"right{part}" for part in PARTS), *(f"agreed{part}" for part in PARTS), "foreign_lost")
"""Below `grounding/`, in this order."""

WORTH_NAMES = (*(f"worth{part}" for part in PARTS), "worth_lost")
"""Of whole answers, below `eval/<split>/<kind>/`, in this order."""

MOST_LOST = 0.1
"""More probability of no action under foreign prompts than this makes the parts doubtful."""

FEWEST_PROMPTS = 3
NO_RIGHT = "no right actions are known"
NO_WORTH = "how good whole answers are is not known"
NO_OTHERS = "no prompt has two replies with an executed action"


def carriers(
    readings: Mapping[str, Metric], head: str = "grounding/", labels: Sequence[str] = ("right", "agreed")
) -> tuple[str, Metric] | None:
    """Where right first actions come from, as a sentence without its full stop, and the part of the thought.

    Of agreement where no right actions are known. `None` if neither was measured. `readings`: by name. `head`: the
    names' beginning. `labels`: the first of them that was measured.
    """
    leads = {
        "right": "Of a probability of {} of a right first action",
        "agreed": "Of a probability of {} of another reply's first action (right ones are not known)",
        "worth": "Of a worth of {} of whole first answers, out of 1",
    }
    for label, lead in ((label, leads[label]) for label in labels):
        found = [readings.get(f"{head}{label}{part}", Metric("", None)) for part in PARTS]
        values = [f"{each.number:z.2f}" for each in found if each.number is not None]
        if len(values) == len(PARTS):
            whole, chance, thought, prompt, both = values
            by = found[PARTS.index("_by_thought")]
            if by.low is not None and by.high is not None:
                thought += f" [{by.low:z.2f}, {by.high:z.2f}]{mark_of(by)}"
            return (
                f"{lead.format(whole)}, {thought} comes from the thought, {prompt} from the prompt past the thought, "
                f"{both} from both together only, and {chance} is chance",
                by,
            )
    return None


def split(chances_NNN: Floats) -> Floats:
    """right, by chance, by thought, by prompt and by both (`PARTS`), from C[k, j, l]; NaN where not measured.

    If thoughts are read under some of the foreign prompts only, the part of the prompt is taken thought by thought: the
    own prompt k less the other foreign prompts that the same thought was read under. With all pairs that is the
    definition. NaN for a part that no entry tells.
    """
    places = np.arange(len(chances_NNN))
    foreign_NNN = chances_NNN.copy()  # neither prompt nor thought is k's, and the prompt is not the thought's own
    foreign_NNN[places, places], foreign_NNN[places, :, places], foreign_NNN[:, places, places] = np.nan, np.nan, np.nan
    by_own_thought_NN, by_own_prompt_NN = chances_NNN[places, :, places].copy(), chances_NNN[places, places].copy()
    right = mean_of_known(by_own_thought_NN.diagonal())
    np.fill_diagonal(by_own_thought_NN, np.nan)
    np.fill_diagonal(by_own_prompt_NN, np.nan)
    read_NNN = np.isfinite(foreign_NNN)
    with np.errstate(invalid="ignore"):
        base_NN = np.where(read_NNN, foreign_NNN, 0.0).sum(axis=1) / read_NNN.sum(axis=1)
    chance = mean_of_known(foreign_NNN)
    thought, prompt = mean_of_known(by_own_thought_NN) - chance, mean_of_known(by_own_prompt_NN - base_NN)
    return np.array([right, chance, thought, prompt, right - chance - thought - prompt])


def rightness(asked: Exchange, logprobs_MNS: Floats, right: Rightness) -> list[Metric]:
    """`RIGHTNESS_NAMES` of the exchanged thoughts: `right*` by the environment, `agreed*` by the other members.

    p(a | prompt, thought) adds up all spellings of an action. It is not divided by the sum over the actions, since no
    action is not right. `agreed` takes the share of each action among the other replies to the prompt as how right it
    is. `foreign_lost` is the probability of none of the batch's actions under a foreign prompt, less that under the
    own: where it is large, pairs of foreign prompt and thought confuse the model.

    Intervals are 95%, over prompts: `rate_interval` of `right` and `agreed`, and the jackknife of their parts. For all
    but the thought's, Student's t has a third of the degrees of freedom. Where each action is right equally often, the
    part of chance varies by pairs of prompts, and the jackknife of single prompts is too narrow.
    """
    if asked.why or asked.free:
        return [Metric(name, None, 0, why=asked.why or asked.free) for name in RIGHTNESS_NAMES]
    own_M, action_S, taken_M = np.asarray(asked.own_M), np.asarray(asked.action_S), np.asarray(asked.taken_M)
    chances_MNA, right_NA = action_chances(asked, logprobs_MNS), right_actions(asked, right)
    counts_NA = np.array(asked.counts_NA, dtype=np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        agreed_NA = counts_NA / counts_NA.sum(axis=1, keepdims=True)
        others_MA = counts_NA[own_M] - np.eye(asked.actions)[action_S[taken_M]]
        others_MA /= others_MA.sum(axis=1, keepdims=True)
    agreed_NA[counts_NA.sum(axis=1) < 2] = np.nan
    parts = [
        *_parts("right", chances_MNA, own_M, right_NA, right_NA[own_M], NO_RIGHT),
        *_parts("agreed", chances_MNA, own_M, agreed_NA, others_MA, NO_OTHERS),
    ]
    return marked(parts, _lost("foreign_lost", chances_MNA, own_M))


def worthiness(asked: Exchange, logprobs_MNS: Floats, worth: Worth | None) -> list[Metric]:
    """`WORTH_NAMES` of exchanged whole answers: how good they are, split as `rightness` splits right first actions.

    An answer that no reply of the batch wrote counts as 0, so the value is low as far as answers vary. `worth_lost` is
    the probability of such answers under foreign prompts, less that under own ones.
    """
    if asked.why or worth is None:
        return [Metric(name, None, 0, why=asked.why or NO_WORTH) for name in WORTH_NAMES]
    own_M, chances_MNA = np.asarray(asked.own_M), action_chances(asked, logprobs_MNS)
    worths = [[worth(task, reply) for reply in asked.names_A] for task in asked.tasks_N]
    worth_NA = np.array([[np.nan if each is None else each for each in row] for row in worths])
    parts = _parts("worth", chances_MNA, own_M, worth_NA, worth_NA[own_M], NO_WORTH)
    return marked(parts, _lost("worth_lost", chances_MNA, own_M))


def marked(metrics: Sequence[Metric], lost: Metric) -> list[Metric]:
    """The parts of rightness, with a reason that marks them where foreign prompts leave too little probability."""
    if lost.number is None or lost.number <= MOST_LOST:
        return [*metrics, lost]
    why = f"{CONFUSED}: {lost.name} is {lost.number:.2f}, above {MOST_LOST:g}"
    return [*(each if each.value is None else replace(each, why=why) for each in metrics), lost]


def action_chances(asked: Exchange, logprobs_MNS: Floats) -> Floats:
    """M x N x A: p(action a | prompt j, thought i), all spellings of an action added up. NaN where not asked."""
    action_S = np.asarray(asked.action_S)
    by_action = [np.exp(logprobs_MNS[:, :, action_S == action]).sum(axis=2) for action in range(asked.actions)]
    return np.stack(by_action, axis=2)


def right_actions(asked: Exchange, right: Rightness) -> Floats:
    """N x A: how right each action is for each prompt, from 0 to 1. NaN where the environment does not say."""
    worths = [right(task) for task in asked.tasks_N]
    nothing = dict.fromkeys(asked.names_A, np.nan)
    return np.array([[(nothing if w is None else w).get(name, 0.0) for name in asked.names_A] for w in worths])


def _parts(
    family: str, chances_MNA: Floats, own_M: npt.NDArray[np.int_], label_NA: Floats, own_label_MA: Floats, why: str
) -> list[Metric]:
    """The five metrics of one kind of label. `own_label_MA`: that of each thought's own prompt, for the thought."""
    names = [f"{family}{part}" for part in PARTS]
    prompts, rows = len(label_NA), int(np.isfinite(own_label_MA).all(axis=1).sum())
    if prompts < FEWEST_PROMPTS or not rows:
        few = f"needs at least {FEWEST_PROMPTS} prompts, found {prompts}"
        return [Metric(name, None, rows, why=few if prompts < FEWEST_PROMPTS else why) for name in names]
    chances_NNN = tensor(chances_MNA, own_M, label_NA, own_label_MA)
    values = split(chances_NNN)
    stays = [np.delete(np.arange(prompts), place) for place in range(prompts)]
    deleted_N5 = np.array([split(chances_NNN[np.ix_(left, left, left)]) for left in stays])
    if not np.isfinite(values).all():
        return [Metric(name, None, rows, why=f"too few prompts of which {why}") for name in names]
    return metrics_of_parts(names, values, deleted_N5, rows, "prompts")


def metrics_of_parts(
    names: Sequence[str], values: Floats, deleted_NP: Floats, rows: int, units: Literal["prompts", "episodes"]
) -> list[Metric]:
    """The whole, which is the first value, and its parts. `deleted_NP`: the values without each of the N units."""
    found = []
    for name, value, deleted_N in zip(names, values.tolist(), deleted_NP.T, strict=True):
        estimate = Estimate(value, deleted_N)
        if not np.isfinite(deleted_N).all():
            estimate = Estimate(value, None, f"without one of the {units} there is nothing to compare")
        degrees = None if name.endswith("_by_thought") else (len(deleted_NP) - 1) / 3
        part = metric_from(name, estimate, rows, floor=-1, ceiling=1, degrees=degrees)
        found.append(rate_from(name, estimate, rows) if name == names[0] else part)
    return found


def tensor(chances_MNA: Floats, own_M: npt.NDArray[np.int_], label_NA: Floats, own_label_MA: Floats) -> Floats:
    """C[k, j, l]: the mean over thoughts of prompt l of the sum over actions of label k times p(a | prompt j, thought).

    `label_NA`: how right each action is for each prompt. `own_label_MA`: that for each thought's own prompt, which may
    leave the thought's own reply out. NaN where a pair was not read, or a label is not known.
    """
    prompts = len(label_NA)
    behind_NNA = np.stack([chances_MNA[own_M == prompt].mean(axis=0) for prompt in range(prompts)], axis=1)
    chances_NNN: Floats = np.einsum("ka,jla->kjl", label_NA, behind_NNA)
    own_MN = np.einsum("ma,mja->mj", own_label_MA, chances_MNA)
    for prompt in range(prompts):
        chances_NNN[prompt, :, prompt] = own_MN[own_M == prompt].mean(axis=0)
    return chances_NNN


def _lost(name: str, chances_MNA: Floats, own_M: npt.NDArray[np.int_]) -> Metric:
    """The probability of no action under foreign prompts, less that under own ones. Prompts are deleted as they are
    read and as they are thought about."""
    lost_MN = 1 - chances_MNA.sum(axis=2)
    prompts = lost_MN.shape[1]
    lost_NN = np.stack([lost_MN[own_M == prompt].mean(axis=0) for prompt in range(prompts)])

    def difference(left_N: npt.NDArray[np.int_]) -> float:
        left_NN = lost_NN[np.ix_(left_N, left_N)].copy()
        own = mean_of_known(left_NN.diagonal())
        np.fill_diagonal(left_NN, np.nan)
        return mean_of_known(left_NN) - own

    value, places = difference(np.arange(prompts)), np.arange(prompts)
    if not np.isfinite(value):
        return Metric(name, None, 0, why=f"needs at least 2 prompts, found {prompts}")
    deleted_N = np.array([difference(np.delete(places, prompt)) for prompt in places])
    why = "" if np.isfinite(deleted_N).all() else "without one of the prompts there is nothing to compare"
    estimate = Estimate(value, None if why else deleted_N, why)
    return metric_from(name, estimate, len(own_M), floor=-1, ceiling=1)


def mean_of_known(values: Floats) -> float:
    """The mean of what was measured; NaN if nothing was."""
    measured = values[np.isfinite(values)]
    return float(measured.mean()) if len(measured) else float("nan")
