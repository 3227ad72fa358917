"""Exact arithmetic on expressions that an agent writes: an own parser, never `eval`.

Every text is read without raising, in a time bounded by its length. A value is an exact fraction.

Grammar, with spaces anywhere but within a number:

    line    = sum [ "=" [ "-" ] number ]
    sum     = product { ( "+" | "-" ) product }
    product = factor { ( "*" | "/" ) factor }
    factor  = number | "(" sum ")" | "-" factor

`x`, `X`, `×`, `·` and `∗` are read as `*`, `÷` and `:` as `/`, `−` and `–` as `-`. Numbers are whole and written in the
digits 0 to 9. Those of other scripts are refused. There are no powers, names or decimal points. What follows an equals
sign must be a number, and is not judged: the value is that of the expression before it.

Limits: `LONGEST` characters, `MOST_DIGITS` digits per number, `DEEPEST` levels of brackets and signs, and no step whose
numerator or denominator exceeds `LARGEST`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

LONGEST = 200
MOST_DIGITS = 9
DEEPEST = 24
LARGEST = 10**18

SIGN = "sign"
"""Stands among an expression's operations for a minus before a single operand."""

_SPELLINGS = str.maketrans({"x": "*", "X": "*", "×": "*", "·": "*", "∗": "*", "÷": "/", ":": "/", "−": "-", "–": "-"})
_PIECE = re.compile(r"[0-9]+|[-+*/()=]")
_SPACES = " \t\r\n"
_UNQUOTED = "<>|[]{}"
"""What tags and special tokens of chat templates are made of: never repeated to the agent."""


@dataclass(frozen=True, slots=True)
class ReadExpression:
    """An expression with its value, or what is wrong with the text."""

    value: Fraction | None = None
    """`None` where there is a fault."""
    numbers: tuple[int, ...] = ()
    """The numbers of the expression, in the order in which they are written."""
    operations: frozenset[str] = frozenset()
    """Which of + - * / occur, and `sign` for a minus before a single operand."""
    text: str = ""
    """The expression in plain spelling, without spaces and without what follows an equals sign."""
    fault: str = ""
    """A clause for the agent, such as `it divides by zero`. Empty if there is no fault."""
    kind: str = ""
    """The fault in one or two words, for terse observations. Empty if there is no fault."""


class _Fault(ValueError):
    """Why a text cannot be read: a clause, and the same in one or two words."""

    def __init__(self, clause: str, kind: str) -> None:
        super().__init__(clause)
        self.clause = clause
        self.kind = kind


def read_expression(text: str) -> ReadExpression:
    """Read and evaluate one expression under the grammar and the limits above."""
    try:
        pieces = _pieces(text)
        reader = _Reader(pieces)
        value = reader.sum(0)
        written = "".join(pieces[: reader.position])
        reader.finish()
    except _Fault as fault:
        return ReadExpression(fault=fault.clause, kind=fault.kind)
    return ReadExpression(value, tuple(reader.numbers), frozenset(reader.operations), written)


def spell(value: Fraction) -> str:
    """A value as it is shown to the agent: `7`, or `7/2`."""
    return str(value.numerator) if value.denominator == 1 else f"{value.numerator}/{value.denominator}"


def _pieces(text: str) -> list[str]:
    if len(text) > LONGEST:
        raise _Fault(f"the expression has {len(text)} characters, more than {LONGEST}", "too long")
    plain = text.translate(_SPELLINGS)
    pieces: list[str] = []
    position = 0
    while position < len(plain):
        if plain[position] in _SPACES:
            position += 1
            continue
        found = _PIECE.match(plain, position)
        if found is None:
            raise _Fault(f"{_name(plain[position])} is no part of an expression", "no expression")
        piece = found[0]
        if len(piece) > MOST_DIGITS:
            raise _Fault(f"a number has {len(piece)} digits, more than {MOST_DIGITS}", "too large")
        pieces.append(piece)
        position = found.end()
    if not pieces:
        raise _Fault("there is no expression", "no expression")
    return pieces


def _name(character: str) -> str:
    quotable = character.isascii() and character.isprintable() and character not in _UNQUOTED
    return f'"{character}"' if quotable else "a character other than 0-9 + - * / ( ) ="


class _Reader:
    """Recursive descent over the pieces of one text. Evaluates on the way."""

    __slots__ = ("numbers", "operations", "pieces", "position")

    def __init__(self, pieces: list[str]) -> None:
        self.pieces = pieces
        self.position = 0
        self.numbers: list[int] = []
        self.operations: set[str] = set()

    @property
    def next(self) -> str:
        """The next piece. Empty at the end."""
        return self.pieces[self.position] if self.position < len(self.pieces) else ""

    def take(self) -> str:
        piece = self.next
        self.position += 1
        return piece

    def sum(self, depth: int) -> Fraction:
        value = self.product(depth)
        while self.next in ("+", "-"):
            operation = self.operation()
            other = self.product(depth)
            value = _bounded(value + other if operation == "+" else value - other)
        return value

    def product(self, depth: int) -> Fraction:
        value = self.factor(depth)
        while self.next in ("*", "/"):
            operation = self.operation()
            other = self.factor(depth)
            if operation == "/" and other == 0:
                raise _Fault("it divides by zero", "division by zero")
            value = _bounded(value * other if operation == "*" else value / other)
        return value

    def factor(self, depth: int) -> Fraction:
        if depth > DEEPEST:
            raise _Fault(f"brackets and signs are nested more than {DEEPEST} deep", "too deep")
        if self.next == "-":
            self.take()
            self.operations.add(SIGN)
            return -self.factor(depth + 1)
        if self.next == "(":
            self.take()
            value = self.sum(depth + 1)
            if self.take() != ")":
                raise _Fault("a bracket is not closed", "no expression")
            return value
        if not self.next.isdigit():
            raise _Fault(f"a number is missing {_where(self.next)}", "no expression")
        self.numbers.append(int(self.take()))
        return Fraction(self.numbers[-1])

    def operation(self) -> str:
        piece = self.take()
        self.operations.add(piece)
        return piece

    def finish(self) -> None:
        """Refuse what follows the expression, unless it is an equals sign and a number."""
        if not self.next:
            return
        if self.next != "=":
            raise _Fault(f"an operation is missing {_where(self.next)}", "no expression")
        rest = self.pieces[self.position + 1 :]
        if len(rest[rest[:1] == ["-"] :]) != 1 or not rest[-1].isdigit():
            raise _Fault("what follows the equals sign is no number", "no expression")


def _where(piece: str) -> str:
    return f'before "{piece}"' if piece else "at the end"


def _bounded(value: Fraction) -> Fraction:
    if abs(value.numerator) > LARGEST or value.denominator > LARGEST:
        raise _Fault(f"a step gives a number beyond {LARGEST:,}", "too large")
    return value
