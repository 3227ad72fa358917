"""A cell of the paper's table as a command line of verl, for models that do not fit on one GPU.

    python examples/verl_paper.py paper/sokoban-ppo-qwen2.5-7b FOLDER > run.sh
    python examples/verl_paper.py paper/sokoban-ppo-qwen2.5-7b FOLDER --filter keep_all > run.sh
    bash run.sh check                                    # composes the configuration and starts nothing
    bash run.sh trainer.n_gpus_per_node=4

It writes the task files into FOLDER and prints the line. Flags after FOLDER are those of `heedful train`. The line was
not run: verl composes it, and heedful's doctor for verl finds nothing wrong.
"""

import json
import shlex
import sys
from pathlib import Path

from heedful import TrainConfig, preset
from heedful.algorithms.advantages import GroupRelative
from heedful.algorithms.gae import Gae
from heedful.boundary import parse, to_json
from heedful.envs.common import TaskStream, turns_of
from heedful_verl.settings import REGISTER, VARIABLE
from heedful_verl.tasks import task_rows, write_tasks

AVERAGES = {"token": "token-mean", "sequence": "seq-mean-token-mean", "fixed": "seq-mean-token-sum-norm"}
LATER = 256
"""Tokens of an observation after the first one, at most."""


def overrides(config: TrainConfig, folder: Path) -> list[str]:
    """verl's settings for this configuration. Actor and critic have the same mini-batches."""
    algorithm, optimizer, sampling = config.algorithm, config.optimizer, config.sampling
    turns = turns_of(config.env)
    heedful = {name: to_json(config)[name] for name in ("filter", "loss_scale")}
    heedful["play"] = {"tokens_per_turn": sampling.tokens_per_turn}
    standardised = not isinstance(algorithm.advantage, GroupRelative) or algorithm.advantage.standardize
    critic = isinstance(algorithm.advantage, Gae)
    learner = {"weight_decay": optimizer.weight_decay, "betas": list(optimizer.betas), "lr_warmup_steps": 0}
    actor = "actor_rollout_ref.actor"
    settings = {
        "trainer.v1.trainer_mode": "heedful_sync",
        "+heedful": heedful,
        "data.train_files": f"{folder}/train.parquet",
        "data.val_files": f"{folder}/val.parquet",
        "data.train_batch_size": config.groups,
        "data.max_prompt_length": 1024,
        "data.max_response_length": turns * sampling.tokens_per_turn + (turns - 1) * LATER,
        "actor_rollout_ref.model.path": config.model,
        "actor_rollout_ref.model.enable_gradient_checkpointing": config.gradient_checkpointing,
        f"{actor}.ppo_mini_batch_size": config.groups // algorithm.minibatches,
        f"{actor}.use_dynamic_bsz": True,
        f"{actor}.ppo_max_token_len_per_gpu": config.micro_batch_tokens,
        f"{actor}.clip_ratio_low": algorithm.clip_low,
        f"{actor}.clip_ratio_high": algorithm.clip_high,
        f"{actor}.entropy_coeff": algorithm.entropy,
        f"{actor}.use_kl_loss": False,
        f"{actor}.loss_agg_mode": AVERAGES[algorithm.average],
        f"{actor}.loss_scale_factor": turns * sampling.tokens_per_turn,
        **{f"{actor}.optim.{name}": value for name, value in {"lr": optimizer.lr, **learner}.items()},
        "actor_rollout_ref.rollout.name": "vllm",
        "actor_rollout_ref.rollout.n": config.group_size,
        "actor_rollout_ref.rollout.temperature": sampling.temperature,
        "actor_rollout_ref.rollout.tensor_model_parallel_size": 1,
        "actor_rollout_ref.rollout.val_kwargs.do_sample": True,
        "actor_rollout_ref.rollout.val_kwargs.temperature": 0.5,
        "algorithm.adv_estimator": "gae" if critic else "grpo",
        "algorithm.norm_adv_by_std_in_grpo": standardised,
        "critic.enable": critic,
        "trainer.nnodes": 1,
        "trainer.n_gpus_per_node": 8,
        "trainer.total_training_steps": config.steps,
        "trainer.test_freq": max(1, config.steps // max(1, config.evaluation.times - 1)),
        "trainer.save_freq": config.checkpoint_every,
        "trainer.default_local_dir": f"{folder}/checkpoints",
        "trainer.logger": ["console"],
    }
    if critic:
        settings |= {"critic.model.path": config.model, "critic.cliprange_value": config.critic.clip}
        settings |= {f"critic.optim.{name}": value for name, value in {"lr": config.critic.lr, **learner}.items()}
    return [f"{name}={_word(value)}" for name, value in settings.items()]


def _word(value: object) -> str:
    """A value as Hydra reads it: JSON without quotes."""
    return json.dumps(value, separators=(",", ":")).replace('"', "")


def main(name: str, folder: Path, *flags: str) -> None:
    config = parse(TrainConfig, preset(name), flags, "verl_paper.py", "")
    line = overrides(config, folder)  # first, since tasks may be downloaded
    folder.mkdir(parents=True, exist_ok=True)
    for split, count in (("train", config.steps * config.groups), ("val", config.evaluation.tasks)):
        tasks = TaskStream(config.env, split, config.seed).next(count)
        write_tasks(folder / f"{split}.parquet", task_rows(config.env, tasks))
    print(f"export {VARIABLE}={REGISTER}")
    print('run=verl.trainer.main_ppo; if [ "${1:-}" = check ]; then run=heedful_verl.doctor; shift; fi')
    print(" \\\n  ".join(["python -m $run", *map(shlex.quote, line), '"$@"']))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
