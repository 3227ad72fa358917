"""Log files: which ones a folder holds, what they are by content, and their rows one after the other.

Memory holds one line or one batch of parquet rows. A row that cannot be read is counted, and reading goes on. A file
that is no log is refused with a sentence. A file that could run code is only read as bytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path

from heedful.auditing.logs.parquet import open_parquet, parquet_rows
from heedful.auditing.logs.records import Faults, Location, Row, Tell
from heedful.boundary.jsontext import parse_json
from heedful.boundary.open_files import open_file

SUFFIXES = (".jsonl", ".ndjson", ".json", ".parquet")
LONGEST_LINE = 64 * 2**20
"""Bytes. A longer line is left out unread."""
_PICKLES = (".pkl", ".pickle", ".pt", ".pth", ".bin", ".ckpt")
_GATHERED = ("rollouts", "completions")
"""Folders in which a trainer gathers its logs: ours, TRL's."""
_EPISODES = ("traces.jsonl", "results.jsonl")
"""The one file of a verifiers run that holds its episodes."""
_SURROGATE = re.compile(r"\\udc[89a-f]")
_OWN_STEP = re.compile(r"step_\d+\.parquet")


@dataclass(frozen=True, slots=True)
class LogFiles:
    """The files of one log, in the order of their steps."""

    files: tuple[Path, ...]
    aside: tuple[str, ...] = ()
    """Names of what else the folder holds."""
    refused: tuple[tuple[Path, str], ...] = ()
    """Files of the log that cannot be read at all, each with the sentence that says why."""

    @property
    def size(self) -> int:
        return sum(file.stat().st_size for file in self.files)


def find_files(source: Path) -> LogFiles:
    """The log files that `source`, a file or a folder, means.

    Raises:
        ValueError: there is nothing there, nothing that is a log, or a pickle. The sentence says what to do.
    """
    if source.is_file():
        refuse_unreadable(source)
        return LogFiles((source,))
    if not source.is_dir():
        if source.exists():
            raise ValueError(
                f"Expected a log file or a folder of logs at {source}, found a pipe, a socket or a device, which "
                "cannot be read twice. Write its text to a file first."
            )
        raise ValueError(f"Expected a log file or a folder of logs at {source}, found nothing there.")
    folder = next((source / name for name in _GATHERED if (source / name).is_dir()), source)
    episodes = [folder / name for name in _EPISODES if (folder / name).is_file()]
    entries = sorted((entry for entry in folder.iterdir() if not entry.is_dir()), key=_natural)
    files = episodes[:1] or [entry for entry in entries if entry.suffix.lower() in SUFFIXES]
    if any(_OWN_STEP.fullmatch(file.name) for file in files):
        # The folder also holds the rollouts of evaluations: other tasks, other sampling.
        files = [file for file in files if _OWN_STEP.fullmatch(file.name)]
    if not files:
        _refuse_folder(folder, entries)
    refused = [(file, sentence) for file in files if (sentence := _refusal(file))]
    damaged = {file for file, _ in refused}
    if len(damaged) == len(files):
        raise ValueError(refused[0][1])
    readable = tuple(file for file in files if file not in damaged)
    known = set(files)
    return LogFiles(readable, tuple(entry.name for entry in entries if entry not in known), tuple(refused))


def _refusal(file: Path) -> str:
    """Why a file cannot be read; empty if it can."""
    if not file.is_file():
        found = "a link to no file" if file.is_symlink() else "a pipe, a socket or a device"
        return f"Expected a log at {file}, found {found}."
    try:
        refuse_unreadable(file)
    except ValueError as error:
        return str(error)
    return ""


def refuse_unreadable(file: Path) -> None:
    """Raise a sentence for a file that is no log by its first bytes. Nothing of it is interpreted."""
    with open_file(file) as stream:
        try:
            head = stream.read(4096)
        except OSError as error:  # an error of reading names no file
            raise OSError(error.errno, error.strerror, str(file)) from error
    if file.suffix.lower() in _PICKLES or re.match(rb"\x80[\x02-\x05]", head):
        raise ValueError(
            f"Expected a log that can be read without running it, found the pickle {file}: opening a pickle can run "
            "code. Export it as JSON lines or parquet (RAGEN: output.format=jsonl)."
        )
    if not head:
        raise ValueError(f"Expected a log in {file}, found an empty file.")
    packed = {b"\x1f\x8b": "gzip", b"PK": "zip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bzip2", b"\xfd7zXZ": "xz"}
    kind = next((name for magic, name in packed.items() if head.startswith(magic)), None)
    if kind:
        raise ValueError(f"Expected a log in {file}, found a file packed with {kind}. Unpack it first.")
    if is_parquet(file):
        with open_parquet(file):
            return
    # A file of lines may hold damaged ones. It is binary if no line begins as a row does.
    if b"\0" in head and not re.search(rb"^\s*\{", head, re.MULTILINE):
        raise ValueError(f"Expected JSON lines or parquet in {file}, found binary data that is neither.")
    if head.lstrip()[:1] == b"[":
        raise ValueError(
            f"Expected one JSON object per line in {file}, found a JSON array. Write its items as lines "
            "(for instance with: jq -c '.[]')."
        )


def is_parquet(file: Path) -> bool:
    with open_file(file) as stream:
        return stream.read(4) == b"PAR1"


def rows_of(
    file: Path, faults: Faults, tell: Tell, columns: Collection[str] | None = None
) -> Iterator[tuple[Location, Row]]:
    """The rows of one file with their places, read as they are asked for. Raises OSError where it cannot be opened.

    `columns`: those that are used. A value that cannot be read costs its row in one of these, and nothing elsewhere.
    `None` = all, without the values that cannot be read.
    """
    if is_parquet(file):
        return parquet_rows(file, faults, tell, columns)
    return _json_lines(open_file(file), file, faults, tell, columns)


def _json_lines(
    opened: BufferedReader, file: Path, faults: Faults, tell: Tell, columns: Collection[str] | None
) -> Iterator[tuple[Location, Row]]:
    with opened as stream:
        number = 0
        while line := stream.readline(LONGEST_LINE + 1):
            number += 1
            place = Location(file, number)
            read = len(line)
            if read > LONGEST_LINE:
                faults.add(place, f"a line of at most {LONGEST_LINE >> 20} MiB", "a longer one")
                while line and not line.endswith(b"\n"):
                    line = stream.readline(LONGEST_LINE)
                    read += len(line)
                line = b""
            tell(read)
            if line.strip():
                row = _json_object(line, place, faults, columns)
                if row is not None:
                    yield place, row


def _json_object(line: bytes, place: Location, faults: Faults, columns: Collection[str] | None) -> Row | None:
    expected = "a JSON object"
    try:
        row = parse_json(line)
    except ValueError as error:
        mended = _mended(line)
        bad = [name for name in mended or () if columns is None or name in columns]
        if mended is None:
            cut = "" if line.endswith(b"\n") else ": the file seems to have been cut off here"
            faults.add(place, expected, f"{error}{cut}")
        elif columns is not None and any(_damaged(mended[name]) for name in bad):
            name = next(name for name in bad if _damaged(mended[name]))
            faults.add(place, f"UTF-8 text as `{name}`", "bytes that are no UTF-8 text")
        else:
            return {name: mended[name] for name in bad if not _damaged(mended[name])}
        return None
    if isinstance(row, dict):
        return row
    faults.add(place, expected, f"a {type(row).__name__}")
    return None


def _mended(line: bytes) -> Row | None:
    """A line with bytes that are no UTF-8, or with a number of thousands of digits; `None` if it is wrong otherwise.

    Such bytes become lone surrogates (U+DC80 to U+DCFF), and such a number stays text.
    """
    try:
        row = parse_json(line.decode("utf-8", "surrogateescape"), whole_number=_whole_number)
    except ValueError:
        return None
    return row if isinstance(row, dict) else None


def _whole_number(digits: str) -> int | str:
    return int(digits) if len(digits) < 1000 else digits


def _damaged(value: object) -> bool:
    """Whether there are bytes in it that are no UTF-8."""
    return _SURROGATE.search(json.dumps(value)) is not None


def _refuse_folder(folder: Path, entries: list[Path]) -> None:
    pickles = [entry.name for entry in entries if entry.suffix.lower() in _PICKLES]
    held = ", ".join(entry.name for entry in sorted(folder.iterdir(), key=_natural)[:5]) or "nothing"
    if pickles:
        refuse_unreadable(folder / pickles[0])
    raise ValueError(
        f"Expected logs ({', '.join(SUFFIXES)}) in {folder}, found {held}. Name the file, or the folder that holds "
        "the files of one log."
    )


def _natural(path: Path) -> tuple[tuple[int, int | str], ...]:
    """Sorts 9.jsonl before 10.jsonl."""
    parts = re.split(r"(\d+)", path.name)
    return tuple((0, int(part)) if part.isdecimal() else (1, part) for part in parts if part)
