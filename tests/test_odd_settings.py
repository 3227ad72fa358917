"""Settings that no part can work with are refused where they are made, and not where a library first computes with them."""

import math
from collections.abc import Callable

import pytest

from heedful.inference import Draw, Limits, read_key
from heedful.models import Tags
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
