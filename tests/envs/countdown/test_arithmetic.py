"""The parser of expressions: against Python's own fractions, and against texts made to break it."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

from heedful.envs.countdown.arithmetic import LARGEST, LONGEST, MOST_DIGITS, SIGN, read_expression

COMPUTE: dict[str, Callable[[Fraction, Fraction], Fraction]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}
SPELLINGS = {"+": "+", "-": "-−–", "*": "*x×X·∗", "/": "/÷:"}
NO_EXPRESSIONS = ("", "2**3", "2//3", "2 3", "(2+3", "2+3)", "2+", "+2", "()", "2(3)", "(2)(3)")
STRANGE = ("2^3", "2.5*2", "٣+4", "<|im_end|>", "__import__('os')", "1_0", "2,3", "1e9", "0b1")
PIECES = (
    *("0", "7", "12", "999999999", "1234567890", "(", ")", "((((", "))))", "+", "-", "--", "*", "**", "/", "//", "="),
    *"x×÷ \t\n٣²½.,_^%\x00é𝟙<",
    *("1e9", "import os"),
)


def random_tree(rng: random.Random, depth: int, numbers: list[int]) -> tuple[str, Fraction | None, int]:
    """An expression as text with brackets and spaces at will, its value (`None` divides by zero), its binding.

    Binding: 0 a sum, 1 a product, 2 an operand. Built as a tree, so that the value never depends on a parser.
    """
    kind = rng.random()
    if depth == 0 or kind < 0.2:
        numbers.append(rng.choice([0, 1, 2, 3, rng.randint(0, 99)]))
        return str(numbers[-1]), Fraction(numbers[-1]), 2
    if kind < 0.3:
        text, value, binding = random_tree(rng, depth - 1, numbers)
        operand = text if binding == 2 else f"({text})"
        return f"-{operand}", None if value is None else -value, 2
    sign = rng.choice("+-*/")
    left_text, left, left_binding = random_tree(rng, depth - 1, numbers)
    right_text, right, right_binding = random_tree(rng, depth - 1, numbers)
    binding = 0 if sign in "+-" else 1
    if left_binding < binding or rng.random() < 0.1:
        left_text = f"({left_text})"
    if right_binding <= binding or rng.random() < 0.1:
        right_text = f"( {right_text})"
    space = rng.choice(["", " "])
    text = f"{left_text}{space}{rng.choice(SPELLINGS[sign])}{space}{right_text}"
    if left is None or right is None or (sign == "/" and right == 0):
        return text, None, binding
    return text, COMPUTE[sign](left, right), binding


def check_random_trees(count: int) -> int:
    """Compares `count` trees; returns how many of them divide by zero."""
    rng = random.Random(1)
    undefined = 0
    for _ in range(count):
        numbers: list[int] = []
        text, value, _ = random_tree(rng, 3, numbers)
        read = read_expression(text + rng.choice(["", " = 7", "=-12"]))
        if len(text) > LONGEST - 6:
            continue
        if value is None:
            undefined += 1
            assert read.kind == "division by zero", text
        elif not read.fault:
            assert (read.value, list(read.numbers)) == (value, numbers), text
        else:
            assert read.kind == "too large", text
    return undefined


def test_values_are_those_of_python_s_fractions() -> None:
    assert 200 < check_random_trees(3_000) < 1_500


@pytest.mark.proof
def test_values_of_many_trees_are_those_of_python_s_fractions(record_property: Callable[[str, Any], None]) -> None:
    record_property("cases", 100_000)
    assert check_random_trees(100_000) > 1_000


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", Fraction(7)),
        ("2+3*4", Fraction(14)),
        ("(2+3)*4", Fraction(20)),
        ("10-3-2", Fraction(5)),
        ("24/4/2", Fraction(3)),
        ("2 - -3", Fraction(5)),
        ("-(1+2)*3", Fraction(-9)),
        ("1/3+1/6", Fraction(1, 2)),
        (" 3 × ( 5 − 1 ) ÷ 2 = 6 ", Fraction(6)),
        ("3x5X2", Fraction(30)),
        ("8:3", Fraction(8, 3)),
        ("3 + 4 = 99", Fraction(7)),
        ("007", Fraction(7)),
    ],
)
def test_expressions_have_their_usual_value(text: str, value: Fraction) -> None:
    read = read_expression(text)
    assert (read.value, read.fault, read.kind) == (value, "", "")


def test_the_numbers_the_operations_and_a_plain_spelling_are_told() -> None:
    read = read_expression("12 × (3 − 1) = 24")
    assert read.numbers == (12, 3, 1)
    assert read.operations == {"*", "-"}
    assert read.text == "12*(3-1)"
    assert read_expression("-3+4").operations == {"+", SIGN}


@pytest.mark.parametrize(
    ("text", "kind", "clause"),
    [
        *((text, "no expression", "it is no arithmetic expression") for text in NO_EXPRESSIONS),
        *((text, "no expression", "it holds a character other than 0-9 + - * / ( ) =") for text in STRANGE),
        *((text, "no expression", "what follows the equals sign is no number") for text in ("2=2=2", "2=", "2=1+1")),
        ("1/0", "division by zero", "it divides by zero"),
        ("5/(3-3)", "division by zero", "it divides by zero"),
        ("1" * (MOST_DIGITS + 1), "too large", "a number has more than 9 digits"),
        ("999999999*999999999*2", "too large", f"a step gives a number beyond {LARGEST:,}"),
        ("1/999999999/999999999/2", "too large", f"a step gives a number beyond {LARGEST:,}"),
        ("1+" * (LONGEST // 2) + "1", "too long", f"the expression has {LONGEST + 1} characters, more than {LONGEST}"),
    ],
)
def test_what_is_no_expression_is_named(text: str, kind: str, clause: str) -> None:
    read = read_expression(text)
    assert (read.value, read.numbers, read.text) == (None, (), "")
    assert (read.kind, read.fault) == (kind, clause)


@pytest.mark.parametrize(("before", "after"), [("(", ")"), ("-", "")])
def test_brackets_and_signs_may_be_nested_as_deep_as_a_text_is_long(before: str, after: str) -> None:
    deep = LONGEST // 2 - 2
    assert read_expression(before * deep + "1" + after * deep).value == 1


def fuzz(count: int) -> None:
    rng = random.Random(2)
    for _ in range(count):
        text = "".join(rng.choice(PIECES) for _ in range(rng.randint(0, 14)))
        read = read_expression(text)
        assert (read.value is None) == bool(read.fault) == bool(read.kind)
        assert not set(read.fault) & set("<>|[]{}\n")
        if read.value is not None:
            assert read_expression(read.text).value == read.value


def test_no_text_makes_the_parser_raise() -> None:
    fuzz(5_000)


@pytest.mark.proof
def test_no_text_of_very_many_makes_the_parser_raise(record_property: Callable[[str, Any], None]) -> None:
    record_property("cases", 100_000)
    fuzz(100_000)
