"""One reading of a log from its first row: rows become episodes, episodes steps, and steps lines with their scalars.

At the end of what is there, an audit ends and a watch waits.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from heedful.auditing.logs.files import is_parquet, rows_of
from heedful.auditing.logs.records import Faults, Location, LoggedEpisode, Row
from heedful.auditing.pipeline import Pipeline
from heedful.auditing.record import Prints
from heedful.auditing.scalars import History
from heedful.auditing.steps import STEPS_HELD, Joined, LoggedStep, StartOver, StepStream


@dataclass(slots=True)
class Reading:
    """Reads a log and hands its steps to a pipeline, in the order of an audit."""

    pipeline: Pipeline
    history: History
    files: Iterable[Path]
    """The files in the order of the log, each when its first rows are there. A watch waits here for the next."""
    grown: Callable[[Path, int], bool] = lambda file, at: False
    """Whether there may be more of a file behind these bytes. A watch waits here. No: it is taken as it is."""
    seen: Callable[[Row, Location], None] = lambda row, place: None
    """Takes each row that is read. Raises StartOver where it shows the log in another light."""
    faults: Faults = field(default_factory=Faults)
    prints: Prints = field(default_factory=Prints)
    stream: StepStream = field(init=False)
    joined: Joined = field(init=False)
    waiting: deque[LoggedStep] = field(default_factory=deque)
    """Closed steps whose scalars may still come."""
    position: int = 0
    """Bytes of the log that are read."""
    file_steps: dict[Path, set[int]] = field(default_factory=dict)
    """The steps that each file gave."""
    used: set[int] = field(default_factory=set)
    """Steps whose scalars are in a line, or have told whether the rows are those of an evaluation."""
    bound: int = -1
    """The highest step that has a line."""
    alone: int = -1
    """The highest step that was taken to have scalars alone."""

    def __post_init__(self) -> None:
        self.stream = StepStream(self.faults)
        self.joined = Joined(self.pipeline.settings.join)
        self.history.evaluated, self.history.apart = [], []

    def found(self) -> list[str]:
        """What the whole log shows, in sentences."""
        log, noticed, settings = self.pipeline.log, self.pipeline.noticed, self.pipeline.settings
        if not noticed.steps:
            return [*self.history.found()]
        kept, files = self.pipeline.record.rewritten, len(self.file_steps)
        rows = noticed.found(log, settings, self.faults, self.stream.interleaved, files, kept)
        return [*rows, *self.history.found()]

    def run(self) -> None:
        """Read until the source ends, and hand on all steps."""
        log = self.pipeline.log
        for file, sentence in log.files.refused:
            self.faults.add(Location(file, 0), "a file that can be read", sentence)
        for file in self.files:
            self.file_steps[file] = set()
            for episode in self._episodes(file):
                self.file_steps[file].add(episode.step)
                if step := self.stream.add(episode, self.position):
                    self.waiting.append(step)
                    self.release()
        self.close()
        self.release(ended=True)

    def _tell(self, more: int) -> None:
        self.position += more

    def _episodes(self, file: Path) -> Iterator[LoggedEpisode]:
        """The episodes of a file, as far as it is written."""
        reader = self.pipeline.log.reader
        before = self.position
        try:
            rows = rows_of(file, self.faults, self._tell, reader.columns, lambda at: self.grown(file, at))
            yield from reader.episodes(self._seen(rows), self.faults)
            with suppress(FileNotFoundError):
                self.prints.take(file, file.stat().st_size if is_parquet(file) else self.position - before)
        except OSError as error:
            found = f"{type(error).__name__}: {error.strerror}"
            self.faults.add(Location(file, 0), "the file that was there when the audit began", found)

    def _seen(self, rows: Iterator[tuple[Location, Row]]) -> Iterator[tuple[Location, Row]]:
        for place, row in rows:
            self.seen(row, place)
            yield place, row

    def close(self, but_newest: bool = False) -> None:
        """Take the steps that wait for late episodes as they are. `but_newest`: but for the one that came last."""
        self.waiting.extend(self.stream.close(but_newest))

    def release(self, ended: bool = False) -> None:
        """Hand on the steps whose scalars are there. `ended`: all of them."""
        closed = math.inf if ended else self.history.closed
        while self.waiting and (self.waiting[0].number < closed or len(self.waiting) > STEPS_HELD):
            step = self.waiting.popleft()
            self.pipeline.noticed.notice(step, self.pipeline.log.tags)
            self.used.add(step.number)
            if not self.history.is_evaluation(step) and (whole := self.joined.add(step)):
                self._hand_on(whole)
        if ended and (whole := self.joined.rest()):
            self._hand_on(whole)
        if self.waiting or self.joined.held:
            return
        # Scalars without rollouts: an audit writes them before the next step with rollouts, or at the end.
        least = min(self.stream.waiting.keys() - self.stream.early, default=None)
        numbers = self.history.numbers
        rest = numbers[bisect_left(numbers, self.bound + 1) :]
        for place, number in enumerate(rest):
            alone = not self.pipeline.log.files.files or len(rest) - place > STEPS_HELD
            if not ended and (number >= closed or not alone or (least is not None and number >= least)):
                break
            self._line(number, None)
            self.alone = number

    def _hand_on(self, step: LoggedStep) -> None:
        """A step with rollouts, after those before it that have scalars alone."""
        if step.number <= self.alone:
            raise StartOver
        numbers = self.history.numbers
        for number in numbers[bisect_left(numbers, self.bound + 1) : bisect_left(numbers, step.number)]:
            self._line(number, None)
        self._line(step.number, step)

    def _line(self, number: int, step: LoggedStep | None) -> None:
        self.bound = max(self.bound, number)
        scalars = self.history.steps.get(number)
        if scalars is None and number > (self.history.numbers or [number])[0]:
            scalars = {}
        self.pipeline.add(number, step, scalars, counted=True)

    def rejoin(self) -> None:
        """After scalars have come: raises StartOver where they belong to a line that is written."""
        if any(number in self.used or number <= self.bound for number in self.history.changed):
            raise StartOver
