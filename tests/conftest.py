"""What the tests share: a cache of their own, a tokenizer, and a seedling that echoes about every second letter."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from heedful.envs.checking import replies
from heedful.envs.toys.echo import Echo
from heedful.policies.sampling import Sampling
from heedful.protocols import Environment
from heedful.run import presets
from heedful.run.config import DiagnosticsConfig, EvaluationConfig, TrainConfig
from heedful.run.evaluation import held_out
from heedful.seedlings.recipe import nano
from heedful.training.settings import OptimizerConfig
from heedful.types import Task

# Read when these packages are first imported: no test may reach the network, nor take a second core.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("OMP_NUM_THREADS", "1")

settings.register_profile(
    "any machine", deadline=None, derandomize=True, max_examples=20, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")
"""A busy machine is slow. It is no fault of what is tested. The examples are the same each time: a new one that fails
belongs to whoever looks for it with `--hypothesis-profile default`, which tries 100, and not to whoever changes
something else."""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Garbage is looked for among the objects of the tests. The million objects of imported modules are never freed.

    It is looked for more rarely than Python does: that saves a twentieth of the CPU time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(50_000, 20, 20)
        gc.enable()


SEEDLING = replace(nano(), hidden=96, layers=2, heads=2, kv_heads=1, ffn=192, steps=120, lr=4e-3, imperfect=0.3)
"""Seconds to grow. Sampled it solves about half of Echo, greedily all of it: something to learn, and quickly."""


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache of seedlings for all tests and all processes of pytest-xdist, so that each seedling is grown once."""
    place = tmp_path_factory.getbasetemp()
    found = (place.parent if "PYTEST_XDIST_WORKER" in os.environ else place) / "seedlings-of-all-tests"
    found.mkdir(exist_ok=True)
    return found


@pytest.fixture(scope="session", autouse=True)
def _own_cache(shared_cache: Path) -> Iterator[None]:
    """No test reads or writes the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEEDFUL_CACHE", str(shared_cache))
        yield


@pytest.fixture
def small_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For `heedful doctor`, which takes longer to read the sizes of this machine's caches than for all the rest."""
    for cache in ("XDG_CACHE_HOME", "HF_HOME", "HEEDFUL_VLLM_ENV"):
        monkeypatch.setenv(cache, str(tmp_path))


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    """Runs of loaded models take all cores. Here their threads would wait for each other, in all later tests, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(presets, "physical_cores", lambda: 1)
        yield


@pytest.fixture(autouse=True)
def _no_thread_more() -> Iterator[None]:
    """A test that sets more threads of torch names it as a fault of its own, and not of those after it."""
    yield
    torch = sys.modules.get("torch")
    most = int(os.environ["OMP_NUM_THREADS"])
    if torch is not None and torch.get_num_threads() > most:
        torch.set_num_threads(most)
        pytest.fail("this test leaves torch with more threads than it found: name --threads 1, or set it back")


@pytest.fixture(scope="session", autouse=True)
def _searched_once() -> Iterator[None]:
    """The best blind player of Echo is searched once: most runs of the tests play it, and each would search anew."""
    found: dict[tuple[Echo, tuple[str, ...]], tuple[str, ...]] = {}
    search = held_out.best_fixed_sequence

    def remembered(env: Environment, tasks: Sequence[Task]) -> tuple[str, ...]:
        if type(env) is not Echo:
            return search(env, tasks)
        key = (env, tuple(task.id for task in tasks))
        if key not in found:
            found[key] = search(env, tasks)
        return found[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(held_out, "best_fixed_sequence", remembered)
        yield


@pytest.fixture(scope="session", autouse=True)
def _short_hostile_replies() -> Iterator[None]:
    """A check of an environment plays 20,000 letters in place of a million, and 25 generated texts in place of 100.

    `make proofs` checks our environments at full size, and a test checks one with replies of a million letters.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replies, "HUGE", 20_000)
        patch.setattr(replies, "GENERATED", 25)
        yield


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    """A seedling's tokenizer, learned from demonstrations of Echo."""
    pytest.importorskip("transformers")
    from heedful.models.chat.replies import Tags
    from heedful.seedlings.tokenizer import grow_tokenizer
    from heedful.seeds import stream

    env, tags = Echo(instructions="brief"), Tags()
    rng = stream(0, "conftest")
    texts = [text for seed in range(100) for pair in env.demonstrate(env.task(seed), rng) for text in pair]
    return grow_tokenizer(texts, 320, 1024, [tags.open, tags.close, tags.answer_open, tags.answer_close])


@pytest.fixture(scope="session")
def echo_run(_own_cache: None) -> TrainConfig:
    """A small run on Echo whose seedling lies in the cache."""
    pytest.importorskip("transformers")
    from heedful.boundary import to_json
    from heedful.seedlings.grow import load_seedling

    config = TrainConfig(
        env=Echo(instructions="brief"),
        seedling=SEEDLING,
        steps=6,
        groups=4,
        group_size=4,
        sampling=Sampling(tokens_per_turn=24),
        optimizer=OptimizerConfig(lr=1e-3, warmup_steps=2),
        evaluation=EvaluationConfig(tasks=8, samples=2, times=3),
        diagnostics=DiagnosticsConfig(share=None, every=2, full_every=4),
        checkpoint_every=2,
    )
    load_seedling(config.seedling, config.env, to_json(config.env), config.tags, lambda step, steps, loss: None)
    return config


@pytest.fixture(scope="session")
def seedling_folder(echo_run: TrainConfig) -> Path:
    """The grown seedling as a model folder."""
    from heedful.boundary import to_json
    from heedful.seedlings.grow import seedling_path

    return seedling_path(echo_run.seedling, echo_run.env, to_json(echo_run.env), echo_run.tags)
