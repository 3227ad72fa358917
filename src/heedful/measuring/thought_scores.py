"""Chooses the thoughts of each scope and scores them: what a measurement asks of a model.

Promise: reads only. The draws of a scope depend on the seed, the step and the scope's name alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from heedful.diagnostics.actions.exchanged import Exchange, exchange
from heedful.diagnostics.actions.grounding import grounding
from heedful.diagnostics.actions.later import LaterExchange, later_exchange
from heedful.diagnostics.cross_scores.information import pointwise_information
from heedful.diagnostics.cross_scores.picture_ids import one_text, shows_pictures
from heedful.diagnostics.cross_scores.pictures import Exchanged, first_turn_pictures, later_pictures
from heedful.diagnostics.cross_scores.thoughts import (
    Ids,
    SwappedObservations,
    Thoughts,
    ThoughtTags,
    any_turn_thoughts,
    first_turn_thoughts,
    swapped_observations,
)
from heedful.diagnostics.names import scope_name
from heedful.measuring.budget import ANY_TURN, GROUNDING, IMAGE, LATER_IMAGE, LATER_TURN, OBSERVATION, ORDER, Sizes
from heedful.measuring.diagnostics_config import DiagnosticsConfig
from heedful.measuring.scope_reader import NO_SCORES, ScoredThoughts
from heedful.measuring.swapped import (
    ImageScores,
    Request,
    TokenScorer,
    exchanged_thoughts,
    later_metrics,
    requests,
    requests_of_actions,
    requests_of_later,
    requests_of_pictures,
    score_exchanged,
    score_swapped,
)
from heedful.protocols import PlansReading
from heedful.seeds import stream
from heedful.storage import Swaps, TokenValues
from heedful.types import CrossScores, Group, Metric, Rightness, nothing_right

if TYPE_CHECKING:
    from heedful.scorers.judge import Judge

ROWS = {part.name: part.rows for part in ORDER}
"""Part -> the field of `Sizes` with its thoughts; empty for first turns, which have prompts times thoughts."""


@dataclass(frozen=True, slots=True)
class FirstTurns:
    """The thoughts of first turns, whose matrix is stored after a full measurement."""

    scores: CrossScores
    thoughts: Thoughts

    @property
    def scored(self) -> ScoredThoughts:
        return ScoredThoughts(self.scores, self.thoughts.closed_M)

    def token_values(self, most: int, piece: Callable[[int], str]) -> tuple[TokenValues, ...]:
        """What each token tells of its prompt, for the first thoughts of every prompt, `most` thoughts in all.

        Needs scores that kept their tokens; empty without them. `piece`: the text of one token.
        """
        thoughts, tokens = self.thoughts, self.scores.tokens
        if tokens is None:
            return ()
        count_N = np.bincount(thoughts.own_M)
        shares_N = count_N / count_N.sum()
        return tuple(
            TokenValues(
                row,
                tuple(map(piece, thoughts.thoughts_M[row])),
                tuple(pointwise_information(tokens[row], thoughts.own_M[row], shares_N).tolist()),
            )
            for row in _first_of_every_prompt(thoughts.own_M, most)
        )


@dataclass(frozen=True, slots=True)
class ThoughtScores:
    """Asks the policy's scorer, or the judge, about the groups of one environment and one step."""

    config: DiagnosticsConfig
    scorer: TokenScorer
    seed: int
    tags: ThoughtTags
    step: int
    groups: Sequence[Group]
    place: str
    """`/<environment>` in a batch that mixes environments."""
    sizes: Sizes | None = None
    """How many thoughts and prompts each part reads. `None`: as many as the settings ask for."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Part, named as in `budget.ORDER` -> why it is not measured in this step."""
    right: Rightness = nothing_right
    """How right each first action is, where the environment can tell."""

    def cheap(self) -> ScoredThoughts:
        """The first thoughts of the first prompts, in first turns."""
        thoughts = self._first_turns(self.sizes or self.cheap_sizes)
        return ScoredThoughts(self._score(thoughts), thoughts.closed_M)

    def first_turns(self) -> FirstTurns:
        """All thoughts of first turns, with the scores of each token where tokens are stored."""
        thoughts = self._first_turns(self.sizes or self.full_sizes)
        scores = self._score(thoughts, "tokens" if self.config.words > 0 else "sums")
        return FirstTurns(scores, thoughts)

    def any_turn(self) -> ScoredThoughts:
        """One drawn turn of each of some trajectories, under their whole contexts."""
        if ANY_TURN in self.left_out:
            return ScoredThoughts(why=self.left_out[ANY_TURN])
        thoughts = self._any_turn(self.sizes or self.full_sizes)
        # Several contexts may be of one task. Where nothing was scored there are no tasks either.
        scores = replace(self._score(thoughts), tasks_M=thoughts.tasks_M) if thoughts.thoughts_M else NO_SCORES
        return ScoredThoughts(scores, thoughts.closed_M)

    def observation(self) -> ScoredThoughts:
        """Thoughts of one later turn, each after its own history and the observations of others."""
        if OBSERVATION in self.left_out:
            return ScoredThoughts(why=self.left_out[OBSERVATION])
        swapped = self._observation(self.sizes or self.full_sizes)
        scores = score_swapped(self.scorer, swapped, self._temperature) if swapped.thoughts_M else NO_SCORES
        return ScoredThoughts(scores, swapped.closed_M, swapped.why)

    def exchanged(self, piece: Callable[[int], str]) -> tuple[list[Metric], Swaps | None]:
        """The model-based `grounding/*`: thoughts exchanged between prompts. `piece`: the text of one token."""
        if GROUNDING in self.left_out:
            nothing = Exchange(why=self.left_out[GROUNDING])
            return grounding(nothing, np.zeros((0, 0, 0)), self.place, self.scorer.name), None
        sizes = self.sizes or self.full_sizes
        asked = self.scorer, self.groups, self._temperature, sizes.grounding_rows, sizes.grounding_columns
        return exchanged_thoughts(*asked, self.place, self.right, piece)

    def later(self) -> list[Metric]:
        """`grounding/later_*`: histories, observations and thoughts of later turns exchanged."""
        sizes = self.sizes or self.full_sizes
        left_out = self.left_out.get(LATER_TURN)
        asked = LaterExchange(why=left_out) if left_out else self._later(sizes)
        return later_metrics(self.scorer, asked, self._temperature, self.place, self.right)

    def images(self, first: FirstTurns) -> ImageScores:
        """First turns whose pictures, then whose texts, are exchanged. Nothing is read where all texts are equal."""
        if IMAGE in self.left_out:
            missing = ScoredThoughts(why=self.left_out[IMAGE])
            return ImageScores(missing, missing)
        sizes = self.sizes or self.full_sizes
        pictures, texts = self._images(sizes)
        if pictures.why or not one_text(first.thoughts.prompts_N):
            return ImageScores(self._exchanged(pictures), self._exchanged(texts), pictures.rows_M)
        return ImageScores(first.scored, self._exchanged(texts))

    def later_images(self) -> tuple[ScoredThoughts, ScoredThoughts]:
        """Contexts of one later turn: the newest picture is exchanged, then all of them."""
        if LATER_IMAGE in self.left_out:
            missing = ScoredThoughts(why=self.left_out[LATER_IMAGE])
            return missing, missing
        newest, whole = self._later_images(self.sizes or self.full_sizes)
        return self._exchanged(newest, over_tasks=True), self._exchanged(whole, over_tasks=True)

    def _exchanged(self, exchanged: Exchanged, over_tasks: bool = False) -> ScoredThoughts:
        if exchanged.why:
            return ScoredThoughts(why=exchanged.why)
        scores = score_exchanged(self.scorer, exchanged, self._temperature)
        tasks_M = [one.task for one in exchanged.rows_M] if over_tasks else None
        closed_M = [one.closed for one in exchanged.rows_M]
        return ScoredThoughts(replace(scores, tasks_M=tasks_M), closed_M, note=exchanged.note)

    @property
    def shows_pictures(self) -> bool:
        """Whether pictures are to be exchanged, and a prompt holds one."""
        return self.config.image and shows_pictures(self.groups)

    @property
    def cheap_sizes(self) -> Sizes:
        """The sizes that the settings ask for in a cheap measurement."""
        return Sizes(min(self.config.prompts, len(self.groups)), min(self.config.thoughts, self._members))

    @property
    def full_sizes(self) -> Sizes:
        """The sizes that the settings ask for in a full measurement."""
        config = self.config
        swapped = config.swapped_rows, config.swapped_columns
        exchanged = config.grounding_rows, config.grounding_columns
        images = (config.image_rows, config.image_columns) * 2 if self.shows_pictures else ()
        later = config.later_rows if self.right is not nothing_right else 0
        return Sizes(len(self.groups), self._members, config.any_turn, *swapped, *exchanged, later, *images)

    def cost(self, part: str, sizes: Sizes) -> int:
        """The tokens that the scorer would read for a part at these sizes. `part`: a name in `budget.ORDER`."""
        rows = ROWS[part]
        if not (getattr(sizes, rows) if rows else sizes.prompts * sizes.thoughts):
            return 0
        if part in (OBSERVATION, LATER_TURN, GROUNDING, IMAGE, LATER_IMAGE):
            asked = self._requests(part, sizes)
            return sum(tokens_read(self.scorer, each.prompts, each.thoughts) for each in asked)
        thoughts = self._any_turn(sizes) if part == ANY_TURN else self._first_turns(sizes)
        return tokens_read(self.scorer, thoughts.prompts_N, thoughts.thoughts_M)

    def _first_turns(self, sizes: Sizes) -> Thoughts:
        return first_turn_thoughts(self.groups, self.tags, sizes.prompts, sizes.thoughts)

    def _any_turn(self, sizes: Sizes) -> Thoughts:
        rng = stream(self.seed, scope_name("any_turn", self.place), self.step)
        return any_turn_thoughts(self.groups, self.tags, rng, sizes.any_turn)

    def _observation(self, sizes: Sizes) -> SwappedObservations:
        rng = stream(self.seed, scope_name("observation", self.place), self.step)
        return swapped_observations(self.groups, rng, sizes.swapped_rows, sizes.swapped_columns)

    def _later(self, sizes: Sizes) -> LaterExchange:
        rng = stream(self.seed, scope_name("later_turn", self.place), self.step)
        return later_exchange(self.groups, rng, sizes.later_rows)

    def _images(self, sizes: Sizes) -> tuple[Exchanged, Exchanged]:
        limits = sizes.prompts, sizes.thoughts, sizes.image_rows, sizes.image_columns
        chosen = first_turn_pictures(self.groups, *limits)
        return chosen.exchange_pictures(), chosen.exchange_texts()

    def _later_images(self, sizes: Sizes) -> tuple[Exchanged, Exchanged]:
        rng = stream(self.seed, scope_name("image_all", self.place), self.step)
        return later_pictures(self.groups, rng, sizes.later_image_rows, sizes.later_image_columns)

    def _requests(self, part: str, sizes: Sizes) -> Iterator[Request]:
        """What the scorer is asked where observations, thoughts or pictures are exchanged."""
        if part == OBSERVATION:
            return requests(self._observation(sizes))
        if part == LATER_TURN:
            return requests_of_later(self._later(sizes))
        if part == GROUNDING:
            return requests_of_actions(exchange(self.groups, sizes.grounding_rows, sizes.grounding_columns))
        exchanged: tuple[Exchanged, ...]
        if part == LATER_IMAGE:
            exchanged = self._later_images(sizes)
        elif one_text(self._first_turns(sizes).prompts_N):
            exchanged = self._images(sizes)[1:]
        else:
            exchanged = self._images(sizes)
        return (each for one in exchanged for each in requests_of_pictures(one))

    def judged(self, judge: Judge, thoughts: Thoughts) -> ScoredThoughts:
        """The same thoughts as another model reads them."""
        scores, readable_M = judge.score(thoughts.prompt_texts_N, thoughts.thought_texts_M, thoughts.own_M)
        closed_M = [closed for closed, readable in zip(thoughts.closed_M, readable_M, strict=True) if readable]
        return ScoredThoughts(scores, closed_M)

    def _score(self, thoughts: Thoughts, keep: Literal["sums", "tokens"] = "sums") -> CrossScores:
        if not thoughts.thoughts_M:
            return NO_SCORES
        rows = thoughts.thoughts_M, thoughts.own_M
        return self.scorer.cross_score(thoughts.prompts_N, *rows, self._temperature, keep=keep)

    @property
    def _members(self) -> int:
        """Members of the largest group."""
        return max((len(group.trajectories) for group in self.groups), default=0)

    @property
    def _temperature(self) -> float:
        return next(trajectory.temperature for group in self.groups for trajectory in group.trajectories)


def tokens_read(scorer: TokenScorer, prompts_N: Sequence[Ids], thoughts_M: Sequence[Ids]) -> int:
    """The tokens that a scorer reads. One that cannot say it is taken to read each prompt once and to share no more."""
    if not thoughts_M:
        return 0
    if isinstance(scorer, PlansReading):
        return scorer.reading(prompts_N, thoughts_M)
    return sum(map(len, prompts_N)) + len(prompts_N) * sum(len(ids) - 1 for ids in set(thoughts_M) if ids)


def _first_of_every_prompt(own_M: Sequence[int], most: int) -> list[int]:
    """Rows in ascending order: the first thoughts of all prompts before the second ones, up to `most`."""
    seen: dict[int, int] = {}
    ranked = []
    for row, own in enumerate(own_M):
        seen[own] = seen.get(own, 0) + 1
        ranked.append((seen[own], row))
    return sorted(row for _, row in sorted(ranked)[:most])
