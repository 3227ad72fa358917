"""A session of verl 0.9 on a CPU, in this process: the environment, the settings, Ray, the queue and a trainer.

`prepare` comes before the first import of verl. verl's own command `verl.trainer.main_ppo` does the rest in a process
of Ray's; here the trainer is an object that can be looked at.
"""

from __future__ import annotations

import inspect
import os
import random
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent

SETTINGS = (
    "data.dataloader_num_workers=0",
    "data.max_prompt_length=512",
    "data.max_response_length=64",
    "actor_rollout_ref.model.use_remove_padding=False",
    "actor_rollout_ref.model.enable_gradient_checkpointing=False",
    "+actor_rollout_ref.model.override_config.attn_implementation=sdpa",
    "actor_rollout_ref.actor.strategy=fsdp2",
    "actor_rollout_ref.actor.use_torch_compile=False",
    "actor_rollout_ref.actor.fsdp_config.model_dtype=fp32",
    "actor_rollout_ref.actor.fsdp_config.use_torch_compile=False",
    "+actor_rollout_ref.actor.fsdp_config.mixed_precision={param_dtype:fp32,reduce_dtype:fp32,buffer_dtype:fp32}",
    "actor_rollout_ref.rollout.name=hf_cpu",
    "actor_rollout_ref.rollout.tensor_model_parallel_size=1",
    "actor_rollout_ref.rollout.agent.num_workers=1",
    "actor_rollout_ref.rollout.calculate_log_probs=True",
    "reward.num_workers=1",
    "reward.reward_model.rollout.name=hf_cpu",
    "critic.enable=False",
    "trainer.device=cpu",
    "trainer.logger=[console]",
    "trainer.resume_mode=disable",
    "transfer_queue.enable=True",
    "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
)
"""What a CPU needs of verl's settings, as overrides of its `ppo_trainer`."""


AGENT_PORTS = ("metrics_agent_port", "metrics_export_port", "dashboard_agent_listen_port", "runtime_env_agent_port")
"""The ports of Ray's agents, by the names of its arguments and files."""


def variables(modules: Sequence[str] = ()) -> dict[str, str]:
    """The environment of every process. `modules`: what verl imports first, after the two modules beside this file."""
    paths = [str(HERE), *filter(None, [os.environ.get("PYTHONPATH", "")])]
    return {
        "VERL_USE_EXTERNAL_MODULES": ",".join(["cpu_platform", "hf_replica", *modules]),
        "VERL_PLATFORM": "cpu",
        "VERL_ENGINE_DEVICE": "cuda",
        "PYTHONPATH": os.pathsep.join(paths),
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "TRANSFER_QUEUE_ENABLE": "1",
        "RAY_DEDUP_LOGS": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    }


def prepare(modules: Sequence[str] = ()) -> dict[str, str]:
    """Set the environment of this process, before verl is imported. Returns it, for `ray_and_queue`."""
    chosen = variables(modules)
    os.environ.update(chosen)
    sys.path.insert(0, str(HERE))
    return chosen


def composed(overrides: Sequence[str]) -> Any:
    """verl's configuration with `SETTINGS` and these overrides, resolved."""
    from hydra import compose, initialize_config_module
    from omegaconf import OmegaConf

    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose("ppo_trainer", overrides=[*SETTINGS, *overrides])
    OmegaConf.resolve(config)
    return config


@contextmanager
def ray_and_queue(config: Any, environment: Mapping[str, str], workers: int = 2) -> Iterator[None]:
    """Ray with logical GPUs for `workers` training processes, and verl's queue."""
    import ray
    import transfer_queue

    start_ray(environment, workers)
    for name in ("_TQ_CLIENT", "_TQ_STORAGE", "_TQ_CONTROLLER"):
        # A thread of an earlier trainer may have connected again after the queue of its session was closed.
        setattr(transfer_queue.interface, name, None)
    try:
        transfer_queue.init(config.transfer_queue)
        try:
            yield
        finally:
            transfer_queue.close()
    finally:
        ray.shutdown()


def start_ray(environment: Mapping[str, str], workers: int) -> None:
    """Start Ray with ports that are chosen here.

    Ray's raylet ends itself if its agents have not chosen them after 15 seconds, which is short on a busy machine.
    """
    import ray
    from ray._private import services

    start = services.start_raylet
    signature = inspect.signature(start)

    def start_with_ports(*given: Any, **named: Any) -> Any:
        call = signature.bind(*given, **named)
        for name in AGENT_PORTS:
            port = call.arguments[name] = free_port()
            folder, node = call.arguments["session_dir"], call.arguments["node_id"]
            ray._raylet.persist_port(folder, node, name, port)  # what the agent would do later
        return start(*call.args, **call.kwargs)

    services.start_raylet = start_with_ports
    try:
        ray.init(
            num_cpus=16,  # logical, too: verl's small actors ask for one each
            num_gpus=2 * workers,
            object_store_memory=400_000_000,
            include_dashboard=False,
            runtime_env={"env_vars": dict(environment)},
        )
    finally:
        services.start_raylet = start


def free_port() -> int:
    """A port that no program listens on now, below those that systems give to outgoing connections."""
    while True:
        port = random.SystemRandom().randrange(20_000, 32_000)
        with socket.socket() as opened:
            if opened.connect_ex(("127.0.0.1", port)) != 0:
                return port


def trainer_of(config: Any) -> tuple[Any, Any]:
    """An initialised trainer of the configured mode, and the manager of agent loops for its `fit`."""
    from verl.trainer.ppo.v1 import AgentLoopManagerTQ, get_trainer_cls

    trainer = get_trainer_cls(config.trainer.v1.trainer_mode)(config=config)
    trainer.init()
    manager = AgentLoopManagerTQ.create(
        config=config,
        llm_client=trainer.get_llm_client(),
        teacher_client=trainer.get_teacher_client(),
        reward_loop_worker_handles=trainer.get_reward_handles(),
    )
    return trainer, manager
