"""The command line: `heedful train | eval | play | audit | study | gradients | envs | check-env | serve-env | report`.

`heedful grow` gives a loaded model its warm start, and `correlate` reads the runs of several studies. `index` and
`serve-search` prepare searches. `doctor` shows what is installed.

An error that the user can fix ends in a sentence and exit code 2. Help loads no torch.

Exit codes: 0 done, 1 a run among several failed, a rule of check-env is broken or doctor found a fault, 2 bad input,
3 stopped by an alarm, 130 interrupted by Ctrl-C, 143 by SIGTERM, 138 by SIGUSR1, 129 by a closed
terminal: saved, if the command can save. 141: the reader of a long command's output has ended.
"""

from __future__ import annotations

import errno
import importlib
import io
import logging
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from heedful.configuration import clean, complain, cut, tell, trusting
from heedful.configuration.system_errors import NO_ROOM, is_out_of_memory, sentence_of
from heedful.stopping import end_at_once, exit_code, exit_code_of, leave_the_terminal
from heedful.version import __version__

COMMANDS = {
    "train": ("train", "train an agent: rollouts, filter, update, diagnostics, report"),
    "grow": ("grow", "give a loaded model its warm start from an environment's demonstrations"),
    "eval": ("evaluate", "success of a run or a model on held-out tasks, with baselines"),
    "play": ("play", "play one episode yourself, or watch a model, the solver or a random policy"),
    "audit": ("audit", "measure logged rollouts: ours, TRL's, verl's, verifiers' or RAGEN's"),
    "study": ("study", "run a declared study: arms x seeds, tables with intervals, a page"),
    "correlate": ("correlate", "what goes with success, over the finished runs of several studies"),
    "gradients": ("gradients", "signal and noise of a run's gradient, by reward variance"),
    "serve-env": ("environments.serve_env", "serve an environment's episodes over HTTP, to be played as `remote`"),
    "index": ("environments.index", "build an index of passages, for the environment search_qa"),
    "serve-search": ("environments.serve_search", "serve an index of passages over HTTP, in two protocols"),
    "prepare-shop": ("environments.prepare_shop", "prepare a catalogue for the environment shop, once"),
    "envs": ("environments.envs", "list the environments and presets"),
    "check-env": ("environments.check_env", "play anyone's environment and say which rules of the contract it breaks"),
    "doctor": ("doctor", "what is installed, and what an inference server offers and lacks"),
    "report": ("report", "write the page of a run again, or compare runs"),
}
"""Name -> its module in this package, with `main(argv) -> exit code`, and one line of help."""


KEPT = {
    "train": "what the last checkpoint holds is safe, and heedful train --resume RUN goes on from it",
    "grow": "what was saved of the warm start is safe, and the same command goes on",
    "study": "what its runs have saved is safe, and the same command goes on",
    "audit": "the steps measured so far are safe, and the same command with --out FOLDER (named above) goes on",
}
"""Command -> what an interruption leaves."""


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point of the `heedful` command."""
    open_closed_streams()
    outlive_the_terminal()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # For names and letters that it cannot show. Lines of a long job reach a log file when they are written.
            stream.reconfigure(errors="backslashreplace", line_buffering=True)
    sys.exit(run(sys.argv[1:] if argv is None else list(argv)))


def run(argv: Sequence[str]) -> int:
    """Dispatch to a command. Returns the exit code."""
    name, rest = (argv[0], argv[1:]) if argv else ("--help", [])
    # A typed or trusted module:Class is looked for in the current folder, too. Nothing else is.
    with end_at_once(), _cleaned_warnings(), trusting(folder=current_folder()):
        return _run(name, list(rest))


def _command(name: str, rest: list[str]) -> int:
    """Do what the first word says. Returns the exit code."""
    if name in ("--help", "-h", "help"):
        tell(_overview())
        return 0
    if name == "--version":
        tell(f"heedful {__version__}")
        return 0
    if name not in COMMANDS:
        complain(f"heedful: there is no command {cut(name, 100)!r}; expected one of {', '.join(COMMANDS)}.")
        return 2
    if name != "train" and os.environ.get("WORLD_SIZE", "1") != "1" and "RANK" in os.environ:
        complain(
            f"heedful: only `heedful train` runs as several processes, found `heedful {name}` started by torchrun in "
            f"{os.environ['WORLD_SIZE']}; start it without."
        )
        return 2
    _check_variables()
    return int(importlib.import_module(f"{__name__}.{COMMANDS[name][0]}").main(rest))


_READ_BY_LIBRARIES: Mapping[str, Callable[[str], object]] = {
    "HF_HUB_DOWNLOAD_TIMEOUT": int,
    "HF_HUB_ETAG_TIMEOUT": int,
    "SOURCE_DATE_EPOCH": lambda text: time.gmtime(int(text)),
}
"""Variables that libraries read while they are imported, and what reads each of them."""


def _check_variables() -> None:
    """Refuse what libraries would raise while they are imported."""
    for variable, read in _READ_BY_LIBRARIES.items():
        try:
            read(os.environ.get(variable, "0"))
        except (ValueError, OverflowError, OSError):
            raise ValueError(
                f"Expected a whole number of seconds in the variable {variable}, found "
                f"{clean(os.environ[variable])!r:.80}. Correct it, or unset it."
            ) from None


def _run(name: str, rest: list[str]) -> int:
    """The exit code of one command, with every error that the user can fix as a sentence."""
    try:
        return _command(name, rest)
    except SystemExit as stop:  # the parser has printed its help, or what is wrong with the line
        if stop.code is None or isinstance(stop.code, int):
            return stop.code or 0
        complain(f"heedful: {_process()}an environment or a model ended the process: {stop.code}")
        return 1
    except KeyboardInterrupt as stop:
        complain(f"heedful: {_process()}interrupted at once; {KEPT.get(name, 'nothing was kept')}.")
        return exit_code_of(stop)
    except BrokenPipeError:
        # The reader of the output has closed it, as `head` does. Nothing more can be printed.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if name not in KEPT or {"-h", "--help"} & set(rest):
            return 0
        complain(f"heedful: stopped, since what reads its output has ended; {KEPT[name]}.")
        return exit_code(signal.SIGPIPE)
    except (ValueError, OSError, MemoryError, ArithmeticError, ImportError) as error:
        # An error that the user can fix is one of these and carries a sentence. HEEDFUL_TRACEBACK shows its place.
        if os.environ.get("HEEDFUL_TRACEBACK"):
            raise
        # A full disk that no file is named for is where the output goes. Files name themselves.
        full = isinstance(error, OSError) and error.errno in NO_ROOM and error.filename is None
        kept = f" {KEPT[name][0].upper()}{KEPT[name][1:]}." if full and name in KEPT else ""
        complain(f"heedful: {_process()}{sentence_of(error)}{kept}")
        return 2
    except RuntimeError as error:
        if os.environ.get("HEEDFUL_TRACEBACK") or not is_out_of_memory(error):
            raise
        complain(f"heedful: {_process()}{sentence_of(error)}")
        return 2


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


def _overview() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {line}" for name, (_, line) in COMMANDS.items()]
    return "\n".join(
        [
            "heedful: train LLM agents with RL, and see when their reasoning stops depending on the input.",
            "",
            "usage: heedful COMMAND ...",
            "",
            *lines,
            "",
            "`heedful COMMAND --help` explains a command. A first run: heedful train frozen_lake",
            "Set HEEDFUL_TRACEBACK=1 to see where an error came from.",
        ]
    )
