"""Text from outside: what a terminal would obey, or a reader would not see, is shown as an escape. Letters stay."""

from __future__ import annotations

import ast
import io
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table
from rich.text import Text

from heedful.boundary.foreign_text import _VISIBLE_FORMATS, LONGEST_MESSAGE, clean, complain, cut, listed, tell
from heedful.console import SafeConsole
from source_trees import PACKAGE, SOURCES, nodes

HIDDEN = [
    *map(chr, [*range(9), *range(11, 32), 127, *range(128, 160)]),  # C0 but tab and newline, DEL, C1
    *"\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069",  # bidi controls
    *"\u00ad\u180e\u200b\u2060\u2061\u2062\u2063\u2064\ufeff\ufff9\ufffb",  # without width
    *"\u2028\u2029",  # lines that a terminal does not know
    *"\U000e0001\U000e0041\U000e007f",  # hidden letters
    *"\ud800\udcff\udfff",  # no characters at all, as in names of files that are not UTF-8
]

PLAIN = [
    "plain, with a tab\tand\nlines ~",
    "日本語のテキスト、中文、한국어",
    "שלום עולם و السلام عليكم ١٢٣",
    "e\u0301 n\u0303 \u0915\u094d\u0937 \u0e01\u0e33 Z\u0351\u036b",
    "👩‍👩‍👧 👍🏽 ❤️ 🏳️‍🌈 🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f 🇯🇵",
    "می‌خواهم क्‍ष ශ්‍රී",
    "\u0600\u0661 naïve œuvre ½ € – … « »\u00a0x\ufffd",
]


@pytest.mark.parametrize("character", HIDDEN, ids=lambda character: f"U+{ord(character):04X}")
def test_what_is_obeyed_or_hidden_is_escaped(character: str) -> None:
    shown = clean(f"a{character}b")
    assert shown == f"a{character.encode('unicode_escape').decode()}b"
    assert shown.isascii()


@pytest.mark.parametrize("text", PLAIN)
def test_letters_of_every_script_and_emoji_stay(text: str) -> None:
    assert clean(text) == text


@pytest.mark.parametrize("text", ["pass\u200dword", "a\u200c", "\u200d", "\u200d\U0001f469", "x\u200d\U0001f469"])
def test_a_joiner_where_nothing_is_joined_is_escaped(text: str) -> None:
    assert "\u200c" not in clean(text)
    assert "\u200d" not in clean(text)


@given(st.text(st.characters(categories=None) | st.sampled_from([*HIDDEN, "\u200d", "\U0001f3f4"])))
def test_nothing_hidden_survives_and_cleaning_twice_is_cleaning_once(text: str) -> None:
    shown = clean(text)
    assert clean(shown) == shown
    shown.encode()
    kept = set("\n\t\u200c\u200d") | _VISIBLE_FORMATS
    for place, character in enumerate(shown):
        if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp"):
            assert character in kept or "\U0001f3f4" in shown[max(0, place - 9) : place]


def test_long_lists_and_messages_are_cut_with_a_count(capsys: pytest.CaptureFixture[str]) -> None:
    assert listed(range(3)) == "0, 1, 2"
    assert listed((f"column_{number}" for number in range(20_000)), most=2) == "column_0, column_1 and 19,998 more"
    assert cut("x" * LONGEST_MESSAGE) == "x" * LONGEST_MESSAGE
    assert cut("xyz", 2) == "xy ... (3 characters in all)"
    complain("x" * 150_000)
    said = capsys.readouterr().err
    assert said.endswith("x ... (150,000 characters in all)\n")
    assert len(said) < LONGEST_MESSAGE + 50


def test_a_console_cleans_what_it_prints_and_reads_no_markup() -> None:
    nasty = "\x1b]0;owned\x07\x9b2J\u202e[red]x[/red][/] :smile:"
    cleaned = r"\x1b]0;owned\x07\x9b2J\u202e[red]x[/red][/] :smile:"
    for terminal in (False, True):
        out = io.StringIO()
        console = SafeConsole(file=out, force_terminal=terminal, soft_wrap=True, width=200)
        table = Table(nasty, title=nasty)
        table.add_row(nasty)
        for thing in (nasty, Text(nasty, style="bold"), table):
            console.print(thing)
        shown = out.getvalue()
        assert shown.count(cleaned) == 4
        assert shown.count(cleaned.replace(r"\x07", "")) == 1, "rich itself drops BEL from a Text"
        for character in ("\x1b]", "\x9b", "\u202e", "\x07"):
            assert character not in shown
        assert ("\x1b[" in shown) == terminal


def test_tell_writes_one_cleaned_line(capsys: pytest.CaptureFixture[str]) -> None:
    tell(Path("runs/\x1b[2J\udcff"))
    assert capsys.readouterr().out == "runs/\\x1b[2J\\udcff\n"


LAST_NAMES = {"print", "Console", "write", "pprint", "get_console"}


def last_name(called: ast.expr) -> str:
    return called.id if isinstance(called, ast.Name) else called.attr if isinstance(called, ast.Attribute) else ""


def test_nothing_is_printed_past_the_one_function_that_cleans() -> None:
    found = []
    for file in SOURCES:
        for node in nodes(file):
            if not (isinstance(node, ast.Call) and last_name(node.func) in LAST_NAMES):
                continue
            called = ast.unparse(node.func)
            past = called in ("print", "Console", "rich.print", "sys.stdout.write", "sys.stderr.write", "pprint")
            if past or called.endswith((".console.Console", "rich.get_console")):
                found.append(f"{file.relative_to(PACKAGE)}: {called}")
    allowed = {"boundary/foreign_text.py: print"}
    assert set(found) <= allowed, "Print with heedful.boundary.tell or a heedful.console.SafeConsole."
