"""The gradient under a filter: that of TRL's own trainer on a batch that never held the dropped groups.

The reference is a plain `GRPOTrainer` that gets the kept groups alone, as one micro-batch. Gradients are compared by
the norm of their difference, relative to the reference's norm; in float64, so that nothing hides in rounding.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl", reason="TRL is not installed (pip install 'heedful[trl]')")

import torch
from tiny_trl import Gradients, Script, Scripted, arguments, filtering, trainer_of, weights_of, written

from heedful.filters import DropConstant, KeepAll, RandomSubset, TopP
from heedful.integrations.trl import HeedfulConfig

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")

CUT_INTO_ANY = ("grpo", "dr_grpo", "dapo", "cispo", "sapo", "luspo", "vespo")
"""Losses whose gradient does not depend on how a batch is cut into micro-batches. That of bnpo does."""

REWARDS = [[1, 1, 1], [0, 1, 0], [0, 0, 0], [1, 0, 1]]
"""Groups 1 and 3 spread: 6 of 12 rows are kept."""
TASKS = written(REWARDS)
KEPT = [TASKS[1], TASKS[3]]


def gradients(
    model: Path, folder: Path, tasks: list[Scripted], heedful: HeedfulConfig | None, steps: int = 1, **changes: Any
) -> list[torch.Tensor]:
    """The gradient of each optimiser step."""
    noted = Gradients()
    functions = tuple(tasks[0].rewards[0])
    args = arguments(folder, num_generations=3, max_steps=steps, **changes)
    trainer_of(model, args, Script(tasks), heedful=heedful, functions=functions, callbacks=[noted]).train()
    assert len(noted.steps) == steps
    return noted.steps


def assert_equal(found: torch.Tensor, expected: torch.Tensor) -> None:
    assert expected.norm() > 1e-3
    assert (found - expected).norm() <= 1e-5 * expected.norm()


@pytest.mark.parametrize("loss", ["grpo", "bnpo"])
def test_the_gradient_is_that_of_a_batch_that_never_held_the_dropped_groups(
    loss: str, tiny_model: Path, tmp_path: Path
) -> None:
    (expected,) = gradients(tiny_model, tmp_path, KEPT, None, per_device_train_batch_size=6, loss_type=loss)
    (found,) = gradients(tiny_model, tmp_path, TASKS, filtering(), per_device_train_batch_size=12, loss_type=loss)
    assert_equal(found, expected)


@pytest.mark.parametrize("loss", CUT_INTO_ANY)
def test_so_it_is_with_idle_rows_a_reference_and_a_second_pass_over_the_batch(
    loss: str, tiny_model: Path, tmp_path: Path
) -> None:
    # 6 kept rows in 4 micro-batches: 8 rows, 2 of them idle. In the second pass the weights have moved away from the
    # sampler's and from the reference's, so ratios and KL are at work.
    common = {"loss_type": loss, "beta": 0.1, "num_iterations": 2, "learning_rate": 5e-3, "steps": 2}
    expected = gradients(tiny_model, tmp_path, KEPT, None, per_device_train_batch_size=6, **common)
    cut = {"per_device_train_batch_size": 3, "gradient_accumulation_steps": 4}
    found = gradients(tiny_model, tmp_path, TASKS, filtering(), **cut, **common)
    assert_equal(found[0], expected[0])
    assert_equal(found[1], expected[1])
    assert (expected[1] - expected[0]).norm() > 1e-2 * expected[0].norm()  # the second pass differs from the first


@pytest.mark.parametrize("loss", ["grpo", "dapo"])
def test_so_it_is_summed_over_the_windows_of_a_long_generation_batch(
    loss: str, tiny_model: Path, tmp_path: Path
) -> None:
    # One generation batch serves 3 optimiser steps of 2 micro-batches: 6 kept rows in 6 micro-batches of one row.
    (expected,) = gradients(tiny_model, tmp_path, KEPT, None, per_device_train_batch_size=6, loss_type=loss)
    windows = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2, "steps_per_generation": 6}
    found = gradients(tiny_model, tmp_path, TASKS, filtering(), steps=3, loss_type=loss, **windows)
    assert_equal(torch.stack(found).sum(dim=0), 3 * expected)  # each window divides by a third of the batch


@pytest.mark.parametrize(
    "changes",
    [
        {"importance_sampling_level": "sequence", "loss_type": "grpo"},
        {"importance_sampling_level": "sequence", "loss_type": "luspo"},
        {"scale_rewards": "none", "loss_type": "dr_grpo"},
        {"scale_rewards": "batch", "loss_type": "grpo"},
        {"off_policy_mask_threshold": 1.0, "loss_type": "grpo"},
        {"pad_to_multiple_of": 8, "loss_type": "dapo"},
        {"delta": 2.0, "loss_type": "grpo", "gradient_checkpointing": True},
    ],
    ids=lambda changes: "-".join(f"{name}={value}" for name, value in changes.items()),
)
def test_so_it_is_under_other_settings(changes: dict[str, Any], tiny_model: Path, tmp_path: Path) -> None:
    common = {"num_iterations": 2, "learning_rate": 1e-3, "steps": 2, **changes}
    expected = gradients(tiny_model, tmp_path, KEPT, None, per_device_train_batch_size=6, **common)
    cut = {"per_device_train_batch_size": 3, "gradient_accumulation_steps": 4}
    found = gradients(tiny_model, tmp_path, TASKS, filtering(), **cut, **common)
    assert_equal(found[0], expected[0])
    assert_equal(found[1], expected[1])


def test_so_it_is_with_completions_that_are_masked_because_they_were_cut_off(tiny_model: Path, tmp_path: Path) -> None:
    cut_off = [replace(task, answers=(task.answers[0][:-1], *task.answers[1:])) for task in TASKS]
    common = {"mask_truncated_completions": True, "loss_type": "dapo"}
    kept = [cut_off[1], cut_off[3]]
    (expected,) = gradients(tiny_model, tmp_path, kept, None, per_device_train_batch_size=6, **common)
    cut = {"per_device_train_batch_size": 3, "gradient_accumulation_steps": 4}
    (found,) = gradients(tiny_model, tmp_path, cut_off, filtering(), **cut, **common)
    assert_equal(found, expected)


def test_an_update_of_two_generation_batches_is_the_mean_over_both(tiny_model: Path, tmp_path: Path) -> None:
    # Each generation batch is filtered for itself; of the second nothing is kept.
    tasks = [TASKS[0], TASKS[1], TASKS[2], TASKS[2]]
    tasks[3] = replace(TASKS[2], prompt="again")
    (expected,) = gradients(tiny_model, tmp_path, [TASKS[1]], None, per_device_train_batch_size=3, loss_type="grpo")
    each = {"per_device_train_batch_size": 6, "gradient_accumulation_steps": 2, "steps_per_generation": 1}
    (found,) = gradients(tiny_model, tmp_path, tasks, filtering(), loss_type="grpo", **each)
    assert_equal(found, expected / 2)


@pytest.mark.parametrize(("aggregation", "scale"), [("sum_then_normalize", "group"), ("normalize_then_sum", "batch")])
def test_so_it_is_with_two_weighted_reward_functions_of_which_one_gives_nothing_for_some_rows(
    aggregation: str, scale: str, tiny_model: Path, tmp_path: Path
) -> None:
    tasks = written(
        [
            [{"right": 1, "short": 0.2}, {"right": 1, "short": 0.2}, {"right": 1, "short": 0.2}],
            [{"right": 0, "short": 0.1}, {"right": 1, "short": 0.7}, {"right": 0, "short": None}],
            [{"right": 0, "short": 0.5}, {"right": 0, "short": 0.5}, {"right": None, "short": None}],
            [{"right": 1, "short": 0.9}, {"right": 1, "short": 0.3}, {"right": None, "short": None}],
        ]
    )
    common = {"multi_objective_aggregation": aggregation, "scale_rewards": scale, "reward_weights": [1.0, 0.5]}
    kept = [tasks[1], tasks[3]]
    (expected,) = gradients(tiny_model, tmp_path, kept, None, per_device_train_batch_size=6, **common)
    cut = {"per_device_train_batch_size": 3, "gradient_accumulation_steps": 4}
    (found,) = gradients(tiny_model, tmp_path, tasks, filtering(), **cut, **common)
    assert_equal(found, expected)


@pytest.mark.parametrize(
    ("keeps", "scale"),
    [(KeepAll(on="reward"), "group"), (TopP(p=1.0, on="reward"), "batch")],
    ids=["no filter", "all spread"],
)
def test_where_nothing_is_dropped_a_run_is_trls_own_to_the_last_bit(
    keeps: Any, scale: str, tiny_model: Path, tmp_path: Path
) -> None:
    common: dict[str, Any] = {
        "num_generations": 3,
        "per_device_train_batch_size": 3,
        "gradient_accumulation_steps": 2,
        "max_steps": 3,
        "learning_rate": 1e-2,
        "optim": "adamw_torch",
        "weight_decay": 0.1,
        "max_grad_norm": 1.0,
        "scale_rewards": scale,
    }
    weights = []
    for heedful in (None, filtering(keeps)):
        trainer = trainer_of(tiny_model, arguments(tmp_path, **common), Script(KEPT), heedful=heedful)
        trainer.train()
        weights.append(weights_of(trainer))
    assert torch.equal(*weights)


def test_a_prompt_without_rewards_is_dropped_even_where_all_others_are_kept(tiny_model: Path, tmp_path: Path) -> None:
    tasks = written([[None, None, None], [0, 1, 0], [None, 1, None], [1, 0, 1]])
    kept = [tasks[1], tasks[3]]
    (expected,) = gradients(tiny_model, tmp_path, kept, None, per_device_train_batch_size=6, loss_type="grpo")
    keep_all = filtering(KeepAll(on="reward"))
    (found,) = gradients(tiny_model, tmp_path, tasks, keep_all, per_device_train_batch_size=12, loss_type="grpo")
    assert_equal(found, expected)


@pytest.mark.parametrize(
    ("loss", "scale", "filter", "factor"),
    [
        ("grpo", "all", DropConstant(on="reward"), 0.5),
        ("dapo", "all", DropConstant(on="reward"), 0.5),
        ("grpo", "sqrt", DropConstant(on="reward"), 0.5**0.5),
        ("dapo", "rho", TopP(p=0.9, on="reward"), 0.9),
    ],
)
def test_the_loss_scale_multiplies_the_gradient_and_the_kl_term_with_it(
    loss: str, scale: Any, filter: Any, factor: float, tiny_model: Path, tmp_path: Path
) -> None:
    # 2 of 4 groups are kept. Lengths differ, so for dapo `all` is no mean over everything; the factor is the same.
    common = {"loss_type": loss, "beta": 0.2, "per_device_train_batch_size": 12}
    (kept,) = gradients(tiny_model, tmp_path, TASKS, filtering(filter), **common)
    (found,) = gradients(tiny_model, tmp_path, TASKS, filtering(filter, loss_scale=scale), **common)
    assert_equal(found, factor * kept)


def test_bnpo_cut_into_micro_batches_warns_and_is_the_mean_over_them(tiny_model: Path, tmp_path: Path) -> None:
    # With one row to a micro-batch bnpo is the mean over rows, as grpo is; 6 of its 12 micro-batches are idle and
    # count in the mean, so it is half of grpo's gradient.
    (expected,) = gradients(tiny_model, tmp_path, KEPT, None, per_device_train_batch_size=6, loss_type="grpo")
    cut = {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 12}
    with pytest.warns(UserWarning, match="bnpo averages over the tokens of each micro-batch.*loss_type='dapo'"):
        (found,) = gradients(tiny_model, tmp_path, TASKS, filtering(), loss_type="bnpo", **cut)
    assert_equal(found, expected / 2)


ENTROPY = {"entropy_coef": 0.3}
QUANTILE = {"top_entropy_quantile": 0.4}


@pytest.mark.parametrize("changes", [ENTROPY, QUANTILE], ids=["entropy_coef", "top_entropy_quantile"])
def test_what_is_averaged_within_a_micro_batch_is_exact_in_a_single_one_and_warned_of_in_several(
    changes: dict[str, float], tiny_model: Path, tmp_path: Path
) -> None:
    (expected,) = gradients(tiny_model, tmp_path, KEPT, None, per_device_train_batch_size=6, **changes)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*micro-batch.*")
        (found,) = gradients(tiny_model, tmp_path, TASKS, filtering(), per_device_train_batch_size=12, **changes)
    assert_equal(found, expected)
    cut = {"per_device_train_batch_size": 3, "gradient_accumulation_steps": 4}
    with pytest.warns(UserWarning, match="micro-batch"):
        (found,) = gradients(tiny_model, tmp_path, TASKS, filtering(), **cut, **changes)
    assert (found - expected).norm() > 1e-4 * expected.norm()


def test_a_filter_that_draws_trains_on_what_it_says_it_drew(tiny_model: Path, tmp_path: Path) -> None:
    drawing = filtering(RandomSubset(like=DropConstant(on="reward"), on="reward"), seed=5)
    noted, args = Gradients(), arguments(tmp_path, num_generations=3, per_device_train_batch_size=12)
    trainer = trainer_of(tiny_model, args, Script(TASKS), heedful=drawing, callbacks=[noted])
    trainer.train()
    reasons = list(trainer._logs["extra"]["heedful_reason"])[::3]
    drawn = [task for task, reason in zip(TASKS, reasons, strict=True) if reason == "kept"]
    assert len(drawn) == 2
    assert drawn != KEPT  # the seed was chosen so that the test can tell
    (expected,) = gradients(tiny_model, tmp_path, drawn, None, per_device_train_batch_size=6)
    assert_equal(noted.steps[0], expected)
