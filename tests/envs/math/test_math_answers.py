"""Exact reading of answers: what counts as the same number, what as words, and what takes algebra."""

from __future__ import annotations

import random
import time
from fractions import Fraction

import pytest

from heedful.envs.math.answers import (
    LONGEST_ANSWER,
    MOST_DIGITS,
    Judgement,
    Number,
    bare,
    judge,
    last_boxed,
    read_number,
)

RIGHT, WRONG, UNREADABLE, UNDECIDED = Judgement.RIGHT, Judgement.WRONG, Judgement.UNREADABLE, Judgement.UNDECIDED


@pytest.mark.parametrize(
    ("right", "answer"),
    [
        *(("42", "42"), ("42", " 42.0 "), ("42", "+42"), ("42", "042"), ("-42", "−42"), ("1234", "1,234")),
        *(("1234", "1{,}234"), ("1,234,567", "1234567"), ("1/2", "0.5"), ("1/2", ".5"), ("\\frac{1}{2}", "2/4")),
        *(("\\frac12", "0.50"), ("-\\frac{1}{2}", "-1/2"), ("\\frac{-1}{2}", "-0.5"), ("3/2", "1 1/2")),
        *(("3/2", "1\\frac{1}{2}"), ("\\dfrac{3}{2}", "1.5"), ("50", "50%"), ("0.5", "50\\%"), ("50%", "50 percent")),
        *(("7", "7 apples"), ("7", "$7"), ("7", "\\$7.00"), ("-7", "-$7"), ("-7", "$-7"), ("7", "7 miles per hour")),
        *(("7", "7 cm^2"), ("7", "7\\text{ cm}"), ("30", "30^\\circ"), ("30", "30°"), ("7000000", "7 million")),
        *(("24", "2 dozen"), ("7", "\\boxed{7}"), ("7", "so \\boxed{6}, no, \\boxed{ 7 }"), ("7", "\\(7\\)")),
        *(("7", "**7**"), ("7", "$$7$$"), ("7", "x = 7"), ("x=7", "7"), ("7", "The answer is 7."), ("7", "Answer: 7")),
        *(("Monday", "monday"), ("\\text{Evelyn}", "Evelyn."), ("(A)", "A"), ("2\\sqrt{3}", "$2 \\sqrt{3}$")),
        *(("(1,2)", "(1, 2)"), ("x^2", "x^2"), ("1000", "1\\,000"), ("1234567.5", "1 234 567.5"), ("x_1", "x _ 1")),
        *(
            ("2/3", "2 thirds"),
            ("0.3", "3 tenths of a mile"),
            ("10", "10 third graders"),
            ("5000000000000", "5 trillion"),
        ),
    ],
)
def test_a_right_answer_is_right_however_it_is_written(right: str, answer: str) -> None:
    assert judge(right, answer) is RIGHT


@pytest.mark.parametrize(
    ("right", "answer"),
    [
        *(
            ("42", "24"),
            ("42", "-42"),
            ("42", "4.2"),
            ("0.1", "0.1000000000000000055511151231257827"),
            ("7", "7 million"),
        ),
        *(("1/3", "0.333333333333"), ("7", "70%"), ("50%", "51%"), ("Monday", "Tuesday"), ("Monday", "7")),
        *(("11/2", "1 1/2"), ("1 1/2", "11/2"), ("11/2", "1\\ \\frac{1}{2}"), ("5", "5 trillion"), ("2", "2 thirds")),
    ],
)
def test_a_wrong_answer_is_wrong_to_the_last_digit(right: str, answer: str) -> None:
    assert judge(right, answer) is WRONG


@pytest.mark.parametrize("answer", ["banana", "I do not know.", "one hundred", "No idea, sorry!"])
def test_words_are_unreadable_where_a_number_is_asked_for(answer: str) -> None:
    assert judge("42", answer) is UNREADABLE
    assert judge("2\\sqrt{3}", answer) is UNREADABLE


@pytest.mark.parametrize(
    "answer",
    [
        *(
            "3+4",
            "7x",
            "7 x",
            "7 or 8",
            "7, 8",
            "7 and a half",
            "1/0",
            "1 1/0",
            "\\frac{7}{0}",
            "\\sqrt{49}",
            "7!",
            "²",
        ),
        *(
            "٧",
            "7²",
            "",
            ".",
            "-",
            "/",
            "7/",
            "{}",
            "\\frac{}{}",
            "1e3",
            "0x7",
            "1_000",
            "9" * (MOST_DIGITS + 1),
            "12,34",
        ),
        *("7 per", "1/2/3", "--7", "7 thousand million", "7 factorial", "0.7 repeating", "7 halves"),
    ],
)
def test_what_is_no_numeral_is_left_undecided(answer: str) -> None:
    if answer == "7 per":
        assert judge("7", answer) is RIGHT  # a unit, as far as a reader can tell
    else:
        assert judge("7", answer) is UNDECIDED


@pytest.mark.parametrize(
    ("right", "answer"),
    [
        ("12", "1 2"),
        ("12", "1~2"),
        ("1.5", "1. 5"),
        ("(12,3)", "(1 2,3)"),
        ("1/23", "\\frac{1}{2}3"),
        ("x^12", "x^1 2"),
    ],
)
def test_a_space_parts_two_numbers(right: str, answer: str) -> None:
    assert judge(right, answer) is UNDECIDED


def test_a_percentage_is_its_number_and_its_hundredth() -> None:
    half = Number(Fraction(50), percent=True)
    assert half.equals(Number(Fraction(50)))
    assert Number(Fraction(1, 2)).equals(half)
    assert not half.equals(Number(Fraction(5)))
    assert not half.equals(Number(Fraction(1, 2), percent=True))


def test_the_last_box_counts_with_its_braces_balanced() -> None:
    assert last_boxed(r"\boxed{1} and \boxed{\frac{1}{2}}") == r"\frac{1}{2}"
    assert last_boxed(r"\boxed{1} and \boxed{2") == ""
    assert last_boxed(r"\boxed 5") == ""


def test_what_is_written_is_read_back_exactly() -> None:
    rng = random.Random(0)
    for _ in range(2000):
        above, below = rng.randint(-(10 ** rng.randint(1, 12)), 10**12), rng.choice((2, 4, 5, 8, 10, 3, 7))
        value = Fraction(above, below)
        forms = [f"{above}/{below}", f"\\frac{{{above}}}{{{below}}}"]
        if value.denominator in (1, 2, 4, 5, 8, 10):
            scaled = abs(value) * 1000
            digits = str(scaled.numerator // scaled.denominator).rjust(4, "0")
            assert scaled.denominator == 1
            forms.append(("-" if value < 0 else "") + f"{int(digits[:-3]):,}.{digits[-3:]}")
        for form in forms:
            found = read_number(bare(form))
            assert found is not None, form
            assert found.value == value, form


def test_no_text_makes_the_reader_raise_or_dawdle() -> None:
    rng = random.Random(1)
    pieces = (
        "1",
        "9",
        ",",
        ".",
        "/",
        "-",
        "$",
        "%",
        "\\frac",
        "\\boxed{",
        "{",
        "}",
        " ",
        "x",
        "=",
        "\\text{",
        "cm",
        "(",
        ")",
    )
    for _ in range(3000):
        judge("7/2", "".join(rng.choices(pieces, k=rng.randint(0, 60))))
    for piece in (*pieces, "answer is ", "a ", "1 ", "x=", "~", "\\,"):
        judge("7", (piece * 200)[:200])
        begun = time.process_time()
        judge("7", (piece * LONGEST_ANSWER)[: LONGEST_ANSWER - 1] + "5")
        assert judge("7", piece * LONGEST_ANSWER * 1000) is Judgement.UNREADABLE
        assert time.process_time() - begun < 2
