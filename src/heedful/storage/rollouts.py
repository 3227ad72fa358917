"""The rollout format: one parquet file per step, one row per turn. The same groups give the same bytes.

Log-probabilities and rewards are float64, so nothing is rounded. Byte-stream splitting makes the zero bytes of values
that were float32 almost free. A trajectory that broke before its first turn is one row with turn 0 and no reply. The
columns of pictures exist where the step has any: a row names its pictures, and each file is stored once.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.boundary.foreign_text import encodable
from heedful.boundary.jsontext import expecting
from heedful.boundary.open_files import open_file, require_pyarrow
from heedful.storage.files import write_whole
from heedful.types import Ending, Group, Image, Prompt, Reply, Span, Task, Trajectory, Turn, Verdict

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

IMAGES = "new_prompt_images"
"""The digests of the pictures of a row's prompt, in order."""
PICTURES = "pictures"
"""The files of those that no earlier row names."""
_OF_A_PICTURE = ("digest", "png", "width", "height", "alt")

OF_IDS = (
    *("new_prompt_ids", "reply_ids", "logprobs", "entropies"),
    *("thought_start", "thought_end", "answer_start", "answer_end"),
)
"""Columns that are null in a turn that is known as text alone, such as one of a server that returns no ids."""

_ADDED: Mapping[str, Any] = {"restarts": False, "history": 0, IMAGES: ()}
"""Columns that older files lack -> the value that their absence means."""

_LEAVES = {"texts": ".list.element", "float64s": ".list.element", "text to float64": ".key_value.key"}
"""Parquet's names of the values inside a nested column."""

Row = dict[str, Any]
"""One turn: a JSON value for every column."""

_EMPTY = {"text": "", "int32": 0, "bool": False, "int32s": (), "float64s": ()}
_OF_THE_REPLY: Row = {
    **{name: _EMPTY[kind] for name, (kind, held) in _LAYOUT.items() if held.startswith("turn.reply.")},
    IMAGES: (),
}
"""Placeholder for a reply that was not read."""


@dataclass(frozen=True, slots=True)
class Rollouts:
    """The content of one rollout file."""

    step: int
    split: str
    environment: str
    groups: tuple[Group, ...]
    verdicts: tuple[Verdict, ...] | None
    """One per group, or `None` if nothing was filtered (an evaluation)."""


def write_rollouts(
    path: Path | str,
    step: int,
    split: str,
    groups: Sequence[Group],
    verdicts: Sequence[Verdict] | None,
    environment: str = "",
) -> None:
    """Write the groups of one step to a parquet file, in full or not at all.

    Raises DiskFull where there was no room. Nothing was changed then. Raises ValueError without pyarrow.
    """
    require_pyarrow(Path(path))
    import pyarrow
    import pyarrow.parquet

    rows = rollout_rows(
        Rollouts(step, split, environment, tuple(groups), None if verdicts is None else tuple(verdicts))
    )
    pictures = pictures_of(groups)
    schema = _schema(COLUMNS, pictures=bool(pictures)).with_metadata(
        {
            "heedful.schema_version": str(SCHEMA_VERSION),
            "heedful.step": str(step),
            "heedful.split": encodable(split),
            "heedful.environment": encodable(environment),
            "heedful.filtered": str(verdicts is not None),
        }
    )  # metadata, since an empty step has no rows that could tell
    for row in rows:
        row["components"] = None if row["components"] is None else list(row["components"].items())
        if IMAGES in row:  # the first row that names a picture holds its file
            first = [pictures.pop(digest) for digest in dict.fromkeys(row[IMAGES] or ()) if digest in pictures]
            row[PICTURES] = [{name: getattr(image, name) for name in _OF_A_PICTURE} for image in first]
    content = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(
        pyarrow.Table.from_pylist(rows, schema=schema),
        content,
        compression="zstd",
        use_dictionary=[f"{name}{_LEAVES.get(kind, '')}" for name, kind in COLUMNS.items() if kind.startswith("text")],
        use_byte_stream_split=[f"{name}{_LEAVES[kind]}" for name, kind in COLUMNS.items() if kind == "float64s"],
    )
    write_whole(path, content.getvalue().to_pybytes())


def rollout_rows(rollouts: Rollouts) -> list[Row]:
    """The rows of a rollout file, one per turn. Written as JSON lines they are the plain audit format.

    Pictures are named by their digests, in a last column that exists only where there are any.
    """
    verdicts = rollouts.verdicts if rollouts.verdicts is not None else (None,) * len(rollouts.groups)
    rows: list[Row] = []
    pictures = bool(pictures_of(rollouts.groups))
    for number, (group, verdict) in enumerate(zip(rollouts.groups, verdicts, strict=True)):
        for trajectory in group.trajectories:
            turns: Sequence[Turn | None] = trajectory.turns or (None,)
            for place, turn in enumerate(turns, start=1 if trajectory.turns else 0):
                at = _Place(rollouts, number, group, verdict, trajectory, place, turn)
                row = {name: _written(at, held) for name, (_, held) in _LAYOUT.items()}
                if turn is not None:
                    reply = turn.reply
                    of_ids = (reply.ids, reply.prompt.ids, reply.logprobs, reply.entropies)
                    if not any(of_ids) and reply.thought == reply.answer == Span(0, 0):  # texts alone are known
                        row |= dict.fromkeys(OF_IDS)
                if pictures:
                    row[IMAGES] = None if turn is None else [image.digest for image in turn.reply.prompt.images]
                rows.append(row)
    return rows


def pictures_of(groups: Sequence[Group]) -> dict[str, Image]:
    """The pictures of all prompts by their digests, each once, in order."""
    turns = (turn for group in groups for trajectory in group.trajectories for turn in trajectory.turns)
    return {image.digest: image for turn in turns for image in turn.reply.prompt.images}


def read_rollouts(path: Path | str, replies: bool = True) -> Rollouts:
    """Read one rollout file back into groups and verdicts.

    Without `replies` prompts and replies are empty, which is much faster. Tasks, outcomes, rewards and actions are
    read.

    Raises:
        ValueError: the file is missing, damaged, of another version, not a rollout file, or it lacks a picture. Or
            pyarrow is not installed.
    """
    require_pyarrow(Path(path))
    import pyarrow
    import pyarrow.parquet

    wanted = {name: kind for name, kind in COLUMNS.items() if replies or name not in _OF_THE_REPLY}
    path = Path(path)
    advice = "Delete it, or restore it from a copy. The other steps of the run do not need it."
    with expecting(
        f"a rollout file with the columns of docs/formats.md at {path}", advice, also=(pyarrow.ArrowException,)
    ):
        with open_file(path) as stream:
            opened = pyarrow.parquet.ParquetFile(stream)
            names = opened.schema_arrow.names
            schema = _schema(wanted, pictures=replies and IMAGES in names)
            schema = pyarrow.schema([field for field in schema if field.name in names])
            table = opened.read(columns=schema.names).select(schema.names).cast(schema)
            of_file = opened.schema_arrow.metadata or {}
        absent = _ADDED if replies else _OF_THE_REPLY
        rows = [{**absent, **row} for row in table.to_pylist()]
        versions = {row["schema_version"] for row in rows} - {SCHEMA_VERSION}
        if versions:
            raise ValueError(f"schema_version {min(versions)}, which another version of heedful reads")
        if replies:
            _find_pictures(rows)
        step = int(of_file[b"heedful.step"])
        split, environment = (of_file[key].decode() for key in (b"heedful.split", b"heedful.environment"))
        pairs = [_group(list(of_group)) for _, of_group in itertools.groupby(rows, key=lambda row: row["group"])]
    verdicts = tuple(verdict for _, verdict in pairs if verdict)
    filtered = of_file[b"heedful.filtered"] == b"True"
    return Rollouts(step, split, environment, tuple(group for group, _ in pairs), verdicts if filtered else None)


def environment_in(task_id: str) -> str:
    """The environment that a stored task's id begins with (`echo-` and 16 hexadecimal digits); empty if it has none.

    A file names the environment of its run. Where a run mixed several, only the ids tell them apart.
    """
    name, _, digest = task_id.rpartition("-")
    return name if len(digest) == 16 and set(digest) <= set("0123456789abcdef") else ""


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


def _schema(kinds: Mapping[str, str], pictures: bool) -> pyarrow.Schema:
    """The type of each column, by the names of its kind."""
    import pyarrow

    text, int32 = pyarrow.string(), pyarrow.int32()
    known = {
        "text": text,
        "int32": int32,
        "int64": pyarrow.int64(),
        "float64": pyarrow.float64(),
        "bool": pyarrow.bool_(),
        "texts": pyarrow.list_(text),
        "int32s": pyarrow.list_(int32),
        "float64s": pyarrow.list_(pyarrow.float64()),
        "text to float64": pyarrow.map_(text, pyarrow.float64()),
    }
    columns = {name: known[kind] for name, kind in kinds.items()}
    if pictures:  # whose ids are wider
        file = zip(_OF_A_PICTURE, (text, pyarrow.binary(), int32, int32, text), strict=True)
        columns["new_prompt_ids"] = pyarrow.list_(pyarrow.int64())
        columns |= {IMAGES: pyarrow.list_(text), PICTURES: pyarrow.list_(pyarrow.struct(list(file)))}
    return pyarrow.schema(list(columns.items()))


def _find_pictures(rows: Sequence[Row]) -> None:
    """Put pictures in the place of their digests."""
    files = [file for row in rows for file in row.get(PICTURES) or ()]
    known = {file["digest"]: Image(*(file[name] for name in _OF_A_PICTURE[1:])) for file in files}
    for row in rows:
        for digest in row[IMAGES] or ():
            if digest not in known or known[digest].digest != digest:
                raise ValueError(
                    f"the picture {digest} missing or changed (turn {row['turn']} of task {row['task_id']}; without "
                    "replies, read_rollouts(path, replies=False), the rest can be read)"
                )
        row[IMAGES] = tuple(known[digest] for digest in row[IMAGES] or ())


def _group(rows: Sequence[Row]) -> tuple[Group, Verdict | None]:
    head = rows[0]
    named = environment_in(head["task_id"]) or head["environment"]
    task = Task(head["task_id"], head["task_seed"], head["split"], tuple(head["task_tags"]), named)
    trajectories = []
    for member, of_member in itertools.groupby(rows, key=lambda row: row["member"]):
        first, *more = of_member
        turns = tuple(_turn(row) for row in (first, *more) if row["turn"] > 0)
        rest = (first[name] for name in ("outcome", "progress", "policy_version", "temperature", "error"))
        trajectories.append(Trajectory(task, member, turns, Ending(first["ending"]), *rest))
    verdict = None if head["weight"] is None else Verdict(head["weight"], head["reason"], head["spread"])
    return Group(task, tuple(trajectories)), verdict


def _turn(row: Row) -> Turn:
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
    return Turn(reply, dict(row["components"]), tuple(row["actions"]), row["valid"], row["effect"], row["state"])
