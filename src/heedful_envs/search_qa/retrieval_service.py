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
from heedful_envs.search_qa.passages import PassageIndex

MOST_QUERIES = 512
MOST_RESULTS = 100
USUAL_TOPK, USUAL_TOP_K = 3, 5

LARGEST_ANSWER = 32 << 20
"""Characters of passages in one answer. A short request could ask for all of a large index many times."""


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
        if not isinstance(body, Mapping) or ("queries" in body) == ("query" in body):
            raise Refusal(400, 'Expected a JSON object with "queries" (Search-R1) or "query" (RAGEN), not both.')
        return 200, self._many(body) if "queries" in body else self._one(body)

    def _many(self, body: Mapping[str, Any]) -> Any:
        queries, most = body["queries"], _most(body, "topk", USUAL_TOPK)
        if not isinstance(queries, list) or not all(isinstance(query, str) for query in queries):
            raise Refusal(400, 'Expected "queries" as a list of texts.')
        if len(queries) > MOST_QUERIES:
            raise Refusal(400, f"Expected at most {MOST_QUERIES} queries in one request, found {len(queries)}.")
        result: list[Any] = []
        left = LARGEST_ANSWER
        for query in queries:
            result.append([])
            for passage, score in self._index.scored(query, most):
                left -= len(passage.title) + len(passage.text)
                told = {"id": passage.id, "contents": passage.contents, "title": passage.title, "text": passage.text}
                result[-1].append({"document": told, "score": score} if body.get("return_scores") else told)
            if left < 0:
                raise Refusal(
                    400,
                    f"Expected queries whose passages have at most {LARGEST_ANSWER:,} characters together, found more "
                    f"after {len(result)} of {len(queries)} queries. Ask fewer at once, or a smaller topk.",
                )
        return {"result": result}

    def _one(self, body: Mapping[str, Any]) -> Any:
        query, most = body["query"], _most(body, "top_k", USUAL_TOP_K)
        if not isinstance(query, str):
            raise Refusal(400, 'Expected "query" as text.')
        found = enumerate(self._index.scored(query, most), 1)
        results = [{"id": rank, "content": passage.contents, "score": score} for rank, (passage, score) in found]
        return {"results": results, "num_results": len(results)}


def _most(body: Mapping[str, Any], name: str, usual: int) -> int:
    most = usual if body.get(name) is None else body[name]
    if type(most) is not int or not 1 <= most <= MOST_RESULTS:
        raise Refusal(400, f'Expected "{name}" as a whole number from 1 to {MOST_RESULTS}.')
    return most
