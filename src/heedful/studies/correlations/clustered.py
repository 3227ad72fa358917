"""Correlations of readings that come in runs, with intervals from a bootstrap that draws whole runs.

Readings of one run are never counted as independent. Runs of one environment form a stratum: strata differ in the scale
of every metric, so readings are compared within a stratum.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit
from scipy.stats import rankdata

from heedful.statistics.intervals import LEVEL

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

Kind = Literal["all", "within", "between"]
"""all = every reading of every run at once, whatever run and environment it comes from. within = deviations from the
run's own mean. between = one row per run, compared with the runs of the same stratum."""
Method = Literal["spearman", "pearson"]
METHODS: tuple[Method, ...] = ("spearman", "pearson")

DRAWS = 1000
"""Draws of the bootstrap."""

FEWEST_RUNS = 4
"""Runs, beyond the strata, that an interval needs."""

_CLOSEST = 1 - 1e-9


@dataclass(frozen=True, slots=True)
class Correlation:
    """One correlation, and how much it rests on."""

    value: float | None
    low: float | None
    high: float | None
    readings: int
    runs: int
    why: str = ""
    """Why there is no value, or no interval."""


@dataclass(frozen=True, slots=True)
class Readings:
    """N readings: x, y and perhaps what is held fixed, as columns; the run of each, and the stratum of each run."""

    values_NK: Floats
    run_N: Ints
    """Numbers from 0."""
    stratum_U: Ints
    """For each run, the number of its stratum."""


def correlation(readings: Readings, kind: Kind, method: Method, seed: int = 0, draws: int = DRAWS) -> Correlation:
    """The correlation of the first two columns, given the third one if there is one.

    Spearman's is Pearson's of ranks (within the stratum, unless all readings are taken at once). Within and between
    runs each stratum is scaled to the same spread, so none counts more because its numbers are larger.

    The interval is on the scale of Fisher's z: the standard deviation over draws of whole runs within their strata,
    times Student's t with one degree of freedom per run beyond the strata. Source: repeated-measures correlation,
    Bakdash and Marusich 2017, for `within`; bootstrap of clusters, Field and Welsh 2007.
    """
    readings = _one_per_run(readings) if kind == "between" else readings
    values_NK, run_N, stratum_U = _present(readings, least=2 if kind == "within" else 1)
    counts = len(values_NK), len(stratum_U)
    if counts[1] < 2 or counts[0] < 3:
        return Correlation(None, None, None, *counts, why="fewer than two runs with readings of both")
    stratum_N = np.zeros_like(run_N) if kind == "all" else stratum_U[run_N]
    if method == "spearman":
        values_NK = _by(stratum_N, values_NK, lambda part: rankdata(part, axis=0) / len(part))
    if kind == "within":
        values_NK = _by(run_N, values_NK, lambda part: part - part.mean(axis=0))
    if kind != "all":
        values_NK = _by(stratum_N, values_NK, _scaled)
    else:
        values_NK = _scaled(values_NK)
    products_UKK, sums_UK, count_U = _moments(values_NK, run_N, len(stratum_U))
    cell_U = None if kind == "within" else stratum_U if kind == "between" else np.zeros_like(stratum_U)
    value = float(_correlations(np.ones((1, len(stratum_U))), products_UKK, sums_UK, count_U, cell_U)[0])
    if math.isnan(value):
        return Correlation(None, None, None, *counts, why="one of the two does not vary")
    beyond = len(stratum_U) - len(np.unique(stratum_U))
    if beyond < FEWEST_RUNS:
        return Correlation(value, None, None, *counts, why="no interval: too few runs")
    weights_BU = _draws(stratum_U, draws, np.random.default_rng(seed))
    drawn_B = _correlations(weights_BU, products_UKK, sums_UK, count_U, cell_U)
    spread = float(np.nanstd(np.arctanh(np.clip(drawn_B, -_CLOSEST, _CLOSEST)), ddof=1))
    half = float(stdtrit(beyond, (1 + LEVEL) / 2)) * spread * math.sqrt(len(stratum_U) / beyond)
    centre = math.atanh(max(-_CLOSEST, min(_CLOSEST, value)))
    return Correlation(value, math.tanh(centre - half), math.tanh(centre + half), *counts)


def _present(readings: Readings, least: int) -> tuple[Floats, Ints, Ints]:
    """Rows without a gap, of runs with at least so many of them, renumbered."""
    known_N = ~np.isnan(readings.values_NK).any(axis=1)
    counts_U = np.bincount(readings.run_N[known_N], minlength=len(readings.stratum_U))
    kept_N = known_N & (counts_U[readings.run_N] >= least)
    runs = np.flatnonzero(counts_U >= least)
    return (
        readings.values_NK[kept_N].astype(np.float64),
        np.searchsorted(runs, readings.run_N[kept_N]),
        readings.stratum_U[runs],
    )


def _one_per_run(readings: Readings) -> Readings:
    """The mean of each run's rows; strata of a single run have nothing to compare and are left out."""
    values, runs = [], []
    for run in range(len(readings.stratum_U)):
        rows = readings.values_NK[readings.run_N == run]
        rows = rows[~np.isnan(rows).any(axis=1)]
        if len(rows):
            values.append(rows.mean(axis=0))
            runs.append(run)
    strata = readings.stratum_U[runs]
    several = np.isin(strata, [one for one in np.unique(strata) if (strata == one).sum() > 1])
    kept = np.array(values, dtype=np.float64).reshape(len(runs), readings.values_NK.shape[1])[several]
    return Readings(kept, np.arange(len(kept)), strata[several])


def _by(name_N: Ints, values_NK: Floats, change: Callable[[Floats], Floats]) -> Floats:
    """The values with each part, the rows of one name, changed by itself."""
    found = np.empty_like(values_NK)
    for name in np.unique(name_N):
        found[name_N == name] = change(values_NK[name_N == name])
    return found


def _scaled(values_NK: Floats) -> Floats:
    """Columns of mean 0 and spread 1; a column that does not vary becomes zeros."""
    centred = values_NK - values_NK.mean(axis=0)
    spread_K = centred.std(axis=0)
    varies_K = spread_K > 1e-12 * np.maximum(np.abs(values_NK).max(axis=0), 1e-300)
    return np.where(varies_K, centred / np.where(varies_K, spread_K, 1.0), 0.0)


def _moments(values_NK: Floats, run_N: Ints, runs: int) -> tuple[Floats, Floats, Floats]:
    """For each run the sums of products and of values, and the number of readings."""
    columns = values_NK.shape[1]
    products_UKK, sums_UK = np.zeros((runs, columns, columns)), np.zeros((runs, columns))
    np.add.at(products_UKK, run_N, values_NK[:, :, None] * values_NK[:, None, :])
    np.add.at(sums_UK, run_N, values_NK)
    return products_UKK, sums_UK, np.bincount(run_N, minlength=runs).astype(np.float64)


def _correlations(
    weights_BU: Floats, products_UKK: Floats, sums_UK: Floats, count_U: Floats, cell_U: Ints | None
) -> Floats:
    """The correlation under each draw's weights; NaN where one side does not vary. Means are taken by cell."""
    products_BKK = np.einsum("bu,ukl->bkl", weights_BU, products_UKK)
    for cell in () if cell_U is None else np.unique(cell_U):
        inside_BU = weights_BU[:, cell_U == cell]
        sums_BK, count_B = inside_BU @ sums_UK[cell_U == cell], inside_BU @ count_U[cell_U == cell]
        products_BKK = products_BKK - sums_BK[:, :, None] * sums_BK[:, None, :] / np.maximum(count_B, 1)[:, None, None]
    size_BK = np.sqrt(np.einsum("bkk->bk", products_BKK).clip(0))
    known_B = (size_BK > 1e-9 * np.sqrt(count_U.sum())).all(axis=1)
    scale_BKK = np.where(known_B[:, None, None], size_BK[:, :, None] * size_BK[:, None, :], np.nan)
    r_BKK = (products_BKK / scale_BKK).clip(-1, 1)
    if r_BKK.shape[1] == 2:
        return r_BKK[:, 0, 1]
    lost_B = np.sqrt((1 - r_BKK[:, 0, 2] ** 2) * (1 - r_BKK[:, 1, 2] ** 2))
    partial_B = (r_BKK[:, 0, 1] - r_BKK[:, 0, 2] * r_BKK[:, 1, 2]) / np.where(lost_B > 1e-9, lost_B, np.nan)
    return partial_B.clip(-1, 1)


def _draws(stratum_U: Ints, draws: int, rng: np.random.Generator) -> Floats:
    """How often each run is drawn, `[draws, runs]`: as many runs of each stratum as it has."""
    weights_BU = np.zeros((draws, len(stratum_U)))
    for stratum in np.unique(stratum_U):
        members = np.flatnonzero(stratum_U == stratum)
        shares = np.full(len(members), 1 / len(members))
        weights_BU[:, members] = rng.multinomial(len(members), shares, size=draws)
    return weights_BU
