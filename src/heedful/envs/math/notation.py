r"""One spelling for all notations of an answer: LaTeX, plain text and Unicode become the same text.

In it, a sign is one character (`π`, `∞`, `≤`, `∪`, `±`), a product is `*`, a quotient `/`, an exponent in digits
`^{2}`. `«` and `»` are the brackets of a set, `¶` ends a row of a matrix, and `‖` precedes what was text within LaTeX.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

_LETTERS = """alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau phi chi psi
omega"""
GREEK = dict(zip(_LETTERS.split(), "αβγδεζηθικλμνξπρστφχψω", strict=True))
_NAMES = "arcsin arccos arctan sinh cosh tanh sin cos tan cot sec csc log ln exp"
FUNCTIONS = tuple(_NAMES.split())
NUMERALS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")

_COMMANDS = GREEK | {name.capitalize(): letter.upper() for name, letter in GREEK.items()}
_COMMANDS |= {f"var{name}": letter for name, letter in GREEK.items()}
_COMMANDS |= {
    command: sign
    for sign, commands in {
        "*": "cdot times ast",
        "/": "div",
        "≤": "le leq leqslant",
        "≥": "ge geq geqslant",
        "≠": "ne neq",
        "∅": "emptyset varnothing",
        "\\frac": "dfrac tfrac cfrac",
        "|": "lvert rvert vert",
        " ": "quad qquad",
        "": "left right big Big bigl bigr displaystyle limits",
        "<": "lt",
        ">": "gt",
        "∞": "infty",
        "±": "pm",
        "∈": "in",
        "∪": "cup",
        "∩": "cap",
        "°": "circ degree",
        "(": "langle",
        ")": "rangle",
        "«": "lbrace",
        "»": "rbrace",
        "¶": "cr",
        "≡": "equiv",
        "∠": "angle",
        "≈": "approx simeq",
    }.items()
    for command in commands.split()
}
_CHARACTERS = str.maketrans(
    dict(zip("−–—﹣‐‑×⋅·∙∗÷∕⁄º˚’′⩽⩾ϕµ‖", "------*****///°°''≤≥φμ ", strict=True))
    | {"∛": "\\sqrt[3]", "√": "\\sqrt", "⌊": "\\lfloor ", "⌋": "\\rfloor ", "⌈": "\\lceil ", "⌉": "\\rceil "}
)


def _in_ascii(run: str) -> str:
    return unicodedata.normalize("NFKC", run).replace("\N{MINUS SIGN}", "-").replace("\N{FRACTION SLASH}", "/")


_REWRITES: list[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]] = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        ("[¼-¾⅐-⅞]", lambda match: "\\frac{{{}}}{{{}}}".format(*_in_ascii(match[0]).split("/"))),
        ("[⁰¹²³⁴-⁹⁺⁻ⁿ]+", lambda match: f"^{{{_in_ascii(match[0])}}}"),
        ("[₀-₉]+", lambda match: f"_{{{_in_ascii(match[0])}}}"),
        ("(?s).+", lambda match: unicodedata.normalize("NFKC", match[0])),
        (r"\\\\(?:\[[^\]]*\])?", "¶"),
        (r"\\!|\{\}", ""),
        (r"\{,\}", ","),
        (r"\\[,;:> ]|~|\s", " "),
        (r"\\([$%])", r"\1"),
        (r"\\\{", "«"),
        (r"\\\}", "»"),
        (r"\\(?:text|math(?:rm|bf|it|bb)|boldsymbol|mbox)[a-z]{0,2} *\{((?:[^{}]|\{[^{}]*\})*)\}", r" ‖\1 "),
        (r"\\frac *\{ *‖([^{}]*)\}\{ *‖([^{}]*)\}", r" ‖\1/\2"),
        (r"\\pmod *\{?(\w+)\}?", r"(mod \1)"),
        (r"\\([A-Za-z]+)", lambda match: _COMMANDS.get(match[1], match[0])),
        (r"\^ *(?:\{ *° *\}|°)", "°"),
        ("<=", "≤"),
        (">=", "≥"),
        ("!=", "≠"),
        (r"\*\*", "^"),
        (r"\{([^{}]*)\\over\b([^{}]*)\}", r"\\frac{\1}{\2}"),
        (r"(?<![A-Za-z\\])(?:infinity|inf|oo)(?![A-Za-z])", "∞"),
        (r"(?<![A-Za-z\\])(pi|theta)(?![A-Za-z])", lambda match: GREEK[match[1]]),
        (rf"(?<![A-Za-z\\])(?=(?:sqrt|{'|'.join(FUNCTIONS)})(?![A-Za-z]))", r"\\"),
        (r"(?<=\d) *[xX] *(?=10\^)", "*"),
        (r"\^ *(-?\d+)", r"^{\1}"),
        (r"(\\sqrt(?:\[\d\])?) *(\d+|[A-Za-zπ])", r"\1{\2}"),
        (r"(?<=\\log_)(\d)(?= )", r"{\1}"),
        ("« *»", "∅"),
        (r"\\frac *(\w) *(?=[\w{\\])", r"\\frac{\1}"),
        (r"(\\frac\{[^{}]*\}) *(\w)", r"\1{\2}"),
        (r"_\{?[ ‖]*(\w+) *\}?|[ ‖]*\(?[ ‖]*base[ ‖]+(\w+) *\)?$", lambda match: f"_{{{match[1] or match[2]}}}"),
        (r"(?<=\d)[ ‖]*[eE][ ‖]*(?=[+-]?\d)", "e"),
        ("μ *‖", "μ"),
        (r"(?<=[\d)}π]) *≈ *[\d.,]+$", ""),
        ("≈", "="),
        ("(?i)^[ ‖]*(?:no (?:real )?solutions?|(?:the )?empty set) *$", "∅"),
        (rf"(?:^|(?<=_\{{))({'|'.join(NUMERALS)})(?![\w-])", lambda match: str(NUMERALS.index(match[1]))),
        (r"(?i)(?<=\d) *([ap])\.?m\b\.?", lambda match: f" {match[1].lower()}m"),
    )
]
_BRACKETED = re.compile(r"(\\sqrt(?:\[\d\])?|\^) *\(")


def spelled(text: str) -> str:
    """An answer in the one spelling."""
    if "\\begin" not in text:  # outside a matrix, two backslashes are one that was escaped
        text = re.sub(r"\\\\(?=[A-Za-z])", r"\\", text)
    text = text.translate(_CHARACTERS)
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text)
    while found := _BRACKETED.search(text):
        end = closing(text, found.end() - 1)
        if end < 0:
            break
        text = f"{text[: found.start()]}{found[1]}{{{text[found.end() : end]}}}{text[end + 1 :]}"
    return " ".join(text.split())


def closing(text: str, opening: int) -> int:
    """The place of the bracket that closes the one at `opening`, whatever their kinds. -1 if there is none."""
    depth = 0
    for place in range(opening, len(text)):
        depth += (text[place] in "([{«") - (text[place] in ")]}»")
        if depth == 0:
            return place
    return -1


def split_outside(text: str, separator: re.Pattern[str]) -> list[str]:
    """The parts of a text between the separators that no bracket encloses."""
    parts, begin, depth, place = [], 0, 0, 0
    while place < len(text):
        depth += (text[place] in "([{«") - (text[place] in ")]}»")
        found = separator.match(text, place) if depth == 0 else None
        if found:
            parts.append(text[begin:place].strip())
            begin = place = found.end()
        else:
            place += 1
    return [*parts, text[begin:].strip()]
