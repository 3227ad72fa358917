"""The doctor for verl: an environment without verl, and what is said of configurations (plain trees). Without verl."""

from __future__ import annotations

import copy
import importlib.metadata
import os
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from heedful_verl import doctor
from heedful_verl.configured import findings_of
from heedful_verl.settings import REGISTER, VARIABLE
from heedful_verl.tasks import LOOP, main
from little_room import little_room

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
    assert "Filter TopP(" in told
    assert "on reward" in told
    assert "ckpt/mine/heedful" in told


def test_the_cost_of_measurements_is_counted_in_rows() -> None:
    # 4096 pairs with 8 members allow floor(sqrt(512)) = 22 prompts: 22 x 176 = 3872 rows; cheap: 16 x 32 = 512
    assert "512 rows every 4 batches, 3872 rows (22 prompts x 176 thoughts) every 20. A batch has 512" in said()
    # a batch of 4 prompts is smaller than both
    assert "32 rows every 4 batches, 128 rows (4 prompts x 32 thoughts)" in said(("data.train_batch_size", 4))


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
        (("algorithm.filter_groups.enable", True), "note", "drops constant groups earlier"),
        (("algorithm.reward_variance_filtering", {"enable": True}), "note", "steps aside"),
        (("actor_rollout_ref.actor.loss_agg_mode", "novel"), "note", "not one that heedful was tested with"),
        (("actor_rollout_ref.actor.ppo_mini_batch_size", 16), "note", "4 optimizer steps of 16 prompts"),
        (("actor_rollout_ref.rollout.top_p", 0.9), "note", "truncated sampling (top_p"),
        (("heedful.diagnostics", {"enabled": False}), "note", "nothing is measured"),
        (("heedful.on_collapse", "stop"), "note", "ends the training"),
        (("heedful.play", {"context": {"turns": 2}}), "note", "the last 2 turns"),
        (("data.train_files", ["nowhere/train.parquet"]), "missing", "there is no file nowhere/train.parquet"),
        (("data.train_files", "a" * 300 + ".parquet"), "wrong", "cannot be read ([Errno 36]"),
        (("data.train_files", "nowhere/train.json"), "missing", "there is no file nowhere/train.json"),
        (("data.train_files", "s3://bucket/train.parquet"), "note", "is on another machine"),
        (("actor_rollout_ref.rollout.temperature", 10**400), "wrong", "temperature: expected a number, found 1000"),
        (("actor_rollout_ref.rollout.top_p", float("nan")), "wrong", "top_p: expected a number, found NaN"),
        (("data.train_batch_size", 10**400), "wrong", "train_batch_size: expected a number of at most 1,000,000"),
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
    assert "to every process" in told


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
        ("[" * 3000, "cannot be played: "),
        ('{"type": "frozen_lake", "size": 99999999}', "cannot be played: "),
        (None, "4 of these rows name no environment"),
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


@pytest.mark.parametrize("extra", [None, 5, {"heedful": 5}, {"heedful": {"environment": 5}}, {"index": 0}])
def test_rows_of_another_shape_are_told(tmp_path: Path, extra: object) -> None:
    path = tmp_path / "other.parquet"
    rows = [{"agent_name": LOOP, "data_source": "echo", "extra_info": extra}] * 3
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    told = [line for line in said(("data.train_files", str(path))).splitlines() if line.startswith("wrong")]
    assert len(told) == 1
    assert "3 of these rows" in told[0]


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("train.json", b"PAR1...", "but verl reads it as one only if its name ends in .parquet. Rename it"),
        ("train", b"PAR1...", "but verl reads it as one only if its name ends in .parquet. Rename it"),
        ("train.csv", b"a,b\n", "verl reads names that end in .parquet, .json or .jsonl, found train.csv"),
        ("train.jsonl", b"{}\n", ""),
    ],
)
def test_a_file_whose_name_verl_reads_with_another_reader_is_wrong(
    tmp_path: Path, name: str, content: bytes, sentence: str
) -> None:
    (tmp_path / name).write_bytes(content)
    file = ("data.train_files", str(tmp_path / name))
    told = [line for line in said(file).splitlines() if "data.train_files" in line]
    assert [line.startswith("wrong") and sentence in line for line in told] == ([True] if sentence else [])
    assert "data.train_files" not in said(file, ("data.custom_cls", {"path": "mine.py"}))


def test_a_task_file_of_repeated_long_texts_is_counted_in_little_memory(tmp_path: Path) -> None:
    rows = 2**20  # a terabyte, if each name were made
    numbers = pyarrow.array([0, 1] * (rows // 2), pyarrow.int32())
    names = pyarrow.DictionaryArray.from_arrays(numbers, pyarrow.array(["x" * 1_000_000, LOOP]))
    path = tmp_path / "repeated.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"agent_name": names}), path, compression="zstd", row_group_size=rows)
    assert path.stat().st_size < 100_000
    with little_room():
        assert f"{rows} rows, {rows // 2} of them episodes of heedful" in said(("data.train_files", str(path)))


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
        "heedful has filter, loss_scale, outcome, tags, diagnostics, max_pairs, on_collapse, record, logs, seed, play."
    )
    assert doctor.refusal("Could not override 'trainer.node'.").endswith("override 'trainer.node'.")


def test_values_of_another_kind_are_told_and_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.parquet")
    assert "pipe.parquet cannot be read" in said(("data.train_files", str(tmp_path / "pipe.parquet")))
    assert "trainer_mode=[1, 2]: verl's own trainer runs" in said(("trainer.v1.trainer_mode", [1, 2]))
    assert "optimizer steps" not in said(("actor_rollout_ref.actor.ppo_mini_batch_size", 0))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (("data", 5), "data: expected a section of verl's configuration, found 5."),
        (("critic", "no"), 'critic: expected a section of verl\'s configuration, found "no".'),
        (("trainer.v1", None), "trainer.v1: expected a section of verl's configuration, found null."),
        (("distillation", [1]), "distillation: expected a section of verl's configuration, found [1]."),
        (("actor_rollout_ref", True), "actor_rollout_ref: expected a section of verl's configuration, found true."),
        (("actor_rollout_ref.rollout.temperature", "hot"), 'rollout.temperature: expected a number, found "hot".'),
        (("actor_rollout_ref.rollout.top_k", None), "rollout.top_k: expected a number, found null."),
    ],
)
def test_what_is_no_section_or_no_number_is_told(change: tuple[str, Any], sentence: str) -> None:
    told = said(change)
    assert sentence in told
    assert {line.split()[0] for line in told.splitlines()} == {"wrong"}


def test_a_section_of_the_engine_that_is_a_number_is_told() -> None:
    actor = "actor_rollout_ref.actor"
    for change, path in ((4, f"{actor}.fsdp"), ({"router_replay": 4}, f"{actor}.fsdp.router_replay")):
        told = said((f"{actor}.strategy", "fsdp"), (f"{actor}.fsdp", change))
        assert f"{path}: expected a section of verl's configuration, found 4." in told
