"""Scorer, sampler and learner on a tiny random model of each family, beyond its window, and the table of the docs."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from test_load import chatml_tokenizer, save  # noqa: E402
from transformers import CONFIG_MAPPING  # noqa: E402

from benchmarks.families import check as checks  # noqa: E402
from benchmarks.families.check import ALLOWED, PARTS, Found, check, largest, names  # noqa: E402
from benchmarks.families.models import FAMILIES, LONGER, built  # noqa: E402
from benchmarks.families.results import PAGE, STORED, rows_of, table, with_table  # noqa: E402
from heedful import cli  # noqa: E402
from heedful.models import carries_states  # noqa: E402
from heedful.storage import read_metrics  # noqa: E402

QUICK = ("mistral:80", "gpt_oss:80", "gemma3n_text", "llama4_text:80", "qwen3_next", "falcon_h1", "mamba2")
"""One of each kind of cache."""


def inexact(name: str, parts: Collection[str] = PARTS) -> list[str]:
    return [f"{part} {found}" for part, found in check(name, parts).items() if not found.exact]


@pytest.mark.parametrize("name", QUICK)
def test_gradients_are_those_of_plain_forward_passes(name: str) -> None:
    assert inexact(name, ("learner",)) == []


@pytest.mark.parametrize("name", ["llama4_text:80", "falcon_h1"])
def test_samples_are_those_of_plain_forward_passes(name: str) -> None:
    """tests/policies/test_next_logits.py samples from the other kinds."""
    assert inexact(name, ("sampler",)) == []


@pytest.mark.proof
@pytest.mark.parametrize("name", names())
def test_every_family_is_scored_sampled_and_learned_exactly(
    name: str, record_property: Callable[[str, object], None]
) -> None:
    tokens = len(checks.PROMPTS) * sum(checks.THOUGHTS)
    record_property("cases", tokens)
    assert inexact(name) == []


def test_the_page_has_the_table_of_the_stored_results() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert with_table(page, stored()) == page, "run python -m benchmarks.families"


def test_the_stored_results_are_exact_for_every_family() -> None:
    rows = stored()
    assert list(rows) == names()
    assert [name for name, row in rows.items() if not all(found.exact for found in row.values())] == []
    assert len(FAMILIES) >= 50
    assert sum(name.endswith(f":{LONGER}") for name in rows) >= 5


def stored() -> dict[str, dict[str, Found]]:
    return rows_of(json.loads(STORED.read_text(encoding="utf-8"))["rows"])


def test_equal_ways_share_a_row_and_one_that_is_not_exact_is_bold() -> None:
    right, wrong = Found("fast", "", ALLOWED, 1.0), Found("fast", "", 0.3, 1.0)
    refused = Found("refused", "ValueError", None, 1.0)
    rows = {"llama": dict.fromkeys(PARTS, right), "mistral:80": dict.fromkeys(PARTS, right) | {"sampler": wrong}}
    rows |= {"mamba": dict.fromkeys(PARTS, refused), "qwen2": dict.fromkeys(PARTS, right)}
    lines = table(rows)
    assert lines[2] == "| fast | fast | fast | `llama`, `qwen2` | 1e-04 | – |"
    assert lines[3] == "| **fast** | **fast** | **fast** | **`mistral` (window 80)** | **3e-01** | **–** |"
    assert lines[4].startswith("| **refused** | **refused** | **refused** | **`mamba`** |")


def test_an_error_of_a_gradient_or_a_nan_is_not_exact() -> None:
    assert not Found("whole rows", "", 0.0, 1.0, gradient=2 * ALLOWED).exact
    assert not Found("whole rows", "", 0.0, 1.0, gradient=float("nan")).exact
    assert largest([0.5, float("nan")], [0.5, 0.0]) == float("inf")
    assert largest([0.5, -1.0], [0.25, -1.0]) == 0.25


def test_what_a_part_raises_stands_in_its_row() -> None:
    def fails(model: Any) -> tuple[str, str, float]:
        raise ValueError("no way")

    found = checks._asked(fails, built("llama"))
    assert (found.way, found.why, found.exact) == ("refused", "ValueError: no way", False)


@pytest.mark.filterwarnings("ignore:.*cannot be used for sampling")
def test_a_folder_with_a_model_of_today_is_trained_and_audited(tmp_path: Path) -> None:
    tokenizer = chatml_tokenizer()
    model = save(tmp_path / "model", built("qwen3_next", vocab_size=len(tokenizer) + 5), tokenizer)
    run = tmp_path / "run"
    settings = (
        "--steps 1 --groups 2 --group-size 2 --filter keep_all --sampling.tokens-per-turn 3 --evaluation.times 0 "
        "--device cpu --env.turns 2"
    )
    assert cli.run(["train", "bandit", "--model", str(model), "--out", str(run), *settings.split()]) == 0
    first = next(line.metrics for line in read_metrics(run / "metrics.jsonl") if line.step == 0)
    assert first["policy/logprob_error"].value < 1e-4  # type: ignore[operator]
    assert cli.run(["audit", str(run), "--model", str(model), "--out", str(tmp_path / "audit"), "--device", "cpu"]) == 0


@pytest.mark.parametrize(
    ("family", "more", "carries"),
    [
        ("llama", {}, False),
        ("gpt_oss", {}, False),
        ("qwen3_5_text", {}, True),
        ("falcon_h1", {}, True),
        ("lfm2", {"layer_types": ["conv", "full_attention"], "num_hidden_layers": 2}, True),
    ],
)
def test_recurrent_layers_and_short_convolutions_carry_states(family: str, more: dict[str, Any], carries: bool) -> None:
    assert carries_states(CONFIG_MAPPING[family](**more)) is carries
