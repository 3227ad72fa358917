"""What each part of an update does to readings of fresh thoughts: from groups and an update to numbers.

The thoughts that read must not be those that made the update: the score of a thought would meet itself. Given the
update, the parts are then unbiased. Promise: reading changes no byte of the training that follows.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from heedful.diagnostics.actions.exchanged import Acted, Ids, Spelled, spelled_actions
from heedful.diagnostics.attribution import Attribution, Moved
from heedful.diagnostics.cross_scores.thoughts import Thoughts, ThoughtTags, first_turn_thoughts
from heedful.protocols import Estimator, Scorer
from heedful.seeds import stream
from heedful.training.gradients.adamw import Tensors, product
from heedful.training.gradients.components import split_advantages
from heedful.training.gradients.readings import (
    READINGS,
    Answers,
    Floats,
    Reading,
    Sampled,
    action_weights,
    change,
    drawn_foreign,
    path_weights,
    score_weights,
    worths_by_thought,
)
from heedful.training.gradients.slopes import at_weights, score_sums, slopes, weighted_gradient
from heedful.training.gradients.update_parts import TermMoments, UpdateParts
from heedful.training.learner import Learner
from heedful.training.samples import Row, merge_rows
from heedful.types import Group, Rightness, TrainingSample, Verdict, nothing_right

DETAILED = ("success", "gap")
"""The readings of which episodes and tokens are told."""
MOST_MOVED = 5


@dataclass(frozen=True, slots=True)
class _Block:
    """The thoughts of some prompts, and the rows that their readings are made of."""

    thoughts: Thoughts
    episodes: Sequence[TrainingSample]
    names: Sequence[tuple[int, int]]
    """The group and member of each scored episode, in order."""
    owners_M: Sequence[int]
    """The group of each scored episode, from 0."""
    outcomes_M: Sequence[float]
    order: Sequence[Sequence[int]]
    """For each thought the foreign prompts in a drawn order."""
    spellings_S: Sequence[Ids] = ()
    """The first actions, as tokens behind a thought."""
    worths_MNS: Floats | None = None
    """What each counts for in `right_by_thought`. `None`: it is not read."""


class Attributor:
    """Splits updates of one learner, as fresh groups that its policy sampled read them."""

    def __init__(
        self,
        learner: Learner,
        scorer: Scorer,
        tags: ThoughtTags,
        *,
        readings: Collection[str] = tuple(READINGS),
        moments: TermMoments | None = None,
        blocks: int = 6,
        foreign: int = 2,
        right: Rightness = nothing_right,
        seed: int = 0,
    ) -> None:
        """`scorer`: of the learner's own model. `readings`: those of `READINGS` to read, others are passed over.
        `blocks`: parts of the prompts that share nothing. `foreign`: prompts that the pathwise part of a thought is
        drawn from, by `seed`. `right`: how right each first action is, where the environment can tell."""
        self.learner = learner
        self.moments = moments
        self._asked = {name: reading for name, reading in READINGS.items() if name in readings}
        self._right = right
        self._scorer = scorer
        self._tags = tags
        self._blocks = blocks
        self._foreign = foreign
        self._seed = seed
        self._read: list[_Block] = []
        self._before: list[dict[bool, Sampled]] = []
        self._weights: list[torch.Tensor] = []
        self._missing: dict[str, str] = {}
        self._why = ""

    def read(self, step: int, groups: Sequence[Group]) -> None:
        """Read fresh groups at the weights before the update of `step`."""
        size = len(groups) // self._blocks
        cut = [groups[place * size : (place + 1) * size] for place in range(self._blocks)]
        self._read = [self._block(own, stream(self._seed, "foreign", step, place)) for place, own in enumerate(cut)]
        fewest = min((len(block.thoughts.prompts_N) for block in self._read), default=0)
        self._why = "" if fewest > 1 else "a block of fresh episodes has fewer than two prompts with a thought"
        self._missing = {}
        if any(reading.acts for reading in self._asked.values()) and (why := self._read_actions(groups)):
            self._missing = {name: why for name, reading in self._asked.items() if reading.acts}
        if not self._why:
            self._before = [self._sampled(block) for block in self._read]
            self._weights = [one.detach().clone() for one in self.learner.parameters]

    def begin(
        self, samples: Sequence[TrainingSample], rows: Sequence[Row], groups: Sequence[Group], estimator: Estimator
    ) -> None:
        """Split the update that comes, on these samples of these rows."""
        if self._read or self.moments is not None:
            advantages = split_advantages(samples, rows, groups, estimator)
            self.learner.splits_steps = UpdateParts(self.learner, advantages, self.moments)

    def finish(self) -> Attribution | None:
        """What the update did; `None` where no fresh groups were read before it."""
        split, self.learner.splits_steps = self.learner.splits_steps, None
        read, self._read = self._read, []
        if not read:
            return None
        if self._why or not isinstance(split, UpdateParts) or not split.parts:
            why = self._why or "the update changed no weight"
            return Attribution({}, {}, {}, 0, missing=dict.fromkeys(self._asked, why), why=why)
        asked = {name: reading for name, reading in self._asked.items() if name not in self._missing}
        before, weights, self._before, self._weights = self._before, self._weights, [], []
        after = [self._sampled(block) for block in read]
        parts: dict[str, dict[str, list[float]]] = {name: {part: [] for part in split.parts} for name in asked}
        means: dict[str, Tensors] = {}
        with at_weights(self.learner, weights):
            for block, at in zip(read, before, strict=True):
                for name, reading in asked.items():
                    rows, weights_B = self._rows(reading, block, at[reading.whole])
                    gradient = weighted_gradient(self.learner, rows, weights_B)
                    for part, step in split.parts.items():
                        parts[name][part].append(product(gradient, step))
                    if name in DETAILED:
                        known = means.get(name)
                        means[name] = gradient if known is None else list(map(torch.add, known, gradient))
            moved = [
                one
                for name, total in means.items()
                for one in self._moved(name, split, [each / len(read) for each in total])
            ]
        pairs = list(zip(before, after, strict=True))
        return Attribution(
            before={
                name: [float(at.counts_M @ reading.value(at)) for at in (one[reading.whole] for one in before)]
                for name, reading in asked.items()
            },
            parts=parts,
            measured={
                name: [change(reading, one[reading.whole], other[reading.whole]) for one, other in pairs]
                for name, reading in asked.items()
            },
            thoughts=sum(len(block.thoughts.thoughts_M) for block in read),
            moved=tuple(moved),
            missing=self._missing,
        )

    def _block(self, groups: Sequence[Group], rng: random.Random) -> _Block:
        thoughts = first_turn_thoughts(groups, self._tags)
        scored = [
            (number, one)
            for number, group in enumerate(groups)
            for one in group.trajectories
            if one.outcome is not None
        ]
        columns = range(len(thoughts.prompts_N))
        return _Block(
            thoughts=thoughts,
            episodes=[_sample(row) for row in merge_rows(groups, [Verdict(1.0, "kept", None)] * len(groups))],
            names=[(number, one.member) for number, one in scored],
            owners_M=[number for number, _ in scored],
            outcomes_M=[float(one.outcome or 0.0) for _, one in scored],
            order=[rng.sample([one for one in columns if one != own], len(columns) - 1) for own in thoughts.own_M],
        )

    def _read_actions(self, groups: Sequence[Group]) -> str:
        """Find the first actions of the fresh episodes and how right they are; why they cannot be read, or nothing."""
        if min(len(block.thoughts.prompts_N) for block in self._read) < 3:
            return "a block of fresh episodes has fewer than three prompts with a thought"
        members = [one for group in groups for one in group.trajectories]
        spelled = spelled_actions([found for one in members if (found := Acted.of(one)) is not None], "first turn")
        if spelled.why or spelled.free:
            return spelled.why or spelled.free
        told = {group.task.id: self._right(group.task) for group in groups}
        if any(worths is None for worths in told.values()):
            return "no right actions are known"
        self._read = [_with_actions(block, spelled, told) for block in self._read]
        return ""

    def _sampled(self, block: _Block) -> dict[bool, Sampled]:
        """Thoughts (`False`) and whole episodes (`True`) at the weights of now, as far as a reading asks for them."""
        found, kinds = {}, {reading.whole for reading in self._asked.values()}
        if False in kinds:
            found[False] = self._sampled_thoughts(block)
        if True in kinds:
            sums = dict.fromkeys(block.names, 0.0)
            for sample, total in zip(block.episodes, score_sums(self.learner, block.episodes), strict=True):
                sums[sample.group, sample.member] += total
            owners_M = np.asarray(block.owners_M)
            found[True] = Sampled(
                np.zeros((len(owners_M), 1)),
                owners_M,
                np.bincount(owners_M) / len(owners_M),
                np.asarray(block.outcomes_M),
                np.asarray(list(sums.values())),
            )
        return found

    def _sampled_thoughts(self, block: _Block) -> Sampled:
        thoughts, temperature = block.thoughts, self.learner.settings.temperature
        asked = thoughts.prompts_N, thoughts.thoughts_M, thoughts.own_M
        scores_MN = np.asarray(self._scorer.cross_score(*asked, temperature).scores_MN, dtype=np.float64)
        own_M = np.asarray(thoughts.own_M)
        nothing_M, answers = np.zeros(len(own_M)), None
        if block.worths_MNS is not None:
            contexts = [(*prompt, *thought) for thought in thoughts.thoughts_M for prompt in thoughts.prompts_N]
            owners = [0] * len(block.spellings_S)  # an action belongs to no context
            scored = self._scorer.cross_score(contexts, block.spellings_S, owners, temperature).scores_MN
            answers = Answers(np.asarray(scored, dtype=np.float64).T.reshape(*scores_MN.shape, -1), block.worths_MNS)
        return Sampled(scores_MN, own_M, np.bincount(own_M) / len(own_M), nothing_M, nothing_M, answers=answers)

    def _rows(self, reading: Reading, block: _Block, at: Sampled) -> tuple[list[TrainingSample], list[float]]:
        """The rows of a reading's gradient, each with the weight of its log-probability."""
        weights_M = score_weights(reading, at)
        if reading.whole:
            of_name = dict(zip(block.names, weights_M.tolist(), strict=True))
            return list(block.episodes), [of_name[sample.group, sample.member] for sample in block.episodes]
        thoughts = block.thoughts
        weights_MN: Floats = np.zeros(at.scores_MN.shape)
        if (foreign_MN := path_weights(reading, at)) is not None:
            weights_MN = drawn_foreign(foreign_MN, self._foreign, block.order)
        weights_MN[np.arange(len(weights_M)), at.own_M] = weights_M
        asked = np.argwhere(weights_MN).tolist()
        rows = [_row_behind(thoughts.prompts_N[column], thoughts.thoughts_M[row]) for row, column in asked]
        weights = [float(weights_MN[row, column]) for row, column in asked]
        if (actions_MNS := action_weights(reading, at)) is not None:
            drawn_MNS = drawn_foreign(actions_MNS, self._foreign, block.order)
            for row, column, action in np.argwhere(drawn_MNS).tolist():
                context = (*thoughts.prompts_N[column], *thoughts.thoughts_M[row])
                rows.append(_row_behind(context, block.spellings_S[action]))
                weights.append(float(drawn_MNS[row, column, action]))
        return rows, weights

    def _moved(self, reading: str, split: UpdateParts, gradient: Tensors) -> list[Moved]:
        """The episodes of the batch that moved a reading most in the only optimizer step, and their tokens."""
        if split.steps != 1 or split.first is None:
            return []
        direction = split.first.step(split.first.moved(gradient))
        found = slopes(self.learner, split.samples, [one.detach() for one in direction])
        terms: dict[tuple[int, int], dict[str, float]] = {}
        tokens: dict[tuple[int, int], list[tuple[int, float]]] = {}
        for place, (sample, slope) in enumerate(zip(split.samples, found, strict=True)):
            name, total_T = (sample.group, sample.member), torch.zeros(len(slope.logprobs_T), dtype=torch.float64)
            for term, of_sample in split.token_pulls.items():
                if place in of_sample:
                    added_T = of_sample[place].along(*slope).double().cpu()
                    total_T += added_T
                    of_terms = terms.setdefault(name, {})
                    of_terms[term] = of_terms.get(term, 0.0) + float(added_T.sum())
            ids = [token for token, trained in zip(sample.ids, sample.trained, strict=True) if trained]
            tokens.setdefault(name, []).extend(zip(ids, total_T.tolist(), strict=True))
        totals = {name: sum(of_terms.values()) for name, of_terms in terms.items()}
        most = sorted(totals, key=lambda name: -abs(totals[name]))[:MOST_MOVED]
        return [
            Moved(reading, *name, totals[name], terms[name], _largest(tokens[name])) for name in most if totals[name]
        ]


def _largest(tokens: Sequence[tuple[int, float]]) -> tuple[tuple[int, float], ...]:
    return tuple(sorted(tokens, key=lambda one: -abs(one[1]))[:MOST_MOVED])


def _sample(row: Row) -> TrainingSample:
    return TrainingSample(row.ids, row.trained, row.logprobs, row.logprobs, row.group, row.member, 1.0)


def _with_actions(block: _Block, spelled: Spelled, told: Mapping[str, Mapping[str, float] | None]) -> _Block:
    """A block with the first actions, and what each is worth behind each thought. A thought without its end has none.

    `told`: how right each action is, by the id of the task.
    """
    own_M = np.asarray(block.thoughts.own_M)
    task_of = dict(zip(block.thoughts.own_M, block.thoughts.tasks_M, strict=True))
    worths = [told[task_of[column]] or {} for column in range(len(task_of))]
    right_NA = np.array([[each.get(name, 0.0) for name in spelled.names_A] for each in worths])
    worths_MNS = worths_by_thought(right_NA)[own_M][:, :, list(spelled.action_S.values())]
    closed_M = np.asarray(block.thoughts.closed_M)
    return replace(block, spellings_S=tuple(spelled.action_S), worths_MNS=worths_MNS * closed_M[:, None, None])


def _row_behind(context: Sequence[int], said: Sequence[int]) -> TrainingSample:
    ids = (*context, *said)
    trained = (False,) * len(context) + (True,) * len(said)
    nothing = (0.0,) * len(ids)
    return TrainingSample(ids, trained, nothing, nothing, 0, 0, 1.0)
