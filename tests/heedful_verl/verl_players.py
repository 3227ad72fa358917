"""A tokenizer of bytes, and a policy that answers from a table, once as heedful asks and once as verl's servers do."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from heedful.models.chat.render import Renderer
from heedful.models.chat.replies import Tags
from heedful.types import Conversation, Reply
from heedful_verl.play.playing import Sampled

TAGS = ("<think>", "</think>", "<answer>", "</answer>")

Say = Callable[[str], str]
"""The text of a context -> the reply that is sampled after it."""


@cache
def byte_tokenizer() -> Any:
    from heedful.seedlings.tokenizer import grow_tokenizer

    return grow_tokenizer([], 5 + 256 + len(TAGS), 4096, TAGS)


@cache
def byte_renderer() -> Renderer:
    return Renderer(byte_tokenizer(), Tags())


def wander(context: str) -> str:
    """A direction that depends on all of the context and on nothing else."""
    step = hashlib.sha256(context.encode()).digest()[0]
    way = ("Left", "Down", "Right", "Up")[step % 4]
    return f"<think>{way} it is</think><answer>{way}</answer>"


def sampled_after(ids: Sequence[int], say: Say, most: int) -> Sampled:
    """The reply to a context, one log-probability per id that depends on the place of the id."""
    renderer = byte_renderer()
    said = renderer.as_sampled(say(renderer.tokenizer.decode(list(ids))))[:most]
    return Sampled(said, [-0.5 - 0.25 * place for place in range(len(said))], (7, 7))


@dataclass
class FakeSampler:
    """Answers as a server would, and remembers how much it was asked for."""

    say: Say = wander
    asked: list[tuple[int, int]] = field(default_factory=list)
    """Length of the context, and the most tokens."""

    async def __call__(self, ids: Sequence[int], most: int) -> Sampled:
        self.asked.append((len(ids), most))
        return sampled_after(ids, self.say, most)


@dataclass
class FakePolicy:
    """The same replies as a policy of heedful's own collectors."""

    most: int
    say: Say = wander
    temperature: float = 1.0
    version: int = 7

    def respond(self, conversations: Sequence[Conversation]) -> list[Reply]:
        return [self._reply(conversation) for conversation in conversations]

    def _reply(self, conversation: Conversation) -> Reply:
        renderer = byte_renderer()
        found = sampled_after(renderer.context_ids(conversation), self.say, self.most)
        return renderer.parse(renderer.next_prompt(conversation), tuple(found.ids), tuple(found.logprobs))
