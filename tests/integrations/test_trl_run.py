"""A run of TRL on one of heedful's environments, from its rollouts to the audit of both of its logs.

Two updates are made of each batch and evaluations interrupt the run, so TRL's log holds batches twice, batches cut off
at their beginning, and completions that nobody trained on.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

pytest.importorskip("trl", reason="TRL is not installed")

import transformers
from transformers import PrinterCallback
from trl import GRPOConfig, GRPOTrainer

from heedful.auditing import AuditSettings, measure_log, open_log
from heedful.envs.toys.echo import Echo
from heedful.filters import TopP
from heedful.integrations.trl import HeedfulConfig, HeedfulGRPOTrainer, Probe, environment_reward, to_trl_rollout_func
from heedful.measuring.diagnostician import DiagnosticsConfig
from heedful.storage import RunFolder, read_metrics
from heedful.types import Metric

transformers.logging.set_verbosity_error()
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore:You are using")  # transformers', TRL's

BATCHES, UPDATES = 3, 2
"""Generation batches of the run, and updates made of each."""
READ = ("signal/", "filter/", "reward/", "success/", "text/")
"""What is read off rewards, verdicts and texts."""


def measured(folder: Path) -> dict[int, dict[str, Metric]]:
    return {line.step: dict(line.metrics) for line in read_metrics(RunFolder(folder).metrics)}


def audited(log: Path, out: Path, **settings: Any) -> dict[int, dict[str, Metric]]:
    chosen = AuditSettings(device="cpu", **settings)
    return measured(measure_log(open_log(log, chosen), chosen, out, []))


def arguments_of(folder: Path, steps: int, **changes: Any) -> GRPOConfig:
    common: dict[str, Any] = {
        "output_dir": str(folder),
        "max_steps": steps,
        "per_device_train_batch_size": 16,
        "num_generations": 4,
        "max_completion_length": 200,
        "learning_rate": 1e-4,
        "logging_steps": 1,
        "report_to": [],
        "use_cpu": True,
        "bf16": False,
        "disable_tqdm": True,
    }
    return GRPOConfig(**(common | changes))


@pytest.fixture(scope="module")
def output(seedling_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """TRL's output folder. Do not write into it."""
    folder = tmp_path_factory.mktemp("trl")
    rollouts = to_trl_rollout_func(Echo(instructions="brief", turns=2), tokens_per_turn=24)
    arguments = arguments_of(
        folder,
        BATCHES * UPDATES,
        num_iterations=UPDATES,
        gradient_accumulation_steps=2,
        log_completions=True,
        save_steps=1,
        save_only_model=True,
        eval_strategy="steps",
        eval_steps=2,
        per_device_eval_batch_size=8,
    )
    heedful = HeedfulConfig(
        filter=TopP(p=0.8),
        diagnostics=DiagnosticsConfig(share=None, every=1, full_every=1, swapped_rows=4, swapped_columns=2),
    )
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore")  # TRL's, about experimental features
        patch.setattr("trl.trainer.grpo_trainer.print_prompt_completions_sample", lambda *_, **__: None)
        trainer = HeedfulGRPOTrainer(
            model=str(seedling_folder),
            reward_funcs=environment_reward,
            args=arguments,
            train_dataset=rollouts.dataset(64),
            eval_dataset=rollouts.dataset(2, split="val"),
            rollout_func=rollouts,
            heedful=heedful,
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    return folder


def assert_equal(found: Mapping[str, Metric], told: Mapping[str, Metric], names: set[str]) -> int:
    """Every one of these readings is the run's own to the last digit, or missing in both; returns how many are not."""
    for name in names:
        mine, its = found[name], told[name]
        assert (mine.value, mine.n, mine.low, mine.high) == (its.value, its.n, its.low, its.high), name
    return sum(told[name].value is not None for name in names)


def test_the_audit_of_heedfuls_record_gives_the_runs_own_readings(output: Path, tmp_path: Path) -> None:
    told, found = measured(output / "heedful"), audited(output / "heedful", tmp_path / "out")
    assert list(found) == list(told) == list(range(BATCHES))
    for step in told:
        environments = (*READ, "format/", "length/", "policy/")
        names = {name for name in told[step] if name.startswith(environments)} - {"filter/empty"}
        assert names <= found[step].keys()
        assert all(found[step][name] == told[step][name] for name in names)
        assert assert_equal(found[step], told[step], names) > 20


def test_the_audit_of_trls_own_log_gives_the_same_readings_or_none(output: Path, tmp_path: Path) -> None:
    told, found = measured(output / "heedful"), audited(output / "completions", tmp_path / "out")
    assert list(found) == list(told)
    for step in told:
        names = {name for name in told[step] if name.startswith(READ) and not name.startswith("reward/")}
        names -= {"filter/empty", "text/distinct_thoughts"}
        by_ids = found[step]["text/distinct_thoughts"]
        assert by_ids.value is None
        assert by_ids.why
        assert assert_equal(found[step], told[step], {*names, "reward/mean"}) > 15
        others = found[step].keys() - names - {"reward/mean", "reward/heedful_reward"}
        assert all(found[step][name].value is None and found[step][name].why for name in others)


def test_the_audit_of_trls_own_log_says_what_it_left_out(output: Path, tmp_path: Path) -> None:
    rows = [row for file in (output / "completions").iterdir() for row in pyarrow.parquet.read_table(file).to_pylist()]
    evaluated = sum(row["heedful_id"] is None for row in rows)
    assert evaluated > 0
    audited(output, tmp_path / "out")  # the output folder stands for its completions
    record = json.loads((tmp_path / "out" / "audit.json").read_text())
    assert record["format"] == "numbered completions"
    assert (record["episodes"], record["groups"]) == (32 * BATCHES, 8 * BATCHES)
    assert record["left_out"]["count"] == 0
    assert f"{evaluated} rows of evaluations left out." in record["found"]
    again = len(rows) - evaluated - 32 * BATCHES
    assert f"{again} rows of batches that were logged before left out." in record["found"]


def test_the_model_that_trl_saved_finds_what_was_measured_before_the_update(output: Path, tmp_path: Path) -> None:
    last = BATCHES - 1
    model = output / f"checkpoint-{last * UPDATES}"
    bounds = {"prompts": 8, "thoughts": 4}
    told = measured(output / "heedful")
    found = audited(output / "heedful", tmp_path / "out", model=str(model), **bounds)
    compared = 0
    for name, metric in found[last].items():
        if name.startswith(("information/", "retrieval/")) and "zscore_ema" not in name:
            its = told[last][name]
            assert metric.n == its.n, name
            assert metric.value == (None if its.value is None else pytest.approx(its.value, abs=1e-3)), name
            compared += metric.value is not None
    assert compared > 20
    assert f"information@{model.name}/first_turn/mi" in found[0]  # those weights did not sample it
    texts = audited(output / "completions", tmp_path / "texts", model=str(model), **bounds)
    assert not any(name.startswith("information/") for name in texts[last])  # read from text: another's reading


def test_a_checkpoint_of_another_run_in_the_same_folder_is_another_model(output: Path, tmp_path: Path) -> None:
    log = open_log(output / "heedful", AuditSettings())
    assert log.own is not None
    assert log.own.version_of(str(output / "checkpoint-2")) == 2
    assert log.own.version_of(str(output / "checkpoint-99")) is None
    record = tmp_path / "heedful-2"
    record.mkdir()
    (record / "config.json").write_text((output / "heedful" / "config.json").read_text())
    (tmp_path / "checkpoint-2").symlink_to(output / "checkpoint-2", target_is_directory=True)
    other = type(log.own)(record, log.own.config)
    assert other.version_of(str(tmp_path / "checkpoint-2")) is None


def test_a_probe_goes_on_where_its_checkpoint_stands(seedling_folder: Path, tmp_path: Path) -> None:
    rollouts = to_trl_rollout_func(Echo(instructions="brief"), tokens_per_turn=24)

    def trained(steps: int, resume: bool) -> None:
        probe = Probe(HeedfulConfig(diagnostics=DiagnosticsConfig(every=1, full_every=1, swapped_rows=0, any_turn=0)))
        trainer = GRPOTrainer(
            model=str(seedling_folder),
            reward_funcs=[environment_reward, probe],
            args=arguments_of(tmp_path, steps, save_steps=1),
            train_dataset=rollouts.dataset(16),
            rollout_func=rollouts,
        )
        probe.attach(trainer)
        trainer.remove_callback(PrinterCallback)
        trainer.train(resume_from_checkpoint=resume)

    trained(2, resume=False)
    begun = measured(tmp_path / "heedful")
    trained(3, resume=True)
    assert sorted(entry.name for entry in tmp_path.glob("heedful*")) == ["heedful"]
    gone_on = measured(tmp_path / "heedful")
    assert list(gone_on) == [0, 1, 2]
    assert {step: gone_on[step] for step in begun} == begun
    log = open_log(tmp_path / "heedful", AuditSettings())
    assert log.own is not None
    assert log.own.version_of(str(tmp_path / "checkpoint-2")) == 2
