"""What text metrics say does not depend on the script: known shares of templates and exchanged alphabets."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable

import numpy as np
import pytest

from heedful.diagnostics.text import _template_share as template_share
from heedful.diagnostics.text import text_metrics
from heedful.diagnostics.words import words_of

SCRIPTS: dict[str, tuple[str, str]] = {
    "Latin": ("abcdefghijklmnopqrstuvwxyz", " "),
    "Greek with an accent, composed": ("".join(map(chr, range(0x1F00, 0x1F06))) + "ηικλμνξοπρςστυφχψωβγδ", " "),
    "Cyrillic": ("абвгдежзийклмнопрстуфхцчшщ", " "),
    "Hebrew": ("אבגדהוזחטיךכלםמןנסעףפץצקרש", " "),
    "Hangul": ("".join(chr(0xAC00 + 28 * number) for number in range(26)), " "),
    "Devanagari": ("".join(map(chr, range(0x0915, 0x092F))), " "),
    "letters beyond the basic plane": ("".join(map(chr, range(0x1D4D0, 0x1D4EA))), " "),
}
"""Script -> 26 letters, and what is between words."""
MARKS = {"no mark": "", "combining marks": "\u0323\u0331", "vowel signs": "\u0947", "points": "\u05b8"}


def exchanged(text: str, letters: str, mark: str = "") -> str:
    """The text in another alphabet, with a mark behind every letter."""
    return "".join(letters[ord(letter) - ord("a")] + mark if letter.isalpha() else letter for letter in text)


def thoughts(share: float, prompts: int, members: int, seed: int = 0) -> list[list[str]]:
    """A thought is a template with this probability, and else words of its prompt, of the letters a to z."""
    rng = np.random.default_rng(seed)
    words = [
        "".join("abcdefghijklmnopqrstuvwxyz"[int(letter)] for letter in rng.integers(26, size=6)) for _ in range(400)
    ]
    template = " ".join(words[-12:])
    own = [" ".join(words[12 * prompt : 12 * prompt + 12]) for prompt in range(prompts)]
    return [[template if rng.random() < share else own[prompt] for _ in range(members)] for prompt in range(prompts)]


def share_of(groups: list[list[str]]) -> float | None:
    value = template_share(groups).value
    assert value is None or isinstance(value, float)
    return value


@pytest.mark.parametrize(
    ("script", "mark"),
    [*((script, next(iter(MARKS))) for script in SCRIPTS), *((next(iter(SCRIPTS)), mark) for mark in list(MARKS)[1:])],
)
def test_an_exchanged_alphabet_leaves_the_share_of_templates(script: str, mark: str) -> None:
    groups = thoughts(0.5, 8, 6)
    letters, _ = SCRIPTS[script]
    foreign = [[exchanged(text, letters, MARKS[mark]) for text in group] for group in groups]
    assert share_of(foreign) == share_of(groups)
    assert share_of([[unicodedata.normalize("NFD", text) for text in group] for group in foreign]) == share_of(groups)


def without_blanks(first: int) -> Callable[[float, int, int], list[list[str]]]:
    """Thoughts of 12 letters of a script without blanks. No letter is in a template and in a prompt's own words."""

    def drawn(share: float, prompts: int, members: int) -> list[list[str]]:
        rng = np.random.default_rng(1)
        sentence = [
            "".join(map(chr, range(first + 12 * place, first + 12 * place + 12))) for place in range(prompts + 1)
        ]
        return [
            [sentence[-1] if rng.random() < share else sentence[prompt] for _ in range(members)]
            for prompt in range(prompts)
        ]

    return drawn


@pytest.mark.parametrize("first", [0x4E00, 0x20000], ids=["Han", "Han beyond the basic plane"])
def test_a_script_without_blanks_has_the_share_of_the_same_thoughts_with_blanks(first: int) -> None:
    groups = without_blanks(first)(0.5, 16, 8)
    spaced = [[" ".join(text) for text in group] for group in groups]
    found = share_of(groups)
    assert found == share_of(spaced)
    # 1 - .5^7 of templates and of own words are found within, only templates across.
    assert found == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize("between", ["", " "], ids=["no blanks", "blanks"])
def test_thoughts_that_name_their_prompt_in_han_are_told_apart_and_blind_ones_are_not(between: str) -> None:
    rng = np.random.default_rng(2)
    common = "".join(map(chr, range(0x5000, 0x5020)))

    def thought(name: str) -> str:
        drawn = [common[int(letter)] for letter in rng.integers(len(common), size=12)]
        drawn[int(rng.integers(12))] = name or drawn[0]
        return between.join(drawn)

    named = [[thought(chr(0x4E00 + 2 * prompt) + chr(0x4E01 + 2 * prompt)) for _ in range(8)] for prompt in range(8)]
    blind = [[thought("") for _ in range(8)] for _ in range(8)]
    for groups, low, high in ((named, 0.9, 1.0), (blind, 0.0, 0.3)):
        found = {metric.name: metric.value for metric in text_metrics(groups, np.random.default_rng(0))}
        accuracy = found["text/judge_accuracy"]
        assert isinstance(accuracy, float)
        assert low <= accuracy <= high


def test_the_judge_reads_the_same_in_every_alphabet() -> None:
    groups = thoughts(0.6, 6, 5)
    seen = []
    for letters, _ in SCRIPTS.values():
        foreign = [[exchanged(text, letters) for text in group] for group in groups]
        seen.append(
            [metric.value for metric in text_metrics(foreign, np.random.default_rng(0)) if "judge" in metric.name]
        )
    for readings in seen[1:]:
        assert readings == pytest.approx(seen[0])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("go left, I'm 3_a", ["go", "left", ",", "I", "'", "m", "3_a"]),
        ("目标在右, go右", ["目", "标", "在", "右", ",", "go", "右"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("e\u0301te\u0301 là", ["été", "là"]),
        ("👩\u200d🔬👍🏽🇩🇪🇫🇷 ok", ["👩\u200d🔬", "👍🏽", "🇩🇪", "🇫🇷", "ok"]),
        ("می\u200cروم خانه", ["می\u200cروم", "خانه"]),
        ("\u200ea\u200bb\ufeff", ["a", "b"]),
        ("\u0301a", ["\u0301a"]),
        ("x² + ½\u00a0€", ["x²", "+", "½", "€"]),
    ],
)
def test_words_are_those_of_a_reader(text: str, words: list[str]) -> None:
    assert words_of(text) == words
