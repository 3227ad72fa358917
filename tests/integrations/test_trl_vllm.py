"""TRL with vLLM, whose engine is a fake here: a copy of the model that samples by itself. tests/servers has real ones.

The fake stands where TRL's `VLLMGeneration` does, so all of TRL's own code around it runs: when weights are pushed, the
ratio of importance sampling, and the batch that it becomes a part of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

pytest.importorskip("trl", reason="TRL is not installed (pip install 'heedful[trl]')")

import datasets
import torch
import trl.trainer.grpo_trainer
from tiny_trl import END, Gradients, arguments, differing, filtering, recorded, trainer_of

from heedful.envs.toys.echo import Echo
from heedful.filters import DropConstant, KeepAll
from heedful.integrations.trl import HeedfulConfig, environment_reward, to_trl_rollout_func
from heedful.integrations.trl.removal import KEPT
from heedful.integrations.trl.rollouts import _as_rows, _Engine
from heedful.integrations.trl.sampler import difference_metrics
from heedful.models.chat.replies import unanswered
from heedful.types import Ending, Prompt, Task, Trajectory, Turn

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")

MEAN, LARGEST, SHARE = (f"sampling/sampling_logp_difference/{name}" for name in ("mean", "max", "share"))
CLOSE = 1e-4
"""Nats. The fake tells float64, and TRL makes float32 of it."""


class CopyingEngine:
    """Stands in for TRL's `VLLMGeneration`: holds the weights of the last push, and tells its log-probabilities."""

    made: ClassVar[list[CopyingEngine]]
    stale = False
    """Pushes are lost."""
    noise = 0.0
    """Deviation of what a push adds to each weight."""

    def __init__(self, model: Any, max_completion_length: int, temperature: float, **_: Any) -> None:
        self._learner, self._held = model, type(model)(model.config).to(model.dtype).eval()
        self._held.load_state_dict(
            model.state_dict()
        )  # a deep copy would call the learner's forward, which TRL replaces
        self._temperature = temperature
        self._random = torch.Generator().manual_seed(0)
        self.max_completion_length = max_completion_length
        self.limits: list[int] = []
        self.made.append(self)

    @torch.no_grad()
    def sync_weights(self) -> None:
        if not self.stale:
            self._held.load_state_dict(self._learner.state_dict())
            for parameter in self._held.parameters():
                parameter.data += self.noise * torch.randn(parameter.shape, generator=self._random)

    @torch.no_grad()
    def generate(self, prompts: Sequence[list[int]], images: Any, num_generations: int, profiler: Any) -> Any:
        self.limits.append(self.max_completion_length)
        told = [self._sampled(list(prompt)) for prompt in prompts]
        return prompts, [ids for ids, _ in told], [[[value] for value in values] for _, values in told], None

    def _sampled(self, prompt: list[int]) -> tuple[list[int], list[float]]:
        ids, told = list[int](), list[float]()
        while len(ids) < self.max_completion_length and END not in ids:
            logits_V = self._held(torch.tensor([prompt + ids])).logits[0, -1] / self._temperature
            ends_V = logits_V.index_fill(0, torch.tensor([END]), float(logits_V.max()))  # so replies differ in length
            ids.append(int(torch.multinomial(ends_V.softmax(-1), 1, generator=self._random)))
            told.append(float(logits_V.log_softmax(-1)[ids[-1]]))
        return ids, told


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> type[CopyingEngine]:
    class Engine(CopyingEngine):
        made: ClassVar[list[CopyingEngine]] = []

    monkeypatch.setattr(trl.trainer.grpo_trainer, "VLLMGeneration", Engine)
    return Engine


def mostly_flat(completions: Sequence[str], **_: Any) -> list[float]:
    """A reward that varies in some groups."""
    return [float(len(completion) > 2) for completion in completions]


def trainer(model: Path, folder: Path, heedful: HeedfulConfig | None = None, **changes: Any) -> Any:
    """Plain prompts of unequal lengths, 3 groups of 4 in 2 micro-batches, at a temperature of .7."""
    data = datasets.Dataset.from_list([{"prompt": f"{'?' * (n % 5)}Say {n}!<think>"} for n in range(9)])
    reward = changes.pop("reward", differing)
    others = {name: changes.pop(name) for name in ("callbacks", "rollout_func", "train_dataset") if name in changes}
    chosen = {
        "use_vllm": True,
        "num_generations": 4,
        "per_device_train_batch_size": 6,
        "gradient_accumulation_steps": 2,
        "temperature": 0.7,
        "learning_rate": 0.05,
        **changes,
    }
    args = arguments(folder, **chosen)
    others = {"train_dataset": data} | others
    return trainer_of(model, args, heedful=heedful or filtering(record=True), reward_funcs=[reward], **others)


def kept_rows(trainer: Any) -> list[tuple[Any, Any]]:
    """For each micro-batch of a run: the engine's and the learner's log-probabilities of all kept tokens. The learner's
    are computed from the rows that the loss gets."""
    found, loss = [], trainer.compute_loss

    def noted(model: Any, batch: Any, *rest: Any, **named: Any) -> Any:
        ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
        read = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
        with torch.no_grad():
            own, _, _ = trainer._get_per_token_logps_and_entropies(model, ids, read, batch["completion_ids"].shape[1])
        mask = (batch["completion_mask"] * batch[KEPT][:, None]).bool()
        found.append((batch["sampling_per_token_logps"][mask], own[mask]))
        return loss(model, batch, *rest, **named)

    trainer.compute_loss = noted
    trainer.train()
    return found


@pytest.mark.parametrize("batches", [1, 4], ids=["filtered", "refilled"])
def test_every_kept_row_of_an_update_has_the_log_probabilities_of_its_own_tokens(
    batches: int, engine: type[CopyingEngine], tiny_model: Path, tmp_path: Path
) -> None:
    config = filtering(record=True, sampling_batches=batches)
    found = kept_rows(trainer(tiny_model, tmp_path, config, reward=mostly_flat, max_steps=4))
    told, own = (torch.cat(values) for values in zip(*found, strict=True))
    assert len(told) > 30
    assert (told - own).abs().max() < CLOSE
    dropped = [recorded(tmp_path, step)[1].metrics["filter/dropped/constant"].value for step in range(4)]
    assert any(dropped)
    draws = [recorded(tmp_path, step)[1].metrics["filter/draws"].value for step in range(4)] if batches > 1 else [2]
    assert max(draws) > 1


def test_the_engine_samples_with_the_learners_weights_at_every_step_and_after_a_resume(
    engine: type[CopyingEngine], tiny_model: Path, tmp_path: Path
) -> None:
    common = {"save_strategy": "steps", "save_steps": 1, "max_steps": 3}
    trainer(tiny_model, tmp_path, **common).train()
    resumed = trainer(tiny_model, tmp_path, **common)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert len(engine.made) == 2  # the second one began with the first weights
    for step in range(3):
        metrics = recorded(tmp_path, step)[1].metrics
        assert metrics[LARGEST].value < CLOSE
        assert metrics[SHARE].value == 0
    assert metrics[MEAN].n > 12


def test_the_difference_shows_an_engine_that_misses_its_pushes(
    engine: type[CopyingEngine], tiny_model: Path, tmp_path: Path
) -> None:
    engine.stale = True
    made = trainer(tiny_model, tmp_path, HeedfulConfig(filter=KeepAll(on="reward"), logs="all"), max_steps=2)
    made.train()
    first, second = (recorded(tmp_path, step)[1].metrics for step in range(2))
    assert first[LARGEST].value < CLOSE
    assert second[LARGEST].value > second[MEAN].value > 1e-3
    (logged,) = [row for row in made.state.log_history if row.get("step") == 2 and MEAN in row]
    for name in (MEAN, LARGEST):  # TRL's own numbers, in its log once
        assert logged[name] == pytest.approx(second[name].value, rel=1e-4)
    assert logged[SHARE] == pytest.approx(second[SHARE].value)


def test_the_difference_is_over_the_sampled_tokens_of_all_draws_and_processes() -> None:
    told = torch.tensor([[-1.0, -2.0, 0.0], [-3.0, torch.nan, -1.0]])
    own = torch.tensor([[-1.05, -2.2, 9.0], [-3.0, -7.0, -1.0]])
    first = {
        "sampling_per_token_logps": told,
        "old_per_token_logps": own,
        "completion_mask": torch.tensor([[1, 1, 0], [1, 1, 1]]),
        "tool_mask": torch.tensor([[1, 1, 1], [1, 1, 0]]),
    }
    second = {name: first[name][:1, :1] for name in ("sampling_per_token_logps", "old_per_token_logps")}
    second["completion_mask"] = torch.ones(1, 1)
    # Differences .05, .2, 0 and, of the second draw, .05. What a tool wrote, padding and the NaN do not count.
    metrics = {metric.name: metric for metric in difference_metrics([first, second], list)}
    assert metrics[MEAN].value == pytest.approx(0.3 / 4)
    assert metrics[LARGEST].value == pytest.approx(0.2)
    assert metrics[SHARE].value == 0.25
    assert {metric.n for metric in metrics.values()} == {4}
    # A second process has 4 tokens: in all .6 nats apart, .4 at most, and 2 beyond the limit.
    both = difference_metrics([first, second], lambda own: [*own, (0.6, 0.4, 2, 4)])
    expected = {MEAN: 0.9 / 8, LARGEST: 0.4, SHARE: 3 / 8}
    assert {metric.name: metric.value for metric in both} == pytest.approx(expected)


def test_an_environment_is_played_by_the_engine_within_its_own_limit_of_tokens(
    engine: type[CopyingEngine], tiny_model: Path, tmp_path: Path
) -> None:
    rollouts = to_trl_rollout_func(Echo(instructions="brief"), tokens_per_turn=6)
    data = rollouts.dataset(4)
    made = trainer(tiny_model, tmp_path, reward=environment_reward, rollout_func=rollouts, train_dataset=data)
    made.train()
    assert set(engine.made[0].limits) == {6}
    assert engine.made[0].max_completion_length == 16
    assert recorded(tmp_path)[1].metrics[LARGEST].value < CLOSE


def test_a_reply_that_had_no_room_does_not_hide_the_log_probabilities_of_the_others() -> None:
    none = unanswered(Prompt("", (5,)))
    replies = (replace(none, ids=(7, END), logprobs=(-0.5, -0.25)), none)
    turns = [Turn(reply, {}, (), True, "", "") for reply in replies]
    task = Task("echo-1", 1, "train")
    played = [Trajectory(task, 0, (turn,), Ending.FAILED, 0.0) for turn in turns]
    rows = _as_rows(played, SimpleNamespace(end_of_turn_id=END))  # type: ignore[arg-type]
    assert rows["completion_ids"] == [[7, END], [END]]
    assert rows["logprobs"] == [[-0.5, -0.25], [0.0]]
    assert rows["env_mask"] == [[1, 1], [0]]


def test_an_environment_is_played_in_several_processes_only_where_each_has_an_engine() -> None:
    trainer = SimpleNamespace(
        accelerator=SimpleNamespace(num_processes=2),
        use_vllm=True,
        vllm_mode="colocate",
        vllm_tensor_parallel_size=1,
        temperature=1.0,
        state=SimpleNamespace(global_step=2),
    )
    assert _Engine(trainer, None, 6, None).version == 2  # type: ignore[arg-type]
    for shared in ({"vllm_mode": "server"}, {"vllm_tensor_parallel_size": 2}):
        with pytest.raises(ValueError, match="found 2 processes with one engine"):
            _Engine(SimpleNamespace(**vars(trainer) | shared), None, 6, None)  # type: ignore[arg-type]


def test_without_trls_correction_the_difference_is_missing_with_the_reason(
    engine: type[CopyingEngine], tiny_model: Path, tmp_path: Path
) -> None:
    trainer(tiny_model, tmp_path, vllm_importance_sampling_correction=False).train()
    found = recorded(tmp_path)[1].metrics[MEAN]
    assert found.value is None
    assert "vllm_importance_sampling_correction=True" in found.why


@pytest.mark.parametrize("mode", ["token_truncate", "sequence_mask"])
def test_the_corrected_gradient_is_that_of_a_batch_without_the_dropped_groups(
    mode: str, engine: type[CopyingEngine], tiny_model: Path, tmp_path: Path
) -> None:
    """The engine's weights are not the learner's, so ratios differ from 1. Rows without spread have no advantage: with
    all of them in the batch, only the denominator of `dr_grpo` is larger."""
    engine.noise = 0.02

    def some(prompts: Sequence[str], completions: Sequence[str], **_: Any) -> list[float]:
        values = differing(completions)
        return [0.0 if "Say 1" in prompt else value for prompt, value in zip(prompts, values, strict=True)]

    noted = {"kept": Gradients(), "all": Gradients()}
    for name, chosen in (("kept", DropConstant(on="reward")), ("all", KeepAll(on="reward"))):
        trainer(
            tiny_model,
            tmp_path / name,
            filtering(chosen, record=True),
            reward=some,
            callbacks=[noted[name]],
            vllm_importance_sampling_mode=mode,
            loss_type="dr_grpo",
        ).train()
    metrics = recorded(tmp_path / "kept")[1].metrics
    assert metrics["filter/kept_groups"].value == 2
    assert metrics[LARGEST].value > 0.01
    (found,), (expected,) = noted["kept"].steps, noted["all"].steps
    assert (found - 1.5 * expected).norm() <= 1e-5 * found.norm() > 0
