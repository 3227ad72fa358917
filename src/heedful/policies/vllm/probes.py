"""The proof that a server holds the learner's weights: both score the same probes.

Every endpoint of a push may answer 200 while the server goes on with other weights, or reports log-probabilities at
another temperature. So each push is measured. A probe is one request: the log-probabilities of 63 fixed tokens, and of
one token that the server samples after them, at a temperature of its own.

A model with windows or recurrent states gets one probe more, which reads beyond them. Only the token that the server
samples after it is compared: a window may have thousands of tokens, and their logits would take gigabytes.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING

from heedful.policies.servers import Client, Draw, Drawn, Server, Vllm
from heedful.policies.servers.dialects import Tree
from heedful.policies.vllm.policy import refuse_unknown_ids
from heedful.seeds import stream

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

TEMPERATURES = (1.0, 0.7, 1.5, 0.5)
"""One probe for each. The long one is sampled at the first."""

_TOKENS = 64
_LONG = Draw(TEMPERATURES[0], greedy=False, most=1, seed=0)
_USED = 0.9
"""The part of the vocabulary that probes use. The last ids of a model are often padding, which servers refuse."""


class WrongWeights(ValueError):
    """A server does not hold the learner's weights."""


@dataclass(frozen=True, slots=True)
class Probes:
    """The probes, with the learner's log-probabilities."""

    ids: tuple[tuple[int, ...], ...]
    own: tuple[tuple[float, ...], ...]
    """For each probe, of all its ids but the first. Empty for the long one."""
    next_BV: torch.Tensor
    """Logits after each probe: `[probes, V]`, float32, on the CPU."""

    def error(self, client: Client, server: Server, model: str) -> float:
        """The largest difference between the server's and the learner's log-probabilities, in nats.

        Raises ServerUnreachable or ServerRefused.
        """
        return max(self._error_of(number, client, server, model) for number in range(len(self.ids)))

    @property
    def count(self) -> int:
        """The number of compared log-probabilities."""
        return sum(map(len, self.own)) + len(self.ids)

    def _error_of(self, number: int, client: Client, server: Server, model: str) -> float:
        import torch

        ids, own, dialect = self.ids[number], self.own[number], Vllm()
        temperature = TEMPERATURES[number % len(TEMPERATURES)]

        def read(tree: Tree) -> tuple[tuple[float, ...], Drawn]:
            drawn = dialect.drawn(tree, 1)
            refuse_unknown_ids(drawn, self.next_BV.shape[-1])
            return dialect.scored(tree, ids) if own else (), drawn

        call = dialect.score(ids, model, temperature) if own else dialect.draw(ids, _LONG, model)
        scored, drawn = client.ask(call, read, only=server)
        next_V = torch.log_softmax(self.next_BV[number] / temperature, -1)
        differences = [abs(theirs - ours) for theirs, ours in zip(scored, own, strict=True)]
        return max([*differences, abs(drawn.logprobs[0] - float(next_V[drawn.ids[0]]))])


def probes_of(model: PreTrainedModel, window: int) -> Probes:
    """The probes, scored by the learner. Of a sharded model, every rank must call it."""
    import torch

    from heedful.models.forward.exactness import evaluating, reach

    vocabulary = model.config.get_text_config(decoder=True).vocab_size
    rng = stream(0, "probes", vocabulary)

    def some(rows: int, length: int) -> torch.Tensor:
        known = int(_USED * vocabulary)
        return torch.tensor([[rng.randrange(known) for _ in range(min(length, window - 1))] for _ in range(rows)])

    ids_BT, beyond = some(len(TEMPERATURES), _TOKENS), reach(model)
    long_BT = some(1 if beyond else 0, beyond + _TOKENS)
    last = {"logits_to_keep": 1} if "logits_to_keep" in inspect.signature(model.forward).parameters else {}
    with evaluating(model), torch.no_grad():
        logits_BTV = model(ids_BT.to(model.device)).logits.float().cpu()
        after = [model(ids_T[None].to(model.device), **last).logits[:, -1].float().cpu() for ids_T in long_BT]
    own_BT = torch.log_softmax(logits_BTV, -1)[:, :-1].gather(-1, ids_BT[:, 1:, None])[..., 0]
    ids = [tuple(row) for row in (*ids_BT.tolist(), *long_BT.tolist())]
    own = [tuple(row) for row in own_BT.tolist()] + [()] * len(long_BT)
    return Probes(tuple(ids), tuple(own), torch.cat([logits_BTV[:, -1], *after]))
