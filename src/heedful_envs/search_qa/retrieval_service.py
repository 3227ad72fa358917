"""The requests of a retrieval server, in both protocols that are in use. No network.

- GET /health: `status`, `passages`
- POST /retrieve `{"queries": [..], "topk": 3, "return_scores": true}`: `result`, a list of passages for each query
- POST /retrieve `{"query": "..", "top_k": 5}`: `results`, `num_results`

The first form of /retrieve is Search-R1's and verl's, the second RAGEN's and rLLM's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from heedful.serving import Refusal
from heedful_envs.search_qa.passages import Passage, PassageIndex

MOST_RESULTS = 100
"""Passages for one query: a short request for all of a large index would fill the memory."""


class RetrievalService:
    """Answers searches in one index. As thread-safe as the index."""

    def __init__(self, index: PassageIndex) -> None:
        self._index = index

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        """HTTP status and answer. `body`: the request's JSON, or `{}` if there is none. Raises Refusal."""
        route = path.split("?")[0].rstrip("/")
        if (method, route) == ("GET", "/health"):
            return 200, {"status": "ok", "passages": len(self._index)}
        if (method, route) != ("POST", "/retrieve"):
            raise Refusal(404, f"There is nothing at {method} {path[:60]}; known are GET /health, POST /retrieve.")
        try:
            return 200, self._many(body) if "queries" in body else self._one(body)
        except (KeyError, TypeError, AttributeError) as error:
            found = f"no {error}" if isinstance(error, KeyError) else str(error)
            raise Refusal(400, f"Expected a body as docs/search.md has it, found {found}.") from error

    def _many(self, body: Mapping[str, Any]) -> Any:
        result = []
        for query in body["queries"]:
            row = []
            for passage, score in self._scored(query, body.get("topk") or 3):
                told = {"id": passage.id, "contents": passage.contents, "title": passage.title, "text": passage.text}
                row.append({"document": told, "score": score} if body.get("return_scores") else told)
            result.append(row)
        return {"result": result}

    def _one(self, body: Mapping[str, Any]) -> Any:
        found = enumerate(self._scored(body["query"], body.get("top_k") or 5), 1)
        results = [{"id": rank, "content": passage.contents, "score": score} for rank, (passage, score) in found]
        return {"results": results, "num_results": len(results)}

    def _scored(self, query: str, most: int) -> list[tuple[Passage, float]]:
        if most > MOST_RESULTS:
            raise Refusal(400, f"Expected at most {MOST_RESULTS} passages a query, found {most}.")
        return self._index.scored(query, most)
