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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from heedful.boundary import parse_json
from heedful.envs.common import Faulty, JsonList
from heedful_envs.search_qa.passages import Passage

CORPUS_KINDS = (".jsonl", ".jsonl.gz", ".json")


def read_corpus(path: Path) -> Iterator[Passage]:
    """The passages of a file, one at a time. Raises ValueError for a row that is none, with its line."""
    for line, row in read_rows(path):
        try:
            yield passage_of(row, str(line))
        except (Faulty, AttributeError) as error:
            raise ValueError(f"{path}:{line}: expected a passage, found a row {error}.") from None


def read_rows(path: Path) -> Iterator[tuple[int, Any]]:
    """The rows of a file with their numbers, from 1. Raises ValueError for what is no such file."""
    if not path.name.endswith(CORPUS_KINDS):
        raise ValueError(f"Expected a file of {', '.join(CORPUS_KINDS)}, found {path.name!r}.")
    if path.suffix == ".json":
        yield from enumerate(JsonList(path, "search_qa"), 1)
        return
    opened: Any = gzip.open if path.suffix == ".gz" else open
    number = 0
    try:
        with opened(path, "rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield number, parse_json(line)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path}: expected a whole gzip file, found {error}. Download it again.") from None
    except ValueError as error:
        raise ValueError(f"{path}:{number}: expected one JSON object, found {error}.") from None


def passage_of(row: Any, name: str) -> Passage:
    """The passage of a row. `name`: its id where the row has none. Raises Faulty."""
    row = {"contents": row} if isinstance(row, str) else row
    title, text, id = row.get("title"), row.get("text"), row.get("id", row.get("_id"))
    contents = row.get("contents", row.get("content"))
    if not isinstance(text, str) or not isinstance(title, str | None):
        if not isinstance(contents, str):
            fields = ", ".join(map(str, row)) or "none"
            raise Faulty(f"without the text field `contents` or `text` (its fields: {fields})")
        # The first line is the title where it stands in straight quotes.
        first, _, rest = contents.partition("\n")
        first = first.strip()
        quoted = len(first) > 2 and first.startswith('"') and first.endswith('"')
        title, text = (first[1:-1], rest) if quoted else ("", contents)
    passage = Passage(name if id is None else str(id), (title or "").strip(), text.strip())
    if not passage.title and not passage.text:
        raise Faulty("without any text")
    return passage
