"""The settings of an update."""

from heedful.training.settings import OptimizerConfig


def test_the_learning_rate_rises_linearly_and_stays() -> None:
    config = OptimizerConfig(lr=1.0, warmup_steps=4)
    assert [config.lr_at(step) for step in range(6)] == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]


def test_without_warm_up_the_first_step_takes_the_full_rate() -> None:
    assert OptimizerConfig(lr=0.3, warmup_steps=0).lr_at(0) == 0.3
