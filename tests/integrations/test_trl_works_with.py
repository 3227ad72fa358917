"""What HeedfulGRPOTrainer works with: prompts of both kinds, masks, adapters, evaluations, a second run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl", reason="TRL is not installed (pip install 'heedful[trl]')")

import numpy
import pyarrow.parquet
import torch
from tiny_trl import (
    END,
    MEASURED,
    Script,
    Scripted,
    arguments,
    differing,
    filtering,
    lora,
    prompts,
    recorded,
    trainer_of,
    written,
)
from transformers import AutoTokenizer, TrainerCallback

from heedful.diagnostics.cross_scores.thoughts import ThoughtTags, first_turn_thoughts
from heedful.scorers.hf import HFScorer
from heedful.storage import Rollouts, RunFolder, read_metrics, read_scores
from heedful.types import Ending

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")

CLOSE = 262
"""The id of `</think>`."""


class Snapshots(TrainerCallback):
    """The weights as they were before every optimiser step."""

    def __init__(self) -> None:
        self.states: list[dict[str, torch.Tensor]] = []

    def on_step_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        self.states.append({name: value.clone() for name, value in model.state_dict().items()})


@pytest.mark.parametrize("kind", ["plain", "conversational"])
def test_sampled_completions_of_plain_and_of_conversational_prompts_are_read_as_they_were_sampled(
    kind: str, tiny_model: Path, tmp_path: Path
) -> None:
    snapshots = Snapshots()
    args = arguments(
        tmp_path,
        max_steps=2,
        num_generations=4,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        learning_rate=0.05,
        log_completions=True,
        num_completions_to_print=0,
    )
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    trainer = trainer_of(
        tiny_model,
        args,
        heedful=MEASURED,
        reward_funcs=differing,
        train_dataset=prompts(kind),
        callbacks=[snapshots],
    )
    trainer.train()
    for step, state in enumerate(snapshots.states):
        rollouts, metrics = recorded(tmp_path, step)
        logged = pyarrow.parquet.read_table(
            tmp_path / "completions" / f"completions_{step + 1:05d}.parquet"
        ).to_pylist()
        members = [member for group in rollouts.groups for member in group.trajectories]
        assert [row["heedful_id"] for row in logged] == [f"{step}/{row // 4}/{row % 4}" for row in range(8)]
        assert [row["differing"] for row in logged] == [member.reward for member in members]
        for row, member in zip(logged, members, strict=True):
            (turn,) = member.turns
            text = tokenizer.decode([token for token in turn.reply.ids if token >= 5])
            completion = row["completion"]  # TRL 1.14 logs conversations as texts, too
            assert (completion if isinstance(completion, str) else completion[0]["content"]) == text
            assert turn.reply.prompt.text.endswith("!<think>" if kind == "plain" else "<|assistant|>")
            assert member.policy_version == step
            if kind == "plain":  # the tag stands in the prompt, so the reply begins with the thought
                assert turn.reply.thought.start == 0
        if kind == "plain":
            assert_scored_by(trainer, state, rollouts, tmp_path, step)
            assert metrics.metrics["information/first_turn/mi"].n == 8


def assert_scored_by(trainer: Any, state: dict[str, torch.Tensor], rollouts: Rollouts, folder: Path, step: int) -> None:
    """The stored matrix is what these weights say of the thoughts."""
    trainer.model.load_state_dict(state)
    bare = trainer.model.get_base_model() if hasattr(trainer.model, "get_base_model") else trainer.model
    thoughts = first_turn_thoughts(rollouts.groups, ThoughtTags())
    expected = HFScorer(bare).cross_score(thoughts.prompts_N, thoughts.thoughts_M, thoughts.own_M, 1.0)
    assert expected.method in ("packed", "trie")  # what TRL does to the model's forward pass costs no speed
    stored = read_scores(RunFolder(folder / "heedful").scores(step))
    assert numpy.abs(stored.scores_MN - numpy.asarray(expected.scores_MN)).max() < 1e-8


def two_turns(prompt: str, first: Sequence[int], rewards: Sequence[float]) -> Scripted:
    """Members that think, answer, are told something (70, 71), think again and end. Some are cut off."""
    turn, told = (*first, CLOSE, 90, END), (70, 71, CLOSE, 72)
    answers = ((*turn, *told, 80, CLOSE, 91, END), (*turn, *told, 81, 82), turn)
    masks = ((*(1,) * len(turn), 0, 0, 0, 0, 1, 1, 1, 1), (*(1,) * len(turn), 0, 0, 0, 0, 1, 1), (1,) * len(turn))
    return Scripted(prompt, answers, tuple({"score": value} for value in rewards), masks)


@pytest.mark.parametrize("masked", [False, True], ids=["as it is", "mask_truncated_completions"])
def test_a_foreign_rollout_func_with_a_mask_is_split_into_turns_and_what_was_not_sampled_is_no_thought(
    masked: bool, tiny_model: Path, tmp_path: Path
) -> None:
    tasks = [two_turns("a<think>", [10, 11], [1, 0, 1]), two_turns("bb<think>", [12], [0, 0, 0])]
    args = arguments(
        tmp_path, num_generations=3, per_device_train_batch_size=6, mask_truncated_completions=masked, loss_type="dapo"
    )
    trainer = trainer_of(tiny_model, args, Script(tasks), heedful=MEASURED)
    trainer.train()
    rollouts, metrics = recorded(tmp_path)
    first, cut, short = rollouts.groups[0].trajectories
    assert [len(member.turns) for member in (first, cut, short)] == [2, 2, 1]
    assert [turn.reply.ids for turn in first.turns] == [(10, 11, CLOSE, 90, END), (80, CLOSE, 91, END)]
    assert first.turns[1].reply.prompt.ids == (70, 71, CLOSE, 72)  # a tag that the environment wrote ends no thought
    assert [(turn.reply.thought.start, turn.reply.thought.end) for turn in first.turns] == [(0, 3), (0, 0)]
    assert cut.turns[1].reply.ids == (81, 82)
    assert (cut.turns[1].reply.cut, cut.ending, cut.reward) == (True, Ending.OUT_OF_TOKENS, 0)
    assert first.context_ids(1) == (*first.turns[0].reply.prompt.ids, 10, 11, CLOSE, 90, END, 70, 71, CLOSE, 72)
    sampled = sum(sum(mask) for task in tasks for mask in task.masks or ())
    assert metrics.metrics["tokens/collect"].value == sampled
    assert metrics.metrics["length/reasoning_tokens"].value == pytest.approx(3 * (3 + 2) / 10)  # over 10 turns
    (batch,) = trainer._buffered_inputs
    mask = (batch["completion_mask"] * batch["tool_mask"]).sum().item()
    kept = [sum(row) for row in tasks[0].masks or ()]
    assert mask == batch["num_items_in_batch"].item() == (kept[0] + kept[2] if masked else sum(kept))


@pytest.mark.parametrize("beta", [0.0, 0.1])
def test_an_adapter_is_trained_filtered_and_measured_with(beta: float, tiny_model: Path, tmp_path: Path) -> None:
    snapshots = Snapshots()
    tasks = written([[0, 1, 1], [1, 1, 1], [0, 0, 1], [1, 0, 0]])
    tasks = [Scripted(f"{task.prompt}<think>", task.answers, task.rewards) for task in tasks]
    args = arguments(
        tmp_path,
        max_steps=2,
        num_generations=3,
        per_device_train_batch_size=3,
        gradient_accumulation_steps=2,
        learning_rate=0.1,
        beta=beta,
        save_strategy="steps",
        save_steps=1,
    )
    adapter = {"peft_config": lora(), "callbacks": [snapshots]}
    trainer = trainer_of(tiny_model, args, Script(tasks), heedful=MEASURED, **adapter)
    trainer.train()
    for step, state in enumerate(snapshots.states):
        rollouts, _ = recorded(tmp_path, step)
        assert_scored_by(trainer, state, rollouts, tmp_path, step)
    before, after = (read_scores(RunFolder(tmp_path / "heedful").scores(step)).scores_MN for step in (0, 1))
    assert before.shape == after.shape == (6, 2)
    assert (tmp_path / "checkpoint-2" / "adapter_model.safetensors").exists()


def test_an_empty_step_leaves_an_adapter_as_it_is(tiny_model: Path, tmp_path: Path) -> None:
    args = arguments(
        tmp_path,
        max_steps=2,
        num_generations=2,
        per_device_train_batch_size=4,
        learning_rate=0.1,
        optim="adamw_torch",
        weight_decay=0.1,
    )
    script = Script(written([[0, 1], [1, 0], [1, 1], [0, 0]]))
    snapshots = Snapshots()
    trainer = trainer_of(tiny_model, args, script, heedful=filtering(), peft_config=lora(), callbacks=[snapshots])
    trainer.train()
    start, between = snapshots.states
    end = trainer.model.state_dict()
    assert any(not torch.equal(start[name], between[name]) for name in start)
    assert all(torch.equal(between[name], end[name]) for name in end)


def test_evaluations_are_neither_filtered_nor_measured_and_their_columns_are_empty(
    tiny_model: Path, tmp_path: Path
) -> None:
    tasks = written([[0, 1], [1, 1], [0, 0], [1, 0]])
    held_out = written([[1, 1]], seed=1)
    held_out = [Scripted("held out", task.answers, task.rewards) for task in held_out]
    script = Script([*tasks, *held_out])
    args = arguments(
        tmp_path,
        max_steps=2,
        num_generations=2,
        per_device_train_batch_size=4,
        per_device_eval_batch_size=2,
        eval_strategy="steps",
        eval_steps=1,
        eval_on_start=True,
        log_completions=True,
        num_completions_to_print=0,
    )
    data = script.dataset()
    splits = {"train_dataset": data.select(range(4)), "eval_dataset": data.select([4])}
    trainer = trainer_of(tiny_model, args, script, heedful=MEASURED, **splits)
    trainer.train()
    evaluated = [line for line in trainer.state.log_history if "eval_reward" in line]
    assert len(evaluated) == 3
    assert all(line["eval_reward"] == 1 for line in evaluated)
    assert not any(name.startswith(("eval_filter/", "eval_signal/")) for line in evaluated for name in line)
    run = RunFolder(tmp_path / "heedful")
    assert run.rollout_steps() == [0, 1]
    assert [line.metrics["filter/kept_groups"].value for line in read_metrics(run.metrics)] == [1, 1]
    table = pyarrow.parquet.read_table(tmp_path / "completions" / "completions_00002.parquet").to_pylist()
    ids = {row["prompt"]: [other["heedful_id"] for other in table if other["prompt"] == row["prompt"]] for row in table}
    assert ids["held out"] == [None, None]
    assert ids[tasks[3].prompt] == ["1/1/0", "1/1/1"]


def test_a_second_run_of_the_same_trainer_has_a_record_of_its_own(tiny_model: Path, tmp_path: Path) -> None:
    tasks = written([[0, 1], [1, 0], [1, 1], [0, 1]])
    args = arguments(tmp_path, max_steps=2, num_generations=2, per_device_train_batch_size=4)
    trainer = trainer_of(tiny_model, args, Script(tasks), heedful=MEASURED)
    trainer.train()
    first = RunFolder(tmp_path / "heedful").metrics.read_bytes()
    trainer.train()
    assert RunFolder(tmp_path / "heedful").metrics.read_bytes() == first
    again = RunFolder(tmp_path / "heedful-2")
    assert again.rollout_steps() == [0, 1]
    assert [line.step for line in read_metrics(again.metrics)] == [0, 1]
