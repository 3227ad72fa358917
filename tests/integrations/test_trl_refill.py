"""Refill: more prompts are drawn while too few groups vary, and the update is that of the groups that were accepted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl", reason="TRL is not installed (pip install 'heedful[trl]')")

import datasets
from test_trl_tools import ASK, SAY, double, with_engine
from tiny_trl import MEASURED, Gradients, Script, Scripted, arguments, lora, recorded, trainer_of, weights_of, written

from heedful.envs.toys.echo import Echo
from heedful.filters import DropConstant, KeepAll
from heedful.integrations.trl import HeedfulConfig, environment_reward, to_trl_rollout_func
from heedful.measuring.diagnostics_config import DiagnosticsConfig

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")

UP, DOWN, FLAT = [0, 1, 0, 0], [1, 0.5, 1, 1], [1, 1, 1, 1]
TASKS = written([UP, FLAT, FLAT, UP, DOWN, FLAT, FLAT, DOWN, UP])


def config(**changes: Any) -> HeedfulConfig:
    off = DiagnosticsConfig(enabled=False)
    return HeedfulConfig(**{"filter": DropConstant(on="reward"), "diagnostics": off, **changes})


def run(
    model: Path, folder: Path, heedful: HeedfulConfig, tasks: Any = TASKS, adapter: bool = False, **changes: Any
) -> tuple[Any, Gradients]:
    noted, script = Gradients(), Script(tasks)
    given = {"num_generations": 4, "per_device_train_batch_size": 6, "gradient_accumulation_steps": 2, **changes}
    args = arguments(folder, learning_rate=0.01, **given)
    others = {"callbacks": [noted], "peft_config": lora(dropout=0.0) if adapter else None}
    trainer = trainer_of(model, args, script, heedful=heedful, **others)
    trainer.train()
    return trainer, noted


@pytest.mark.parametrize(("loss", "adapter"), [("grpo", False), ("dapo", False), ("dapo", True)])
def test_the_gradient_is_that_of_the_accepted_groups(
    loss: str, adapter: bool, tiny_model: Path, tmp_path: Path
) -> None:
    _, found = run(tiny_model, tmp_path / "a", config(sampling_batches=4, seed=1), TASKS, adapter, loss_type=loss)
    rollouts, line = recorded(tmp_path / "a")
    kept = [group for group, verdict in zip(rollouts.groups, rollouts.verdicts, strict=True) if verdict.kept]
    assert line.metrics["filter/refill"].value == "enough"
    assert len(kept) == line.metrics["filter/kept_groups"].value == 3
    assert line.metrics["filter/draws"].value > 1
    shown = [group.trajectories[0].turns[0].reply.prompt.text for group in kept]
    accepted = [next(task for task in TASKS if task.prompt in text) for text in shown]
    every = config(filter=KeepAll(on="reward"))
    _, expected = run(tiny_model, tmp_path / "b", every, accepted, adapter, loss_type=loss)
    assert (found.steps[0] - expected.steps[0]).norm() <= 1e-6 * expected.steps[0].norm() > 0


def test_a_refill_ends_with_the_budget_of_batches_or_of_tokens(tiny_model: Path, tmp_path: Path) -> None:
    flat = written([FLAT] * 12)
    for name, changes, draws in (("batches", {"sampling_batches": 3}, 3), ("tokens", {"sampling_tokens": 1}, 1)):
        run(tiny_model, tmp_path / name, config(**{"sampling_batches": 9, **changes}), flat)
        _, line = recorded(tmp_path / name)
        assert line.metrics["filter/refill"].value == "bound"
        assert line.metrics["filter/draws"].value == draws


def test_a_resumed_run_draws_on_where_it_was(tiny_model: Path, tmp_path: Path) -> None:
    saves = {"save_strategy": "steps", "save_steps": 1}
    whole, _ = run(tiny_model, tmp_path / "a", config(sampling_batches=4), max_steps=3, **saves)
    args = arguments(
        tmp_path / "a",
        learning_rate=0.01,
        max_steps=3,
        num_generations=4,
        per_device_train_batch_size=6,
        gradient_accumulation_steps=2,
    )
    script = Script(TASKS)
    again = trainer_of(
        tiny_model, args, script, heedful=config(sampling_batches=4), callbacks=[], train_dataset=script.dataset()
    )
    again.train(resume_from_checkpoint=str(tmp_path / "a" / "checkpoint-2"))
    assert (weights_of(again) == weights_of(whole)).all()


def test_what_a_refill_needs_is_said_before_the_run(tiny_model: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="needs a filter that drops groups"):
        run(tiny_model, tmp_path, config(sampling_batches=2, filter=KeepAll(on="reward")))


def asked(rollouts: Any) -> list[str]:
    return [group.trajectories[0].turns[0].reply.prompt.text for group in rollouts.groups]


def test_no_prompt_is_drawn_twice_and_the_search_ends_with_the_data(tiny_model: Path, tmp_path: Path) -> None:
    one_varies = written([FLAT] * 5 + [UP] + [FLAT] * 3)
    run(tiny_model, tmp_path, config(sampling_batches=9), one_varies)
    rollouts, line = recorded(tmp_path)
    assert (line.metrics["filter/refill"].value, line.metrics["filter/collected_groups"].value) == ("pool", 9)
    assert len(set(asked(rollouts))) == 9
    assert sum(verdict.kept for verdict in rollouts.verdicts or ()) == 1


def test_a_refill_sees_the_data_without_the_columns_that_trl_removes(tiny_model: Path, tmp_path: Path) -> None:
    script, columns = Script(written([FLAT] * 9)), set[str]()

    def score(prompts: Sequence[str], **fields: Any) -> list[float]:
        columns.update(fields)
        return [1.0] * len(prompts)

    shape = {"num_generations": 4, "per_device_train_batch_size": 6, "gradient_accumulation_steps": 2}
    args = arguments(tmp_path, remove_unused_columns=True, **shape)
    data = script.dataset().add_column("extra", [*range(9)])
    heedful = config(sampling_batches=9)
    trainer_of(tiny_model, args, script, heedful=heedful, train_dataset=data, reward_funcs=[score]).train()
    shown = asked(recorded(tmp_path)[0])
    assert len(set(shown)) == len(shown) == 9
    assert "extra" not in columns


def test_the_order_goes_on_in_the_next_update_and_leaves_out_its_batch(tiny_model: Path, tmp_path: Path) -> None:
    run(tiny_model, tmp_path, config(sampling_batches=2, seed=2), written([FLAT] * 9), max_steps=3)
    for step in range(3):
        shown = asked(recorded(tmp_path, step)[0])
        assert len(set(shown)) == len(shown) > 3


def test_an_evaluation_in_between_changes_nothing(tiny_model: Path, tmp_path: Path) -> None:
    plain, _ = run(tiny_model, tmp_path / "a", config(sampling_batches=4), max_steps=3)
    held_out = [Scripted(f"held out {task.prompt}", task.answers, task.rewards) for task in TASKS[:1]]
    script = Script([*TASKS, *held_out])
    splits = {"train_dataset": Script(TASKS).dataset(), "eval_dataset": Script(held_out).dataset()}
    args = arguments(
        tmp_path / "b",
        learning_rate=0.01,
        max_steps=3,
        num_generations=4,
        per_device_train_batch_size=6,
        gradient_accumulation_steps=2,
        per_device_eval_batch_size=4,
        eval_strategy="steps",
        eval_steps=1,
    )
    between = trainer_of(tiny_model, args, script, heedful=config(sampling_batches=4), **splits)
    between.train()
    assert sum("eval_reward" in entry for entry in between.state.log_history) == 3
    # Rows are shuffled into other micro-batches, and TRL computes some of its sums in float32.
    assert (weights_of(between) - weights_of(plain)).abs().max() < 1e-8
    mine, its = (recorded(tmp_path / name, 2)[1].metrics for name in ("a", "b"))
    for name in (name for name in its if name.startswith(("filter/", "reward/", "signal/", "tokens/"))):
        assert mine[name].value == its[name].value


def by_prompt(prompts: Sequence[Any], **_: Any) -> list[float]:
    """Members differ for the number 5 alone."""
    return [float(row % 2) if "5" in prompt[0]["content"] else 1.0 for row, prompt in enumerate(prompts)]


def test_tools_are_called_in_a_refill_too(tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = datasets.Dataset.from_list([{"prompt": [{"role": "user", "content": f"Twice {n}?"}]} for n in range(3, 7)])
    refilling = replace(MEASURED, sampling_batches=9)
    others = {"tools": [double], "train_dataset": data, "reward_funcs": by_prompt, "heedful": refilling}
    trainer, _ = with_engine(monkeypatch, tiny_model, tmp_path, "double", **others)
    rollouts, line = recorded(tmp_path)
    assert line.metrics["filter/refill"].value == "pool"
    assert len(set(asked(rollouts))) == 4
    assert [group for group, verdict in zip(asked(rollouts), rollouts.verdicts or (), strict=True) if verdict.kept] == [
        text for text in asked(rollouts) if "5" in text
    ]
    assert all(len(group.trajectories[0].turns) == 2 for group in rollouts.groups)
    (batch,) = trainer._buffered_inputs
    assert len(batch["advantages"]) == 2


class Counter:
    """An environment of TRL that pays for calls of its tool, where its number is above 4."""

    def reset(self, number: int, **_: Any) -> str:
        self._number, self._calls = number, 0
        return f"Twice {number}?"

    def ask(self, number: int) -> str:
        """Doubles a number.

        Args:
            number: What to double.
        """
        self._calls += 1
        return str(2 * number)

    def get_reward(self) -> float:
        return 1.0 if self._number < 5 else float(self._calls)


def every_second_asks(self: Any, prompt_ids: Any, *_: Any, **__: Any) -> tuple[list[list[int]], None]:
    tokenizer = self.processing_class
    texts = [tokenizer.decode(ids) for ids in prompt_ids]
    said = [SAY if "<tool_response>" in text or row % 2 else ASK.format(tool="ask") for row, text in enumerate(texts)]
    return [tokenizer(text)["input_ids"] for text in said], None


def test_the_gradient_of_a_refill_by_an_environment_is_that_of_its_accepted_groups(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each draw resets the instances that the earlier one has used."""
    found = []
    for numbers, heedful in ((range(3, 7), config(sampling_batches=9)), ((5, 6), config(filter=KeepAll(on="reward")))):
        noted, folder = Gradients(), tmp_path / str(len(numbers))
        user = [{"role": "user", "content": ""}]
        data = datasets.Dataset.from_list([{"prompt": user, "number": number} for number in numbers])
        others = {"environment_factory": Counter, "reward_funcs": [], "train_dataset": data, "callbacks": [noted]}
        with_engine(monkeypatch, tiny_model, folder, every_second_asks, heedful=heedful, **others)
        found += noted.steps
    rollouts, line = recorded(tmp_path / "4")
    assert line.metrics["filter/refill"].value == "enough"
    rewards = [[member.reward for member in group.trajectories] for group in rollouts.groups]
    assert sorted(rewards) == [[1.0, 0.0], [1.0, 0.0], [1.0, 1.0], [1.0, 1.0]]
    assert (found[0] - found[1]).norm() <= 1e-6 * found[1].norm() > 0


def test_episodes_of_an_environment_are_played_in_a_refill_too(seedling_folder: Path, tmp_path: Path) -> None:
    rollouts = to_trl_rollout_func(Echo(instructions="brief"), tokens_per_turn=2)  # too short to answer
    args = arguments(tmp_path, num_generations=4, per_device_train_batch_size=8, max_completion_length=64)
    trainer = trainer_of(
        seedling_folder,
        args,
        heedful=config(filter=DropConstant(on="outcome"), sampling_batches=2),
        reward_funcs=environment_reward,
        rollout_func=rollouts,
        train_dataset=rollouts.dataset(6),
    )
    trainer.train()
    found, line = recorded(tmp_path)
    assert line.metrics["filter/draws"].value == 2
    assert len({group.task.id for group in found.groups}) == len(found.groups) == 4
    assert [[member.member for member in group.trajectories] for group in found.groups] == [[0, 1, 2, 3]] * 4
