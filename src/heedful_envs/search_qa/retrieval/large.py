"""The index of a large corpus: the library tantivy, which the extra `search` brings.

Terms are made here, and a query is built of terms. tantivy's own parser raises on many texts that agents write.
tantivy keeps the length of a passage in one byte and adds up scores in 32 bits, in an order that depends on how it was
built. So it only proposes passages. Their exact scores are computed from their texts, by the formula of `small`. Equal
corpora then give equal results, also after the index was built again, and the scores of a small index.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ContextDecorator, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from heedful_envs.search_qa.retrieval.passages import Passage
from heedful_envs.search_qa.retrieval.small import K1, TITLE_WEIGHT, B
from heedful_envs.search_qa.retrieval.store import DamagedIndex
from heedful_envs.search_qa.retrieval.terms import terms_of

FOLDER = "tantivy"

_MEMORY = 128 << 20
"""Bytes that building may hold before a part is written."""

_FIELDS = (("title", TITLE_WEIGHT), ("text", 1.0))


def check_installed() -> None:
    """Raise ModuleNotFoundError with a sentence where tantivy is not installed, or only a part of it."""
    try:
        import tantivy

        whole = hasattr(tantivy, "Index")
    except ImportError:
        whole = False
    if not whole:
        raise ModuleNotFoundError(
            "An index of a large corpus takes the library tantivy, which is not installed: "
            'pip install "heedful[search]".'
        )


def _schema() -> Any:
    import tantivy

    builder = tantivy.SchemaBuilder()
    for name, _ in _FIELDS:
        builder.add_text_field(name, stored=False, tokenizer_name="whitespace", index_option="freq")
    builder.add_unsigned_field("place", stored=False, indexed=False, fast=True)
    return builder.build()


_ROOM = 8 << 20
"""Bytes that are written where tantivy could not write."""


@contextmanager
def _telling_the_cause(folder: Path) -> Iterator[None]:
    """Raise OSError where tantivy meets a disk without room. Its threads tell no cause, so a file meets it again."""
    try:
        yield
    except ValueError as error:
        (folder / "room").write_bytes(bytes(_ROOM))
        reason = (str(error).splitlines() or [""])[0].rstrip(".'")
        raise ValueError(
            f"Expected tantivy to write its files to {folder}, but it failed: {reason}. Try again, in another folder "
            "or with --engine numpy."
        ) from error


def write_large(folder: Path, passages: Iterable[Passage]) -> tuple[int, dict[str, float]]:
    """Index passages in one thread with one commit. Their number, and the mean number of terms of each field.

    Raises OSError where the disk does not take them.
    """
    import tantivy

    (folder / FOLDER).mkdir()
    with _telling_the_cause(folder):
        writer = tantivy.Index(_schema(), path=str(folder / FOLDER)).writer(_MEMORY, 1)
    count, lengths, ended = 0, dict.fromkeys(("title", "text"), 0), False
    try:
        for count, passage in enumerate(passages, 1):
            document = tantivy.Document()
            document.add_unsigned("place", count - 1)
            for name in lengths:
                terms = terms_of(getattr(passage, name))
                lengths[name] += len(terms)
                document.add_text(name, " ".join(terms))
            with _telling_the_cause(folder):
                writer.add_document(document)
        with _telling_the_cause(folder):
            writer.commit()
        ended = True
    finally:
        # Also after an interruption, so that nothing writes on into the folder. What came first is told.
        with _telling_the_cause(folder) if ended else suppress(ValueError):
            writer.wait_merging_threads()
    return count, {name: total / max(1, count) for name, total in lengths.items()}


class _NamingDamage(ContextDecorator):
    """Raises DamagedIndex where tantivy panics over a file. A panic is no Exception, so nobody else would catch it."""

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None and kind.__name__ == "PanicException":
            raise DamagedIndex(f"expected the files that tantivy wrote, found others: {error}") from None


class LargeFiles:
    """An index of tantivy, opened. `passages`: by place."""

    @_NamingDamage()
    def __init__(self, folder: Path, passages: Sequence[Passage], means: dict[str, float]) -> None:
        import tantivy

        self._index = tantivy.Index.open(str(folder / FOLDER))
        # Nobody writes to it any more. A reader that follows commits reads its files in a thread of its own.
        # A file that has become shorter by then ends the process.
        self._index.config_reader("manual")
        self._schema = self._index.schema
        self._searcher = self._index.searcher()
        self._passages, self._means = passages, means

    @_NamingDamage()
    def best(self, terms: Sequence[str], most: int) -> list[tuple[int, float]]:
        """(place, score) of the best passages, best first. Ties in the order of the corpus. Raises DamagedIndex."""
        import tantivy

        held = [
            (name, factor, term, holders)
            for term in terms
            for name, factor in _FIELDS
            if (holders := self._searcher.doc_freq(name, term))
        ]
        if not held:
            return []
        clauses = [
            (
                tantivy.Occur.Should,
                tantivy.Query.boost_query(tantivy.Query.term_query(self._schema, name, term), factor),
            )
            for name, factor, term, _ in held
        ]
        proposed = self._propose(tantivy.Query.boolean_query(clauses), most)
        exact = [(place, self._score(place, held)) for place in proposed]
        return sorted(exact, key=lambda pair: (-pair[1], pair[0]))[:most]

    def _propose(self, query: Any, most: int) -> Iterator[int]:
        """The places of the candidates: more than are wanted, and all that are equal to the last one that counts."""
        limit = 4 * most + 20
        while True:
            hits = self._searcher.search(query, limit, count=False).hits
            if len(hits) < limit or hits[-1][0] < hits[most - 1][0]:
                break
            limit *= 4
        places: Any = self._searcher.fast_field_values("place", [address for _, address in hits])
        if any(type(place) is not int for place in places):
            raise DamagedIndex("expected the place of each passage in the files of tantivy, found none")
        return iter(places)

    def _score(self, place: int, held: Sequence[tuple[str, float, str, int]]) -> float:
        passage = self._passages[place]
        counts = {name: Counter(terms_of(getattr(passage, name))) for name, _ in _FIELDS}
        lengths = {name: counts[name].total() for name in counts}
        total = 0.0
        for name, factor, term, holders in held:
            often = counts[name][term]
            if often:
                idf = math.log1p((len(self._passages) - holders + 0.5) / (holders + 0.5))
                norm = K1 * (1 - B + B * lengths[name] / (self._means[name] or 1.0))
                total += factor * idf * often * (K1 + 1) / (often + norm)
        return total
