"""Language models: chat templates, replies, attention masks, folders on disk.

Importing this package loads no torch. The names that need it are loaded when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from heedful.models.render import ChatTokenizer, Renderer
from heedful.models.replies import ReplyParser, Tags

if TYPE_CHECKING:
    from heedful.models.attention import longest_context, refuse_unless_plain_causal
    from heedful.models.folders import Saveable, write_pretrained
    from heedful.models.load import load_model, pick_device

__all__ = [
    "ChatTokenizer",
    "Renderer",
    "ReplyParser",
    "Saveable",
    "Tags",
    "load_model",
    "longest_context",
    "pick_device",
    "refuse_unless_plain_causal",
    "write_pretrained",
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from heedful.models import attention, folders, load

    return next(getattr(module, name) for module in (attention, folders, load) if hasattr(module, name))
