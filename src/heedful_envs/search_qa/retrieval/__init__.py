"""Search in passages of text: their terms, indexes that rank them by BM25, and the files that hold them."""

from heedful_envs.search_qa.retrieval.passages import Found, Passage, Searcher
from heedful_envs.search_qa.retrieval.small import SmallIndex
from heedful_envs.search_qa.retrieval.terms import terms_of

__all__ = ["Found", "Passage", "Searcher", "SmallIndex", "terms_of"]
