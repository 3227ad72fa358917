"""`gradients_<step>.json`: signal and noise of the gradient at one checkpoint, with the settings of the measurement."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from heedful.boundary.jsontext import read_json
from heedful.storage.files import write_whole
from heedful.storage.measurements import SIZES, check_step, metric_from_json
from heedful.types import Metric

_FIELDS = ("value", "low", "high", "n", "why", "clusters")


@dataclass(frozen=True, slots=True)
class StoredGradients:
    """One measurement."""

    step: int
    facts: Mapping[str, str | int | float | None]
    """Settings, counts, and how exactly the gradients were stored."""
    metrics: Mapping[str, Metric]

    def metric(self, name: str) -> Metric:
        """One reading; a missing one where the file lacks it."""
        return self.metrics.get(name, Metric(name, None, why="not measured"))


def write_gradients(
    path: Path, step: int, facts: Mapping[str, str | int | float | None], metrics: Sequence[Metric]
) -> None:
    """Write one measurement. `facts` are shown unchanged.

    Raises ValueError for a step, a fact or a reading that `read_gradients` would refuse.
    """
    check_step(step)
    readings = {metric.name: {field: getattr(metric, field) for field in _FIELDS} for metric in metrics}
    try:
        for name, value in facts.items():
            _check_fact(name, value)
        content = json.dumps({"step": int(step), **facts, "metrics": readings}, indent=1)
    except (TypeError, ValueError) as error:
        raise ValueError(f"Expected texts and numbers of Python to write into {path}, found {error}.") from error
    write_whole(path, content + "\n")


def read_gradients(path: Path) -> StoredGradients:
    """Read one measurement. Raises ValueError that names the file if it cannot be read."""
    try:
        tree = dict(read_json(path))
        readings, step = dict(tree.pop("metrics")), tree.pop("step")
        metrics = {name: metric_from_json(name, reading) for name, reading in readings.items()}
        if type(step) is not int or path.name != f"gradients_{step:06d}.json":
            raise ValueError(f"a `step` of {step!r:.80}, which is not that of the file's name")
        for name, value in tree.items():
            _check_fact(name, value)
    except (OSError, ValueError, TypeError, KeyError) as error:
        found = f"no {error}" if isinstance(error, KeyError) else error
        raise ValueError(
            f"Expected a measurement of gradients in {path}, found {found}. Delete the file and measure again: "
            "heedful gradients RUN."
        ) from error
    return StoredGradients(step, tree, metrics)


def _check_fact(name: str, value: object) -> None:
    if not isinstance(value, str | None) and not (isinstance(value, int | float) and abs(value) <= SIZES[1]):
        raise ValueError(f"neither a text nor a number of usual size in {name!r:.80}: {value!r:.80}")
