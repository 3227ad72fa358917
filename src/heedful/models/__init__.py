"""Language models: chat templates, replies, attention masks, folders on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from heedful.exports import lazily
from heedful.models.chat.render import Renderer
from heedful.models.chat.replies import Tags

if TYPE_CHECKING:
    from heedful.models.chat.calls import tools_of
    from heedful.models.chat.replies import unanswered
    from heedful.models.chat.turn_ends import named_stop_ids
    from heedful.models.forward.attention import carries_states, longest_context_of
    from heedful.models.forward.rounding import EPS, rounding_of
    from heedful.models.gguf import converted

__all__ = [
    "EPS",
    "Renderer",
    "Tags",
    "carries_states",
    "converted",
    "longest_context_of",
    "named_stop_ids",
    "rounding_of",
    "tools_of",
    "unanswered",
]

__getattr__ = lazily(
    __name__,
    {
        "EPS": "heedful.models.forward.rounding",
        "rounding_of": "heedful.models.forward.rounding",
        "carries_states": "heedful.models.forward.attention",
        "longest_context_of": "heedful.models.forward.attention",
        "named_stop_ids": "heedful.models.chat.turn_ends",
        "tools_of": "heedful.models.chat.calls",
        "unanswered": "heedful.models.chat.replies",
        "converted": "heedful.models.gguf",
    },
)
