"""The terms of a text: what an index stores and what a query asks for.

Lower-cased runs of letters and digits, of every script. Chinese and Japanese characters are a term each. There is no
stemming and no list of stop words. Everything else separates, so no text of an agent can be an invalid query.
"""

from __future__ import annotations

import re

LONGEST_TERM = 64
"""Characters. Of a longer one the first ones count."""

MOST_QUERIED = 64
"""Different terms of a query that count: the first ones."""

_TERM = re.compile(
    r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]|[^\W_\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]+"
)


def terms_of(text: str) -> list[str]:
    """The terms of a text in their order."""
    return [term[:LONGEST_TERM] for term in _TERM.findall(text.lower())]


def queried(text: str) -> list[str]:
    """The different terms of a query, in alphabetical order, so that sums of scores are the same each time."""
    return sorted(list(dict.fromkeys(terms_of(text)))[:MOST_QUERIED])
