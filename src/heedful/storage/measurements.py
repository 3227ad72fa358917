"""Readings of files of measurements: `metrics.jsonl`, `gradients_<step>.json`, and the early answers of an evaluation.

`metrics.jsonl` has one line per write, the others are one JSON tree each.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from heedful.boundary.jsontext import expecting, parse_json, read_json
from heedful.storage.files import write_whole
from heedful.types import Metric

FIELDS = ("value", "low", "high", "n", "why", "clusters")
"""The fields of a reading in a file: those of `Metric` but for the name."""

SIZES = 1e-150, 1e150
"""Least and largest size of a number. Statistics square it, and charts divide by it."""

MOST_STEP = 10**15
"""Charts and slopes hold a step as a float, which is exact up to here."""


@dataclass(frozen=True, slots=True)
class StepMetrics:
    """One line of `metrics.jsonl`. Several lines may share a step."""

    step: int
    time: float | None
    """The tracker's time stamp. Only the display of durations may use it."""
    metrics: Mapping[str, Metric]
    """Readings by name, in the order of the file."""
    of: str = ""
    """What names the rows and scalars that a line of an audit was measured from."""


def read_metrics(path: Path | str) -> list[StepMetrics]:
    """The lines of a `metrics.jsonl`, in order. An incomplete last line of a killed run is dropped.

    Numbers that JSON cannot hold (NaN, Infinity), and those whose square no float holds, are read as missing, with
    the reason.

    Raises:
        ValueError: there is no such file, or a whole line is malformed. The message gives its number.
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(
            f"Expected measurements in {path}, found no such file. Give the folder of a run that has begun."
        )
    lines = path.read_bytes().splitlines(keepends=True)
    read: list[StepMetrics] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            read.append(metrics_of_line(line))
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
            if number == len(lines) and not line.endswith(b"\n"):
                break
            raise ValueError(
                f"Expected a JSON object with `step` and `metrics` on line {number} of {path}, found {error}. "
                "Only a last line without its end may be torn: restore the file, or delete that line."
            ) from error
    return read


def metrics_of_line(line: bytes) -> StepMetrics:
    """One line of a `metrics.jsonl`. Raises an error for one that is malformed."""
    row = parse_json(line)
    readings = {name: metric_from_json(name, reading) for name, reading in row["metrics"].items()}
    return StepMetrics(int(row["step"]), row.get("time"), readings, str(row.get("of", "")))


def metric_from_json(name: str, reading: Any) -> Metric:
    """One reading in its JSON form: a number, a label, `None`, or an object with `value` and other fields.

    Raises TypeError for another form.
    """
    fields = {"value": reading, **dict.fromkeys(FIELDS[1:])} | (reading if isinstance(reading, dict) else {})
    value, low, high, clusters = (_number(fields[field]) for field in ("value", "low", "high", "clusters"))
    why = fields["why"] or ("" if value is not None or fields["value"] is None else f"the value was {fields['value']}")
    return Metric(name, value, fields["n"], low, high, why, clusters)


def _number(value: Any) -> Any:
    """A number or a label; `None` for a number that is not finite, or out of `SIZES`."""
    if not value or isinstance(value, str):
        return value
    return value if SIZES[0] <= abs(value) <= SIZES[1] else None


@dataclass(frozen=True, slots=True)
class StoredGradients:
    """Signal and noise of the gradient at one checkpoint, or the parts of the update after it, with the settings of
    the measurement."""

    step: int
    facts: Mapping[str, str | int | float | None]
    """Settings, counts, and how exactly the gradients were stored."""
    metrics: Mapping[str, Metric]
    moved: Sequence[Mapping[str, Any]] = ()
    """Of an attribution: the episodes that moved a reading most."""

    def metric(self, name: str) -> Metric:
        """One reading; a missing one where the file lacks it."""
        return self.metrics.get(name, Metric(name, None, why="not measured"))


def write_gradients(
    path: Path,
    step: int,
    facts: Mapping[str, str | int | float | None],
    metrics: Sequence[Metric],
    moved: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Write one measurement. `facts` are shown unchanged."""
    readings = {metric.name: {field: getattr(metric, field) for field in FIELDS} for metric in metrics}
    tree = {"step": int(step), **facts, **({"moved": list(moved)} if moved else {}), "metrics": readings}
    write_whole(path, json.dumps(tree, indent=1) + "\n")


def read_gradients(path: Path) -> StoredGradients:
    """Read one measurement. Raises ValueError that names the file if it cannot be read."""
    again = "Delete the file and measure again: heedful gradients RUN."
    with expecting(f"a measurement of gradients in {path}", again):
        tree = dict(read_json(path))
        readings = tree.pop("metrics")
        metrics = {name: metric_from_json(name, reading) for name, reading in readings.items()}
        moved = tuple(map(dict, tree.pop("moved", ())))
        return StoredGradients(tree.pop("step"), tree, metrics, moved)


@dataclass(frozen=True, slots=True)
class EarlyAnswer:
    """One thought that was ended early, at C places."""

    task: str
    """The id of the task."""
    prompt: str
    """The text of the prompt."""
    pieces_T: tuple[str, ...]
    """The tokens of the thought without its end, as text."""
    cuts_C: tuple[int, ...]
    """How many tokens are left at each place, ascending from none to all."""
    right_C: tuple[float, ...]
    """The probability of a right first action there."""
    likeliest_C: tuple[str, ...]
    """The likeliest of the batch's first actions there."""


def write_early(path: Path, answers: Sequence[EarlyAnswer]) -> None:
    """Write the early answers of one evaluation, in full or not at all."""
    write_whole(path, json.dumps([asdict(answer) for answer in answers], indent=1) + "\n")


def read_early(path: Path) -> tuple[EarlyAnswer, ...]:
    """What `write_early` wrote. Raises ValueError for another file."""
    with expecting(f"early answers of heedful in {path}"):
        lists = ("pieces_T", "cuts_C", "right_C", "likeliest_C")
        return tuple(
            EarlyAnswer(tree["task"], tree["prompt"], *(tuple(tree[name]) for name in lists))
            for tree in read_json(path)
        )
