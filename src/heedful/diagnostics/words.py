"""Splits a text into words, in any script, so that what is said of phrases does not depend on the alphabet.

Promise: exchanging letters for those of another script with blanks between words leaves the number of words, and which
words are equal.
"""

from __future__ import annotations

import re
import unicodedata

_ASCII_WORD = re.compile(r"\w+|[^\w\s]")
_JOINERS = "\u200c\u200d"
"""Zero-width joiner and non-joiner, which belong to the spelling of a word or of an emoji."""
_ZERO_WIDTH_SPACE = "\u200b"
_WITHOUT_BLANKS = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Myanmar
    (0x1780, 0x17FF),  # Khmer
    (0x2E80, 0x2FDF),  # radicals of Han
    (0x3005, 0x3007),  # marks of Han
    (0x3021, 0x30FF),  # numerals of Han, Hiragana, Katakana
    (0x31F0, 0x31FF),  # Katakana
    (0x3400, 0x4DBF),  # Han
    (0x4E00, 0x9FFF),  # Han
    (0xA9E0, 0xA9FF),  # Myanmar
    (0xAA60, 0xAA7F),  # Myanmar
    (0xF900, 0xFAFF),  # Han
    (0xFF66, 0xFF9F),  # Katakana of half width
    (0x1AFF0, 0x1B16F),  # Kana
    (0x20000, 0x323AF),  # Han
)
"""First and last code points of scripts that put no blanks between words."""
_FLAGS = (0x1F1E6, 0x1F1FF)
_SKIN_TONES = (0x1F3FB, 0x1F3FF)


def words_of(text: str) -> list[str]:
    """The words of a text. A sign, an emoji, and a letter of a script without blanks are a word each.

    Marks and joiners belong to the letter before them. U+200B is a blank. Other characters of no width, such as
    marks of direction, are left out. Equal texts of different composition (NFC, NFD) have
    equal words.
    """
    if text.isascii():
        return _ASCII_WORD.findall(text)
    found: list[str] = []
    kind = ""  # of the last word: "letters" may grow, "sign" takes marks, "" = closed by a blank
    joined = False
    for character in unicodedata.normalize("NFC", text):
        category, code = unicodedata.category(character), ord(character)
        if character.isspace() or character == _ZERO_WIDTH_SPACE:
            kind, joined = "", False
        elif character in _JOINERS:
            joined = bool(kind)
            if kind:
                found[-1] += character
        elif category in ("Cf", "Cc"):
            continue
        elif kind and (category[0] == "M" or _within(code, _SKIN_TONES) or (joined and kind == "sign")):
            found[-1] += character
            joined = False
        elif category[0] in "LN" or character == "_" or category[0] == "M":
            alone = any(low <= code <= high for low, high in _WITHOUT_BLANKS)
            if kind == "letters" and not alone:
                found[-1] += character
            else:
                found.append(character)
            kind, joined = "lone letter" if alone else "letters", False
        elif kind == "flag" and _within(code, _FLAGS):
            found[-1] += character
            kind, joined = "sign", False
        else:
            found.append(character)
            kind, joined = "flag" if _within(code, _FLAGS) else "sign", False
    return found


def _within(code: int, ends: tuple[int, int]) -> bool:
    return ends[0] <= code <= ends[1]
