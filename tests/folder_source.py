"""A second source of policies: weights travel through a folder, and replies come from plain forward passes.

What a server would do in another process happens here in this one: it has a copy of the model of its own, written and
read back after each update, and samples without any code of `heedful.policies.hf`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from heedful.policies import ReplyRenderer, Sampling, Weights
from heedful.seeds import derive
from heedful.types import Conversation, Metric, Reply


@dataclass(frozen=True)
class FolderSource:
    """Samples from a copy of the weights in a folder."""

    folder: Path
    """Holds a model folder per version, and the list of what happened."""

    def sampling(self, sampling: Sampling) -> Sampling:
        if sampling.precision == "double":
            raise ValueError("--policy folder samples in the model's precision; leave --sampling.precision out")
        return replace(sampling, noise="conversation")

    @contextmanager
    def open(self, *, rank: int = 0, note: Callable[[str], None] = print) -> Iterator[OpenFolder]:
        self.folder.mkdir(parents=True, exist_ok=True)
        opened = OpenFolder(self.folder, rank)
        opened.log(f"open {rank}")
        note(f"sampling through {self.folder.name}")
        try:
            yield opened
        finally:
            opened.log("close")


class OpenFolder:
    """The newest version, and the copy that was read of it."""

    def __init__(self, folder: Path, rank: int) -> None:
        self._folder, self._rank = folder, rank
        self._model: Any = None
        self._version = -1

    def log(self, event: str) -> None:
        with event_log(self._folder, self._rank).open("a") as file:
            file.write(f"{event}\n")

    def weights_changed(self, weights: Weights) -> list[Metric]:
        import torch

        saveable = weights.saveable()  # of a sharded model: a collective
        probe = torch.arange(1, 9)[None]
        with torch.no_grad():
            expected = weights.model(probe).logits
        self._version, self._model = weights.version, None
        self.log(f"weights {weights.version}")
        if self._rank:
            return []
        saveable.save_pretrained(self._path)
        with torch.no_grad():
            error = (self._copy()(probe).logits - expected).abs().max()
        return [Metric("sampler/probe_error", float(error))]

    def policy(self, renderer: ReplyRenderer, sampling: Sampling, seed: int) -> PlainPolicy:
        self.log(f"policy {self._version} {'greedy' if sampling.greedy else 'sampled'}")
        return PlainPolicy(self._copy(), renderer, sampling, seed, self._version)

    @property
    def _path(self) -> Path:
        return self._folder / f"version_{self._version}"

    def _copy(self) -> Any:
        from transformers import AutoModelForCausalLM

        if self._model is None:
            self._model = AutoModelForCausalLM.from_pretrained(self._path).eval()
        return self._model


@dataclass(frozen=True)
class PlainPolicy:
    """One conversation after the other, each token from a forward pass over everything before it."""

    model: Any
    renderer: ReplyRenderer
    sampling: Sampling
    seed: int
    version: int

    @property
    def temperature(self) -> float:
        return self.sampling.temperature

    def respond(self, conversations: Sequence[Conversation]) -> list[Reply]:
        return [self._reply(conversation) for conversation in conversations]

    def _reply(self, conversation: Conversation) -> Reply:
        import torch

        context, ids, logprobs = list(self.renderer.context_ids(conversation)), list[int](), list[float]()
        generator = torch.Generator().manual_seed(derive(self.seed, conversation.key, conversation.turn))
        while len(ids) < self.sampling.tokens_per_turn and not (ids and ids[-1] in self.renderer.stop_ids):
            with torch.inference_mode():
                logits_V = self.model(torch.tensor([context + ids])).logits[0, -1]
            logprobs_V = torch.log_softmax(logits_V / self.sampling.temperature, -1)
            drawn = torch.multinomial(logprobs_V.exp(), 1, generator=generator)
            token = int(logprobs_V.argmax() if self.sampling.greedy else drawn)
            ids.append(token)
            logprobs.append(float(logprobs_V[token]))
        return self.renderer.parse(self.renderer.next_prompt(conversation), ids, logprobs)


def event_log(folder: Path, rank: int = 0) -> Path:
    return folder / f"events_{rank}.txt"


def events(folder: Path, rank: int = 0) -> list[str]:
    """What happened on a rank since the last call."""
    file = event_log(folder, rank)
    found = file.read_text().splitlines()
    file.unlink()
    return found
