"""The process of a command: its streams, its warnings, and the exit code and the sentence of each way to end.

`heedful`, `python -m lockbox` and the programs for verl run in it.
"""

from __future__ import annotations

import errno
import io
import logging
import os
import signal
import sys
import sysconfig
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from traceback import extract_tb
from typing import Any

from heedful.boundary import clean, complain, cut, trusting
from heedful.boundary.system_errors import NO_ROOM, is_out_of_memory, sentence_of
from heedful.guarded import Answered, Raised, guarded_call, request_to_end
from heedful.stopping import StoppedBySignal, end_at_once, exit_code, leave_the_terminal

_HERE = Path(__file__).parent
_PLACES = 6
"""Lines of heedful that are named for an error that was not foreseen."""


def prepare_streams() -> None:
    """Make the standard streams of this process fit for a command: open, for every letter, and line by line."""
    open_closed_streams()
    outlive_the_terminal()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # For names and letters that it cannot show. Lines of a long job reach a log file when they are written.
            stream.reconfigure(errors="backslashreplace", line_buffering=True)
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")  # a person may type a letter of another encoding
    # Read when torch is loaded. Its warnings of a peer that has ended are stacks of C++, before heedful's sentence.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")


def run_command(command: Callable[[], int], kept: str = "") -> int:
    """Run one command. Returns its exit code, with every error that the user can fix as a sentence.

    Errors of the user's own code are raised. One that nobody foresaw is told as a fault, with its place, and ends in 1.

    `kept`: what an interruption leaves of a command that saves. Empty for one that saves nothing.
    """
    folder = current_folder()
    if folder is None:  # a library that torch computes with would end the process without a sentence
        complain("heedful: Expected a working directory that exists, found a deleted one. Change to another folder.")
        return 2
    # A typed or trusted module:Class is looked for in the current folder, too. Nothing else is.
    with end_at_once(), _cleaned_warnings(), trusting(folder=folder):
        answer = guarded_call(lambda: _ended(command, kept))
    return answer.value if isinstance(answer, Answered) else _told_as_fault(answer, kept)


def _told_as_fault(answer: Raised, kept: str) -> int:
    """Tell of an error that nobody foresaw. Returns the exit code. Raises an error of the user's own code."""
    frames = extract_tb(answer.error.__traceback__)
    inner = [(Path(frame.filename), frame.lineno) for frame in reversed(frames)]
    own = [f"{file.relative_to(_HERE)}, line {line}" for file, line in inner if _HERE in file.parents]
    if _shows_tracebacks() or any(_is_of_the_user(frame.filename) for frame in frames):
        raise answer.error
    places = ", called at ".join(own[:_PLACES])
    complain(
        f"heedful: {_process()}an error that heedful did not foresee: {cut(str(answer), 500)} (at {places}). "
        f"{f'{kept[0].upper()}{kept[1:]}. ' if kept else ''}This is a fault of heedful. Please report it with the "
        "command and its input, in private if the input could be hostile (SECURITY.md). HEEDFUL_TRACEBACK=1 shows more."
    )
    return 1


def _is_of_the_user(file: str) -> bool:
    """Whether it is a file of neither heedful, nor Python, nor an installed package. Its traceback helps its author."""
    path = Path(file)
    outside = {_HERE, Path(sysconfig.get_path("stdlib"))}.isdisjoint(path.parents)
    return path.is_file() and outside and not {"site-packages", "dist-packages"} & set(path.parts)


def _ended(command: Callable[[], int], kept: str) -> int:
    try:
        try:
            return command()
        except (ImportError, RuntimeError) as error:
            if request := request_to_end(error):  # it arrived inside of an import
                raise request from None
            raise
    except SystemExit as stop:  # the parser has printed its help, or what is wrong with the line
        if stop.code is None or isinstance(stop.code, int):
            return stop.code or 0
        complain(f"heedful: {_process()}an environment or a model ended the process: {stop.code}")
        return 1
    except KeyboardInterrupt as stop:
        saved = isinstance(stop, StoppedBySignal) and stop.saved
        what = f"interrupted; {saved}" if saved else f"interrupted at once; {kept or 'nothing was kept'}"
        complain(f"heedful: {_process()}{what}.")
        return exit_code(stop.number if isinstance(stop, StoppedBySignal) else signal.SIGINT)
    except BrokenPipeError:
        # The reader of the output has closed it, as `head` does. Nothing more can be printed.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if kept:
            complain(f"heedful: stopped, since what reads its output has ended; {kept}.")
        return exit_code(signal.SIGPIPE)
    except (ValueError, OSError, MemoryError, ArithmeticError, ImportError, Warning) as error:
        # An error that the user can fix is one of these and carries a sentence. HEEDFUL_TRACEBACK shows its place.
        if _shows_tracebacks():
            raise
        # A full disk that no file is named for is where the output goes. Files name themselves.
        full = isinstance(error, OSError) and error.errno in NO_ROOM and error.filename is None
        told = f" {kept[0].upper()}{kept[1:]}." if full and kept else ""
        complain(f"heedful: {_process()}{sentence_of(error)}{told}")
        return 2
    except RuntimeError as error:
        if _shows_tracebacks() or not is_out_of_memory(error):
            raise
        complain(f"heedful: {_process()}{sentence_of(error)}")
        return 2


def _shows_tracebacks() -> bool:
    return os.environ.get("HEEDFUL_TRACEBACK", "").lower() not in ("", "0", "false", "no", "off")


def current_folder() -> str | None:
    """The working directory. `None` if it was deleted."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return None


def open_closed_streams() -> None:
    """Open the null device in the place of each standard stream that is closed.

    Otherwise the next file that is opened gets its number, and what libraries print is written into that file.
    """
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number, so this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115


class _Terminal(io.FileIO):
    """A terminal that may be closed while it is written to. What is written then goes nowhere."""

    def write(self, content: Any) -> int:
        try:
            return super().write(content)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            leave_the_terminal()
            return super().write(content)


def outlive_the_terminal() -> None:
    """Let a run whose terminal is closed reach the end of its step: a line that nobody sees is no error."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper) and stream.isatty():
            raw = io.BufferedWriter(_Terminal(stream.fileno(), "w", closefd=False))
            setattr(sys, name, io.TextIOWrapper(raw, stream.encoding, stream.errors, line_buffering=True))


@contextmanager
def _cleaned_warnings() -> Iterator[None]:
    """Clean the warnings and the log of libraries that are printed: they may quote what a stranger wrote."""
    usual, record = warnings.formatwarning, logging.getLogRecordFactory()
    warnings.formatwarning = lambda *told, **named: cut(clean(usual(*told, **named)))
    logging.setLogRecordFactory(_CleanRecord)
    try:
        yield
    finally:
        warnings.formatwarning = usual
        logging.setLogRecordFactory(record)


class _CleanRecord(logging.LogRecord):
    """A line of a log. Names of tensors and files are foreign text, and transformers logs them."""

    def getMessage(self) -> str:
        return cut(clean(super().getMessage()))


def _process() -> str:
    """The rank of this process as a prefix of a message, if there are several."""
    several = os.environ.get("WORLD_SIZE", "1") != "1"
    return f"process {os.environ['RANK']}: " if several and "RANK" in os.environ else ""
