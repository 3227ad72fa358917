"""The code of docs/trl.md runs, and the example does what it prints."""

from __future__ import annotations

import functools
import importlib
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl", reason="TRL is not installed")

import transformers
from trl import GRPOConfig

from heedful.auditing import AuditSettings, open_log
from heedful.integrations.trl import compatibility
from heedful.integrations.trl.settings import HeedfulConfig
from heedful.rollout.choosers import Thompson
from heedful.run.config import TrainConfig
from heedful.storage import RunFolder, read_metrics

transformers.logging.set_verbosity_error()
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore:You are using")  # transformers', TRL's

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "trl.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
CALLBACK, DATASET, PROBE, CHOICE, EPISODES, SAMPLER = BLOCKS

Small = functools.partial(
    GRPOConfig,
    max_steps=1,
    per_device_train_batch_size=8,
    num_generations=4,
    logging_steps=1,
    report_to=[],
    use_cpu=True,
    bf16=False,
    disable_tqdm=True,
)


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trl.trainer.grpo_trainer.print_prompt_completions_sample", lambda *_, **__: None)
    monkeypatch.setattr("transformers.PrinterCallback.on_log", lambda *_, **__: None)


def run(code: str, model: Path, output: Path, names: dict[str, Any] | None = None) -> dict[str, Any]:
    """A block of the page with a small model in the place of its own, for one step."""
    local = code.replace('"Qwen/Qwen2.5-0.5B-Instruct"', repr(str(model)))
    local = local.replace('"trl-output"', repr(str(output))).replace("GRPOConfig(", "Small(")
    local = local.replace("num_generations=8, ", "")
    names = {"Small": Small} if names is None else names
    exec(local, names)
    return names


def test_the_one_line_the_three_and_the_probe_run_on_a_dataset_and_a_reward_function(
    seedling_folder: Path, tmp_path: Path
) -> None:
    names = run(CALLBACK, seedling_folder, tmp_path / "watched")
    (watched,) = read_metrics(RunFolder(tmp_path / "watched" / "heedful-watch").metrics)
    assert watched.metrics["reward/mean"].value == watched.metrics["trainer/reward"].value is not None
    run(DATASET, seedling_folder, tmp_path / "lines", names)
    (line,) = read_metrics(RunFolder(tmp_path / "lines" / "heedful").metrics)
    assert line.metrics["reward/correct"].value == line.metrics["success/rate"].value is not None
    assert open_log(tmp_path / "lines", AuditSettings()).format == "numbered completions"
    run(PROBE, seedling_folder, tmp_path / "probe", names)
    (probed,) = read_metrics(RunFolder(tmp_path / "probe" / "heedful").metrics)
    assert probed.metrics["reward/correct"].value is not None
    assert probed.metrics["length/response_tokens"].value > 0
    assert probed.metrics["information/first_turn/mi"].why == "no thought to score"  # TRL's template forces no tag
    assert run(CHOICE, seedling_folder, tmp_path, names)["settings"].choose == Thompson()


def test_the_environments_run_with_trls_engine_and_with_heedfuls_sampler(seedling_folder: Path, tmp_path: Path) -> None:
    names = run(EPISODES, seedling_folder, tmp_path / "engine")
    sampled = run(SAMPLER, seedling_folder, tmp_path, dict(names))["rollouts"]
    rows = sampled([row["prompt"] for row in sampled.dataset(4)], names["trainer"])
    assert [len(ids) for ids in rows["completion_ids"]] == [len(mask) for mask in rows["env_mask"]]
    assert rows["logprobs"] is not None


def test_the_example_leaves_a_record_and_a_checkpoint_of_it(
    echo_run: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = (ROOT / "examples" / "trl_grpo.py").read_text(encoding="utf-8")
    assert len(source.splitlines()) < 60
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    example = importlib.import_module("trl_grpo")
    monkeypatch.setattr(example, "preset", lambda _: echo_run)
    example.main(tmp_path / "out", steps=2)
    assert len(read_metrics(RunFolder(tmp_path / "out" / "heedful").metrics)) == 2
    told = capsys.readouterr().out
    assert f"heedful report {tmp_path}/out/heedful" in told
    log = open_log(tmp_path / "out" / "heedful", AuditSettings())
    assert log.own is not None
    assert log.own.version_of(re.findall(r"--model (\S+)", told)[-1]) == 1


def test_the_page_names_the_tested_versions_and_every_setting() -> None:
    assert all(f"| {series}." in PAGE for series in compatibility.TESTED)
    assert f"VERSION := {' '.join(compatibility.TESTED)}\n" in (ROOT / "Makefile").read_text(encoding="utf-8")
    assert all(f"| `{field.name}` |" in PAGE for field in fields(HeedfulConfig))
    assert compatibility.FILTER_OF_TRL in PAGE
