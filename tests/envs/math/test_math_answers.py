"""The reading of answers: right in every notation, wrong in every notation, and what takes algebra."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from heedful.envs.math.answers import LONGEST_ANSWER, Judgement, bare, judge, last_boxed, read_quantity
from heedful.envs.math.verifier import equal

PAIRS: list[dict[str, Any]] = [
    json.loads(line) for line in Path(__file__).with_name("pairs.jsonl").read_text(encoding="utf-8").splitlines()
]


@pytest.mark.parametrize("every", [16, pytest.param(1, marks=pytest.mark.proof)])
def test_an_answer_is_judged_by_what_it_says_and_not_by_its_notation(
    every: int, record_property: Callable[[str, object], None]
) -> None:
    pytest.importorskip("latex2sympy2_extended", reason='pip install "heedful[math]"')
    for_algebra = [row for row in PAIRS if judge(row["gold"], row["answer"]) is Judgement.UNDECIDED]
    pairs = for_algebra[::every]
    record_property("cases", len(pairs))
    judged = [(row, judged_with_algebra(row["gold"], row["answer"])) for row in pairs]
    assert [row for row, found in judged if (found is Judgement.RIGHT) != row["right"]] == []


def judged_with_algebra(right: str, answer: str) -> Judgement:
    """As in the verifier's process, where whatever the parser raises leaves the question open."""
    try:
        return judge(right, answer, equal)
    except Exception:
        return Judgement.UNDECIDED


def test_what_is_decided_without_algebra_is_decided_rightly() -> None:
    decided = [(row, judge(row["gold"], row["answer"])) for row in PAIRS]
    taken = [(row, found) for row, found in decided if found is not Judgement.UNDECIDED]
    assert len(taken) > len(PAIRS) / 2
    assert [row for row, found in taken if (found is Judgement.RIGHT) != row["right"]] == []


def test_the_last_box_counts_with_its_braces_balanced() -> None:
    assert last_boxed(r"\boxed{1} and \boxed{\frac{1}{2}}") == r"\frac{1}{2}"
    assert last_boxed(r"\boxed{1} and \boxed{2") == ""
    assert last_boxed(r"\boxed 14.") == "14"
    assert last_boxed(r"\fbox{3}") == "3"


def test_what_is_written_is_read_back_exactly() -> None:
    rng = random.Random(0)
    for _ in range(500):
        above, below = rng.randint(-(10 ** rng.randint(1, 12)), 10**12), rng.choice((2, 4, 5, 8, 10, 3, 7))
        value = Fraction(above, below)
        forms = [f"{above}/{below}", f"\\frac{{{above}}}{{{below}}}"]
        if value.denominator in (1, 2, 4, 5, 8, 10):
            digits = str(abs(value) * 1000).rjust(4, "0")
            forms.append(("-" if value < 0 else "") + f"{int(digits[:-3]):,}.{digits[-3:]}")
        assert [read_quantity(bare(form)).value for form in forms] == [value] * len(forms)


def test_no_text_makes_the_reader_raise_or_dawdle() -> None:
    rng = random.Random(1)
    pieces = (
        *("1", "9", ",", ".", "/", "-", "$", "%", "\\frac", "\\boxed{", "{", "}", " ", "x", "=", "\\text{", "cm", "("),
        *")[&²½√±<∪_^e",
        *("\\\\", "\\begin{pmatrix}", "\\end{pmatrix}"),
    )
    for _ in range(500):
        judge("7/2", "".join(rng.choices(pieces, k=rng.randint(0, 60))))
    for piece in (*pieces, "answer is ", "a ", "1 ", "x=", "~", "\\,", "cm/", "(1,"):
        begun = time.process_time()
        judge("7", (piece * LONGEST_ANSWER)[: LONGEST_ANSWER - 1] + "5")
        judge("(7, x)", (piece * LONGEST_ANSWER)[:LONGEST_ANSWER])
        assert judge("7", piece * LONGEST_ANSWER * 1000) is Judgement.WRONG
        assert time.process_time() - begun < 2
