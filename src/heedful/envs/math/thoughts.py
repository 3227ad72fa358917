"""The thoughts in English of demonstrations of Math."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

from heedful.envs.common.english import listed, phrase, sentence
from heedful.envs.math.word_problems import WorkedStep

_SIGNS = {"+": "plus", "-": "minus", "*": "times", "/": "divided by"}

_MOST_IN_WORDS = 2
"""Steps of a solution that is told without signs. A longer one has to be short in each step."""


def solved_thought(question: str, steps: Sequence[WorkedStep], words: random.Random) -> str:
    """The numbers of the problem, what it asks, the steps, and the number that the last one gives."""
    numbers = listed(re.findall(r"\d+", question))
    given = phrase(
        words,
        ("The problem gives", "The numbers in the text are", "I am given", "I read the numbers", "I have the numbers"),
    )
    asked = phrase(
        words,
        ("It asks:", "The question is:", "I have to find out:", "The task asks:", "I need to answer:"),
    )
    forms = ["{left}{sign}{right}={result}", "{left}{sign}{right} is {result}", "{left}{sign}{right} gives {result}"]
    if len(steps) <= _MOST_IN_WORDS:
        forms += ["{left} {word} {right} is {result}", "{left} {word} {right} gives {result}"]
    form = words.choice(forms)
    told = [
        form.format(left=step.left, sign=step.sign, word=_SIGNS[step.sign], right=step.right, result=step.result)
        for step in steps
    ]
    joint = words.choice((", then ", ". Then ", "; next "))
    first = words.choice(("", "step by step: ", "first ", "I work it out: "))
    answer = phrase(words, ("The answer is", "My answer is", "I answer", "I end with", "The result is"))
    asks = question[question.rfind(". ") + 2 :] if ". " in question else question
    return f"{given} {numbers}. {asked} {asks} {sentence(first + joint.join(told))}. {answer} {steps[-1].result}."


def guess_thought(guess: int, words: random.Random) -> str:
    """An answer that no way leads to."""
    return phrase(
        words,
        (
            "I have not worked this problem out",
            "I do not know how to solve this",
            "I did not find a way to solve this",
        ),
        ("and do not want to leave it open.", "but any answer may be tried.", "and still have to say something."),
        ("I guess", "My guess is", "I say", "I try"),
        (f"{guess}.",),
    )
