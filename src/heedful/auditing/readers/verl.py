"""verl's rollout dumps: `trainer.rollout_data_dir/<step>.jsonl`, and those of its validation.

Source: verl 0.9, `_dump_generations` of both trainers. One line per row with `input`, `output`, `gts`, `score`, `step`.
The default trainer of 0.9 adds `uid`, the key of the row: prompt, session, and part of the session. Its parts are the
outputs of one episode whose context began anew, and verl writes the score of the episode on each. A `uid` of another
form names the prompt. Token ids are in neither; texts are decoded with special tokens dropped.
`score` is the reward. Nothing else is added to it unless --rewards says so. Other columns are what the reward function
returned: a `reasoning` there is a grader's, and no thought.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from heedful.auditing.logs import records
from heedful.auditing.logs.conversations import text_turn
from heedful.auditing.logs.records import (
    Episodes,
    Faults,
    Fields,
    Knowledge,
    LocatedRows,
    Location,
    LoggedEpisode,
    Misfit,
    Row,
)
from heedful.auditing.readers.reader import (
    ONE_REPLY,
    TEXT_ALONE,
    TRUTH_NAMES,
    Hints,
    Located,
    RowReader,
    Sample,
    consecutive,
    prompt_task,
)
from heedful.boundary import listed

_KEY = re.compile(r"(.+)_(\d{1,18})_(\d{1,18})", re.DOTALL)
_PADDING = "pad"
"""How the prompt's name begins in rows that only fill verl's batch."""
_FILLING = "that only fill verl's batch"


@dataclass(frozen=True, slots=True)
class VerlRollouts(RowReader):
    """Lines of verl's rollout and validation dumps."""

    SUMS: ClassVar[bool] = True
    FIELDS: ClassVar[frozenset[str]] = frozenset({"step", "input", "output", "score", "uid", *TRUTH_NAMES})

    keyed: bool = False
    """The rows name prompt, session and part."""

    @staticmethod
    def fits(row: Row) -> bool:
        return {"input", "output", "score"} <= row.keys()

    @classmethod
    def begin(cls, sample: Sequence[Row], hints: Hints) -> Self:
        rows = Sample(row for row in sample if cls.fits(row))
        rows.require(hints.rewards, "rewards")
        rewards, success, no_steps = hints.rewards or ("score",), rows.success(hints), rows.without_steps
        keyed = any(_matched(row) is not None for row in rows)
        group = None if keyed else rows.group("input")
        found = [f"Reward: {listed(rewards)}."] + ([f"Success is read from {success}."] if success else [])
        found += ["Groups, members and the parts of an episode are those of the column uid."] if keyed else []
        found += [f"Groups are those of the column {group}."] if group else []
        grouped = ["Samples with the same input in one step are one group: the log has no group number."]
        assumed = (*(grouped if not keyed and not group else ()), *no_steps, ONE_REPLY, TEXT_ALONE)
        unknown = records.unknown_of(success=success is not None, turns=False)
        knowledge = Knowledge(tuple(found), assumed, unknown, stepped=not no_steps)
        return cls(hints, knowledge, success, rewards, group, phase=rows.phase, keyed=keyed)

    def episodes(self, rows: LocatedRows, faults: Faults) -> Episodes:
        """The episodes of one file, in order. With keys, the parts of an episode follow each other."""
        return self._of_parts(rows, faults) if self.keyed else RowReader.episodes(self, rows, faults)

    def of_row(self, place: Location, row: Fields, faults: Faults) -> Iterable[LoggedEpisode]:
        yield self._episode([(place, row)])

    def _of_parts(self, rows: LocatedRows, faults: Faults) -> Episodes:
        def keyed() -> LocatedRows:
            for place, row in self.training(rows, faults):
                found = _matched(row)
                if found is None:
                    given = records.shown(row.get("uid"))
                    faults.add(place, "prompt_session_part as `uid`, as the first rows have it", given)
                elif found[1].startswith(_PADDING):
                    faults.aside[_FILLING] += 1
                else:
                    yield place, row

        def begins(row: Fields, before: Fields) -> bool:
            return _key(row)[:2] != _key(before)[:2]

        for held, lost in consecutive(keyed(), faults, begins):
            parts = [_key(row)[2] for _, row in held]
            try:
                if parts != list(range(len(parts))) or (lost and len(parts) > 1):
                    torn = " and a line left out" if lost else ""
                    found = f"parts {parts} of {records.shown(held[0][1]['uid'])}{torn}"
                    raise Misfit("all parts of an episode, 0 and on, in order", found)
                yield self._episode(held)
            except Misfit as misfit:
                faults.add(held[0][0], misfit.expected, misfit.found)

    def _episode(self, held: Sequence[Located]) -> LoggedEpisode:
        """The rows of one episode. Its reward and success are those of the last row."""
        (place, head), last = held[0], held[-1][1]
        if not all(self.fits(row) for _, row in held):
            raise Misfit("`input`, `output` and `score`", f"fields {listed(head)}")
        given, outcome = self.given(last), self.outcome(last)
        turns = []
        for at, (_, row) in enumerate(held):
            turn = text_turn(row.text("input"), row.text("output"), self.hints.tags)
            prompt = replace(turn.reply.prompt, restarts=at > 0)  # the context began anew
            turns.append(replace(turn, reply=replace(turn.reply, prompt=prompt)))
        task = prompt_task(head.text("input"))
        if self.keyed:
            (group, member, _), truth = _key(head), ""
        else:
            (group, truth), member = self.by_text(head, head.text("input")), 0
        trajectory = replace(self.trajectory(task, tuple(turns), given, outcome), member=member)
        return LoggedEpisode(place, self.step(head, place), group, task, trajectory, truth=truth)


def _matched(row: Row) -> re.Match[str] | None:
    return _KEY.fullmatch(row["uid"]) if isinstance(row.get("uid"), str) else None


def _key(row: Row) -> tuple[str, int, int]:
    """One draw of a prompt, the member of its group, the part of the episode."""
    found = _matched(row)
    assert found is not None  # rows without a key were left out
    return records.text_of(found[1], "uid"), int(found[2]), int(found[3])
