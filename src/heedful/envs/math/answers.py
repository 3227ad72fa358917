r"""The cheap and exact part of comparing two answers. A parser reads numbers as fractions, words are compared.

A judgement other than `undecided` is exact (no floats, no `eval`). Every text is judged without raising.

| a number may be written as                                    | which is            |
|---------------------------------------------------------------|---------------------|
| `42`, `-42`, `+42`, `1,234`, `1{,}234`, `007`                 | whole               |
| `0.5`, `.5`, `2.50`                                           | decimal, exact      |
| `3/4`, `-3/4`, `\frac{3}{4}`, `\dfrac34`, `1 1/2`, `1\frac12` | a fraction          |
| `50%`, `50 percent`, `50\%`                                   | see below           |
| `$5`, `5 dollars`, `5 \text{ cm}`, `30^\circ`, `5 thousand`   | with a unit         |
| `\boxed{42}`, `$42$`, `\(42\)`, `x = 42`, `The answer is 42.` | with something around |

Units are not compared: a problem states in which unit it asks. `50%` equals both 50 and 1/2, since files write the
answer to "what percentage" either way. What holds letters or signs of mathematics beyond this table is `undecided`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from functools import lru_cache


class Judgement(Enum):
    """The result of comparing an answer with the right one."""

    RIGHT = "right"
    WRONG = "wrong"
    UNREADABLE = "unreadable"
    """It is nothing that the right answer could be equal to: words where a number is asked for."""
    UNDECIDED = "undecided"
    """It takes algebra to tell."""


@dataclass(frozen=True, slots=True)
class Number:
    """A number that was read, exact."""

    value: Fraction
    percent: bool = False
    """Whether it stood before a percent sign. `value` is the number as written, 50 of `50%`."""

    def equals(self, other: Number) -> bool:
        """Whether both are the same, with a percentage equal to its number and to its hundredth."""
        if self.percent == other.percent:
            return self.value == other.value
        part, whole = (self, other) if self.percent else (other, self)
        return whole.value in (part.value, part.value / 100)


MOST_DIGITS = 60
"""Most digits of a numeral that is read exactly. No answer needs more, and the cost must not grow with a reply."""

LONGEST_ANSWER = 200
"""Characters of an answer. A longer one is none, and is not read: some patterns cost the square of the length."""

_WHOLE = r"(?:\d{1,3}(?:,\d{3})+|\d+)"
_DECIMAL = re.compile(rf"({_WHOLE})?(?:\.(\d*))?")
_MIXED = re.compile(rf"({_WHOLE}) +({_WHOLE}) ?/ ?({_WHOLE})")
_QUOTIENT = re.compile(r"([^/]+)/([^/]+)")
_THOUSANDS = re.compile(r"(?<![\d.,/])[1-9]\d{0,2}(?: \d{3})+(?![\d,/])")
_PARTING = re.compile(r"(?<=[\d.]) +(?=[\d.])")
_FRAC = re.compile(r"\\[dt]?frac *(?:\{([^{}]*)\}|(\d)) *(?:\{([^{}]*)\}|(\d))")
_TEXT = re.compile(r"\\(?:text|mathrm|textbf|mathbf|textit|mbox) *\{([^{}]*)\}")
_AROUND = (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]"), ("**", "**"), ("{", "}"))
_LEAD = re.compile(r"(?:(?:so |thus |therefore,? )?(?:the )?(?:final )?answer(?: is)?:?|[A-Za-z]\s*=) *", re.IGNORECASE)
_SPACES = re.compile(r"(?:\\[,;:! ]|~|\\q?quad(?![a-zA-Z])|\s)+")
_UNIT = re.compile(r"(?<=[\d.}]) *(?:\^ *\{? *\\circ *\}?|°|[€£¥¢])|(?<=[\d.}]) +([A-Za-z]{2,}(?:[ /-][A-Za-z]+)*)")
_SHORT_UNIT = re.compile(
    r"(?<=[\d.}]) *(?:mm|cm|km|kg|mg|ml|dm|m|g|l|h|s|min|lb|lbs|oz|ft|mi)(?: ?\^ ?\{?[23]\}?|[²³])?$"
)
_PERCENT = re.compile(r" *(?:\\?%|percent|per cent)$", re.IGNORECASE)
_SCALES = {"dozen": 12, "hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_PARTS = {"third": 3, "fourth": 4, "fifth": 5, "sixth": 6, "seventh": 7, "eighth": 8, "ninth": 9, "tenth": 10}
_PARTS |= {"hundredth": 100, "thousandth": 10**3, "millionth": 10**6}
_JOINS = {
    "and",
    "or",
    "to",
    "plus",
    "minus",
    "times",
    "over",
    "by",
    "divided",
    "squared",
    "cubed",
    "half",
    "halves",
    "quarter",
    "pi",
    "factorial",
    "repeating",
    "recurring",
}
_FUNCTIONS = {
    "pi",
    "sin",
    "cos",
    "tan",
    "cot",
    "sec",
    "csc",
    "log",
    "ln",
    "exp",
    "sqrt",
    "infinity",
    "infty",
    "mod",
    "frac",
}
_WORDS = re.compile(r"[A-Za-z][A-Za-z'’ .,:;!?-]*")
_BOXED = "\\boxed"


@lru_cache(maxsize=8192)
def judge(right: str, answer: str) -> Judgement:
    """What can be said exactly of `answer`, where `right` is the right one."""
    if len(answer) > LONGEST_ANSWER:
        return Judgement.UNREADABLE
    right, answer = bare(right), bare(answer)
    wanted, found = read_number(right), read_number(answer)
    if wanted is not None and found is not None:
        return Judgement.RIGHT if wanted.equals(found) else Judgement.WRONG
    if _same_text(right, answer):
        return Judgement.RIGHT
    if _is_words(answer):
        return Judgement.WRONG if _is_words(right) else Judgement.UNREADABLE
    if _is_words(right):
        return Judgement.WRONG if found is not None else Judgement.UNREADABLE
    return Judgement.UNDECIDED


def bare(text: str) -> str:
    """An answer without what people put around it: the last box, dollar signs, `x =`, text commands, a full stop."""
    text = _SPACES.sub(" ", last_boxed(text) or text).strip()
    text = text.replace("{,}", ",").replace("−", "-").replace("\\left", "").replace("\\right", "")
    text = _TEXT.sub(r" \1 ", text).strip()
    while True:
        shorter = text.rstrip(".").strip() if not text.endswith("..") else text
        for opening, closing in _AROUND:
            inside = shorter[len(opening) : -len(closing)]
            if shorter.startswith(opening) and shorter.endswith(closing) and inside and opening not in inside:
                shorter = inside.strip()
        shorter = shorter[match.end() :] if (match := _LEAD.match(shorter)) and match.end() < len(shorter) else shorter
        if shorter == text:
            return text
        text = shorter


def last_boxed(text: str) -> str:
    r"""The content of the last `\boxed{...}`, braces balanced. Empty if there is none, or it is never closed."""
    start = text.rfind(_BOXED)
    opening = text.find("{", start) if start >= 0 else -1
    if opening < 0 or text[start + len(_BOXED) : opening].strip():
        return ""
    depth = 0
    for place in range(opening, len(text)):
        depth += (text[place] == "{") - (text[place] == "}")
        if depth == 0:
            return text[opening + 1 : place]
    return ""


def read_number(text: str) -> Number | None:
    """The number that a text (already `bare`) writes. `None` if it writes anything else."""
    text = text.strip()
    percent = bool(_PERCENT.search(text))
    text = _PERCENT.sub("", text)
    text, scale = _without_unit(text)
    negative = text.startswith("-")
    text = text[1:].strip() if text[:1] in ("-", "+") else text
    if text[:1] in "$€£¥" or text.startswith("\\$"):
        text = text.removeprefix("\\").lstrip("$€£¥").strip()
        negative, text = (True, text[1:]) if text[:1] == "-" and not negative else (negative, text)
    value = _read_unsigned(text)
    if value is None:
        return None
    return Number((-value if negative else value) * scale, percent)


def _without_unit(text: str) -> tuple[str, Fraction | int]:
    """A text without the unit behind its number, and what a scale word among the unit's multiplies it by."""
    short = _SHORT_UNIT.search(text)
    if short:
        return text[: short.start()].strip(), 1
    found = _UNIT.search(text)
    if found is None or found.end() != len(text):
        return text, 1
    words = (found[1] or "").lower().replace("-", " ").replace("/", " ").split()
    if _JOINS & set(words):
        return text, 1
    if any(word.rstrip("s") in _SCALES for word in words[1:]):
        return text, 1
    return text[: found.start()].strip(), _scale(words)


def _scale(words: list[str]) -> Fraction | int:
    """What the words behind a number multiply it by. `2 thirds` is a fraction, `10 third graders` are ten."""
    first = words[0] if words else ""
    if first.endswith("s") or len(words) == 1:
        return _SCALES.get(first.rstrip("s")) or Fraction(1, _PARTS.get(first.rstrip("s"), 1))
    return _SCALES.get(first, 1)


def _read_unsigned(text: str) -> Fraction | None:
    if not text or sum(map(str.isdigit, text)) > MOST_DIGITS:
        return None
    text = _FRAC.sub(_frac_as_quotient, text).strip()
    mixed = _MIXED.fullmatch(text)
    if mixed:
        whole, above, below = (_read_decimal(part) for part in mixed.groups())
        return whole + above / below if whole is not None and above is not None and below else None
    quotient = _QUOTIENT.fullmatch(text)
    if quotient:
        above, below = _read_signed(quotient[1]), _read_signed(quotient[2])
        return above / below if above is not None and below else None
    return _read_decimal(text)


def _frac_as_quotient(match: re.Match[str]) -> str:
    return f" {match[1] or match[2]}/{match[3] or match[4]} "


def _read_signed(text: str) -> Fraction | None:
    text = text.strip()
    negative = text.startswith("-")
    value = _read_decimal(text[1:].strip() if negative else text)
    return -value if negative and value is not None else value


def _read_decimal(text: str) -> Fraction | None:
    found = _DECIMAL.fullmatch(text.strip())
    if not found or not (found[1] or found[2]) or not text.isascii():
        return None
    whole, decimals = (found[1] or "0").replace(",", ""), found[2] or ""
    return Fraction(int(whole + decimals), 10 ** len(decimals))


def _same_text(one: str, other: str) -> bool:
    return _squeezed(one) == _squeezed(other)


def _squeezed(text: str) -> str:
    """A text without spaces. One between digits parts two numbers and stays, unless it marks off thousands."""
    text = _PARTING.sub("_", _THOUSANDS.sub(lambda number: number[0].replace(" ", ""), text))
    text = "".join(text.split()).casefold()
    return text[1:-1] if len(text) == 3 and text[0] == "(" and text[2] == ")" else text


def _is_words(text: str) -> bool:
    """Whether a text is plain language: words, one of them longer than a variable, none a function's name."""
    words = re.findall(r"[a-z]+", text.lower()) if _WORDS.fullmatch(text) else []
    return any(len(word) > 1 for word in words) and not _FUNCTIONS & set(words)
