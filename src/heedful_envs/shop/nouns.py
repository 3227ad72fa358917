"""The nouns of titles, by spaCy or by a rule. They are found once, when a catalogue is prepared.

WebShop's reward compares nouns that spaCy's model en_core_web_sm finds, and depends on the version of that model. The
rule takes every word but stop words. It agrees on the type of 94% of pairs of real products.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, Literal

from heedful_envs.shop.products import words_of

Way = Literal["spacy", "words"]

MODEL = "en_core_web_sm"

_STOP_WORDS = (
    "a about above after all also am an and any are as at be been before below between both but by can did do does "
    "down during each few for from further get had has have he her here him his how i if in into is it its just me "
    "more most my no nor not of off on once only or other our out over own per same set she so some such than that "
    "the their them then there these they this those through to too under until up us very was we were what when "
    "where which while who why will with without you your"
)
STOP_WORDS = frozenset(_STOP_WORDS.split())


def check_spacy() -> None:
    """Raise ModuleNotFoundError with a sentence where spaCy or its model is not installed."""
    if not all(map(importlib.util.find_spec, ("spacy", MODEL))):
        raise ModuleNotFoundError(
            f"Nouns as in WebShop take spaCy and its model {MODEL}, which are not both installed: pip install "
            f'"heedful[webshop]", then python -m spacy download {MODEL}. Or prepare with --nouns words.'
        )


def nouns_of(titles: Iterable[str], way: Way) -> Iterator[tuple[str, ...]]:
    """The nouns of each title in lower case, with repeats."""
    if way == "words":
        for title in titles:
            yield tuple(word for word in words_of(title) if word not in STOP_WORDS)
        return
    for parsed in _model().pipe(titles, batch_size=256):
        yield tuple(token.text.lower() for token in parsed if token.pos_ in ("NOUN", "PROPN"))


@lru_cache(maxsize=1)
def _model() -> Any:
    check_spacy()
    import spacy

    return spacy.load(MODEL, disable=["ner", "parser", "lemmatizer"])
