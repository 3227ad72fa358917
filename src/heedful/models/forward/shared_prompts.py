"""Plans of micro-batches whose samples share a prompt, or the beginning of their prompts.

Every sample is in exactly one micro-batch. No micro-batch costs more tokens than the limit, unless a single sample
does. Torch-free.

The members of a group begin with the same prompt. It is computed once per micro-batch, and the gradients of all members
flow back through its KV cache. If replies are short compared to their prompts, this saves most of an update.

The prompts of all groups may begin with the same rules. This common beginning is computed once per micro-batch as well,
then each prompt behind it, then each row behind its prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from heedful.types import TrainingSample

WORTH = 16
"""Shorter prompts and beginnings are computed with their rows: a second pass would cost more than it saves."""
PASS = 100
"""What a forward and backward pass costs beside its tokens, in tokens, on a CPU."""
SAVED = 1 / 3
"""The least share of the tokens that a common beginning has to save. So small models stay on one path."""


@dataclass(frozen=True, slots=True)
class SharedPrompts:
    """The prompts that the rows of a micro-batch begin with. They have one length, and each is computed once.

    The last token of a prompt is not shared: every row computes it, to predict its first reply token.
    """

    length: int
    """Tokens of each shared prompt. The later tokens of a row are its own."""
    of_B: tuple[int, ...]
    """The prompt that each row begins with, counted from 0 in the order of their first rows."""
    beginning: int = 0
    """Tokens that all these prompts begin with. They are computed once, and every prompt continues behind them."""

    @property
    def first_rows(self) -> list[int]:
        """The first row that begins with each prompt."""
        return [self.of_B.index(prompt) for prompt in range(max(self.of_B) + 1)]


@dataclass(frozen=True, slots=True)
class Plan:
    """One micro-batch: indices of samples, and the prompts that they share."""

    places: tuple[int, ...]
    prompts: SharedPrompts | None
    cost: int
    """Tokens of the forward pass, padding included."""

    @property
    def passes(self) -> int:
        """Passes of the model: one over the rows, one over their prompts, and one over what all prompts begin with."""
        return 1 if self.prompts is None else 2 + (0 < self.prompts.beginning < self.prompts.length)


def cheapest_plans(
    samples: Sequence[TrainingSample], most_tokens: int, *, prompts: bool, beginning: bool, per_pass: int = PASS
) -> list[Plan]:
    """Micro-batches of at most `most_tokens` tokens each, the most expensive first.

    `prompts`: share whole prompts. `beginning`: share the beginning of different prompts too, if this saves at least a
    third of the tokens that would be computed otherwise. The rule keeps small models, whose prompts are short, on one
    path.

    `per_pass`: what a pass costs beside its tokens, in tokens. Where it costs more than on a CPU, the plans of the
    lowest sum are taken, those that share nothing among them.
    """
    plans = plan_micro_batches(samples, most_tokens, prompts, per_pass)
    if per_pass > PASS and (prompts or beginning):
        others = [plan_micro_batches(samples, most_tokens, False)]
        others += [plan_by_beginning(samples, most_tokens, per_pass)] if beginning else []
        return min(plans, *others, key=lambda found: sum(plan.cost + plan.passes * per_pass for plan in found))
    if not beginning:
        return plans
    shared = plan_by_beginning(samples, most_tokens)
    cost, shared_cost = (sum(plan.cost for plan in found) for found in (plans, shared))
    return shared if shared_cost <= (1 - SAVED) * cost else plans


def plan_micro_batches(
    samples: Sequence[TrainingSample], most_tokens: int, share: bool, per_pass: int = PASS
) -> list[Plan]:
    """Micro-batches of at most `most_tokens` tokens each, the most expensive first. `share`: share whole prompts."""
    places = list(range(len(samples)))
    if share:
        return _dearest_first(_behind(samples, places, 0, most_tokens, per_pass))
    return _dearest_first(_pack([places], _lengths(samples), 0, 0, most_tokens, per_pass))


def plan_by_beginning(samples: Sequence[TrainingSample], most_tokens: int, per_pass: int = PASS) -> list[Plan]:
    """Micro-batches of at most `most_tokens` tokens each, the most expensive first. Common beginnings are shared.

    Samples that begin with the same 16 ids share all that they have in common before their first trained token. Behind
    this beginning they share whole prompts too, if that costs fewer tokens. A sample that begins like no other one is
    read alone.
    """
    by_start: dict[tuple[int, ...], list[int]] = {}
    for place, sample in enumerate(samples):
        by_start.setdefault(_prompt(sample)[:WORTH], []).append(place)
    alone: list[int] = []
    plans: list[Plan] = []
    for start, places in by_start.items():
        if len(start) < WORTH or len(places) < 2:
            alone += places
            continue
        length = common_beginning([_prompt(samples[place]) for place in places])
        by_row = _pack([places], _lengths(samples), length, 0, most_tokens, per_pass)
        by_prompt = _behind(samples, places, length, most_tokens, per_pass)
        plans += min(by_row, by_prompt, key=lambda found: sum(plan.cost for plan in found))
    return _dearest_first([*plans, *_pack([sorted(alone)], _lengths(samples), 0, 0, most_tokens, per_pass)])


def _behind(
    samples: Sequence[TrainingSample], places: Sequence[int], beginning: int, most_tokens: int, per_pass: int
) -> list[Plan]:
    """Plans for the samples at `places`, in which whole prompts are shared. All begin with `beginning` equal tokens."""
    by_prompt: dict[tuple[int, ...], list[int]] = {}
    for place in places:
        by_prompt.setdefault(_prompt(samples[place]), []).append(place)
    shared = {ids: members for ids, members in by_prompt.items() if len(ids) - beginning >= WORTH and len(members) > 1}
    plans: list[Plan] = []
    for length in sorted({len(ids) for ids in shared}):
        groups = [members for ids, members in shared.items() if len(ids) == length]
        plans += _pack(groups, _lengths(samples), length, beginning, most_tokens, per_pass)
    together = {place for members in shared.values() for place in members}
    alone = [place for place in places if place not in together]
    return plans + _pack([alone], _lengths(samples), beginning, 0, most_tokens, per_pass)


def _dearest_first(plans: Sequence[Plan]) -> list[Plan]:
    return sorted(plans, key=lambda plan: -plan.cost)


def _lengths(samples: Sequence[TrainingSample]) -> list[int]:
    return [len(sample.ids) for sample in samples]


def _prompt(sample: TrainingSample) -> tuple[int, ...]:
    """The ids before the first trained token, without the last one of them."""
    return sample.ids[: max(0, sample.trained.index(True) - 1)] if True in sample.trained else ()


def common_beginning(rows: Sequence[tuple[int, ...]]) -> int:
    """The number of ids that all rows begin with."""
    first, last = min(rows), max(rows)  # in the order of ids, all others lie between these two
    return next(
        (place for place, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), len(first)
    )


def _pack(
    groups: Sequence[Sequence[int]],
    lengths: Sequence[int],
    prompt: int,
    beginning: int,
    most_tokens: int,
    per_pass: int,
) -> list[Plan]:
    """Plans for groups of rows, of the fewest tokens that cuts of the rows in the order of their lengths can give.

    Each group shares a prompt of `prompt` tokens. All prompts share their first `beginning` tokens. Members of one
    group may be in several micro-batches: rows of one length have no padding, and a prompt that is read again costs
    less.
    """
    number_of = {place: number for number, group in enumerate(groups) for place in group}
    rows = sorted(number_of, key=lambda place: (-lengths[place], number_of[place]))
    own = [lengths[place] - prompt for place in rows]
    numbers = [number_of[place] for place in rows]
    # Where nothing is read again, micro-batches are as full as they can be.
    if prompt:
        cuts = _cheapest(own, numbers, prompt - beginning, beginning, most_tokens, per_pass)
    else:
        cuts = _full(own, most_tokens)
    return [_plan(rows[cut], numbers[cut], lengths, prompt, beginning) for cut in cuts]


def _plan(places: Sequence[int], numbers: Sequence[int], lengths: Sequence[int], prompt: int, beginning: int) -> Plan:
    """One micro-batch of rows, longest first, of which those with the same number share a prompt."""
    found = {number: index for index, number in enumerate(dict.fromkeys(numbers))}
    shared = SharedPrompts(prompt, tuple(found[number] for number in numbers), beginning) if prompt else None
    own = lengths[places[0]] - prompt
    prompts = beginning + len(found) * (prompt - beginning) if prompt else 0
    return Plan(tuple(places), shared, prompts + len(places) * own)


def _full(own: Sequence[int], most_tokens: int) -> list[slice]:
    """Cuts of rows, longest first, each as large as `most_tokens` allows. The weights of seedlings depend on them."""
    cuts, start = [], 0
    for end in range(1, len(own) + 1):
        if end == len(own) or (end + 1 - start) * own[start] > most_tokens:
            cuts.append(slice(start, end))
            start = end
    return cuts


def _cheapest(
    own: Sequence[int], numbers: Sequence[int], prompt: int, beginning: int, most_tokens: int, per_pass: int
) -> list[slice]:
    """The cuts of rows, longest first, with the lowest sum of tokens. `per_pass` more count for each cut.

    A cut costs `beginning`, `prompt` for each distinct number in it, and its longest row for each of its rows.
    """
    own_B = np.asarray(own)
    distinct_B = np.zeros(len(own), dtype=np.int64)  # the distinct numbers between each row and the newest one
    best = np.zeros(len(own) + 1)  # the lowest cost of all rows before each row
    starts = [0] * len(own)  # where the last cut begins that ends at each row
    newest: dict[int, int] = {}
    first = 0  # cuts that begin earlier are too large, and stay so
    for end, number in enumerate(numbers):
        distinct_B[newest.get(number, -1) + 1 : end + 1] += 1
        newest[number] = end
        cost_B = (
            beginning
            + distinct_B[first : end + 1] * prompt
            + np.arange(end + 1 - first, 0, -1) * own_B[first : end + 1]
        )
        fits_B = cost_B <= most_tokens
        fits_B[-1] = True  # a single row cannot be split
        skipped = int(fits_B.argmax())
        whole_B = (best[first : end + 1] + cost_B)[skipped:]
        first += skipped
        place = int(whole_B.argmin())
        starts[end], best[end + 1] = first + place, whole_B[place] + per_pass
    cuts, stop = [], len(own)
    while stop:
        cuts.append(slice(starts[stop - 1], stop))
        stop = starts[stop - 1]
    return cuts[::-1]
