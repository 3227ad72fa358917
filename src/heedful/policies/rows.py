"""What the sampler keeps of one conversation while its reply grows, and what it asks of a renderer.

Promise: no state of the model is here; a row alone says what was asked and what has been sampled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from heedful.types import Conversation, Prompt, Reply, Span


class ReplyRenderer(Protocol):
    """What the sampler asks of a renderer; `heedful.models.render.Renderer` is one."""

    @property
    def stop_ids(self) -> frozenset[int]: ...

    def next_prompt(self, conversation: Conversation) -> Prompt: ...

    def context_ids(self, conversation: Conversation) -> tuple[int, ...]: ...

    def read(
        self, prompt: Prompt, ids: Sequence[int], logprobs: Sequence[float], entropies: Sequence[float] = ()
    ) -> Reply: ...


@dataclass(slots=True)
class Row:
    """One conversation while its reply grows."""

    key: str
    prompt: Prompt
    context: tuple[int, ...]
    allowed: int
    """Most tokens of this reply; below 1 where the context leaves no room for any."""
    noise: int
    """The seed of its noise, where it has noise of its own."""
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    entropies: list[float] = field(default_factory=list)
    open: bool = True

    def reply(self, renderer: ReplyRenderer) -> Reply:
        """What has been sampled; empty and cut where there was no room."""
        if self.allowed < 1:
            return Reply(self.prompt, (), "", (), (), Span(0, 0), Span(0, 0), closed=False, cut=True)
        return renderer.read(self.prompt, self.ids, self.logprobs, self.entropies)
