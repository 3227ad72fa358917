r"""How an answer is compared with the right ones: exact match and F1, as the script of HotpotQA computes them.

Both compare normalised texts (SQuAD's rule): lower case, without the 32 ASCII punctuation characters, without the words
a, an and the, and with single spaces, in this order. So `Jean-Luc` is one word `jeanluc`, and `A.` is an article.

The published scripts compare typography letter by letter: a curly quote, another dash than `-` or an accent in two
characters makes an answer wrong. With `typography` these are read as their plain forms first.

F1 compares bags of words. It is 0 where the texts differ and either is yes, no or noanswer. Of several right answers
the best one counts, for each score by itself.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_WHOLE = ("yes", "no", "noanswer")
"""Answers that are right or wrong as a whole."""
_QUOTES = "‚„′″‴´ʹʺʻʼ"
"""Quotation marks and apostrophes that Unicode counts among other kinds."""


def normalised(text: str, typography: bool = False) -> str:
    """A text as both scores read it. It may be empty. `typography`: in plain forms."""
    if typography and not text.isascii():
        text = "".join(map(_plain, unicodedata.normalize("NFC", text)))
    plain = text.lower().translate(_NO_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", plain).split())


@lru_cache(maxsize=4096)
def _plain(letter: str) -> str:
    """The plain form of a typographic character: quotes, dashes, ligatures, marks without width. Others stay."""
    kind = unicodedata.category(letter)
    if kind == "Pd" or letter == "\N{MINUS SIGN}":
        return "-"
    if kind in ("Pi", "Pf") or letter in _QUOTES:
        return "'"
    if kind == "Cf":  # soft hyphens, joiners
        return ""
    # The ellipsis, ligatures such as `ﬁ`, and ASCII of full width. Not superscripts: 10² is not 102.
    typeset = letter == "…" or "ﬀ" <= letter <= "ﬆ" or "！" <= letter <= "～"
    return unicodedata.normalize("NFKC", letter) if typeset else letter


def exact_match(answer: str, golds: Sequence[str], typography: bool = False) -> bool:
    """Whether an answer equals one of the right ones after normalisation."""
    said = normalised(answer, typography)
    return any(said == normalised(gold, typography) for gold in golds)


def f1(answer: str, golds: Sequence[str], typography: bool = False) -> float:
    """The best F1 of an answer over the right ones, in [0, 1]."""
    said = normalised(answer, typography)
    return max((_f1(said, normalised(gold, typography)) for gold in golds), default=0.0)


def _f1(said: str, gold: str) -> float:
    if said != gold and (said in _WHOLE or gold in _WHOLE):
        return 0.0
    words, wanted = said.split(), gold.split()
    common = sum((Counter(words) & Counter(wanted)).values())
    return 2 * common / (len(words) + len(wanted)) if common else 0.0
