"""The rollout format: one parquet file per step, one row per turn.

`read_rollouts` returns groups and verdicts equal to those written. The same groups give the same bytes.

Layout: log-probabilities and rewards are float64, so nothing is rounded. Byte-stream splitting makes the zero bytes of
values that were float32 almost free. A trajectory that broke before its first turn is one row with turn 0 and no reply.

The columns of pictures exist where the step has any, so files of text are as they always were.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.boundary.foreign_text import encodable
from heedful.boundary.open_files import existing_file
from heedful.storage.column_types import arrow_types, read_table
from heedful.storage.files import write_whole
from heedful.storage.measurements import check_step
from heedful.storage.picture_columns import IMAGES, add_files, find_pictures, picture_columns, pictures_of
from heedful.types import Ending, Group, Prompt, Reply, Span, Task, Trajectory, Turn, Verdict

if TYPE_CHECKING:
    import pyarrow

SCHEMA_VERSION = 1

_LAYOUT: Mapping[str, tuple[str, str]] = {
    "schema_version": ("int32", "version"),
    "step": ("int64", "rollouts.step"),
    "split": ("text", "rollouts.split"),
    "environment": ("text", "rollouts.environment"),
    "task_id": ("text", "group.task.id"),
    "task_seed": ("int64", "group.task.seed"),
    "task_tags": ("texts", "group.task.tags"),
    "group": ("int32", "number"),
    "member": ("int32", "trajectory.member"),
    "turn": ("int32", "place"),
    "new_prompt_text": ("text", "turn.reply.prompt.text"),
    "new_prompt_ids": ("int32s", "turn.reply.prompt.ids"),
    "restarts": ("bool", "turn.reply.prompt.restarts"),
    "history": ("int32", "turn.reply.prompt.history"),
    "reply_text": ("text", "turn.reply.text"),
    "reply_ids": ("int32s", "turn.reply.ids"),
    "logprobs": ("float64s", "turn.reply.logprobs"),
    "entropies": ("float64s", "turn.reply.entropies"),
    "thought_start": ("int32", "turn.reply.thought.start"),
    "thought_end": ("int32", "turn.reply.thought.end"),
    "answer_start": ("int32", "turn.reply.answer.start"),
    "answer_end": ("int32", "turn.reply.answer.end"),
    "closed": ("bool", "turn.reply.closed"),
    "cut": ("bool", "turn.reply.cut"),
    "actions": ("texts", "turn.actions"),
    "valid": ("bool", "turn.valid"),
    "effect": ("text", "turn.effect"),
    "state": ("text", "turn.state"),
    "reward": ("float64", "turn.reward"),
    "components": ("text to float64", "turn.rewards"),
    "outcome": ("float64", "trajectory.outcome"),
    "success": ("bool", "trajectory.success"),
    "progress": ("float64", "trajectory.progress"),
    "ending": ("text", "trajectory.ending.value"),
    "error": ("text", "trajectory.error"),
    "weight": ("float64", "verdict.weight"),
    "reason": ("text", "verdict.reason"),
    "spread": ("float64", "verdict.spread"),
    "temperature": ("float64", "trajectory.temperature"),
    "policy_version": ("int64", "trajectory.policy_version"),
}
"""Every column of the format in order: its kind, and the attribute of a `_Place` that it holds."""

COLUMNS: Mapping[str, str] = {name: kind for name, (kind, _) in _LAYOUT.items()}
"""Every column of the format with its kind, in order."""

OF_IDS = frozenset(
    {
        "new_prompt_ids",
        "reply_ids",
        "logprobs",
        "entropies",
        "thought_start",
        "thought_end",
        "answer_start",
        "answer_end",
    }
)
"""Columns that are null in a turn that is known as text alone, such as one of a server that returns no ids."""

_ADDED: Mapping[str, Any] = {"restarts": False, "history": 0, IMAGES: ()}
"""Columns that older files lack -> the value that their absence means."""

Row = dict[str, Any]
"""One turn: a JSON value for every column."""


@dataclass(frozen=True, slots=True)
class Rollouts:
    """The content of one rollout file."""

    step: int
    split: str
    environment: str
    groups: tuple[Group, ...]
    verdicts: tuple[Verdict, ...] | None
    """One per group, or `None` if nothing was filtered (an evaluation)."""


_LEAVES = {"texts": ".list.element", "float64s": ".list.element", "text to float64": ".key_value.key"}
"""Parquet's names of the values inside a nested column."""


def write_rollouts(
    path: Path | str,
    step: int,
    split: str,
    groups: Sequence[Group],
    verdicts: Sequence[Verdict] | None,
    environment: str = "",
) -> None:
    """Write the groups of one step to a parquet file, in full or not at all.

    Raises:
        ValueError: the groups contradict `split` or `verdicts`, or hold values that the format cannot store, or `step`
            is no step.
        DiskFull: there was no room. Nothing was changed.
    """
    import pyarrow
    import pyarrow.parquet

    check_step(step)
    rollouts = Rollouts(step, split, environment, tuple(groups), None if verdicts is None else tuple(verdicts))
    rows = rollout_rows(rollouts)
    add_files(rows, pictures_of(groups))
    for row in rows:
        row["components"] = None if row["components"] is None else list(row["components"].items())
    try:
        table = pyarrow.Table.from_pylist(rows, schema=_schema(rollouts, pictures=any(IMAGES in row for row in rows)))
    except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError, OverflowError) as error:
        raise ValueError(
            f"Expected groups that fit the rollout format (docs/formats.md) for {path}, found a value that does not: "
            f"{error}. Seeds must fit 64 bits, token ids 32."
        ) from error
    content = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(
        table,
        content,
        compression="zstd",
        use_dictionary=[f"{name}{_LEAVES.get(kind, '')}" for name, kind in COLUMNS.items() if kind.startswith("text")],
        use_byte_stream_split=[f"{name}{_LEAVES[kind]}" for name, kind in COLUMNS.items() if kind == "float64s"],
    )
    write_whole(path, content.getvalue().to_pybytes())


_EMPTY = {"text": "", "int32": 0, "bool": False, "int32s": (), "float64s": ()}
_OF_THE_REPLY: Row = {
    **{name: _EMPTY[kind] for name, (kind, held) in _LAYOUT.items() if held.startswith("turn.reply.")},
    IMAGES: (),
}
"""Placeholder for a reply that was not read."""


def read_rollouts(path: Path | str, replies: bool = True) -> Rollouts:
    """Read one rollout file back into groups and verdicts.

    Without `replies` prompts and replies are empty, which is much faster. Tasks, outcomes, rewards and actions are
    read.

    Raises:
        ValueError: the file is missing, damaged, far larger when unpacked, of another version, not a rollout file, or
            it lacks a picture.
    """
    asked = {name: kind for name, kind in COLUMNS.items() if replies or name not in _OF_THE_REPLY}
    path = existing_file(path, "a rollout file")
    table = read_table(path, asked, pictures=replies)
    missing = [name for name in asked if name not in table.column_names and name not in _ADDED]
    if missing:
        raise ValueError(
            f"Expected the columns of docs/formats.md in {path}, found none named {', '.join(missing)}. "
            "A foreign log has to be converted to this format first."
        )
    absent = _ADDED if replies else _OF_THE_REPLY
    rows = [{**absent, **row} for row in table.to_pylist()]
    if replies:
        find_pictures(rows, str(path))
    versions = sorted({row["schema_version"] for row in rows} - {SCHEMA_VERSION})
    if versions:
        raise ValueError(
            f"Expected schema_version {SCHEMA_VERSION} in {path}, found {versions[0]}. "
            "Read it with the version of heedful that wrote it."
        )
    return _rollouts(rows, table.schema.metadata or {}, str(path))


def environment_in(task_id: str) -> str:
    """The environment that a stored task's id begins with (`echo-` and 16 hexadecimal digits); empty if it has none.

    A file names the environment of its run. Where a run mixed several, only the ids tell them apart.
    """
    name, _, digest = task_id.rpartition("-")
    return name if len(digest) == 16 and set(digest) <= set("0123456789abcdef") else ""


def rollout_rows(rollouts: Rollouts) -> list[Row]:
    """The rows of a rollout file, one per turn. Written as JSON lines they are the plain audit format.

    Pictures are named by their digests, in a last column that exists only where there are any.

    Raises:
        ValueError: the groups contradict the split or the verdicts, or a group cannot be recovered from its rows.
    """
    verdicts = rollouts.verdicts if rollouts.verdicts is not None else (None,) * len(rollouts.groups)
    if len(verdicts) != len(rollouts.groups):
        raise ValueError(
            f"Expected one verdict per group, found {len(verdicts)} verdicts for {len(rollouts.groups)} groups. "
            "Pass the verdicts of exactly these groups, or None if nothing was filtered."
        )
    rows: list[Row] = []
    pictures = bool(pictures_of(rollouts.groups))
    for number, (group, verdict) in enumerate(zip(rollouts.groups, verdicts, strict=True)):
        _check_group(number, group, rollouts.split)
        for trajectory in group.trajectories:
            turns: Sequence[Turn | None] = trajectory.turns or (None,)
            for place, turn in enumerate(turns, start=1 if trajectory.turns else 0):
                row = _Place(rollouts, number, group, verdict, trajectory, place, turn)
                hidden = OF_IDS if turn is not None and _text_alone(turn.reply) else frozenset()
                rows.append(
                    {name: None if name in hidden else _written(row, held) for name, (_, held) in _LAYOUT.items()}
                )
                if pictures:
                    rows[-1][IMAGES] = None if turn is None else [image.digest for image in turn.reply.prompt.images]
    return rows


def _check_group(number: int, group: Group, split: str) -> None:
    if group.task.split != split:
        raise ValueError(
            f"Expected tasks of the split {split!r}, found {group.task.id!r} of {group.task.split!r} in group "
            f"{number}. Write one file per split."
        )
    members = [trajectory.member for trajectory in group.trajectories]
    if not members or len(set(members)) != len(members):
        raise ValueError(
            f"Expected at least one trajectory with distinct members in group {number}, found members {members}."
        )
    if any(trajectory.task != group.task for trajectory in group.trajectories):
        raise ValueError(f"Expected every trajectory of group {number} to be of task {group.task.id!r}, found others.")


@dataclass(frozen=True, slots=True)
class _Place:
    """The place of one row: a turn of a trajectory of a group."""

    rollouts: Rollouts
    number: int
    group: Group
    verdict: Verdict | None
    trajectory: Trajectory
    place: int
    turn: Turn | None
    """`None` for a trajectory that broke before its first turn."""
    version: int = SCHEMA_VERSION


def _text_alone(reply: Reply) -> bool:
    """Whether nothing but texts is known of a reply and its prompt."""
    of_ids = (reply.ids, reply.prompt.ids, reply.logprobs, reply.entropies)
    return not any(of_ids) and reply.thought == reply.answer == Span(0, 0)


def _written(row: _Place, held: str) -> Any:
    """The JSON value of one attribute; `None` where there is no verdict or no turn."""
    value: Any = row
    for name in held.split("."):
        if value is None:
            return None
        value = getattr(value, name)
    match value:
        case str():
            return encodable(value)
        case Sequence():
            return [encodable(item) if isinstance(item, str) else item for item in value]
        case Mapping():
            return {encodable(name): each for name, each in value.items()}
    return value


def _schema(rollouts: Rollouts, pictures: bool) -> pyarrow.Schema:
    """The columns, with key-value metadata that the rows of an empty step could not give."""
    import pyarrow

    of_file = {
        "heedful.schema_version": str(SCHEMA_VERSION),
        "heedful.step": str(rollouts.step),
        "heedful.split": encodable(rollouts.split),
        "heedful.environment": encodable(rollouts.environment),
        "heedful.filtered": str(rollouts.verdicts is not None),
    }
    columns = arrow_types(COLUMNS) | (picture_columns() if pictures else {})
    return pyarrow.schema(list(columns.items()), metadata=of_file)


def _rollouts(rows: Sequence[Row], of_file: Mapping[bytes, bytes], path: str) -> Rollouts:
    try:
        step = int(of_file[b"heedful.step"])
        split, environment = (of_file[key].decode() for key in (b"heedful.split", b"heedful.environment"))
        filtered = of_file[b"heedful.filtered"] == b"True"
        groups, verdicts = [], []
        for number, (_, of_group) in enumerate(itertools.groupby(rows, key=lambda row: row["group"])):
            group, verdict = _group(number, list(of_group))
            groups.append(group)
            verdicts += [verdict] if verdict else []
        if len(verdicts) != (len(groups) if filtered else 0):
            raise ValueError(f"{len(verdicts)} verdicts for {len(groups)} groups")
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"Expected rows as docs/formats.md describes them in {path}, found {type(error).__name__}: {error}. "
            "Write rollout files with heedful.storage.write_rollouts only."
        ) from error
    return Rollouts(step, split, environment, tuple(groups), tuple(verdicts) if filtered else None)


def _group(number: int, rows: Sequence[Row]) -> tuple[Group, Verdict | None]:
    head = rows[0]
    if head["group"] != number:
        raise ValueError(f"group {head['group']} where group {number} should begin")
    _check_values(head, "group")
    named = environment_in(head["task_id"]) or head["environment"]
    task = Task(head["task_id"], head["task_seed"], head["split"], tuple(head["task_tags"]), named)
    trajectories = tuple(
        _trajectory(task, list(of_member)) for _, of_member in itertools.groupby(rows, key=lambda row: row["member"])
    )
    verdict = None if head["weight"] is None else Verdict(head["weight"], head["reason"], head["spread"])
    return Group(task, trajectories), verdict


def _trajectory(task: Task, rows: Sequence[Row]) -> Trajectory:
    head = rows[0]
    _check_values(head, "trajectory")
    turns = tuple(_turn(row) for row in rows if row["turn"] > 0)
    if [row["turn"] for row in rows] != (list(range(1, len(turns) + 1)) or [0]):
        turns_found = str([row["turn"] for row in rows])[:200]
        raise ValueError(f"turns {turns_found} of member {head['member']} of group {head['group']}")
    return Trajectory(
        task,
        head["member"],
        turns,
        Ending(head["ending"]),
        head["outcome"],
        head["progress"],
        head["policy_version"],
        head["temperature"],
        head["error"],
    )


_ALWAYS = {
    owner: tuple(name for name, (_, held) in _LAYOUT.items() if held.startswith(f"{owner}.") and name not in OF_IDS)
    for owner in ("group", "turn")
} | {"trajectory": ("member", "ending", "error", "temperature", "policy_version")}
"""The columns that hold a value in every row of a group, a trajectory and a turn."""


def _check_values(row: Row, owner: str) -> None:
    gap = next((name for name in _ALWAYS[owner] if row[name] is None), None)
    if gap:
        raise ValueError(f"no `{gap}` in turn {row['turn']} of member {row['member']} of group {row['group']}")


def _turn(row: Row) -> Turn:
    _check_values(row, "turn")
    reply = Reply(
        Prompt(
            row["new_prompt_text"], tuple(row["new_prompt_ids"] or ()), row["restarts"], row["history"], row[IMAGES]
        ),
        tuple(row["reply_ids"] or ()),
        row["reply_text"],
        tuple(row["logprobs"] or ()),
        tuple(row["entropies"] or ()),
        Span(row["thought_start"] or 0, row["thought_end"] or 0),
        Span(row["answer_start"] or 0, row["answer_end"] or 0),
        row["closed"],
        row["cut"],
    )
    if not all(0 <= span.start <= span.end for span in (reply.thought, reply.answer)):
        raise ValueError(f"a thought or an answer that ends before it begins: {reply.thought}, {reply.answer}")
    rewards = dict(row["components"])
    turn = Turn(reply, rewards, tuple(row["actions"]), row["valid"], row["effect"], row["state"])
    if not (turn.reward == row["reward"] or math.isnan(turn.reward)):
        raise ValueError(f"a reward of {row['reward']} that is not the sum of {rewards}")
    return turn
