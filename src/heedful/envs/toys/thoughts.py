"""The thoughts in English of demonstrations of Bandit and Chain."""

from __future__ import annotations

import random
from collections.abc import Sequence

from heedful.envs.common.english import phrase, sentence

_LONGEST_ROW = 10
"""Payouts of an arm that a thought repeats. Of a longer row it tells the sum alone."""

_SIGNS = {"+": "plus", "-": "minus", "*": "times"}


def bandit_thought(rows: Sequence[tuple[str, Sequence[int]]], choice: str, words: random.Random) -> str:
    """The payouts of both arms (`rows`: name and payouts) and their sums, then the arm that is pulled."""
    opening = words.choice(
        (
            "I add up what each arm paid.",
            "Let me count the payouts.",
            "First I count how often each arm paid.",
            "I compare the earlier payouts of both arms.",
            "The better arm is the one that paid more often.",
        )
    )
    if len(rows[0][1]) > _LONGEST_ROW:
        form = words.choice(("{name} paid {sum} of {all} times", "{name} has {sum} payouts in {all} pulls"))
    else:
        form = words.choice(
            (
                "{name} paid {row}, which is {sum} in total",
                "{name} paid {row}, that makes {sum}",
                "{name} has {row}, a sum of {sum}",
                "{name} shows {row}, {sum} in all",
            )
        )
    counts = [form.format(name=name, row=" ".join(map(str, paid)), sum=sum(paid), all=len(paid)) for name, paid in rows]
    (worse, fewer), (better, more) = sorted(rows, key=lambda row: sum(row[1]))
    compared = words.choice(
        (
            f"{better} has the higher sum.",
            f"{better} paid more often than {worse}.",
            f"{sum(more)} is more than {sum(fewer)}.",
            f"{better} is ahead with {sum(more)} against {sum(fewer)}.",
            f"{worse} paid less often than {better}.",
        )
    )
    plan = phrase(words, ("I pull", "I will pull", "I choose", "My choice is", "Now I pull", "My pull:"))
    return f"{opening} {words.choice(('; ', '. ', ', and ')).join(counts)}. {compared} {plan} {choice}."


def chain_thought(
    start: int, modulus: int, operations: Sequence[str], states: Sequence[int], words: random.Random
) -> str:
    """Where the chain begins, the number after each operation (`states`), and the last one."""
    head = words.choice(
        (
            f"I begin with {start} and work modulo {modulus}.",
            f"The row begins with {start}, and I keep the remainders on division by {modulus}.",
            f"Starting from {start}, I take each result modulo {modulus}.",
            f"The first number is {start}, and all results are modulo {modulus}.",
            f"I carry {start} through the row and keep remainders modulo {modulus}.",
        )
    )
    verb = words.choice(("gives", "leaves", "makes", "is"))
    in_words = words.random() < 0.5
    steps = []
    for before, operation, after in zip((start, *states), operations, states, strict=False):
        done = f"{_SIGNS[operation[0]]} {operation[1]}" if in_words else f"{before}{operation}"
        steps.append(f"{done} {verb} {after}")
    tail = phrase(
        words,
        ("The last number is", "The answer is", "I end at", "The last blank is", "I answer", "The chain ends at"),
    )
    return f"{head} {sentence(words.choice((', ', ', then ', '; ')).join(steps))}. {tail} {states[-1]}."
