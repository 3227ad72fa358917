"""The result of a check of an environment: one finding per rule, in sentences.

Plain data. A broken rule says what was expected, what was found, where, and what to do. Text of an environment is
shortened and escaped, so that no control character reaches a terminal.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

from heedful.boundary import cut
from heedful.guarded import Answered, guarded_call

Status = Literal["pass", "warning", "broken", "not checked", "not applicable"]

STATUSES: tuple[Status, ...] = ("pass", "warning", "broken", "not checked", "not applicable")

LONGEST_FOUND = 2_000
"""Characters of what was found, which quotes the environment."""

_STATUS_WIDTH = max(map(len, STATUSES))
_RULE_WIDTH = 15


@dataclass(frozen=True, slots=True)
class Finding:
    """What one rule came to."""

    rule: str
    status: Status
    sentence: str
    """What holds, what is wrong, or why there was nothing to look at."""
    expected: str = ""
    found: str = ""
    where: str = ""
    """The seed, the member, the turn and the reply, as far as they matter."""
    remedy: str = ""

    def __post_init__(self) -> None:
        # A text of the environment may be of a class of its own, whose code must run here, where it is watched.
        for name in ("sentence", "expected", "found", "where", "remedy"):
            object.__setattr__(self, name, "".join((str(getattr(self, name)),)))

    @property
    def details(self) -> list[tuple[str, str]]:
        """(label, text) of everything else than the sentence."""
        pairs = [("expected", self.expected), ("found", self.found), ("where", self.where), ("do", self.remedy)]
        return [(label, text) for label, text in pairs if text]

    def lines(self) -> Iterator[str]:
        """The finding as plain text: one line, and one for each detail."""
        yield f"{self.status:<{_STATUS_WIDTH}}  {self.rule:<{_RULE_WIDTH}} {self.sentence}"
        margin = " " * (_STATUS_WIDTH + 2 + _RULE_WIDTH + 1)
        for label, text in self.details:
            yield f"{margin}{label + ':':<10}{text}"


def holds(sentence: str) -> Finding:
    return Finding("", "pass", sentence)


def absent(reason: str) -> Finding:
    """The environment lacks what the rule is about, or the rule was not asked for."""
    return Finding("", "not applicable", reason)


def unchecked(reason: str) -> Finding:
    """The rule applies, but the environment broke before it could be looked at."""
    return Finding("", "not checked", reason)


def broken(sentence: str, *, expected: str, found: str, where: str = "", remedy: str) -> Finding:
    return Finding("", "broken", sentence, expected, cut(found, LONGEST_FOUND), cut(where, LONGEST_FOUND), remedy)


def doubtful(sentence: str, *, expected: str = "", found: str = "", where: str = "", remedy: str) -> Finding:
    """Something that a person should look at, and that may be as it should."""
    return Finding("", "warning", sentence, expected, cut(found, LONGEST_FOUND), cut(where, LONGEST_FOUND), remedy)


@dataclass(frozen=True, slots=True)
class Report:
    """All findings on one environment."""

    environment: str
    findings: tuple[Finding, ...]
    tasks: int
    episodes: int
    replies: int
    seconds: float

    @property
    def ok(self) -> bool:
        """No rule is broken, and each that applies was looked at. (Warnings are for people to look at.)"""
        return not any(finding.status in ("broken", "not checked") for finding in self.findings)

    @property
    def broken(self) -> tuple[str, ...]:
        """The names of the broken rules."""
        return tuple(finding.rule for finding in self.findings if finding.status == "broken")

    @property
    def total(self) -> str:
        """The last line: how many rules came to what, and what that rests on."""
        counts = {status: sum(finding.status == status for finding in self.findings) for status in STATUSES}
        said = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
        return (
            f"{self.environment}: {len(self.findings)} rules, {said}. {self.tasks:,} tasks, {self.episodes:,} "
            f"episodes, {self.replies:,} replies in {self.seconds:.1f} s."
        )

    def __str__(self) -> str:
        return "\n".join([*(line for finding in self.findings for line in finding.lines()), self.total])

    def to_json(self) -> dict[str, Any]:
        return {
            "environment": self.environment,
            "ok": self.ok,
            "tasks": self.tasks,
            "episodes": self.episodes,
            "replies": self.replies,
            "seconds": round(self.seconds, 3),
            "findings": [asdict(finding) for finding in self.findings],
        }

    def write_json(self) -> str:
        return json.dumps(self.to_json(), indent=2)


def shortened(text: str, most: int = 80) -> str:
    """`text` in quotes, escaped where a terminal might not show it, cut after `most` characters."""
    shown = text[:most].encode("unicode_escape").decode("ascii")
    return f'"{shown}"' if len(text) <= most else f'"{shown}..." ({len(text):,} characters)'


def in_words(value: object) -> str:
    """How Python writes a value, shortened. A value of an environment may have a way of its own, which may raise."""
    told = guarded_call(lambda: repr(value))
    return shortened(told.value) if isinstance(told, Answered) else f"a {type(value).__name__} that cannot be shown"


def parted(one: str, two: str) -> tuple[str, str]:
    """Two texts from a little before the place where they part, each shortened."""
    part = next(
        (at for at, pair in enumerate(zip(one, two, strict=False)) if pair[0] != pair[1]), min(len(one), len(two))
    )
    start = max(0, part - 30)
    return shortened(one[start:]), shortened(two[start:])


def seconds_text(seconds: float) -> str:
    """A duration with a unit that suits it."""
    if seconds < 0.0995:
        return f"{seconds * 1000:.2g} ms"
    return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
