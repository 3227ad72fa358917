"""PPO in the whole loop: it resumes with its critic, it can do without groups, and it learns."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from test_loop import same, seedling_weights, trained, without_time  # noqa: E402

from heedful.algorithms.gae import Gae  # noqa: E402
from heedful.algorithms.returns import TurnReturns  # noqa: E402
from heedful.algorithms.table import Grpo, Ppo  # noqa: E402
from heedful.boundary import from_json, to_json  # noqa: E402
from heedful.filters import KeepAll  # noqa: E402
from heedful.run import checkpoint  # noqa: E402
from heedful.run.config import DiagnosticsConfig, EvaluationConfig, TrainConfig  # noqa: E402
from heedful.run.presets import preset  # noqa: E402
from heedful.training.settings import CriticConfig, OptimizerConfig  # noqa: E402

LEARNING = {
    "steps": 12,
    "groups": 16,
    "group_size": 12,
    "optimizer": OptimizerConfig(lr=1e-3, betas=(0.9, 0.99), warmup_steps=2),
    "evaluation": EvaluationConfig(times=0),
    "diagnostics": DiagnosticsConfig(enabled=False),
    "checkpoint_every": 100,
}


@pytest.mark.parametrize(
    "critic",
    [CriticConfig(warmup_steps=2, clip=0.2), CriticConfig(kind="head", lr=1e-2, trunk=0.1)],
    ids=["a model", "a head through the trunk"],
)
def test_a_run_goes_on_from_a_checkpoint_with_the_same_bytes(
    echo_run: TrainConfig, tmp_path: Path, critic: CriticConfig
) -> None:
    algorithm = Ppo(advantage=Gae(lam=0.9, per="token"), epochs=2, minibatches=2)
    config = replace(
        echo_run, steps=3, algorithm=algorithm, critic=critic, filter=KeepAll(),
        evaluation=EvaluationConfig(times=0), diagnostics=DiagnosticsConfig(enabled=False),
    )  # fmt: skip
    whole = trained(config, tmp_path / "whole")
    middle = checkpoint.checkpoints(tmp_path / "whole" / "checkpoints")[0]
    assert middle.version == 2
    rest = trained(config, tmp_path / "rest", middle)
    assert same(whole.weights, rest.weights)
    assert same(whole.parts.learner.state_dict(), rest.parts.learner.state_dict())
    assert without_time(whole.folder.path)[2:] == without_time(rest.folder.path)


def test_in_the_critics_warm_up_the_policy_stays_the_seedling(echo_run: TrainConfig, tmp_path: Path) -> None:
    config = replace(
        echo_run, **{**LEARNING, "steps": 3, "groups": 4, "group_size": 4}, algorithm=Ppo(), filter=KeepAll(),
        critic=CriticConfig(warmup_steps=2),
    )  # fmt: skip
    run = trained(replace(config, checkpoint_every=2), tmp_path / "run")
    warmed = checkpoint.checkpoints(tmp_path / "run" / "checkpoints")[0].model(torch.float32)
    assert same(dict(warmed.state_dict()), seedling_weights(config))
    assert not same(run.weights, seedling_weights(config))
    losses = run.watch.values["policy/loss"]
    assert losses[:2] == [None, None]
    assert losses[2] is not None
    assert all(norm > 0 for norm in run.watch.values["critic/gradient_norm"])


def test_the_critic_of_a_loaded_model_learns_more_slowly_than_a_seedlings() -> None:
    seedling, loaded = preset("frozen_lake"), preset("frozen_lake", "some/model")
    assert loaded.optimizer.lr < loaded.critic.lr < seedling.critic.lr


def test_every_step_tells_the_critics_readings(echo_run: TrainConfig, tmp_path: Path) -> None:
    config = replace(
        echo_run,
        **{**LEARNING, "steps": 2, "groups": 8, "group_size": 8},
        algorithm=Ppo(),
        critic=CriticConfig(clip=0.2),
    )
    watch = trained(config, tmp_path / "run").watch
    for name in ("loss", "clip_fraction", "gradient_norm", "value_mean", "return_mean"):
        assert all(isinstance(value, float) for value in watch.values[f"critic/{name}"])
    assert watch.values["critic/value_mean"][0] == 0.0
    assert watch.values["critic/value_mean"][1] == pytest.approx(watch.values["critic/return_mean"][0], abs=0.2)
    assert watch.values["policy/explained_variance"][0] == 0.0


def test_a_group_of_one_needs_a_critic_and_a_filter_that_keeps_it(echo_run: TrainConfig) -> None:
    with pytest.raises(ValueError, match=r"group_size must be at least 2 .* GroupRelative gives it no advantage"):
        replace(echo_run, group_size=1, algorithm=Grpo())
    with pytest.raises(ValueError, match="TurnReturns gives it no advantage"):
        replace(echo_run, group_size=1, algorithm=Grpo(advantage=TurnReturns()))
    with pytest.raises(ValueError, match="group_size 1 needs a filter that keeps groups of one, but TopP drops them"):
        replace(echo_run, group_size=1, algorithm=Ppo())
    with pytest.raises(ValueError, match="found 0"):
        replace(echo_run, group_size=0, algorithm=Ppo(), filter=KeepAll())
    alone = replace(echo_run, group_size=1, algorithm=Ppo(), filter=KeepAll())
    assert from_json(TrainConfig, to_json(alone)) == alone


@pytest.mark.proof
@pytest.mark.parametrize(
    ("groups", "group_size", "critic"),
    [(16, 8, CriticConfig(lr=1e-3)), (128, 1, CriticConfig(kind="head", lr=1e-2))],
    ids=["groups, a model", "no groups, a head"],
)
def test_ppo_learns_echo(
    echo_run: TrainConfig, tmp_path: Path, groups: int, group_size: int, critic: CriticConfig
) -> None:
    config = replace(
        echo_run,
        **{**LEARNING, "groups": groups, "group_size": group_size},
        algorithm=Ppo(minibatches=2),
        filter=KeepAll(),
        critic=critic,
    )
    rates = trained(config, tmp_path / "run").watch.values["success/rate"]
    # 512 episodes each: a standard error of .031 for the difference.
    assert fmean(rates[-4:]) > fmean(rates[:4]) + 0.1, rates


@pytest.mark.proof
def test_per_turn_credit_learns_echo(echo_run: TrainConfig, tmp_path: Path) -> None:
    config = replace(echo_run, **LEARNING, algorithm=Grpo(advantage=TurnReturns(), average="token"))
    rates = trained(config, tmp_path / "run").watch.values["success/rate"]
    assert fmean(rates[-4:]) > fmean(rates[:4]) + 0.1, rates
