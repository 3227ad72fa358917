"""Taking a command's own words off the command line before the rest goes to the configuration.

Promise: a word is taken off wherever it stands, `--name value` or `--name=value`, and given twice is an error.
"""

from __future__ import annotations

from collections.abc import Sequence


def take(argv: list[str], name: str) -> str | None:
    """Remove `--name VALUE` from `argv` and return VALUE; `None` where it was not given."""
    flag, found = f"--{name}", None
    index = 0
    while index < len(argv):
        word = argv[index]
        if word != flag and not word.startswith(f"{flag}="):
            index += 1
            continue
        if found is not None:
            raise ValueError(f"{flag} was given twice; give it once.")
        if "=" in word:
            found = word.partition("=")[2]
            del argv[index]
        elif index + 1 < len(argv) and not argv[index + 1].startswith("--"):
            found = argv[index + 1]
            del argv[index : index + 2]
        else:
            raise ValueError(f"{flag} expects a value, found none; write {flag} VALUE.")
    return found


def take_positional(argv: list[str]) -> str | None:
    """Remove the leading word that is no flag and return it."""
    return argv.pop(0) if argv and not argv[0].startswith("-") else None


def asks_for_help(argv: Sequence[str]) -> bool:
    return "--help" in argv or "-h" in argv
