"""`heedful skill`: the page for coding agents that operate a run, with the tables of alarms and causes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from heedful.boundary import CommandLine, tell

PAGE = Path(__file__).parents[1] / "skill" / "SKILL.md"


@dataclass(frozen=True, slots=True)
class SkillWords:
    """Print a skill for coding agents: how to watch a run, what its alarms mean, and what to try.

    Give it to an agent as a file of its own, or name this command in the agent's instructions.

      heedful skill > SKILL.md
    """


def main(argv: list[str]) -> int:
    line = CommandLine(SkillWords, argv, "heedful skill")
    line.end()

    from heedful.diagnostics.alarms.causes import lists_of_causes

    tell("\n".join([PAGE.read_text(encoding="utf-8"), *lists_of_causes()]))
    return 0
