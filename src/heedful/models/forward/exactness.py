"""Probes: a way to compute log-probabilities is trusted after it has given those of plain forward passes.

A plain forward pass reads one whole sequence, without a KV cache, padding or a mask. The probe's sequences are fixed,
so no random state is read or changed. Only the model's architecture decides the outcome, so one probe per model is
enough, whatever its later weights.

The probe reads beyond every window of attention: windows have 8 tokens while it reads. A way that is wrong beyond the
window would pass otherwise.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, cast
from weakref import WeakKeyDictionary, ref

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from transformers import PreTrainedModel

from heedful.models.forward.attention import longest_context_of
from heedful.models.forward.rounding import Floats, rounding_of

Ids = tuple[int, ...]

_PROMPTS = (5, 5, 66)
"""Lengths of the prompts. Two are read in one pass. The last is long enough for every attention kernel, and is longer
by what `reach` finds."""
_WINDOW = 8
"""Tokens of a window or chunk of attention while the probe reads."""
_NARROWED = ("sliding_window", "sliding_window_size", "attention_chunk_size")
"""Windows that a config holds. Layers, masks and caches follow them in every pass."""
_HELD = ("window_size", "attention_window_size", "index_topk", "chunk_size", "mamba_chunk_size")
"""Numbers of tokens that modules hold from their construction on."""
_SHARED = 3
"""Tokens that the first two thoughts have in common."""
_THOUGHTS = (6, 6, 4)
_ALLOWED = 4
"""Largest accepted difference, in stated rounding errors. Both sides round, and half precision states a typical error.
"""
_BROKEN = (RuntimeError, TypeError, ValueError, AttributeError, LookupError, AssertionError)
"""What a model raises if it does not support the way in which it was called."""


class Unsupported(ValueError):
    """A way of calling a model that it does not support. The message is half a sentence with the reason."""


@dataclass(frozen=True, slots=True)
class Probe:
    """A few thoughts under a few prompts, with the log-probabilities of plain forward passes."""

    prompts: list[Ids]
    thoughts: list[Ids]
    logprobs: list[list[Floats]]
    """For each thought and each prompt: the log-probability of each token at temperature 1."""
    allowed: float
    """Largest accepted difference of a sum over the first tokens of a thought, in nats."""
    _model: ref[PreTrainedModel]

    @classmethod
    def of(cls, model: PreTrainedModel) -> Probe:
        """Reads the model once for the sampler, the learner and the scorer, as long as its weights stay."""
        known = _LATEST.get(model)
        if known is None or not known._holds(model):
            known = _LATEST[model] = cls._read(model)
        return known

    @classmethod
    def _read(cls, model: PreTrainedModel) -> Probe:
        prompts, thoughts = _sequences(model)
        with _narrowed(model):
            logprobs = [[_plain_logprobs(model, prompt, thought) for prompt in prompts] for thought in thoughts]
        sums_MN = np.array([[one.sum() for one in row] for row in logprobs])
        noise = rounding_error(model, sums_MN, list(map(len, thoughts)), at_least=torch.finfo(torch.float32).eps)
        return cls(prompts, thoughts, logprobs, _ALLOWED * noise, ref(model))

    def _holds(self, model: PreTrainedModel) -> bool:
        """Whether one plain forward pass still gives, bit for bit, what it gave. NaN never does."""
        with _narrowed(model):
            now = _plain_logprobs(model, self.prompts[-1], self.thoughts[-1])
        return np.array_equal(now, self.logprobs[-1][-1])

    @property
    def finite(self) -> bool:
        """False if a plain forward pass gives NaN: then nothing can be compared."""
        return not any(np.isnan(one).any() for row in self.logprobs for one in row)

    def obstacle(self, way: Callable[[], Sequence[Sequence[npt.ArrayLike]]], share: float = 1.0) -> str:
        """Why the log-probabilities of `way` cannot be trusted, as half a sentence. Empty if they can.

        `way`: computes log-probabilities in the shape of `logprobs`, or of its first tokens. What it raises because the
        model does not support it is an obstacle too. Lack of memory is raised. `share`: of the difference that is
        accepted.
        """
        if self._error([[one[:_SHARED] for one in self.logprobs[0]]], self.logprobs[1:2]) > self.allowed:
            return "its log-probabilities depend on later tokens"
        try:
            with _narrowed(cast(PreTrainedModel, self._model())):
                error = self._error(way(), self.logprobs)
        except torch.OutOfMemoryError:
            raise
        except Unsupported as raised:
            return str(raised)
        except _BROKEN as raised:
            reason = (str(raised).strip().splitlines() or [""])[0]
            return f"it fails with {type(raised).__name__}: {reason[:200].rstrip('.')}"
        if error <= share * self.allowed:
            return ""
        return f"its log-probabilities differ from those of a plain forward pass by {error:.2g} nats"

    @staticmethod
    def _error(found: Sequence[Sequence[npt.ArrayLike]], expected: Sequence[Sequence[Floats]]) -> float:
        """Largest difference of sums over the first 1, 2, ... tokens of `found`. Infinite if it is NaN."""
        largest = 0.0
        for found_N, expected_N in zip(found, expected, strict=True):
            for values, truth_T in zip(found_N, expected_N, strict=True):
                values_T = np.asarray(values, dtype=np.float64)
                same_T = values_T == truth_T[: len(values_T)]  # -inf minus -inf would be NaN
                with np.errstate(invalid="ignore"):
                    difference_T = np.where(same_T, 0.0, values_T - truth_T[: len(values_T)])
                largest = max(largest, float(np.nan_to_num(np.abs(difference_T.cumsum()), nan=np.inf).max()))
        return largest


_LATEST: WeakKeyDictionary[PreTrainedModel, Probe] = WeakKeyDictionary()
"""For each model: what it gave when it was last read."""


def plain_states(body: nn.Module, ids_BT: torch.Tensor) -> torch.Tensor:
    """The last hidden states of whole sequences without a KV cache. If `body` is a whole model, the logits."""
    taken = inspect.signature(body.forward).parameters
    named = {"use_cache": False, "return_dict": True}
    if all(parameter.kind is not parameter.VAR_KEYWORD for parameter in taken.values()):
        named = {name: value for name, value in named.items() if name in taken}
    return states_in(body(input_ids=ids_BT, **named))


def states_in(output: Any) -> torch.Tensor:
    """The last hidden states of a body's output, or the logits of a whole model's."""
    return cast(torch.Tensor, output.logits if "logits" in output else output.last_hidden_state)


def wide(logits: torch.Tensor) -> torch.Tensor:
    """The logits in float32 or wider."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


@dataclass(frozen=True, slots=True)
class LogitHead:
    """The output layer of a model, and the change of each logit after it: a cap, a scale or nothing."""

    layer: nn.Module
    change: Callable[[torch.Tensor], torch.Tensor]

    def __call__(self, states: torch.Tensor) -> torch.Tensor:
        return self.change(self.layer(states))


@torch.no_grad()
def body_and_head(model: PreTrainedModel) -> tuple[nn.Module, LogitHead | None]:
    """The module that gives states, and the head that makes them logits. `(model, None)` for the whole model.

    In a pass of a few tokens the output of the layer is exchanged for wide values, which show a cap under any weights.
    The layer must be given the body's states, and the change must give the model's logits, both bit by bit.
    """
    body, layer = model.get_decoder(), model.get_output_embeddings()
    if body is None or body is model or layer is None:
        return model, None
    vocabulary = cast(torch.Tensor, model.get_input_embeddings().weight).shape[0]
    ids_1T = torch.arange(min(8, vocabulary), device=model.device)[None]
    found: list[torch.Tensor] = []

    def exchanged(_: nn.Module, given: tuple[torch.Tensor, ...], output: torch.Tensor) -> torch.Tensor:
        found[:] = [*given, torch.linspace(-40, 40, output.shape[-1], device=output.device).to(output)]
        return found[-1].expand_as(output).clone()

    hook = layer.register_forward_hook(exchanged)
    try:
        whole = plain_states(model, ids_1T)
    finally:
        hook.remove()
    if len(found) != 2 or not torch.equal(found[0].nan_to_num(), plain_states(body, ids_1T).nan_to_num()):
        return model, None
    for change in _changes(model):
        if torch.equal(change(found[1]).to(whole.dtype).expand(*ids_1T.shape, -1), whole):
            return body, LogitHead(layer, change)
    return model, None


def _changes(model: PreTrainedModel) -> Iterator[Callable[[torch.Tensor], torch.Tensor]]:
    """What models do to a logit, with each number of the config: cap it, or scale it."""
    yield lambda logits: logits
    config = vars(model.config.get_text_config(decoder=True))
    for number in dict.fromkeys(value for value in config.values() if type(value) in (int, float) and value):
        yield partial(torch.mul, other=number)
        yield partial(torch.div, other=number)
        yield partial(_capped, cap=number)


def _capped(logits: torch.Tensor, cap: float) -> torch.Tensor:
    return torch.tanh(logits / cap) * cap


@contextmanager
def evaluating(model: PreTrainedModel) -> Iterator[None]:
    """Turn dropout off, and restore the train or eval state of every module afterwards (it may differ by module)."""
    before = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in before:
            module.training = training


def rounding_error(model: PreTrainedModel, sums_MN: Floats, lengths_M: list[int], at_least: float = 0.0) -> float:
    """`rounding_of` with the coarsest dtype that the model computes in.

    `at_least`: smallest eps to assume. Some models compute parts of a float64 pass in float32.
    """
    eps = max(torch.finfo(p.dtype).eps for p in model.parameters() if p.is_floating_point() and p.itemsize > 1)
    if model.device.type == "cuda":
        eps = max(eps, {"highest": 0.0, "high": 2.0**-10, "medium": 2.0**-7}[torch.get_float32_matmul_precision()])
    return rounding_of(max(eps, at_least), sums_MN, lengths_M)


def _sequences(model: PreTrainedModel) -> tuple[list[Ids], list[Ids]]:
    """The probe's prompts and thoughts, of ids that the model knows and lengths that fit its positions."""
    vocabulary = cast(torch.Tensor, model.get_input_embeddings().weight).shape[0]
    limit = longest_context_of(model.config) or 1 << 30
    generator = random.Random(0)

    def some(length: int) -> Ids:
        return tuple(generator.randrange(vocabulary) for _ in range(length))

    lengths = (*_PROMPTS[:-1], _PROMPTS[-1] + reach(model, _HELD))
    prompts = [some(max(1, min(length, limit - max(_THOUGHTS)))) for length in lengths]
    shared = some(_SHARED)
    ends = [some(length - _SHARED) for length in _THOUGHTS]
    return prompts, [shared + ends[0], shared + ends[1], some(1) + ends[2] + some(_SHARED - 1)]


def reach(model: PreTrainedModel, names: Sequence[str] = (*_NARROWED, *_HELD)) -> int:
    """Tokens after which a model may read otherwise, as far as these settings say. 0: it reads all tokens alike."""
    config = model.config.get_text_config(decoder=True)
    found = [value for name in names if isinstance(value := getattr(config, name, None), int)]
    rates = getattr(config, "compress_rates", None) or {}
    pooled = [max(rates.values()), min(rates.values()) * int(getattr(config, "index_topk", 0))] if rates else []
    return max([*found, *pooled, _PROMPTS[-1] if getattr(model, "_is_stateful", False) else 0])


@contextmanager
def _narrowed(model: PreTrainedModel) -> Iterator[None]:
    """Set every window and chunk of attention to `_WINDOW` tokens, and back.

    It is the model that would have been built with this window. Modules hold the window for some kernels of attention.
    """
    config = model.config.get_text_config(decoder=True)
    modules = list(model.modules())
    holders = {id(one): one for one in (config, *(getattr(module, "config", config) for module in modules), *modules)}
    before: list[tuple[Any, str, int]] = []
    for name in _NARROWED:
        whole = getattr(config, name, None)
        if not isinstance(whole, int) or whole <= _WINDOW:
            continue
        for holder in holders.values():
            value = getattr(holder, name, None)
            if isinstance(value, int) and abs(value - whole) <= 1:  # some modules count the token itself
                before.append((holder, name, value))
                setattr(holder, name, _WINDOW + value - whole)
    try:
        yield
    finally:
        for holder, name, value in before:
            setattr(holder, name, value)


@torch.no_grad()
def _plain_logprobs(model: PreTrainedModel, prompt: Ids, thought: Ids) -> Floats:
    """The log-probability (float64) of each token of a thought after a prompt."""
    logits_TV = plain_states(model, torch.tensor([prompt + thought], device=model.device))[0, len(prompt) - 1 : -1]
    tokens_T1 = torch.tensor(thought, device=logits_TV.device)[:, None]
    return wide(logits_TV).log_softmax(-1).gather(1, tokens_T1)[:, 0].double().cpu().numpy()
