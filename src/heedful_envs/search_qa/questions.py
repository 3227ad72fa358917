r"""Questions from files. The columns of a row tell its form.

| form | columns | right answers |
|---|---|---|
| FlashRAG, Search-R1 | `question`, `golden_answers` | the list |
| Search-R1 | `prompt`, `reward_model` | `ground_truth.target`; the question follows the last `Question:` |
| RAGEN | `question`, `ground_truth` | one text |
| MuSiQue | `question`, `answer`, `paragraphs` | `answer` and `answer_aliases` |
| HotpotQA, 2WikiMultihopQA | `question`, `answer`, `context` | `answer` |
| plain | `question`, `answer` | one text, or a list of them |

The last three but plain hold passages as well. HotpotQA's `context` may be lists of pairs, or columns of lists.
A question whose right answers normalise to nothing is faulty: every empty answer would equal them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from heedful.boundary import parse_json
from heedful.envs.common import Faulty, harmless, text_of
from heedful_envs.search_qa.passages import Passage
from heedful_envs.search_qa.scores import normalised

COLUMNS = frozenset(
    {
        *("id", "_id", "question", "golden_answers", "prompt", "reward_model", "data_source", "ground_truth", "answer"),
        *("answer_aliases", "answerable", "paragraphs", "context", "supporting_facts", "evidences", "extra_info"),
    }
)

_ASKED = re.compile(r"Question:\s*", re.IGNORECASE)
_HOPS = re.compile(r"(\d+)hop")


@dataclass(frozen=True, slots=True)
class FiledQuestion:
    """One question of a file."""

    text: str
    golds: tuple[str, ...]
    source: str
    """The data set, a tag of the task."""
    hops: int
    """Passages that the answer takes. 0 = the file does not say."""
    passages: tuple[Passage, ...] = ()
    """The passages that come with it."""
    gold_passages: tuple[Passage, ...] = ()
    """Those of them that hold the answer."""

    @property
    def searches(self) -> list[str]:
        """What the solver searches for: the titles of the passages that hold the answer, or else the question."""
        titles = [harmless(each.title) for each in self.gold_passages if harmless(each.title)]
        return list(dict.fromkeys(titles)) or [self.text]

    @property
    def asked(self) -> str:
        """The question after normalisation. Equal ones are the same question."""
        return normalised(self.text)


def read_question(row: Mapping[str, Any]) -> FiledQuestion:
    """The question of a row. Raises Faulty, or what Python raises where columns have another form."""
    found = _read(row)
    if not found.text.strip():
        raise Faulty("its question is empty")
    if not found.golds:
        raise Faulty("it has no right answer")
    empty = next((gold for gold in found.golds if not normalised(gold, typography=True)), None)
    if empty is not None:
        raise Faulty(f"its right answer {empty[:40]!r} normalises to nothing, so that an empty answer would equal it")
    return found


def _read(row: Mapping[str, Any]) -> FiledQuestion:
    given = {name for name in COLUMNS if row.get(name) is not None}
    source = text_of(row.get("data_source") or "")
    if {"question", "golden_answers"} <= given:
        return FiledQuestion(text_of(row["question"]), _texts(row["golden_answers"]), source or "flashrag", 0)
    if {"question", "answer", "paragraphs"} <= given:
        return _musique(row, source)
    if {"question", "answer", "context"} <= given:
        return _hotpot(row, source)
    if {"prompt", "reward_model"} <= given:
        return _search_r1(row, source)
    if {"question", "ground_truth"} <= given:
        return FiledQuestion(text_of(row["question"]), _texts(row["ground_truth"]), source or "ragen", 0)
    if {"question", "answer"} <= given:
        return FiledQuestion(text_of(row["question"]), _texts(row["answer"]), source or "file", 0)
    raise Faulty(f"its columns ({', '.join(sorted(row)) or 'none'}) belong to no known form")


def _search_r1(row: Mapping[str, Any], source: str) -> FiledQuestion:
    prompt = row["prompt"]
    told = prompt if isinstance(prompt, str) else text_of(prompt[-1]["content"])
    if not _ASKED.search(told):
        raise Faulty("its prompt has no `Question:`")
    truth = row["reward_model"]["ground_truth"]
    truth = parse_json(truth) if isinstance(truth, str) and truth.lstrip().startswith("{") else truth
    golds = truth["target"] if isinstance(truth, Mapping) else truth
    return FiledQuestion(_ASKED.split(told)[-1].strip(), _texts(golds), source or "search_r1", 0)


def _hotpot(row: Mapping[str, Any], source: str) -> FiledQuestion:
    context, facts = row["context"], row.get("supporting_facts") or []
    pairs = _pairs(context, "title", ("sentences", "content"))
    passages = tuple(Passage("", text_of(title), " ".join(map(str.strip, sentences))) for title, sentences in pairs)
    titles = {title for title, _ in _pairs(facts, "title", ("sent_id",))}
    named = source or ("2wiki" if row.get("evidences") is not None else "hotpotqa")
    golds = tuple(each for each in passages if each.title in titles)
    return FiledQuestion(text_of(row["question"]), _texts(row["answer"]), named, len(titles), passages, golds)


def _pairs(columns: Any, first: str, seconds: tuple[str, ...]) -> list[tuple[Any, Any]]:
    """Pairs that a file writes as lists of two, or as a column for each."""
    if not isinstance(columns, Mapping):
        return [(pair[0], pair[1]) for pair in columns]
    second = next((name for name in seconds if name in columns), seconds[0])
    return list(zip(columns[first], columns[second], strict=True))


def _musique(row: Mapping[str, Any], source: str) -> FiledQuestion:
    if row.get("answerable") is False:
        raise Faulty("it is marked as not answerable")
    passages, golds = [], []
    for each in row["paragraphs"]:
        passage = Passage("", text_of(each["title"]), text_of(each["paragraph_text"]))
        passages.append(passage)
        if each.get("is_supporting"):
            golds.append(passage)
    hops = _HOPS.match(str(row.get("id", "")))
    answers = (*_texts(row["answer"]), *_texts(row.get("answer_aliases") or []))
    count = int(hops[1]) if hops else len(golds)
    return FiledQuestion(text_of(row["question"]), answers, source or "musique", count, tuple(passages), tuple(golds))


def _texts(value: Any) -> tuple[str, ...]:
    """One or several different right answers."""
    if isinstance(value, str):
        return (text_of(value),)
    if not isinstance(value, list | tuple):
        raise Faulty("its right answers are neither a text nor a list of texts")
    return tuple(dict.fromkeys(map(text_of, value)))


def key_of(text: str) -> int:
    """Eight bytes of a hash."""
    return int.from_bytes(hashlib.blake2b(text.encode(errors="replace"), digest_size=8).digest(), "big")


def passage_key(passage: Passage) -> int:
    """The same for passages of the same title and text."""
    return key_of(f"{passage.title}\n{passage.text}")
