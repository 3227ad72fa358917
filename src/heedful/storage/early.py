"""Early answers on disk: how right the first action is when a thought is cut. One JSON file for each evaluation."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from heedful.boundary.open_files import open_file
from heedful.storage.files import write_whole


@dataclass(frozen=True, slots=True)
class EarlyAnswer:
    """One thought that was ended early, at C places."""

    task: str
    """The id of the task."""
    prompt: str
    """The text of the prompt."""
    pieces_T: tuple[str, ...]
    """The tokens of the thought without its end, as text."""
    cuts_C: tuple[int, ...]
    """How many tokens are left at each place, ascending from none to all."""
    right_C: tuple[float, ...]
    """The probability of a right first action there."""
    likeliest_C: tuple[str, ...]
    """The likeliest of the batch's first actions there."""


def write_early(path: Path, answers: Sequence[EarlyAnswer]) -> None:
    """Write the early answers of one evaluation, in full or not at all."""
    write_whole(path, json.dumps([asdict(answer) for answer in answers], indent=1) + "\n")


def read_early(path: Path) -> tuple[EarlyAnswer, ...]:
    """What `write_early` wrote. Raises ValueError for another file."""
    try:
        with open_file(path) as file:
            trees = json.load(file)
        lists = ("pieces_T", "cuts_C", "right_C", "likeliest_C")
        return tuple(
            EarlyAnswer(tree["task"], tree["prompt"], *(tuple(tree[name]) for name in lists)) for tree in trees
        )
    except (TypeError, LookupError, ValueError) as error:
        raise ValueError(f"Expected early answers of heedful in {path}, found another file: {error}.") from error
