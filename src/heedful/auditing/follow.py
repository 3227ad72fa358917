"""A watch: the audit of a log that grows. It measures each step when it is closed, and says what is new at each poll.

A step is closed
- where each file is a step, as of TRL and verl: when its file is whole. A parquet file is whole when its footer reads.
  A file of lines is whole when its last line ends and a later file is there, or when it is silent for `settle` seconds;
- else when a row of a later step comes, or, in a log whose steps are interleaved, when 16 later steps wait;
- with its scalars: when each of their files has come to a later step, or when 16 later steps wait.

All but the sixteen steps of an audit are guesses that tell sooner. What comes later may show that one was wrong: a row
of a closed step, other scalars of it, a file of an earlier step, a file that was rewritten. Then the log is read again
from its start, and the lines that differ are measured again (`Pipeline`).
"""

from __future__ import annotations

import signal
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import chain, islice, pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from heedful.auditing.logs.files import OWN_FOLDER, is_parquet, names_of_files, natural, refuse_unreadable, rows_of
from heedful.auditing.logs.records import Faults, Location, Row, name_of
from heedful.auditing.pipeline import Pipeline
from heedful.auditing.readers import recognise
from heedful.auditing.readers.reader import step_of_file
from heedful.auditing.reading import Reading
from heedful.auditing.recognised import SAMPLE, RecognisedLog, open_log, recognised
from heedful.auditing.record import AuditRecord, resume
from heedful.auditing.run import conclude, judging
from heedful.auditing.scalars import History, mapped, scalar_files
from heedful.auditing.settings import AuditSettings
from heedful.auditing.steps import StartOver, step_of
from heedful.boundary.system_errors import sentence_of
from heedful.stopping import StoppedBySignal, StopRequest, finish_the_step_first
from heedful.storage import advising, held
from heedful.storage.files import is_alive
from heedful.types import Metric
from heedful.watching.sinks import Pending, Sink

if TYPE_CHECKING:
    from heedful.auditing.scoring import ModelJudge

LOOKED_AT = 64
"""Last files and folders of a log that are looked at in each poll. A look at all of them costs as much as they are."""
LOOKS = 30
"""Polls between looks at all files."""
LEAST_SILENCE = 600.0
"""Seconds without anything new before a run counts as stalled."""
SILENT_STEPS = 8
"""Usual times between two steps before a run counts as stalled."""

REST, LONGEST_REST = 20.0, 60.0
"""A log that has to be read again rests for so many times the time that it took last, and for so many seconds at most:
two files that grow side by side would keep a processor busy."""

Signature = tuple[int, int, int] | None


@dataclass(frozen=True, slots=True)
class Ends:
    """What ends a watch, beside a signal. All empty: nothing."""

    idle: float | None = None
    """Seconds without anything new."""
    pid: int | None = None
    """A process of this host: its end."""
    step: int | None = None
    """A step that the log has come to."""
    alarms: frozenset[str] = frozenset()
    """The first of these alarms."""


@dataclass(frozen=True, slots=True)
class Clock:
    """The time, and the waiting for it."""

    now: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep


class _Stopped(Exception):
    """A signal has asked for the end."""


def follow(
    source: Path,
    settings: AuditSettings,
    *,
    scalars: Sequence[Path] = (),
    out: Path | None = None,
    sinks: Sequence[Sink] = (),
    poll: float = 2.0,
    settle: float | None = None,
    ends: Ends = Ends(),
    once: bool = False,
    pid: int | None = None,
    take_over: bool = False,
    clock: Clock = Clock(),
) -> Path:
    """Watch a log until `ends` says so, and conclude. Returns the folder of the results, as of an audit.

    Args:
        source: a folder of rollouts that is filled, a file that grows, or scalars alone.
        scalars: files or folders of scalars beside it. They need not be there yet.
        out: the folder of the results; by default `<source>/heedful-watch`, or `audits/<name>-watch` where `source`
            is a file or holds the rollouts directly. A watch goes on in the folder of an earlier one.
        poll: seconds between two looks at the log.
        settle: seconds of silence after which a file counts as whole; by default three polls.
        once: measure what is there, and end.
        pid: the trainer's process. A run whose process has ended counts as stalled at once.

    Raises:
        ValueError: there is nothing at `source`, or `out` holds something else.
        StoppedBySignal: a signal came; all closed steps are saved.
        KeyboardInterrupt: Ctrl-C; all closed steps are saved.
    """
    inside = source / OWN_FOLDER
    folder = out or Path("audits") / f"{source.resolve().stem}-watch"
    # Beside rows that lie directly in a folder the results would look like rows.
    directly = source.is_dir() and source in {file.parent for file in names_of_files(source)[1]}
    if out is None and source.is_dir() and (inside.exists() or not directly):
        folder = inside
    if not source.exists():
        raise ValueError(
            f"Expected a log, or a place that gets one, at {source}, found nothing there. Make an empty "
            f"{'file' if source.suffix else 'folder'}: the trainer fills it."
        )
    with ExitStack() as stack:
        request = stack.enter_context(finish_the_step_first())
        watch = Watch(source, settings, tuple(scalars), sinks, poll, settle or 3 * poll, ends, pid, clock, request)
        watch.over = "What was there is measured." if once else ""
        notes: list[str] = []
        stack.enter_context(held(folder, notes.append, take_over))
        stack.enter_context(advising(f"heedful watch {source} --out {folder}, same settings"))
        for sentence in notes:
            watch.note(sentence)
        try:
            watch.run(folder, stack)
        except _Stopped:
            reading = watch.reading
            if reading is not None:
                reading.pipeline.record.files = reading.prints.listed
                reading.pipeline.end("A signal ended the watch.", reading.found(), reading.faults, complete=False)
            if request.signal == signal.SIGINT:
                raise KeyboardInterrupt from None
            raise StoppedBySignal(request.signal, f"closed steps are saved in {folder}") from None
    return folder


@dataclass(slots=True)
class Watch:
    """The source of a watch: it waits where an audit would end."""

    source: Path
    settings: AuditSettings
    scalars: tuple[Path, ...]
    sinks: Sequence[Sink]
    poll: float
    settle: float
    ends: Ends
    pid: int | None
    clock: Clock
    request: StopRequest
    log: RecognisedLog = field(init=False)
    reading: Reading | None = None
    over: str = ""
    """What has ended the watch. From then on what is there is read to its end, as an audit does."""
    started: dict[Path, Signature] = field(default_factory=dict)
    """Files that are read, in order, and how they were then."""
    current: Path | None = None
    by_columns: bool = False
    """It is parquet, of which a reader asks for the columns that it knows. So it was looked at whole before."""
    looked: tuple[int, Signature] = (0, None)
    """Of the file that is read: how much of it is read, and how it was then."""
    ahead: list[Path] = field(default_factory=list)
    """Files that are not read yet, in order."""
    order: dict[Path, int] = field(default_factory=dict)
    strange: dict[Path, Signature] = field(default_factory=dict)
    """Files without rows of this log, as they were when they were looked at."""
    beside: set[Path] | None = None
    """Files in the folder of a log of scalars alone, which were no rollouts when it was opened."""
    folders: dict[Path, Signature] = field(default_factory=dict)
    """Where files may come, as they were at the last listing."""
    rows: Counter[Path] = field(default_factory=Counter)
    polls: int = 0
    begun: float = 0.0
    busy: float = 0.0
    """When this reading began, and how long it took to read what was there."""
    state: object = None
    """Changes with everything new."""
    grew: float = 0.0
    """When the log grew last."""
    old: bool = False
    """It was silent for long when the watch began: a run that has ended looks like that, too."""
    arrivals: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=LOOKED_AT))
    """When new steps came, and the highest of them."""
    shown: tuple[int, int | None, dict[str, Metric]] = (-1, None, {})
    """Up to which byte provisional readings were made, and of which step."""

    def note(self, sentence: str) -> None:
        for sink in self.sinks:
            sink.note(sentence)

    def run(self, folder: Path, stack: ExitStack) -> None:
        """Read the log, from its start each time that it turns out to be another one, and conclude."""
        judge: ModelJudge | None = None
        told, history = set[tuple[str, int]](), History.growing((), mapped(self.settings.map))
        self.grew = self.clock.now()
        while True:
            self.log = log = self._opened()
            history.first = log.first
            if self.reading is None:
                judge = stack.enter_context(judging(log, self.settings))
            record = resume(folder, AuditRecord.of(log, self.settings))
            record.save(folder)
            if self.reading is None:
                for sink in self.sinks:
                    sink.begin(folder)  # the folder is ours: a sink may put files of its own there
                self.note(f"{log.format} in {self.source}. Writing to {folder}.")
            pipeline = Pipeline(log, self.settings, folder, record, self.sinks, judge, told)
            self.reading = Reading(pipeline, history, self.files(), self.grown, self.seen)
            self.started, self.current, self.strange, self.rows = {}, None, {}, Counter()
            self.begun, self.busy = self.clock.now(), 0.0
            try:
                self._list()
                history.update(bool(self.over))
                self.reading.run()
                record.scalars = history.read
                return conclude(self.reading, there=True, why=self.over)
            except StartOver:
                self.clock.sleep(min(LONGEST_REST, REST * self.busy))
            finally:
                pipeline.close()

    def _opened(self) -> RecognisedLog:
        """The log, as soon as it can be recognised."""
        said = ""
        while True:
            try:
                return open_log(self.source, self.settings, self.scalars)
            except (ValueError, OSError) as error:
                if self.over or (self._ends() and not self._has_grown()):
                    raise
                if (sentence := sentence_of(error)) != said:
                    self.note(f"Waiting for the log. So far: {sentence}")
                    said = sentence
            self._pause()

    # What a reading asks ---------------------------------------------------------------------------------------------

    def files(self) -> Iterator[Path]:
        """The files of the log in their order, each when its first rows are there."""
        while True:
            if file := self._next():
                self.started[file], self.current, self.looked = None, file, (0, None)
                self.by_columns = is_parquet(file)
                yield file
                now, whole = _signature(file), self._reading.prints.held.get(file, (-1, None))[0]
                self.started[file] = now if now and now[1] == whole else None
                self.current = None
            elif not self._wait():
                return

    def grown(self, file: Path, at: int) -> bool:
        """Whether there is more of a file behind these bytes. Waits until there is, or the file is whole."""
        while not self.over:
            now = _signature(file)
            if now is None:
                return False
            if now[1] < at or (self.looked[1] and self.looked[1][0] != now[0]):
                raise StartOver
            if now[1] > at and self.looked != (at, now):
                self.looked = at, now
                return True
            silent = self.clock.now() - now[2] / 1e9 >= self.settle
            if (self.ahead and (silent or now[1] == at)) or (silent and self._is_step(file)):
                return False
            self._wait()
        return False

    def seen(self, row: Row, place: Location) -> None:
        """Raises StartOver where a row shows the log in another light."""
        if self.request.asked:
            raise _Stopped
        self.rows[place.file] += 1
        if self.rows[place.file] > self.log.decision.rows[place.file] and not self.by_columns:
            self._decide(place.file, row)

    # -----------------------------------------------------------------------------------------------------------------

    @property
    def _reading(self) -> Reading:
        assert self.reading is not None
        return self.reading

    def _decide(self, file: Path, row: Row) -> None:
        if not self.log.decision.add(file, row):
            return
        new = recognised(self.source, self.log.files, self.log.format, self.log.decision, self.settings)
        if not new.reads_as(self.log):
            raise StartOver
        pipeline = self._reading.pipeline
        self.log = pipeline.log = replace(self.log, reader=replace(self.log.reader, knowledge=new.reader.knowledge))
        fresh = AuditRecord.of(self.log, self.settings)
        pipeline.record.found, pipeline.record.assumed = fresh.found, fresh.assumed

    def _next(self) -> Path | None:
        """The next file in order, when its rows can be read."""
        while self.ahead:
            file = self.ahead[0]
            now = _signature(file)
            if now is None or self.strange.get(file) == now:
                self.ahead.pop(0)
            elif self._is_ready(file):
                if self.started and self.order[file] < self.order.get(list(self.started)[-1], -1):
                    raise StartOver
                return self.ahead.pop(0)
            elif self.over or self.clock.now() - now[2] / 1e9 >= self.settle:
                self.strange[self.ahead.pop(0)] = now
            else:
                return None
        return None

    def _is_ready(self, file: Path) -> bool:
        """Whether a file holds rows of this log. Parquet is whole or is none."""
        if file in self.log.files.files:
            return True
        try:
            refuse_unreadable(file)
            rows = (row for _, row in rows_of(file, Faults(), lambda more: None))
            first = list(islice(rows, SAMPLE))
        except (OSError, ValueError):
            return False
        name = recognise(first)
        if name is None:
            return False
        if name != self.log.format:
            raise StartOver
        if is_parquet(file) and name != "heedful rollouts":
            for row in chain(first, rows):
                self._decide(file, row)
        return True

    def _is_step(self, file: Path) -> bool:
        """Whether all rows of a file are of the step that its name tells."""
        steps = self._reading.file_steps.get(file, set())
        return steps <= {step_of_file(file)} and any(map(str.isdigit, name_of(file)))

    def _wait(self) -> bool:
        """Hand on what is closed and tell what is open, then wait for a poll. No: the watch has ended."""
        if self.over:
            return False
        reading = self._reading
        self.busy = self.busy or self.clock.now() - self.begun
        of = {
            step: [file for file, steps in reading.file_steps.items() if step in steps]
            for step in reading.stream.waiting.keys() - reading.stream.early
        }
        if self.current is None and all(len(files) == 1 and self._is_step(files[0]) for files in of.values()):
            reading.close()
        elif not reading.stream.interleaved:
            reading.close(but_newest=True)
        reading.release()
        grown = self._has_grown()
        self._tell()
        raised = sorted((step, name) for name, step in reading.pipeline.raised.items() if name in self.ends.alarms)
        failed = f"Alarm {raised[0][1]} was raised at step {raised[0][0]}." if raised else ""
        if why := failed or ("" if grown else self._ends()):
            self.over = why
            reading.history.update(ended=True)
            reading.rejoin()
            return False
        self._pause()
        self._look()
        if reading.history.update():
            reading.rejoin()
        return True

    def _pause(self) -> None:
        if self.request.asked:
            raise _Stopped
        self.clock.sleep(self.poll)
        if self.request.asked:
            raise _Stopped

    def _has_grown(self) -> bool:
        """Whether anything is new since the last call."""
        reading, now = self.reading, self.clock.now()
        files = [*list(self.started)[-1:], *self.ahead]
        scalars = [file.seen for file in reading.history.files] if reading else []
        state = (len(self.order), [_signature(file) for file in files], scalars)
        if state == self.state:
            return False
        came = now
        if self.state is None:  # what was there before the watch
            last = [sign[2] / 1e9 for sign in (*state[1], *(each for seen in scalars for each in seen)) if sign]
            came = min(now, max(last, default=now))
        self.state, self.grew, self.old = state, came, now - came > LEAST_SILENCE
        newest = max([*reading.stream.read, reading.bound, *reading.history.numbers[-1:]]) if reading else -1
        if newest > (self.arrivals[-1][1] if self.arrivals else -1):
            self.arrivals.append((came, newest))
        return True

    def _tell(self) -> None:
        reading, age = self._reading, self.clock.now() - self.grew
        live = [*self.arrivals][1:]  # the first is what was there
        times = [(later - sooner) / (to - begun) for (sooner, begun), (later, to) in pairwise(live)]
        interval = median(times) if times else None
        limit = max(LEAST_SILENCE, SILENT_STEPS * (interval or 0))
        stalled = f"Nothing has come for {age:.0f} s, where steps came every {interval:.0f} s" if interval else ""
        stalled = stalled or f"Nothing has come for {age:.0f} s"
        stalled = stalled if age > limit and not self.old else ""
        if self.pid is not None and not is_alive(self.pid):
            stalled = f"Process {self.pid} has ended"
        waiting = reading.stream.waiting.keys() - reading.stream.early
        if self.shown[0] != reading.position:
            number = max(waiting, default=None)
            held = [] if number is None else reading.stream.waiting[number]
            read = list[Metric]()
            if held:
                from heedful.auditing.measure import step_metrics  # scalars alone need none of it

                read = step_metrics(step_of(number or 0, held, 0), reading.pipeline.log.on)
            self.shown = reading.position, number, {metric.name: metric for metric in read}
        for sink in self.sinks:
            sink.pending(Pending(age, interval, stalled, self.shown[1], self.shown[2]))

    def _ends(self) -> str:
        """What ends the watch once nothing comes. Empty: nothing."""
        age, ends = self.clock.now() - self.grew, self.ends
        newest = self.arrivals[-1][1] if self.arrivals else -1
        if ends.idle is not None and age >= ends.idle:
            return f"Nothing new came for {age:.0f} s."
        if age >= self.settle and ends.pid is not None and not is_alive(ends.pid):
            return f"Process {ends.pid} has ended."
        if age >= self.settle and ends.step is not None and newest >= ends.step:
            return f"The log has come to step {newest}."
        return ""

    def _list(self) -> None:
        """List the files of the log and of scalars, by their names."""
        folder, files, _ = names_of_files(self.source) if self.source.is_dir() else (self.source, [self.source], [])
        if not self.log.files.files:  # scalars alone, unless rollouts have come
            known, self.beside = self.beside, {*files}
            if known is not None and self.beside - known:
                raise StartOver
            files = []
        nested = [path for path in folder.rglob("*") if path.is_dir()] if files and files[0].parent != folder else []
        places = [self.source, folder, *sorted(nested, key=natural)[-LOOKED_AT:], *self.scalars]
        self.folders = {place: _signature(place) for place in places if place.is_dir()}
        self.order = {file: place for place, file in enumerate(files)}
        if any(file.exists() for file in self.started.keys() - self.order):  # beside training it is an evaluation
            raise StartOver
        self.ahead = [file for file in files if file not in self.started]
        scalars = [*(() if files or self.log.files.files else scalar_files(self.source))]
        scalars += chain.from_iterable(map(scalar_files, self.scalars))
        self._reading.history.name(scalars)

    def _look(self) -> None:
        """Find new files, and files that have changed since they were read."""
        self.polls += 1
        everything = self.polls % LOOKS == 0
        known = {**self.folders, **self.strange}
        if everything or any(_signature(place) != seen for place, seen in known.items()):
            self._list()
        for file in [*self.started][0 if everything else -LOOKED_AT :]:
            now = _signature(file)
            if file == self.current or now is None or now == self.started[file]:
                continue
            prints = self._reading.prints
            if file in prints.held and now[1] == prints.held[file][0] and prints.hold(file):
                self.started[file] = now
            elif self.log.overwritten and file == [*self.started][-1] and self._reading.file_steps[file]:
                self.started[file] = now
                prints.held.pop(file, None)
                for step in self._reading.file_steps[file]:
                    self._reading.pipeline.keep(step)
            else:
                raise StartOver


def _signature(path: Path) -> Signature:
    """Changes when a file or a folder does. `None`: it is not there."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
