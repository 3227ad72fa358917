r"""Files of passages: one JSON object a line, gzipped or not, or one JSON list.

| a row of                  | fields                                                                        |
|---------------------------|-------------------------------------------------------------------------------|
| Search-R1, FlashRAG       | `id`, `contents`: `"Title"\ntext`, the title in straight quotes               |
| servers of BM25           | the same, and `title`, `text`, which are preferred                            |
| plain                     | `text`, and perhaps `title` and `id`                                          |
| a list of RAGEN's server  | texts instead of objects, in the form of `contents`                           |

A row without `id` is named by its line.
"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from heedful.boundary import parse_json, read_json
from heedful_envs.search_qa.retrieval.passages import Passage

CORPUS_KINDS = (".jsonl", ".jsonl.gz", ".json")

LONGEST_LINE = 64 << 20
"""Bytes of a row. A small compressed file may hold one of gigabytes."""

_HASHED_AT_ONCE = 1 << 20


class NoPassage(ValueError):
    """A row that is no passage, as a clause."""


def is_corpus_name(path: Path) -> bool:
    """Whether a file's name is that of a corpus."""
    return path.name.endswith(CORPUS_KINDS)


def read_corpus(path: Path) -> Iterator[Passage]:
    """The passages of a file, one at a time. Raises ValueError for a row that is none, with its line."""
    if not is_corpus_name(path):
        raise ValueError(f"Expected a corpus as a file of {', '.join(CORPUS_KINDS)}, found {path.name!r}.")
    if path.suffix == ".json":
        try:
            rows = read_json(path)
        except ValueError as error:
            raise ValueError(
                f"{path}: expected one JSON list of passages, found {error}. Name a file of one JSON object a line "
                ".jsonl."
            ) from None
        if not isinstance(rows, list):
            raise ValueError(f"{path}: expected one JSON list of passages, found {type(rows).__name__}.")
        numbered: Iterator[tuple[int, Any]] = enumerate(rows, 1)
    else:
        numbered = read_lines(path)
    for line, row in numbered:
        try:
            yield passage_of(row, str(line))
        except NoPassage as error:
            raise ValueError(
                f"{path}:{line}: expected a passage, found a row {error}. Correct it or remove it."
            ) from None


def read_lines(path: Path) -> Iterator[tuple[int, Any]]:
    """The JSON lines of a file with their numbers, from 1. Raises ValueError for one that is too long or no JSON."""
    opened: Any = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rb") as file:
            for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE + 1), b""), 1):
                if len(line) > LONGEST_LINE:
                    most = f"{LONGEST_LINE >> 20} MiB"
                    raise ValueError(f"{path}:{number}: expected one JSON object, found a line of more than {most}.")
                if not line.strip():
                    continue
                try:
                    yield number, parse_json(line)
                except ValueError as error:
                    while opened is gzip.open and file.read(_HASHED_AT_ONCE):
                        pass  # its end tells whether it came whole
                    raise ValueError(f"{path}:{number}: expected one JSON object, found {error}.") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path}: expected a whole gzip file, found {error}. Download it again.") from None


def passage_of(row: Any, name: str) -> Passage:
    """The passage of a row. `name`: its id where the row has none. Raises NoPassage."""
    if isinstance(row, str):
        return _split(name, row)
    if not isinstance(row, Mapping):
        raise NoPassage(f"that is no object but {type(row).__name__}")
    given = row.get("id", row.get("_id"))
    if given is not None and (not isinstance(given, str | int) or isinstance(given, bool)):
        raise NoPassage(f"whose id is neither text nor a whole number but {type(given).__name__}")
    place = name if given is None else str(given)
    title, text = row.get("title"), row.get("text")
    if isinstance(text, str) and isinstance(title, str | None):
        title = title or ""
        if not text.strip() and not title.strip():
            raise NoPassage("without any text")
        return Passage(place, title.strip(), text.strip())
    contents = row.get("contents", row.get("content"))
    if not isinstance(contents, str) and isinstance(text, str):
        raise NoPassage(f"whose title is no text but {type(title).__name__}")
    if not isinstance(contents, str):
        raise NoPassage(f"without the text field `contents` or `text` (its fields: {', '.join(sorted(row)) or 'none'})")
    return _split(place, contents)


def _split(name: str, contents: str) -> Passage:
    """A passage from one field: its first line is the title where it stands in straight quotes."""
    first, _, rest = contents.partition("\n")
    first = first.strip()
    if len(first) > 2 and first.startswith('"') and first.endswith('"'):
        return Passage(name, first[1:-1].strip(), rest.strip())
    if not contents.strip():
        raise NoPassage("without any text")
    return Passage(name, "", contents.strip())


def digest_of(*paths: Path) -> str:
    """SHA-256 of files, one after the other."""
    found = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            try:
                while part := file.read(_HASHED_AT_ONCE):
                    found.update(part)
            except OSError as error:  # the system does not name the file here
                error.filename = str(path)
                raise
    return found.hexdigest()
