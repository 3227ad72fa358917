"""Correlations of readings that come in runs, with intervals from a bootstrap that draws whole sets of runs.

Readings of one run are never counted as independent, and neither are runs of one set: runs of one environment and seed
meet the same tasks at the same steps. Runs of one environment form a stratum: strata differ in the scale of every
metric, so readings are compared within a stratum.
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

from heedful.diagnostics.statistics.intervals import LEVEL

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

Kind = Literal["all", "within", "beyond", "between"]
"""all = every reading of every run at once, whatever run and environment it comes from. within = deviations from the
run's own mean. beyond = the same, and from the mean of all runs of the stratum at the same step: what is left when the
course of training is gone. between = one row per run, compared with the runs of the same stratum."""
Method = Literal["spearman", "pearson"]
METHODS: tuple[Method, ...] = ("spearman", "pearson")

DRAWS = 1000
"""Draws of the bootstrap."""

FEWEST_SETS = 2
"""Sets, beyond the strata, that an interval needs."""

FEWEST_TOGETHER = 3
"""Runs of a stratum, for `beyond` and `between`. Of two the deviations from their mean are mirrored: one reading,
counted twice, and a correlation of 1 or -1 whatever the readings are."""

_ROUNDS = 50
"""Most rounds in which means of runs and of steps are taken out in turn. Runs that all have the same steps need one."""

_CLOSEST = 1 - 1e-9

_ROUNDING = 1e-9
"""A spread over draws below this is one of rounding: so few runs that all agree say nothing of others."""


@dataclass(frozen=True, slots=True)
class Correlation:
    """One correlation, and how much it rests on."""

    value: float | None
    low: float | None
    high: float | None
    readings: int
    runs: int
    sets: int = 0
    """Sets that were drawn from: what the interval rests on."""
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
    set_U: Ints
    """For each run, the number of its set. All runs of a set are of one stratum."""
    step_N: Floats


def correlation(
    readings: Readings, kind: Kind, method: Method, seed: int = 0, draws: int = DRAWS, least: int = 2
) -> Correlation:
    """The correlation of the first two columns, given the third one if there is one.

    Spearman's is Pearson's of ranks (within the stratum, unless all readings are taken at once). Within and between
    runs each stratum is scaled to the same spread, so none counts more because its numbers are larger. `least`: runs
    with fewer readings are left out within runs.

    The interval is on the scale of Fisher's z: the standard deviation over draws of whole sets within their strata,
    times Student's t with one degree of freedom per set beyond the strata. Source: repeated-measures correlation,
    Bakdash and Marusich 2017, for `within`; bootstrap of clusters, Field and Welsh 2007.
    """
    readings = _one_per_run(readings) if kind == "between" else readings
    found = _present(
        readings, least if kind in ("within", "beyond") else 1, FEWEST_TOGETHER if kind in ("beyond", "between") else 1
    )
    values_NK, run_N, stratum_U = found.values_NK, found.run_N, found.stratum_U
    sets, set_U = np.unique(found.set_U, return_inverse=True)
    counts = len(values_NK), len(stratum_U), len(sets)
    if counts[1] < 2 or counts[0] < 3:
        few = f"fewer than {'three' if kind in ('beyond', 'between') else 'two'} runs with readings enough of both"
        return Correlation(None, None, None, *counts, why=few)
    stratum_N = np.zeros_like(run_N) if kind == "all" else stratum_U[run_N]
    if method == "spearman":
        values_NK = _by(stratum_N, values_NK, lambda part: rankdata(part, axis=0) / len(part))
    if kind == "within":
        values_NK = _without_means(values_NK, run_N)
    if kind == "beyond":
        values_NK = _without_course(values_NK, run_N, stratum_N, found.step_N)
    values_NK = _by(stratum_N, values_NK, _scaled)
    stratum_S = np.zeros(len(sets), dtype=np.int64)
    stratum_S[set_U] = stratum_U
    products_SKK, sums_SK, count_S = _moments(values_NK, set_U[run_N], len(sets))
    cells = {"all": np.zeros_like(stratum_S), "between": stratum_S}.get(kind)
    value = float(_correlations(np.ones((1, len(sets))), products_SKK, sums_SK, count_S, cells)[0])
    if math.isnan(value):
        return Correlation(None, None, None, *counts, why="one of the two does not vary")
    beyond = len(sets) - len(np.unique(stratum_S))
    if beyond < FEWEST_SETS:
        return Correlation(value, None, None, *counts, why="no interval: too few seeds")
    weights_BS = _draws(stratum_S, draws, np.random.default_rng(seed))
    drawn_B = _correlations(weights_BS, products_SKK, sums_SK, count_S, cells)
    spread = float(np.nanstd(np.arctanh(np.clip(drawn_B, -_CLOSEST, _CLOSEST)), ddof=1))
    if spread < _ROUNDING:
        return Correlation(value, None, None, *counts, why="no interval: every draw of the runs gives the same value")
    half = float(stdtrit(beyond, (1 + LEVEL) / 2)) * spread * math.sqrt(len(sets) / beyond)
    centre = math.atanh(max(-_CLOSEST, min(_CLOSEST, value)))
    return Correlation(value, math.tanh(centre - half), math.tanh(centre + half), *counts)


def _present(readings: Readings, least: int, together: int) -> Readings:
    """Rows without a gap, of runs with `least` of them and more, in strata of `together` such runs, renumbered."""
    known_N = ~np.isnan(readings.values_NK).any(axis=1)
    counts_U = np.bincount(readings.run_N[known_N], minlength=len(readings.stratum_U))
    kept_U = counts_U >= least
    strata, runs_S = np.unique(readings.stratum_U[kept_U], return_counts=True)
    kept_U &= np.isin(readings.stratum_U, strata[runs_S >= together])
    kept_N = known_N & kept_U[readings.run_N]
    runs = np.flatnonzero(kept_U)
    return Readings(
        readings.values_NK[kept_N].astype(np.float64),
        np.searchsorted(runs, readings.run_N[kept_N]),
        readings.stratum_U[runs],
        readings.set_U[runs],
        readings.step_N[kept_N],
    )


def _one_per_run(readings: Readings) -> Readings:
    """The mean of each run's rows; runs without any are left out."""
    values, runs = [], []
    for run in range(len(readings.stratum_U)):
        rows = readings.values_NK[readings.run_N == run]
        rows = rows[~np.isnan(rows).any(axis=1)]
        if len(rows):
            values.append(rows.mean(axis=0))
            runs.append(run)
    kept = np.array(values, dtype=np.float64).reshape(len(runs), readings.values_NK.shape[1])
    return Readings(kept, np.arange(len(kept)), readings.stratum_U[runs], readings.set_U[runs], np.zeros(len(kept)))


def _without_course(values_NK: Floats, run_N: Ints, stratum_N: Ints, step_N: Floats) -> Floats:
    """Deviations from the run's mean and from the mean of the stratum's runs at the same step; rounding becomes 0."""
    _, place_N = np.unique(np.stack([stratum_N, step_N]), axis=1, return_inverse=True)
    rest_NK = values_NK
    for _ in range(_ROUNDS):
        before_NK = rest_NK
        rest_NK = _without_means(_without_means(rest_NK, run_N), place_N.reshape(-1))
        if np.allclose(before_NK, rest_NK, rtol=0, atol=1e-12):
            break
    rounding_K = 1e-9 * np.abs(values_NK).max(axis=0, initial=0.0)
    return np.where(np.abs(rest_NK) > rounding_K, rest_NK, 0.0)


def _without_means(values_NK: Floats, name_N: Ints) -> Floats:
    """Deviations from the mean of the rows of the same name; names are numbers from 0."""
    sums = np.zeros((int(name_N.max()) + 1, values_NK.shape[1]))
    np.add.at(sums, name_N, values_NK)
    deviations: Floats = values_NK - (sums / np.maximum(np.bincount(name_N), 1)[:, None])[name_N]
    return deviations


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


def _moments(values_NK: Floats, set_N: Ints, sets: int) -> tuple[Floats, Floats, Floats]:
    """For each set the sums of products and of values, and the number of readings."""
    columns = values_NK.shape[1]
    products_SKK, sums_SK = np.zeros((sets, columns, columns)), np.zeros((sets, columns))
    np.add.at(products_SKK, set_N, values_NK[:, :, None] * values_NK[:, None, :])
    np.add.at(sums_SK, set_N, values_NK)
    return products_SKK, sums_SK, np.bincount(set_N, minlength=sets).astype(np.float64)


def _correlations(
    weights_BS: Floats, products_SKK: Floats, sums_SK: Floats, count_S: Floats, cell_S: Ints | None
) -> Floats:
    """The correlation under each draw's weights; NaN where one side does not vary. Means are taken by cell."""
    products_BKK = np.einsum("bs,skl->bkl", weights_BS, products_SKK)
    for cell in () if cell_S is None else np.unique(cell_S):
        inside_BS = weights_BS[:, cell_S == cell]
        sums_BK, count_B = inside_BS @ sums_SK[cell_S == cell], inside_BS @ count_S[cell_S == cell]
        products_BKK = products_BKK - sums_BK[:, :, None] * sums_BK[:, None, :] / np.maximum(count_B, 1)[:, None, None]
    size_BK = np.sqrt(np.einsum("bkk->bk", products_BKK).clip(0))
    known_B = (size_BK > 1e-9 * np.sqrt(count_S.sum())).all(axis=1)
    scale_BKK = np.where(known_B[:, None, None], size_BK[:, :, None] * size_BK[:, None, :], np.nan)
    r_BKK = (products_BKK / scale_BKK).clip(-1, 1)
    if r_BKK.shape[1] == 2:
        return r_BKK[:, 0, 1]
    lost_B = np.sqrt((1 - r_BKK[:, 0, 2] ** 2) * (1 - r_BKK[:, 1, 2] ** 2))
    partial_B = (r_BKK[:, 0, 1] - r_BKK[:, 0, 2] * r_BKK[:, 1, 2]) / np.where(lost_B > 1e-9, lost_B, np.nan)
    return partial_B.clip(-1, 1)


def _draws(stratum_S: Ints, draws: int, rng: np.random.Generator) -> Floats:
    """How often each set is drawn, `[draws, sets]`: as many sets of each stratum as it has."""
    weights_BS = np.zeros((draws, len(stratum_S)))
    for stratum in np.unique(stratum_S):
        members = np.flatnonzero(stratum_S == stratum)
        shares = np.full(len(members), 1 / len(members))
        weights_BS[:, members] = rng.multinomial(len(members), shares, size=draws)
    return weights_BS
