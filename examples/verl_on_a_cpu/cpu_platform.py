"""verl on a CPU: a platform of that name, and a process group that gloo accepts.

Named in VERL_USE_EXTERNAL_MODULES, beside VERL_PLATFORM=cpu and VERL_ENGINE_DEVICE=cuda (verl then takes its FSDP
engine). For trials and tests of verl 0.9: nothing here makes training on a CPU fast.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import verl.utils.distributed as distributed
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry


def nothing(*_: Any, **__: Any) -> None:
    """What a CPU does where a GPU would empty a cache or start a profiler."""


def zero(*_: Any, **__: Any) -> int:
    """The memory that a CPU reports where verl asks for that of a GPU."""
    return 0


def complete_torch_cpu() -> None:
    """Give `torch.cpu` the functions of `torch.cuda` that verl calls."""
    for name in ("empty_cache", "ipc_collect", "reset_peak_memory_stats", "manual_seed", "manual_seed_all"):
        setattr(torch.cpu, name, nothing)
    for name in ("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved"):
        setattr(torch.cpu, name, zero)
    torch.cpu.mem_get_info = lambda *_, **__: (1, 1)
    torch.cpu.get_rng_state = lambda *_: torch.get_rng_state()
    torch.cpu.set_rng_state = lambda state, *_: torch.set_rng_state(state)


@PlatformRegistry.register(platform="cpu")
class CpuPlatform(PlatformBase):
    """The answers that verl asks of a device."""

    device_name = "cpu"
    vendor_name = "cpu"
    device_module = torch.cpu
    set_device = synchronize = set_allocator_settings = empty_cache = nothing
    profiler_start = profiler_stop = cudart = nothing

    def is_available(self) -> bool:
        return True

    def current_device(self) -> str:
        return "cpu"

    def device_count(self) -> int:
        return 1

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "VERL_CPU_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield

    def ray_resource_name(self) -> str:
        """verl counts resources named GPU or NPU only. `ray.init(num_gpus=...)` makes as many logical ones."""
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        return []

    def is_ipc_supported(self) -> bool:
        return False


complete_torch_cpu()

_begin_group = distributed.initialize_global_process_group_ray


def _begin_gloo_group(timeout_second: float | None = None, backend: str | None = None) -> Any:
    """verl asks torch for `cpu:gloo,cpu:gloo`. torch refuses a device that is named twice."""
    return _begin_group(timeout_second, backend or "cpu:gloo")


distributed.initialize_global_process_group_ray = _begin_gloo_group
