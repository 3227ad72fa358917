"""Disks that are full or read-only, and clocks that jump: a run says so and goes on later, or does not notice."""

from __future__ import annotations

import os
import random
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("transformers")

from folders import differences
from running import Bench, Runner
from subjects import SUBJECTS

MOMENTS = 30
"""Moments of the proofs at which the disk is full, or the clock jumps."""


def after_a_full_disk(bench: Bench, name: str, moment: int) -> str:
    """`named and resumed`, `named` where nothing could be resumed, or `not noticed`."""
    folder, whole = bench.folder(name), bench.whole(name).folder
    full = bench.start(name, folder, "full", moment)
    if full.code == 0:
        assert not differences(whole, folder), f"{name}, full at {moment}"
        return "not noticed"
    assert full.sentence, f"{name}, full at {moment}: {full.said}"
    assert "full" in full.sentence or "No space left" in full.sentence, full.sentence
    resumed = bench.resume(name, folder)
    if resumed.code == 0:
        assert not differences(whole, folder), f"{name}, full at {moment}"
        return "named and resumed"
    assert resumed.sentence, f"{name}, full at {moment}: {resumed.said}"
    return "named"


def moments(bench: Bench, name: str, count: int) -> list[int]:
    return random.Random(f"disk {name}").choices(range(1, bench.whole(name).moments + 1), k=count)


def test_a_disk_that_fills_up_is_named_and_the_run_goes_on_when_there_is_room(bench: Bench) -> None:
    for moment in moments(bench, "ppo with a critic", 2):
        after_a_full_disk(bench, "ppo with a critic", moment)


@pytest.mark.proof
@pytest.mark.parametrize("name", ["echo", "audit"])
def test_a_disk_that_fills_up_at_any_moment_is_named(
    name: str, bench: Bench, record_property: Callable[[str, object], None]
) -> None:
    found = Counter(after_a_full_disk(bench, name, moment) for moment in moments(bench, name, MOMENTS))
    record_property("cases", MOMENTS)
    record_property("found", ", ".join(f"{count} {what}" for what, count in sorted(found.items())))


def clock_set_back(bench: Bench, name: str, count: int) -> None:
    for moment in moments(bench, name, count):
        folder = bench.folder(name)
        ended = bench.start(name, folder, "clock", moment)
        assert ended.code == 0, ended.said
        assert not differences(bench.whole(name).folder, folder), f"the clock jumped at {moment}"


def test_a_clock_that_is_set_back_changes_nothing(bench: Bench) -> None:
    clock_set_back(bench, "audit", 1)


@pytest.mark.proof
@pytest.mark.parametrize("name", ["echo", "audit"])
def test_a_clock_that_is_set_back_at_any_moment_changes_nothing(
    name: str, bench: Bench, record_property: Callable[[str, object], None]
) -> None:
    clock_set_back(bench, name, MOMENTS)
    record_property("cases", MOMENTS)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Mounts a small disk in memory, with options of `mount -o`. Only root can."""
    mounted: list[Path] = []

    def mount(options: str) -> Path:
        place = tmp_path / f"disk-{len(mounted)}"
        place.mkdir()
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], capture_output=True)
        if done.returncode:
            pytest.skip("only root can mount a disk")
        mounted.append(place)
        return place

    yield mount
    for place in mounted:
        subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can mount a disk")
def test_a_disk_too_small_for_a_run_is_named(bench: Bench, disk: Callable[[str], Path]) -> None:
    reference = bench.whole("ppo with a critic")
    place = disk("size=600k")
    ended = bench.start("ppo with a critic", place)
    assert "full" in ended.sentence or "No space left" in ended.sentence, ended.said
    subprocess.run(["mount", "-o", "remount,size=50m", str(place)], check=True)
    resumed = bench.resume("ppo with a critic", place)
    assert resumed.code == 0 or resumed.sentence, resumed.said
    assert resumed.code or not differences(reference.folder, place)


@pytest.mark.skipif(os.getuid() != 0, reason="root can write into any folder of another kind")
@pytest.mark.parametrize("name", ["echo", "audit"])
def test_a_folder_that_cannot_be_written_is_named(
    name: str, heedful: Runner, bench: Bench, disk: Callable[[str], Path]
) -> None:
    place = disk("size=1m")
    subprocess.run(["mount", "-o", "remount,ro", str(place)], check=True)
    arguments = SUBJECTS[name].start.replace("--out out", f"--out {place}/out").split()
    ended = heedful(arguments, bench.folder(name))
    assert "found a disk that can only be read" in ended.sentence, ended.said
