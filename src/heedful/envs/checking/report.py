"""The result of a check of an environment: one finding per rule, in sentences.

A broken rule says what was expected, what was found, where, and what to do. Text of an environment is shortened and
escaped, so that no control character reaches a terminal.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

Status = Literal["pass", "broken", "not checked", "not applicable"]

_STATUS_WIDTH = max(map(len, get_args(Status)))
_RULE_WIDTH = 15


class Breach(Exception):
    """Raised by a rule that is broken. What is `expected` and the `remedy` are those of the rule unless given."""

    def __init__(self, sentence: str, found: str, where: str = "", expected: str = "", remedy: str = "") -> None:
        super().__init__(sentence)
        self.sentence, self.found, self.where = sentence, found, where
        self.expected, self.remedy = expected, remedy


class Unchecked(Exception):
    """Raised by a rule that applies, but could not be looked at since the environment broke before."""


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

    def lines(self) -> Iterator[str]:
        """The finding as plain text: one line, and one for each detail."""
        yield f"{self.status:<{_STATUS_WIDTH}}  {self.rule:<{_RULE_WIDTH}} {self.sentence}"
        margin = " " * (_STATUS_WIDTH + 2 + _RULE_WIDTH + 1)
        pairs = [("expected", self.expected), ("found", self.found), ("where", self.where), ("do", self.remedy)]
        yield from (f"{margin}{label + ':':<10}{text}" for label, text in pairs if text)


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
        """No rule is broken, and each that applies was looked at."""
        return not any(finding.status in ("broken", "not checked") for finding in self.findings)

    @property
    def broken(self) -> tuple[str, ...]:
        """The names of the broken rules."""
        return tuple(finding.rule for finding in self.findings if finding.status == "broken")

    @property
    def total(self) -> str:
        """The last line: how many rules came to what, and what that rests on."""
        counts = {status: sum(finding.status == status for finding in self.findings) for status in get_args(Status)}
        said = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
        return (
            f"{self.environment}: {len(self.findings)} rules, {said}. {self.tasks:,} tasks, {self.episodes:,} "
            f"episodes, {self.replies:,} replies in {self.seconds:.1f} s."
        )

    def __str__(self) -> str:
        return "\n".join([*(line for finding in self.findings for line in finding.lines()), self.total])

    def write_json(self) -> str:
        tree: dict[str, Any] = asdict(self) | {"ok": self.ok, "seconds": round(self.seconds, 3)}
        return json.dumps(tree, indent=2)


def shortened(text: str, most: int = 80, quotes: str = '"') -> str:
    """`text` in quotes, escaped where a terminal might not show it, cut after `most` characters."""
    told = text[:most].encode("unicode_escape").decode("ascii")
    return quotes + told + quotes if len(text) <= most else f"{quotes}{told}...{quotes} ({len(text):,} characters)"


def parted(one: str, two: str) -> tuple[str, str]:
    """Two texts from a little before the place where they part, each shortened."""
    pairs = enumerate(zip(one, two, strict=False))
    part = next((at for at, (left, right) in pairs if left != right), min(len(one), len(two)))
    start = max(0, part - 30)
    return shortened(one[start:]), shortened(two[start:])
