"""Settings that no part can work with are refused where they are made, and not where a library computes with them."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest

import heedful
from heedful.models import Tags
from heedful.policies import Sampling
from heedful.policies.servers import Draw, Limits, read_key
from heedful.run.config import TrainConfig
from heedful.seedlings.recipe import Seedling, WarmStart
from heedful.training import CriticConfig, LoraConfig, OptimizerConfig

HUGE = 10**400


@pytest.mark.parametrize("odd", [math.nan, math.inf, 1.5, HUGE, "x"])
@pytest.mark.parametrize(
    ("kind", "field"),
    [
        *((Seedling, name) for name in ("heads", "kv_heads", "context", "episodes", "steps")),
        *((WarmStart, name) for name in ("steps", "episodes")),
        *((CriticConfig, "warmup_steps"), (OptimizerConfig, "warmup_steps")),
        *((LoraConfig, "rank"), (LoraConfig, "alpha"), (Limits, "connections")),
    ],
)
def test_a_count_is_a_whole_number_that_can_be_reached(kind: Callable[..., object], field: str, odd: object) -> None:
    with pytest.raises(ValueError, match=field):
        kind(**{field: odd})


@pytest.mark.parametrize(
    ("make", "found"),
    [
        (lambda: OptimizerConfig(betas=()), "two betas"),  # type: ignore[arg-type]
        (lambda: OptimizerConfig(betas=(0.1, 0.2, 0.3)), "two betas"),  # type: ignore[arg-type]
        (lambda: OptimizerConfig(gradient_clip=HUGE), "gradient_clip"),
        (lambda: LoraConfig(targets=("",)), "at least one layer"),
        (lambda: WarmStart(micro_batch_tokens=math.nan), "micro_batch_tokens"),  # type: ignore[arg-type]
        (lambda: WarmStart(seed=math.nan), "warm_start.seed"),  # type: ignore[arg-type]
        (lambda: Seedling(seed=1.5), "seed"),  # type: ignore[arg-type]
        (lambda: Sampling(temperature=10**5000), "temperature must be a number of at most 4,200 digits"),
        (lambda: Sampling(tokens_per_turn=10**5000), "tokens_per_turn must be a number of at most 4,200 digits"),
        (lambda: TrainConfig(seed=10**5000), "seed must be a number of at most 4,200 digits"),
        (lambda: TrainConfig(seed=math.nan), "seed must be a whole number"),  # type: ignore[arg-type]
        (lambda: TrainConfig(collect=None), "as collect, found a NoneType"),  # type: ignore[arg-type]
        (lambda: TrainConfig(parallel=None), "as parallel, found a NoneType"),  # type: ignore[arg-type]
        (lambda: Limits(connections=0), "connections"),
        (lambda: Limits(timeout=0.0), "timeout"),
        (lambda: Limits(patience=math.nan), "patience"),
        (lambda: Limits(pause=-1.0), "pause"),
        (lambda: Draw(math.nan, False, 4, 0), "temperature"),
        (lambda: Draw(1.0, False, 0, 0), "tokens"),
        (lambda: Tags(open="<\ud800>"), "UTF-8"),
        (lambda: read_key("\ud800"), "environment variable"),
        (lambda: read_key("A=B"), "environment variable"),
        (lambda: read_key("A\0B"), "environment variable"),
    ],
)
def test_a_setting_that_cannot_be_is_named(make: Callable[[], object], found: str) -> None:
    with pytest.raises(ValueError, match=found):
        make()


def test_a_gradient_may_be_clipped_at_nothing() -> None:
    assert OptimizerConfig(gradient_clip=math.inf).gradient_clip == math.inf


@pytest.mark.parametrize("field", ["temperature", "micro_batch_tokens"])
@pytest.mark.parametrize("odd", [math.nan, math.inf, -1, HUGE])
def test_an_update_has_a_temperature_and_a_budget(field: str, odd: object) -> None:
    pytest.importorskip("torch")
    from heedful.training import UpdateSettings

    if (field, odd) == ("micro_batch_tokens", HUGE):
        return  # no batch reaches it
    with pytest.raises(ValueError, match=field):
        UpdateSettings(**{field: odd})  # type: ignore[arg-type]


def test_models_and_their_tokenizers_have_known_types_and_sizes() -> None:
    torch = pytest.importorskip("torch")
    from heedful.models import load_model, pick_device
    from heedful.scorers import HFScorer
    from heedful.seedlings import grow_tokenizer

    for make, found in (
        (lambda: load_model("nowhere", torch.device("cpu"), "float64"), "Expected a dtype of float32 or bfloat16"),
        (lambda: pick_device(3), "--device 3 was asked for"),  # type: ignore[arg-type]
        (lambda: grow_tokenizer(["a"], -1, 10, ["<a>"]), "vocabulary must be from 262"),
        (lambda: grow_tokenizer(["a"], 300, 0, ["<a>"]), "context must be from 1"),
        (lambda: HFScorer(None, max_tokens=math.nan), "must be a whole number"),  # type: ignore[arg-type]
        (lambda: HFScorer(None, method="fast"), "expects a method of auto"),  # type: ignore[arg-type]
    ):
        with pytest.raises(ValueError, match=found):
            make()


def test_a_change_of_a_run_is_a_configuration(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"Expected a heedful.TrainConfig as `changed`, found a dict"):
        heedful.resume(tmp_path, changed={})  # type: ignore[arg-type]
