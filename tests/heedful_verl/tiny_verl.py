"""A random model of 0.1 million parameters, a toy reward, and the settings of a verl session that takes seconds a step.

Two of the eight prompts have a constant reward. The others pay for replies of odd length.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

PROMPTS, MEMBERS, TOKENS = 8, 4, 12

REWARD = """
def compute_score(data_source, solution_str, ground_truth, extra_info=None, **_):
    if ground_truth == "constant":
        return {"score": 1.0, "acc": 1.0}
    won = float(len(solution_str) % 2)
    return {"score": won + 0.25, "acc": won}
"""


def make_folder(folder: Path, kind: str = "llama", **shape: Any) -> Path:
    """A folder with the model, the task file and the reward function. `shape`: of the kind's own configuration."""
    import torch
    from datasets import Dataset
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(models.BPE(vocab={letter: at for at, letter in enumerate(letters)}, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>", eos_token="<end>")
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }}<end>{% endfor %}<think>"
    torch.manual_seed(0)
    shape = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4} | shape
    ids = {"bos_token_id": None, "eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    config = AutoConfig.for_model(kind, vocab_size=len(tokenizer), tie_word_embeddings=True, **shape, **ids)
    AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    rows = [
        {
            "data_source": "toy",
            "prompt": [{"role": "user", "content": letter * (3 + place)}],
            "reward_model": {"ground_truth": "constant" if place < 2 else "odd"},
        }
        for place, letter in enumerate("abcdefgh")
    ]
    Dataset.from_list(rows).to_parquet(folder / "tasks.parquet")
    (folder / "reward.py").write_text(REWARD, encoding="utf-8")
    return folder


def overrides(folder: Path, workers: int, mode: str, steps: int, *more: str) -> list[str]:
    """The settings of a session in this folder. SGD shows factors that Adam hides."""
    return (
        f"""
    data.train_files={folder}/tasks.parquet data.val_files={folder}/tasks.parquet data.train_batch_size={PROMPTS}
    data.max_prompt_length=32 data.max_response_length={TOKENS} data.shuffle=False
    reward.custom_reward_function.path={folder}/reward.py
    actor_rollout_ref.model.path={folder}/model actor_rollout_ref.rollout.n={MEMBERS}
    actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=2
    actor_rollout_ref.actor.ppo_mini_batch_size={PROMPTS} actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2
    actor_rollout_ref.actor.optim.optimizer=SGD actor_rollout_ref.actor.optim.lr=1
    actor_rollout_ref.actor.optim.weight_decay=0 actor_rollout_ref.actor.grad_clip=1000000
    algorithm.adv_estimator=grpo trainer.n_gpus_per_node={workers} trainer.total_training_steps={steps}
    trainer.total_epochs={steps} trainer.val_before_train=False trainer.test_freq=-1 trainer.save_freq=-1
    trainer.v1.trainer_mode={mode} trainer.default_local_dir={folder}/checkpoints
    hydra.searchpath=[pkg://heedful_verl.conf] +heedful=default
    heedful.filter.type=drop_constant heedful.outcome=acc
    heedful.diagnostics.share=null heedful.diagnostics.every=2 heedful.diagnostics.full_every=4
    """.split()
        + list(more)
    )


@dataclass
class Session:
    """A trainer of verl in this process, and what tests do with it beside its own `fit`."""

    trainer: Any
    manager: Any
    folder: Path
    stored: dict[str, Any]
    """A batch of sampled rows: `keys`, `rows` and `tags`, in one order."""
    seen: list[dict[str, Any]] = field(default_factory=list)

    def weights(self) -> dict[str, Any]:
        """The weights of the actor, as the sampler gets them."""
        import ray

        self.trainer.checkpoint_manager.update_weights(self.trainer.global_steps)
        return ray.get(ray.get_actor("hf_cpu_0").weights.remote())

    def restore(self) -> None:
        """The weights and the optimizer as they were when the session was stored."""
        self.trainer.actor_rollout_wg.load_checkpoint(str(self.folder / "stored"))

    def batch(self, keys: Sequence[str] | None = None) -> Any:
        """The stored rows as a fresh batch of the queue, under new keys."""
        import transfer_queue as tq

        chosen = list(self.stored["keys"] if keys is None else keys)
        places = [self.stored["keys"].index(key) for key in chosen]
        fresh: dict[str, str] = {}
        renamed = []
        for key in chosen:
            uid, rest = key.split("_", 1)
            renamed.append(f"{fresh.setdefault(uid, str(uuid.uuid4()))}_{rest}")
        from verl.utils.tensordict_utils import list_of_dict_to_tensordict

        rows = [
            dict(self.stored["rows"][place]) | {"uid": fresh[chosen[at].split("_", 1)[0]]}
            for at, place in enumerate(places)
        ]
        tags = [dict(self.stored["tags"][place]) for place in places]
        batch = tq.kv_batch_put(keys=renamed, partition_id="train", fields=list_of_dict_to_tensordict(rows), tags=tags)
        batch.tags = tags
        batch.extra_info["temperature"] = self.trainer.config.actor_rollout_ref.rollout.temperature
        return batch

    def update(self, batch: Any, balance: Any) -> tuple[dict[str, Any], dict[str, Any], Any]:
        """verl's steps from a sampled batch to the update: the change of the weights, the metrics and the batch."""
        import transfer_queue as tq

        trainer = self.trainer
        self.restore()
        before, metrics = self.weights(), {}
        batch = balance(batch, metrics)
        batch = trainer._compute_old_log_prob(batch, metrics)
        batch = trainer._compute_advantage(batch, metrics)
        batch = trainer._update_actor(batch, metrics)
        after = self.weights()
        tq.kv_clear(keys=batch.keys, partition_id=batch.partition_id)
        return {name: after[name] - before[name] for name in before}, metrics, batch

    def set_loss(self, mode: str, counted: bool) -> None:
        """Give the actor verl's loss, or heedful's, with this aggregation."""
        from omegaconf import open_dict
        from verl.utils.config import omega_conf_to_dataclass
        from verl.workers.utils.losses import ppo_loss

        from heedful_verl.batch.loss import counted_loss

        actor = self.trainer.config.actor_rollout_ref.actor
        with open_dict(actor):
            actor.loss_agg_mode = mode
            # The default of this mode divides by the longest reply of a micro-batch.
            actor.loss_scale_factor = TOKENS if mode == "seq-mean-token-sum-norm" else None
        loss = counted_loss if counted else ppo_loss
        self.trainer.actor_rollout_wg.set_loss_fn(partial(loss, config=omega_conf_to_dataclass(actor)))


def store(trainer: Any, manager: Any, folder: Path, prompts: int = PROMPTS) -> Session:
    """Sample a batch and keep its rows, the weights and the optimizer."""
    import transfer_queue as tq

    trainer.agent_loop_manager = manager
    trainer.prepare_step()
    batch, _ = trainer.replay_buffer.sample(global_steps=trainer.global_steps, partition_id="train", batch_size=prompts)
    columns = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id)
    rows = [{name: _plain(value) for name, value in columns[at].items()} for at in range(len(batch.keys))]
    tags = [dict(tag) for tag in batch.tags]
    tq.kv_clear(keys=batch.keys, partition_id=batch.partition_id)
    trainer.actor_rollout_wg.save_checkpoint(str(folder / "stored"))
    return Session(trainer, manager, folder, {"keys": list(batch.keys), "rows": rows, "tags": tags})


def _plain(value: Any) -> Any:
    return value.data if type(value).__name__ == "NonTensorData" else value


def same(found: Mapping[str, Any], expected: Mapping[str, Any]) -> bool:
    """Whether all arrays are equal, byte by byte."""
    return all((found[name] == expected[name]).all() for name in expected)


def distance(found: Mapping[str, Any], expected: Mapping[str, Any]) -> float:
    """The largest difference of an entry, relative to the largest expected entry."""
    largest = max(abs(expected[name]).max() for name in expected)
    return float(max(abs(found[name] - expected[name]).max() for name in expected) / largest)
