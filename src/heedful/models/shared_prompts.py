"""Plans of micro-batches whose samples share a prompt.

Every sample is in exactly one micro-batch. No micro-batch costs more tokens than the limit, unless a single sample
does. Torch-free.

The members of a group begin with the same prompt. It is computed once per micro-batch, and the gradients of all members
flow back through its KV cache. If replies are short compared to their prompts, this saves most of an update.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from heedful.types import TrainingSample

_WORTH = 16
"""Shorter prompts are computed with their rows: a second pass would cost more than it saves."""


@dataclass(frozen=True, slots=True)
class SharedPrompts:
    """The prompts that the rows of a micro-batch begin with. They have one length, and each is computed once.

    The last token of a prompt is not shared: every row computes it, to predict its first reply token.
    """

    length: int
    """Tokens of each shared prompt. The later tokens of a row are its own."""
    of_B: tuple[int, ...]
    """The prompt that each row begins with, counted from 0 in the order of their first rows."""

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


def plan_micro_batches(samples: Sequence[TrainingSample], most_tokens: int, share: bool) -> list[Plan]:
    """Micro-batches of at most `most_tokens` tokens each, the most expensive first. `share`: share prompts."""
    alone = list(range(len(samples)))
    plans: list[Plan] = []
    if share:
        by_prompt: dict[tuple[int, ...], list[int]] = {}
        for place, sample in enumerate(samples):
            by_prompt.setdefault(_prompt(sample), []).append(place)
        shared = {ids: places for ids, places in by_prompt.items() if len(ids) >= _WORTH and len(places) > 1}
        for length in sorted({len(ids) for ids in shared}):
            groups = [places for ids, places in shared.items() if len(ids) == length]
            plans += _pack(groups, [len(sample.ids) for sample in samples], length, most_tokens)
        together = {place for places in shared.values() for place in places}
        alone = [place for place in alone if place not in together]
    plans += _pack([alone], [len(sample.ids) for sample in samples], 0, most_tokens)
    return sorted(plans, key=lambda plan: -plan.cost)


def _prompt(sample: TrainingSample) -> tuple[int, ...]:
    """The ids before the first trained token, without the last one of them."""
    return sample.ids[: max(0, sample.trained.index(True) - 1)] if True in sample.trained else ()


def _pack(groups: Sequence[Sequence[int]], lengths: Sequence[int], prompt: int, most_tokens: int) -> list[Plan]:
    """Plans for groups of rows, longest rows first. Each group shares a prompt of `prompt` tokens."""
    ordered = sorted(
        ([*sorted(group, key=lambda place: -lengths[place])] for group in groups if group), key=lambda g: -lengths[g[0]]
    )
    plans: list[Plan] = []
    places: list[int] = []
    of: list[int] = []
    for number, group in enumerate(ordered):
        for place in group:
            cost = _cost([*places, place], len({*of, number}), lengths, prompt)
            if places and cost > most_tokens:
                plans.append(_plan(places, of, lengths, prompt))
                places, of = [], []
            places.append(place)
            of.append(number)
    return [*plans, _plan(places, of, lengths, prompt)] if places else plans


def _cost(places: Sequence[int], prompts: int, lengths: Sequence[int], prompt: int) -> int:
    return prompts * prompt + len(places) * (max(lengths[place] for place in places) - prompt)


def _plan(places: Sequence[int], of: Sequence[int], lengths: Sequence[int], prompt: int) -> Plan:
    numbers = {number: index for index, number in enumerate(dict.fromkeys(of))}
    cost = _cost(places, len(numbers), lengths, prompt)
    shared = SharedPrompts(prompt, tuple(numbers[number] for number in of)) if prompt else None
    return Plan(tuple(places), shared, cost)
