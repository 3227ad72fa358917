import os
from pathlib import Path

import pytest

from heedful.run import presets
from heedful.run.presets import multiplies_bfloat16, physical_cores, preset


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
@pytest.mark.parametrize(("ranks", "each"), [("2", 2), ("3", 1), ("9", 1)])
def test_the_ranks_of_a_machine_share_its_cores(tmp_path: Path, ranks: str, each: int) -> None:
    assert physical_cores(tmp_path, {"LOCAL_WORLD_SIZE": ranks}) == each


def test_a_loaded_model_computes_on_all_cores_and_a_seedling_on_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presets, "physical_cores", lambda: 6)
    assert preset("frozen_lake", "some/model").threads == 6
    assert preset("frozen_lake").threads == 1
    assert preset("frozen_lake", "seedling").threads == 1


@pytest.mark.parametrize(
    ("flags", "answer"),
    [("fpu avx512f avx512_bf16 amx_tile", True), ("fpu amx_bf16", True), ("fpu avx2 avx512f", False), ("", False)],
)
def test_bfloat16_is_known_by_the_flags_of_the_processor(tmp_path: Path, flags: str, answer: bool) -> None:
    description = tmp_path / "cpuinfo"
    description.write_text(f"processor\t: 0\nmodel name\t: avx512_bf16\nflags\t\t: {flags}\n")
    assert multiplies_bfloat16(description) is answer
    assert not multiplies_bfloat16(tmp_path / "missing")


@pytest.mark.parametrize(("supported", "dtype"), [(True, "bfloat16"), (False, "float32")])
def test_smollm2_is_trained_in_bfloat16_where_that_is_fast(
    monkeypatch: pytest.MonkeyPatch, supported: bool, dtype: str
) -> None:
    monkeypatch.setattr(presets, "multiplies_bfloat16", lambda: supported)
    config = preset("bandit", "smollm2")
    assert (config.dtype, config.env.thoughts, config.env.instructions) == (dtype, "english", "full")
    assert config.warm_start.steps > 0
    assert preset("bandit", "./smollm2").warm_start.steps == 0  # a folder of that name is another model


def test_gemma_is_taught_by_lora_since_its_embeddings_are_most_of_it() -> None:
    config = preset("bandit", "gemma3_270m")
    assert config.model == "gemma3_270m"
    assert config.warm_start.steps > 0
    assert config.lora == config.warm_start.lora
    assert config.lora.rank > 0
