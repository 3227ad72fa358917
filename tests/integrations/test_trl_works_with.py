"""What HeedfulGRPOTrainer works with: prompts of both kinds, masks, tools, environments, adapters, evaluations."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl", reason="TRL is not installed (pip install 'heedful[trl]')")

import datasets
import numpy
import pyarrow.parquet
import torch
import trl
from tiny_trl import END, Script, Scripted, arguments, filtering, trainer_of, weights_of, written
from transformers import AutoTokenizer, TrainerCallback

from heedful.diagnostician import DiagnosticsConfig
from heedful.diagnostics.thoughts import ThoughtTags, first_turn_thoughts
from heedful.filters import DropConstant, KeepAll
from heedful.integrations.trl import HeedfulConfig
from heedful.scorers.hf import HFScorer
from heedful.storage import Rollouts, RunFolder, StepMetrics, read_metrics, read_rollouts, read_scores
from heedful.types import Ending
from tiny_models import llama

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")

MEASURED = HeedfulConfig(filter=DropConstant(on="reward"), diagnostics=DiagnosticsConfig(every=1, full_every=1))
CLOSE = 262
"""The id of `</think>`."""


class Snapshots(TrainerCallback):
    """The weights as they were before every optimiser step."""

    def __init__(self) -> None:
        self.states: list[dict[str, torch.Tensor]] = []

    def on_step_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        self.states.append({name: value.clone() for name, value in model.state_dict().items()})


def recorded(folder: Path, step: int = 0) -> tuple[Rollouts, StepMetrics]:
    run = RunFolder(folder / "heedful")
    return read_rollouts(run.rollouts(step)), list(read_metrics(run.metrics))[step]


def longest_first(completions: Sequence[Any], **_: Any) -> list[float]:
    """A reward that random bytes differ in."""
    texts = [completion if isinstance(completion, str) else completion[0]["content"] for completion in completions]
    return [float(sum(map(ord, text)) % 7) for text in texts]


def prompts(kind: str) -> Any:
    """Twice two prompts; those of the plain kind end in the opening tag."""
    if kind == "plain":
        return datasets.Dataset.from_list([{"prompt": f"Say {n}!<think>"} for n in range(4)])
    return datasets.Dataset.from_list([{"prompt": [{"role": "user", "content": f"Say {n}!"}]} for n in range(4)])


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
        reward_funcs=longest_first,
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
        assert [row["longest_first"] for row in logged] == [member.reward for member in members]
        for row, member in zip(logged, members, strict=True):
            (turn,) = member.turns
            text = tokenizer.decode([token for token in turn.reply.ids if token >= 5])
            completion = row["completion"]
            assert (completion if kind == "plain" else completion[0]["content"]) == text
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


def chatml(tokenizer_folder: Path) -> Any:
    """The tokenizer of bytes with the template of Qwen2.5, which knows tools."""
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    tokenizer.eos_token = "<|im_end|>"
    template = Path(trl.__file__).parent / "chat_templates" / "qwen2_5.jinja"
    tokenizer.chat_template = template.read_text(encoding="utf-8")
    return tokenizer


ASK = '<think>I ask</think><tool_call>\n{{"name": "{tool}", "arguments": {{"number": 3}}}}\n</tool_call><|im_end|>'
SAY = "<think>I know</think><answer>6</answer><|im_end|>"


def answering(tokenizer: Any, tool: str) -> Callable[..., Any]:
    """An engine that asks the tool first, unless it is the last member of the batch, and then answers."""

    def generate(self: Any, prompt_ids: list[list[int]], *_: Any, **__: Any) -> tuple[list[list[int]], None]:
        texts = [tokenizer.decode(ids) for ids in prompt_ids]
        last = len(texts) - 1 if not any("<tool_response>" in text for text in texts) else -1
        said = [
            SAY if "<tool_response>" in text or row == last else ASK.format(tool=tool) for row, text in enumerate(texts)
        ]
        return [tokenizer(text)["input_ids"] for text in said], None

    return generate


def told_of(group: Any) -> list[list[str]]:
    return [[turn.reply.text for turn in member.turns] for member in group.trajectories]


def double(number: int) -> str:
    """Doubles a number.

    Args:
        number: What to double.
    """
    return str(2 * number)


def by_place(completions: Sequence[Any], **_: Any) -> list[float]:
    """The first prompt's completions differ, the second's do not."""
    return [1.0, 0.0, 0.5, 0.5]


def with_engine(
    monkeypatch: pytest.MonkeyPatch, tiny_model: Path, folder: Path, tool: str, **others: Any
) -> tuple[Any, Any]:
    """The trainer after a step on two prompts with two members each, and its tokenizer."""
    tokenizer = chatml(tiny_model)
    monkeypatch.setattr(trl.GRPOTrainer, "_generate_single_turn", answering(tokenizer, tool))
    args = arguments(folder, num_generations=2, per_device_train_batch_size=4, max_completion_length=300)
    model = llama(len(tokenizer), window=4096)
    trainer = trainer_of(tiny_model, args, heedful=MEASURED, model=model, processing_class=tokenizer, **others)
    trainer.train()
    return trainer, tokenizer


def test_tools_their_results_are_prompts_and_never_thoughts(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"prompt": [{"role": "user", "content": f"Twice {n}?"}]} for n in (3, 4)]
    data = datasets.Dataset.from_list(rows)
    others = {"tools": [double], "train_dataset": data, "reward_funcs": by_place}
    trainer, _ = with_engine(monkeypatch, tiny_model, tmp_path, "double", **others)
    rollouts, metrics = recorded(tmp_path)
    asked = ASK.format(tool="double").removesuffix("<|im_end|>")
    said = SAY.removesuffix("<|im_end|>")
    assert told_of(rollouts.groups[0]) == [[asked, said], [asked, said]]
    assert told_of(rollouts.groups[1]) == [[asked, said], [said]]
    result = rollouts.groups[0].trajectories[0].turns[1].reply.prompt.text
    assert "<tool_response>\n6\n</tool_response>" in result
    assert result.endswith("<|im_start|>assistant\n")
    thoughts = first_turn_thoughts(rollouts.groups, ThoughtTags())
    assert [text.removesuffix("</think>") for text in thoughts.thought_texts_M] == ["I ask"] * 3 + ["I know"]
    assert len(thoughts.prompts_N) == 2
    assert [verdict.reason for verdict in rollouts.verdicts or ()] == ["kept", "constant"]
    assert metrics.metrics["length/turns"].value == 7 / 4
    assert metrics.metrics["information/first_turn/mi"].n == 4
    assert metrics.metrics["information/observation/mi"].why  # one observation: nothing to swap
    assert trainer.state.log_history[0]["tools/call_frequency"] == 3 / 4


class Doubler:
    """An environment of TRL: its methods are tools."""

    def reset(self, **_: Any) -> str:
        return "Twice 3?"

    def ask(self, number: int) -> str:
        """Doubles a number.

        Args:
            number: What to double.
        """
        return str(2 * number)

    def get_reward(self) -> float:
        return 1.0


class Tripler(Doubler):
    """Another one, which shows something else first."""

    def reset(self, **_: Any) -> str:
        return "Thrice 3?"

    def get_reward(self) -> float:
        return 0.25


def test_one_environment_without_a_dataset(tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_engine(monkeypatch, tiny_model, tmp_path, "ask", environment_factory=Doubler, reward_funcs=by_place)
    rollouts, metrics = recorded(tmp_path)
    assert [[member.reward for member in group.trajectories] for group in rollouts.groups] == [[2, 1], [1.5, 1.5]]
    assert {name for name in metrics.metrics if name.startswith("reward/")} == {
        "reward/mean",
        "reward/by_place",
        "reward/Doubler",
    }
    assert len({group.task.id for group in rollouts.groups}) == 1  # equal prompts are one task
    assert "Twice 3?" in rollouts.groups[0].trajectories[0].turns[0].reply.prompt.text


def test_several_environments_are_measured_each_for_itself(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = [{"role": "user", "content": ""}]
    rows = [{"prompt": user, "environment": "double"}, {"prompt": user, "environment": "triple"}]
    others = {
        "environment_factory": {"double": Doubler, "triple": Tripler},
        "train_dataset": datasets.Dataset.from_list(rows),
        "reward_funcs": by_place,
    }
    with_engine(monkeypatch, tiny_model, tmp_path, "ask", **others)
    rollouts, metrics = recorded(tmp_path)
    assert [group.task.id.rpartition("-")[0] for group in rollouts.groups] == ["double", "triple"]
    assert [[member.reward for member in group.trajectories] for group in rollouts.groups] == [[2, 1], [0.75, 0.75]]
    places = {name.split("/")[2] for name in metrics.metrics if name.startswith("information/first_turn/")}
    assert {"double", "triple"} <= places


def lora() -> Any:
    peft = pytest.importorskip("peft", reason="peft is not installed")
    return peft.LoraConfig(r=4, lora_alpha=8, lora_dropout=0.1, target_modules=["q_proj", "v_proj"])


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


def test_without_a_filter_every_group_is_kept_and_measured(tiny_model: Path, tmp_path: Path) -> None:
    measured = HeedfulConfig(filter=KeepAll(on="reward"), diagnostics=DiagnosticsConfig(every=1))
    args = arguments(tmp_path, num_generations=2, per_device_train_batch_size=4)
    trainer_of(tiny_model, args, Script(written([[1, 1], [0, 1]])), heedful=measured).train()
    rollouts, metrics = recorded(tmp_path)
    assert [verdict.reason for verdict in rollouts.verdicts or ()] == ["kept", "kept"]
    assert metrics.metrics["filter/kept_ratio"].value == 1


def test_completions_without_a_thought_are_no_reason_to_end_a_run(tiny_model: Path, tmp_path: Path) -> None:
    args = arguments(tmp_path, max_steps=2, num_generations=2, per_device_train_batch_size=4)
    trainer = trainer_of(tiny_model, args, Script(written([[1, 1], [0, 1], [1, 0], [0, 1]])), heedful=MEASURED)
    trainer.train()
    _, metrics = recorded(tmp_path, 1)
    assert metrics.metrics["information/first_turn/mi"].value is None
    assert metrics.metrics["information/first_turn/mi"].why == "no thought to score"
    assert RunFolder(tmp_path / "heedful").score_steps() == []
    assert metrics.metrics["reward/mean"].value == 0.5


def test_measuring_changes_nothing_of_the_training(tiny_model: Path, tmp_path: Path) -> None:
    # Sampled completions and dropout: any random number that a measurement drew from TRL's would show.
    weights, rewards = [], []
    for name, diagnostics in (("with", DiagnosticsConfig(every=1, full_every=2)), ("without", None)):
        heedful = (
            HeedfulConfig(filter=DropConstant(on="reward"), diagnostics=diagnostics) if diagnostics else filtering()
        )
        args = arguments(
            tmp_path / name,
            max_steps=3,
            num_generations=4,
            per_device_train_batch_size=4,
            gradient_accumulation_steps=2,
            learning_rate=0.05,
            disable_dropout=False,
            gradient_checkpointing=True,
            max_completion_length=12,
        )
        others = {"reward_funcs": longest_first, "train_dataset": prompts("plain"), "peft_config": lora()}
        trainer = trainer_of(tiny_model, args, heedful=heedful, **others)
        trainer.train()
        weights.append(weights_of(trainer))
        rewards.append([line["reward"] for line in trainer.state.log_history if "reward" in line])
    assert RunFolder(tmp_path / "with" / "heedful").score_steps() == [0, 2]
    assert rewards[0] == rewards[1]
    assert torch.equal(*weights)


@pytest.mark.parametrize(
    ("changes", "cut"),
    [
        ({"top_k": 20}, "top_k"),
        ({"top_p": 0.9}, "top_p"),
        ({"min_p": 0.1}, "min_p"),
        ({"generation_kwargs": {"typical_p": 0.8}}, "typical_p"),
        ({"generation_kwargs": {"top_p": 1.0}}, None),
    ],
    ids=["top_k", "top_p", "min_p", "typical_p", "neutral"],
)
def test_thoughts_of_a_truncated_sampler_are_not_scored_and_the_reason_is_given(
    changes: dict[str, Any], cut: str | None, tiny_model: Path, tmp_path: Path
) -> None:
    args = arguments(tmp_path, num_generations=4, per_device_train_batch_size=8, **changes)
    others = {"reward_funcs": longest_first, "train_dataset": prompts("plain")}
    trainer_of(tiny_model, args, heedful=MEASURED, **others).train()
    _, metrics = recorded(tmp_path)
    mi = metrics.metrics["information/first_turn/mi"]
    if cut is None:
        assert mi.value is not None
    else:
        assert (mi.value, mi.why) == (None, f"truncated sampling ({cut})")
    assert metrics.metrics["reward/mean"].value is not None
    assert not math.isnan(metrics.metrics["reward/mean"].value)
