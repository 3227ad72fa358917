"""Search in passages of text: what is searched, the indexes that rank it by BM25, and the files that hold it."""

from heedful_envs.search_qa.retrieval.passages import Found, Passage, Searcher, SmallIndex, terms_of

__all__ = ["Found", "Passage", "Searcher", "SmallIndex", "terms_of"]
