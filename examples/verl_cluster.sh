#!/usr/bin/env bash
# GRPO with verl and vLLM on FrozenLake, with heedful's filter and diagnostics, on two nodes of 8 GPUs.
#
# NOT RUN: no GPU was available when this was written. The same trainer, filter, diagnostics and agent loop are tested on
# a CPU (make test-verl). Check the line first, which starts nothing:  examples/verl_cluster.sh check
#
# Before: docs/verl.md, "Install", on every node, and a folder that all nodes see. Then start Ray on both nodes:
#   head:   ray start --head --port 6379 --dashboard-host 0.0.0.0
#   other:  ray start --address HEAD:6379
# and run this on the head. With RAY_ADDRESS=http://HEAD:8265 it is submitted as a job of Ray instead.
set -euo pipefail

SHARED="${SHARED:?a folder that all nodes see, such as /mnt/shared/frozen_lake}"
MODEL="${MODEL:-Qwen/Qwen2.5-1.5B-Instruct}"
NODES="${NODES:-2}"
MODULE=heedful_verl.register
export VERL_USE_EXTERNAL_MODULES="$MODULE"

SETTINGS=(
    trainer.v1.trainer_mode=heedful_sync
    'hydra.searchpath=[pkg://heedful_verl.conf]'
    +heedful=default
    heedful.filter.on=outcome
    heedful.play.tokens_per_turn=512
    # verl does not forward the variable to other nodes by itself.
    "+ray_kwargs.ray_init.runtime_env.env_vars.VERL_USE_EXTERNAL_MODULES=$MODULE"

    "data.train_files=$SHARED/train.parquet"
    "data.val_files=$SHARED/val.parquet"
    data.train_batch_size=64
    data.max_prompt_length=1024
    data.max_response_length=4096 # a whole episode: 5 turns

    "actor_rollout_ref.model.path=$MODEL"
    actor_rollout_ref.actor.ppo_mini_batch_size=64
    actor_rollout_ref.actor.use_dynamic_bsz=True
    actor_rollout_ref.actor.ppo_max_token_len_per_gpu=16384
    actor_rollout_ref.actor.optim.lr=1e-6
    actor_rollout_ref.rollout.name=vllm
    actor_rollout_ref.rollout.n=8
    actor_rollout_ref.rollout.tensor_model_parallel_size=1
    actor_rollout_ref.rollout.gpu_memory_utilization=0.6
    actor_rollout_ref.rollout.calculate_log_probs=True
    actor_rollout_ref.rollout.log_prob_use_dynamic_bsz=True
    actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu=32768

    algorithm.adv_estimator=grpo
    critic.enable=False
    "trainer.nnodes=$NODES"
    trainer.n_gpus_per_node=8
    trainer.total_training_steps=200
    trainer.save_freq=20
    trainer.test_freq=20
    "trainer.default_local_dir=$SHARED/checkpoints"
    "trainer.rollout_data_dir=$SHARED/dumps"
    'trainer.logger=[console]'
)

if [ "${1:-}" = check ]; then
    exec python -m heedful_verl.doctor "${SETTINGS[@]}"
fi

mkdir -p "$SHARED"
[ -f "$SHARED/train.parquet" ] || python -m heedful_verl.tasks frozen_lake --tasks 4096 --out "$SHARED/train.parquet"
[ -f "$SHARED/val.parquet" ] || python -m heedful_verl.tasks frozen_lake --tasks 256 --split val --out "$SHARED/val.parquet"

if [ -n "${RAY_ADDRESS:-}" ]; then
    exec ray job submit --address "$RAY_ADDRESS" \
        --runtime-env-json "{\"env_vars\": {\"VERL_USE_EXTERNAL_MODULES\": \"$MODULE\"}}" \
        -- python -m verl.trainer.main_ppo "${SETTINGS[@]}"
fi
exec python -m verl.trainer.main_ppo "${SETTINGS[@]}"
