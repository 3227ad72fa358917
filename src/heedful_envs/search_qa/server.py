"""A retrieval server, as the environment asks it. Two protocols are in use, both as `POST /retrieve`.

- `search_r1`: `{"queries": [..], "topk": 3, "return_scores": true}`, answered by
  `{"result": [[{"document": {"id", "contents", ..}, "score": 1.5}]]}`
- `ragen`: `{"query": "..", "top_k": 3}`, answered by `{"results": [{"id": 1, "content": "..", "score": 1.5}]}`

Search-R1's and verl's servers speak the first, RAGEN's and rLLM's the second. `return_scores` is always true: with
false the published server fails. Scores are not read. A request is repeated until `patience` is over. Then an error is
raised, which ends the episode as an error of the environment, never as an observation or a reward.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal

from heedful.boundary import complain, expecting
from heedful.policies.servers import Call, Client, ForeignAnswer, Limits, ServerUnreachable, parts_of, read_key
from heedful_envs.search_qa.corpora import passage_of
from heedful_envs.search_qa.passages import Passage

Protocol = Literal["search_r1", "ragen"]

PATH = "/retrieve"

_ANSWERS: dict[Protocol, str] = {
    "search_r1": '{"result": [[{"document": {..}}, ..]]} with one list of passages for the one query',
    "ragen": '{"results": [{"content": ..}, ..]} with a list of passages',
}


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

    def search(self, query: str, most: int) -> list[Passage]:
        """The best passages by the server's own order. Raises ServerUnreachable or ServerRefused."""
        body: Mapping[str, Any] = {"query": query, "top_k": most}
        if self._protocol == "search_r1":
            body = {"queries": [query], "topk": most, "return_scores": True}
        try:
            return self._client.ask(Call(PATH, body), lambda tree: passages_in(tree, self._protocol))[:most]
        except ServerUnreachable as error:
            raise ServerUnreachable(
                f"{str(error).rstrip('.')}. Look after the retrieval server that --env.url names, or give it more time "
                "with --env.timeout and --env.patience."
            ) from error


@lru_cache(maxsize=8)
def server_of(url: str, protocol: Protocol, timeout: float, patience: float, key_env: str) -> RetrievalServer:
    """The server at a URL, with one set of connections in a process."""
    return RetrievalServer(url, protocol, timeout, patience, read_key(key_env))


def passages_in(tree: Any, protocol: Protocol) -> list[Passage]:
    """The passages of an answer. Raises ForeignAnswer."""
    with expecting(_ANSWERS[protocol], error=ForeignAnswer):
        if protocol == "search_r1":
            (rows,) = tree["result"]
            documents = [row["document"] for row in rows]
        else:
            documents = list(tree["results"])
        return [passage_of(document, str(rank)) for rank, document in enumerate(documents, 1)]
