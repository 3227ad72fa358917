"""TRL's completion logs: `<output_dir>/completions/completions_<step>.parquet`, written with `log_completions=True`.

Any other rows with a `prompt` and a `completion`, or with `messages` and a `reward`, are read in the same way.

Source: TRL 1.16, `GRPOTrainer.log`. One row per completion with `step`, `prompt`, `completion`, a column per reward
function, user columns, `advantage`. Texts are decoded with special tokens dropped; a reward that was not given is null.
An evaluation writes its completions into the file of the same step. ms-swift 4 writes a line of lists per batch, with
`gen_step` and `advantages`.
Promise: what such a file does not tell (weights of rewards, which number is a reward) is reported, not guessed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from heedful.auditing.logs.conversations import unread_parts
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
from heedful.auditing.logs.values import Fields, shown
from heedful.auditing.readers.reader import (
    GROUP_NAMES,
    READ_BESIDE,
    TEXT_ALONE,
    TRUTH_NAMES,
    Hints,
    RowReader,
    choose_group,
    choose_success,
    columns_of,
    prompt_task,
    require,
    scalar,
    step_of,
    stepped,
)
from heedful.boundary import listed

_OF_TRL = frozenset({"step", "advantage"})
_NO_REWARDS = _OF_TRL.union(("mode", "epoch"), GROUP_NAMES, TRUTH_NAMES)


@dataclass(frozen=True, slots=True)
class TrlCompletions(RowReader):
    """Rows of TRL's completion logs."""

    SUMS: ClassVar[bool] = True
    FIELDS: ClassVar[frozenset[str]] = READ_BESIDE | {
        *("step", "gen_step", "prompt", "completion", "messages", "advantage", "advantages")
    }

    @staticmethod
    def fits(row: Row) -> bool:
        return {"prompt", "completion"} <= row.keys() or (isinstance(row.get("messages"), list) and "reward" in row)

    @classmethod
    def begin(cls, sample: Sequence[Row], hints: Hints) -> Self:
        rows = [_as_trl(row) for row in sample if cls.fits(row)]
        columns = columns_of(rows)
        require(hints.rewards, columns, "rewards")
        success, group = choose_success(columns, hints), choose_group(rows, "prompt")
        numbers = tuple(
            name
            for name, values in columns.items()
            if name not in _NO_REWARDS and scalar(values) and not any(isinstance(value, bool) for value in values)
        )
        if not columns.keys() & _OF_TRL or ("reward" in columns and "advantage" not in columns):
            numbers = ("reward",) if scalar(columns.get("reward", ())) else ()  # by hand: others may be anything
        rewards = hints.rewards or numbers
        return cls(hints, _knowledge(rows, columns, rewards, success, group, hints), success, rewards, group)

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
        step = step_of(row, place.file, self.knowledge.stepped)
        yield LoggedEpisode(place, step, group, task, trajectory, messages, truth=truth, advantage=advantage)


def _as_trl(row: Row) -> Row:
    """The row under TRL's names: one conversation ends its prompt before the first reply."""
    row = {{"gen_step": "step", "advantages": "advantage"}.get(name, name): value for name, value in row.items()}
    messages = row.get("messages")
    if isinstance(messages, list) and "prompt" not in row:
        said = (at for at, one in enumerate(messages) if isinstance(one, dict) and one.get("role") == "assistant")
        first = next(said, len(messages))
        row |= {"prompt": messages[:first], "completion": messages[first:]}
    return row


def _knowledge(
    rows: Sequence[Row],
    columns: dict[str, list[object]],
    rewards: tuple[str, ...],
    success: str | None,
    group: str | None,
    hints: Hints,
) -> Knowledge:
    unread = columns.get("reward") if "reward" not in rewards and not hints.rewards else None
    none = (
        f"No reward column: `reward` holds no numbers ({shown(unread[0])})."
        if unread
        else "No reward column in the first rows."
    )
    found = [f"Reward columns: {listed(rewards)}." if rewards else none]
    found += [f"Success is read from the column {success}."] if success else []
    found += [f"Groups are those of the column {group}."] if group else []
    grouped = "Completions with the same prompt in one step are one group: the log has no group number."
    has_steps, no_steps = stepped(rows)
    assumed = [] if group else [grouped]
    assumed += no_steps or [
        "Each file holds the last batch that was generated before its step was logged, or that of an evaluation at "
        "that step (eval_steps)."
    ]
    if len(rewards) > 1:
        assumed.append("The reward is the plain sum of the reward columns: weights are not logged.")
    mixed = [name for name, values in columns.items() if name not in (*rewards, success) and _is_mixed(values)]
    if mixed:
        assumed.append(
            f"Columns that hold numbers and other values are no rewards: {listed(mixed)}. Name a reward among them "
            "with --rewards."
        )
    if not any(isinstance(value, list) for value in columns["prompt"]):
        assumed.append(TEXT_ALONE)
    assumed += unread_parts([columns["prompt"], columns["completion"]])
    whole = any(isinstance(value, str) for value in columns["completion"])
    unknown = unknown_of(success=success is not None, turns=not whole, reward=bool(rewards))
    return Knowledge(tuple(found), tuple(assumed), unknown, stepped=has_steps)


def _is_mixed(values: Sequence[object]) -> bool:
    numbers = [isinstance(value, int | float) for value in values]
    return any(numbers) and not all(numbers)
