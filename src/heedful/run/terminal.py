"""The display of a run: a live table in a terminal, plain lines elsewhere.

A missing value is shown as a dash, never as a zero.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from heedful.boundary.foreign_text import shown
from heedful.console import SafeConsole, duration, plain_table
from heedful.diagnostics.catalogue import LIVE_COLUMNS, entry_of, mark_of
from heedful.models.chat.replies import Tags
from heedful.types import Metric, Trajectory

ROWS = 12
"""Steps shown in the live table."""

ROLES = {"prompt": "cyan", "forced tag": "magenta", "thought": "green", "answer": "yellow", "glue": "blue"}
"""The colour of each part of an episode."""

COLUMNS = ("step", *(column.heading for column in LIVE_COLUMNS), "s/step", "left")


class TerminalView:
    """Follows one run. Use as a context manager: the live display ends with it."""

    def __init__(self, steps: int, start: int, tags: Tags, console: Console | None = None) -> None:
        # Neither markup nor wrapping: brackets of intervals and paths are text, and a path must not be broken.
        self.console = console or SafeConsole(soft_wrap=True)
        self.steps = steps
        self._start = start
        self.tags = tags
        self._began = time.perf_counter()
        self._last = self._began
        self._rows: deque[tuple[str, ...]] = deque(maxlen=ROWS)
        self._cells: dict[str, str] = {}
        self._live: Live | None = None
        self._headed = False

    def __enter__(self) -> TerminalView:
        self._began = self._last = time.perf_counter()  # the time before, such as growing a seedling, is no step
        if self.console.is_terminal and not self.console.quiet:
            self._live = Live(console=self.console, refresh_per_second=4, transient=True)
            self._live.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
            self.console.print(self._table())

    def note(self, sentence: str) -> None:
        self.console.print(sentence, style="bold", soft_wrap=not self.console.is_terminal)

    def line(self, text: str) -> None:
        """Print a line in plain style."""
        self.console.print(text)

    def first_rollout(self, trajectory: Trajectory) -> None:
        """Print the first episode once, coloured by role."""
        roles = (part for role, colour in ROLES.items() for part in ((role, colour), ", "))
        self.console.print(Text.assemble("The first episode: ", *roles, "other replied text plain"))
        self.console.print(episode_text(trajectory, self.tags))

    def write(self, step: int, metrics: Sequence[Metric]) -> None:
        by_name = {metric.name: metric for metric in metrics}
        names = (metric.name.split("/") for metric in metrics)
        evaluated = [
            metric
            for metric, (family, *_, last) in zip(metrics, names, strict=True)
            if family == "eval" and last == "success"
        ]
        if evaluated:
            rates = ", ".join(f"{metric.name.split('/')[2]} {_interval(metric)}" for metric in evaluated)
            self.note(f"success on held-out tasks after {step} steps: {rates}")
        if "success/rate" not in by_name:
            return
        row = self._row(step, by_name)
        self._rows.append(row)
        if self._live is not None:
            self._live.update(self._table())
        else:
            if not self._headed:
                self.console.print("  ".join(f"{column:>12}" for column in COLUMNS), soft_wrap=True)
                self._headed = True
            self.console.print("  ".join(f"{cell:>12}" for cell in row), soft_wrap=True)

    def _row(self, step: int, by_name: Mapping[str, Metric]) -> tuple[str, ...]:
        for column in LIVE_COLUMNS:
            entry = entry_of(column.metric)
            keeps = entry is not None and entry.cadence != "step"  # between two measurements the last value stays
            if column.metric in by_name or not keeps:
                names = (column.metric, column.ceiling) if column.ceiling else (column.metric,)
                values = (by_name[name].number if name in by_name else None for name in names)
                shown_values = ("-" if value is None else f"{value:.{column.digits}f}" for value in values)
                self._cells[column.heading] = " / ".join(shown_values)
        now = time.perf_counter()
        pace = (now - self._began) / (step + 1 - self._start)
        seconds, self._last = now - self._last, now
        return (
            f"{step + 1}/{self.steps}",
            *(self._cells.get(column.heading, "-") for column in LIVE_COLUMNS),
            f"{seconds:.1f}",
            duration(pace * (self.steps - step - 1)),
        )

    def _table(self) -> Table:
        table = plain_table(*COLUMNS)
        for row in self._rows:
            table.add_row(*row)
        return table


class GrowthBar:
    """Shows the learning from demonstrations. Call it with (step, steps, loss). The cache's models show nothing."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress: Progress | None = None

    def __enter__(self) -> GrowthBar:
        return self

    def __exit__(self, *raised: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def __call__(self, step: int, steps: int, loss: float) -> None:
        if not self._console.is_terminal:
            if step % max(1, steps // 8) == 0 or step == steps:
                self._console.print(f"learning from demonstrations: step {step}/{steps}, loss {loss:.3f}")
            return
        if self._progress is None:
            self._progress = Progress(
                TextColumn("learning from demonstrations"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("loss {task.fields[loss]:.3f}"),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                console=self._console,
            )
            self._progress.add_task("", total=steps, loss=loss)
            self._progress.start()
        self._progress.update(self._progress.task_ids[0], completed=step, loss=loss)


def episode_text(trajectory: Trajectory, tags: Tags) -> Text:
    """An episode's turns as text, coloured by `ROLES`. Where a window of history restarts, all of it is shown."""
    text = Text()
    for number, turn in enumerate(trajectory.turns):
        reply = turn.reply
        prompt, forced = reply.prompt.text, ""
        if tags.force and prompt.rstrip().endswith(tags.open):
            cut = prompt.rindex(tags.open)
            prompt, forced = prompt[:cut], prompt[cut:]
        if reply.prompt.restarts:
            text.append("[read anew]\n", style="dim")
        text.append(shown(prompt), style=ROLES["prompt" if reply.prompt.restarts or not number else "glue"])
        text.append(forced, style=ROLES["forced tag"])
        written = shown(reply.text).removeprefix(forced)
        thought, close, rest = written.partition(tags.close)
        text.append(thought + close, style=ROLES["thought"])
        before, opened, after = rest.partition(tags.answer_open)
        answer, closed, trailing = after.partition(tags.answer_close)
        text.append(before)
        text.append(opened + answer + closed, style=ROLES["answer"])
        text.append(trailing)
        text.append("\n")
    outcome = "never scored" if trajectory.outcome is None else f"outcome {trajectory.outcome:g}"
    text.append(f"[{trajectory.ending.value}, {outcome}]", style="dim")
    return text


def _interval(metric: Metric) -> str:
    if metric.number is None:
        return f"- ({metric.why})"
    if metric.low is None or metric.high is None:
        return f"{metric.value:.3f}"
    return f"{metric.value:.3f} [{metric.low:.3f}, {metric.high:.3f}]{mark_of(metric)}"


def success_table(metrics: Sequence[Metric], samples: int, temperature: float) -> Table:
    """Success, sampled and greedy, with its baselines and what the replies were like. `samples`: per task."""
    k = samples
    rows = [
        ("sampled/success", f"sampled, temperature {temperature:g}", "episodes"),
        ("sampled/any_of_group", f"solved in any of {k} samples (pass@{k})", "tasks"),
        ("greedy/success", "greedy", "tasks"),
        ("random/success", "random player", "tasks"),
        ("fixed/success", "best fixed sequence", "tasks"),
        ("best/success", "best possible", "tasks"),
        ("sampled/valid_rate", "replies executable as written", "turns"),
        ("sampled/closed_rate", "thoughts closed", "turns"),
        ("sampled/turns", "turns per episode", "episodes"),
    ]
    readings = {metric.name.split("/", 2)[2]: metric for metric in metrics}
    table = plain_table("", "value", "95% interval", "n")
    for name, label, unit in rows:
        if (k == 1 and name == "sampled/any_of_group") or (name == "best/success" and name not in readings):
            continue
        table.add_row(label, *_cells(readings[name], unit))
    return table


def growth_table(before: Sequence[Metric], after: Sequence[Metric]) -> Table:
    """Success before and after a warm start, and of the baselines that read no input. `before` may be empty."""
    columns = [{metric.name.split("/", 2)[2]: metric for metric in metrics} for metrics in (before, after) if metrics]
    table = plain_table("", *("before", "after")[-len(columns) :])
    for name, label in (
        ("greedy/success", "greedy"),
        ("sampled/success", "sampled"),
        ("sampled/valid_rate", "replies executable as written"),
        ("random/success", "random player"),
        ("fixed/success", "best fixed sequence"),
    ):
        table.add_row(label, *(_interval(readings[name]) for readings in columns))
    return table


def _cells(metric: Metric, unit: str) -> tuple[str, str, str]:
    """Value, interval and n. A missing value shows the reason."""
    if metric.number is None:
        return "-", metric.why, ""
    if metric.low is None or metric.high is None:
        return f"{metric.value:.3f}", metric.why, f"{metric.n} {unit}"
    interval = f"[{metric.low:.3f}, {metric.high:.3f}]{mark_of(metric)}"
    return f"{metric.value:.3f}", interval, f"{metric.n} {unit}"


@contextmanager
def progress_bar(console: Console, stage: str) -> Iterator[Callable[[int, int], None]]:
    """Told of what is done, of how much: a bar in a terminal, a plain line elsewhere."""
    if not console.is_terminal:
        console.print(stage, soft_wrap=True)
        yield lambda done, total: None
        return
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, transient=True) as bars:
        task = bars.add_task(stage, total=None)
        yield lambda done, total: bars.update(task, completed=done, total=total)
