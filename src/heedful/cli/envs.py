"""`heedful envs`: the environments and presets, where they come from, and how to bring your own.

The list is read from the registry and the presets. Lines fit the terminal, or 80 columns without one.
"""

from __future__ import annotations

import importlib.util
import inspect
import shutil
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from heedful import envs
from heedful.boundary import CommandLine, tell
from heedful.protocols import Environment, ListsActions
from heedful.run.presets import PAPER, PRESETS

MOST_ACTIONS = 12
"""Most actions of an environment that are listed in full."""


@dataclass(frozen=True, slots=True)
class EnvironmentsWords:
    """List the environments at their default knobs, and the presets that `heedful train` starts from.

    Each environment is heedful's own or a library's. `heedful play ENV --help` lists the knobs of one, and
    `heedful play ENV` plays it.
    """


OWN = (
    "An environment of your own: a frozen dataclass whose fields are its knobs, named as module:Class,",
    "  heedful play mygame:Maze --env.rooms 5        (with mygame.py in this folder)",
    "  heedful check-env mygame:Maze                 (what is wrong with it, rule by rule)",
    "  heedful train mygame:Maze --model Qwen/Qwen2.5-0.5B-Instruct",
    "It needs `name`, `turns`, `task(seed)` and `episode()` (heedful.protocols.Environment). With `actions` and "
    "`actions_per_turn`, or `random_answer` and `blind_answers`, it gets the random and the fixed baseline; with "
    "`demonstrate` a seedling can be grown for it.",
)


def main(argv: list[str]) -> int:
    CommandLine(EnvironmentsWords, argv, "heedful envs").end()
    width = min(max(shutil.get_terminal_size().columns, 60), 120)
    of_libraries = [name for name, kind in envs.ENVIRONMENTS.items() if hasattr(kind, "package")]
    own = [name for name in envs.ENVIRONMENTS if name not in of_libraries]
    lines = ["Environments", *_table(((name, _told(name)) for name in own), width), ""]
    lines += ["Environments: of other libraries", *_table(((name, _told(name)) for name in of_libraries), width), ""]
    presets = ((name, (inspect.getdoc(make) or "").partition("\n")[0]) for name, make in PRESETS.items())
    lines += ["Presets: heedful train PRESET", *_table(presets, width), ""]
    rows: dict[str, list[str]] = {}
    for column, _, row in (name.removeprefix("paper/").partition("-") for name in PAPER):
        rows.setdefault(f"paper/ENV-{row}", []).append(column)
    table = _table(((name, f"ENV: {', '.join(columns)}.") for name, columns in rows.items()), width)
    lines += ["Presets: the main table of RAGEN-2 (none was run at this size)", *table, ""]
    for paragraph in OWN:
        lines += [paragraph] if paragraph.startswith(" ") else textwrap.wrap(paragraph, width)
    tell("\n".join(lines))
    return 0


def _told(name: str) -> str:
    """The summary, limits and actions of an environment, and whether its library is installed."""
    kind = envs.ENVIRONMENTS[name]
    package: str = getattr(kind, "package", "")
    try:
        env: Any = kind()
        if package and importlib.util.find_spec(package) is None:
            return f"{env.summary} Not installed: {envs.ENVIRONMENTS.how_to_install(name)}."
        installed = "Installed. " if package else ""
        return f"{env.summary} {installed}{_limits(env)}"
    except (ValueError, OSError):
        # Its defaults are not enough, for instance without a server.
        return (inspect.getdoc(kind) or "").partition("\n")[0]


def _limits(env: Environment) -> str:
    if not isinstance(env, ListsActions) or not env.actions:
        return f"{env.turns} x an answer in free text."
    actions = env.actions
    shown = ", ".join(actions if len(actions) <= MOST_ACTIONS else (*actions[:4], f"... ({len(actions)} in all)"))
    return f"{env.turns} x {env.actions_per_turn} of {shown}."


def _table(rows: Iterable[tuple[str, str]], width: int) -> list[str]:
    """Two columns. The second one is wrapped."""
    pairs = list(rows)
    indent = max(len(name) for name, _ in pairs) + 4
    lines = []
    for name, text in pairs:
        first, rest = f"  {name}".ljust(indent), " " * indent
        lines += textwrap.wrap(text, width, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False)
    return lines
