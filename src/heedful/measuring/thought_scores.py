"""Chooses the thoughts of each scope and scores them: what a measurement asks of a model.

Promise: reads only. The draws of a scope depend on the seed, the step and the scope's name alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from heedful.diagnostics.cross_scores.pointwise import pointwise_information
from heedful.diagnostics.cross_scores.thoughts import (
    Thoughts,
    ThoughtTags,
    any_turn_thoughts,
    first_turn_thoughts,
    swapped_observations,
)
from heedful.diagnostics.names import scope_name
from heedful.measuring.diagnostics_config import DiagnosticsConfig
from heedful.measuring.grounded import grounding_metrics
from heedful.measuring.scope_reader import NO_SCORES, ScoredThoughts
from heedful.measuring.swapped import TokenScorer, score_swapped
from heedful.seeds import stream
from heedful.storage import TokenValues
from heedful.types import CrossScores, Group, Metric

if TYPE_CHECKING:
    from heedful.scorers.judge import Judge


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

    def cheap(self) -> ScoredThoughts:
        """The first thoughts of the first prompts, in first turns."""
        thoughts = first_turn_thoughts(self.groups, self.tags, self.config.prompts, self.config.thoughts)
        return ScoredThoughts(self._score(thoughts), thoughts.closed_M)

    def first_turns(self) -> FirstTurns:
        """All thoughts of first turns, with the scores of each token where tokens are stored."""
        thoughts = first_turn_thoughts(self.groups, self.tags)
        scores = self._score(thoughts, "tokens" if self.config.words > 0 else "sums")
        return FirstTurns(scores, thoughts)

    def any_turn(self) -> ScoredThoughts:
        """One drawn turn of each of some trajectories, under their whole contexts."""
        rng = stream(self.seed, scope_name("any_turn", self.place), self.step)
        thoughts = any_turn_thoughts(self.groups, self.tags, rng, self.config.any_turn)
        # Several contexts may be of one task. Where nothing was scored there are no tasks either.
        scores = replace(self._score(thoughts), tasks_M=thoughts.tasks_M) if thoughts.thoughts_M else NO_SCORES
        return ScoredThoughts(scores, thoughts.closed_M)

    def observation(self) -> ScoredThoughts:
        """Thoughts of one later turn, each after its own history and the observations of others."""
        rng = stream(self.seed, scope_name("observation", self.place), self.step)
        swapped = swapped_observations(self.groups, rng, self.config.swapped_rows, self.config.swapped_columns)
        scores = score_swapped(self.scorer, swapped, self._temperature) if swapped.thoughts_M else NO_SCORES
        return ScoredThoughts(scores, swapped.closed_M, swapped.why)

    def exchanged(self) -> list[Metric]:
        """The model-based `grounding/*`: thoughts exchanged between prompts."""
        exchanged = self.config.grounding_rows, self.config.grounding_columns
        return grounding_metrics(self.scorer, self.groups, self._temperature, *exchanged, self.place)

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
    def _temperature(self) -> float:
        return next(trajectory.temperature for group in self.groups for trajectory in group.trajectories)


def _first_of_every_prompt(own_M: Sequence[int], most: int) -> list[int]:
    """Rows in ascending order: the first thoughts of all prompts before the second ones, up to `most`."""
    seen: dict[int, int] = {}
    ranked = []
    for row, own in enumerate(own_M):
        seen[own] = seen.get(own, 0) + 1
        ranked.append((seen[own], row))
    return sorted(row for _, row in sorted(ranked)[:most])
