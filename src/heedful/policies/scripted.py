"""A policy that answers from a function, for tests, demonstrations and dry runs without a model.

Replies have ids (one per character) and spans like replies of a model, so all later stages work unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from heedful.policies.rows import new_messages
from heedful.types import Conversation, Prompt, Reply, Span

_END = 0x110000  # one past the last code point: the end-of-turn token of a scripted reply


class ScriptedPolicy:
    """Answers each conversation with `answer(conversation)`. Tokens are characters, and every log-probability is 0."""

    temperature = 1.0
    version = 0

    def __init__(self, answer: Callable[[Conversation], str]) -> None:
        self._answer = answer

    def respond(self, conversations: Sequence[Conversation]) -> list[Reply]:
        return [self._reply(conversation) for conversation in conversations]

    def _reply(self, conversation: Conversation) -> Reply:
        shown = new_messages(conversation)
        prompt = "\n".join(message.content for message in shown)
        images = tuple(image for message in shown for image in message.images)
        history = len(prompt) - len(conversation.messages[-1].content) if conversation.restarts else 0
        text = self._answer(conversation)
        ids = (*map(ord, text), _END)
        close = text.find("</think>")
        thought_end = close + len("</think>") if close >= 0 else len(ids) if "<think>" in text else 0
        return Reply(
            prompt=Prompt(prompt, tuple(map(ord, prompt)), conversation.restarts, history, images),
            ids=ids,
            text=text,
            logprobs=(0.0,) * len(ids),
            entropies=(),
            thought=Span(0, thought_end),
            answer=Span(thought_end, max(thought_end, len(text))),
            closed=close >= 0,
            cut=False,
        )
