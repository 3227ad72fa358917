"""verl's rollout dumps: `trainer.rollout_data_dir/<step>.jsonl`, and those of its validation.

Source: verl 0.9, `_dump_generations` of both trainers. One line per row with `input`, `output`, `gts`, `score`, `step`.
The default trainer of 0.9 adds `uid`, the key of the row: prompt, session, and part of the session. Its parts are the
outputs of one episode whose context began anew, and verl writes the score of the episode on each. The older trainer
writes no key. Token ids are in neither; texts are decoded with special tokens dropped.
`score` is the reward. Nothing else is added to it unless --rewards says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, Self

from heedful.auditing.logs.conversations import text_turn
from heedful.auditing.logs.records import (
    Episodes,
    Faults,
    Knowledge,
    LocatedRows,
    Location,
    LoggedEpisode,
    Misfit,
    Row,
    unknown_of,
)
from heedful.auditing.logs.values import Fields, shown, text_of
from heedful.auditing.readers.reader import (
    TEXT_ALONE,
    Hints,
    RowReader,
    choose_success,
    columns_of,
    prompt_task,
    require,
    rewarded,
    step_of,
    text_trajectory,
)
from heedful.boundary import listed

_KEY = re.compile(r"(.+)_(\d{1,18})_(\d{1,18})", re.DOTALL)
_PADDING = "pad"
"""How the prompt's name begins in rows that only fill verl's batch."""
_FILLING = "that only fill verl's batch"


class _Key(NamedTuple):
    """A row's place: one draw of a prompt, the member of its group, the part of the episode."""

    prompt: str
    session: int
    part: int


@dataclass(frozen=True, slots=True)
class VerlRollouts(RowReader):
    """Lines of verl's rollout and validation dumps."""

    SUMS: ClassVar[bool] = True
    FIELDS: ClassVar[frozenset[str]] = frozenset({"step", "input", "output", "score", "uid"})

    keyed: bool = False
    """The rows name prompt, session and part."""

    @staticmethod
    def fits(row: Row) -> bool:
        return {"input", "output", "score"} <= row.keys()

    @classmethod
    def begin(cls, sample: Sequence[Row], hints: Hints) -> Self:
        rows = [row for row in sample if cls.fits(row)]
        columns = columns_of(rows)
        require(hints.rewards, columns, "rewards")
        rewards = hints.rewards or ("score",)
        success = choose_success(columns, hints)
        keyed = any(_matched(row) is not None for row in rows)
        found = [f"Reward: {listed(rewards)}."] + ([f"Success is read from {success}."] if success else [])
        found += ["Groups, members and the parts of an episode are those of the column uid."] if keyed else []
        grouped = "Samples with the same input in one step are one group: the log has no group number."
        assumed = (
            *(() if keyed else (grouped,)),
            "An output is taken as one reply; in a run of several turns it also holds the environment's words.",
            TEXT_ALONE,
        )
        unknown = unknown_of(success=success is not None, turns=False)
        return cls(
            hints, Knowledge(tuple(found), assumed, unknown, stepped=bool(columns.get("step"))), success, rewards, keyed
        )

    def episodes(self, rows: LocatedRows, faults: Faults) -> Episodes:
        """The episodes of one file, in order. With keys, the parts of an episode follow each other."""
        return self._of_parts(rows, faults) if self.keyed else RowReader.episodes(self, rows, faults)

    def of_row(self, place: Location, row: Fields, faults: Faults) -> Iterable[LoggedEpisode]:
        yield self._episode([(place, row)], prompt_task(self._prompt(row)).id, 0)

    def _of_parts(self, rows: LocatedRows, faults: Faults) -> Episodes:
        held: list[tuple[Location, Fields]] = []
        before, current = faults.count, ("", -1)
        for place, row in rows:
            try:
                key = _key(row)
            except Misfit as misfit:
                faults.add(place, misfit.expected, misfit.found)
                continue
            if key.prompt.startswith(_PADDING):
                faults.aside[_FILLING] += 1
                continue
            if held and current != (key.prompt, key.session):
                yield from self._joined(held, faults, lost=faults.count > before)
                held = []
            if not held:
                before, current = faults.count, (key.prompt, key.session)
            held.append((place, Fields(row)))
        if held:
            yield from self._joined(held, faults, lost=faults.count > before)

    def _joined(self, held: Sequence[tuple[Location, Fields]], faults: Faults, lost: bool) -> Episodes:
        """The episode of these rows, or its fault. `lost`: a line was left out within it or right after it."""
        keys = [_key(row) for _, row in held]
        parts = [key.part for key in keys]
        try:
            if parts != list(range(len(parts))) or (lost and len(parts) > 1):
                found = f"parts {parts} of {shown(held[0][1]['uid'])}" + (" and a line left out" if lost else "")
                raise Misfit("all parts of an episode, 0 and on, in order", found)
            yield self._episode(held, keys[0].prompt, keys[0].session)
        except Misfit as misfit:
            faults.add(held[0][0], misfit.expected, misfit.found)

    def _episode(self, held: Sequence[tuple[Location, Fields]], group: str, member: int) -> LoggedEpisode:
        """The rows of one episode. Its reward and success are those of the last row."""
        (place, head), last = held[0], held[-1][1]
        given, outcome = self.given(last), self.outcome(last)
        turns = []
        for at, (_, row) in enumerate(held):
            turn = text_turn(self._prompt(row), row.text("output"), self.hints.tags)
            prompt = replace(turn.reply.prompt, restarts=at > 0)  # the context began anew
            turns.append(replace(turn, reply=replace(turn.reply, prompt=prompt)))
        task = prompt_task(self._prompt(head))
        trajectory = text_trajectory(
            task, rewarded(tuple(turns), given), self.scored(bool(given), outcome), outcome, self.hints.temperature
        )
        step = step_of(head, place.file, self.knowledge.stepped)
        return LoggedEpisode(place, step, group, task, replace(trajectory, member=member))

    def _prompt(self, row: Fields) -> str:
        if not self.fits(row):
            raise Misfit("`input`, `output` and `score`", f"fields {listed(row)}")
        return row.text("input")


def _matched(row: Row) -> re.Match[str] | None:
    return _KEY.fullmatch(row["uid"]) if isinstance(row.get("uid"), str) else None


def _key(row: Row) -> _Key:
    found = _matched(row)
    if found is None:
        raise Misfit("prompt_session_part as `uid`, as the first rows have it", shown(row.get("uid")))
    return _Key(text_of(found[1], "uid"), int(found[2]), int(found[3]))
