"""The terms of a text: what an index stores and what a query asks for.

Lower-cased runs of letters and digits, of every script. Chinese and Japanese characters are a term each. There is no
stemming and no list of stop words. Everything else separates, so no text of an agent can be an invalid query.
"""

from __future__ import annotations

import re

LONGEST_TERM = 64
"""Characters. A longer run is cut into several terms."""

MOST_QUERIED = 64
"""Different terms of a query that count: the first ones."""

_ASCII_TERM = re.compile(f"[a-z0-9]{{1,{LONGEST_TERM}}}")
_IDEOGRAM = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_TERM = re.compile(rf"[{_IDEOGRAM}]|[^\W_{_IDEOGRAM}]{{1,{LONGEST_TERM}}}")


def terms_of(text: str) -> list[str]:
    """The terms of a text in their order."""
    return (_ASCII_TERM if text.isascii() else _TERM).findall(text.lower())


def queried(text: str) -> list[str]:
    """The different terms of a query, in alphabetical order, so that sums of scores are the same each time."""
    return sorted(list(dict.fromkeys(terms_of(text)))[:MOST_QUERIED])
