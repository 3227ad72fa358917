"""Which thoughts are scored under which prompts: rows and columns of a cross-score matrix.

Promise: prompts are distinct by their token ids, and the choice of rows needs no random numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from heedful.types import Group


@dataclass(frozen=True, slots=True)
class Thoughts:
    """M thoughts and the N distinct prompts they were sampled under."""

    prompts_N: tuple[tuple[int, ...], ...]
    """Token ids of the whole context up to the first sampled id."""
    thoughts_M: tuple[tuple[int, ...], ...]
    """Token ids of each thought, its end included."""
    own_M: tuple[int, ...]
    closed_M: tuple[bool, ...]
    """True where the thought was closed by its tag."""
    prompt_texts_N: tuple[str, ...]
    thought_texts_M: tuple[str, ...]


def first_turn_thoughts(
    groups: Sequence[Group], close_tag: str, prompts: int | None = None, thoughts: int | None = None
) -> Thoughts:
    """The first turns' thoughts of the first `prompts` groups, `thoughts` members each (`None`: all).

    `close_tag` ends a thought's text (what is scored are ids, and their range is the reply's own). Members are
    exchangeable, so the first ones are as good a sample as any. Left out: members without a turn and thoughts without
    a token. Groups with equal prompts share a column.
    """
    columns: dict[tuple[int, ...], int] = {}
    prompt_texts: list[str] = []
    rows: list[tuple[tuple[int, ...], int, bool, str]] = []
    for group in groups[:prompts]:
        turns = [trajectory.turns[0] for trajectory in group.trajectories[:thoughts] if trajectory.turns]
        for turn in turns:
            reply = turn.reply
            thought = reply.ids[reply.thought.start : reply.thought.end]
            if not thought:
                continue
            column = columns.setdefault(reply.prompt.ids, len(columns))
            if column == len(prompt_texts):
                prompt_texts.append(reply.prompt.text)
            text = reply.text.partition(close_tag)[0] + close_tag if reply.closed else reply.text
            rows.append((thought, column, reply.closed, text))
    return Thoughts(
        prompts_N=tuple(columns),
        thoughts_M=tuple(row[0] for row in rows),
        own_M=tuple(row[1] for row in rows),
        closed_M=tuple(row[2] for row in rows),
        prompt_texts_N=tuple(prompt_texts),
        thought_texts_M=tuple(row[3] for row in rows),
    )
