"""Language models: chat templates, replies, attention masks, folders on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from heedful.exports import lazily
from heedful.models.chat.render import ChatTokenizer, Renderer
from heedful.models.chat.replies import ReplyParser, Tags

if TYPE_CHECKING:
    from heedful.models.folders import write_pretrained
    from heedful.models.forward.attention import longest_context, refuse_unless_plain_causal
    from heedful.models.gguf import converted
    from heedful.models.load import load_model, pick_device
    from heedful.models.writing import Saveable

__all__ = [
    "ChatTokenizer",
    "Renderer",
    "ReplyParser",
    "Saveable",
    "Tags",
    "converted",
    "load_model",
    "longest_context",
    "pick_device",
    "refuse_unless_plain_causal",
    "write_pretrained",
]

__getattr__ = lazily(
    __name__,
    {
        "Saveable": "heedful.models.writing",
        "converted": "heedful.models.gguf",
        "load_model": "heedful.models.load",
        "longest_context": "heedful.models.forward.attention",
        "pick_device": "heedful.models.load",
        "refuse_unless_plain_causal": "heedful.models.forward.attention",
        "write_pretrained": "heedful.models.folders",
    },
)
