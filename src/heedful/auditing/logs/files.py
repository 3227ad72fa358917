"""Log files: which ones a folder holds, what they are by content, and their rows one after the other.

Memory holds one line or one batch of parquet rows. A row that cannot be read is counted, and reading goes on. A file
that is no log is refused with a sentence. A file that could run code is only read as bytes.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from decimal import Decimal
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.auditing.logs.records import Faults, Location, Row, Tell, shortened
from heedful.boundary.jsontext import parse_json
from heedful.boundary.open_files import open_file, refuse_pipes, require_pyarrow
from heedful.boundary.system_errors import sentence_of

if TYPE_CHECKING:
    import pyarrow
    import pyarrow.parquet

BATCH_ROWS = 64
LEAST_BUDGET = 64 * 2**20
"""Bytes that the rows of any parquet file may take."""
MOST_EXPANSION = 1000
"""Bytes of rows for each byte of the file. Real logs, with each prompt repeated for its group, stay below 200."""
SUFFIXES = (".jsonl", ".ndjson", ".json", ".parquet")
LONGEST_LINE = 64 * 2**20
"""Bytes. A longer line is left out unread."""
_PICKLES = (".pkl", ".pickle", ".pt", ".pth", ".bin", ".ckpt")
OWN_FOLDER = "heedful-watch"
"""The folder in a log's folder into which a watch writes. It is no part of the log."""
_GATHERED = ("rollouts", "completions")
"""Folders in which a trainer gathers its logs: ours, TRL's, prime-rl's."""
_EPISODES = ("traces.jsonl", "results.jsonl")
"""The one file of a verifiers run that holds its episodes."""
_OF_STEP = re.compile(r"step\D?\d+/|(?<![\w-])rollout/\d+/")
"""A folder of a step. AReaL's `rollout/VERSION/TASK.jsonl` has no other name for it."""
_OWN_STEP = re.compile(r"step_\d+\.parquet")
_EVALUATION = re.compile(r"(?<![a-z])(eval|val|test|evaluation|validation)(?![a-z])", re.IGNORECASE)
_TRAINING = re.compile(r"(?<![a-z])(train|training)(?![a-z])", re.IGNORECASE)
_PACKED = {b"\x1f\x8b": "gzip", b"PK": "zip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bzip2", b"\xfd7zXZ": "xz"}


@dataclass(frozen=True, slots=True)
class LogFiles:
    """The files of one log, in the order of their steps."""

    files: tuple[Path, ...]
    aside: tuple[str, ...] = ()
    """Names of what else the folder holds."""
    refused: tuple[tuple[Path, str], ...] = ()
    """Files of the log that cannot be read at all, each with the sentence that says why."""
    scalars: tuple[Path, ...] = ()
    """Files of scalars, which were named beside the log."""

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
        found = "a pipe, a socket or a device. Write its text to a file first" if source.exists() else "nothing there"
        raise ValueError(f"Expected a log file or a folder of logs at {source}, found {found}.")
    folder, files, entries = names_of_files(source)
    if not files:
        pickles = [entry for entry in entries if entry.suffix.lower() in _PICKLES]
        if pickles:
            refuse_unreadable(pickles[0])
        others = [entry.name for entry in sorted(folder.iterdir(), key=natural) if entry.name != OWN_FOLDER]
        held = ", ".join(others[:5]) or "nothing"
        raise ValueError(
            f"Expected logs ({', '.join(SUFFIXES)}) in {folder}, found {held}. Name the file, or the folder that holds "
            "the files of one log."
        )
    refused = {}
    for file in files:
        try:
            refuse_unreadable(file)
        except (OSError, ValueError) as error:
            refused[file] = sentence_of(error)
    if len(refused) == len(files):
        raise ValueError(refused[files[0]])
    readable = tuple(file for file in files if file not in refused)
    aside = tuple(entry.name for entry in entries if entry not in files)
    return LogFiles(readable, aside, tuple(refused.items()))


def names_of_files(source: Path) -> tuple[Path, list[Path], list[Path]]:
    """The folder in which the log of a folder lies, its files by their names alone, and what lies directly in it."""
    folder = next((source / name for name in _GATHERED if (source / name).is_dir()), source)
    episodes = [folder / name for name in _EPISODES if (folder / name).is_file()]
    entries = sorted((entry for entry in folder.iterdir() if not entry.is_dir()), key=natural)
    files = episodes[:1] or [entry for entry in entries if entry.suffix.lower() in SUFFIXES]
    if any(_OWN_STEP.fullmatch(file.name) for file in files):
        # The folder also holds the rollouts of evaluations: other tasks, other sampling.
        files = [file for file in files if _OWN_STEP.fullmatch(file.name)]
    training = {_apart(_TRAINING, file) for file in files if not _EVALUATION.search(file.name)}
    files = [file for file in files if not _EVALUATION.search(file.name) or _apart(_EVALUATION, file) not in training]
    return folder, files or _of_steps(folder), entries


def _apart(word: re.Pattern[str], file: Path) -> str:
    """The letters of a file's name without this word: files of training and of evaluations share them."""
    return re.sub(r"[^a-z]+", " ", word.sub("", file.name).lower()).strip()


def _of_steps(folder: Path) -> list[Path]:
    """The files in folders of steps, by step. Training comes before evaluation.

    prime-rl writes every episode into `step_N/{train,eval}/all/traces.jsonl`, and those that it trained on into
    `effective`, too. These lack all groups whose rewards are equal: read alone, hardly a task seems solved or too hard.
    """
    files = sorted((file for file in folder.rglob("*") if OWN_FOLDER not in file.parts), key=natural)
    inside = {file: _OF_STEP.split(file.as_posix()) for file in files}
    found = {
        file: parts[-1] for file, parts in inside.items() if len(parts) > 1 and file.suffix in {*SUFFIXES} - {".json"}
    }
    training = [file for file, name in found.items() if not _EVALUATION.search(name)]
    every = training or [*found]
    return [file for file in every if found[file].endswith("/all/traces.jsonl")] or every


def refuse_unreadable(file: Path) -> None:
    """Raise a sentence for a file that is no log by its first bytes. Nothing of it is interpreted."""
    with open_file(file) as stream:
        head = stream.read(4096)
    if file.suffix.lower() in _PICKLES or re.match(rb"\x80[\x02-\x05]", head):
        raise ValueError(
            f"Expected a log that can be read without running it, found the pickle {file}: opening a pickle can run "
            "code. Export it as JSON lines or parquet (RAGEN: output.format=jsonl)."
        )
    if not head:
        raise ValueError(f"Expected a log in {file}, found an empty file.")
    kind = next((name for magic, name in _PACKED.items() if head.startswith(magic)), None)
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
    file: Path,
    faults: Faults,
    tell: Tell,
    columns: Collection[str] | None = None,
    grown: Callable[[int], bool] = lambda at: False,
) -> Iterator[tuple[Location, Row]]:
    """The rows of one file with their places, read as they are asked for. Raises OSError where it cannot be opened.

    `columns`: those that are used. A value of a parquet file that cannot be read costs its row in one of these, and
    nothing elsewhere. `None` = all, without the values that cannot be read.
    `grown`: asked before a last line without its end, or the end of lines, is taken as it is. It is given how many
    bytes are read, and says whether to look again.
    """
    if is_parquet(file):
        return _parquet_rows(file, faults, tell, columns)
    return _json_lines(open_file(file), file, faults, tell, grown)


def _json_lines(
    opened: BufferedReader, file: Path, faults: Faults, tell: Tell, grown: Callable[[int], bool]
) -> Iterator[tuple[Location, Row]]:
    with opened as stream:
        for number in itertools.count(1):
            at, line, place = stream.tell(), stream.readline(LONGEST_LINE + 1), Location(file, number)
            while not line.endswith(b"\n") and len(line) <= LONGEST_LINE and grown(at):
                stream.seek(at)
                line = stream.readline(LONGEST_LINE + 1)
            if not line:
                return
            tell(len(line))
            if len(line) > LONGEST_LINE:
                faults.add(place, f"a line of at most {LONGEST_LINE >> 20} MiB", "a longer one")
                while line and not line.endswith(b"\n"):
                    line = stream.readline(LONGEST_LINE)
                    tell(len(line))
            elif line.strip():
                try:
                    row = parse_json(line)
                except ValueError as error:
                    cut = "" if line.endswith(b"\n") else ": the file seems to have been cut off here"
                    faults.add(place, "a JSON object", f"{error}{cut}")
                    continue
                if isinstance(row, dict):
                    yield from ((place, each) for each in _unfolded(row))
                else:
                    faults.add(place, "a JSON object", f"a {type(row).__name__}")


def _unfolded(row: Row) -> list[Row]:
    """The rows of a line that holds a list per column, as ms-swift and ROLL write a batch; other rows as they are."""
    prompts, said = row.get("prompt"), row.get("completion", row.get("responses"))
    if not isinstance(prompts, list) or not isinstance(said, list) or not len(prompts) == len(said) > 0:
        return [row]
    if any(isinstance(value, dict) for value in (*prompts, *said)):  # the messages of one conversation
        return [row]
    columns = {
        name: values if isinstance(values, list) and len(values) == len(said) else [values] * len(said)
        for name, values in row.items()
    }
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def natural(path: Path) -> tuple[tuple[int, int | str], ...]:
    """Sorts 9.jsonl before 10.jsonl, and step_9/ before step_10/."""
    parts = re.split(r"(\d+)", path.as_posix())
    return tuple((0, int(part)) if part.isdecimal() else (1, part) for part in parts if part)


def open_parquet(file: Path) -> pyarrow.parquet.ParquetFile:
    """Open a file without reading its rows. Raises ValueError for one that is cut off or damaged."""
    require_pyarrow(file)
    import pyarrow
    import pyarrow.parquet

    refuse_pipes(file)
    try:
        # pyarrow takes the name of a path for a URI: for `hdfs:a.parquet` it loads libraries. An opened file has none.
        opened = pyarrow.parquet.ParquetFile(pyarrow.OSFile(os.fsencode(file)), buffer_size=2**20, pre_buffer=False)
        _ = opened.schema_arrow.names  # which may be no text
        return opened
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise ValueError(
            f"Expected a whole parquet file at {file}, found one that is cut off or damaged: {shortened(str(error))}. "
            "Restore it, or move it out of the folder."
        ) from error


def _parquet_rows(
    file: Path, faults: Faults, tell: Tell, columns: Collection[str] | None = None
) -> Iterator[tuple[Location, Row]]:
    """The rows of a file. `columns`: those that are used; `None` = all that a log can use.

    Of a row group that cannot be read the rest is left out.
    """
    import pyarrow

    try:
        opened = open_parquet(file)
    except ValueError as error:  # a trainer is writing it anew
        faults.add(Location(file, 0), "a file that can be read", str(error))
        return
    with opened as table:
        size, metadata = file.stat().st_size, table.metadata
        kinds = {field.name: field.type for field in table.schema_arrow}
        for name in set(columns or ()) & set(kinds):
            # Without a used column the file's rows would pass for rows that never had it.
            if _is_useless(kinds[name]) or table.schema_arrow.names.count(name) > 1:
                faults.add(Location(file, 0), f"one column of numbers or text as `{name}`", f"{kinds[name]}")
                return
        names = [name for name, kind in kinds.items() if not _is_useless(kind) and (not columns or name in columns)]
        unpacked = sum(metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups))
        if unpacked > max(LEAST_BUDGET, MOST_EXPANSION * size):
            expected = f"rows of at most {MOST_EXPANSION} times the {size:,} bytes of the file"
            faults.add(Location(file, 0), expected, "more")
            return
        number, total = 0, max(1, metadata.num_rows)
        for group in range(table.num_row_groups):
            end = number + metadata.row_group(group).num_rows
            try:
                for batch in table.iter_batches(BATCH_ROWS, row_groups=[group], columns=names):
                    tell(size * (number + len(batch)) // total - size * number // total)
                    for row in batch.to_pylist():
                        number += 1
                        yield Location(file, number), {name: _without_decimals(value) for name, value in row.items()}
            except (pyarrow.ArrowException, OSError, ValueError) as error:
                faults.add(Location(file, number + 1), "rows that can be read", f"damage: {shortened(str(error))}")
            number = end


def _is_useless(kind: pyarrow.DataType) -> bool:
    """Dates and times are of no use to an audit, and Python holds fewer of them than parquet does."""
    import pyarrow.types

    return bool(pyarrow.types.is_temporal(kind) or pyarrow.types.is_binary(kind))


def _without_decimals(value: Any) -> Any:
    """Decimals, as data bases write them, as numbers: whole ones exactly, since they may be keys."""
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, dict):
        return {name: _without_decimals(each) for name, each in value.items()}
    return [_without_decimals(each) for each in value] if isinstance(value, list | tuple) else value
