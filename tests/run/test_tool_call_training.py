"""Training on tool calls: a whole run in which the ids that were sampled are the ids that are trained on."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

import tiny_models  # noqa: E402
from heedful import cli  # noqa: E402
from heedful.envs.common.tools import call_text  # noqa: E402
from heedful.envs.toys.bandit import Bandit  # noqa: E402
from heedful.filters import KeepAll  # noqa: E402
from heedful.models.chat.replies import Tags  # noqa: E402
from heedful.policies import Sampling, Weights  # noqa: E402
from heedful.run.config import DiagnosticsConfig, EvaluationConfig, TrainConfig  # noqa: E402
from heedful.run.loop import train_steps  # noqa: E402
from heedful.run.parts import assemble  # noqa: E402
from heedful.run.train import Run, resume, train  # noqa: E402
from heedful.storage import RunFolder, read_rollouts  # noqa: E402
from heedful.storage.trackers import JsonlTracker  # noqa: E402
from heedful.training.samples import make_samples  # noqa: E402
from heedful.types import Conversation, Reply  # noqa: E402
from heedful_envs.code.environment import Code  # noqa: E402
from tests.models.chat.test_harmony import HARMONY, harmony_tokenizer  # noqa: E402
from tests.models.chat.test_render import CHATML, make_tokenizer  # noqa: E402
from tests.models.chat.test_tool_templates import HERMES  # noqa: E402
from tests.run.test_loop import Watch, silent, trained  # noqa: E402
from tool_toy import TOOLS, Dictionary  # noqa: E402


@dataclass(frozen=True)
class Caller:
    """Samples calls of tools: searches first, and then finishes, half of the time with the word that was found."""

    def sampling(self, sampling: Sampling) -> Sampling:
        return sampling

    @contextmanager
    def open(self, *, rank: int = 0, note: Callable[[str], None] = print) -> Iterator[Caller]:
        yield self

    def weights_changed(self, weights: Weights) -> list[Any]:
        return []

    def policy(self, renderer: Any, sampling: Sampling, seed: int) -> CallingPolicy:
        return CallingPolicy(renderer, seed)


class CallingPolicy:
    temperature, version = 1.0, 0

    def __init__(self, renderer: Any, seed: int) -> None:
        self.renderer, self.seed = renderer, seed

    def respond(self, conversations: Sequence[Conversation]) -> list[Reply]:
        return [self.answer(conversation) for conversation in conversations]

    def answer(self, conversation: Conversation) -> Reply:
        renderer = self.renderer
        shown = conversation.messages[-1].content
        rng = random.Random(f"{self.seed} {conversation.key}")
        found = shown.rpartition(" ")[2] if rng.random() < 0.5 else "oak"
        plain = f"finish[{found}]" if conversation.turn else f"search[{shown.rpartition(' ')[2]}]"
        ids = renderer.as_sampled(f"I try it.\n{call_text(plain, TOOLS)}")
        return renderer.parse(renderer.next_prompt(conversation), ids, [-1.0] * len(ids), [1.0] * len(ids))


def model_folder(path: Path, template: str) -> Path:
    tokenizer = make_tokenizer(template)
    tiny_models.llama(len(tokenizer), window=2048).float().save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def test_a_run_records_the_tags_of_its_model_and_keeps_them(tmp_path: Path) -> None:
    tokenizer = harmony_tokenizer()
    tiny_models.llama(len(tokenizer), window=2048).float().save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    asked = config(tmp_path / "model", env=Bandit(), tags=Tags(), sampling=Sampling(tokens_per_turn=4))
    run = train(asked, out=tmp_path / "run", show=False)
    assert run.config.tags == Tags().known_by(HARMONY)
    assert Run.open(run.path).config == run.config
    prompt = run.rollouts(0).groups[0].trajectories[0].turns[0].reply.prompt.text
    assert prompt.endswith("<|start|>assistant<|channel|>analysis<|message|>")
    assert "answer in this form: Fox" in prompt
    longer = replace(run.config, steps=2)
    assert resume(run.path, changed=longer, typed=("steps",), show=False).config == longer
    assert Run.open(run.path).config == longer


def config(folder: Path, **changes: Any) -> TrainConfig:
    settings: dict[str, Any] = {
        "env": Dictionary(actions="tool_calls"),
        "model": str(folder),
        "tags": Tags(force=False),
        "filter": KeepAll(),
        "steps": 1,
        "groups": 2,
        "group_size": 4,
        "sampling": Sampling(tokens_per_turn=24),
        "evaluation": EvaluationConfig(times=0),
        "diagnostics": DiagnosticsConfig(enabled=False),
        "micro_batch_tokens": 4096,
    }
    return TrainConfig(**(settings | changes))


def test_a_run_trains_on_the_ids_of_the_calls(tmp_path: Path) -> None:
    settings = config(model_folder(tmp_path / "model", HERMES), policy=Caller())
    parts, folder = assemble(settings, silent, None), RunFolder.open(tmp_path / "run")
    before = {name: tensor.clone() for name, tensor in parts.model.state_dict().items()}
    tracker = JsonlTracker(folder.metrics)
    train_steps(settings, parts, folder, [tracker], Watch())
    tracker.close()
    assert any(not torch.equal(tensor, before[name]) for name, tensor in parts.model.state_dict().items())
    groups = read_rollouts(folder.rollouts(0)).groups
    trajectories = [member for group in groups for member in group.trajectories]
    assert {member.outcome for member in trajectories} == {0.0, 1.0}
    first, second = trajectories[0].turns[:2]
    assert first.reply.prompt.text.count("Tools:\n") == 1
    assert second.reply.prompt.text.startswith("\n<|im_start|>user\n<tool_response>\n")
    assert "Tools:" not in second.reply.prompt.text
    assert parts.renderer.piece(first.reply.ids[first.reply.thought.start]).startswith("I")
    assert parts.renderer._decode(first.reply.ids[first.reply.answer.start :]).startswith("<tool_call>")
    verdicts = KeepAll()([[member.outcome for member in group.trajectories] for group in groups], random.Random(0))
    for sample in make_samples(groups, verdicts, settings.algorithm.advantage):
        trajectory = groups[sample.group].trajectories[sample.member]
        sampled = tuple(token for token, trained in zip(sample.ids, sample.trained, strict=True) if trained)
        assert sampled == tuple(token for turn in trajectory.turns for token in turn.reply.ids)


def test_a_model_samples_under_a_template_with_tools(tmp_path: Path) -> None:
    folder = trained(config(model_folder(tmp_path / "model", HERMES)), tmp_path / "run").folder
    (group, *_) = read_rollouts(folder.rollouts(0)).groups
    assert all(turn.rewards == {"format": -0.1} for member in group.trajectories for turn in member.turns)


@pytest.mark.parametrize(
    ("model", "sentence"),
    [("seedling", "whose chat template has no tools"), ("plain", "renders the same text with and without them")],
)
def test_models_that_cannot_be_shown_tools_are_refused(model, sentence, tmp_path, capsys):
    source = "seedling" if model == "seedling" else str(model_folder(tmp_path / "plain", CHATML))
    words = ["train", "code", "--env.actions", "tool_calls", "--model", source, "--out", str(tmp_path / "run")]
    assert cli.run(words) == 2
    assert sentence in " ".join(capsys.readouterr().err.split())


def test_code_declares_one_tool():
    (tool,) = Code(actions="tool_calls").tools
    assert (tool.name, tool.form) == ("submit", "{}")
    assert Code().tools == ()
