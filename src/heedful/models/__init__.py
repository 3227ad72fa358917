"""Language models: chat templates, replies, attention masks, folders on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from heedful.exports import lazily
from heedful.models.chat.render import Renderer
from heedful.models.chat.replies import Tags

if TYPE_CHECKING:
    from heedful.models.folders import write_pretrained
    from heedful.models.gguf import converted
    from heedful.models.load import load_model, pick_device

__all__ = ["Renderer", "Tags", "converted", "load_model", "pick_device", "write_pretrained"]

__getattr__ = lazily(
    __name__,
    {
        "converted": "heedful.models.gguf",
        "load_model": "heedful.models.load",
        "pick_device": "heedful.models.load",
        "write_pretrained": "heedful.models.folders",
    },
)
