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
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from heedful.boundary import parse_json, read_json
from heedful_envs.search_qa.passages import Passage

CORPUS_KINDS = (".jsonl", ".jsonl.gz", ".json")

LONGEST_LINE = 64 << 20
"""Bytes of a row. A small compressed file may hold one of gigabytes."""


class NoPassage(ValueError):
    """A row that is no passage, as a clause."""


def read_corpus(path: Path) -> Iterator[Passage]:
    """The passages of a file, one at a time. Raises ValueError for a row that is none, with its line."""
    for line, row in read_rows(path):
        try:
            yield passage_of(row, str(line))
        except NoPassage as error:
            raise ValueError(f"{path}:{line}: expected a passage, found a row {error}.") from None


def read_rows(path: Path) -> Iterator[tuple[int, Any]]:
    """The rows of a file with their numbers, from 1. Raises ValueError for what is no such file."""
    if not path.name.endswith(CORPUS_KINDS):
        raise ValueError(f"Expected a file of {', '.join(CORPUS_KINDS)}, found {path.name!r}.")
    if path.suffix == ".json":
        try:
            rows = read_json(path)
        except ValueError as error:
            raise ValueError(f"{path}: expected one JSON list, found {error}. Name lines .jsonl.") from None
        if not isinstance(rows, list):
            raise ValueError(f"{path}: expected one JSON list, found {type(rows).__name__}.")
        yield from enumerate(rows, 1)
        return
    opened: Any = gzip.open if path.suffix == ".gz" else open
    number = 0
    try:
        with opened(path, "rb") as file:
            for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE + 1), b""), 1):
                if len(line) > LONGEST_LINE:
                    raise ValueError(f"a line of more than {LONGEST_LINE >> 20} MiB")
                if line.strip():
                    yield number, parse_json(line)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path}: expected a whole gzip file, found {error}. Download it again.") from None
    except ValueError as error:
        raise ValueError(f"{path}:{number}: expected one JSON object, found {error}.") from None


def passage_of(row: Any, name: str) -> Passage:
    """The passage of a row. `name`: its id where the row has none. Raises NoPassage."""
    if isinstance(row, str):
        row = {"contents": row}
    if not isinstance(row, Mapping):
        raise NoPassage(f"that is no object but {type(row).__name__}")
    id = row.get("id", row.get("_id"))
    if id is not None and type(id) not in (str, int):
        raise NoPassage(f"whose id is neither text nor a whole number but {type(id).__name__}")
    title, text = row.get("title"), row.get("text")
    contents = row.get("contents", row.get("content"))
    if not isinstance(text, str) or not isinstance(title, str | None):
        if not isinstance(contents, str):
            fields = ", ".join(map(str, row)) or "none"
            raise NoPassage(f"without the text field `contents` or `text` (its fields: {fields})")
        title, text = _split(contents)
    passage = Passage(name if id is None else str(id), (title or "").strip(), text.strip())
    if not passage.title and not passage.text:
        raise NoPassage("without any text")
    return passage


def _split(contents: str) -> tuple[str, str]:
    """Title and text from one field: its first line is the title where it stands in straight quotes."""
    first, _, rest = contents.partition("\n")
    first = first.strip()
    if len(first) > 2 and first.startswith('"') and first.endswith('"'):
        return first[1:-1], rest
    return "", contents
