"""How observations, pictures and answers travel between processes or machines, and what is refused on arrival."""

from __future__ import annotations

from typing import TYPE_CHECKING

from heedful.exports import lazily

if TYPE_CHECKING:
    from heedful.envs.transport.wire import read_task, task_tree

__all__ = [
    "read_task",
    "task_tree",
]

__getattr__ = lazily(
    __name__,
    {
        "read_task": "heedful.envs.transport.wire",
        "task_tree": "heedful.envs.transport.wire",
    },
)
