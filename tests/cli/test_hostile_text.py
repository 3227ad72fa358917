"""No command prints what a terminal obeys, wherever the text comes from: flags, names, logs, environments, servers."""

from __future__ import annotations

import logging
import sys
import unicodedata
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from heedful import cli
from hostile_text import NASTY

TESTS = Path(__file__).parents[1]

TYPED = NASTY.replace("\ud800", "\udcff")
"""As Python gives the words of a command line that are not UTF-8."""


def assert_clean(said: str) -> None:
    found = {char for char in said if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")} - {"\n", "\t"}
    assert not found, said[:2000]
    assert len(said) < 60_000, "a screen is not flooded"


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str]]:
    """Runs a command, checks what it prints, and gives exit code and output."""
    monkeypatch.syspath_prepend(str(TESTS))

    def run(*words: str) -> tuple[int, str]:
        code = cli.run(list(words))
        captured = capsys.readouterr()
        assert_clean(captured.out + captured.err)
        return code, captured.out + captured.err

    return run


WORDS: list[Sequence[str]] = [
    [TYPED],
    ["train", TYPED],
    ["train", f"{TYPED}:X"],
    ["train", "hostile_text:Breaks"],
    ["train", "echo", f"--{TYPED}={TYPED}"],
    ["train", "echo", "--env.symbols", TYPED],
    ["train", "--resume", TYPED],
    ["eval", TYPED, "echo"],
    ["report", TYPED],
    ["audit", TYPED],
]


@pytest.mark.parametrize("words", WORDS, ids=lambda words: ascii(" ".join(words).replace(TYPED, "NASTY")))
def test_what_is_typed_is_told_cleaned(words: Sequence[str], told: Callable[..., tuple[int, str]]) -> None:
    code, said = told(*words)
    assert code != 0, said
    assert said


@pytest.mark.parametrize("name", ["Hostile", "NO_TASK", "NO_START", "NO_STEP"])
@pytest.mark.parametrize("by", ["random", "person"])
def test_an_environment_s_words_are_shown_cleaned(
    name: str, by: str, told: Callable[..., tuple[int, str]], typed: Callable[..., None]
) -> None:
    typed("right", "help", NASTY, "right")
    code, said = told("play", f"hostile_text:{name}", "--by", by)
    assert "nasty" in said or code == 2


def test_warnings_and_errors_of_a_command_are_told_cleaned_and_cut(
    told: Callable[..., tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Warns:
        @staticmethod
        def main(argv: list[str]) -> int:
            print(warnings.formatwarning(NASTY * 1000, UserWarning, f"{NASTY}.py", 3, NASTY), end="")
            raise OSError(2, NASTY, "x" * 10**6)

    monkeypatch.setattr(cli.importlib, "import_module", lambda name: Warns)
    before = warnings.formatwarning
    code, said = told("report")
    assert code == 2
    assert "UserWarning" in said
    assert len(said) < 9000
    assert warnings.formatwarning is before


def test_what_a_library_logs_is_cleaned(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    class Loads:
        @staticmethod
        def main(argv: list[str]) -> int:
            log = logging.getLogger("a library")
            log.addHandler(handler := logging.StreamHandler(sys.stderr))
            log.warning("no weights for %s", "layer\x1b[2J\u202e")
            log.removeHandler(handler)
            return 0

    monkeypatch.setattr(cli.importlib, "import_module", lambda name: Loads)
    assert cli.run(["envs"]) == 0
    said = capsys.readouterr().err
    assert "no weights for layer\\x1b[2J\\u202e" in said
    assert "\x1b" not in said
