"""Exact arithmetic on expressions that an agent writes. Python's own parser reads them, and nothing is evaluated by it.

Every text is read without raising, in a time bounded by its length. A value is an exact fraction. An expression holds
whole numbers in the digits 0 to 9, `+ - * /`, brackets, and a minus before an operand. An equals sign with a number may
follow: the number is not judged. `x`, `X`, `×`, `·` and `∗` are read as `*`, `÷` and `:` as `/`, `−` and `–` as `-`.

Limits: `LONGEST` characters, `MOST_DIGITS` digits per number, and no step whose numerator or denominator exceeds
`LARGEST`.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

LONGEST = 200
MOST_DIGITS = 9
LARGEST = 10**18

SIGN = "sign"
"""Stands among an expression's operations for a minus before a single operand."""

_SPELLINGS = str.maketrans({"x": "*", "X": "*", "×": "*", "·": "*", "∗": "*", "÷": "/", ":": "/", "−": "-", "–": "-"})
_OPERATIONS: dict[type[ast.operator], tuple[str, Callable[[Fraction, Fraction], Fraction]]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.Div: ("/", operator.truediv),
}


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


def read_expression(text: str) -> ReadExpression:
    """Read and evaluate one expression under the rules and the limits above."""
    if len(text) > LONGEST:
        return _faulty(f"the expression has {len(text)} characters, more than {LONGEST}", "too long")
    plain = " ".join(text.translate(_SPELLINGS).split())
    if re.search(r"[^-+*/()= 0-9]", plain):  # never repeated: it may be a token of a chat template
        return _faulty("it holds a character other than 0-9 + - * / ( ) =")
    written, equals, result = plain.partition("=")
    if equals and not re.fullmatch(r" ?-? ?[0-9]+", result):
        return _faulty("what follows the equals sign is no number")
    numbers = re.findall("[0-9]+", written)
    if any(len(number) > MOST_DIGITS for number in numbers):
        return _faulty(f"a number has more than {MOST_DIGITS} digits", "too large")
    operations: set[str] = set()
    try:
        tree = ast.parse(re.sub("[0-9]+", lambda number: str(int(number[0])), written.strip()), mode="eval")
        value = _value(tree.body, operations)
    except SyntaxError:
        return _faulty("it is no arithmetic expression")
    except ZeroDivisionError:
        return _faulty("it divides by zero", "division by zero")
    except OverflowError:
        return _faulty(f"a step gives a number beyond {LARGEST:,}", "too large")
    return ReadExpression(value, tuple(map(int, numbers)), frozenset(operations), written.replace(" ", ""))


def _faulty(clause: str, kind: str = "no expression") -> ReadExpression:
    return ReadExpression(fault=clause, kind=kind)


def _value(node: ast.expr, operations: set[str]) -> Fraction:
    match node:
        case ast.Constant(value=int(number)):
            return Fraction(number)
        case ast.UnaryOp(op=ast.USub()):
            operations.add(SIGN)
            return -_value(node.operand, operations)
        case ast.BinOp() if type(node.op) in _OPERATIONS:
            sign, compute = _OPERATIONS[type(node.op)]
            operations.add(sign)
            value = compute(_value(node.left, operations), _value(node.right, operations))
            if max(abs(value.numerator), value.denominator) > LARGEST:
                raise OverflowError
            return value
    raise SyntaxError
