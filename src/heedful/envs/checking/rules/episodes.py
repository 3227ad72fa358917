"""Rules on how episodes run: they replay, share no state, end in time, read any text, and answer fast enough.

A rule judges complete episodes, or says that an episode was cut. Only the rule `text` counts episodes that broke.
"""

from __future__ import annotations

import dataclasses
import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from heedful.envs.checking.evidence import Evidence
from heedful.envs.checking.play import MOST_REPLIES, Bench, Broke, Played, parting, scripted
from heedful.envs.checking.replies import actions_per_turn, listed_actions
from heedful.envs.checking.report import Finding, broken, doubtful, holds, parted, seconds_text, shortened, unchecked
from heedful.envs.checking.rules.environment import kinds_of
from heedful.envs.common.actions import format_reply
from heedful.guarded import Raised, guarded_call
from heedful.types import Ending

MOST_REPLAYED = 60

_WORDS = (
    "one|once|single",
    "two|twice",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
)

_FURTHER = 16
"""Turns that a copy of the environment is given in addition, to see whether it tells of them."""


def replay(bench: Bench, evidence: Evidence) -> Finding:
    """Task, member and replies replay an episode, whatever was played in between."""
    whole = [*evidence.sound[:MOST_REPLAYED], *(one for one in evidence.hostile[:20] if one.fault is None)]
    for played in whole:
        again = bench.replay(played)
        place = _parting(played, again)
        if place is not None:
            return _unequal("an episode does not replay", "played again, it", played, again, place)
    return holds(f"{len(whole)} episodes replay word for word from task, member and replies")


def isolation(bench: Bench, evidence: Evidence) -> Finding:
    """Episodes that are played side by side go as they do alone."""
    whole = list(evidence.sound[:12])
    if any(_parting(played, bench.replay(played)) is not None for played in whole):
        return unchecked("episodes do not even replay when they are played one after the other: see replay")
    # The first one twice, and another one on the same task: what is kept by task or by class shows there.
    side_by_side = [*whole, whole[0], bench.replay(whole[0])]
    running = [bench.start(played.task, played.member) for played in side_by_side]
    said: list[list[Any]] = [[] for _ in side_by_side]
    for turn in range(max(len(played.exchanges) for played in side_by_side)):
        for place, played in reversed(list(enumerate(side_by_side))):
            if turn < len(played.exchanges):
                step, took, _ = bench.step(running[place][0], played.replies[turn])
                kept = [] if step is None else [dataclasses.replace(played.exchanges[turn], step=step, seconds=took)]
                said[place] += kept
    for place, played in enumerate(side_by_side):
        mixed = dataclasses.replace(played, first=running[place][1], exchanges=tuple(said[place]))
        parted = _parting(played, mixed)
        if parted is not None:
            return _unequal("episodes share state", "played beside others, it", played, mixed, parted)
    return holds(f"{len(side_by_side)} episodes go the same way side by side as one after the other")


def _parting(played: Played, other: Played) -> int | None:
    return parting(played.transcript(), other.transcript())


def _unequal(sentence: str, way: str, played: Played, other: Played, place: int) -> Finding:
    one, two = (each.transcript()[place] if place < len(each.transcript()) else "nothing" for each in (played, other))
    before, after = parted(one, two)
    return broken(
        sentence,
        expected="an episode that depends on task, member and replies alone",
        found=f"{way} says {after} in the place of {before}",
        where=played.where() if not place else played.where(place - 1),
        remedy="keep the whole state in the object that `episode` returns, and draw noise from a generator made in "
        "`start`",
    )


def turns(bench: Bench, evidence: Evidence) -> Finding:
    """An episode ends by itself within its turns, and the first observation tells the limits."""
    limit = bench.turns
    expected = f"`turns` = {limit} is the most that an episode lasts, enforced by the environment and told to the agent"
    remedy = f"end with Ending.OUT_OF_TURNS at reply number {limit}, and state the number in the first observation"
    for played in evidence.whole:
        if not played.ended and len(played.exchanges) < limit:
            return unchecked(
                f"an episode was played for {len(played.exchanges):,} of its {limit:,} turns only, unended"
            )
        if len(played.exchanges) > limit or not played.ended:
            found = f"no ending after {min(len(played.exchanges), limit)} replies"
            return broken(
                "an episode goes on after its last turn",
                expected=expected,
                found=found,
                where=played.where(limit - 1),
                remedy=remedy,
            )
        if played.exchanges[-1].step.ending is Ending.OUT_OF_TURNS and len(played.exchanges) < limit:
            found = f"Ending.OUT_OF_TURNS at reply {len(played.exchanges)} of {limit}"
            return broken(
                "an episode is out of turns too early",
                expected=expected,
                found=found,
                where=played.where(),
                remedy=remedy,
            )
    first = evidence.tasks[0], bench.start(evidence.tasks[0], 0)[1].text
    if not tells(first[1], limit):
        found = f"no {limit} in {shortened(first[1], 300)}"
        return broken(
            "the first observation does not tell the turns",
            expected=expected,
            found=found,
            where=f"seed {first[0].seed}",
            remedy=remedy,
        )
    return (
        _actions_limit(bench, evidence)
        or _as_the_knob_says(bench, evidence)
        or holds(
            f"{len(evidence.whole)} episodes ended by themselves within {limit} turn{'s' * (limit > 1)}, which the "
            f"first observation tells"
        )
    )


def tells(text: str, number: int) -> bool:
    """Whether a text states a number, in digits or (up to twelve) in words."""
    word = rf"|\b(?:{_WORDS[number - 1]})\b" if 1 <= number <= len(_WORDS) else ""
    return re.search(rf"(?<![\d.]){number}(?![\d]){word}", text, re.IGNORECASE) is not None


def _actions_limit(bench: Bench, evidence: Evidence) -> Finding | None:
    """What is wrong with the limit of actions in a turn, where there is one."""
    env = bench.env
    most = actions_per_turn(env)
    if not listed_actions(env):
        return None
    expected = f"`actions_per_turn` = {most}: told in the first observation, and no more are executed in a turn"
    remedy = "stop reading a reply at the limit, say so in the next observation, and state the limit in the first one"
    task = evidence.tasks[0]
    first = bench.start(task, 0)[1].text
    if most > 1 and not tells(first, most):  # one is what anybody expects
        found = f"no {most} in {shortened(first, 300)}"
        return broken(
            "the first observation does not tell the actions of a turn",
            expected=expected,
            found=found,
            where=f"seed {task.seed}",
            remedy=remedy,
        )
    for task in evidence.tasks[:20]:
        for action in listed_actions(env)[:8]:
            played = bench.play(task, 0, scripted([format_reply([action] * (most + 3), "")]), 1)
            for exchange in played.exchanges:
                if len(exchange.step.actions) > most:
                    found = f"{len(exchange.step.actions)} actions executed"
                    return broken(
                        "more actions are executed than allowed",
                        expected=expected,
                        found=found,
                        where=played.where(0),
                        remedy=remedy,
                    )
    return None


def _as_the_knob_says(bench: Bench, evidence: Evidence) -> Finding | None:
    """An environment with more turns must tell and enforce those, so a number found by chance is seen."""
    env, more = bench.env, bench.turns + _FURTHER
    if not dataclasses.is_dataclass(env) or "turns" not in {
        field.name for field in dataclasses.fields(env) if field.init
    }:
        return None
    longer = guarded_call(lambda: dataclasses.replace(env, turns=more))  # type: ignore[type-var]
    if isinstance(longer, Raised):
        return None  # a knob may have a range of its own
    other = Bench(longer.value, bench.effort)
    try:
        task = other.task(evidence.tasks[0].seed)
        played = other.play(task, 0, lambda shown, turn: ("unreadable", "<think>hm"))
    except Broke:
        return None  # and some knobs suit one another only
    expected = f"with the knob turns = {more} an episode lasts at most {more} turns, and its first observation says so"
    remedy = "use `self.turns` in both places"
    if more <= MOST_REPLIES - 2 and (not played.ended or len(played.exchanges) > more):
        return broken(
            "the knob `turns` is not enforced",
            expected=expected,
            found="no ending",
            where=played.where(more - 1),
            remedy=remedy,
        )
    if not tells(played.first.text, more):
        found = f"no {more} in {shortened(played.first.text, 300)}"
        return broken(
            "the first observation does not tell the knob `turns`",
            expected=expected,
            found=found,
            where=played.where(),
            remedy=remedy,
        )
    return None


def text(bench: Bench, evidence: Evidence) -> Finding:
    """Every reply is answered, in reasonable time. A reply that cannot be read is the agent's fault."""
    failed = [played for played in evidence.episodes if played.fault is not None and played.fault.kind != "type"]
    answered = {exchange.kind for _, _, exchange in evidence.exchanges()}
    if not failed:
        return holds(
            f"replies of {len(answered)} kinds were answered, a million characters and lone surrogates among them"
        )
    by_cause: dict[str, list[Played]] = defaultdict(list)
    for played in failed:
        assert played.fault is not None
        by_cause[played.fault.cause or played.fault.text].append(played)
    episodes = max(by_cause.values(), key=len)
    kinds = [played.last_kind for played in episodes]
    every = answered | {played.last_kind for played in failed}
    others = f"; {len(by_cause) - 1} further cause{'s' * (len(by_cause) > 2)}" if len(by_cause) > 1 else ""
    return broken(
        "a reply is not answered",
        expected="any text is accepted: what cannot be read spends the turn",
        found=f"{episodes[0].fault}; after {len(set(kinds))} of {len(every)} kinds of reply: {kinds_of(kinds)}{others}",
        where=episodes[0].where(len(episodes[0].exchanges)),
        remedy="answer such a reply with a Step of valid=False and a line on what was wrong; "
        "heedful.envs.common.actions.read_reply and heedful.envs.common.answers.read_answer never raise",
    )


def code(bench: Bench, evidence: Evidence) -> Finding:
    """A reply is read. It is never run."""
    if not evidence.canary.exists():
        return holds("Python and shell code in replies was read as text")
    return broken(
        "code in a reply is executed",
        expected="a reply is text to be read",
        found="a file that only the code inside a reply creates",
        where="a reply whose answer is __import__('pathlib').Path(...).touch(), or touch ... for a shell",
        remedy="read numbers and expressions with a parser of your own, never with eval or exec; where running code "
        "is the task, run it in a sandbox that cannot write to this machine",
    )


def speed(bench: Bench, evidence: Evidence) -> Finding:
    """How long a step takes, and what takes longest."""
    plain = [(one.seconds, played, turn) for played, turn, one in evidence.exchanges() if len(one.reply) < 10_000]
    long = [one.seconds for _, _, one in evidence.exchanges() if len(one.reply) >= 10_000]
    if not plain:
        return unchecked("no step was answered: see text")
    times = sorted(seconds for seconds, _, _ in plain)
    slowest, played, turn = max(plain, key=lambda item: item[0])
    draw, start = (_median(bench.seconds[call]) for call in ("task", "start"))
    sentence = (
        f"a step takes {seconds_text(_median(times))} (median), {seconds_text(_quantile(times, 0.99))} (99th "
        f"percentile), {seconds_text(slowest)} (slowest); drawing a task {seconds_text(draw)}, starting "
        f"{seconds_text(start)}"
    )
    if long:
        sentence += f"; a long reply at most {seconds_text(max(long))}"
    limit = bench.effort.slowest
    if slowest <= limit:
        return holds(sentence)
    return doubtful(
        sentence,
        expected=f"steps below {seconds_text(limit)} (--slowest), since a batch waits for its slowest episode",
        where=played.where(turn),
        remedy="make it faster, or play it asynchronously or in worker processes",
    )


def _median(seconds: Sequence[float]) -> float:
    return _quantile(sorted(seconds), 0.5)


def _quantile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that this share of the values does not exceed. 0 without values."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
