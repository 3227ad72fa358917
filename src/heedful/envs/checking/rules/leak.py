"""The rule that an observation does not hand out its answer.

A copied answer counts as a leak only if copying from the observation of another task does not work as well. Players
that copy a place of what they read are compared with players that copy the same place of another observation, and with
the random player. Candidates are found on one half of the tasks and judged on the other.

Two kinds of places are copied. *Marked* ones, where an answer stands as an answer: a whole line, an `<answer>` block,
what is told as the answer or solution. If copying those solves most tasks, the rule is broken. *Unmarked* ones, such as
the longest number: a task may be to find one among several, so they can only raise a warning.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from heedful.diagnostics.statistics.intervals import wilson
from heedful.envs.checking.evidence import Evidence
from heedful.envs.checking.play import Bench, Played
from heedful.envs.checking.replies import listed_actions
from heedful.envs.checking.report import Finding, absent, broken, doubtful, holds, shortened
from heedful.envs.common.actions import Fault, answer_text, format_reply
from heedful.envs.common.tools import fitting_tools, in_form
from heedful.protocols import AnswersFreely, Demonstrates
from heedful.types import Task

MOST_TASKS = 200

NOTICED = 0.1
"""Lead on the first half of the tasks that makes a player worth judging on the second."""

MOST_TURNS = 8

_BLOCK = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
_MARKED = re.compile(
    r"\b(?:answer|solution|secret|target|result)\b(?:\s+(?:word|number|code))?\s*(?::|=|\b(?:is|was|were)\b:?)\s*([^\n]+)",
    re.IGNORECASE,
)
"""What is told as an answer: `the answer is 7`, `secret word: owl`."""
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


@dataclass(frozen=True, slots=True)
class Place:
    """A place of an observation that somebody could copy without reading."""

    name: str
    marked: bool
    find: Callable[[str], str]
    """The text at that place. Empty if there is none."""


def _line(number: int) -> Callable[[str], str]:
    def find(text: str) -> str:
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return lines[number] if lines else ""

    return find


def _last_block(text: str) -> str:
    blocks = _BLOCK.findall(text)
    return str(blocks[-1]).strip() if blocks else ""


def _told(number: int, words: int | None) -> Callable[[str], str]:
    """What follows the first (0) or the last (-1) such word: the whole line, or that many words."""

    def find(text: str) -> str:
        found = _MARKED.findall(text)
        return _bare(" ".join(found[number].split()[:words])) if found else ""

    return find


def _bare(text: str) -> str:
    """Without the quotes and stops around it, and without a bracket that belongs to the sentence."""
    stripped = text.strip().strip(".,;!*\"'` ")
    balanced = stripped.count("(") == stripped.count(")")
    return stripped if balanced else stripped.strip("().,;!*\"'` ")


def _quoted(text: str) -> str:
    found = re.findall(r"\"([^\"\n]+)\"|'([^'\n]+)'|`([^`\n]+)`", text)
    return next(filter(None, found[-1]), "") if found else ""


def _numbers(choose: Callable[[list[str]], str]) -> Callable[[str], str]:
    def find(text: str) -> str:
        numbers = _NUMBER.findall(text)
        return choose(numbers) if numbers else ""

    return find


PLACES = (
    Place("the last line", True, _line(-1)),
    Place("the first line", True, _line(0)),
    Place("the last <answer> block", True, _last_block),
    Place("what is told as the answer or solution (the last such line)", True, _told(-1, None)),
    Place("what is told as the answer or solution (the first such line)", True, _told(0, None)),
    Place("the word that is told as the answer or solution (the last such line)", True, _told(-1, 1)),
    Place("the word that is told as the answer or solution (the first such line)", True, _told(0, 1)),
    Place("the last quotation", False, _quoted),
    Place("the longest number", False, _numbers(lambda numbers: max(numbers, key=len))),
    Place("the last number", False, _numbers(lambda numbers: numbers[-1])),
)


@dataclass(frozen=True, slots=True)
class _Rate:
    """Successes among tasks."""

    solved: int
    tasks: int

    @property
    def value(self) -> float:
        return self.solved / self.tasks

    @property
    def low(self) -> float:
        return wilson(self.solved, self.tasks).low

    @property
    def high(self) -> float:
        return wilson(self.solved, self.tasks).high

    def __str__(self) -> str:
        return f"{self.value:.0%} [{self.low:.0%}, {self.high:.0%}]"


def leak(bench: Bench, evidence: Evidence) -> Finding:
    """Copying solves no more tasks than copying from another task does."""
    distinct = {task.id: task for task in evidence.tasks}
    tasks = list(distinct.values())[: min(MOST_TASKS, 2 * bench.effort.episodes)]
    if len(tasks) < 20:
        return absent(f"only {len(tasks)} distinct start states were drawn: too few to tell copying from luck")
    half = len(tasks) // 2
    told = _demonstrated(bench, tasks)
    if told is not None:
        return told
    chance = _random_player(bench, evidence)
    bar = (chance.value if chance else 0.0) + NOTICED
    suspects = [
        place for place in _different_places(evidence) if _rate(_copiers(bench, tasks[:half], place)).value > bar
    ]
    standing_out: list[tuple[float, Finding]] = []
    for place in suspects:
        own, foreign = _compared(bench, tasks[half:], place)
        best = max((foreign, chance) if chance else (foreign,), key=lambda rate: rate.value)
        if own.low > best.high:
            standing_out.append((own.value, _copying_pays(place, own, foreign, chance)))
    if standing_out:
        return max(standing_out, key=lambda pair: (pair[1].status == "broken", pair[0]))[1]
    beside = f"; a random player solves {chance}" if chance else ""
    return holds(
        f"copying one of {len(PLACES)} places of the observation solves no more than copying it from another "
        f"task{beside}"
    )


def _copying_pays(place: Place, own: _Rate, foreign: _Rate, chance: _Rate | None) -> Finding:
    compared = f"from another task's observation {foreign}" + (f", a random player {chance}" if chance else "")
    found = f"copying {place.name} as the answer solves {own} of {own.tasks} tasks; {compared}"
    expected = "an answer that has to be found, not one that stands there"
    if place.marked and own.low > 0.5:
        remedy = (
            "take the answer out of the observation; where copying is the task, leave the rule out with --skip leak"
        )
        return broken("the observation holds its answer", expected=expected, found=found, remedy=remedy)
    remedy = (
        "look whether the text tells more than it should; where choosing among what stands there is the task, "
        "all is well"
    )
    if chance is None:
        remedy += " (with `actions` or `random_answer` a random player would be compared)"
    return doubtful("copying from the observation pays", expected=expected, found=found, remedy=remedy)


def _different_places(evidence: Evidence) -> list[Place]:
    """The places that hold a text. Two places that always hold the same text count once."""
    shown = [text for played in evidence.episodes for text in played.observations[:3]][:200]
    by_texts = {tuple(map(place.find, shown)): place for place in reversed(PLACES)}
    return [place for texts, place in by_texts.items() if any(texts)]


def _copiers(bench: Bench, tasks: Sequence[Task], place: Place) -> list[Played]:
    """Episodes of a player that answers each observation with the text at one of its places."""
    return [_play(bench, task, lambda shown, turn: place.find(shown)) for task in tasks]


def _compared(bench: Bench, tasks: Sequence[Task], place: Place) -> tuple[_Rate, _Rate]:
    """Success of copying a place of the own observations, and of copying it from the next task's."""
    own = _copiers(bench, tasks, place)
    spans = [[place.find(text) for text in played.observations] for played in own]
    foreign = []
    for number, task in enumerate(tasks):
        other = spans[(number + 1) % len(spans)]
        foreign.append(_play(bench, task, lambda shown, turn, other=other: other[min(turn, len(other) - 1)]))  # type: ignore[misc]
    return _rate(own), _rate(foreign)


def _rate(episodes: Sequence[Played]) -> _Rate:
    return _Rate(sum(played.solved for played in episodes), len(episodes))


def _play(bench: Bench, task: Task, answer: Callable[[str, int], str]) -> Played:
    return bench.play(
        task,
        0,
        lambda shown, turn: ("copied", in_form(bench.env, format_reply([answer(shown, turn)], ""))),
        min(bench.turns, MOST_TURNS),
    )


def _random_player(bench: Bench, evidence: Evidence) -> _Rate | None:
    """Success of well-formed random replies. `None` where the environment does not say what they are."""
    told = isinstance(bench.env, AnswersFreely) or bool(listed_actions(bench.env))
    return _rate(evidence.sound) if told else None


def _demonstrated(bench: Bench, tasks: Sequence[Task]) -> Finding | None:
    """Broken if observations state demonstrated answers as answers, more often than the answers of other tasks."""
    if not isinstance(bench.env, Demonstrates):
        return None
    episodes: list[tuple[Task, list[tuple[str, str]]]] = []
    for task in tasks:
        pairs, fault = bench.ask(
            "demonstrate",
            lambda task=task: list(islice(bench.env.demonstrate(task, random.Random(0)), MOST_TURNS)),  # type: ignore[misc]
        )
        if fault is None and pairs and all(_is_pair(pair) for pair in pairs):
            episodes.append((task, pairs))
    if len(episodes) < 20:
        return None
    own, foreign, example = 0, 0, ""
    for number, (task, pairs) in enumerate(episodes):
        others = episodes[(number + 1) % len(episodes)][1]
        stands = [text for text, reply in pairs if stands_as_answer(_answer(bench.env, reply), text)]
        own += bool(stands)
        foreign += any(
            stands_as_answer(_answer(bench.env, reply), text)
            for (text, _), (_, reply) in zip(pairs, others, strict=False)
        )
        if stands and not example:
            example = f"task {task.id} (seed {task.seed}): {shortened(stands[0], 200)}"
    mine, theirs = _Rate(own, len(episodes)), _Rate(foreign, len(episodes))
    if mine.low <= theirs.high:
        return None
    return broken(
        "the observation holds its answer",
        expected="a demonstrated answer that does not stand as an answer in what the agent reads",
        found=f"in {mine} of {mine.tasks} demonstrations it stands there as a line, in an <answer> block or as what "
        f"is told as the answer; answers of other tasks do in {theirs}",
        where=example,
        remedy="take the answer out of the observation; where copying is the task, leave the rule out with --skip leak",
    )


def _is_pair(pair: Any) -> bool:
    return isinstance(pair, tuple) and len(pair) == 2 and all(isinstance(part, str) for part in pair)


def _answer(env: Any, reply: str) -> str:
    found = answer_text(reply, fitting_tools(env))
    return "" if isinstance(found, Fault) else found.strip()


def stands_as_answer(answer: str, text: str) -> bool:
    """Whether `answer` is a whole line, an `<answer>` block, or told as the answer or solution in `text`."""
    if not answer:
        return False
    blocks = {block.strip() for block in _BLOCK.findall(text)}
    lines = {line.strip() for line in text.splitlines()}
    told = {_bare(found) for found in _MARKED.findall(text)}
    words = {_bare(found.split()[0]) for found in _MARKED.findall(text) if found.split()}
    return answer in blocks | lines | told | words
