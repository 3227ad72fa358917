"""Tools and TRL's own environments: every reply is a turn, and what a tool says is the prompt of the next one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl", reason="TRL is not installed (pip install 'heedful[trl]')")

import datasets
import trl
from tiny_trl import MEASURED, arguments, recorded, trainer_of
from transformers import AutoTokenizer

from heedful.diagnostics.cross_scores.thoughts import ThoughtTags, first_turn_thoughts
from tiny_models import llama

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")


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
    monkeypatch: pytest.MonkeyPatch, tiny_model: Path, folder: Path, tool: str | Callable[..., Any], **others: Any
) -> tuple[Any, Any]:
    """The trainer after a step on two prompts with two members each, and its tokenizer. `tool`: or an engine."""
    tokenizer = chatml(tiny_model)
    engine = answering(tokenizer, tool) if isinstance(tool, str) else tool
    monkeypatch.setattr(trl.GRPOTrainer, "_generate_single_turn", engine)
    args = arguments(folder, num_generations=2, per_device_train_batch_size=4, max_completion_length=300)
    model = llama(len(tokenizer), window=4096)
    given = {"heedful": MEASURED, "model": model, "processing_class": tokenizer, **others}
    trainer = trainer_of(tiny_model, args, **given)
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
