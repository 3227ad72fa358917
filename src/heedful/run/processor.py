"""What this machine computes with: the cores that a process may use, and the instructions they have."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

_SYSTEM = Path("/sys/devices/system/cpu")


def physical_cores(system: Path = _SYSTEM, environment: Mapping[str, str] = os.environ) -> int:
    """The physical cores that this process may use, shared with the other ranks of its machine. At least 1.

    Two hardware threads of one core count once, since they share the units that multiply. Where the system does not say
    which threads belong together, every thread counts. torchrun names the ranks of a machine in `LOCAL_WORLD_SIZE`.
    """
    usable = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    cores = {_siblings(system / f"cpu{number}" / "topology" / "thread_siblings_list", number) for number in usable}
    ranks = environment.get("LOCAL_WORLD_SIZE", "1")
    return max(1, len(cores) // max(1, int(ranks) if ranks.isdecimal() else 1))


def _siblings(path: Path, number: int) -> str:
    """What names the core of the hardware thread `number`: the list of its threads, or its own number."""
    try:
        return path.read_text(encoding="ascii").strip() or str(number)
    except (OSError, UnicodeDecodeError):
        return str(number)


def multiplies_bfloat16(description: Path = Path("/proc/cpuinfo")) -> bool:
    """Whether the processor has instructions that multiply matrices in bfloat16. `False` where nothing says so."""
    try:
        text = description.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    flags = next((line.partition(":")[2].split() for line in text.splitlines() if line.startswith("flags")), [])
    return not {"avx512_bf16", "amx_bf16"}.isdisjoint(flags)
