"""Test 3: policies with a planted share of thoughts that carry nothing, or the wrong number. Test 9 reads them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import numpy as np
from annotated_types import Interval

from heedful.envs.common.actions import format_reply
from heedful.envs.common.demonstrations import played_through
from heedful.envs.toys.chain import Chain, ChainEpisode
from heedful.run.config import TrainConfig
from heedful.run.presets import preset
from heedful.seeds import derive
from heedful.types import Task
from research.detector.roc import Sample, area
from research.rightness.figures import Figure, Result, figure, once
from research.rightness.readings import BY_THOUGHT, GAP, MI, of_batches

Kind = Literal["template", "random", "too_high"]
KINDS: tuple[Kind, ...] = ("template", "random", "too_high")
SHARES = (0.25, 1.0)
READ = {"right_by_thought": BY_THOUGHT, "mutual information": MI, "gap per token": GAP}
STRAIGHT = 0.98
"""Smallest R^2 of a straight line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoiltChain(Chain):
    """Chain whose demonstrations copy the row, and in a share of turns fill in numbers that lead nowhere."""

    spoilt: Annotated[float, Interval(ge=0, le=1)] = 0.0
    """Share of demonstrated turns that are spoilt."""
    how: Literal["random", "too_high"] = "random"
    """random: every number is drawn. too_high: the last number is one more than the right one."""

    def demonstrate(self, task: Task, rng: random.Random) -> list[tuple[str, str]]:
        return played_through(self.episode(), task, lambda episode: self._filled_in(episode, rng))

    def _filled_in(self, episode: ChainEpisode, rng: random.Random) -> str:
        link = episode.link
        states = list(link.states)
        if rng.random() < self.spoilt:
            if self.how == "random":
                states = [rng.randrange(self.modulus) for _ in states]
            else:
                states[-1] = (states[-1] + 1) % self.modulus
        filled = (f"{operation}{after}" for operation, after in zip(link.operations, states, strict=True))
        return format_reply([str(states[-1])], "".join([str(link.start), *filled]))

    def episode(self) -> ChainEpisode:
        return ChainEpisode(cast(Any, self))


def policies(steps: int) -> Iterator[tuple[str, float, TrainConfig]]:
    """Kind, planted share and configuration of every policy. The one without anything planted is of all kinds."""
    base = preset("chain")
    for kind in ("none", *KINDS):
        for share in (0.0,) if kind == "none" else SHARES:
            seedling = replace(base.seedling, steps=steps, imperfect=0.0)
            env: Chain = SpoiltChain(instructions="brief")
            if kind == "template":
                env, seedling = Chain(instructions="brief"), replace(seedling, template=share)
            elif kind != "none":
                env = SpoiltChain(instructions="brief", spoilt=share, how=cast(Any, kind))
            yield kind, share, replace(base, env=env, seedling=seedling)


def planted(seed: int, folder: Path, small: bool = False) -> Result:
    """Test 3. Each policy is a seedling of its own. What is measured of it is stored as soon as it is."""
    batches = 2 if small else 6
    stored: dict[str, dict[float, list[dict[str, float]]]] = {kind: {} for kind in ("none", *KINDS)}
    for number, (kind, share, config) in enumerate(policies(30 if small else 100)):
        config = replace(config, seedling=replace(config.seedling, seed=derive(seed, "seedling", number) % 2**31))
        path = folder / f"{kind}_{round(100 * share):03d}.json"
        drawn = [derive(seed, "batch", number, batch) for batch in range(batches)]
        stored[kind][share] = once(path, partial(of_batches, config, drawn))
    return _judged({kind: {**stored["none"], **stored[kind]} for kind in KINDS})


Batches = Sequence[Mapping[str, float]]


def _judged(found: Mapping[str, Mapping[float, Batches]]) -> Result:
    figures: list[Figure] = []
    holds = []
    for kind, by_share in found.items():
        for title, metric in READ.items():
            means = {share: float(np.mean([each[metric] for each in its])) for share, its in by_share.items()}
            straight = r_squared(list(means), list(means.values()))
            shown = ", ".join(f"{share:g}: {mean:.3f}" for share, mean in sorted(means.items()))
            figures.append(figure(f"{kind}: {title}, R^2 over the share", straight, len(means), shown))
            some, none = (Sample(tuple(each[metric] for each in by_share[share])) for share in (0.25, 0.0))
            apart = area(some, none, direction="lower")
            ends = (None, None) if apart.interval is None else apart.interval
            figures.append(Figure(f"{kind}: {title}, area at .25 against none", apart.value, apart.collapsed, *ends))
            if metric == BY_THOUGHT:
                holds += [straight >= STRAIGHT, apart.value >= 0.95]
            elif metric == MI:
                holds.append((straight >= STRAIGHT) == (kind == "template"))
            if metric != BY_THOUGHT and kind != "template":
                holds.append(apart.value <= 0.65)
    return Result(all(holds), figures)


def r_squared(x_N: Sequence[float], y_N: Sequence[float]) -> float:
    """The share of y's variance that a straight line in x explains."""
    return float(np.corrcoef(x_N, y_N)[0, 1] ** 2) if np.std(y_N) > 0 else 0.0
