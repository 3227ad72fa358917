"""Logs of a trainer that nobody else knows: one JSON object per reply."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from heedful.auditing.readers import (
    Faults,
    Hints,
    Knowledge,
    Location,
    LoggedEpisode,
    Misfit,
    Row,
    RowReader,
    prompt_task,
    text_trajectory,
    text_turn,
    unknown_of,
)


@dataclass(frozen=True, slots=True)
class MazeLog(RowReader):
    """Rows with `maze_step`, `asked`, `said` and `paid`."""

    FIELDS: ClassVar[frozenset[str]] = frozenset({"maze_step", "asked", "said", "paid"})

    @staticmethod
    def fits(row: Row) -> bool:
        return row.keys() >= MazeLog.FIELDS

    @classmethod
    def begin(cls, sample: Sequence[Row], hints: Hints) -> Self:
        return cls(
            hints, Knowledge(("A log of mazes.",), (), unknown_of(success=True, turns=True), stepped=True), "paid"
        )

    def of_row(self, place: Location, row: Row, faults: Faults) -> Iterable[LoggedEpisode]:
        if not self.fits(row):
            raise Misfit("a row of a maze", str(sorted(row)))
        turn = text_turn(row["asked"], row["said"], self.hints.tags, {"paid": row["paid"]})
        task = prompt_task(row["asked"])
        trajectory = text_trajectory(task, (turn,), True, row["paid"], self.hints.temperature)
        yield LoggedEpisode(place, row["maze_step"], task.id, task, trajectory)
