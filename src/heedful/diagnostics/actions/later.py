"""How right the first actions of later turns are, split by what carries it: memory, thought, observation, or chance.

At a later turn the context has a history and a last observation. Let C[k, m, j, l] be the probability of an action that
is right for episode k, behind the history of episode m, the last observation of j and the thought of l. Means over
different episodes split it, and the parts add up exactly:

    right          = mean C[k, k, k, k]
    by_chance      = mean C[k, m, j, l]                    nothing is k's
    by_memory      = mean C[k, k, j, l] - by_chance        the own history alone
    by_thought     = mean C[k, k, j, k] - C[k, k, j, l]    the own thought, with the own history kept
    by_observation = mean C[k, k, k, l] - C[k, k, j, l]    the own last observation, with the own history kept
    by_both        = right - the other parts               only observation and thought together

Without histories (agents that keep none) the part of the memory is 0, and the rest is the split of first turns.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from heedful.diagnostics.actions.exchanged import FOREIGN, Acted, Ids, block, spelled_actions
from heedful.diagnostics.actions.rightness import marked, mean_of_known, metrics_of_parts
from heedful.diagnostics.cross_scores.jackknife import Estimate, metric_from
from heedful.diagnostics.cross_scores.thoughts import observed
from heedful.types import Group, Metric, Rightness, Task, Trajectory

Floats = npt.NDArray[np.float64]

LATER_PARTS = ("", "_by_chance", "_by_memory", "_by_thought", "_by_observation", "_by_both")
LATER_NAMES = (*(f"later_right{part}" for part in LATER_PARTS), "later_foreign_lost")
"""Below `grounding/`, in this order."""

FEWEST_EPISODES = 4
Read = tuple[int, int, int]
"""The episodes of a history, a last observation and a thought that are read together."""


@dataclass(frozen=True, slots=True)
class LaterExchange:
    """One later turn of each of M episodes of different tasks, and S spellings of the first actions of such turns."""

    histories_M: tuple[Ids, ...] = ()
    """Token ids of each context up to its last observation. Empty where an agent keeps no history."""
    observations_M: tuple[Ids, ...] = ()
    """Token ids from the last observation to the next generation prompt."""
    thoughts_M: tuple[Ids, ...] = ()
    """All that was sampled up to the end of the thought."""
    tasks_M: tuple[Task, ...] = ()
    before_M: tuple[tuple[tuple[str, ...], ...], ...] = ()
    """The executed actions of each turn before."""
    spellings_S: tuple[Ids, ...] = ()
    action_S: tuple[int, ...] = ()
    """Number of the action that each spelling writes, from 0."""
    names_A: tuple[str, ...] = ()
    foreign: int = FOREIGN
    """Fewest other episodes with which an episode is exchanged, if there are so many. They are read in blocks."""
    why: str = ""
    """Why there is nothing to ask."""

    @property
    def reads(self) -> list[Read]:
        """What is read behind each history: all four cases of own and foreign observation and thought.

        Each foreign thought and each foreign observation occurs equally often with and without its counterpart. So the
        part of the thought is exactly 0 where thoughts change nothing, and likewise that of the observation.
        """
        found = []
        for own in range(len(self.thoughts_M)):
            others = [row for row in block(own, len(self.thoughts_M), self.foreign) if row != own]
            found.append((own, own, own))
            found += [(own, other, own) for other in others]
            found += [(own, own, other) for other in others]
            found += [(own, *pair) for pair in zip(others, others[1:] + others[:1], strict=True) if len(others) > 1]
        return found

    def context(self, read: Read) -> tuple[Ids, Ids]:
        """The prompt that other readings share, and what follows it up to the action.

        It is the history, unless there is none. Pictures are met in prompts alone.
        """
        history, observation, thought = read
        kept, shown = self.histories_M[history], self.observations_M[observation]
        if kept and min(shown, default=0) >= 0:
            return kept, (*shown, *self.thoughts_M[thought])
        return (*kept, *shown), self.thoughts_M[thought]


def later_exchange(groups: Sequence[Group], rng: random.Random, rows: int = 8) -> LaterExchange:
    """What to ask about later turns: one of the first episode of each task that has any, of `rows` tasks at most.

    The turn is drawn from those of the episode with a thought and an executed action, from the second on. The spellings
    are those of all such turns of the batch. The groups must be of one environment.
    """
    acted = {
        (number, member, turn): found
        for number, group in enumerate(groups)
        for member, one in enumerate(group.trajectories)
        for turn in range(1, len(one.turns))
        if (found := Acted.of(one, turn)) is not None
    }
    spelled = spelled_actions(list(acted.values()), "later turn")
    if spelled.why or spelled.free:
        return LaterExchange(why=spelled.why or spelled.free)
    chosen: dict[str, tuple[Trajectory, int]] = {}
    for number, group in enumerate(groups):
        member = min((at[1] for at in acted if at[0] == number), default=None)
        if member is not None and group.task.id not in chosen and len(chosen) < rows:
            turn = rng.choice([at[2] for at in acted if at[:2] == (number, member)])
            chosen[group.task.id] = group.trajectories[member], turn
    contexts = [observed(*one) for one in chosen.values()]
    replies = [trajectory.turns[turn].reply for trajectory, turn in chosen.values()]
    return LaterExchange(
        histories_M=tuple(history for history, _ in contexts),
        observations_M=tuple(observation for _, observation in contexts),
        thoughts_M=tuple(reply.ids[: reply.thought.end] for reply in replies),
        tasks_M=tuple(trajectory.task for trajectory, _ in chosen.values()),
        before_M=tuple(
            tuple(turn.actions for turn in trajectory.turns[:number]) for trajectory, number in chosen.values()
        ),
        spellings_S=tuple(spelled.action_S),
        action_S=tuple(spelled.action_S.values()),
        names_A=spelled.names_A,
    )


def later_rightness(
    asked: LaterExchange, logprobs_RS: Floats, right: Rightness, place: str = "", scorer: str = ""
) -> list[Metric]:
    """`LATER_NAMES` below `grounding[@<scorer>][/<environment>]/`, from log p(spelling s | read r) for `asked.reads`.

    Probabilities of all spellings of an action are added, and not divided by their sum. Intervals are 95%: an episode
    is left out as history, as observation, as thought and as task. Degrees of freedom are as in `rightness`.
    """
    head = f"grounding@{scorer}{place}" if scorer else f"grounding{place}"
    episodes, why = len(asked.thoughts_M), asked.why
    if not why and episodes < FEWEST_EPISODES:
        why = f"needs at least {FEWEST_EPISODES} tasks with a later turn, found {episodes}"
    if not why and not np.isfinite(logprobs_RS).all():
        why = "the scores hold NaN or infinite values"
    if why:
        return [Metric(f"{head}/{name}", None, 0, why=why) for name in LATER_NAMES]
    action_S = np.asarray(asked.action_S)
    by_action = [np.exp(logprobs_RS[:, action_S == action]).sum(axis=1) for action in range(len(asked.names_A))]
    chances_RA, reads_R3 = np.stack(by_action, axis=1), np.array(asked.reads)
    worths = [right(task, before) for task, before in zip(asked.tasks_M, asked.before_M, strict=True)]
    nothing = dict.fromkeys(asked.names_A, np.nan)
    right_MA = np.array([[(nothing if w is None else w).get(name, 0.0) for name in asked.names_A] for w in worths])
    parts = _parts(right_MA @ chances_RA.T, reads_R3, any(asked.histories_M))
    metrics = marked(parts, _lost(1 - chances_RA.sum(axis=1), reads_R3))
    return [replace(metric, name=f"{head}/{metric.name}") for metric in metrics]


def later_split(chances_MR: Floats, reads_R3: npt.NDArray[np.int_], remembers: bool, left_out: int = -1) -> Floats:
    """right and its parts (`LATER_PARTS`); NaN for a part that no reading tells.

    Args:
        chances_MR: probability of an action that is right for episode k in each reading; NaN where not known.
        reads_R3: history, observation and thought of each reading, distinct triples.
        remembers: False if no context has a history: then the part of the memory is 0.
        left_out: an episode that takes no part.

    Parts of thought and observation are taken reading by reading: the own one less the foreign one that differs from it
    in nothing else. All means are over the same readings of a foreign observation and a foreign thought behind the own
    history. So a part that nothing tells is exactly 0, whatever is left out.
    """
    history_R, observation_R, thought_R = reads_R3.T
    numbers = {tuple(read): number for number, read in enumerate(reads_R3.tolist())}
    left_R = (reads_R3 != left_out).all(axis=1)
    own_R = chances_MR[history_R, np.arange(len(reads_R3))]  # right for the episode of the history
    foreign_R = (observation_R != history_R) & (thought_R != history_R) & (observation_R != thought_R) & left_R
    alone = np.flatnonzero(foreign_R)
    alike = [(numbers[h, h, h], numbers[h, o, h], numbers[h, h, z]) for h, o, z in reads_R3[alone].tolist()]
    whole, thoughts, observations = np.array(alike, dtype=np.int_).reshape(-1, 3).T
    # Neither history nor what follows it is of the episode that is asked about.
    places_M1 = np.arange(len(chances_MR))[:, None]
    apart_MR = (places_M1[:, :, None] != reads_R3).all(axis=2) & (places_M1 != left_out) & foreign_R
    right, kept = mean_of_known(own_R[whole]), mean_of_known(own_R[alone])
    chance = mean_of_known(chances_MR[apart_MR]) if remembers else kept
    thought, observation = (mean_of_known(own_R[found] - own_R[alone]) for found in (thoughts, observations))
    return np.array([right, chance, kept - chance, thought, observation, right - kept - thought - observation])


def _parts(chances_MR: Floats, reads_R3: npt.NDArray[np.int_], remembers: bool) -> list[Metric]:
    names, episodes = LATER_NAMES[: len(LATER_PARTS)], len(chances_MR)
    known = int(np.isfinite(chances_MR).all(axis=1).sum())
    values = later_split(chances_MR, reads_R3, remembers)
    if not np.isfinite(values).all():
        why = f"too few episodes of which right actions are known: {known}"
        return [Metric(name, None, known, why=why if known else "no right actions are known") for name in names]
    deleted_M6 = np.array([later_split(chances_MR, reads_R3, remembers, episode) for episode in range(episodes)])
    return metrics_of_parts(names, values, deleted_M6, known, "episodes")


def _lost(lost_R: Floats, reads_R3: npt.NDArray[np.int_]) -> Metric:
    """The probability of no action of the batch where something is exchanged, less that where nothing is."""
    own_R = (reads_R3 == reads_R3[:, :1]).all(axis=1)

    def difference(left_R: npt.NDArray[np.bool_]) -> float:
        return float(lost_R[left_R & ~own_R].mean() - lost_R[left_R & own_R].mean())

    deleted_M = np.array([difference((reads_R3 != episode).all(axis=1)) for episode in range(int(reads_R3.max()) + 1)])
    estimate = Estimate(difference(np.ones(len(reads_R3), dtype=bool)), deleted_M)
    return metric_from("later_foreign_lost", estimate, len(deleted_M), floor=-1, ceiling=1)
