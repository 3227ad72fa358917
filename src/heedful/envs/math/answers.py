r"""Compare an answer with the right one: numbers exactly, words as words, structures part by part.

Both are first brought to one spelling (`notation`). Every text is judged without raising, floats or `eval`.

The kinds of answers are in `docs/built_in.md`, and pairs of each kind in `tests/envs/math/pairs.jsonl`.

A unit may be left out, since a problem states in which unit it asks. Two known units must be the same. `50%` equals
both 50 and 1/2, since files write the answer to "what percentage" either way. A rounded number is not the number.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from functools import lru_cache

from heedful.envs.math.notation import FUNCTIONS, TURNED, closing, spelled, split_outside


class Judgement(Enum):
    """The result of comparing an answer with the right one."""

    RIGHT = "right"
    WRONG = "wrong"
    UNDECIDED = "undecided"
    """It takes algebra to tell."""


Algebra = Callable[[str, str, str], Judgement]
"""Decides whether two expressions in the one spelling are equal up to a factor: `one`, `positive` or `any`."""

MOST_DIGITS = 60
"""Most digits of a numeral that is read exactly. No answer needs more, and the cost must not grow with a reply."""

LONGEST_ANSWER = 500
"""Characters of an answer. A longer one is none, and is not read: some patterns cost the square of the length."""

MOST_EXPONENT = 1000
"""Of a power of ten that is read exactly."""

_AROUND = re.compile(r"(\$\$?|\*\*|`|\\\(|\\\[)(.+)(?<!\\)(?:\1|\\[)\]])", re.DOTALL)
_LEAD = re.compile(
    r"(?:(?:so |thus |therefore,? )?(?:the )?(?:final |correct )?(?:answer|option|choice)(?: is)?:?|=|≈|\\approx) *",
    re.IGNORECASE,
)
BOX = re.compile(r"\\(?:boxed|fbox) *")
"""The command before the content of a box."""
_WHOLE = r"(?:\d{1,3}(?:,\d{3})+|\d+)"
_DECIMAL = re.compile(rf"({_WHOLE})?(?:\.(\d*)(?:\\overline\{{(\d+)\}})?)?")
_SCIENTIFIC = re.compile(r"(?:(.*\d\.?)(?:[eE]\+?|\*10\^\{?)|10\^\{)(-?\d+)\}?")
_MIXED = re.compile(rf"({_WHOLE}) *(?: ({_WHOLE})/({_WHOLE})|\\frac\{{({_WHOLE})\}}\{{({_WHOLE})\}})")
_QUOTIENT = re.compile(r"([^/]+)/([^/]+)|\\frac\{([^{}]*)\}\{([^{}]*)\}")
_THOUSANDS = re.compile(r"(?<![\d.,/])[1-9]\d{0,2}(?:(?: \d{3})+|(?:'\d{3})+)(?![\d,/'])")
_PERCENT = re.compile(r"[ ‖]*(?:%|percent|per cent|pct)$", re.IGNORECASE)
_MONEY = re.compile(r"(?:US|USD|Rs\.?)? *[$€£¥₹]|(?:USD|EUR|Rs\.?) ")

_UNIT = re.compile(r"(?<=[\d.})π])([ ‖]*)(?=[A-Za-zμΩ°€£¥¢₹\"'])((?:[A-Za-zμΩ°€£¥¢₹\"' */()‖.-]|\^ ?\{-?\d\})+)$")
_UNIT_PART = re.compile(r"[A-Za-zμΩ]+|[°€£¥¢₹\"'/]|\^ ?\{-?\d\}")
_INNER_UNIT = re.compile(r"\d[ ‖]+([A-Za-z]+)[ ‖,]")
_UNIT_NAMES = """m meter metre, km kilometer kilometre, cm centimeter centimetre, mm millimeter millimetre,
dm, nm, in inch inche ", ft foot feet ', yd yard, mi mile, acre, ha, L l liter litre, mL ml milliliter millilitre,
gal gallon, s sec second, ms, min minute, h hr hour, day, week, month, yr year, kg kilogram kilo, g gram, mg milligram,
lb lbs pound £, oz ounce, mph, kph kmh, bpm, rpm, N newton, J joule, kJ, kWh, eV, cal, kcal, W watt, kW, V volt, Ω ohm,
A amp ampere, H henry, T tesla, K kelvin, C coulomb celsius, F fahrenheit, Pa pascal, kPa, atm, Hz hertz, kHz, MHz, dB,
mol mole, M molar, GB, MB, KB, rad radian, deg degree °, $ dollar USD, ¢ cent, € euro EUR, ¥ yen, ₹ Rs rupee, unit,
sq square, cu cubic, per, μm micrometer"""
_UNITS = {spelling: names.split()[0] for names in _UNIT_NAMES.split(",") for spelling in names.split()}
_POWERS = {"sq": 2, "cu": 3}
_COMPOUND = {"mph": {"mi": 1, "h": -1}, "kph": {"km": 1, "h": -1}, "mL": {"cm": 3}}
_SCALES = {"dozen": 12, "hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_PARTS = {"third": 3, "fourth": 4, "fifth": 5, "sixth": 6, "seventh": 7, "eighth": 8, "ninth": 9, "tenth": 10}
_PARTS |= {"hundredth": 100, "thousandth": 10**3, "millionth": 10**6}
_JOINS = """and or to plus minus times over by divided half halves quarter factorial repeating recurring mod choose
am pm than less more least most not wrong incorrect false true right correct maybe perhaps probably possibly about
approximately roughly guess invalid unknown undefined impossible"""
_NO_UNIT = frozenset(_JOINS.split())
_NEVER_FIRST = {"a", "an", "of", "on", "at", "squared", "cubed"}
"""Words of a unit that do not begin one: `5 apples of a tree`, `5 meters per second squared`."""
_WORDS = re.compile(r"[A-Za-z‖][A-Za-z'‖ .,:;!?-]*")
_ARTICLE = re.compile("^[ ‖]*(?:an?|the) ", re.IGNORECASE)
_AND = re.compile(r"[,;]\s*(?:‖?(?:and|or)\b)?|(?<![A-Za-z])‖?(?:and|or)(?![A-Za-z])|∨")
_UNION = re.compile("∪")
_ROW, _CELL, _COMMA, _RELATION = re.compile("¶"), re.compile("&"), re.compile("[,;]"), re.compile("[<>≤≥=≠∈]")
_MATRIX = re.compile(
    r"\\begin *\{(?:[bBp]?|small)(?:matrix|array)\}(?: *\{[clr|]*\})?((?:(?!\\end).)*?)¶? *\\end *\{\w+\}"
)
_NAME = re.compile(
    r"[‖ ]*(?:[A-Za-zα-ωΑ-Ω]'?(?:_\{\w+\})?(?:\^\{-1\})?(?:\((?:-?[\w, ]+|[a-z]\(\w+\))\))?"
    r"|[A-Z]{2,3}|\|[A-Z]{1,3}\||m?∠ *[A-Z]{1,3}|\([A-Za-zα-ω, ]+\)|\\begin\{\w+\}[A-Za-z¶& ]+\\end\{\w+\})"
)
"""What may stand before an equals sign: a letter with its index, a function, a segment, an angle, a tuple."""
_TERM = r"(?:\d*[a-z]|[A-Z]{1,3})"
_LONG_NAME = re.compile(
    rf"{_NAME.pattern}|{_TERM}(?: *[+-] *{_TERM})+|[a-z]{{2}}|[‖ ]*(?!not)[A-Za-z]{{3,}}"
    rf"|\[[A-Z]{{3,5}}\]|\\overline *\{{[A-Z]{{2}}\}}"
)
"""What else may stand there in an answer: a sum as in `m+n = 5`, a product of letters, a word, an area."""
_OPTION = re.compile(r"[ ‖]*\(([A-J])\)[ ‖]+((?!and|or|[+*/^=<>(,]).*)")
"""Of several choices: the letter and what it stands for."""
_BASED = re.compile(r"\(?(\d\w*)\)?_\{(\w+)\}")
_INDEXED = re.compile(r"[A-Za-z0-9]+_\w+")
_EQUALS = ("=", "==", "===", "∈")


@dataclass(frozen=True, slots=True)
class Quantity:
    """A text without its unit, and the number that it writes, if it is one."""

    text: str
    value: Fraction | None
    percent: bool = False
    """Whether it stood before a percent sign. `value` is the number as written, 50 of `50%`."""
    unit: frozenset[tuple[str, int]] = frozenset()
    """Known units and their powers. Empty where there is no unit, or a word that is not known."""


@lru_cache(maxsize=8192)
def judge(right: str, answer: str, algebra: Algebra = lambda *_: Judgement.UNDECIDED) -> Judgement:
    """Whether `answer` is right, where `right` is the right one. `algebra` decides what takes algebra."""
    if len(answer) > LONGEST_ANSWER:
        return Judgement.WRONG
    wanted, found = bare(right), bare(answer)
    for text, other in ((wanted, found), (found, wanted)):
        if (option := _OPTION.fullmatch(text)) and not _OPTION.fullmatch(other):
            return _compare(option[1 if _squeezed(other) in set("abcdefghij") else 2], other, algebra)
    return _compare(wanted, found, algebra)


def bare(text: str) -> str:
    """An answer in the one spelling, without what people put around it: the last box, dollar signs, a full stop."""
    text = (last_boxed(text) or text).strip()
    while True:
        shorter = re.sub(r"(?<![.\\])\.$", "", text).strip()
        if (around := _AROUND.fullmatch(shorter)) and around[1] not in around[2].replace("\\$", ""):
            shorter = around[2].strip()
        shorter = shorter[match.end() :] if (match := _LEAD.match(shorter)) and match.end() < len(shorter) else shorter
        if shorter == text:
            break
        text = shorter
    text = spelled(text)
    return _THOUSANDS.sub(lambda number: re.sub("[ ']", "", number[0]), text)


def last_boxed(text: str) -> str:
    r"""What the last `\boxed` or `\fbox` holds. Empty if there is none, or it is never closed."""
    boxes = list(BOX.finditer(text))
    return boxed(text, boxes[-1].end()) if boxes else ""


def boxed(text: str, start: int) -> str:
    r"""What a box holds whose command ends at `start`: in balanced braces, or up to the next space."""
    if text[start : start + 1] != "{":
        found = re.match(r"[^\s{}$,;]+", text[start:])
        return found[0].rstrip(".") if found else ""
    depth = 0
    for place in range(start, len(text)):
        depth += (text[place] == "{") - (text[place] == "}")
        if depth == 0:
            return text[start + 1 : place].strip()
    return ""


def read_quantity(text: str, loose: bool = False) -> Quantity:
    """A text (already `bare`) without its unit, and the number that it writes, if it is one.

    `loose`: a letter that may be a unit is one behind any expression, and without a space: `5m`, `2\\sqrt{3} m`.
    """
    if _PERCENT.search(text):
        return Quantity(text, _number(_PERCENT.sub("", text)), percent=True)
    currency: list[str] = []
    money = _MONEY.search(text)
    if money and text[: money.start()].strip() in ("", "-", "+"):
        currency = re.findall(r"[$€£¥₹]|[A-Z]\w+", money[0])[-1:]
        text = f"{text[: money.start()]}{text[money.end() :]}".strip().replace("/", " per ")
    found = _UNIT.search(text)
    if found is None:
        return Quantity(text, _number(text), unit=_dimensions(currency))
    gap, words = found[1], _UNIT_PART.findall(found[2])
    value = _number(text[: found.start()])
    letters = [word for word in words if word[0].isalpha()]
    low = [word.lower() for word in letters]
    spaced = loose or "‖" in text or (gap and value is not None)
    scale = _scale(low)
    if (
        _NO_UNIT & set(low)
        or _NEVER_FIRST & set(letters[:1])
        or any(word.rstrip("s") in _SCALES for word in low[1:])
        or (value is None and any(map(_known, _INNER_UNIT.findall(text[: found.start()]))))
        or (value is None and (scale != 1 or words[0] == "°"))  # cos 60°
        or not all(
            word in _NEVER_FIRST
            or ((_known(word) or (gap and len(word) > 2 and word not in FUNCTIONS)) and (spaced or len(word) > 1))
            for word in letters
        )
    ):
        return Quantity(text, None)
    known = all(_known(word) for word in words if word[0] not in "/^")
    if currency and _known(words[0]) != _known(currency[0]):
        words = currency + words
    unit = _dimensions(words) if known else frozenset[tuple[str, int]]()
    return Quantity(text[: found.start()], None if value is None else value * scale, unit=unit)


def _known(word: str) -> str | None:
    """The unit that a word names, in the singular or the plural."""
    low = word.lower()
    spellings = (word, low, low.removesuffix("s"), low.removesuffix("es")) if len(word) > 1 else (word,)
    return next((_UNITS[spelling] for spelling in spellings if spelling in _UNITS), None)


def _scale(words: list[str]) -> Fraction | int:
    """What the words behind a number multiply it by. `2 thirds` is a fraction, `10 third graders` are ten."""
    first = words[0] if words else ""
    if first.endswith("s") or len(words) == 1:
        return _SCALES.get(first.rstrip("s")) or Fraction(1, _PARTS.get(first.rstrip("s"), 1))
    return _SCALES.get(first, 1)


def _dimensions(words: list[str]) -> frozenset[tuple[str, int]]:
    """The powers of known units: `m/s^2`, `meters per second squared` and `m s^{-2}` are the same."""
    powers: Counter[str] = Counter()
    sign, power, last = 1, 1, ""
    for word in words:
        unit = _known(word) or word
        if unit in ("/", "per"):
            sign = -1
        elif unit in _POWERS:
            power = _POWERS[unit]
        elif unit[0] == "^":
            powers[last] *= int(unit.strip("^ {}"))
        else:
            for last, exponent in _COMPOUND.get(unit, {unit: 1}).items():
                powers[last] += sign * power * exponent
            power = 1
    if len(powers) > 1:
        del powers["deg"]  # of °C
    del powers["unit"]
    return frozenset((unit, power) for unit, power in powers.items() if power)


def _number(text: str) -> Fraction | None:
    text = text.strip(" ‖")
    if sum(map(str.isdigit, text)) > MOST_DIGITS:
        return None
    if text[:1] in ("-", "+"):
        value = _number(text[1:])
        return -value if value is not None and text[0] == "-" else value
    if text[:1] == "(" and closing(text, 0) == len(text) - 1:
        return _number(text[1:-1])
    if mixed := _MIXED.fullmatch(text):
        whole, above, below = (_number(part) for part in mixed.groups() if part)
        return whole + above / below if below and whole is not None and above is not None else None
    if quotient := _QUOTIENT.fullmatch(text):
        above, below = (_number(part) for part in quotient.groups() if part)
        return above / below if below and above is not None else None
    if power := _SCIENTIFIC.fullmatch(text.replace(" *", "*").replace("* ", "*")):
        factor, exponent = _number(power[1] or "1"), int(power[2])
        return factor * Fraction(10) ** exponent if factor is not None and abs(exponent) <= MOST_EXPONENT else None
    decimal = _DECIMAL.fullmatch(text)
    if decimal is None or not any(decimal.groups()):
        return None
    whole_part, decimals, repeating = (part or "" for part in decimal.groups())
    value = Fraction(int(f"0{whole_part}{decimals}".replace(",", "")), 10 ** len(decimals))
    return value + Fraction(int(repeating), 10 ** len(decimals) * (10 ** len(repeating) - 1)) if repeating else value


@dataclass(frozen=True, slots=True)
class _Shape:
    """The outermost structure of a text."""

    kind: str
    """`several`, `union`, `matrix`, `relation`, `one`, or the brackets of a tuple, an interval or a set: `[)`."""
    parts: tuple[str, ...]
    signs: str = ""
    """Of a relation: what stands between its parts. `>` and `≥` are turned round."""


def _shape_of(text: str) -> _Shape:
    text = text.strip(" ‖")
    enclosed = text[:1] in tuple("([{«") and closing(text, 0) == len(text) - 1
    if matrix := _MATRIX.fullmatch(text[1:-1].strip() if enclosed else text):
        return _Shape("matrix", tuple(split_outside(matrix[1], _ROW)))
    for kind, separator in (("several", _AND), ("union", _UNION), ("relation", _RELATION)):
        parts = [part for part in split_outside(text, separator) if part]
        if len(parts) > 1:
            if all(re.match("[xyz] *=", part) for part in parts):
                parts.sort(key=lambda part: part[0])  # as coordinates are
            signs = "".join(sign for sign in text if _RELATION.match(sign)) if kind == "relation" else ""
            if signs and not signs.strip(">≥"):
                parts, signs = parts[::-1], signs[::-1].translate(TURNED)
            return _Shape(kind, tuple(parts), signs)
    if enclosed:
        parts = [part for part in split_outside(text[1:-1], _COMMA) if part]
        kind = "«»" if text[0] == "{" else text[0] + text[-1]
        if kind == "[]" and (";" in text or (len(parts) == 1 and re.search(r"\d +-?\d", text))):
            return _Shape("matrix", tuple(re.sub("[, ]+", "&", row.strip()) for row in text[1:-1].split(";")))
        rows = [_shape_of(part) for part in parts] if kind == "[]" else []
        if rows and all(row.kind == "[]" for row in rows):
            return _Shape("matrix", tuple("&".join(row.parts) for row in rows))
        return _shape_of(parts[0]) if len(parts) == 1 and text[0] in "({" else _Shape(kind, tuple(parts))
    if re.fullmatch(r"(?:\d+[ ‖]*[A-Za-z]+[ ‖]*){2,3}", text) and all(map(_known, re.findall("[A-Za-z]+", text))):
        return _Shape("several", tuple(re.findall(r"\d+[ ‖]*[A-Za-z]+", text)))
    if text.count("±") == 1:
        return _Shape("several", (text.replace("±", "+"), text.replace("±", "-")))
    return _Shape("one", (text,))


def _name_of(text: str) -> str:
    """The letter that `x_1 = 3` names. Empty for other texts."""
    shape = _shape_of(text)
    return shape.parts[0][0] if shape.signs in _EQUALS and _NAME.fullmatch(shape.parts[0]) else ""


def _values(shape: _Shape, names: re.Pattern[str] = _NAME) -> tuple[str, ...]:
    """The sides of an equation that each have to be the answer: 3 in `x = 3`, all in `x = 6/2 = 3`."""
    if shape.signs not in _EQUALS:
        return ()
    parts = shape.parts if names.fullmatch(shape.parts[0]) else shape.parts[::-1]
    return parts[1:] if names.fullmatch(parts[0]) else parts


def _interval(shape: _Shape) -> tuple[str, _Shape]:
    """The name in an inequality and the interval that it describes. Without a name, the shape as it was."""
    parts, signs = shape.parts, shape.signs
    if signs in ("∈", "≠") and _NAME.fullmatch(parts[0]):
        return parts[0], _shape_of(parts[1] if signs == "∈" else f"(-∞,{parts[1]})∪({parts[1]},∞)")
    if len(signs) == 1:
        parts, signs = (("-∞", *parts), f"<{signs}") if _NAME.fullmatch(parts[0]) else ((*parts, "∞"), f"{signs}<")
    if len(signs) == 2 and not signs.strip("<≤") and _NAME.fullmatch(parts[1]):
        brackets = "[("[signs[0] == "<"] + "])"[signs[1] == "<"]
        return parts[1], _Shape(brackets, (parts[0], parts[2]))
    return "", shape


def _compare(right: str, answer: str, algebra: Algebra) -> Judgement:
    if _squeezed(right) == _squeezed(answer):
        return Judgement.RIGHT
    if re.fullmatch("[A-H]{2,}", right):
        answer = re.sub("[ ,‖]|and", "", answer)
    if right[:1] == "(":
        answer = re.sub(r"^[A-Z]'? *(?=\()", "", answer)  # the name of a point
    wanted = read_quantity(right)
    found = read_quantity(answer, loose=not re.search("[A-Za-z]", re.sub(r"\\[a-z]+", "", wanted.text)))
    if wanted.unit and found.unit and wanted.unit != found.unit:
        return Judgement.WRONG
    if wanted.value is not None and found.value is not None:
        part, whole = (wanted.value, found.value) if wanted.percent else (found.value, wanted.value)
        same = part == whole or (wanted.percent != found.percent and part / 100 == whole)
        return Judgement.RIGHT if same else Judgement.WRONG
    right, answer = wanted.text, found.text
    if _squeezed(right) == _squeezed(answer):
        return Judgement.RIGHT
    if (based := _BASED.fullmatch(right)) and _squeezed(based[1]) == _squeezed(answer):
        return Judgement.RIGHT  # the problem states the base
    if all(map(_is_words, (right, answer))) and len({_squeezed(_ARTICLE.sub("", s)) for s in (right, answer)}) == 1:
        return Judgement.RIGHT
    if any(map(_is_words, (right, answer))) or all(map(_INDEXED.fullmatch, map(_squeezed, (right, answer)))):
        return Judgement.WRONG
    if wanted.value is not None and (based := _BASED.fullmatch(answer)) and based[2] != "10":
        return Judgement.WRONG
    one, other = (
        _Shape("one", (side.text,)) if side.value is not None else _shape_of(side.text) for side in (wanted, found)
    )
    if one.kind == other.kind == "relation":
        return _compare_relations(one, other, algebra)
    if values := _values(one):
        return _together(_compare(value, answer, algebra) for value in values)
    if values := _values(other, _LONG_NAME):
        return _together(_compare(right, value, algebra) for value in values)
    return _compare_shapes(_interval(one)[1], _interval(other)[1], algebra)


def _compare_relations(one: _Shape, other: _Shape, algebra: Algebra) -> Judgement:
    (name, span), (other_name, other_span) = _interval(one), _interval(other)
    if name and other_name:
        return _compare_shapes(span, other_span, algebra) if name == other_name else Judgement.WRONG
    if one.signs != other.signs or len(one.parts) != 2:
        return Judgement.WRONG
    if _squeezed(one.parts[0]) == _squeezed(other.parts[0]):
        return _compare(one.parts[1], other.parts[1], algebra)
    wanted, found = (f"({left})-({right})" for left, right in (one.parts, other.parts))
    return algebra(wanted, found, "any" if one.signs in "=≠" else "positive")


def _compare_shapes(one: _Shape, other: _Shape, algebra: Algebra) -> Judgement:
    kinds = {one.kind, other.kind}
    if kinds <= {"one", "matrix"} and "one" in kinds:
        begin, end = "\\begin{pmatrix}", "\\end{pmatrix}"
        texts = (begin + "¶".join(s.parts) + end if s.kind == "matrix" else s.parts[0] for s in (one, other))
        return algebra(next(texts), next(texts), "one")
    if len(one.parts) != len(other.parts) or "relation" in kinds:
        return Judgement.WRONG
    pairs = list(zip(one.parts, other.parts, strict=True))
    if kinds == {"matrix"}:
        rows = [(split_outside(left, _CELL), split_outside(right, _CELL)) for left, right in pairs]
        if any(len(left) != len(right) for left, right in rows):
            return Judgement.WRONG
        pairs = [pair for row in rows for pair in zip(*row, strict=True)]
    elif kinds <= {"several", "«»"} or kinds <= {"several", "union"}:
        names = [{_name_of(part) for part in shape.parts} - {""} for shape in (one, other)]
        if len(names[0]) == len(names[1]) or max(map(len, names)) == 1:
            return _in_any_order(list(one.parts), list(other.parts), algebra)
    elif len(kinds) > 1 and kinds != {"()", "several"}:
        return Judgement.WRONG
    return _together(_compare(left, right, algebra) for left, right in pairs)


def _in_any_order(wanted: list[str], found: list[str], algebra: Algebra) -> Judgement:
    judged = []
    for right in wanted:
        each = [_compare(right, answer, algebra) for answer in found]
        judged.append(min(each, key=(Judgement.RIGHT, Judgement.UNDECIDED, Judgement.WRONG).index))
        if judged[-1] is Judgement.RIGHT:
            del found[each.index(Judgement.RIGHT)]
    return _together(judged)


def _together(judged: Iterable[Judgement]) -> Judgement:
    """Wrong where any part is wrong, right where all are right."""
    each = set(judged)
    return next((one for one in (Judgement.WRONG, Judgement.UNDECIDED) if one in each), Judgement.RIGHT)


def _squeezed(text: str) -> str:
    """A text without spaces, but for one between digits, which parts two numbers."""
    text = re.sub(r"(?<=[\d.,]) +(?=[\d.])", "_", text.replace("‖", ""))
    text = "".join(text.split())
    text = re.sub(r"^\(?(\w+)\)(?=_|$)|_\{(\w+)\}$", lambda match: match[1] or f"_{match[2]}", text)
    words = len(text) == 1 or re.search(r"(?<!\\)\b[A-Za-z]{3}|(?i:^no$)", text) or _INDEXED.fullmatch(text)
    return text.casefold() if words else text


def _is_words(text: str) -> bool:
    """Whether a text is plain language: words, one of them longer than two letters."""
    return bool(_WORDS.fullmatch(text)) and any(len(word) > 2 for word in re.findall("[A-Za-z]+", text))
