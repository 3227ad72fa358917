"""Language models: chat templates, replies, attention masks, folders on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from heedful.exports import lazily
from heedful.models.chat.render import Renderer
from heedful.models.chat.replies import Tags

if TYPE_CHECKING:
    from heedful.models.chat.calls import tools_of
    from heedful.models.chat.replies import ReplyParser, unanswered
    from heedful.models.chat.turn_ends import named_stop_ids
    from heedful.models.forward.attention import carries_states, longest_context_of
    from heedful.models.forward.rounding import EPS, rounding_of
    from heedful.models.gguf import converted
    from heedful.models.load import load_model, pick_device
    from heedful.models.own_tokenizer import difference_from_folder
    from heedful.models.writing import write_pretrained

__all__ = [
    "EPS",
    "Renderer",
    "ReplyParser",
    "Tags",
    "carries_states",
    "converted",
    "difference_from_folder",
    "load_model",
    "longest_context_of",
    "named_stop_ids",
    "pick_device",
    "rounding_of",
    "tools_of",
    "unanswered",
    "write_pretrained",
]

__getattr__ = lazily(
    __name__,
    {
        "EPS": "heedful.models.forward.rounding",
        "rounding_of": "heedful.models.forward.rounding",
        "difference_from_folder": "heedful.models.own_tokenizer",
        "carries_states": "heedful.models.forward.attention",
        "longest_context_of": "heedful.models.forward.attention",
        "named_stop_ids": "heedful.models.chat.turn_ends",
        "tools_of": "heedful.models.chat.calls",
        "ReplyParser": "heedful.models.chat.replies",
        "unanswered": "heedful.models.chat.replies",
        "converted": "heedful.models.gguf",
        "load_model": "heedful.models.load",
        "pick_device": "heedful.models.load",
        "write_pretrained": "heedful.models.writing",
    },
)
