"""Files of scalars -> rows of numbers. What a file is, its content says.

| kind | files |
|---|---|
| trainer_state | `trainer_state.json` of transformers and TRL: the whole history |
| event file | TensorBoard, `events.out.tfevents.*` |
| W&B | `run-*.wandb`, written offline or synced |
| Trackio | its SQLite file, opened for reading alone: the run that was logged last |
| lines | JSON lines: one object per line, verl's `{"step", "data"}` included |
| CSV | a header with a column of steps; also with semicolons or tabs, and in UTF-16, as spreadsheets write it |
| console | the lines that verl and TRL print |

A number that is not finite in any spelling (`NaN`, `"NaN"`, `inf`) is NaN here. A `null` is no value: some trainers
write it for NaN, others where they log a key now and then, and `History` tells them apart. A line or record that is not
whole is left out: the file may still grow.
"""

from __future__ import annotations

import ast
import csv
import io
import json
import math
import re
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from heedful.auditing.logs.records import is_evaluation
from heedful.auditing.scalars import binary
from heedful.auditing.scalars.aliases import STEP, key_of_step
from heedful.boundary.jsontext import expecting, parse_json
from heedful.boundary.open_files import open_file

_VERL = re.compile(r"\bstep:(\d+) - (\S.*)")
_TRL = re.compile(r"\{'[^{}]*\}(?=\s*$)")
"""The dict at the end of a line. A progress bar that had no line end may stand before it."""
_NUMPY = re.compile(r"np\.\w+\(([^()]*)\)")
"""How numpy 2 prints a number."""
_BARE = re.compile(r"(?<=: )(nan|-?inf)\b")
_PHASES = ("phase", "split", "mode", "stage")
_LABELS = {
    *("time", "timestamp", "date", "datetime", "run", "run_id", "run_name", "name", "experiment", "host"),
    *("event", "type", "level", "logger", *_PHASES),
}
"""Texts that loggers write beside their numbers."""
_TEXTS = {"prompt", "completion", "response", "messages"}
"""Columns of rollouts, of which a step has many rows. They may hold token ids."""
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_DECIMAL_COMMA = re.compile(r"^\s*([+-]?\d*),(\d+(?:[eE][+-]?\d+)?)\s*$")
_NAN = {"nan", "null", "none", "inf", "-inf", "infinity", "-infinity"}


class ScalarRow(NamedTuple):
    """The numbers of one step in one line or record of a file."""

    step: int
    values: Mapping[str, float]
    """The trainer's keys, without those of the step."""
    by: str = ""
    """The key of the step, where the row has one."""


def scalar_kind(path: Path) -> str:
    """What a file of scalars is, by its content. Empty for anything else, rows of rollouts included."""
    with open_file(path) as stream:
        head = stream.read(1 << 16)
    if binary.is_event_file(head):
        return "event file"
    if binary.is_wandb_file(head):
        return "W&B"
    if head.startswith(b"SQLite format 3\0"):
        return "Trackio"
    text = _decoded(head)
    if '"log_history"' in text and text.lstrip().startswith("{"):
        return "trainer_state"
    lines = [line for line in text.splitlines() if line.strip()]
    first = next((row for row in map(_object, lines) if row), None)
    if first is not None:
        row = _flat(first)
        told = row.keys() & _TEXTS or any(_tells(value) for name, value in row.items() if name not in _LABELS)
        return "lines" if key_of_step(_numbers(row)) and not told else ""
    header = next(csv.reader(lines[:1], delimiter=_delimiter(text), skipinitialspace=True), [])
    if {*header} & {*STEP} and len(header) > 1 and not {*header} & _TEXTS:
        return "CSV"
    if not lines or b"\0" in head:
        return ""
    with open_file(path) as stream:  # verl prints its settings and the start of its engines first
        return (
            "console" if any(map(_printed, chain.from_iterable(_decoded(line).splitlines() for line in stream))) else ""
        )


def scalar_files(path: Path) -> tuple[Path, ...]:
    """The files of a tracker in a folder, oldest first: TensorBoard's or W&B's, those of the last run in it, or the
    last of TRL's states, which lie in its checkpoints and hold the whole history. A file is returned as it is."""
    if not path.is_dir():
        return (path,)
    names = ("events.out.tfevents.*", "*.wandb")
    found = sorted(chain.from_iterable(map(path.glob, names)))
    runs = {file.parent for name in names for file in path.glob(f"*/{name}")} if not found else ()
    if runs:
        return scalar_files(max(runs, key=lambda run: (run.stat().st_mtime, run.name)))
    states = [*path.glob("checkpoint-*/trainer_state.json"), *path.glob("trainer_state.json")]
    last = sorted(states, key=lambda state: (state.parent == path, len(state.parent.name), state))[-1:]
    return tuple(found or last) or (path,)


def scalar_rows(path: Path, kind: str = "", ended: bool = True) -> Iterator[ScalarRow]:
    """The rows of a file, in its order.

    `ended`: the last line counts without its end, and the last step of an event file, whose values come one by one, as
    it is. A file that grows is read again from its start.

    Raises ValueError for a file that is no file of scalars, and OSError where it cannot be read.
    """
    kind = kind or scalar_kind(path)
    if kind == "Trackio":
        yield from _trackio(path)
        return
    with open_file(path) as stream:
        content = stream.read()
    if kind in ("CSV", "lines", "console") and not ended and not content.startswith(_UTF_16):
        content = content[: content.rfind(b"\n") + 1]
    if kind == "event file":
        by_step: dict[int, dict[str, float]] = {}
        for step, name, value in binary.event_rows(content):
            by_step.setdefault(step, {})[name] = value
        for step in sorted(by_step)[: None if ended else -1]:
            yield ScalarRow(step, by_step[step])
    elif kind == "W&B":
        for texts in binary.wandb_rows(content):
            yield from row_of({name: _value(text) for name, text in texts.items()})
    elif kind == "trainer_state":
        try:
            history = parse_json(content)["log_history"]
        except ValueError:
            return  # not whole yet: the trainer writes it in place
        for row in history[:-1] if history and "train_runtime" in history[-1] else history:
            yield from row_of(row)
    elif kind == "CSV":
        yield from _csv(_decoded(content))
    elif kind == "lines":
        yield from rows_of_lines(content)
    elif kind == "console":
        # verl prints the step. TRL does not: its lines are counted, and evaluations belong to the line before.
        counted = 0
        for row in map(_printed, content.decode("utf-8", "replace").splitlines()):
            if "step" not in row and row:
                counted += not any(name.startswith("eval_") for name in row)
                row["step"] = counted
            yield from row_of(row)
    else:
        raise ValueError(
            f"Expected scalars in {path} (trainer_state.json, TensorBoard's event files, .wandb, Trackio's SQLite "
            "file, JSON lines or CSV with a step, verl's or TRL's console), found another kind of file."
        )


def rows_of_lines(content: bytes) -> Iterator[ScalarRow]:
    """The rows of a file of lines, or of some of its lines: each stands for itself."""
    for line in content.splitlines():
        yield from row_of(_object(_decoded(line)) or {})


def _trackio(path: Path) -> Iterator[ScalarRow]:
    """The rows of the run that was logged last."""
    address = f"file:{quote(str(path.resolve()))}?mode=ro"
    latest = "(select run_id from metrics order by id desc limit 1)"
    what = f"Trackio's table `metrics` in {path}"
    with expecting(what, also=(sqlite3.Error,)), closing(sqlite3.connect(address, uri=True)) as base:
        rows = base.execute(f"select step, metrics from metrics where run_id = {latest} order by id").fetchall()
    for step, metrics in rows:
        row = _object(metrics.decode("utf-8", "replace") if isinstance(metrics, bytes) else str(metrics))
        yield from row_of({"_step": step, **(row or {})})


def row_of(row: Mapping[str, Any]) -> Iterator[ScalarRow]:
    """The numbers of one row, as a trainer logs it. None where it names no step."""
    held = _flat(row)
    numbers = _numbers(held)
    key = key_of_step(numbers)
    if key is not None:
        evaluated = any(is_evaluation(held.get(name)) for name in _PHASES)
        values = {name: value for name, value in numbers.items() if name not in STEP}
        if evaluated:
            values = {name if name.startswith("eval") else f"eval_{name}": value for name, value in values.items()}
        yield ScalarRow(int(numbers[key]), values, key)


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row of a line: names within names joined by `/`, without the `data` in which verl's logger holds it."""
    found: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, dict):
            front = "" if name in ("data", "metrics") else f"{name}/"
            found |= {f"{front}{part}": held for part, held in _flat(value).items()}
        else:
            found[name] = value
    return found


def _decoded(content: bytes) -> str:
    return content.decode("utf-16" if content.startswith(_UTF_16) else "utf-8-sig", "replace")


def _delimiter(table: str) -> str:
    """How a table separates its cells, by its header."""
    header = table.lstrip("\r\n").partition("\n")[0]
    return max(",;\t", key=header.count)


def _tells(value: Any) -> bool:
    """Whether a value is text, or holds some, as in rows of rollouts."""
    if isinstance(value, list):
        return any(isinstance(part, dict) or _tells(part) for part in value)
    return isinstance(value, str) and value.lower() not in _NAN


def _numbers(row: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a row. Text that stands for a number that is not finite is NaN."""
    found = {}
    for name, value in row.items():
        if isinstance(value, str) and value.lower() in _NAN:
            found[str(name)] = math.nan
        elif isinstance(value, int | float | str) and not isinstance(value, bool):
            try:
                found[str(name)] = float(value)
            except (ValueError, OverflowError):
                continue
    return found


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _object(line: str) -> dict[str, Any] | None:
    try:
        row = parse_json(line) if line.lstrip().startswith("{") else None
    except ValueError:
        return None
    return row if isinstance(row, dict) else None


def _csv(text: str) -> Iterator[ScalarRow]:
    whole = text if text.endswith("\n") else text[: text.rfind("\n") + 1]
    delimiter = _delimiter(whole)
    reader = csv.DictReader(io.StringIO(whole), delimiter=delimiter, skipinitialspace=True)
    runs = {name.rpartition(" - ")[0] for name in reader.fieldnames or () if " - " in name}
    front = f"{runs.pop()} - " if len(runs) == 1 else ""  # the page of W&B writes the name of the run before each key
    for row in reader:
        cells = {name.removeprefix(front): value for name, value in row.items() if name and value}
        if delimiter != ",":
            cells = {name: _DECIMAL_COMMA.sub(r"\1.\2", value) for name, value in cells.items()}
        yield from row_of(cells)


def _printed(line: str) -> dict[str, Any]:
    """The scalars of a line of verl's or TRL's console. TRL's name no step. Empty for any other line."""
    if found := _VERL.search(line):
        pairs = (part.rpartition(":") for part in _NUMPY.sub(r"\1", found[2]).split(" - "))
        return {**{name.strip(): value for name, _, value in pairs if name}, "step": int(found[1])}
    if not (found := _TRL.search(line)):
        return {}
    try:
        row = ast.literal_eval(_BARE.sub(r"'\1'", _NUMPY.sub(r"\1", found[0])))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return {}
    # transformers writes the epoch into each line, and the totals at the end
    return row if isinstance(row, dict) and "epoch" in row and "train_runtime" not in row else {}
