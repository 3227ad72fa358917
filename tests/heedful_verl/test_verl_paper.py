"""The cells of the paper's table as command lines of verl: their settings, and whether verl accepts them."""

from __future__ import annotations

import importlib
import shlex
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest

from heedful.run.presets import preset

ROOT = Path(__file__).parents[2]


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    return importlib.import_module("verl_paper")


def test_the_line_has_the_settings_of_the_cell(example: ModuleType) -> None:
    line = dict(word.split("=", 1) for word in example.overrides(preset("paper/sokoban-ppo-qwen2.5-7b"), Path("runs")))
    actor = "actor_rollout_ref.actor"
    # verl multiplies a mini-batch by the members of a prompt: 2 x 16 is the published mini-batch of 32.
    assert (line["data.train_batch_size"], line["actor_rollout_ref.rollout.n"]) == ("8", "16")
    assert line[f"{actor}.ppo_mini_batch_size"] == "2"
    assert (line["algorithm.adv_estimator"], line["critic.enable"], line["critic.optim.lr"]) == ("gae", "true", "1e-05")
    assert (line[f"{actor}.clip_ratio_high"], line[f"{actor}.entropy_coeff"]) == ("0.28", "0.001")
    assert line["+heedful"].startswith("{filter:{type:softmax,p:0.9,")


def test_each_algorithm_of_the_table_has_its_own_loss(example: ModuleType) -> None:
    found = {}
    for name in ("ppo", "dapo", "grpo", "dr_grpo"):
        words = example.overrides(preset(f"paper/countdown-{name}-qwen2.5-3b"), Path("runs"))
        line = dict(word.split("=", 1) for word in words)
        names = (
            "algorithm.adv_estimator",
            "algorithm.norm_adv_by_std_in_grpo",
            "actor_rollout_ref.actor.loss_agg_mode",
        )
        found[name] = tuple(line[name] for name in names)
    assert found == {
        "ppo": ("gae", "true", "token-mean"),
        "dapo": ("grpo", "true", "token-mean"),
        "grpo": ("grpo", "true", "seq-mean-token-mean"),
        "dr_grpo": ("grpo", "false", "seq-mean-token-sum-norm"),
    }


def test_the_script_writes_the_tasks_and_prints_the_line(
    example: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyarrow")
    flags = shlex.split("--steps 2 --groups 4 --evaluation.tasks 3 --filter keep_all")
    example.main("paper/countdown-ppo-qwen2.5-7b", tmp_path, *flags)
    import pyarrow.parquet

    assert pyarrow.parquet.read_table(tmp_path / "train.parquet").num_rows == 8
    assert pyarrow.parquet.read_table(tmp_path / "val.parquet").num_rows == 3
    said = capsys.readouterr().out
    assert "{filter:{type:keep_all," in said
    assert said.endswith('"$@"\n')


@pytest.mark.verl
@pytest.mark.skipif(find_spec("verl") is None, reason="verl is not installed here: make test-verl")
@pytest.mark.parametrize(
    "cell",
    [
        *(f"{column}-ppo-qwen2.5-7b" for column in ("sokoban", "frozen_lake", "metamath", "countdown")),
        *(f"sokoban-{name}-qwen2.5-3b" for name in ("dapo", "grpo", "dr_grpo")),
        "frozen_lake-ppo-qwen2.5-vl-3b-instruct",
    ],
)
def test_verl_takes_the_line(example: ModuleType, cell: str) -> None:
    from omegaconf import OmegaConf
    from verl.utils.config import omega_conf_to_dataclass

    from heedful_verl import doctor

    words = example.overrides(preset(f"paper/{cell}"), Path("runs"))
    tree = doctor.composed(
        [word for word in words if "_files=" not in word] + ["data.train_files=[]", "data.val_files=[]"]
    )
    assert {finding.status for finding in doctor.findings_of(tree)} <= {"ok", "note"}
    tree["critic"].pop("model")  # the hub would be asked for it
    config = OmegaConf.create(tree)
    actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
    actor.validate(8, config.data.train_batch_size)
    assert list(actor.optim.betas) == [0.9, 0.999]
    if config.critic.enable:
        critic = omega_conf_to_dataclass(config.critic)
        critic.validate(8, config.data.train_batch_size)
        assert (critic.cliprange_value, critic.ppo_mini_batch_size) == (0.5, actor.ppo_mini_batch_size)
