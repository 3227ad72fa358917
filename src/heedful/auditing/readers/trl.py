"""TRL's completion logs: `<output_dir>/completions/completions_<step>.parquet`, written with `log_completions=True`.

Any other rows with a `prompt` and a `completion`, or with `messages` and a `reward`, are read in the same way.

Source: TRL 1.16, `GRPOTrainer.log`. One row per completion with `step`, `prompt`, `completion`, a column per reward
function, user columns, `advantage`. Texts are decoded with special tokens dropped; a reward that was not given is null.
An evaluation writes its completions into the file of the same step. ms-swift 4 writes a line of lists per batch, with
`gen_step` and `advantages`. ROLL writes a line of lists per step, with `responses`, `scores` and `global_step`. AReaL
writes a file per task, whose rows name the weights that sampled their last token: `tail_version` is the step.
Promise: what such a file does not tell (weights of rewards, which number is a reward) is reported, not guessed.

`heedful.integrations.trl.HeedfulGRPOTrainer` adds `heedful_id` (generation batch/group/member), `heedful_task`,
`heedful_reason`, `heedful_reward`, `heedful_outcome`, `heedful_progress`, `heedful_thought`.
Promise: what these give equals what the run measured. What only TRL's text could give is reported as unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

from heedful.auditing.logs import records
from heedful.auditing.logs.conversations import THOUGHTS, text_turn, unread_parts
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
    APART,
    GROUP_NAMES,
    TEXT_ALONE,
    TRUTH_NAMES,
    Hints,
    RowReader,
    Sample,
    known_rewards,
    prompt_task,
    scalar,
)
from heedful.boundary import listed
from heedful.storage.rollouts import environment_in
from heedful.types import Task, Verdict

_ID = re.compile(r"(\d{1,18})/(\d{1,18})/(\d{1,18})")
_PLACE = re.compile(r"(\d{1,18}):(\d{1,18})")
_ONE_TEXT = "TRL logs a completion as one decoded text, which does not show the replies in it"
_OF_TRL = frozenset({"step", "advantage"})
_STEPS = ("tail_version", "global_step", "training_step", "train_step")
"""Names of the step in rows without the column `step`."""
_NO_REWARDS = _OF_TRL.union(("mode", "epoch", "answer"), GROUP_NAMES, TRUTH_NAMES)


@dataclass(frozen=True, slots=True)
class TrlCompletions(RowReader):
    """Rows of TRL's completion logs."""

    SUMS: ClassVar[bool] = True
    FIELDS: ClassVar[frozenset[str]] = frozenset({*THOUGHTS, *TRUTH_NAMES}) | {
        *("step", "gen_step", "prompt", "completion", "messages", "advantage", "advantages"),
        *("responses", "scores", *_STEPS),
    }

    @staticmethod
    def fits(row: Row) -> bool:
        texts = {"prompt", "completion"} <= row.keys() or {"prompt", "responses", "scores"} <= row.keys()
        return texts or (isinstance(row.get("messages"), list) and "reward" in row)

    @classmethod
    def begin(cls, sample: Sequence[Row], hints: Hints) -> Self:
        rows = Sample(_as_trl(row) for row in sample if cls.fits(row))
        columns = rows.columns
        rows.require(hints.rewards, "rewards")
        success, group, no_steps = rows.success(hints), rows.group("prompt"), rows.without_steps
        thoughts = rows.thoughts("completion", hints.tags)
        numbers = tuple(
            name
            for name, values in columns.items()
            if name not in _NO_REWARDS and scalar(values) and not any(isinstance(value, bool) for value in values)
        )
        name = "score" if "reward" not in columns else "reward"
        by_hand = "advantage" not in columns and (name in columns or "step" not in columns)
        if by_hand or name == "reward":
            # Others may be its parts, or anything. A row whose reward is no number costs only itself.
            numbers = (name,) if any(scalar([records.scalar_of(value)]) for value in columns.get(name, ())) else ()
        # TRL writes rewards as fractions: whole numbers beside them are the user's.
        fractions = tuple(name for name in numbers if any(isinstance(value, float) for value in columns[name]))
        rewards = hints.rewards or fractions or numbers
        unread = columns.get("reward", ()) if not hints.rewards and "reward" not in rewards else ()
        none = (
            f"`reward` holds no numbers ({records.shown(unread[0])})"
            if unread
            else "none holds only numbers (--rewards)"
        )
        found = [f"Reward columns: {listed(rewards)}." if rewards else f"No reward column: {none}."]
        found += [f"Success is read from the column {success}."] if success else []
        found += [f"Groups are those of the column {group}."] if group else []
        found += [APART.format(listed(thoughts))] if thoughts else []
        numeric = {name: [isinstance(value, int | float) for value in values] for name, values in columns.items()}
        mixed = [
            name for name, each in numeric.items() if name not in (*rewards, success) and any(each) and not all(each)
        ]
        whole = [name for name in numbers if name not in (*rewards, success)]
        assumed = {
            "Completions with the same prompt in one step are one group: the log has no group number.": not group,
            "Each file holds the last batch that was generated before its step was logged, or that of an evaluation "
            "at that step (eval_steps).": not no_steps,
            **dict.fromkeys(no_steps, True),
            "The reward is the plain sum of the reward columns: weights are not logged.": len(rewards) > 1,
            f"Columns that hold numbers and other values are no rewards: {listed(mixed)}. Name a reward among them "
            "with --rewards.": bool(mixed),
            f"Columns of whole numbers beside fractions are no rewards: {listed(whole)}. If one is, name all rewards "
            "with --rewards.": bool(whole) and not hints.rewards,
            "Each assistant's message in `messages` is a reply of the agent, the first one, too: examples and history "
            "belong in a column `prompt`, and what was sampled in `completion`.": any(
                isinstance(row.get("messages"), list) and len(row["completion"]) > 1 for row in rows
            ),
            TEXT_ALONE: not any(isinstance(value, list) for value in columns["prompt"]),
            **dict.fromkeys(unread_parts([columns["prompt"], columns["completion"]]), True),
        }
        texts = any(isinstance(value, str) for value in columns["completion"])
        unknown = records.unknown_of(success=success is not None, turns=not texts, reward=bool(rewards))
        told = tuple(sentence for sentence, true in assumed.items() if true)
        knowledge = Knowledge(tuple(found), told, unknown, stepped=not no_steps)
        return cls(hints, knowledge, success, rewards, group, thoughts, rows.phase)

    def episodes(self, rows: LocatedRows, faults: Faults) -> Episodes:
        return RowReader.episodes(self, ((place, _as_trl(row)) for place, row in rows), faults)

    def of_row(self, place: Location, row: Fields, faults: Faults) -> Iterable[LoggedEpisode]:
        if not self.fits(row):
            raise Misfit("`prompt` and `completion`", f"columns {listed(row)}")
        given, outcome = self.given(row), self.outcome(row)
        prompt, messages, turns = self.dialogue(row)
        task = prompt_task(prompt)
        group, truth = self.by_text(row, prompt)
        trajectory = self.trajectory(task, turns, given, outcome)
        compared = not self.group and not self.hints.rewards
        advantage = row.number("advantage") if compared else None
        step = self.step(row, place)
        yield LoggedEpisode(place, step, group, task, trajectory, messages, truth=truth, advantage=advantage)


def _as_trl(row: Row) -> Row:
    """The row under TRL's names: one conversation ends its prompt before the first reply."""
    names = {"gen_step": "step", "advantages": "advantage"}
    if "completion" not in row and "responses" in row:
        names |= {"responses": "completion", "scores": "reward", "global_step": "step"}
    elif "step" not in row:
        names |= {name: "step" for name in _STEPS if name in row}
    row = {names.get(name, name): value for name, value in row.items()}
    messages = row.get("messages")
    if isinstance(messages, list) and "prompt" not in row:
        said = (at for at, one in enumerate(messages) if isinstance(one, dict) and one.get("role") == "assistant")
        first = next(said, len(messages))
        row |= {"prompt": messages[:first], "completion": messages[first:]}
    return row


@dataclass(slots=True)
class _Batch:
    """The generation batch that is being read, over the borders of files."""

    step: int = -1
    seen: set[tuple[int, int]] = field(default_factory=set)
    whole: bool = True


@dataclass(frozen=True, slots=True)
class NumberedCompletions(RowReader):
    """Rows of TRL's completion logs that name generation batch, group and member. Such a reader reads a log once."""

    SUMS: ClassVar[bool] = True
    FIELDS: ClassVar[frozenset[str]] = frozenset(
        {"prompt", "completion", *(f"heedful_{name}" for name in ("id", "task", "reason", "reward", "outcome"))}
        | {"heedful_progress", "heedful_thought"}
    )

    weights: Mapping[str, float] = field(default_factory=dict)
    """Weight of each reward column; empty where only their sum is known."""
    batch: _Batch = field(default_factory=_Batch, compare=False)

    @staticmethod
    def fits(row: Row) -> bool:
        return {"prompt", "completion", "heedful_id", "heedful_reason", "heedful_reward"} <= row.keys()

    @classmethod
    def begin(cls, sample: Sequence[Row], hints: Hints) -> Self:
        rows = Sample(row for row in sample if cls.fits(row))
        rows.require(hints.rewards, "rewards")
        weights = dict.fromkeys(hints.rewards, 1.0) or _explaining(rows, hints.weights)
        success = hints.success or ("heedful_outcome" if rows.columns.get("heedful_outcome") else None)
        rows.require([success], "success")
        unknown = records.unknown_of(success=success is not None, turns=False)
        unknown |= dict.fromkeys(("format/closed_rate", "format/trailing_tokens", "length/turns"), _ONE_TEXT)
        found = "heedful numbered the rows: groups, verdicts, rewards and thoughts are those that the run measured."
        knowledge = Knowledge((found,), (), unknown, numbered=True, components=tuple(weights))
        return cls(hints, knowledge, success, tuple(weights), weights=weights)

    def of_row(self, place: Location, row: Fields, faults: Faults) -> Iterable[LoggedEpisode]:
        """The episode, if the row is one of training that was not read before, in a batch that is held from its start.

        TRL logs the last rows it generated: a batch may be logged twice, and an evaluation pushes out the first ones.
        """
        if row.get("heedful_id") is None:
            faults.aside["of evaluations"] += 1
            return
        found = _ID.fullmatch(row.text("heedful_id"))
        if found is None:
            raise Misfit("batch/group/member as `heedful_id`", records.shown(row["heedful_id"]))
        step, group, member = records.step_number(int(found[1]), "heedful_id"), int(found[2]), int(found[3])
        batch = self.batch
        if step != batch.step:
            batch.step, batch.seen, batch.whole = step, set(), (group, member) == (0, 0)
        if (group, member) in batch.seen:
            faults.aside["of batches that were logged before"] += 1
            return
        batch.seen.add((group, member))
        if not batch.whole:
            raise Misfit(f"generation batch {step} from its first completion", f"{group}/{member} first")
        prompt, messages = self.prompt(row.get("prompt"))
        rewards = known_rewards({"heedful_reward": row.number("heedful_reward")})
        if self.weights:  # the parts of the reward, weighted, in place of their sum
            given = _weighted(row, self.weights)
            rewards = known_rewards({name: given.get(name) for name in self.weights})
        name = row.text("heedful_task")
        task = Task(name, 0, "train", environment=environment_in(name))
        turn = text_turn(prompt, self._first_thought(row, prompt), self.hints.tags)
        trajectory = self.trajectory(task, (turn,), rewards, self.outcome(row))
        trajectory = replace(trajectory, member=member, progress=row.number("heedful_progress"))
        reason = row.text("heedful_reason")
        verdict = Verdict(float(reason == "kept"), reason, None)
        yield LoggedEpisode(place, step, str(group), task, trajectory, messages, verdict)

    def _first_thought(self, row: Fields, prompt: str) -> str:
        """The thought of the first reply between its tags, from the place that the row names. Nothing if it has none.

        The text behind a thought that was cut off is the environment's, and no part of it.
        """
        tags, named = self.hints.tags, row.text("heedful_thought")
        if not named:
            return ""
        opening = prompt[prompt.rindex(tags.open) :] if prompt.rstrip().endswith(tags.open) else tags.open
        if named.startswith("="):
            return f"{opening}{named[1:]}{tags.close}"
        # The place counts in the completion, or in the first message that was sampled.
        text: Any = row.get("completion")
        if isinstance(text, list):
            said = (message for message in row.objects("completion") if message.get("role") == "assistant")
            text = next((message.get("content") for message in said), "")
        place, text = _PLACE.fullmatch(named), text if isinstance(text, str) else ""
        if place is None or int(place[2]) > len(text):
            raise Misfit(
                f"a place in the completion ({len(text)} characters) as `heedful_thought`", records.shown(named)
            )
        end = int(place[2])
        closed = text[end:].lstrip().startswith(tags.close)
        return f"{opening}{text[int(place[1]) : end]}{tags.close if closed else ''}"


def _explaining(rows: Sequence[Row], weights: Mapping[str, float]) -> dict[str, float]:
    """The weights, if with them the reward columns add to `heedful_reward` in every row; else none."""

    def explained(row: Fields) -> bool:
        total = row.number("heedful_reward")
        return total is None or sum(_weighted(row, weights).values()) == total

    return dict(weights) if all(records.fitting(explained, rows)) else {}


def _weighted(row: Fields, weights: Mapping[str, float]) -> dict[str, float]:
    """Reward column -> what it adds to the reward; columns that gave nothing are not there."""
    values = {name: row.number(name) for name in weights}
    return {name: weights[name] * value for name, value in values.items() if value is not None}
