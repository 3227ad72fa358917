r"""How an answer is compared with the right ones: exact match and F1, as the script of HotpotQA computes them.

Both compare normalised texts (SQuAD's rule): lower case, without the 32 ASCII punctuation characters, without the words
a, an and the, and with single spaces, in this order. So `Jean-Luc` is one word `jeanluc`, and `A.` is an article.
Curly quotes, other dashes and accents stay, and a text without spaces is one word.

F1 compares bags of words. It is 0 where the texts differ and either is yes, no or noanswer. Of several right answers
the best one counts, for each score by itself.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_WHOLE = ("yes", "no", "noanswer")
"""Answers that are right or wrong as a whole."""


def normalised(text: str) -> str:
    """A text as both scores read it. It may be empty."""
    plain = text.lower().translate(_NO_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", plain).split())


def exact_match(answer: str, golds: Sequence[str]) -> bool:
    """Whether an answer equals one of the right ones after normalisation."""
    said = normalised(answer)
    return any(said == normalised(gold) for gold in golds)


def f1(answer: str, golds: Sequence[str]) -> float:
    """The best F1 of an answer over the right ones, in [0, 1]."""
    return max((_f1(normalised(answer), normalised(gold)) for gold in golds), default=0.0)


def _f1(said: str, gold: str) -> float:
    if said != gold and (said in _WHOLE or gold in _WHOLE):
        return 0.0
    words, wanted = said.split(), gold.split()
    common = sum((Counter(words) & Counter(wanted)).values())
    if not common:
        return 0.0
    precision, recall = common / len(words), common / len(wanted)
    return 2 * precision * recall / (precision + recall)
