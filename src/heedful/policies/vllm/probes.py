"""The proof that a server holds the learner's weights: both score the same probes.

Every endpoint of a push may answer 200 while the server goes on with other weights, or reports log-probabilities at
another temperature. So each push is measured. A probe is one request: the log-probabilities of 63 fixed tokens, and of
one token that the server samples after them, at a temperature of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from heedful.policies.servers import Client, Drawn, Server, Vllm
from heedful.policies.servers.dialects import Tree
from heedful.policies.vllm.policy import refuse_unknown_ids
from heedful.seeds import stream

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

TEMPERATURES = (1.0, 0.7, 1.5, 0.5)
"""One probe for each."""

_TOKENS = 64
_USED = 0.9
"""The part of the vocabulary that probes use. The last ids of a model are often padding, which servers refuse."""


class WrongWeights(ValueError):
    """A server does not hold the learner's weights."""


@dataclass(frozen=True, slots=True)
class Probes:
    """The probes, with the learner's log-probabilities."""

    ids: tuple[tuple[int, ...], ...]
    own: tuple[tuple[float, ...], ...]
    """For each probe, of all its ids but the first."""
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

        ids, temperature, dialect = self.ids[number], TEMPERATURES[number], Vllm()

        def read(tree: Tree) -> tuple[tuple[float, ...], Drawn]:
            drawn = dialect.drawn(tree, 1)
            refuse_unknown_ids(drawn, self.next_BV.shape[-1])
            return dialect.scored(tree, ids), drawn

        scored, drawn = client.ask(dialect.score(ids, model, temperature), read, only=server)
        next_V = torch.log_softmax(self.next_BV[number] / temperature, -1)
        differences = [abs(theirs - ours) for theirs, ours in zip(scored, self.own[number], strict=True)]
        return max(*differences, abs(drawn.logprobs[0] - float(next_V[drawn.ids[0]])))


def probes_of(model: PreTrainedModel, window: int) -> Probes:
    """The probes, scored by the learner. Of a sharded model, every rank must call it."""
    import torch

    vocabulary = model.config.get_text_config(decoder=True).vocab_size
    length = min(_TOKENS, window - 1)
    rng = stream(0, "probes", vocabulary)
    ids_BT = torch.tensor([[rng.randrange(int(_USED * vocabulary)) for _ in range(length)] for _ in TEMPERATURES])
    training = model.training
    model.eval()
    with torch.no_grad():
        logits_BTV = model(ids_BT.to(model.device)).logits.float().cpu()
    model.train(training)
    logprobs_BTV = torch.log_softmax(logits_BTV, -1)
    own_BT = logprobs_BTV[:, :-1].gather(-1, ids_BT[:, 1:, None])[..., 0]
    rows = (tuple(row) for row in ids_BT.tolist())
    return Probes(tuple(rows), tuple(tuple(row) for row in own_BT.tolist()), logits_BTV[:, -1].clone())
