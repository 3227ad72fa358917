"""reasoning-gym's datasets and scorers, made safe to train against: pure, and kept from running answers.

An entry is a function of dataset, configuration and number. A reply that answers nothing earns nothing. No answer is
evaluated as a program.

Some scorers hand the answer to Python's `eval`, or to sympy, which does the same. Their answers are handed on only
if they are plain literals, or arithmetic of a bounded size. Some pay a little for any answer at all (0.01 for an empty
one): nothing below full marks counts, unless partial credit is asked for, and then only what exceeds the
most that is paid for replies that answer nothing.
"""

from __future__ import annotations

import ast
import copy
import dataclasses
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from heedful.envs.common import Raised
from heedful_envs.adapters.global_random import OwnRandom
from heedful_envs.adapters.library import (
    FULL,
    above_floor,
    answer_of_library,
    load_library,
    made_by_library,
    read_options,
)

ENV = "reasoning_gym"

ENTRIES = 2**20
"""Entries of a dataset that tasks are drawn from. They are made one by one, when they are asked for."""

FEWER_ENTRIES: Mapping[str, int] = {"acre": 2_000, "word_ladder": 500}
"""Datasets that make all their entries at once, or refuse that many."""

REFUSED: Mapping[str, str] = {
    "boxnet": "it has no right answer to compare with, and its scorer fails on replies that are not plans",
    "composite": "it mixes other datasets. Name one of them",
    "game_of_life_halting": "its scorer pays in full for every reply that is not empty",
    "propositional_logic": "its scorer does not accept all of its own right answers",
    "puzzle24": "its scorer accepts terms of other numbers than the question's, and cuts fractions off (24.5 is 24)",
    "rush_hour": "it has no right answer to show that its scorer is honest",
}
"""Datasets that cannot be played honestly -> why. `benchmarks/reasoning_gym_scorers.py` measures all of them."""

EXAMPLES: Mapping[str, str] = {
    "graph_color": "possible_answer",
    "propositional_logic": "example_answer",
    "rubiks_cube": "example_correct_answer",
}
"""Datasets with many right answers -> where an entry's metadata holds one."""

HASH_DEPENDENT = frozenset({"isomorphic_strings", "knight_swap", "polynomial_multiplication", "ransom_note"})
"""Datasets whose entries depend on the order of sets of text, which Python draws again in every process: they are the
same entries everywhere only if PYTHONHASHSEED is 0."""

DRAWN_AGAIN = frozenset({"sokoban"})
"""Datasets with entries in which a reply that answers nothing is right (the level is solved already): another one is
drawn in their place."""

WITHOUT_AN_ANSWER = ("", "None", "I do not know.", "xyzzy plugh", "?")
"""Replies that answer nothing. What a scorer pays for them, or for the question repeated, is its floor."""

EVALUATED_LITERALS = frozenset({"binary_matrix", "n_queens", "spiral_matrix", "string_insertion"})
"""Scorers that hand the answer to `eval`."""

EVALUATED_ARITHMETIC = frozenset({"countdown"})
"""Scorers that hand the answer to sympy, and expect numbers and the four operations."""

EVALUATED_TERMS = frozenset({"intermediate_integration", "polynomial_multiplication", "simple_integration"})
"""Scorers that hand the answer to sympy, and expect a term with variables."""


@dataclass(frozen=True, slots=True)
class Score:
    """What an answer is worth."""

    value: float
    """In [0, 1]. 1 = right."""
    remark: str = ""
    """Why an answer was not handed to the scorer, or that the scorer could not read it."""


def known_datasets() -> list[str]:
    """The names of all datasets that can be played."""
    return sorted(set(load_library(ENV, "factory").DATASETS) - REFUSED.keys())


@lru_cache(maxsize=65_536)
def number_of(name: str, config: str, drawn: int) -> int:
    """The number of the entry for a drawn number."""
    entries = FEWER_ENTRIES.get(name, ENTRIES)
    number = drawn % entries
    while name in DRAWN_AGAIN and floor_of(name, config, entry_of(name, config, number)) >= FULL:
        number = (number + 1) % entries
    return number


@lru_cache(maxsize=8_192)
def entry_of(name: str, config: str, number: int) -> dict[str, Any]:
    """One entry: `question`, `answer`, `metadata`. Do not change it.

    Raises ValueError for settings that the library takes and cannot use.
    """
    dataset = _dataset(name, config)
    with OwnRandom(number, name):
        return made_by_library(f"{ENV}: an entry of {name}", repr(config), lambda: dict(dataset[number]))


def right_answer(name: str, entry: Mapping[str, Any]) -> str:
    """A right answer of an entry."""
    answer = entry["answer"]
    if answer is None and name in EXAMPLES:
        answer = entry["metadata"][EXAMPLES[name]]
        if not isinstance(answer, str):
            answer = json.dumps(answer)
    return str(answer)


def score(name: str, config: str, entry: Mapping[str, Any], answer: str, partial: bool) -> Score:
    """What an answer is worth: 1 if the scorer pays in full, else 0, or with `partial` what exceeds the floor."""
    if answer == entry["answer"]:
        return Score(1.0)
    problem = not_handed_on(name, answer)
    if problem:
        return Score(0.0, problem)
    paid = raw_score(name, config, entry, answer)
    if paid is None:
        return Score(0.0, "the scorer could not read it")
    if paid >= FULL:
        return Score(1.0)
    if not partial or paid <= 0.0:
        return Score(0.0)
    return Score(above_floor(paid, floor_of(name, config, entry)))


def raw_score(name: str, config: str, entry: Mapping[str, Any], answer: str) -> float | None:
    """What the library's scorer pays, untouched. `None` if it raised."""
    dataset = _dataset(name, config)
    paid = answer_of_library(
        OwnRandom(0, name, "score"), lambda: float(dataset.score_answer(answer, copy.deepcopy(dict(entry))))
    )
    return None if isinstance(paid, Raised) else paid.value


def floor_of(name: str, config: str, entry: Mapping[str, Any]) -> float:
    """The most that the scorer pays for a reply that answers nothing."""
    garbage = [*WITHOUT_AN_ANSWER, str(entry["question"])]
    paid = [raw_score(name, config, entry, text) for text in garbage if not not_handed_on(name, text)]
    return max([0.0, *(each for each in paid if each is not None)])


def not_handed_on(name: str, answer: str) -> str:
    """Why an answer must not reach this dataset's scorer, which would evaluate it. Empty if it may."""
    bracketed = any(sign in answer for sign in "([{")
    if name in EVALUATED_LITERALS and bracketed and not _is_literal(answer):
        return "an answer with brackets must be a plain list here"
    if name in EVALUATED_LITERALS and not bracketed and not re.fullmatch(r"[\w\s,-]*", answer):
        return "the answer has signs that are not expected here"
    arithmetic = "**" not in answer and re.fullmatch(r"(?:\d{1,9}(?![\d])|[-+*/()\s.])*", answer)
    if name in EVALUATED_ARITHMETIC and not arithmetic:
        return "the answer must be made of numbers, + - * / and brackets here"
    if name in EVALUATED_TERMS and not _is_term(answer):
        return "the answer must be a term of numbers, variables and common functions here"
    return ""


_WORDS = frozenset(
    "sin cos tan sec csc cot asin acos atan sinh cosh tanh asinh acosh atanh exp log ln sqrt pi Abs erf".split()  # noqa: SIM905
)
_TOKEN = re.compile(r"\s+|\d{1,9}(?:\.\d{1,9})?(?![\d.])|[A-Za-z]+(?![\w.])|\*\*|[-+*/(),]")
_POWER = re.compile(
    r"\*\*\s*(?:-?\d{1,2}|\(-?\d{1,2}(?:/\d{1,2})?\)|[A-Za-z]|\([-+*/\sA-Za-z0-9]{1,30}\))(?![\d.])(?!\s*\*\*)"
)


def _is_literal(answer: str) -> bool:
    try:
        ast.literal_eval(answer.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return False
    return True


def _is_term(answer: str) -> bool:
    """Whether an answer is a term that sympy reads in no time: no names but known ones, no towers of powers."""
    end = 0
    while end < len(answer):
        token = _TOKEN.match(answer, end)
        if token is None:
            return False
        word = token[0]
        if word.isalpha() and len(word) > 1 and word not in _WORDS:
            return False
        end = token.end()
    powers = answer.count("**")
    of_brackets = re.findall(r"\)\s*\*\*(.{0,4})", answer)
    bounded = len(of_brackets) <= 3 and not any(re.match(r"[\s(-]*\d\d", exponent) for exponent in of_brackets)
    return powers == len(_POWER.findall(answer)) and bounded


@lru_cache(maxsize=8)
def _dataset(name: str, config: str) -> Any:
    """A dataset with these settings. Raises ValueError, a sentence, for an unknown one and for unknown settings."""
    table = load_library(ENV, "factory").DATASETS
    if name not in table:
        raise ValueError(f"reasoning_gym: the library has no dataset {name!r}; it has {', '.join(known_datasets())}.")
    if name in HASH_DEPENDENT and os.environ.get("PYTHONHASHSEED") != "0":
        raise ValueError(
            f"reasoning_gym: the entries of {name} follow Python's hash seed, which differs from process to process, "
            "so that its tasks and splits would. Set PYTHONHASHSEED=0 in the environment before heedful is started."
        )
    settings = read_options(ENV, "config", config)
    known = [field.name for field in dataclasses.fields(table[name][1]) if field.name not in ("seed", "size")]
    unknown = [setting for setting in settings if setting not in known]
    if unknown:
        raise ValueError(
            f"reasoning_gym: {name} has no setting {', '.join(unknown)} (the seed and the size are heedful's); it has "
            f"{', '.join(known) or 'none'}. Leave --env.config empty for the library's defaults."
        )
    create = partial(load_library(ENV).create_dataset, name, seed=0, size=FEWER_ENTRIES.get(name, ENTRIES))
    with OwnRandom(0, name, "dataset"):
        return made_by_library(f"{ENV}: {name}", repr(config), lambda: create(**settings))
