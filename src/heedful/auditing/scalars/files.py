"""Files of scalars -> rows of numbers. What a file is, its content says.

| kind | files |
|---|---|
| trainer_state | `trainer_state.json` of transformers and TRL: the whole history |
| event file | TensorBoard, `events.out.tfevents.*` |
| W&B | `run-*.wandb`, written offline or synced |
| Trackio | its SQLite file, opened for reading alone: the run that was logged last |
| lines | JSON lines: one object per line, verl's `{"step", "data"}` included |
| CSV | a header with a column of steps |
| console | the lines that verl and TRL print |

A number that the trainer could not write as one (`NaN`, `null`, `"NaN"`) is NaN here. A line or record that is not
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
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from heedful.auditing.scalars import binary
from heedful.auditing.scalars.aliases import STEP, step_of
from heedful.boundary.jsontext import parse_json
from heedful.boundary.open_files import open_file

_VERL = re.compile(r"\bstep:(\d+) - (\S.*)")
_TRL = re.compile(r"^\{'.*\}$")
_NAN = {"nan", "null", "none", "inf", "-inf", "infinity", "-infinity"}


class ScalarRow(NamedTuple):
    """The numbers of one step in one line or record of a file."""

    step: int
    values: Mapping[str, float]
    """The trainer's keys, without those of the step."""


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
    text = head.decode("utf-8", "replace")
    if '"log_history"' in text and text.lstrip().startswith("{"):
        return "trainer_state"
    lines = [line for line in text.splitlines() if line.strip()]
    first = next((row for row in map(_object, lines) if row), None)
    if first is not None:
        told = any(_tells(value) for value in _flat(first).values())
        return "lines" if step_of(_numbers(_flat(first))) is not None and not told else ""
    if any(_VERL.search(line) or _TRL.match(line) for line in lines):
        return "console"
    if lines and {*lines[0].split(",")} & {*STEP} and len(lines[0].split(",")) > 1:
        return "CSV"
    return ""


def scalar_rows(path: Path, kind: str = "") -> Iterator[ScalarRow]:
    """The rows of a file, in its order.

    Raises ValueError for a file that is no file of scalars, and OSError where it cannot be read.
    """
    kind = kind or scalar_kind(path)
    if kind == "Trackio":
        yield from _trackio(path)
        return
    with open_file(path) as stream:
        content = stream.read()
    if kind == "event file":
        by_step: dict[int, dict[str, float]] = {}
        for step, name, value in binary.event_rows(content):
            by_step.setdefault(step, {})[name] = value
        yield from (ScalarRow(step, by_step[step]) for step in sorted(by_step))
    elif kind == "W&B":
        for texts in binary.wandb_rows(content):
            yield from _row({name: _value(text) for name, text in texts.items()})
    elif kind == "trainer_state":
        try:
            history = parse_json(content)["log_history"]
        except ValueError:
            return  # not whole yet: the trainer writes it in place
        for row in history[:-1] if history and "train_runtime" in history[-1] else history:
            yield from _row(row)
    elif kind == "CSV":
        yield from _csv(content.decode("utf-8-sig", "replace"))
    elif kind == "lines":
        for line in content.splitlines():
            yield from _row(_object(line.decode("utf-8", "replace")) or {})
    elif kind == "console":
        yield from _console(content.decode("utf-8", "replace"))
    else:
        raise ValueError(
            f"Expected scalars in {path} (trainer_state.json, TensorBoard's event files, .wandb, Trackio's SQLite "
            "file, JSON lines or CSV with a step, verl's or TRL's console), found another kind of file."
        )


def _row(row: Mapping[str, Any]) -> Iterator[ScalarRow]:
    numbers = _numbers(_flat(row))
    step = step_of(numbers)
    if step is not None:
        yield ScalarRow(step, {name: value for name, value in numbers.items() if name not in STEP})


def _flat(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """The row of a line, without the `data` in which verl's logger holds it."""
    data = row.get("data")
    return {**row, **data} if isinstance(data, dict) else row


def _tells(value: Any) -> bool:
    """Whether a value is text, or holds some, as in rows of rollouts."""
    if isinstance(value, dict | list):
        return any(map(_tells, value.values() if isinstance(value, dict) else value))
    return isinstance(value, str) and value.lower() not in _NAN


def _numbers(row: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a row. What stands for a number that is not finite is NaN."""
    found = {}
    for name, value in row.items():
        if value is None or (isinstance(value, str) and value.lower() in _NAN):
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
    for row in csv.DictReader(io.StringIO(whole)):
        yield from _row({name: value for name, value in row.items() if name and value})


def _console(text: str) -> Iterator[ScalarRow]:
    """verl prints the step. TRL does not: its lines are counted, and evaluations belong to the line before them."""
    count = 0
    for line in text.splitlines():
        if found := _VERL.search(line):
            pairs = (part.rpartition(":") for part in found[2].split(" - "))
            yield from _row({**{name.strip(): value for name, _, value in pairs if name}, "step": int(found[1])})
        elif _TRL.match(line.strip()):
            try:
                row = ast.literal_eval(line.strip())
            except (ValueError, SyntaxError, MemoryError, RecursionError):
                continue
            if isinstance(row, dict) and "train_runtime" not in row:
                count += not any(str(name).startswith("eval_") for name in row)
                yield from _row({**row, "step": count})


def _trackio(path: Path) -> Iterator[ScalarRow]:
    address = f"file:{quote(str(path.resolve()))}?mode=ro"
    try:
        with closing(sqlite3.connect(address, uri=True)) as base:
            latest = "(select run_id from metrics order by id desc limit 1)"
            rows = base.execute(f"select step, metrics from metrics where run_id = {latest} order by id").fetchall()
    except sqlite3.Error as error:
        raise ValueError(f"Expected Trackio's table `metrics` in {path}, found that SQLite says: {error}.") from error
    for step, metrics in rows:
        row = _object(metrics.decode("utf-8", "replace") if isinstance(metrics, bytes) else str(metrics))
        yield from _row({"_step": step, **(row or {})})
