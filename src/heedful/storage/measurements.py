"""Reader of `metrics.jsonl`: one line per write, each with a step and its named readings.

Every malformed line is an error that names the line. Only an incomplete last line, left by a killed run, is dropped.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from heedful.boundary.jsontext import parse_json
from heedful.boundary.limits import refuse_outside
from heedful.boundary.open_files import path_of
from heedful.types import Metric

_FIELDS = frozenset({"value", "low", "high", "n", "why", "clusters"})

SIZES = 1e-150, 1e150
"""Least and largest size of a number. Statistics square it, and charts divide by it."""


MOST_STEP = 10**15
"""Charts and slopes hold a step as a float, which is exact up to here."""


def check_step(step: int) -> None:
    """Raise ValueError for what no file names as a step."""
    refuse_outside("step", step, 0, MOST_STEP, whole=True)


@dataclass(frozen=True, slots=True)
class StepMetrics:
    """One line of `metrics.jsonl`. Several lines may share a step."""

    step: int
    time: float | None
    """The tracker's time stamp. Only the display of durations may use it."""
    metrics: Mapping[str, Metric]
    """Readings by name, in the order of the file."""


def read_metrics(path: Path | str) -> list[StepMetrics]:
    """The lines of a `metrics.jsonl`, in order. An incomplete last line of a killed run is dropped.

    Numbers that JSON cannot hold (NaN, Infinity), and those whose square no float holds, are read as missing, with
    the reason.

    Raises:
        ValueError: there is no such file, or a whole line is malformed. The message gives its number.
    """
    path = path_of(path, "a file of measurements")
    if not path.is_file():
        found = "a folder" if path.is_dir() else "a pipe or a device" if path.exists() else "no such file"
        raise ValueError(f"Expected measurements in {path}, found {found}. Give the folder of a run that has begun.")
    content = path.read_bytes()
    lines = content.split(b"\n")
    numbered = [(number, line) for number, line in enumerate(lines, start=1) if line.strip()]
    read: list[StepMetrics] = []
    for number, line in numbered:
        try:
            read.append(_step_metrics(line))
        except ValueError as error:
            if number == numbered[-1][0] and not content.endswith(b"\n"):
                break
            raise ValueError(
                f"Expected a JSON object with `step` and `metrics` on line {number} of {path}, found {error}. "
                "Only a last line without its end may be torn: restore the file, or delete that line."
            ) from error
    return read


def _step_metrics(line: bytes) -> StepMetrics:
    row = parse_json(line)
    if not isinstance(row, dict):
        raise ValueError(f"a {type(row).__name__}")
    step, readings, time = row.get("step"), row.get("metrics"), row.get("time")
    if not isinstance(step, int) or isinstance(step, bool) or not 0 <= step <= MOST_STEP:
        raise ValueError(f"a `step` of {step!r:.80} (expected a whole number from 0 to {MOST_STEP:,})")
    if not isinstance(readings, dict):
        raise ValueError(f"`metrics` of type {type(readings).__name__}")
    if time is not None and not isinstance(time, int | float):
        raise ValueError(f"a `time` of {time!r}")
    return StepMetrics(step, time, {name: metric_from_json(name, reading) for name, reading in readings.items()})


def metric_from_json(name: str, reading: object) -> Metric:
    """One reading in its JSON form: a number, a label, `None`, or an object with `value` and other fields.

    Raises:
        ValueError: it has another form. The message is a phrase that says what was found.
    """
    if not isinstance(reading, dict):
        reading = {"value": reading}
    unknown = sorted(reading.keys() - _FIELDS)
    if unknown or "value" not in reading:
        raise ValueError(f"`{name}` with {f'unknown fields {unknown}' if unknown else 'no `value`'}")
    value, why, n = reading["value"], reading.get("why") or "", reading.get("n")
    low, high, clusters = (_number(name, reading.get(field)) for field in ("low", "high", "clusters"))
    if n is not None and (not isinstance(n, int) or isinstance(n, bool) or abs(n) > MOST_STEP):
        raise ValueError(f"`{name}` with `n` of {n!r:.80}")
    if not isinstance(why, str):
        raise ValueError(f"`{name}` with `why` of {why!r}")
    if isinstance(value, str):
        return Metric(name, value, n, low, high, why, clusters)
    number = _number(name, value)
    if number is None and value is not None:
        why = why or f"the value was {value}"
    return Metric(name, number, n, low, high, why, clusters)


def _number(name: str, value: object) -> float | None:
    """A number, or `None` if it is missing, not finite, or out of `SIZES`."""
    if value is None:
        return None
    if not isinstance(value, int | float):
        raise ValueError(f"`{name}` with {value!r} for a number")
    try:
        return value if value == 0 or SIZES[0] <= math.fabs(value) <= SIZES[1] else None
    except OverflowError as error:
        raise ValueError(f"`{name}` with a whole number that no float can hold") from error
