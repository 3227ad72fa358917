"""A served model, ready to be asked: the connection, what the server says about itself, and the policies.

With a tokenizer, ids go out and come back, with log-probabilities. Without one, messages go out and text comes back.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from heedful.models.chat.calls import tools_of
from heedful.models.chat.template import read_options
from heedful.policies.sampling import Sampling
from heedful.policies.served_text import TextPolicy
from heedful.policies.servers import Client, Limits, OpenAITokens, Usage, read_key
from heedful.policies.servers.examination import ServerFacts, base_of, check_tokenizer, examine, refuse_unknown
from heedful.policies.vllm.policy import Served, ServerPolicy
from heedful.run.served.settings import ServedSettings
from heedful.types import Conversation, Reply

if TYPE_CHECKING:
    from heedful.models.chat.render import Renderer

NO_IDS = "the server returned text alone: without --tokenizer, token ids and log-probabilities are unknown"


@dataclass(frozen=True, slots=True)
class ServedModel:
    """One model on one server."""

    client: Client
    name: str
    facts: ServerFacts
    settings: ServedSettings
    renderer: Renderer | None
    """`None`: text alone."""

    @property
    def text_only(self) -> bool:
        return self.renderer is None

    @property
    def window(self) -> int:
        """Most tokens of a context and its reply together. Unlimited if the server does not say."""
        return self.facts.windows.get(self.name) or sys.maxsize

    @property
    def keeps_logprobs(self) -> bool:
        """Whether the log-probabilities of replies belong to the temperature that was sampled with."""
        return self.settings.sampling.temperature == 1 or bool(self.facts.processed_logprobs)

    @property
    def description(self) -> Mapping[str, str | bool | None]:
        """What a result must say about where it came from."""
        return {
            "url": self.facts.url,
            "model": self.name,
            "server": f"vLLM {self.facts.vllm}" if self.facts.vllm else "OpenAI-compatible",
            "dialect": "chat completions, text alone" if self.text_only else "completions with token ids",
            "ids": not self.text_only,
        }

    def policy(self, sampling: Sampling, seed: int) -> TextPolicy | CountedTokens:
        """The model as a policy. `seed` is the seed of the sampling."""
        if self.renderer is None:
            return TextPolicy(self.client, self.name, sampling, self.settings.tags, seed)
        return CountedTokens(self, self.renderer, sampling, seed)


class CountedTokens:
    """A policy over ids that counts the tokens of each reply: all of its context, and what was sampled."""

    version = 0

    def __init__(self, model: ServedModel, renderer: Renderer, sampling: Sampling, seed: int) -> None:
        served = Served(model.client, OpenAITokens(), _NoPool(), model.name, model.window)
        self._policy = ServerPolicy(served, renderer, sampling, seed=seed)
        self._renderer, self._keeps_logprobs = renderer, model.keeps_logprobs
        self.temperature, self.parallel = self._policy.temperature, self._policy.parallel

    def answer(self, conversation: Conversation) -> tuple[Reply, Usage]:
        reply, said = self._policy.answer(conversation)
        usage = Usage(len(self._renderer.context_ids(conversation)), len(reply.ids), model=said.model)
        return reply if self._keeps_logprobs else replace(reply, logprobs=()), usage


class _NoPool(Executor):
    """No threads: a journal asks for one conversation at a time, from threads of its own."""


@contextmanager
def open_served(
    url: str, name: str, tokenizer: str | None, settings: ServedSettings, note: Callable[[str], None]
) -> Iterator[ServedModel]:
    """Connect to a server and check that it has the model, and that the tokenizer is its own.

    Raises ValueError, ServerRefused or ServerUnreachable, each with a sentence.
    """
    if tokenizer is None and tools_of(settings.env):
        raise ValueError(
            "Expected --tokenizer, since the replies are tool calls (--env.actions tool_calls): with text alone the "
            "server's chat template would not be given the tools. Name the tokenizer of the served model, or leave "
            "--env.actions at plain."
        )
    limits = Limits(settings.connections, settings.timeout, settings.patience)
    client = Client([base_of(url)], limits, key=read_key(settings.api_key_env), note=note)
    try:
        facts = examine(client, client.servers[0])
        refuse_unknown(facts, name)
        renderer = None
        if tokenizer is not None:
            from heedful.models.chat.render import Renderer
            from heedful.models.load import read_tokenizer, stop_ids_beside

            own = read_tokenizer(tokenizer, "Give --tokenizer the folder or the Hugging Face name of the served model.")
            options = read_options(settings.template_options)
            renderer = Renderer(own, settings.tags, options, stop_ids_beside(tokenizer), tools_of(settings.env))
            settings = replace(settings, tags=renderer.tags)

            encode = functools.partial(own.encode, add_special_tokens=False)
            note(check_tokenizer(client, name, encode, tokenizer))
        yield ServedModel(client, name, facts, settings, renderer)
    finally:
        client.close()
