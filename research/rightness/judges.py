"""Runs a registered test, judges it by its rule, and writes what was found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path

from research.rightness.figures import Result
from research.rightness.registered import TESTS

Judged = Callable[[tuple[int, ...], Path, float, bool], Result]


def _exact(seeds: tuple[int, ...], out: Path, until: float, small: bool) -> Result:
    from research.rightness.exact import exact

    return exact(seeds[0], *((50, 4) if small else ()))


def _bound(seeds: tuple[int, ...], out: Path, until: float, small: bool) -> Result:
    from research.rightness.exact import bound

    return bound(seeds[0], *((50,) if small else ()))


def _planted(seeds: tuple[int, ...], out: Path, until: float, small: bool) -> Result:
    from research.rightness.planted import planted

    return planted(seeds[0], out / "planted", small)


def _separated(seeds: tuple[int, ...], out: Path, until: float, small: bool) -> Result:
    from research.rightness.trained import separated

    return separated(seeds, out / "trained", until, small)


def _bypassed(seeds: tuple[int, ...], out: Path, until: float, small: bool) -> Result:
    from research.rightness.bypass import bypassed

    return bypassed(seeds, out / "bypass", small)


def _alarmed(seeds: tuple[int, ...], out: Path, until: float, small: bool) -> Result:
    from research.rightness.trained import alarmed

    return alarmed(seeds, out / "trained", until, small)


def _pretrained(seeds: tuple[int, ...], out: Path, until: float, small: bool) -> Result:
    from research.rightness.pretrained import pretrained

    return pretrained(seeds[0], out / "pretrained", small)


def _logged(seeds: tuple[int, ...], out: Path, until: float, small: bool) -> Result:
    from research.rightness.logs import logged

    return logged(seeds[0], SMALL if small else TESTS[3].seeds[0], out / "logs", small)


JUDGES: Mapping[int, Judged] = {
    1: _exact,
    2: _bound,
    3: _planted,
    4: _separated,
    6: _bypassed,
    7: _alarmed,
    8: _pretrained,
    9: _logged,
}
"""Test 5 is registered, and has no code yet."""

SMALL = 900
"""The seed of quick looks at the code. No test is judged on it."""


def run_test(number: int, out: Path, until: float, small: bool = False) -> str:
    """Run one test and write `test_<number>.json`; what came out, in a sentence.

    `until`: no training run begins after this time. `small`: a quick look with another seed.
    """
    if number not in JUDGES:
        return f"test {number} ({TESTS[number].title}): not run. {TESTS[number].size}"
    registered = TESTS[number]
    seeds = (SMALL,) if small else registered.seeds
    result = JUDGES[number](seeds, out, until, small)
    out.mkdir(parents=True, exist_ok=True)
    result.write(out / f"test_{number}.json", **asdict(registered), used_seeds=seeds, small=small)
    verdict = {True: "passed", False: "failed", None: "not judged"}[result.passed]
    return f"test {number} ({registered.title}): {verdict}"
