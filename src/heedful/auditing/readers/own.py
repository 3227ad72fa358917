"""Rollouts of heedful (docs/formats.md): the parquet files of a run, and the same rows as JSON lines.

Promise: a whole row gives the episode that was stored, so its metrics equal those of the run. Rows of other origin need
only `new_prompt_text` and `reply_text`. Everything else that is missing is reported as unknown.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Self

from heedful.auditing.logs import records
from heedful.auditing.logs.conversations import THOUGHTS, text_turn
from heedful.auditing.logs.records import (
    Episodes,
    Faults,
    Fields,
    Knowledge,
    LocatedRows,
    LoggedEpisode,
    Misfit,
    Row,
)
from heedful.auditing.readers.reader import (
    APART,
    SCORED_ONLY,
    Hints,
    Located,
    RowReader,
    Sample,
    consecutive,
    prompt_task,
)
from heedful.boundary import listed
from heedful.envs.transport.images import image_fault
from heedful.pixels import damage
from heedful.storage.rollouts import COLUMNS, IMAGES, PICTURES, environment_in
from heedful.types import Ending, Image, Prompt, Reply, Span, Task, Trajectory, Turn, Verdict

_IDENTITY = ("step", "split", "group", "task_id", "member")
"""Columns that are the same in all rows of an episode."""
_SPANS = ("thought_start", "thought_end", "answer_start", "answer_end")
_ENDINGS = {ending.value: ending for ending in Ending}
_HELD = {
    "token ids": "reply_ids",
    "log-probabilities": "logprobs",
    "entropies": "entropies",
    "verdicts of a filter": "weight",
    "the temperature": "temperature",
}


@dataclass(frozen=True, slots=True)
class OwnRows(RowReader):
    """Rows of the rollout format, one per turn. Log-probabilities, half of such a file, are not read."""

    FIELDS = (frozenset(COLUMNS) - {"logprobs", "effect"}) | {IMAGES, PICTURES, *THOUGHTS}

    @staticmethod
    def fits(row: Row) -> bool:
        return {"new_prompt_text", "reply_text"} <= row.keys()

    @classmethod
    def begin(cls, sample: Sequence[Row], hints: Hints) -> Self:
        rows = Sample(row for row in sample if cls.fits(row))
        columns = rows.columns
        there = {name for name, values in columns.items() if values}
        chosen = rows.success(hints)
        success = hints.success or next((name for name in ("outcome", "success") if name in there), chosen)
        group = "group" if {"group", "task_id"} & there else rows.group("new_prompt_text")
        ids, no_steps = {"new_prompt_ids", "reply_ids", *_SPANS} <= there, rows.without_steps
        unknown = records.unknown_of(success=success is not None, turns=True, ids=ids, valid="valid" in there)
        # Rows of ours name their components, also where there are none. In others a step may lack the reward.
        unknown |= {} if "components" in columns else {"reward/mean": records.NO_REWARD}
        held = [words for words, column in _HELD.items() if column in there]
        found = [f"The rows hold {', '.join(held)}."] if held else []
        thoughts = rows.thoughts("reply_text", hints.tags)
        found += [APART.format(listed(thoughts))] if thoughts else []
        assumed = {
            "The rows name no step: each file is one step, the number in its name, or 0.": "step" not in there,
            "Few rows name a step: the others are of the step of their file.": "step" in there and bool(no_steps),
            "The rows name no group: episodes with the same first prompt in one step are one group.": not group,
            "The rows name no turn: each row is an episode of one turn.": "turn" not in there,
            "The rows hold no token ids: prompts and replies are known as text alone.": not ids,
            "A row's reward is that of its turn: an episode's reward is the sum over its rows.": "reward" in there
            and "turn" in there
            and "components" not in columns,
        }
        known = Knowledge(
            tuple(found),
            tuple(sentence for sentence, true in assumed.items() if true),
            unknown,
            own=ids,
            temperature="temperature" in there,
            stepped=not no_steps,
            rewarded="reward" in there,
        )
        return cls(hints, known, success, group=group, thoughts=thoughts, phase=rows.phase)

    def episodes(self, rows: LocatedRows, faults: Faults) -> Episodes:
        pictures = _Pictures()
        ended: dict[bytes, object] = {}
        for held, lost in consecutive(self.training(pictures.met(rows), faults), faults, _begins_another):
            place, head = held[0]
            # The next turn of an episode that has ended: its first turns were read as all of it.
            turn, last = head.get("turn"), ended.get(_identity(head))
            if isinstance(turn, int | float) and isinstance(last, int | float) and last > 0 and turn == last + 1:
                raise ValueError(
                    "Expected the turns of an episode to follow each other, found turn "
                    f"{turn:g} at {place.file.name}, line {place.line} after rows of other episodes. Sort the rows by "
                    "step, group, member and turn. Rows of several members need the column `member`."
                )
            ended[_identity(head)] = held[-1][1].get("turn")
            try:
                if lost:
                    found = "a line left out in it or right after it"
                    raise Misfit("every turn of the episode that begins here", found)
                yield self._read(held, pictures)
            except Misfit as misfit:
                faults.add(place, misfit.expected, misfit.found)

    def _read(self, held: Sequence[Located], pictures: _Pictures) -> LoggedEpisode:
        (place, head), rows = held[0], [row for _, row in held]
        if not self.fits(head):
            raise Misfit("`new_prompt_text` and `reply_text`", f"columns {listed(head)}")
        numbers = [row.get("turn") for row in rows]
        broken = numbers == [0] and head["reply_text"] is None  # before its first turn
        if any(turn is not None for turn in numbers) and not broken and numbers != list(range(1, len(rows) + 1)):
            raise Misfit("the turns of one episode, 1 and on, in order", f"turns {numbers}")
        turns = () if broken else tuple(_turn(row, self, pictures.of(row)) for row in rows)
        if head.get("task_id") is None:
            task = prompt_task(records.text_of(head["new_prompt_text"] or "", "new_prompt_text"))
        else:
            name = head.text("task_id")
            environment = environment_in(name) or str(head.get("environment") or "")
            tags = tuple(map(str, head.listed("task_tags")))
            task = Task(name, head.whole("task_seed"), str(head.get("split") or "train"), tags, environment)
        # Rows of ours repeat how the episode ended. Others may know it in the last turn only.
        last = rows[-1]
        temperature, weight = head.number("temperature"), head.number("weight")
        value, outcome = last.get(self.success or ""), self.outcome(last)
        # Where a row of ours has no success, the episode broke. In others only success is unknown then.
        broke = value is None and self.success and self.knowledge.own
        if outcome is None and not broke and (isinstance(value, float) or any(turn.rewards for turn in turns)):
            outcome = SCORED_ONLY
        trajectory = Trajectory(
            task,
            head.whole("member"),
            turns,
            _ENDINGS.get(str(last.get("ending")), Ending.OUT_OF_TURNS),
            outcome,
            last.outcome("progress"),
            head.whole("policy_version"),
            self.hints.temperature if temperature is None else temperature,
            str(last.get("error") or ""),
        )
        group = self.named(head, str(head["new_prompt_text"])) or f"{task.environment} {task.id}"
        verdict = None if weight is None else Verdict(weight, str(head.get("reason")), head.number("spread"))
        return LoggedEpisode(place, self.step(head, place), group, task, trajectory, verdict=verdict)


@dataclass(slots=True)
class _Pictures:
    """The pictures of one file that were met so far. A file holds each once, in the first row that names it."""

    known: dict[str, Image] = field(default_factory=dict)
    faults: dict[str, str] = field(default_factory=dict)

    def met(self, rows: LocatedRows) -> LocatedRows:
        """The rows, their pictures remembered. What is no picture is told of by the rows that name it."""
        for place, row in rows:
            stored = row.get(PICTURES)
            for held in stored if isinstance(stored, list) else ():
                values: Any = held if isinstance(held, dict) else {}
                image = Image(values.get("png"), values.get("width"), values.get("height"), values.get("alt") or "")
                fault, named = image_fault(image) or damage(image.png), values.get("digest")
                if not fault and image.digest == named:
                    self.known[image.digest] = image
                elif isinstance(named, str):
                    self.faults[named] = fault or "another picture than it names"
            yield place, row

    def of(self, row: Fields) -> tuple[Image, ...]:
        """The pictures that a row names. Raises Misfit for one that was not met."""
        digests = list(map(str, row.listed(IMAGES)))
        for digest in digests:
            if digest not in self.known:
                found = f"for {digest} {self.faults[digest]}" if digest in self.faults else f"none for {digest}"
                raise Misfit(f"each picture that `{IMAGES}` names in `{PICTURES}`, there or earlier", found)
        return tuple(self.known[digest] for digest in digests)


def _begins_another(row: Row, previous: Row) -> bool:
    if any(row.get(name) != previous.get(name) for name in _IDENTITY):
        return True
    turn, before = row.get("turn"), previous.get("turn")
    return not (isinstance(turn, int | float) and isinstance(before, int | float)) or turn <= before


def _identity(row: Row) -> bytes:
    """Equal for rows of one episode; short, since a log may have many."""
    return blake2b(repr([row.get(name) for name in _IDENTITY]).encode(), digest_size=8).digest()


def _turn(row: Fields, reader: RowReader, images: tuple[Image, ...]) -> Turn:
    rewards, actions, state = _rewards(row), tuple(map(str, row.listed("actions"))), str(row.get("state") or "")
    valid, prompt, said = row.truth("valid", missing=True), row.text("new_prompt_text"), row.text("reply_text")
    if row.get("reply_ids") is None or any(row.get(name) is None for name in _SPANS):
        if images:
            raise Misfit("token ids beside the pictures of a prompt", "text alone")
        said = reader.said(row, "reply_text")
        return Turn(text_turn(prompt, said, reader.hints.tags).reply, rewards, actions, valid, "", state)
    ids, prompt_ids = _ids(row, "reply_ids"), _ids(row, "new_prompt_ids")
    thought, answer = (Span(row.whole(f"{of}_start"), row.whole(f"{of}_end")) for of in ("thought", "answer"))
    if not 0 <= thought.start <= thought.end <= len(ids):
        raise Misfit(f"a thought within the {len(ids)} tokens of the reply", f"{thought.start} to {thought.end}")
    history, entropies = row.whole("history"), row.listed("entropies")
    if not 0 <= history <= len(prompt_ids):
        raise Misfit(f"a history within the {len(prompt_ids)} tokens of the prompt", str(history))
    reply = Reply(
        Prompt(prompt, prompt_ids, row.truth("restarts"), history, images),
        ids,
        said,
        (),
        tuple(_number(value, "entropies") for value in entropies),
        thought,
        answer,
        row.truth("closed"),
        row.truth("cut"),
    )
    return Turn(reply, rewards, actions, valid, "", state)


def _rewards(row: Fields) -> dict[str, float]:
    components: Any = row.get("components")
    if components is None:
        reward = row.number("reward")
        return {} if reward is None else {"reward": reward}
    try:
        named = dict(components)
    except (TypeError, ValueError) as error:
        raise Misfit("named numbers as `components`", records.shown(components)) from error
    return {str(name): _number(value, name) for name, value in named.items()}


def _number(value: object, what: str) -> float:
    found = records.number(value, what)
    return math.nan if found is None else found


def _ids(row: Fields, name: str) -> tuple[int, ...]:
    return tuple(records.integer(value, name) for value in row.listed(name))
