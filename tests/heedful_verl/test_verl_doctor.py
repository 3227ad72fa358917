"""The doctor for verl: an environment without verl, and what is said of configurations (plain trees). Without verl."""

from __future__ import annotations

import copy
import importlib.metadata
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from heedful_verl import doctor
from heedful_verl.doctor import findings_of
from heedful_verl.settings import REGISTER, VARIABLE
from heedful_verl.tasks import main

CONFIG: dict[str, Any] = {
    "trainer": {"use_v1": True, "v1": {"trainer_mode": "heedful_sync"}, "nnodes": 1, "default_local_dir": "ckpt/mine"},
    "data": {"train_files": [], "val_files": None, "train_batch_size": 64, "max_response_length": 512},
    "algorithm": {"adv_estimator": "grpo", "filter_groups": {"enable": False}},
    "critic": {"enable": False, "ppo_mini_batch_size": 64},
    "actor_rollout_ref": {
        "actor": {"loss_agg_mode": "token-mean", "ppo_mini_batch_size": 64},
        "rollout": {"n": 8, "temperature": 1.0, "response_length": 512, "top_p": 1.0, "top_k": -1},
    },
    "heedful": {"filter": {"type": "top_p", "p": 0.9, "on": "reward"}},
}


def said(*changes: tuple[str, Any]) -> str:
    """The findings of the configuration with these dotted paths changed, one per line."""
    config = copy.deepcopy(CONFIG)
    for path, value in changes:
        *before, last = path.split(".")
        place = config
        for name in before:
            place = place.setdefault(name, {})
        place[last] = value
    return "\n".join(map(str, findings_of(config)))


def test_a_sound_configuration_has_nothing_missing_or_wrong() -> None:
    told = said()
    assert "missing" not in told
    assert "wrong" not in told


@pytest.mark.parametrize(
    ("change", "status", "sentence"),
    [
        (("trainer.use_v1", False), "wrong", "older trainer"),
        (("trainer.v1.trainer_mode", "sync"), "note", "without filter and diagnostics"),
        (("trainer.v1.trainer_mode", "heedful_separate_async"), "ok", "not run yet"),
        (("trainer.nnodes", 2), "missing", "does not forward VERL_USE_EXTERNAL_MODULES"),
        (("heedful.filter", {"type": "top_p", True: "reward"}), "wrong", "YAML"),
        (("heedful.max_pears", 3), "wrong", "max_pears"),
        (("heedful.filter", {"type": "soft_weight"}), "wrong", "soft weights"),
        (("heedful.filter", {"type": "top_p", "on": "outcome"}), "note", "heedful's environments only"),
        (("algorithm.filter_groups.enable", True), "note", "replaces constant groups before"),
        (("algorithm.reward_variance_filtering", {"enable": True}), "note", "so heedful's filter is disabled"),
        (("heedful.diagnostics", {"enabled": False}), "note", "heedful.diagnostics.enabled=false"),
        (("actor_rollout_ref.rollout.top_p", 0.9), "note", "truncated sampling (top_p"),
        (("data.train_files", ["nowhere/train.parquet"]), "missing", "there is no file nowhere/train.parquet"),
    ],
)
def test_a_setting_is_answered_with_its_effect(change: tuple[str, Any], status: str, sentence: str) -> None:
    before = said()
    (line,) = [line for line in said(change).splitlines() if sentence in line]
    assert line.startswith(status)
    assert line not in before


def test_windows_with_an_estimator_that_credits_rows_are_refused() -> None:
    window = ("heedful.play", {"context": {"turns": 0}})
    assert "wrong" in said(window, ("algorithm.adv_estimator", "gae"))
    assert "wrong" not in said(window)


def test_a_variable_that_is_forwarded_to_the_nodes_is_seen() -> None:
    place = f"ray_kwargs.ray_init.runtime_env.env_vars.{VARIABLE}"
    told = said(("trainer.nnodes", 2), (place, f"mine,{REGISTER}"))
    assert "missing" not in told


def test_task_files_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["echo", "--tasks", "6", "--out", str(tmp_path / "train.parquet")])
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 no")
    told = said(
        ("data.train_files", str(tmp_path / "train.parquet")), ("data.val_files", [str(tmp_path / "bad.parquet")])
    )
    assert "6 rows, 6 of them episodes of heedful (data_source: echo)" in told
    assert "cannot be read" in told


@pytest.mark.parametrize(
    ("environment", "sentence"),
    [
        ('{"type": "pwn:X"}', "If you trust the module pwn, add heedful.play.trust=[pwn]"),
        ("null", "cannot be played: "),
        ('{"type": "frozen_lake", "size": 99999999}', "cannot be played: "),
        (None, "python -m heedful_verl.tasks"),
    ],
)
def test_rows_that_cannot_be_played_are_told_before_training(
    tmp_path: Path, environment: str | None, sentence: str
) -> None:
    path = tmp_path / "{odd} name.parquet"
    main(["echo", "--tasks", "6", "--out", str(path)])
    assert not [line for line in said(("data.train_files", str(path))).splitlines() if line.startswith("wrong")]
    rows = pyarrow.parquet.read_table(path).to_pylist()
    for row in rows[:4]:
        row["extra_info"]["heedful"]["environment"] = environment
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    told = [line for line in said(("data.train_files", str(path))).splitlines() if line.startswith("wrong")]
    assert len(told) == 1
    assert f"data.train_files: {4} of these rows" in told[0]
    assert sentence in told[0]


def test_without_verl_the_doctor_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = importlib.metadata.version

    def version(package: str) -> str:
        if package in ("verl", "TransferQueue", "hydra-core"):
            raise importlib.metadata.PackageNotFoundError(package)
        return real(package) if package == "torch" else "0.0.1"

    monkeypatch.setattr(importlib.metadata, "version", version)
    monkeypatch.delenv(VARIABLE, raising=False)
    assert doctor.main(["trainer.nnodes=2"]) == 1
    told = capsys.readouterr().out
    assert 'missing verl is not installed: pip install "verl==0.9.*"' in told
    assert "missing TransferQueue is not installed" in told
    assert f"export {VARIABLE}={REGISTER}" in told
    assert "cannot be composed without verl" in told
    assert "Task files can be written" in told


def test_versions_that_do_not_work_together_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {"verl": "0.8.0", "transformers": "5.23.0"}
    monkeypatch.setattr(importlib.metadata, "version", lambda package: versions.get(package, "1.0"))
    told = "\n".join(map(str, doctor.installed()))
    assert "note    verl 0.8.0; heedful was tested with 0.9" in told
    assert "wrong   transformers 5.23.0: verl 0.9 needs a version below 5.11" in told


def test_help_and_flags_that_do_not_exist(capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor.main(["--help"]) == 0
    assert "usage: python -m heedful_verl.doctor" in capsys.readouterr().out
    assert doctor.main(["--config", "x"]) == 2
    assert "expected overrides such as" in capsys.readouterr().err


def test_a_setting_of_heedful_that_verl_does_not_know_is_answered_with_those_that_exist() -> None:
    hydra = "Could not override 'heedful.outcom'.\nTo append to your config use +heedful.outcom=acc"
    assert doctor.refusal(hydra) == (
        "Expected overrides that verl's configuration takes, found: Could not override 'heedful.outcom'. The section "
        "heedful has filter, loss_scale, outcome, tags, diagnostics, on_collapse, record, webhook, logs, max_pairs, "
        "seed, play."
    )
    assert doctor.refusal("Could not override 'trainer.node'.").endswith("override 'trainer.node'.")
