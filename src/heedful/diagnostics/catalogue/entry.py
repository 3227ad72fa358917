"""One metric, or one kind of metrics, as the catalogue describes it, and the names that it stands for."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, get_args

from heedful.diagnostics.catalogue.doubt import Doubt

Cadence = Literal["step", "measurement", "full measurement", "gradients", "evaluation", "once"]
"""When a metric is written: at every step, at every measurement of the thoughts (cheap or full), at full measurements
only, when gradients are measured, at every evaluation, or once in a run."""

Trend = Literal["higher", "lower"]

PARTS = {
    "bucket": r"all|bucket_\d+",
    "component": ".+",
    "environment": ".+",
    "k": r"\d+",
    "kind": "[^/]+",
    "p": "task|kl|entropy",
    "part": "task|task_undivided|task_divided|kl|entropy",
    "q": "kl|entropy",
    "reason": ".+",
    "regulariser": "kl|entropy",
    "scope": "(?:first_turn|any_turn|observation|image|image_newest|image_all|text)(?:_closed)?",
    "scorer": "[^/]+",
    "split": "[^/]+",
    "stage": "[^/]+",
}
"""A named part of a pattern -> the regular expression that it stands for."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What is known of one metric without any run."""

    pattern: str
    """The name. `<part>` stands for any text that `PARTS` allows, and `[...]` may be left out."""
    unit: str
    """`share` is a number from 0 to 1 that is drawn on an axis of shares; empty = no unit."""
    text: str
    """One sentence for a reader of a report."""
    detail: str = ""
    """The formula, and what a reader of the metrics page should know besides."""
    missing: str = ""
    """When the value is `None`."""
    collapse: Trend | None = None
    """Where a collapse of the reasoning should move the metric. Declared before the studies read any value, and not
    extended since. `None`: no direction was declared."""
    cadence: Cadence = "step"
    covers: str = ""
    """Where simulations put its 95% interval below 90% of the truths: the lowest share, and the case. Empty: nowhere.
    The source is the table of `docs/coverage.md`, and a test compares the two."""
    doubt: Doubt | None = None
    """The situation of a reading in which its interval has a mark. Given where `covers` is."""

    def __post_init__(self) -> None:
        if self.collapse not in (None, *get_args(Trend)) or self.cadence not in get_args(Cadence):
            raise ValueError(
                f"Expected a collapse of {', '.join(get_args(Trend))} or none, and a cadence of "
                f"{', '.join(get_args(Cadence))}; found {self.collapse!r} and {self.cadence!r} for {self.pattern!r}."
            )
        if bool(self.covers) != (self.doubt is not None):
            raise ValueError(
                f"Expected `Covers:` and `Marked:` together for {self.pattern!r}, found covers {self.covers!r} and "
                f"doubt {self.doubt!r}. Say both what its interval covers and which readings have the mark."
            )

    def stands_for(self, name: str) -> bool:
        """Whether `name` is a metric of this entry."""
        return _compiled(self.pattern).fullmatch(name) is not None


def read_entries(
    block: str, prefix: str = "", *, unit: str = "", missing: str = "", cadence: Cadence = "step"
) -> tuple[Entry, ...]:
    """The entries of a text in which a blank line separates one from the next.

    The first line of an entry is `name | unit | collapse`. The next lines are its text, which ends with the first
    sentence, and its detail. `Missing:`, `Cadence:`, `Covers:` and `Marked:` (the rule of `doubt`) begin what differs
    from the arguments. `prefix` is put before every name.

    Raises ValueError for a collapse, a cadence or a rule that does not exist.
    """
    found = []
    for paragraph in textwrap.dedent(block).strip().split("\n\n"):
        head, *lines = paragraph.splitlines()
        name, own_unit, collapse = (part.strip() for part in f"{head}||".split("|")[:3])
        prose, *labelled = re.split(" (Missing|Cadence|Covers|Marked): ", " ".join(lines))
        text, _, detail = prose.replace(". ", ".\n", 1).partition("\n")
        fields: dict[str, Any] = {"missing": missing, "cadence": cadence, "collapse": collapse or None}
        fields |= zip(map(str.lower, labelled[::2]), labelled[1::2], strict=True)
        rule = fields.pop("marked", "")
        fields["doubt"] = Doubt.read(rule) if rule else None
        found.append(Entry(prefix + name, own_unit or unit, text, detail, **fields))
    return tuple(found)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    found = ""
    for token in re.findall(r"<\w+>|\[|\]|[^<\[\]]+", pattern):
        if token in "[]":
            found += "(?:" if token == "[" else ")?"
        else:
            found += f"(?:{PARTS[token[1:-1]]})" if token.startswith("<") else re.escape(token)
    return re.compile(found)
