"""Runs, studies and audits that are killed at any file operation: resumed, they leave the bytes of one that was not."""

from __future__ import annotations

import random
import signal
from collections import Counter
from collections.abc import Callable

import pytest

pytest.importorskip("transformers")

from folders import differences
from running import Bench
from subjects import SUBJECTS

KILLS = 50


def after_a_kill(bench: Bench, name: str, moment: int) -> str:
    """`equal`, or `named` where the resumed command ends in a sentence. Anything else fails."""
    folder, whole = bench.folder(name), bench.whole(name).folder
    killed = bench.start(name, folder, "kill", moment)
    if killed.code == 0:  # this time it had fewer file operations: a study writes as often as it has time to
        assert not differences(whole, folder)
        return "equal"
    assert killed.code == -signal.SIGKILL, killed.said
    resumed = bench.resume(name, folder)
    if resumed.code == 0:
        assert not differences(whole, folder), f"{name}, killed at {moment}"
        return "equal"
    assert resumed.sentence, f"{name}, killed at {moment}: {resumed.said}"
    return "named"


def killed(bench: Bench, name: str, count: int) -> Counter[str]:
    moments = random.Random(f"{name} {count}").choices(range(1, bench.whole(name).moments + 1), k=count)
    return Counter(after_a_kill(bench, name, moment) for moment in moments)


@pytest.mark.parametrize("name", ["ppo with a critic", "audit"])
def test_a_kill_costs_nothing(name: str, bench: Bench) -> None:
    assert killed(bench, name, 2)["equal"] >= 1


@pytest.mark.proof
@pytest.mark.parametrize("name", SUBJECTS)
def test_whatever_is_killed_goes_on_to_the_same_bytes_or_says_why_not(
    name: str, bench: Bench, record_property: Callable[[str, object], None]
) -> None:
    found = killed(bench, name, KILLS)
    record_property("cases", KILLS)
    record_property("found", f"{found['equal']} equal to the byte, {found['named']} ended in a sentence")
    assert found["equal"] >= KILLS * 3 // 4, "only a kill before the first file may have to begin again"
