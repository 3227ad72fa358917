"""Search in passages of text: their terms, indexes that rank them by BM25, and the files that hold them."""

from heedful.retrieval.passages import Found, Passage, Searcher
from heedful.retrieval.small import SmallIndex
from heedful.retrieval.terms import terms_of

__all__ = ["Found", "Passage", "Searcher", "SmallIndex", "terms_of"]
