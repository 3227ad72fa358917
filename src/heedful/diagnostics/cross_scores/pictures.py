"""Which pictures, and which texts, are exchanged between the contexts of thoughts: rows and columns, scope by scope.

Promise: a context differs from the one in which its thought was sampled in its pictures alone, or in its text alone.
Pictures are exchanged only among contexts whose pictures have equal shapes, so that rows keep their lengths.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from heedful.diagnostics.cross_scores import mixture
from heedful.diagnostics.cross_scores.jackknife import Estimate, metric_from
from heedful.diagnostics.cross_scores.picture_ids import Frame, Ids, Shape, filled, frame, picture_ids, shapes
from heedful.diagnostics.cross_scores.score_matrix import score_matrix, select_rows
from heedful.diagnostics.cross_scores.thoughts import members, observed, turns_with_a_thought
from heedful.types import CrossScores, Group, Metric, Trajectory

NO_PICTURE = "no such prompt shows a picture"
ONE_PICTURE = "all these prompts show the same picture"
ONE_TEXT = "all these prompts have the same text"
NO_LATER_TURN = "no episode has a second turn with a thought"

_Value = TypeVar("_Value", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Pictured:
    """One thought, and its context as text and pictures."""

    history: Ids
    """What stays before the text, its pictures included."""
    text: Frame
    pictures: Ids
    lead: Ids
    """What was sampled before the thought (an opening tag that is not forced). Stays with the thought."""
    thought: Ids
    task: str
    closed: bool
    shapes: tuple[Shape, ...]
    """Of the pictures that are exchanged."""

    @property
    def context(self) -> Ids:
        """The ids that the thought was sampled after."""
        return (*self.history, *filled(self.text, self.pictures), *self.lead)

    @classmethod
    def of(cls, trajectory: Trajectory, turn: int, *, newest: bool = False) -> Pictured:
        """The thought of a turn (from 0). `newest`: everything before the newest observation is history."""
        history, context = observed(trajectory, turn) if newest else ((), trajectory.context_ids(turn))
        reply = trajectory.turns[turn].reply
        shown = () if reply.prompt.restarts else reply.prompt.images
        return cls(
            history,
            frame(context),
            picture_ids(context),
            reply.ids[: reply.thought.start],
            reply.ids[reply.thought.start : reply.thought.end],
            trajectory.task.id,
            reply.closed,
            shapes(context, shown) if newest else _shapes_of(trajectory, turn),
        )


@dataclass(frozen=True, slots=True)
class Exchanged:
    """M thoughts and N alternatives for one side of their contexts: row i under column j is in `context(i, j)`."""

    rows_M: tuple[Pictured, ...] = ()
    pictures_N: tuple[Ids, ...] = ()
    """The pictures that are exchanged. Empty where texts are."""
    texts_N: tuple[Frame, ...] = ()
    own_M: tuple[int, ...] = ()
    left_out: int = 0
    """Thoughts whose prompts show pictures of other shapes."""
    why: str = ""
    """Why there are no rows."""

    @property
    def columns(self) -> int:
        return len(self.pictures_N) or len(self.texts_N)

    @property
    def note(self) -> str:
        """What is to be said of the rows, if anything."""
        if not self.left_out:
            return ""
        return f"{self.left_out} thoughts are left out: their pictures have other numbers of tokens"

    def kept(self, row: int) -> tuple[Ids, Frame | Ids, Ids]:
        """What all contexts of a row have in common. Rows with equal ones are scored together."""
        one = self.rows_M[row]
        return one.history, (one.text if self.pictures_N else one.pictures), one.lead

    def context(self, row: int, column: int) -> Ids:
        """The ids before thought `row` where column `column` stands in for its own."""
        one = self.rows_M[row]
        text = one.text if self.pictures_N else self.texts_N[column]
        pictures = self.pictures_N[column] if self.pictures_N else one.pictures
        return (*one.history, *filled(text, pictures), *one.lead)


@dataclass(frozen=True, slots=True)
class Chosen:
    """Thoughts whose pictures have equal shapes."""

    rows: tuple[Pictured, ...]
    left_out: int
    """Thoughts with pictures of other shapes."""

    def exchange_pictures(self) -> Exchanged:
        """Every thought with the pictures of all rows in place of its own, its text kept."""
        pictures, own = _distinct([one.pictures for one in self.rows])
        if len(pictures) < 2:
            return Exchanged(why=ONE_PICTURE if pictures else NO_PICTURE)
        return Exchanged(self.rows, pictures_N=pictures, own_M=own, left_out=self.left_out)

    def exchange_texts(self) -> Exchanged:
        """Every thought with the texts of all rows in place of its own, its pictures kept."""
        texts, own = _distinct([one.text for one in self.rows])
        if len(texts) < 2:
            return Exchanged(why=ONE_TEXT if texts else NO_PICTURE)
        return Exchanged(self.rows, texts_N=texts, own_M=own, left_out=self.left_out)


def first_turn_pictures(
    groups: Sequence[Group], prompts: int | None, thoughts: int | None, rows: int, columns: int
) -> Chosen:
    """At most `rows` thoughts of first turns, shared evenly by the first `columns` prompts.

    They are some of the thoughts that `first_turn_thoughts` gives for the same `prompts` and `thoughts`. Left out:
    prompts whose pictures do not have the most frequent shapes.
    """
    found = [
        Pictured.of(trajectory, 0)
        for group in groups[:prompts]
        for trajectory in group.trajectories[:thoughts]
        if 0 in turns_with_a_thought(trajectory)
    ]
    alike = _of_one_shape(found)
    place, own = _distinct([(one.text, one.pictures) for one in alike.rows])
    most, seen = max(1, rows // max(1, min(len(place), columns))), Counter[int]()
    chosen = []
    for one, column in zip(alike.rows, own, strict=True):
        seen[column] += 1
        if column < columns and seen[column] <= most:
            chosen.append(one)
    return Chosen(tuple(chosen[:rows]), alike.left_out)


def later_pictures(groups: Sequence[Group], rng: random.Random, rows: int, columns: int) -> tuple[Exchanged, Exchanged]:
    """The newest picture, then all pictures, of at most `rows` contexts of one later turn.

    The turn is the one, from the second on, with the most thoughts (the earliest of equals). Contexts are taken in a
    drawn order. One that would be another combination of pictures beyond `columns` is passed over.
    """
    reaching = Counter(turn for one in members(groups) for turn in turns_with_a_thought(one) if turn)
    if not reaching:
        return Exchanged(why=NO_LATER_TURN), Exchanged(why=NO_LATER_TURN)
    turn = min(reaching, key=lambda number: (-reaching[number], number))
    candidates = [one for one in members(groups) if turn in turns_with_a_thought(one)]
    drawn = rng.sample(candidates, len(candidates))
    whole = _some(_of_one_shape([Pictured.of(one, turn) for one in drawn]), rows, columns)
    newest = _some(_of_one_shape([Pictured.of(one, turn, newest=True) for one in drawn]), rows, columns)
    return newest.exchange_pictures(), whole.exchange_pictures()


def _some(alike: Chosen, rows: int, columns: int) -> Chosen:
    """At most `rows` thoughts with at most `columns` combinations of pictures, in order."""
    _, own = _distinct([one.pictures for one in alike.rows])
    fitting = [one for one, column in zip(alike.rows, own, strict=True) if column < columns]
    return Chosen(tuple(fitting[:rows]), alike.left_out)


def _of_one_shape(rows: Sequence[Pictured]) -> Chosen:
    """The rows with the most frequent shapes of pictures, the first of equals. Rows without pictures do not count."""
    shown = [one for one in rows if one.pictures]
    counted = Counter(one.shapes for one in shown)
    usual = max(counted, key=lambda shape: counted[shape], default=())
    return Chosen(tuple(one for one in shown if one.shapes == usual), len(shown) - counted[usual])


def _distinct(values: Iterable[_Value]) -> tuple[tuple[_Value, ...], tuple[int, ...]]:
    """The distinct values in order of first appearance, and the place of each value among them."""
    place: dict[_Value, int] = {}
    own = tuple(place.setdefault(value, len(place)) for value in values)
    return tuple(place), own


def _shapes_of(trajectory: Trajectory, turn: int) -> tuple[Shape, ...]:
    """Of the pictures in the context of a turn, prompt by prompt since its last restart."""
    found: list[tuple[Shape, ...]] = []
    for number in range(turn, -1, -1):
        prompt = trajectory.turns[number].reply.prompt
        found.insert(0, shapes(prompt.ids, prompt.images))
        if prompt.restarts:
            break
    return tuple(shape for each in found for shape in each)


def image_share(image: CrossScores, both: CrossScores, place: str = "", scorer: str = "", why: str = "") -> Metric:
    """`grounding/image_share`: the gap where pictures are exchanged, divided by the gap where pictures and text are.

    Both matrices have the same thoughts in the same order. A prompt is deleted from both at once. `None` where the
    interval of the divisor includes 0. `why`: the reason why one of them has no scores.
    """
    name = f"grounding@{scorer}{place}/image_share" if scorer else f"grounding{place}/image_share"
    parts = score_matrix(image), score_matrix(both)
    rows = parts[1].rows
    if not why and min(part.prompts for part in parts) < 3:
        why = mixture.FEW_PROMPTS
    if not why and not all(part.finite() for part in parts):
        why = "the scores hold NaN or infinite values"
    if why:
        return Metric(name, None, rows, why=why)
    apart, together = (mixture.gap(part) for part in parts)
    read = metric_from("", together, rows)
    if read.low is None or read.low <= 0:
        return Metric(name, None, rows, why="the gap of first turns is not clearly above 0")
    deleted = []
    for prompt in range(parts[1].prompts):
        kept_M = [own != prompt for own in both.own_M]
        rest = [score_matrix(select_rows(scores, kept_M)) for scores in (image, both)]
        if min(part.prompts for part in rest) < 2:
            return Metric(name, apart.value / together.value, rows, why=f"no interval: {mixture.FEW_PROMPTS}")
        deleted.append(mixture.gap(rest[0]).value / mixture.gap(rest[1]).value)
    return metric_from(name, Estimate(apart.value / together.value, np.array(deleted)), rows)
