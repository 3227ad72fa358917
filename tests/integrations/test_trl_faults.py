"""Faults that reward-variance filters of other trainers had, each by name.

Sources, as public threads describe them: TRL 7242 (normalised rewards ranked), SkyRL 2217 (a value per turn),
slime 2381 (fragments counted as members), NeMo-RL 4158 (only the losing rollouts dropped), OpenRLHF 1272 (constant
continuous rewards kept), verl-recipe 125 (shaping noise of groups that all failed). Groups over several processes are
in `test_trl_two_processes`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("trl", reason="TRL is not installed (pip install 'heedful[trl]')")

import torch
from tiny_trl import END, Reward, Rewards, Script, Scripted, arguments, filtering, trainer_of, written
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from heedful.filters import DropConstant, TopK, TopP
from heedful.integrations.trl import HeedfulConfig, Probe
from heedful.integrations.trl.observer import observer_of
from heedful.integrations.trl.removal import KEPT
from heedful.integrations.trl.rows import completions_of
from heedful.integrations.watching.observer import refuse_replaced
from heedful.storage import Rollouts, RunFolder, read_metrics, read_rollouts

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")


def trained(
    model: Path, folder: Path, tasks: Sequence[Scripted], heedful: HeedfulConfig, **changes: Any
) -> tuple[Any, Rollouts]:
    """One step on all the tasks: the trainer and the record of its batch."""
    size = len(tasks[0].answers)
    args = arguments(folder, num_generations=size, per_device_train_batch_size=size * len(tasks), **changes)
    functions = tuple(tasks[0].rewards[0])
    trainer = trainer_of(model, args, Script(tasks), heedful=replace(heedful, record=True), functions=functions)
    trainer.train()
    return trainer, read_rollouts(RunFolder(folder / "heedful").rollouts(0))


def reasons(rollouts: Rollouts) -> list[str]:
    return [verdict.reason for verdict in rollouts.verdicts or ()]


def named(rows: Sequence[Sequence[tuple[Reward, Reward]]]) -> list[list[Rewards]]:
    return [[{"right": right, "form": form} for right, form in row] for row in rows]


@pytest.mark.parametrize("aggregation", ["sum_then_normalize", "normalize_then_sum"])
def test_variances_are_those_of_raw_rewards_however_advantages_are_normalised(
    aggregation: str, tiny_model: Path, tmp_path: Path
) -> None:
    # Normalised within its group, the first has a variance as large as the second's.
    tasks = written(named([[(0.5, 0), (0.51, 0), (0.5, 0)], [(0, 0), (1, 0), (0, 0)]]))
    weights = {"multi_objective_aggregation": aggregation, "reward_weights": [2.0, 1.0]}
    _, rollouts = trained(tiny_model, tmp_path, tasks, filtering(TopK(k=1, on="reward")), **weights)
    assert reasons(rollouts) == ["below_rank", "kept"]
    spreads = [verdict.spread for verdict in rollouts.verdicts or ()]
    assert spreads == pytest.approx([2**2 * 0.01**2 / 3, 2**2 * 1 / 3], rel=1e-4)


def test_a_trajectory_has_one_value_whatever_the_number_of_its_turns(tiny_model: Path, tmp_path: Path) -> None:
    def episode(turns: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        reply, observation = (100, 101, END), (200, 201)
        return (*((reply + observation) * (turns - 1)), *reply), (*((1, 1, 1, 0, 0) * (turns - 1)), 1, 1, 1)

    answers, masks = zip(*(episode(turns) for turns in (1, 5, 2)), strict=True)
    long = Scripted("a?", answers, ({"score": 1.0}, {"score": 0.0}, {"score": 1.0}), masks)
    short = Scripted("b?", (answers[0],) * 3, ({"score": 0.0}, {"score": 1.0}, {"score": 0.0}), (masks[0],) * 3)
    _, rollouts = trained(tiny_model, tmp_path, [long, short], filtering(DropConstant(on="reward")))
    assert [[len(member.turns) for member in group.trajectories] for group in rollouts.groups] == [[1, 5, 2], [1] * 3]
    assert [verdict.spread for verdict in rollouts.verdicts or ()] == pytest.approx([1 / 3, 1 / 3])
    assert [[member.reward for member in group.trajectories] for group in rollouts.groups] == [[1, 0, 1], [0, 1, 0]]
    (line,) = read_metrics(RunFolder(tmp_path / "heedful").metrics)
    assert line.metrics["reward/mean"].n == 6


def test_members_of_a_group_are_completions_not_the_fragments_that_tools_cut_them_into(
    tiny_model: Path, tmp_path: Path
) -> None:
    # Of one member nothing was sampled at all: it is a member all the same, with the reward it was given.
    nothing = Scripted(
        "a?", ((100, 101), (100, END), (100, END)), tuple({"score": value} for value in (3.0, 1.0, 1.0)), None
    )
    masked = replace(nothing, masks=((0, 0), (1, 1), (1, 1)))
    _, rollouts = trained(tiny_model, tmp_path, [masked], filtering(DropConstant(on="reward")))
    (group,) = rollouts.groups
    assert [member.reward for member in group.trajectories] == [3, 1, 1]
    assert [len(member.turns[0].reply.ids) for member in group.trajectories] == [0, 2, 2]
    assert reasons(rollouts) == ["kept"]


@pytest.mark.parametrize("value", [0.1, 1 / 3, -7.3, 1e-7, 123456.7])
def test_a_constant_group_of_any_continuous_reward_is_dropped(value: float, tiny_model: Path, tmp_path: Path) -> None:
    noisy = [value, value * (1 + 1e-7), value * (1 - 1e-7)]
    tasks = written([[value] * 3, noisy, [0.0, 1.0, 0.0]])
    weighted = {"reward_weights": [0.7]}
    _, rollouts = trained(tiny_model, tmp_path, tasks, filtering(TopP(p=1.0, on="reward")), **weighted)
    assert reasons(rollouts) == ["constant", "constant", "kept"]


def test_whole_groups_are_trained_on_or_none_never_single_rollouts(tiny_model: Path, tmp_path: Path) -> None:
    # One winner among losers: dropping rollouts by what the others' deviation would be leaves half a group.
    tasks = written([[1, 0, 0, 0], [0, 0, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]])
    trainer, rollouts = trained(tiny_model, tmp_path, tasks, filtering(DropConstant(on="reward")))
    assert reasons(rollouts) == ["kept", "constant", "kept", "constant"]
    (batch,) = trainer._buffered_inputs
    assert batch[KEPT].all()
    rows = zip(batch["completion_ids"], batch["completion_mask"].bool(), strict=True)
    assert sorted(tuple(ids[mask].tolist()) for ids, mask in rows) == sorted(tasks[0].answers + tasks[2].answers)


def test_a_gate_on_the_outcome_keeps_shaping_noise_of_groups_that_all_failed_out(
    tiny_model: Path, tmp_path: Path
) -> None:
    tasks = written(
        named(
            [
                [(0, 0.0), (0, -0.5), (0, -0.5)],  # all failed; only the form differs
                [(1, 0.0), (1, -0.5), (1, 0.0)],  # all succeeded
                [(0, 0.0), (1, 0.0), (0, 0.0)],
            ]
        )
    )
    gate = filtering(TopP(p=1.0, on="outcome"), outcome="right")
    trainer, rollouts = trained(tiny_model, tmp_path / "gate", tasks, gate)
    assert reasons(rollouts) == ["constant", "constant", "kept"]
    assert trainer.state.log_history[0]["signal/failed"] == pytest.approx(1 / 3)
    assert trainer.state.log_history[0]["success/rate"] == pytest.approx(4 / 9)
    (batch,) = trainer._buffered_inputs
    assert len(batch["advantages"]) == 3
    _, shaped = trained(tiny_model, tmp_path / "shaped", tasks, filtering(TopP(p=1.0, on="reward"), outcome="right"))
    assert reasons(shaped) == ["kept", "kept", "kept"]


def test_a_gate_may_be_a_reward_function_that_only_watches(tiny_model: Path, tmp_path: Path) -> None:
    tasks = written(named([[(0, 0.0), (1, 0.3), (0, 0.1)], [(0, 0.4), (0, 0.1), (0, 0.2)]]))
    gate = filtering(TopP(p=1.0, on="outcome"), outcome="right")
    _, rollouts = trained(tiny_model, tmp_path, tasks, gate, reward_weights=[0.0, 1.0])
    assert reasons(rollouts) == ["kept", "constant"]
    assert [member.reward for member in rollouts.groups[0].trajectories] == pytest.approx([0, 0.3, 0.1])
    assert [member.outcome for member in rollouts.groups[0].trajectories] == [0, 1, 0]


def test_rewards_that_were_not_given_are_left_out_and_never_zeros(tiny_model: Path, tmp_path: Path) -> None:
    tasks = written(
        [
            [1.0, None, 1.0],  # constant: the middle one is no failure
            [1.0, None, float("nan")],  # one scored member
            [None, None, None],
            [1.0, None, 0.0],
        ]
    )
    trainer, rollouts = trained(tiny_model, tmp_path, tasks, filtering(DropConstant(on="reward")))
    assert reasons(rollouts) == ["constant", "unscored", "unscored", "kept"]
    assert (rollouts.verdicts or ())[3].spread == pytest.approx(0.5)
    assert [member.reward for member in rollouts.groups[3].trajectories] == [1, None, 0]
    (line,) = read_metrics(RunFolder(tmp_path / "heedful").metrics)
    assert (line.metrics["reward/mean"].value, line.metrics["reward/mean"].n) == (0.8, 5)
    (batch,) = trainer._buffered_inputs
    assert sorted(batch["advantages"].tolist()) == pytest.approx([-0.7071, 0, 0.7071], abs=1e-3)


def test_a_named_function_that_gave_nothing_gave_no_zero(tiny_model: Path, tmp_path: Path) -> None:
    tasks = written(
        named(
            [
                [(1, 0.0), (None, 0.1), (1, 0.2)],  # constant where it was judged
                [(None, 0.0), (None, 0.1), (None, 0.2)],  # a task of another kind
                [(1, 0.0), (None, 0.0), (0, 0.0)],
            ]
        )
    )
    _, rollouts = trained(tiny_model, tmp_path, tasks, filtering(TopP(p=1.0, on="right")))
    assert reasons(rollouts) == ["constant", "unscored", "kept"]
    (line,) = read_metrics(RunFolder(tmp_path / "heedful").metrics)
    assert (line.metrics["reward/right"].value, line.metrics["reward/right"].n) == (0.75, 4)


def test_reward_functions_of_one_name_add_up_and_cannot_be_referred_to(tiny_model: Path, tmp_path: Path) -> None:
    twice = {"functions": ("score", "score")}
    args = arguments(tmp_path, num_generations=2, per_device_train_batch_size=2)
    recording = filtering(record=True)
    trainer_of(tiny_model, args, Script(written([[1.0, 0.25]])), heedful=recording, **twice).train()
    (group,) = read_rollouts(RunFolder(tmp_path / "heedful").rollouts(0)).groups
    assert [member.reward for member in group.trajectories] == [2, 0.5]
    named_twice = filtering(TopP(on="score"))
    with pytest.raises(ValueError, match=r"one reward function of each name .* several of the name 'score'"):
        trainer_of(tiny_model, args, Script(written([[1.0, 0.25]])), heedful=named_twice, **twice)


@pytest.mark.parametrize(
    ("heedful", "sentence"),
    [
        (filtering(TopP(on="outcome")), "no reward function measures success"),
        (filtering(TopP(on="wrong")), r"reward, outcome or a reward function \(right, form\), found 'wrong'"),
        (filtering(outcome="wrong"), "expected one of right, form, found 'wrong'"),
        (filtering(TopP(on="form")), "'form', which has the weight 0"),
    ],
    ids=["no outcome", "unknown function", "unknown outcome", "weight 0"],
)
def test_a_filter_that_could_not_choose_is_refused_before_the_run(
    heedful: HeedfulConfig, sentence: str, tiny_model: Path, tmp_path: Path
) -> None:
    args = arguments(tmp_path, num_generations=2, per_device_train_batch_size=2, reward_weights=[1.0, 0.0])
    script = Script(written(named([[(0, 0), (1, 0)]])))
    with pytest.raises(ValueError, match=sentence):
        trainer_of(tiny_model, args, script, heedful=heedful, functions=("right", "form"))


def test_an_outcome_beyond_its_range_is_a_sentence(tiny_model: Path, tmp_path: Path) -> None:
    tasks = written(named([[(5, 0), (0, 0)]]))
    with pytest.raises(ValueError, match=r"success from 0 to 1 of 'right', which .* names, found 5"):
        trained(tiny_model, tmp_path, tasks, filtering(outcome="right"))


def test_a_probe_watches_functions_of_one_name_generators_and_objects_apart() -> None:
    class Scored:
        def __call__(self, completions: Sequence[str], **_: Any) -> Iterator[float]:
            return map(float, map(len, completions))

    probe = Probe()
    watched = [probe.watch(lambda **_: [1.0]), probe.watch(lambda **_: [2.0]), probe.watch(Scored())]  # type: ignore
    assert [list(function(completions=["abc"])) for function in watched] == [[1.0], [2.0], [3.0]]
    assert [function.__name__ for function in watched] == ["<lambda>", "<lambda>", "Scored"]
    probe._trainer = SimpleNamespace(
        rollout_func=None,
        _tokenize_prompts=lambda prompts: ([(1,)], None, None),
        reward_weights=torch.tensor([1.0, 1.0, 1.0]),
        reward_func_names=["<lambda>", "<lambda>", "Scored"],
        reward_funcs=watched,
        processing_class=None,
        eos_token_ids=[END],
        environment_factories=None,
    )
    assert probe._completions(["a"], [[2]], {})[0].rewards == {"<lambda>": 3.0, "Scored": 3.0}


@pytest.mark.parametrize(("first", "found"), [(True, "in another place"), (False, "none")])
def test_a_probe_that_is_not_the_last_function_is_refused(first: bool, found: str) -> None:
    probe = Probe()
    trainer = SimpleNamespace(reward_funcs=[probe if first else len, len])
    with pytest.raises(ValueError, match=f"last of the reward functions.* found {found}"):
        probe.attach(trainer)


def test_an_infinite_reward_names_its_function() -> None:
    trainer: Any = SimpleNamespace(
        reward_weights=torch.tensor([1.0, -2.0]),
        reward_func_names=["form", "score"],
        reward_funcs=[None, None],
        processing_class=None,
    )
    with pytest.raises(ValueError, match=r"finite reward of the function 'score'.* found -inf. Return"):
        completions_of(trainer, [{}], [(1,)], [(2,)], None, [(0.0, math.inf)], None, [None])


def test_a_tokenizer_that_transformers_made_for_the_architecture_is_refused(
    tiny_model: Path, tmp_path: Path, tokenizer: Any
) -> None:
    other = tmp_path / "other"
    tokenizer.save_pretrained(other)
    (other / "config.json").write_text('{"model_type": "qwen2"}')
    replaced = AutoTokenizer.from_pretrained(other)
    refuse_replaced(PreTrainedTokenizerFast.from_pretrained(other), str(other), "TRL", "")
    trainer = trainer_of(tiny_model, arguments(tmp_path), Script(written([])), processing_class=replaced)
    with pytest.raises(ValueError, match=r"made it for.* processing_class=PreTrainedTokenizerFast\.from_pretrained\("):
        observer_of(trainer, HeedfulConfig(), DropConstant(on="reward"))
