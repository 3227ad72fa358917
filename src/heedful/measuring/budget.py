"""How much a measurement may read, and the sizes that fit: plain arithmetic on counts of tokens.

Promise: sizes depend on the lengths in the step and on the settings alone, never on a clock. So a resumed run measures
what the uninterrupted one did.

The unit is a token that one forward pass of the model reads. An update counts three: one forward, two backward.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from heedful.types import Group, Verdict

PASSES_OF_UPDATE = 3
"""A forward pass, and a backward pass of twice its cost."""

OBSERVATION, ANY_TURN, GROUNDING, FIRST_TURN = "observation", "any_turn", "grounding", "first_turn"
IMAGE, LATER_IMAGE, LATER_TURN = "image", "later_image", "later_turn"


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many thoughts and prompts each part of a measurement reads. 0 rows = the part is left out."""

    prompts: int
    """Groups whose first turns are read."""
    thoughts: int
    """Members of each of them."""
    any_turn: int = 0
    swapped_rows: int = 0
    swapped_columns: int = 0
    grounding_rows: int = 0
    grounding_columns: int = 0
    later_rows: int = 0
    image_rows: int = 0
    image_columns: int = 0
    later_image_rows: int = 0
    later_image_columns: int = 0


class Part(NamedTuple):
    """A part of a measurement, and how it is made smaller."""

    name: str
    knobs: Mapping[str, int]
    """Fields of `Sizes`, in the order in which they shrink, with the smallest value of each."""
    rows: str = ""
    """The field that is 0 where the part is left out. Empty: the part stays at its smallest sizes, at any cost."""


ORDER = (
    Part(LATER_IMAGE, {"later_image_rows": 8, "later_image_columns": 5}, "later_image_rows"),
    Part(OBSERVATION, {"swapped_rows": 8, "swapped_columns": 5}, "swapped_rows"),
    Part(ANY_TURN, {"any_turn": 16}, "any_turn"),
    Part(LATER_TURN, {"later_rows": 8}, "later_rows"),
    Part(GROUNDING, {"grounding_rows": 10, "grounding_columns": 5}, "grounding_rows"),
    Part(IMAGE, {"image_rows": 8, "image_columns": 5}, "image_rows"),
    Part(FIRST_TURN, {"thoughts": 2, "prompts": 10}),
)
"""The parts in the order in which they are thinned. Words come before all of them and are never given up: they are read
off the scores of first turns, so that giving them up would free no token.

The smallest sizes are what an interval needs. With 10 prompts every metric of first turns has one (`accuracy@8` is the
last), and entropies need 2 thoughts of a prompt. 16 drawn turns come from about 10 of 16 tasks, and intervals of
`any_turn` are over tasks. 5 observations, or pictures, are the fewest for the permutation test. 8 episodes are two
blocks of later turns, so that each may be left out. 5 prompts with 2 thoughts each give `grounding` a contrast within a
prompt and 5 clusters.
"""

Cost = Callable[[str, Sizes], int]
"""The tokens that a part, named as in `ORDER`, reads at some sizes."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """Sizes that fit, and what they cost."""

    sizes: Sizes
    tokens: int
    left_out: frozenset[str] = frozenset()
    """Parts that were asked for and do not fit at any size."""


def fit(asked: Sizes, cost: Cost, allowed: float) -> Fitted:
    """The largest sizes whose cost is at most `allowed` tokens: parts shrink one after the other, in `ORDER`.

    A part shrinks knob by knob, each to the largest value that fits. An optional part that does not fit at its smallest
    sizes is left out before the next part shrinks. First turns stay at their smallest sizes whatever they cost. A knob
    that was asked below its smallest size stays as it is. A part that costs nothing is never touched.
    """
    sizes = asked
    costs = {part.name: cost(part.name, sizes) for part in ORDER}
    left_out = set()
    for part in ORDER:
        room = allowed - (sum(costs.values()) - costs[part.name])
        if costs[part.name] <= room:
            break
        if not costs[part.name]:
            continue
        for knob, least in part.knobs.items():
            sizes, costs[part.name] = _shrunk(part.name, knob, least, sizes, cost, room)
            if costs[part.name] <= room:
                break
        if costs[part.name] > room and part.rows:
            sizes, costs[part.name] = replace(sizes, **{part.rows: 0}), 0
            left_out.add(part.name)
    return Fitted(sizes, sum(costs.values()), frozenset(left_out))


def _shrunk(part: str, knob: str, least: int, sizes: Sizes, cost: Cost, room: float) -> tuple[Sizes, int]:
    """The sizes with the largest value of `knob` that fits into `room`, or its smallest one, and the part's cost."""

    def at(value: int) -> tuple[Sizes, int]:
        smaller = replace(sizes, **{knob: value})
        return smaller, cost(part, smaller)

    over = getattr(sizes, knob)
    fits = min(least, over)
    found = at(fits)
    while over - fits > 1 and found[1] <= room:
        middle = (fits + over) // 2
        tried = at(middle)
        if tried[1] <= room:
            fits, found = middle, tried
        else:
            over = middle
    return found


def steps_paid_for(step: int, every: int, full_every: int, *, full: bool) -> float:
    """The number of steps whose share a measurement at this step may read.

    A cheap measurement pays for half of `every` steps. A full one pays for `full_every` steps less what the cheap ones
    before the next full one pay for. So both kinds together read at most the share. A full measurement ahead of time
    may read as much as a regular one, on top.
    """
    if not full:
        return every / 2
    begin = step - step % full_every
    cheap = (begin + full_every - 1) // every - begin // every
    return full_every - cheap * every / 2


def step_tokens(groups: Sequence[Group], verdicts: Sequence[Verdict]) -> int:
    """The tokens of collecting and of the update of these groups, whose verdicts are given in the same order.

    Collecting reads what was appended to each context, and what was sampled. Equal first prompts of a group are read
    once. An update reads the whole rows of the kept groups, once, and each token of them counts three times. Further
    epochs, a critic and a reference model are not counted.
    """
    total = 0
    for group, verdict in zip(groups, verdicts, strict=True):
        rows = again = 0
        seen: set[tuple[int, ...]] = set()
        for trajectory in group.trajectories:
            for number, turn in enumerate(trajectory.turns):
                prompt = turn.reply.prompt.ids
                rows += len(prompt) + len(turn.reply.ids)
                if number == 0:
                    again += len(prompt) if prompt in seen else 0
                    seen.add(prompt)
        total += rows - again + (PASSES_OF_UPDATE * rows if verdict.kept else 0)
    return total
