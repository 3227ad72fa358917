import os
from pathlib import Path

import pytest

from heedful.run import presets
from heedful.run.presets import preset
from heedful.run.processor import physical_cores


@pytest.fixture
def four_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 4, 5}, raising=False)


def siblings(folder: Path, **lists: str) -> Path:
    for name, text in lists.items():
        topology = folder / name / "topology"
        topology.mkdir(parents=True)
        (topology / "thread_siblings_list").write_text(text + "\n")
    return folder


@pytest.mark.usefixtures("four_threads")
def test_two_threads_of_one_core_count_once(tmp_path: Path) -> None:
    system = siblings(tmp_path, cpu0="0,4", cpu1="1,5", cpu4="0,4", cpu5="1,5")
    assert physical_cores(system, {}) == 2


@pytest.mark.usefixtures("four_threads")
def test_every_thread_counts_where_the_system_does_not_say_more(tmp_path: Path) -> None:
    assert physical_cores(tmp_path, {}) == 4


@pytest.mark.usefixtures("four_threads")
@pytest.mark.parametrize(("ranks", "each"), [("2", 2), ("3", 1), ("9", 1), ("0", 4), ("many", 4)])
def test_the_ranks_of_a_machine_share_its_cores(tmp_path: Path, ranks: str, each: int) -> None:
    assert physical_cores(tmp_path, {"LOCAL_WORLD_SIZE": ranks}) == each


def test_a_loaded_model_computes_on_all_cores_and_a_seedling_on_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presets, "physical_cores", lambda: 6)
    assert preset("frozen_lake", "some/model").threads == 6
    assert preset("frozen_lake").threads == 1
    assert preset("frozen_lake", "seedling").threads == 1
