"""Where metrics go: `metrics.jsonl`, the record that everything else reads, and dashboards beside it.

`metrics.jsonl` holds every reading with its interval and its reason. A line is {"step", "time", "metrics": {name:
number or object}}, and the fields of an object are those of `Metric` but for the name. In place of the time, lines of
an audit hold `of`, which names the rows and scalars that they were measured from. Dashboards show the numbers among the
values and cannot stop a run.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, redirect_stdout
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from heedful.boundary.foreign_text import clean_line, encodable
from heedful.diagnostics.alarms.watch import Alarm
from heedful.protocols import Tracker
from heedful.storage.files import append, naming_a_full_disk
from heedful.types import Group, Metric, Verdict

PROJECT = "heedful"
"""The project under which dashboards file a run; the run folder's name is the name of the run."""
LEVELS = {"notice": "INFO", "warning": "WARN", "collapse": "ERROR"}
"""Severity of an alarm -> the level under which dashboards file it."""


@runtime_checkable
class TakesAlerts(Protocol):
    """A tracker that also shows alarms, and sends them to whom its dashboard is set up to tell."""

    def alert(self, alarm: Alarm) -> None: ...


@runtime_checkable
class TakesCompletions(Protocol):
    """A tracker that also keeps a table of prompts and replies for each step."""

    def completions(self, step: int, rows: Sequence[Mapping[str, Any]]) -> None: ...


def completion_rows(groups: Sequence[Group], verdicts: Sequence[Verdict], most: int) -> list[dict[str, Any]]:
    """A row for each of at most `most` episodes, spread evenly over the step: the first prompt, and all replies."""
    episodes = [
        (number, one, verdict)
        for number, (group, verdict) in enumerate(zip(groups, verdicts, strict=True))
        for one in group.trajectories
        if one.turns
    ]
    stride = max(1, -(-len(episodes) // most))
    return [
        {
            "group": number,
            "member": one.member,
            "task": clean_line(one.task.id),
            "prompt": encodable(one.turns[0].reply.prompt.text),
            "replies": "\n\n".join(encodable(turn.reply.text) for turn in one.turns),
            "reward": _finite(one.reward),
            "outcome": _finite(one.outcome),
            "verdict": verdict.reason,
        }
        for number, one, verdict in episodes[::stride]
    ]


class JsonlTracker:
    """Appends one line per write, in the order of the readings, and flushes it.

    Several lines may share a step. A reading that has a number and nothing else is written as that number. What JSON
    cannot hold is written as missing, with the reason.
    """

    def __init__(self, path: Path | str, clock: Callable[[], float] = time.time) -> None:
        """`clock` gives the seconds since 1970 of each line; nothing but the display of durations may use them."""
        self._path = Path(path)
        self._clock = clock
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._stream = append(self._path)

    def write(self, step: int, metrics: Sequence[Metric]) -> None:
        """Raises DiskFull where there is no room."""
        self.write_line(step, metrics, {"time": self._clock()})

    def write_line(self, step: int, metrics: Sequence[Metric], more: Mapping[str, float | str]) -> None:
        """Write a line with these fields after its step. An audit writes no time: equal logs give equal bytes."""
        row = {"step": step, **more, "metrics": {metric.name: _reading(metric) for metric in metrics}}
        line = json.dumps(row, ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n"
        with self._naming():
            self._stream.write(line.encode("utf-8", "backslashreplace"))
            self._stream.flush()

    def close(self) -> None:
        with self._naming():  # what could not be written is tried once more
            self._stream.close()

    def _naming(self) -> AbstractContextManager[None]:
        return naming_a_full_disk(self._path, kept="all readings of earlier steps")


class TensorBoardTracker:
    """Scalars for TensorBoard, in `<folder>/tensorboard`. Needs the extra `tensorboard`, but not torch."""

    def __init__(self, folder: Path, configuration: Mapping[str, Any]) -> None:
        writer = _optional("tensorboard.summary", "tensorboard").Writer
        self._writer = writer(str(folder / "tensorboard"))

    def write(self, step: int, metrics: Sequence[Metric]) -> None:
        for name, value in _numbers(metrics).items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class _RunTracker:
    """A tracker of a library whose run takes a log of each step."""

    _run: Any

    _library: Any

    def write(self, step: int, metrics: Sequence[Metric]) -> None:
        self._log(step, {**_numbers(metrics), **_labels(metrics)})

    def _log(self, step: int, values: Mapping[str, Any]) -> None:
        self._run.log(values, step=step)

    def alert(self, alarm: Alarm) -> None:
        title, text = f"{alarm.name} at step {alarm.step}", clean_line(f"{alarm.evidence}. {alarm.advice}")
        self._tell(title=title, text=text, level=LEVELS[alarm.severity])

    def _tell(self, title: str, text: str, level: str) -> None:
        self._run.alert(title=title, text=text, level=level)

    def close(self) -> None:
        self._run.finish()

    def completions(self, step: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """Each step has a table of its own under one name, so that none is written over."""
        if rows:
            columns = list(rows[0])
            table = self._library.Table(columns=columns, data=[[row[name] for name in columns] for row in rows])
            self._log(step, {"completions": table})


class WandbTracker(_RunTracker):
    """Numbers and labels for Weights & Biases, kept in `<folder>/wandb` unless WANDB_MODE says `online`.

    Needs the extra `wandb`. What was kept offline is sent by `wandb sync`, and is complete when the process has ended.
    A resumed run is a new run there.
    """

    def __init__(self, folder: Path, configuration: Mapping[str, Any], beside: str = "") -> None:
        """`beside`: write into the run that a trainer has there, `ENTITY/PROJECT/ID`, and leave its end to the trainer.

        Names begin with `heedful/` then, and `heedful/step` is their step. Raises ValueError where W&B refuses it.
        """
        self._library = wandb = _optional("wandb", "wandb")
        self._beside = beside
        folder.mkdir(parents=True, exist_ok=True)
        # Without these it would read the repository, the machine and the terminal: not ours to send.
        private = {"console": "off", "silent": True, "disable_git": True, "x_disable_stats": True}
        if not beside:
            self._run = wandb.init(
                project=PROJECT,
                name=folder.name,
                dir=str(folder),
                mode=os.environ.get("WANDB_MODE", "offline"),
                config=dict(configuration),
                settings=wandb.Settings(**private),
            )
            return
        *place, run = beside.split("/")
        names = dict(zip(("project", "entity"), reversed(place), strict=False))
        shared = wandb.Settings(**private, mode="shared", x_primary=False, x_update_finish_state=False)
        try:
            self._run = wandb.init(id=run, dir=str(folder), resume="allow", settings=shared, **names)
        except wandb.Error as error:
            raise ValueError(f"Expected W&B to open the run {beside}, found: {error}.") from error
        self._run.define_metric("heedful/*", step_metric="heedful/step")

    def _log(self, step: int, values: Mapping[str, Any]) -> None:
        if self._beside:  # several writers have no common step
            self._run.log({f"heedful/{name}": value for name, value in {**values, "step": step}.items()})
        else:
            super()._log(step, values)


class TrackioTracker(_RunTracker):
    """Numbers and labels for Trackio, in its own local store (TRACKIO_DIR). Needs the extra `trackio`.

    A resumed run goes on under its name; what was written after the checkpoint it starts from is there twice.
    """

    def __init__(self, folder: Path, configuration: Mapping[str, Any]) -> None:
        self._library = trackio = _optional("trackio", "trackio")
        with redirect_stdout(sys.stderr):  # it prints what it does, and standard output may be one JSON object
            self._run = trackio.init(
                project=PROJECT,
                name=folder.name,
                config=dict(configuration),
                resume="allow",
                embed=False,
                auto_log_gpu=False,
                auto_log_cpu=False,
            )

    def _tell(self, title: str, text: str, level: str) -> None:
        with redirect_stdout(sys.stderr):
            self._library.alert(title=title, text=text, level=getattr(self._library.AlertLevel, level))

    def close(self) -> None:
        with redirect_stdout(sys.stderr):
            self._library.finish()  # a run that ends itself is ended again, and told again, at the end of the process


class Guarded:
    """A tracker whose failure warns, once, instead of stopping the run. Each write is still attempted."""

    def __init__(self, tracker: Tracker) -> None:
        self._tracker = tracker
        self._warned = False

    def write(self, step: int, metrics: Sequence[Metric]) -> None:
        self._attempt(f"write step {step}", lambda: self._tracker.write(step, metrics))

    def alert(self, alarm: Alarm) -> None:
        if isinstance(tracker := self._tracker, TakesAlerts):
            self._attempt(f"tell of the alarm {alarm.name}", lambda: tracker.alert(alarm))

    def completions(self, step: int, rows: Sequence[Mapping[str, Any]]) -> None:
        if isinstance(tracker := self._tracker, TakesCompletions):
            self._attempt(f"keep completions of step {step}", lambda: tracker.completions(step, rows))

    def close(self) -> None:
        self._attempt("close", self._tracker.close)

    def _attempt(self, what: str, action: Callable[[], None]) -> None:
        try:
            action()
        # Broad on purpose: a dashboard fails in its own ways, and none of them is worth a run.
        except Exception as error:
            if not self._warned:
                self._warned = True
                name = type(self._tracker).__name__
                warnings.warn(
                    f"{name} could not {what}: {type(error).__name__}: {error}. The run goes on; further failures of "
                    "this tracker are not reported.",
                    RuntimeWarning,
                    stacklevel=3,
                )


TRACKERS: dict[str, Callable[[Path, Mapping[str, Any]], Tracker]] = {
    "tensorboard": TensorBoardTracker,
    "trackio": TrackioTracker,
    "wandb": WandbTracker,
}
"""What may stand beside `metrics.jsonl`: name -> made from the run folder and the settings as JSON."""


def open_trackers(
    names: Sequence[str], folder: Path, configuration: Mapping[str, Any], wandb_run: str = ""
) -> list[Guarded]:
    """Start trackers by name, each guarded. Raises ValueError if one is not installed.

    `wandb_run`: a trainer's own run there, into which the tracker `wandb` writes in place of a new one.
    """
    made: dict[str, Callable[[Path, Mapping[str, Any]], Tracker]] = {**TRACKERS}
    if wandb_run:
        made["wandb"] = partial(WandbTracker, beside=wandb_run)
    return [Guarded(made[name](folder, configuration)) for name in names]


def _optional(module: str, extra: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise ValueError(
            f"The tracker {extra!r} needs a package that is not installed ({error}). "
            f'Install it with: pip install "heedful[{extra}]"'
        ) from error


def _reading(metric: Metric) -> float | dict[str, Any]:
    value, low, high = _finite(metric.value), _finite(metric.low), _finite(metric.high)
    why = metric.why
    if value is None and metric.value is not None:
        why = why or f"the value was {metric.value}"
    elif (low, high).count(None) > (metric.low, metric.high).count(None):
        why = why or "the interval was not finite"
    fields = {"low": low, "high": high, "n": metric.n, "why": why or None, "clusters": metric.clusters}
    rest = {name: field for name, field in fields.items() if field is not None}
    if isinstance(value, int | float) and not rest:
        return value
    return {"value": value, **rest}


def _finite(value: float | str | None) -> float | str | None:
    """A value as JSON can hold it: numbers as plain int or float, `None` for what is not finite."""
    if value is None or isinstance(value, str | int):
        return value
    return float(value) if math.isfinite(value) else None


def _numbers(metrics: Sequence[Metric]) -> dict[str, float]:
    values = {clean_line(metric.name): _finite(metric.value) for metric in metrics}
    return {name: value for name, value in values.items() if isinstance(value, int | float)}


def _labels(metrics: Sequence[Metric]) -> dict[str, str]:
    return {clean_line(metric.name): clean_line(metric.value) for metric in metrics if isinstance(metric.value, str)}
