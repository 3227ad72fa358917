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
_SIGNS = r"""* cdot times ast, / div, < lt, > gt, ≤ le leq leqslant, ≥ ge geq geqslant, ≠ ne neq, ≡ equiv,
≈ approx simeq, ∅ emptyset varnothing, ∈ in, ∪ cup, ∩ cap, \setminus backslash, ∞ infty, ± pm, ° circ degree, ∠ angle,
△ triangle, ∨ lor vee, | lvert rvert vert, ( langle, ) rangle, [ lbrack, ] rbrack, « lbrace, » rbrace, : colon mid,
¶ cr, \frac dfrac tfrac cfrac"""
_COMMANDS |= {command: signs.split()[0] for signs in _SIGNS.split(",") for command in signs.split()[1:]}
_COMMANDS |= dict.fromkeys(("left", "right", "big", "Big", "bigl", "bigr", "displaystyle", "limits"), "")
_COMMANDS |= {"quad": " ", "qquad": " "}
_CHARACTERS = str.maketrans(
    dict(zip("−–—﹣‐‑×⋅·∙∗÷∕⁄º˚’′⩽⩾≦≧ϕµ∶‖", "------*****///°°''≤≥≤≥φμ: ", strict=True))
    | {"∛": "\\sqrt[3]", "∜": "\\sqrt[4]", "√": "\\sqrt", "ℝ": "\\mathbb R"}
    | {"⌊": "\\lfloor ", "⌋": "\\rfloor ", "⌈": "\\lceil ", "⌉": "\\rceil "}
)
TURNED = str.maketrans("<>≤≥", "><≥≤")
"""Relations read from the right."""


def _in_ascii(run: str) -> str:
    return unicodedata.normalize("NFKC", run).replace("\N{MINUS SIGN}", "-").replace("\N{FRACTION SLASH}", "/")


_REWRITES: list[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]] = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        ("[¼-¾⅐-⅞]|[⁰¹²³⁴-⁹]+/[₀-₉]+", lambda m: "\\frac{{{}}}{{{}}}".format(*_in_ascii(m[0]).split("/"))),
        ("[⁰¹²³⁴-⁹⁺⁻ⁿ]+", lambda match: f"^{{{_in_ascii(match[0])}}}"),
        ("[₀-₉]+", lambda match: f"_{{{_in_ascii(match[0])}}}"),
        ("(?s).+", lambda match: unicodedata.normalize("NFKC", match[0])),
        (r"(?:\\\\(?:\[[^\]]*\])? *)+", "¶"),
        (r"^ *\{ *\} *$", "∅"),
        (r"\\!|\{\}", ""),
        (r"\{([,:])\}", r"\1"),
        (r"\\(?:SI|qty) *(\{[^{}]*\})\{((?:[^{}]|\{[^{}]*\})*)\}", lambda m: m[1] + " ‖" + m[2].replace("\\", " ")),
        (r"\\(?:SI|qty|num|ang) *\{([^{}]*)\}", r"\1"),
        (r"^(?:[a-z] *\\in)? *\\math(?:bb|bf) *\{?R\}?$", "(-∞,∞)"),
        (r"^(?:(?:np\.)?array|Matrix)\((.*)\)$", r"\1"),
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
        (r"\{([^{}]*)\\over(?![A-Za-z])([^{}]*)\}", r"\\frac{\1}{\2}"),
        (r"\{([^{}]*)\\choose(?![A-Za-z])([^{}]*)\}", r"\\binom{\1}{\2}"),
        (r"(?<![A-Za-z\\])(?:infinity|inf|oo)(?![A-Za-z])", "∞"),
        (r"(?<![A-Za-z\\])a(sin|cos|tan)(?![A-Za-z])", r"\\arc\1"),
        (r"(?<![A-Za-z\\])abs\(([^()]*)\)", r"|\1|"),
        ("(?i)^[ ‖]*(?:all |the )*real numbers *$", "(-∞,∞)"),
        (r"(?<=\d)[ ‖]+to[ ‖]+(?=\d)", ":"),
        (r"^(\w) *([≥>]) *([^<>≤≥]+?)[, ‖]*and *(?=\1 *[<≤])", lambda m: f"{m[3]}{m[2].translate(TURNED)}"),
        (r"^\|(\w)\| *([<≤])(.*)$", r"-(\3) \2 \1 \2 \3"),
        (r"^\|(\w)\| *([>≥])(.*)$", r"-(\3) \2 \1 ∨ \1 \2 \3"),
        (r"(?<=[)\]]) *U *(?=[(\[])", "∪"),
        (r"\]( *[^\s,;\[\]()][^\[\]()]*[,;][^\[\]()]*[\[\]])", r"(\1"),  # ]0, 1[ as (0, 1)
        (r"([\[(] *[^\s,;\[\]()][^\[\]()]*[,;][^\[\]()]*)\[", r"\1)"),
        (r"^[«{] *[a-zA-Z](?: *∈[ ‖]*(?:\\mathbb *)?R)? *[|:](.*)[»}]$", r"\1"),
        (r"(?:\\mathbb *|(?<![A-Za-z]))R *(?:\\setminus|\\|-)? *[«{]([^«»{},]*)[»}]", r"(-∞,\1)∪(\1,∞)"),
        (r"(\\sqrt|\^) *(\\frac\{\w+\}\{\w+\})", r"\1{\2}"),
        (r"\\(?:vec|overrightarrow) *\{?([A-Za-z])\}?", r"\1"),
        (r"(?<![A-Za-z\\])(pi|theta)(?![A-Za-z])", lambda match: GREEK[match[1]]),
        (rf"(?<![A-Za-z\\])(?=(?:sqrt|{'|'.join(FUNCTIONS)})(?![A-Za-z]))", r"\\"),
        (r"(?<=\d) *[xX] *(?=10\^)", "*"),
        (r"^0([box])(\w+)$", lambda m: m[2] + {"b": "_{2}", "o": "_{8}", "x": "_{16}"}[m[1]]),
        (r"(?<=\d)\.?(?:\\[lc]?dots|\.\.\.)$", "…"),
        (r"(\.\d*?)(?:(\d)\2\2+|(\d\d+?)\3+)…$", r"\1\\overline{\2\3}"),
        (r"\\dot *\{?(\d)\}?(\d*)\\dot *\{?(\d)\}?", r"\\overline{\1\2\3}"),
        (r"(\.\d*)(?:\((\d+)\)|\\(?:dot|bar|overline) *(?:\{(\d+)\}|(\d)))", r"\1\\overline{\2\3\4}"),
        (r"\^ *(-?\d+)", r"^{\1}"),
        (r"(\\sqrt(?:\[\d\])?) *(\d+|[A-Za-zπ])", r"\1{\2}"),
        (r"(?<=\\log_)(\d)(?= )", r"{\1}"),
        ("« *»", "∅"),
        (r"\\(frac|binom) *(\w) *(?=[\w{\\])", r"\\\1{\2}"),
        (r"(\\(?:frac|binom)\{(?:[^{}]|\{[^{}]*\})*\}) *(\w)", r"\1{\2}"),
        (r"_\{?[ ‖]*(\w+) *\}?|[ ‖(]*(?:in )?base[ ‖]+(\w+) *\)?$", lambda m: f"_{{{m[1] or m[2]}}}"),
        (r"(?<=\d)[ ‖]*[eE][ ‖]*(?=[+-]?\d)", "e"),
        ("μ *‖", "μ"),
        (r"(?<=[\d)}π]) *≈ *[\d.,]+$", ""),
        ("≈", "="),
        ("(?i)^[ ‖]*(?:no (?:real )?solutions?|(?:the )?empty set) *$", "∅"),
        (rf"(?i)(?:^[ ‖]*|(?<=_\{{))({'|'.join(NUMERALS)})(?![\w-])", lambda m: str(NUMERALS.index(m[1].lower()))),
        (r"(?i)(?<=\d)[ ‖]*([ap])\.?m\b\.?", lambda match: f" {match[1].lower()}m"),
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
