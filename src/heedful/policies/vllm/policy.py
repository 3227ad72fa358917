"""A policy whose replies come from inference servers: ids out, ids and log-probabilities back. Torch-free."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

from heedful.models.sight import refuse_images
from heedful.policies.rows import ReplyRenderer, Row
from heedful.policies.sampling import Sampling
from heedful.policies.servers import Client, Draw, Drawn, ForeignAnswer, OtherWeights, TokenDialect, Usage
from heedful.policies.servers.dialects import Tree
from heedful.types import Conversation, Reply


@dataclass(frozen=True, slots=True)
class Served:
    """The servers of a policy, and what they hold."""

    client: Client
    dialect: TokenDialect
    pool: Executor
    """The threads of requests that are sent together."""
    model: str
    """The name under which the servers know the weights."""
    window: int
    """Most tokens of a context and its reply together."""
    label: str = ""
    """The version that each reply must name, and the salt of the prefix cache. Empty: any weights are right."""
    stale: tuple[int, ...] = ()
    """Statuses with which a server refuses weights that it does not hold."""
    vocabulary: int | None = None
    """Every id is below it. `None`: the number is not known."""


class ServerPolicy:
    """One collection's policy over servers with fixed weights.

    Each conversation is one request, with a seed made of `seed`, its key and its turn. So a reply does not depend on
    the other conversations, on the order of the calls, or on failures in between. Entropies are unknown.

    Greedy replies are reported at temperature 1, and `temperature` says so.
    """

    def __init__(
        self, served: Served, renderer: ReplyRenderer, sampling: Sampling, *, seed: int, version: int = 0
    ) -> None:
        self.version = version
        self.sampling = sampling
        self._served, self._renderer, self._seed = served, renderer, seed
        self._stops = tuple(sorted(renderer.stop_ids))

    @property
    def temperature(self) -> float:
        return 1.0 if self.sampling.greedy else self.sampling.temperature

    @property
    def parallel(self) -> int:
        return self._served.client.most_at_once

    def keep(self, keys: Collection[str]) -> None:
        """The server's own prefix cache keeps what it has room for."""

    def respond(self, conversations: Sequence[Conversation]) -> list[Reply]:
        """One reply per conversation, in order. A context that fills the window gets an empty, cut reply.

        Raises ServerUnreachable or ServerRefused, with a sentence.
        """
        if len(conversations) == 1:
            return [self.answer(conversations[0])[0]]
        waiting = [self._served.pool.submit(self.answer, conversation) for conversation in conversations]
        try:
            return [future.result()[0] for future in waiting]
        finally:
            for future in waiting:  # after an error, no further request begins
                future.cancel()

    def answer(self, conversation: Conversation) -> tuple[Reply, Usage]:
        """One reply, and what the server says of it."""
        refuse_images(conversation.messages, "a policy that is sampled by servers")
        served = self._served
        row = Row.of(conversation, self._renderer, self.sampling.tokens_per_turn, served.window, self._seed)
        if row.allowed < 1:
            return row.reply(self._renderer), Usage()
        draw = Draw(
            self.sampling.temperature, self.sampling.greedy, row.allowed, row.noise, self._stops, salt=served.label
        )
        call = served.dialect.draw(row.context, draw, served.model)
        drawn = served.client.ask(call, self._reader(row.allowed), conversation=row.key, stale=served.stale)
        row.ids, row.logprobs = list(drawn.ids), list(drawn.logprobs)
        return row.reply(self._renderer), drawn.usage

    def _reader(self, most: int) -> Callable[[Tree], Drawn]:
        label = self._served.label

        def read(tree: Tree) -> Drawn:
            drawn = self._served.dialect.drawn(tree, most)
            refuse_unknown_ids(drawn, self._served.vocabulary)
            if label and not self._served.stale and drawn.versions != (label,):
                if not drawn.versions:
                    raise ForeignAnswer(
                        "Expected the version of the weights (`weight_versions`) with a reply, found none. Ask a vLLM "
                        "that reports it (docs/servers.md), without a proxy that takes it away."
                    )
                raise OtherWeights(f"expected one span of {label}, found {', '.join(drawn.versions)}")
            return drawn

        return read


def refuse_unknown_ids(drawn: Drawn, vocabulary: int | None) -> None:
    """Raise ForeignAnswer for an id that the learner's model does not have."""
    if vocabulary is not None and max(drawn.ids) >= vocabulary:
        raise ForeignAnswer(f"Expected ids below {vocabulary:,}, the learner's vocabulary, found {max(drawn.ids):,}.")
