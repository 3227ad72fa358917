"""TRL's other trainers of groups: the queue of AsyncGRPOTrainer, and the probe in RLOOTrainer.

The engine is an in-process worker. FlashAttention 3 runs on GPUs alone, so plain attention stands in for its kernel.
"""

from __future__ import annotations

import queue
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("trl", reason="TRL is not installed (pip install 'heedful[trl]')")

import numpy
import torch
from tiny_trl import END, Gradients, arguments, differing, prompts, recorded, weights_of
from transformers import AutoModelForCausalLM, AutoTokenizer, PrinterCallback
from trl import RLOOConfig, RLOOTrainer

from heedful.filters import DropConstant
from heedful.integrations.trl import AsyncGroups, HeedfulCallback, HeedfulConfig, Probe
from heedful.integrations.trl.asynchronous import conversations_in
from heedful.measuring.diagnostics_config import DiagnosticsConfig
from heedful.storage import RunFolder, read_metrics

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")
asynchronous = pytest.importorskip("trl.experimental.async_grpo", reason="this TRL has no AsyncGRPOTrainer")

UP, DOWN, FLAT = [0, 1, 0, 0], [1, 0.5, 1, 1], [1, 1, 1, 1]
FILTERED = HeedfulConfig(filter=DropConstant(on="reward"), outcome="score")


def row(group: int, ids: Sequence[int], asked: int, reward: float = 0.0, advantage: float = 0.0, text: str = "") -> Any:
    mask = [0] * asked + [1] * (len(ids) - asked)
    return asynchronous.async_rollout_worker.RolloutSample(
        prompt=[{"role": "user", "content": str(group)}],
        completion=[{"role": "assistant", "content": text or str(ids)}],
        input_ids=numpy.array(ids),
        completion_mask=numpy.array(mask),
        old_log_probs=numpy.array([-5.0 * sampled for sampled in mask], dtype=numpy.float32),
        advantage=advantage,
        model_version=0,
        group_id=group,
        metrics={"reward": reward, "reward_std": 0.0, "rewards/score": reward},
    )


def rows_of(groups: Sequence[Sequence[float]], first: int = 0) -> list[Any]:
    """The rows that TRL's worker would put into its queue for these rewards."""
    rows = []
    for group, rewards in enumerate(groups, first):
        centre, spread = numpy.mean(rewards), numpy.std(rewards) + 1e-8
        for member, reward in enumerate(rewards):
            ids = [10 + group, 20, 30 + member, 40 + member, END]
            rows.append(row(group, ids, 2, reward, float((reward - centre) / spread)))
    return rows


class Worker:
    """An engine that has sampled everything already."""

    def __init__(self, rows: Sequence[Any]) -> None:
        self.rollout_buffer: queue.Queue[Any] = queue.Queue()
        self.metrics_queue: queue.Queue[Any] = queue.Queue()
        for each in rows:
            self.rollout_buffer.put(each)

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def update_model_version(self, model_version: int) -> None: ...

    def check_health(self, stale_after_s: float) -> None:
        raise RuntimeError("the queue is empty")


class NoTransfer:
    def init_weight_transfer(self) -> None: ...
    def pause(self) -> None: ...
    def send_weights(self, iterator: Any) -> None: ...
    def resume(self) -> None: ...
    def destroy(self) -> None: ...


def plain_attention(
    q: Any, k: Any, v: Any, starts_q: Any, starts_k: Any, *_: Any, softmax_scale: Any, **__: Any
) -> Any:
    """`flash_attn_varlen_func`, causal from the end, in plain torch."""
    found = []
    for (a, b), (c, d) in zip(pairwise(starts_q), pairwise(starts_k), strict=True):
        share = q.shape[1] // k.shape[1]
        keys, values = (each[c:d].repeat_interleave(share, dim=1) for each in (k, v))
        seen = torch.ones(b - a, d - c, dtype=torch.bool).tril(int((d - c) - (b - a)))
        logits = torch.einsum("qhd,khd->hqk", q[a:b], keys) * softmax_scale
        found.append(torch.einsum("hqk,khd->qhd", logits.masked_fill(~seen, -torch.inf).softmax(-1), values))
    return torch.cat(found)


def asynchronously(
    model: Path,
    folder: Path,
    rows: Sequence[Any],
    config: HeedfulConfig | None,
    resume: str | None = None,
    **changes: Any,
) -> tuple[Any, Gradients]:
    """Two updates of AsyncGRPOTrainer, of two groups of four each, on what an engine has sampled."""
    noted, worker = Gradients(), Worker(rows)
    chosen = {"max_steps": 2, "learning_rate": 0.01, **changes}
    args = asynchronous.AsyncGRPOConfig(
        output_dir=str(folder),
        num_generations=4,
        per_device_train_batch_size=8,
        gradient_accumulation_steps=1,
        token_budget=0,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        report_to=[],
        disable_tqdm=True,
        logging_steps=1,
        optim="sgd",
        lr_scheduler_type="constant",
        max_grad_norm=0.0,
        dtype="float32",
        **{"save_strategy": "no", **chosen},
    )
    trainer = asynchronous.AsyncGRPOTrainer(
        str(model),
        args=args,
        train_dataset=prompts("plain"),
        processing_class=AutoTokenizer.from_pretrained(model),
        callbacks=[noted],
        rollout_worker=worker,
        weight_transfer=NoTransfer(),
    )
    trainer.remove_callback(PrinterCallback)
    if config is not None:
        AsyncGroups(config).attach(trainer)
    trainer.train(resume_from_checkpoint=resume)
    return trainer, noted


@pytest.fixture
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = "this TRL loads FlashAttention 3 as soon as a model is made"
    pytest.importorskip("trl.experimental.async_grpo.packing", reason=loaded)
    kernel = SimpleNamespace(flash_attn_varlen_func=plain_attention)
    monkeypatch.setattr("trl.experimental.async_grpo.packing._flash_attn", lambda: kernel)
    monkeypatch.setattr("trl.experimental.async_grpo.async_grpo_trainer.get_peak_flops_per_device", lambda *_: None)


MIXED = rows_of([UP, FLAT, FLAT, DOWN, FLAT, FLAT, UP, FLAT, DOWN, UP, UP, DOWN, UP, FLAT, UP])
"""A window is measured when the first row after it arrives, and accelerate asks for one batch ahead."""


def test_async_grpo_trains_on_the_kept_groups_alone(on_cpu: None, tiny_model: Path, tmp_path: Path) -> None:
    """Each update has the gradient of a run whose engine sampled the kept groups alone."""
    trainer, found = asynchronously(tiny_model, tmp_path / "a", MIXED, replace(FILTERED, sampling_batches=2))
    flat = {1, 2, 4, 5, 7}
    expected = [each for each in MIXED if each.group_id not in flat]
    plain, alone = asynchronously(tiny_model, tmp_path / "b", expected, None)
    assert len(found.steps) == len(alone.steps) == 2
    for mine, its in zip(found.steps, alone.steps, strict=True):
        assert torch.equal(mine, its)
        assert its.norm() > 0
    assert torch.equal(weights_of(trainer), weights_of(plain))
    assert {1, 2, 4, 5} <= trainer._trained_groups  # TRL counts epochs, and resumes, by the groups that it is done with

    rollouts, line = recorded(tmp_path / "a")
    assert [verdict.reason for verdict in rollouts.verdicts or ()] == ["kept", "constant"]
    member = rollouts.groups[0].trajectories[1]
    (turn,) = member.turns
    assert (turn.reply.prompt.ids, turn.reply.ids, member.outcome) == ((10, 20), (31, 41, END), 1)
    assert turn.reply.logprobs == (-5.0,) * 3
    assert line.metrics["success/rate"].value == 5 / 8
    assert "packed rows" in line.metrics["information/first_turn/mi"].why
    assert any("filter/kept_ratio" in entry for entry in trainer.state.log_history)


def test_async_grpo_goes_on_where_nothing_varies_and_leaves_the_weights(
    on_cpu: None, tiny_model: Path, tmp_path: Path
) -> None:
    trainer, found = asynchronously(tiny_model, tmp_path, rows_of([FLAT] * 14), FILTERED)
    assert [bool(gradient.any()) for gradient in found.steps] == [False, False]
    assert recorded(tmp_path)[1].metrics["filter/empty"].value == 1
    assert {1, 3} <= trainer._trained_groups


def test_async_grpo_resumes_its_record(on_cpu: None, tiny_model: Path, tmp_path: Path) -> None:
    saves: dict[str, Any] = {"save_strategy": "steps", "save_steps": 1}
    asynchronously(tiny_model, tmp_path, MIXED, FILTERED, **saves)
    before = read_metrics(RunFolder(tmp_path / "heedful").metrics)
    state = (tmp_path / "checkpoint-1" / "heedful.json").read_text()
    done = int(re.findall(r'"generation": (\d+)', state)[0])
    asynchronously(tiny_model, tmp_path, MIXED, FILTERED, resume=str(tmp_path / "checkpoint-1"), **saves)
    after = read_metrics(RunFolder(tmp_path / "heedful").metrics)
    assert [line.step for line in after] == list(range(len(after)))
    assert len(after) > done
    for mine, its in zip(after[:done], before[:done], strict=True):
        assert mine.metrics == its.metrics


def test_async_grpo_names_a_reward_function_that_is_not_there(on_cpu: None, tiny_model: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected one of score, found 'correct'"):
        asynchronously(tiny_model, tmp_path, MIXED, replace(FILTERED, outcome="correct"))


def test_settings_without_an_effect_on_a_queue_are_refused() -> None:
    with pytest.raises(ValueError, match=r"found another sampling_tokens\. AsyncGRPOTrainer fills"):
        AsyncGroups(replace(FILTERED, sampling_tokens=200))


def test_rows_of_a_conversation_that_trl_cut_are_one_member_and_equal_answers_are_two() -> None:
    cut = [row(0, [1, 2, 3], 1, text="a"), row(0, [1, 4, 5], 1, text="a")]
    same = [row(0, [1, 2, 3], 1, text="a"), row(0, [6, 7], 1, text="b")]
    found = conversations_in([*cut, *same])
    assert [[each.input_ids.tolist() for each in rows] for rows in found] == [
        [[1, 2, 3], [1, 4, 5]],
        [[1, 2, 3]],
        [[6, 7]],
    ]


def rloo(model: Path, folder: Path, functions: Sequence[Any], **others: Any) -> Any:
    settings = {"max_steps": 2, "num_generations": 4, "per_device_train_batch_size": 8, "learning_rate": 0.01}
    made = RLOOTrainer(
        AutoModelForCausalLM.from_pretrained(model, dtype=torch.float64),
        list(functions),
        args=arguments(folder, RLOOConfig, **settings),
        train_dataset=prompts("plain"),
        processing_class=AutoTokenizer.from_pretrained(model),
        **others,
    )
    made.remove_callback(PrinterCallback)
    return made


def test_the_probe_records_and_measures_inside_rloo_and_changes_nothing(tiny_model: Path, tmp_path: Path) -> None:
    probe = Probe(HeedfulConfig(diagnostics=DiagnosticsConfig(every=1, full_every=1, share=None)))
    watched = rloo(tiny_model, tmp_path / "a", [probe.watch(differing), probe])
    probe.attach(watched)
    watched.train()
    plain = rloo(tiny_model, tmp_path / "b", [differing])
    plain.train()
    assert torch.equal(weights_of(watched), weights_of(plain))
    rollouts, line = recorded(tmp_path / "a", 1)
    assert [len(group.trajectories) for group in rollouts.groups] == [4, 4]
    assert line.metrics["reward/differing"].value is not None
    assert line.metrics["information/first_turn/mi"].n == 8


def test_the_callback_names_the_probe_where_trl_writes_no_completions(tiny_model: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Probe measures inside RLOOTrainer, and AsyncGroups inside"):
        rloo(tiny_model, tmp_path, [differing], callbacks=[HeedfulCallback()])
