"""Runs a registered test, judges it by its rule, and writes what was found."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from research.rightness.figures import Result
from research.rightness.registered import TESTS, Registered

SMALL = 900
"""The seed of quick looks at the code. No test is judged on it."""


def run_test(number: int, out: Path, until: float, small: bool = False) -> str:
    """Run one test and write `test_<number>.json`; what came out, in a sentence.

    `until`: no training run begins after this time. `small`: a quick look with another seed.
    """
    registered = TESTS[number]
    seeds = (SMALL,) if small else registered.seeds
    result = _judged(number, seeds, out, until, small)
    return f"test {number}, {written(out / f'test_{number}.json', result, registered, seeds, small)}"


def written(path: Path, result: Result, registered: Registered, seeds: tuple[int, ...], small: bool) -> str:
    """Write a result with its rule; its title and verdict, in words."""
    path.parent.mkdir(parents=True, exist_ok=True)
    result.write(path, **asdict(registered), used_seeds=seeds, small=small)
    verdict = {True: "passed", False: "failed", None: "not judged"}[result.passed]
    return f"{registered.title}: {verdict}"


def _judged(number: int, seeds: tuple[int, ...], out: Path, until: float, small: bool) -> Result:
    """Each test loads what it needs, and mostly torch."""
    if number in (1, 2):
        from research.rightness.exact import bound, exact

        if number == 1:
            return exact(seeds[0], *((50, 4) if small else ()))
        return bound(seeds[0], *((50,) if small else ()))
    if number == 3:
        from research.rightness.planted import planted

        return planted(seeds[0], out / "planted", small)
    if number in (4, 7):
        from research.rightness.trained import alarmed, separated

        return (separated if number == 4 else alarmed)(seeds, out / "trained", until, small)
    if number == 5:
        from research.rightness.falls import fallen

        return fallen(seeds, out / "trained", out / "falls", until, small)
    if number == 6:
        from research.rightness.bypass import bypassed

        return bypassed(seeds, out / "bypass", small)
    if number == 8:
        from research.rightness.pretrained import pretrained

        return pretrained(seeds[0], out / "pretrained", small)
    from research.rightness.logs import logged

    return logged(seeds[0], SMALL if small else TESTS[3].seeds[0], out / "logs", small)
