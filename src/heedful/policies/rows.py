"""One conversation while its reply is sampled, and the renderer that a sampler needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from heedful.types import Conversation, Prompt, Reply, Span


class ReplyRenderer(Protocol):
    """Turns conversations into ids and ids into replies, for instance `heedful.models.chat.render.Renderer`."""

    @property
    def stop_ids(self) -> frozenset[int]:
        """The ids that end a reply."""
        ...

    def next_prompt(self, conversation: Conversation) -> Prompt:
        """The prompt that is appended for this turn, as it is stored with the reply."""
        ...

    def context_ids(self, conversation: Conversation) -> tuple[int, ...]:
        """All ids before the reply."""
        ...

    def parse(
        self, prompt: Prompt, ids: Sequence[int], logprobs: Sequence[float], entropies: Sequence[float] = ()
    ) -> Reply:
        """The reply made of sampled ids. `entropies` are empty if they are unknown."""
        ...


@dataclass(slots=True)
class Row:
    """One conversation while its reply is sampled, without any state of the model."""

    key: str
    prompt: Prompt
    context: tuple[int, ...]
    allowed: int
    """Most tokens of this reply. Below 1 if the context fills the model's window."""
    noise: int
    """The seed of the reply's noise, used with the noise `conversation`."""
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    entropies: list[float] = field(default_factory=list)
    open: bool = True

    def reply(self, renderer: ReplyRenderer) -> Reply:
        """The reply sampled so far. It is empty and cut if there was no room for any token."""
        if self.allowed < 1:
            return Reply(self.prompt, (), "", (), (), Span(0, 0), Span(0, 0), closed=False, cut=True)
        return renderer.parse(self.prompt, self.ids, self.logprobs, self.entropies)
