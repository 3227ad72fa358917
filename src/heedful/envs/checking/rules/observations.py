"""Rules on what the agent reads: no part of its reply that a chat template would obey, and correct openings.

Only what an agent would be shown is examined. The observation of an ending is not.
"""

from __future__ import annotations

from heedful.envs.checking.evidence import Evidence
from heedful.envs.checking.play import Bench, Played
from heedful.envs.checking.replies import CHAT_TOKENS
from heedful.envs.checking.report import Finding, absent, broken, doubtful, holds, shortened, unchecked

_LONGER = 4_000
"""Characters by which an observation may be longer after a long reply than after any short one."""


def echo(bench: Bench, evidence: Evidence) -> Finding:
    """What comes back of a reply is harmless and short."""
    if bench.turns == 1:
        return absent("an episode has one turn, so nothing of a reply can come back")
    longest = 0
    if not any(any(token in played.replies[turn] for token in CHAT_TOKENS) for played, turn, _ in _shown(evidence)):
        if any(played.fault is not None for played in evidence.hostile):
            return unchecked("no episode went on after a reply that holds tokens of a chat template: see text")
        return absent("every episode ends with a reply that holds tokens of a chat template")
    for played, turn, text in _shown(evidence):
        token = next((token for token in CHAT_TOKENS if token in text and token not in played.first.text), "")
        if token:
            return _came_back(
                "a token of a chat template", f"{token} in {shortened(_around(text, token), 120)}", played, turn
            )
    for played, turn, text in _shown(evidence):
        try:
            text.encode()
        except UnicodeEncodeError as error:
            return _came_back(
                "a character that no tokenizer can read", f"{error.reason} in {shortened(text)}", played, turn
            )
        if len(played.replies[turn]) < 10_000:
            longest = max(longest, len(text))
    for played, turn, text in _shown(evidence):
        if len(text) > longest + _LONGER:
            found = f"an observation of {len(text):,} characters after a reply of {len(played.replies[turn]):,}"
            return _came_back("a whole long reply", found, played, turn)
    return holds("observations repeat no token of a chat template, no unreadable character and no long text of a reply")


def _shown(evidence: Evidence) -> list[tuple[Played, int, str]]:
    """(episode, turn of the reply, the observation that follows it)."""
    return [
        (played, turn, exchange.step.observation.text)
        for played, turn, exchange in evidence.exchanges()
        if exchange.step.ending is None
    ]


def _around(text: str, token: str) -> str:
    place = text.index(token)
    return text[max(0, place - 40) : place + 60]


def _came_back(what: str, found: str, played: Played, turn: int) -> Finding:
    return broken(
        f"an observation repeats {what} of the agent's reply",
        expected="of a reply come back a few plain characters at most: a prompt that holds the agent's own tags can "
        "end a turn, or speak for somebody else",
        found=found,
        where=played.where(turn),
        remedy="quote what cannot be read shortened, and only letters, digits, spaces, hyphens and underscores of it",
    )


def openings(bench: Bench, evidence: Evidence) -> Finding:
    """Later observations that can begin a conversation: all of them or none."""
    if bench.turns == 1:
        return absent("an episode has one turn, so no window of history ever begins later")
    later = [
        (played, turn, exchange.step.observation)
        for played, turn, exchange in evidence.exchanges()
        if exchange.step.ending is None
    ]
    if not later:
        return absent("every episode ends with its first reply")
    filled = [item for item in later if item[2].opening]
    if not filled:
        return absent("later observations have no `opening`: the environment is played with its full history only")
    remedy = "give every later observation the instructions and then its own text as its opening"
    expected = (
        "either no opening after the first observation, or in each the same observation as a conversation "
        "begins with it"
    )
    if len(filled) < len(later):
        played, turn, _ = next(item for item in later if not item[2].opening)
        found = f"{len(later) - len(filled)} of {len(later)} later observations without one"
        return broken(
            "only some observations have an opening",
            expected=expected,
            found=found,
            where=played.where(turn),
            remedy=remedy,
        )
    for played in evidence.episodes:
        if played.first.opening not in ("", played.first.text):
            found = f"{shortened(played.first.opening)} beside {shortened(played.first.text)}"
            return broken(
                "the first opening is another text", expected=expected, found=found, where=played.where(), remedy=remedy
            )
    for played, turn, observation in filled:
        last = (observation.text.strip().splitlines() or [""])[-1]
        if last not in observation.opening:
            found = f"the opening lacks the observation's last line {shortened(last)}"
            return doubtful(
                "an opening lacks what its observation shows",
                expected=expected,
                found=found,
                where=played.where(turn),
                remedy=remedy,
            )
    return holds("every later observation has an opening that shows it, so the environment can be played in windows")
