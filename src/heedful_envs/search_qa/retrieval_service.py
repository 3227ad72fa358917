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
from heedful_envs.search_qa.retrieval import Found, Searcher

MOST_QUERIES = 512
MOST_RESULTS = 100
USUAL_TOPK, USUAL_TOP_K = 3, 5

LARGEST_ANSWER = 32 << 20
"""Characters of passages in one answer. A short request could ask for all of a large index many times."""


class RetrievalService:
    """Answers searches in one index. As thread-safe as the index."""

    def __init__(self, index: Searcher, passages: int) -> None:
        self._index, self._passages = index, passages

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        """HTTP status and answer. `body`: the request's JSON, or `{}` if there is none. Raises Refusal."""
        route = path.split("?")[0].rstrip("/")
        if (method, route) == ("GET", "/health"):
            return 200, {"status": "ok", "passages": self._passages}
        if (method, route) != ("POST", "/retrieve"):
            raise Refusal(404, f"There is nothing at {method} {path[:60]}; known are GET /health, POST /retrieve.")
        if not isinstance(body, Mapping) or ("queries" in body) == ("query" in body):
            raise Refusal(400, 'Expected a JSON object with "queries" (Search-R1) or "query" (RAGEN), not both.')
        return 200, self._many(body) if "queries" in body else self._one(body)

    def _many(self, body: Mapping[str, Any]) -> Any:
        queries = body["queries"]
        if not isinstance(queries, list) or not all(isinstance(query, str) for query in queries):
            raise Refusal(400, 'Expected "queries" as a list of texts.')
        if len(queries) > MOST_QUERIES:
            raise Refusal(400, f"Expected at most {MOST_QUERIES} queries in one request, found {len(queries)}.")
        most = _most(body, "topk", USUAL_TOPK)
        scored = body.get("return_scores", False)
        if scored not in (True, False, None):
            raise Refusal(400, 'Expected "return_scores" as true or false.')
        found: list[list[Found]] = []
        left = LARGEST_ANSWER
        for query in queries:
            found.append(self._index.search(query, most))
            left -= sum(len(each.passage.title) + len(each.passage.text) for each in found[-1])
            if left < 0:
                raise Refusal(
                    400,
                    f"Expected queries whose passages have at most {LARGEST_ANSWER:,} characters together, found more "
                    f"after {len(found)} of {len(queries)} queries. Ask fewer at once, or a smaller topk.",
                )
        return {"result": [[_scored(each) if scored else _document(each) for each in row] for row in found]}

    def _one(self, body: Mapping[str, Any]) -> Any:
        query = body["query"]
        if not isinstance(query, str):
            raise Refusal(400, 'Expected "query" as text.')
        found = self._index.search(query, _most(body, "top_k", USUAL_TOP_K))
        results = [
            {"id": rank, "content": each.passage.contents, "score": each.score} for rank, each in enumerate(found, 1)
        ]
        return {"results": results, "num_results": len(results)}


def _most(body: Mapping[str, Any], name: str, usual: int) -> int:
    most = body.get(name)
    if most is None:
        return usual
    if type(most) is not int or not 1 <= most <= MOST_RESULTS:
        raise Refusal(400, f'Expected "{name}" as a whole number from 1 to {MOST_RESULTS}.')
    return most


def _document(found: Found) -> Any:
    passage = found.passage
    return {"id": passage.id, "contents": passage.contents, "title": passage.title, "text": passage.text}


def _scored(found: Found) -> Any:
    return {"document": _document(found), "score": found.score}
