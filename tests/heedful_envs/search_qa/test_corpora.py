"""Files of passages: every form is read, and a row that is no passage is named by its line."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from heedful_envs.search_qa.corpora import passage_of, read_corpus
from heedful_envs.search_qa.passages import Passage


@pytest.mark.parametrize(
    ("row", "passage"),
    [
        ({"id": "7", "contents": '"Elm"\nA tree.'}, Passage("7", "Elm", "A tree.")),
        ({"id": 7, "contents": "A tree.\nOf many."}, Passage("7", "", "A tree.\nOf many.")),
        ({"id": "7", "contents": "x", "title": "Elm", "text": "A tree."}, Passage("7", "Elm", "A tree.")),
        ({"text": "A tree."}, Passage("L", "", "A tree.")),
        ({"_id": "d1", "title": None, "text": "A tree."}, Passage("d1", "", "A tree.")),
        ({"id": "1", "content": '"Say "no""\nfine'}, Passage("1", 'Say "no"', "fine")),
        ('"Elm"\nA tree.', Passage("L", "Elm", "A tree.")),
    ],
)
def test_each_form_of_a_passage_is_read(row: Any, passage: Passage) -> None:
    assert passage_of(row, "L") == passage


def test_contents_are_written_as_they_are_read() -> None:
    passage = Passage("1", "Elm", "A tree.")
    assert passage_of({"id": "1", "contents": passage.contents}, "") == passage


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ('{"id": "1"}', "found a row without the text field `contents` or `text` \\(its fields: id\\)"),
        ('{"id": "1", "contents": "  "}', "found a row without any text"),
        ('{"text": "x", "title": 5}', "without the text field"),
        ("{", "expected one JSON object, found text that is not JSON"),
    ],
)
def test_a_bad_row_is_named_by_file_and_line(line: str, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_text('{"text": "fine"}\n\n' + line + "\n")
    with pytest.raises(ValueError, match=f"corpus.jsonl:3: .*{sentence}"):
        list(read_corpus(path))


def test_gzipped_lines_and_lists_are_the_same_corpus(tmp_path: Path) -> None:
    rows = [{"id": str(place), "contents": f'"T{place}"\ntext {place}'} for place in range(5)]
    text = "".join(f"{json.dumps(row)}\n" for row in rows)
    (tmp_path / "a.jsonl").write_text(text)
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(text.encode()))
    (tmp_path / "a.json").write_text(json.dumps(rows))
    found = [list(read_corpus(tmp_path / name)) for name in ("a.jsonl", "a.jsonl.gz", "a.json")]
    assert found[0] == found[1] == found[2]
    assert len(found[0]) == 5


def test_a_gzip_file_that_was_cut_is_refused(tmp_path: Path) -> None:
    text = "".join(json.dumps({"text": f"passage {place} {place**7}"}) + "\n" for place in range(500))
    whole = gzip.compress(text.encode())
    (tmp_path / "a.jsonl.gz").write_bytes(whole[:-200])
    with pytest.raises(ValueError, match=r"a\.jsonl\.gz: expected a whole gzip file"):
        list(read_corpus(tmp_path / "a.jsonl.gz"))


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"a file of \.jsonl, \.jsonl\.gz, \.json, found 'a\.txt'"):
        list(read_corpus(tmp_path / "a.txt"))


@pytest.mark.parametrize("text", ['{"text": "a"}\n{"text": "b"}\n', '{"a": 1}'])
def test_a_list_that_cannot_be_read_is_named_with_its_file(text: str, tmp_path: Path) -> None:
    """Lines under the name of a list, above all."""
    (tmp_path / "corpus.json").write_text(text)
    with pytest.raises(ValueError, match=r"expected one JSON list of objects in .*corpus\.json"):
        list(read_corpus(tmp_path / "corpus.json"))
