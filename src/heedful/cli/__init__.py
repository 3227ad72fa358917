"""The command line: `heedful train | eval | play | audit | watch | study | fork | gradients | envs | check-env`.

`heedful report` writes the page of a run again, `serve-env` plays an environment for others, `grow` gives a loaded
model its warm start, `doctor` shows what is installed, and `skill` prints the page for coding agents. Packages add
commands through the entry point `heedful.commands`.

An error that the user can fix ends in a sentence and exit code 2. Help loads no torch.

Exit codes: 0 done, 1 a run among several failed, a rule of check-env is broken or doctor found a fault, 2 bad input,
3 stopped by an alarm, or an alarm that `--fail-on` names was raised, 4 none of these could be judged, 130 interrupted
by Ctrl-C, 143 by SIGTERM, 138 by SIGUSR1, 129 by a closed terminal: saved, if the command can save. 141: the reader of
the output has ended.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Sequence

from heedful.boundary import complain, cut, tell
from heedful.boundary.registry import Registry
from heedful.command_process import prepare_streams, run_command
from heedful.version import __version__

__all__ = ["main", "prepare_streams", "run", "run_command"]

COMMANDS = {
    "train": ("train", "train an agent: rollouts, filter, update, diagnostics, report"),
    "grow": ("grow", "give a loaded model its warm start from an environment's demonstrations"),
    "eval": ("evaluate", "success of a run or a model on held-out tasks, with baselines"),
    "play": ("play", "play one episode yourself, or watch a model, the solver or a random policy"),
    "audit": ("audit", "measure logged rollouts: ours, TRL's, verl's, verifiers' or RAGEN's"),
    "watch": ("watch", "watch a run of any trainer that goes on, and tell of its alarms"),
    "study": ("study", "run a declared study: arms x seeds, tables with intervals, a page"),
    "gradients": ("gradients", "signal and noise of a run's gradient, by reward variance"),
    "fork": ("fork", "continue a run from before an alarm with one thing changed: the cause, and what would help"),
    "serve-env": ("serve_env", "serve an environment's episodes over HTTP, to be played as `remote`"),
    "envs": ("envs", "list the environments and presets"),
    "check-env": ("check_env", "play anyone's environment and say which rules of the contract it breaks"),
    "doctor": ("doctor", "what is installed, and what an inference server offers and lacks"),
    "report": ("report", "write the page of a run again, or compare runs"),
    "skill": ("skill", "print the page for coding agents that operate a run"),
}
"""Name -> its module in this package, with `main(argv) -> exit code`, and one line of help."""

ADDED = Registry("heedful.commands", {}, "command")
"""Commands that packages add: name -> `main(argv) -> exit code`, whose docstring begins with the line of help."""


KEPT = {
    "train": "if the run has a checkpoint, heedful train --resume RUN goes on from it",
    "grow": "what was saved of the warm start is safe, and the same command goes on",
    "fork": "what its forks have saved is safe, and the same command goes on",
    "study": "what its runs have saved is safe, and the same command goes on",
    "audit": "if a folder is named above, its steps are safe, and the same command with --out FOLDER goes on",
    "watch": "closed steps are safe, and the same command goes on",
    "eval --server": "if a folder is named above, its replies are safe, and the same command with --out FOLDER goes on",
}
"""Command -> what an interruption leaves."""


OVERVIEW = """\
heedful: train LLM agents with RL, and see when their reasoning stops depending on the input.

usage: heedful COMMAND ...

{}

`heedful COMMAND --help` explains a command. A first run: heedful train frozen_lake
Set HEEDFUL_TRACEBACK=1 to see where an error came from."""


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point of the `heedful` command."""
    prepare_streams()
    sys.exit(run(sys.argv[1:] if argv is None else list(argv)))


def run(argv: Sequence[str]) -> int:
    """Dispatch to a command. Returns the exit code."""
    name, *rest = argv or ["--help"]
    flags = {word.partition("=")[0] for word in rest}
    kept = "" if {"-h", "--help"} & flags else KEPT.get(f"{name} --server" if "--server" in flags else name, "")
    return run_command(lambda: _command(name, rest), kept)


def _command(name: str, rest: list[str]) -> int:
    """Do what the first word says. Returns the exit code."""
    if name in ("--help", "-h", "help"):
        help_of = {name: line for name, (_, line) in COMMANDS.items()}
        help_of |= {name: (inspect.getdoc(main) or "").partition("\n")[0] for name, main in ADDED.items()}
        width = max(map(len, help_of))
        tell(OVERVIEW.format("\n".join(f"  {name:<{width}}  {line}" for name, line in help_of.items())))
        return 0
    if name == "--version":
        tell(f"heedful {__version__}")
        return 0
    if name not in COMMANDS and name not in ADDED:
        known = ", ".join([*COMMANDS, *ADDED])
        complain(f"heedful: there is no command {cut(name, 100)!r}; expected one of {known}.")
        return 2
    if name != "train" and os.environ.get("WORLD_SIZE", "1") != "1" and "RANK" in os.environ:
        complain(
            f"heedful: only `heedful train` runs as several processes, found `heedful {name}` started by torchrun in "
            f"{os.environ['WORLD_SIZE']}; start it without."
        )
        return 2
    if name in COMMANDS:
        return int(importlib.import_module(f"{__name__}.{COMMANDS[name][0]}").main(rest))
    return int(ADDED[name](rest))
