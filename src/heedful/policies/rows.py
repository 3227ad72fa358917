"""What policies share: the renderer that a sampler needs, and one conversation while its reply is sampled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from heedful.models.chat.replies import unanswered
from heedful.seeds import derive
from heedful.types import Conversation, Message, Prompt, Reply


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


def new_messages(conversation: Conversation) -> list[Message]:
    """The messages since the last reply, or all of them where the conversation restarts."""
    messages = list(conversation.messages)
    replies = [at for at, message in enumerate(messages) if message.role == "assistant"]
    return messages if conversation.restarts or not replies else messages[replies[-1] + 1 :]


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

    @classmethod
    def of(cls, conversation: Conversation, renderer: ReplyRenderer, most: int, window: int, seed: int) -> Row:
        """`most`: tokens of a reply. `window`: tokens of a context and its reply together. `seed`: of the policy."""
        context = renderer.context_ids(conversation)
        return cls(
            key=conversation.key,
            prompt=renderer.next_prompt(conversation),
            context=context,
            allowed=min(most, window - len(context)),
            noise=derive(seed, conversation.key, conversation.turn),
        )

    def reply(self, renderer: ReplyRenderer) -> Reply:
        """The reply sampled so far. It is empty and cut if there was no room for any token."""
        if self.allowed < 1:
            return unanswered(self.prompt)
        return renderer.parse(self.prompt, self.ids, self.logprobs, self.entropies)
