"""JSON that others wrote: what is parsed, and the phrase for what is not."""

from pathlib import Path

import pytest

from heedful.boundary.jsontext import expecting, parse_json, read_json

DEEP = "[" * 10**5 + "]" * 10**5


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        (DEEP, "JSON that is nested too deep"),
        ('{"a": ', r"text that is not JSON \(Expecting value"),
        (b'{"a": "\xff"}', r"bytes that are no UTF-8 text \(byte 7\)"),
    ],
)
def test_what_cannot_be_parsed_is_described_in_a_phrase(text: str | bytes, phrase: str) -> None:
    with pytest.raises(ValueError, match=phrase):
        parse_json(text)


def test_json_is_read_as_utf8(tmp_path: Path) -> None:
    (tmp_path / "file.json").write_text('{"é": 1}', encoding="utf-8")
    assert read_json(tmp_path / "file.json") == {"é": 1}


def test_what_another_form_leads_to_is_one_sentence_with_the_place_and_the_remedy() -> None:
    alone = pytest.raises(ValueError, match=r"^Expected a note in a\.json, found no 'text'\. Restore it\.$")
    with alone, expecting("a note in a.json", "Restore it."):
        parse_json("{}")["text"]
    beside = pytest.raises(OverflowError, match=r"^Expected a note, found \[1\] \(list indices must be .*\)\.$")
    with beside, expecting("a note", value=[1], error=OverflowError):
        parse_json("[1]")["text"]


def test_an_error_that_no_form_leads_to_passes_unless_it_is_named() -> None:
    with pytest.raises(ZeroDivisionError), expecting("a note"):
        raise ZeroDivisionError
    with pytest.raises(ValueError, match="found nothing"), expecting("a note", also=(ZeroDivisionError,)):
        raise ZeroDivisionError("nothing")
