"""`heedful envs`: what there is to train in, and how to bring an environment of your own.

Promise: read off the registry and the presets, so that nothing listed is missing and nothing missing is listed.
"""

from __future__ import annotations

import inspect
from typing import Any

from heedful import envs
from heedful.cli.words import asks_for_help
from heedful.presets import PRESETS

HELP = """usage: heedful envs

List the environments (at their default knobs) and the presets that `heedful train` starts from.
`heedful play ENV --help` lists an environment's knobs; `heedful play ENV` plays it."""

OWN = """An environment of your own: a frozen dataclass whose fields are its knobs, named as module:Class,

  heedful play mygame:Maze --env.rooms 5        (with mygame.py in this folder)
  heedful check-env mygame:Maze                 (what is wrong with it, rule by rule)
  heedful train mygame:Maze --model Qwen/Qwen2.5-0.5B-Instruct

It needs `name`, `turns`, `task(seed)` and `make()` (heedful.protocols.EnvironmentFamily). With `actions` and
`actions_per_turn` it gets the random and the fixed baseline; with `demonstrate` a seedling can be grown for it."""


def main(argv: list[str]) -> int:
    if asks_for_help(argv):
        print(HELP)
        return 0
    if argv:
        found = " ".join(argv)
        raise ValueError(f"`heedful envs` takes no arguments, found {found}. For knobs: heedful play ENV --help.")
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("environment")
    table.add_column("turns x actions", justify="right")
    table.add_column("actions")
    table.add_column("task")
    for name in envs.REGISTRY:
        table.add_row(name, *_cells(envs.get(name)))
    console.print(table)
    presets = Table(box=None, header_style="bold", pad_edge=False)
    presets.add_column("preset")
    presets.add_column("heedful train PRESET")
    for name, make in PRESETS.items():
        presets.add_row(name, (inspect.getdoc(make) or "").partition("\n")[0])
    console.print()
    console.print(presets)
    console.print()
    console.print(OWN, markup=False, soft_wrap=True)
    return 0


def _cells(kind: type) -> tuple[str, str, str]:
    """Limits, actions and task at the default knobs; of an environment that needs something first, what it is."""
    try:
        family: Any = kind()
        actions = getattr(family, "actions", ())
        per_turn = family.actions_per_turn if actions else 1
        return f"{family.turns} x {per_turn}", ", ".join(actions) or "an answer in free text", family.summary
    except (ValueError, OSError, ImportError):
        # It cannot be had with defaults alone: a server that is not there, an extra that is not installed.
        return "", "", (inspect.getdoc(kind) or "").partition("\n")[0]
