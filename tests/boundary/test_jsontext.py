"""JSON that others wrote: what is parsed, and the phrase for what is not."""

from pathlib import Path

import pytest

from heedful.boundary.jsontext import parse_json, read_json

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
