"""Runs of HeedfulGRPOTrainer with TRL's vLLM, in vLLM's own environment: executed by test_trl.py, once per process.

    python trl_vllm.py colocate MODEL FOLDER
    python trl_vllm.py server MODEL FOLDER URL

TRL and vLLM are real. Stand-ins replace only the parts that need a GPU: `OnCpu` and `OverGloo`.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

os.environ |= {"HF_HUB_OFFLINE": "1", "TRL_EXPERIMENTAL_SILENCE": "1", "VLLM_LOGGING_LEVEL": "WARNING"}

import torch
import trl.generation.vllm_generation as engine
import trl.trainer.grpo_trainer
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, PrinterCallback
from trl import GRPOConfig
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

from heedful.envs.toys.echo import Echo
from heedful.filters import DropConstant
from heedful.integrations.trl import HeedfulConfig, HeedfulGRPOTrainer, environment_reward, to_trl_rollout_func
from heedful.integrations.trl.removal import KEPT
from heedful.integrations.vllm.worker import pack_output_layer
from heedful.measuring.diagnostics_config import DiagnosticsConfig
from heedful.policies.servers import Client
from heedful.policies.vllm.weights_out import BroadcastOut
from heedful.storage import RunFolder, read_metrics

GROUP, GROUPS = 4, 6


class OnCpu(engine.VLLMGeneration):
    """TRL's colocated engine. On a CPU, vLLM's layers hold packed copies of the weights, and TRL's push loads tensors
    into layers that have none. So TRL's own push is enclosed in vLLM's reload, which packs again."""

    def sync_weights(self) -> None:
        inside = self.llm.llm_engine.model_executor.driver_worker.model_runner
        initialize_layerwise_reload(inside.model)
        super().sync_weights()
        finalize_layerwise_reload(inside.model, inside.model_config)
        pack_output_layer(inside.model)


class OverGloo(engine.VLLMClient):
    """TRL's client of a server. Weights go over gloo in place of NCCL, into heedful's backend of weight transfer."""

    def init_communicator(self, device: Any = 0) -> None:
        self._out, self._to = BroadcastOut("127.0.0.1", 300.0), Client([self.base_url])

    def update_named_params(
        self, metadata: Sequence[tuple[str, str, list[int]]], named_params: Iterator[tuple[str, torch.Tensor]]
    ) -> None:
        tensors = dict(named_params)
        announced = [(name, str(each.dtype).removeprefix("torch."), list(each.shape)) for name, each in tensors.items()]
        assert announced == list(metadata)
        self._out._tensors = tensors
        self._out.send(self._to, self._to.servers[0], "trl")


def words(completions: Sequence[Any], **_: Any) -> list[float]:
    """A reward that varies in some groups."""
    return [float(sum(map(ord, completion)) % 3 == 0) for completion in completions]


def trainer(model: str, folder: Path, played: bool = False, diagnostics: bool = True, **changes: Any) -> Any:
    """6 groups of 4 for each update, filtered, and refilled where TRL itself generates, behind an opened thought."""
    world, tokenizer = int(os.environ.get("WORLD_SIZE", "1")), AutoTokenizer.from_pretrained(model)
    env = to_trl_rollout_func(Echo(instructions="brief", turns=2), tokens_per_turn=16)
    data = env.dataset(48)
    written = [tokenizer.apply_chat_template(row, tokenize=False, add_generation_prompt=True) for row in data["prompt"]]
    arguments: dict[str, Any] = {
        "output_dir": str(folder),
        "use_cpu": True,
        "bf16": False,
        "use_vllm": True,
        "per_device_train_batch_size": GROUP * GROUPS // 2 // world,
        "gradient_accumulation_steps": 2,
        "num_generations": GROUP,
        "max_completion_length": 24,
        "max_steps": 3,
        "learning_rate": 3e-3,
        "lr_scheduler_type": "constant",
        "temperature": 0.8,
        "save_strategy": "no",
        "logging_steps": 1,
        "report_to": [],
        "disable_tqdm": True,
        "seed": 3,
    }
    every = DiagnosticsConfig(every=1, full_every=1, share=None) if diagnostics else DiagnosticsConfig(enabled=False)
    made = HeedfulGRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(model),
        processing_class=tokenizer,
        reward_funcs=environment_reward if played else words,
        args=GRPOConfig(**(arguments | changes)),
        train_dataset=data if played else Dataset.from_list([{"prompt": f"{text}<think>"} for text in written]),
        rollout_func=env if played else None,
        heedful=HeedfulConfig(
            filter=DropConstant(on="reward"), diagnostics=every, sampling_batches=1 if played else 3, logs="all"
        ),
    )
    made.remove_callback(PrinterCallback)
    return made


def run(made: Any, resume: str | None = None) -> dict[str, Any]:
    """The weights at the end, the record, TRL's log, and how far the engine's log-probabilities of kept rows are from
    the learner's, computed from the rows that the loss gets."""
    apart, loss = list[float](), made.compute_loss

    def noted(model: Any, batch: Any, *rest: Any, **named: Any) -> Any:
        ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
        read = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
        with torch.no_grad():
            own, _, _ = made._get_per_token_logps_and_entropies(model, ids, read, batch["completion_ids"].shape[1])
        mask = (batch["completion_mask"] * batch.get("tool_mask", 1) * batch[KEPT][:, None]).bool()
        apart.append(float((own - batch["sampling_per_token_logps"]).abs()[mask].max()) if mask.any() else 0.0)
        return loss(model, batch, *rest, **named)

    made.compute_loss = noted
    made.train(resume_from_checkpoint=resume)
    whole = torch.cat([parameter.detach().flatten() for parameter in made.model.parameters()])
    lines: list[Any] = []
    if made.accelerator.is_main_process:
        lines = list(read_metrics(RunFolder(Path(made.args.output_dir) / "heedful").metrics))
    return {
        "weights": whole,
        "apart": apart,
        "record": [{name: metric.value for name, metric in line.metrics.items()} for line in lines],
        "logs": made.state.log_history,
    }


def colocated(model: str, folder: Path) -> dict[str, Any]:
    small = functools.partial(engine.LLM, enforce_eager=True, kv_cache_memory_bytes=2**28)  # quick to start
    trl.trainer.grpo_trainer.VLLMGeneration = OnCpu
    mode = {"vllm_mode": "colocate"}
    saved = {"save_strategy": "steps", "save_steps": 1}
    engine.LLM = functools.partial(small, dtype="float32")
    found = {
        "measured": run(trainer(model, folder / "measured", **mode, **saved)),
        "unmeasured": run(trainer(model, folder / "unmeasured", diagnostics=False, **mode)),
        "resumed": run(trainer(model, folder / "measured", **mode, **saved), str(folder / "measured" / "checkpoint-2")),
    }
    engine.LLM = small  # TRL names no dtype, and vLLM then holds a model of float32 in bfloat16
    return found | {"played": run(trainer(model, folder / "played", played=True, **mode))}


def served(model: str, folder: Path, url: str) -> dict[str, Any]:
    engine.VLLMClient = OverGloo
    return {"served": run(trainer(model, folder / "served", vllm_mode="server", vllm_server_base_url=url))}


def main(mode: str, model: str, folder: str, *url: str) -> None:
    warnings.simplefilter("ignore")
    found = {"colocate": colocated, "server": served}[mode](model, Path(folder), *url)
    rank = os.environ.get("RANK", "0")
    torch.save({name: each.pop("weights") for name, each in found.items()}, Path(folder, f"weights-{rank}.pt"))
    Path(folder, f"found-{rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
