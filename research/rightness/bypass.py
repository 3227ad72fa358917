"""Test 6: seedlings that were shown right answers behind template thoughts, so that they have to read the prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from heedful.run.presets import preset
from heedful.seeds import derive
from heedful.studies.paired import mean_over
from research.rightness.figures import Figure, Result, figure_of, once
from research.rightness.readings import RIGHT, of_batches


def bypassed(seeds: Sequence[int], folder: Path, small: bool = False) -> Result:
    """Test 6."""
    figures: list[Figure] = []
    holds: list[bool] = []
    for name in ("echo", "bandit"):
        config = preset(name)
        config = replace(
            config, seedling=replace(config.seedling, template=0.5, steps=40 if small else config.seedling.steps)
        )
        batches = []
        for seed in seeds:
            grown = replace(config, seedling=replace(config.seedling, seed=seed), threads=1)
            drawn = [derive(seed, "batch", batch) for batch in range(2)]
            batches += once(folder / f"{name}_{seed}.json", partial(of_batches, grown, drawn))
        means = {
            metric: mean_over(metric, [each[metric] for each in batches if each[metric] is not None])
            for metric in (*RIGHT[:5], "success")
        }
        figures += [figure_of(f"{name}: {metric}", mean) for metric, mean in means.items()]
        right, chance, prompt = (float(means[RIGHT[at]].value or 0.0) for at in (0, 1, 3))
        holds.append(prompt >= 0.5 * (right - chance) > 0)
    return Result(all(holds), figures)
