"""Runs, studies and audits that are killed at any file operation: resumed, they leave the bytes of one that was not."""

from __future__ import annotations

import random
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("transformers")

from faulty import Fault
from folders import differences
from running import Runner
from subjects import SUBJECTS, Whole

KILLS = 50


def after_a_kill(heedful: Runner, name: str, folder: Path, moment: int, whole: Path) -> str:
    """`equal`, or `named` where the resumed command ends in a sentence. Anything else fails."""
    killed = heedful(SUBJECTS[name].start.split(), folder, Fault("kill", moment, str(folder)))
    if killed.code == 0:  # this time it had fewer file operations: a study writes as often as it has time to
        assert not differences(whole, folder)
        return "equal"
    assert killed.code == -signal.SIGKILL, killed.said
    resumed = heedful(SUBJECTS[name].resume.split(), folder)
    if resumed.code == 0:
        assert not differences(whole, folder), f"{name}, killed at {moment}"
        return "equal"
    assert resumed.sentence, f"{name}, killed at {moment}: {resumed.said}"
    return "named"


def killed(
    heedful: Runner, name: str, count: int, prepare: Callable[[str], Path], whole: Callable[[str], Whole]
) -> Counter[str]:
    reference = whole(name)
    moments = random.Random(f"{name} {count}").choices(range(1, reference.moments + 1), k=count)
    return Counter(after_a_kill(heedful, name, prepare(name), moment, reference.folder) for moment in moments)


@pytest.mark.parametrize("name", ["ppo with a critic", "audit"])
def test_a_kill_costs_nothing(
    name: str, heedful: Runner, prepared: Callable[[str], Path], whole: Callable[[str], Whole]
) -> None:
    assert killed(heedful, name, 2, prepared, whole)["equal"] >= 1


@pytest.mark.proof
@pytest.mark.parametrize("name", SUBJECTS)
def test_whatever_is_killed_goes_on_to_the_same_bytes_or_says_why_not(
    name: str,
    heedful: Runner,
    prepared: Callable[[str], Path],
    whole: Callable[[str], Whole],
    record_property: Callable[[str, object], None],
) -> None:
    found = killed(heedful, name, KILLS, prepared, whole)
    record_property("cases", KILLS)
    record_property("found", f"{found['equal']} equal to the byte, {found['named']} ended in a sentence")
    assert found["equal"] >= KILLS * 3 // 4, "only a kill before the first file may have to begin again"
