"""A retrieval server, as the environment asks it. Two protocols are in use, both as `POST /retrieve`.

- `search_r1`: `{"queries": [..], "topk": 3, "return_scores": true}`, answered by
  `{"result": [[{"document": {"id", "contents", ..}, "score": 1.5}]]}`
- `ragen`: `{"query": "..", "top_k": 3}`, answered by `{"results": [{"id": 1, "content": "..", "score": 1.5}]}`

Search-R1's and verl's servers speak the first, RAGEN's and rLLM's the second. `return_scores` is always true: with
false the published server fails. A request is repeated until `patience` is over. Then an error is raised, which ends
the episode as an error of the environment, never as an observation or a reward.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal

from heedful.boundary import complain
from heedful.policies.servers import Call, Client, ForeignAnswer, Limits, parts_of, read_key
from heedful_envs.search_qa.retrieval import Found
from heedful_envs.search_qa.retrieval.corpora import NoPassage, passage_of

Protocol = Literal["search_r1", "ragen"]

PATH = "/retrieve"


def check_url(url: str) -> None:
    """Raise ValueError for what is no URL of a server."""
    parts_of(
        url,
        "a retrieval server, such as http://127.0.0.1:8000",
        "Put the key into an environment variable, and name the variable with --env.key-env.",
    )


class RetrievalServer:
    """One server. Safe for several threads."""

    def __init__(self, url: str, protocol: Protocol, timeout: float, patience: float, key: str) -> None:
        base = url.rstrip("/").removesuffix(PATH)
        limits = Limits(connections=64, timeout=timeout, patience=patience)
        self._client = Client([base], limits, key=key, note=complain)
        self._protocol = protocol

    def search(self, query: str, most: int) -> list[Found]:
        """The best passages by the server's own order. Raises ServerUnreachable or ServerRefused."""
        if self._protocol == "search_r1":
            body: Mapping[str, Any] = {"queries": [query], "topk": most, "return_scores": True}
            return self._client.ask(Call(PATH, body), read_search_r1)[:most]
        return self._client.ask(Call(PATH, {"query": query, "top_k": most}), read_ragen)[:most]


@lru_cache(maxsize=8)
def server_of(url: str, protocol: Protocol, timeout: float, patience: float, key_env: str) -> RetrievalServer:
    """The server at a URL, with one set of connections in a process."""
    return RetrievalServer(url, protocol, timeout, patience, read_key(key_env))


def read_search_r1(tree: Any) -> list[Found]:
    """The passages for the one query. Raises ForeignAnswer."""
    result = tree.get("result") if isinstance(tree, Mapping) else None
    if not isinstance(result, list) or len(result) != 1 or not isinstance(result[0], list):
        raise ForeignAnswer('expected {"result": [[...]]} with one list of passages for the one query')
    return [
        _found(each.get("document"), each.get("score"), rank) if isinstance(each, Mapping) else _found(None, None, rank)
        for rank, each in enumerate(result[0], 1)
    ]


def read_ragen(tree: Any) -> list[Found]:
    """The passages for the query. Raises ForeignAnswer."""
    results = tree.get("results") if isinstance(tree, Mapping) else None
    if not isinstance(results, list):
        raise ForeignAnswer('expected {"results": [...]} with a list of passages')
    return [
        _found(each, each.get("score") if isinstance(each, Mapping) else None, rank)
        for rank, each in enumerate(results, 1)
    ]


def _found(document: Any, score: Any, rank: int) -> Found:
    if not isinstance(document, Mapping):
        raise ForeignAnswer(f"passage {rank} is no object")
    if isinstance(score, bool) or not isinstance(score, int | float) or not abs(score) <= sys.float_info.max:
        raise ForeignAnswer(f"the score of passage {rank} is no finite number")
    try:
        return Found(passage_of(document, str(rank)), float(score))
    except NoPassage as error:
        raise ForeignAnswer(f"passage {rank} is one {error}") from None
