"""Chat templates and replies: how messages become ids, and what a reply says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from heedful.exports import lazily

if TYPE_CHECKING:
    from heedful.models.chat.calls import Call, Fault, find_call, read_call

__all__ = ["Call", "Fault", "find_call", "read_call"]

__getattr__ = lazily(__name__, dict.fromkeys(__all__, "heedful.models.chat.calls"))
