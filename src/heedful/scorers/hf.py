"""Cross-scoring with a Hugging Face causal language model: M thoughts under N prompts, every prompt read once.

Promise: the numbers are those of scoring each (prompt, thought) pair alone, up to the rounding that `CrossScores.noise`
states; a model for which a shared prompt cache would not be exact is refused with a sentence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer

from heedful.plain_attention import refuse_unless_plain_causal
from heedful.types import CrossScores

Ids = tuple[int, ...]

_CPU_TOKENS = 512
"""On a CPU larger passes leave its caches: 29 us a token at 448 tokens, 35 at 3,584 (0.85M parameters, one thread)."""
_HEAD_ROWS = 512
"""Rows per log softmax: under a vocabulary of 152k in float32 a chunk takes 0.3 GB."""
_PREFIX_COPIES = 16
"""Prompt positions that a layer may copy for one pass, as a multiple of the tokens of that pass."""


class HFScorer:
    """Scores thoughts under prompts, with the weights that a causal language model holds at the time of the call.

    A prompt is read once; its keys and values serve all thoughts. Thoughts are scored once per distinct token
    sequence, sorted by length and right-padded; the last token of a thought is scored but never read. This is exact:
    under causal full attention a token sees just what it would see in its pair alone. Reading takes
    N x prompt + M x N x thought tokens, where scoring pair by pair takes M x N x (prompt + thought).

    `model`: full causal attention in every layer. ValueError for sliding, chunked, linear, sparse or bidirectional
    attention, shared or recurrent states, encoder-decoders. If it transforms its logits after the output layer (caps,
    scales) it is scored through its whole forward pass, which holds the logits of all tokens of a pass.
    `name`: empty for the policy that sampled. `max_tokens`: most tokens, padding included, of one forward pass (a
    longer sequence passes alone); on a CPU 512 at most, which is faster. It changes speed and memory, and scores by no
    more than rounding. `head_tokens`: for each k the sums over the first min(k, T_i) tokens are returned too.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        name: str = "",
        max_tokens: int = 4096,
        head_tokens: Sequence[int] = (16, 32),
    ) -> None:
        if min((max_tokens, *head_tokens)) < 1:
            raise ValueError(
                "HFScorer expects max_tokens and every k of head_tokens to be at least 1, found "
                f"max_tokens={max_tokens}, head_tokens={tuple(head_tokens)}."
            )
        refuse_unless_plain_causal(model)
        self._model = model
        self._name = name
        self._max_tokens = max_tokens
        self._head_tokens = tuple(head_tokens)

    @property
    def name(self) -> str:
        return self._name

    def cross_score(
        self,
        prompts_N: Sequence[Sequence[int]],
        thoughts_M: Sequence[Sequence[int]],
        own_M: Sequence[int],
        temperature: float,
    ) -> CrossScores:
        """log p(z_i | x_j) under log softmax(logits / temperature), summed over tokens, for every i and j, in nats.

        Prompts must be distinct and not empty (ValueError): equal prompts are one column with a larger share of the
        rows. Thoughts may repeat; one without tokens scores 0. The model's weights, the train or eval state of its
        modules and the global random state are left as they were.
        """
        prompts: list[Ids] = [tuple(map(int, ids)) for ids in prompts_N]
        thoughts: list[Ids] = [tuple(map(int, ids)) for ids in thoughts_M]
        _refuse_malformed(prompts, thoughts, own_M, temperature)
        _refuse_unreadable(self._model, prompts, thoughts)
        row_of = {ids: row for row, ids in enumerate(dict.fromkeys(thoughts))}
        # no_grad, not inference_mode: what a model caches on the way (rotary tables) must stay usable in training.
        with _evaluating(self._model), torch.no_grad():
            sums_SMN = self._sums(prompts, list(row_of), temperature)[:, [row_of[ids] for ids in thoughts]]
        if np.isnan(sums_SMN).any():
            raise ValueError(
                "HFScorer expected log-probabilities, found NaN: the model's weights are not finite or its logits "
                "overflow; check the last update, or score in a wider dtype."
            )
        lengths = [len(ids) for ids in thoughts]
        whole, *heads = [cast(Sequence[Sequence[float]], sums_MN) for sums_MN in sums_SMN]
        return CrossScores(
            scores_MN=whole,
            lengths_M=lengths,
            own_M=list(own_M),
            heads=dict(zip(self._head_tokens, heads, strict=True)),
            noise=_rounding_error(self._model, sums_SMN[0], lengths),
        )

    def _sums(self, prompts: list[Ids], thoughts: list[Ids], temperature: float) -> np.ndarray:
        """Sums S x M x N of distinct thoughts; S = over all tokens, then over the first k for k in `head_tokens`."""
        reader = _Reader(self._model, thoughts, temperature)
        budget = min(self._max_tokens, _CPU_TOKENS) if reader.device.type == "cpu" else self._max_tokens
        together = max(1, budget // max(1, sum(map(len, thoughts))))
        plan = _plan_rows(list(map(len, thoughts)), budget // together, longest_prompt=max(map(len, prompts)))
        batches = [_Batch.of(rows, thoughts, reader.device) for rows in plan]
        sums_SMN = np.zeros((1 + len(self._head_tokens), len(thoughts), len(prompts)))
        for columns in _equally_long(prompts, budget):
            cache, first_NM = reader.read_prompts([prompts[column] for column in columns])
            for start in range(0, len(columns), together):
                part = slice(start, start + together)
                prefix = _shared(cache, part)
                for batch in batches:
                    logprobs_NBT = reader.read_thoughts(prefix, batch, first_NM[part])
                    cells = np.ix_(batch.rows, columns[part])
                    for sums_MN, k in zip(sums_SMN, (None, *self._head_tokens), strict=True):
                        sums_MN[cells] = logprobs_NBT[:, :, :k].sum(axis=2).T
        return sums_SMN


class _Prefix(DynamicLayer):
    """One layer's keys and values of N prompts, shared by N x B rows and never written.

    A plain cache layer would keep every layer's copy of the prompt for every row until the pass ends; here a copy lives
    as long as the attention that reads it.
    """

    def __init__(self, keys_NHTD: torch.Tensor, values_NHTD: torch.Tensor) -> None:
        super().__init__()
        self.keys, self.values, self.is_initialized = keys_NHTD, values_NHTD, True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        keys, values = cast(torch.Tensor, self.keys), cast(torch.Tensor, self.values)
        return _continued(keys, key_states), _continued(values, value_states)


def _shared(cache: Cache, part: slice) -> Cache:
    """Read-only views of some of the prompts in a cache."""
    return Cache(layers=[_Prefix(layer.keys[part], layer.values[part]) for layer in cast(list[Any], cache.layers)])


def _continued(prefix_NHTD: torch.Tensor, states_BHTD: torch.Tensor) -> torch.Tensor:
    """Each row's states behind those of its prompt; rows are ordered prompt by prompt."""
    shape = (len(prefix_NHTD), len(states_BHTD) // len(prefix_NHTD))
    shared = prefix_NHTD[:, None].expand(-1, shape[1], -1, -1, -1)
    return torch.cat([shared, states_BHTD.unflatten(0, shape)], dim=-2).flatten(0, 1)


@dataclass(frozen=True, slots=True)
class _Batch:
    """Thoughts that are read in one pass. Padding stands on the right, where no real token can see it."""

    rows: list[int]
    inputs_BT: torch.Tensor
    """Every token of a thought but its last."""
    targets_BT: torch.Tensor
    """Every token of a thought but its first."""
    real_BT: torch.Tensor
    """True = the target is a token of the thought."""

    @classmethod
    def of(cls, rows: list[int], thoughts: list[Ids], device: torch.device) -> _Batch:
        lengths_B1 = torch.tensor([[len(thoughts[row])] for row in rows])
        width = int(lengths_B1.max())
        ids_BT = torch.tensor([thoughts[row] + (0,) * (width - len(thoughts[row])) for row in rows], device=device)
        real_BT = (torch.arange(1, width) < lengths_B1).to(device)
        return cls(rows, ids_BT[:, :-1], ids_BT[:, 1:], real_BT)


class _Reader:
    """Forward passes of one call: prompts into a cache, thoughts into log-probabilities."""

    def __init__(self, model: PreTrainedModel, thoughts: list[Ids], temperature: float) -> None:
        self.device = model.device
        self._temperature = temperature
        self._first_M = torch.tensor([ids[0] if ids else 0 for ids in thoughts], dtype=torch.long, device=self.device)
        self._body, self._head = _body_and_head(model, self.device)

    def read_prompts(self, prompts: list[Ids]) -> tuple[Cache, torch.Tensor]:
        """The cache of equally long prompts, and the log-probabilities N x M of every thought's first token."""
        cache = DynamicCache()
        last_NH = self._states(torch.tensor(prompts, device=self.device), cache)[:, -1]
        return cache, self._logprobs(last_NH, self._first_M.expand(len(prompts), -1))

    def read_thoughts(self, prefix: Cache, batch: _Batch, first_NM: torch.Tensor) -> np.ndarray:
        """Log-probabilities N x B x T (float64) of a batch behind each of N prompts; 0 at padding."""
        prompts = len(first_NM)
        real_RT = batch.real_BT.repeat(prompts, 1)
        rest_RT = first_NM.new_zeros(real_RT.shape)
        if real_RT.shape[1]:
            states_RTH = self._states(batch.inputs_BT.repeat(prompts, 1), prefix)
            targets_RT = batch.targets_BT.repeat(prompts, 1)
            rest_RT[real_RT] = self._logprobs(states_RTH[real_RT], targets_RT[real_RT][:, None])[:, 0]
        first_NB1 = first_NM[:, batch.rows, None]
        logprobs_NBT = torch.cat([first_NB1, rest_RT.unflatten(0, (prompts, -1))], dim=2)
        return logprobs_NBT.cpu().double().numpy()

    def _states(self, ids_RT: torch.Tensor, cache: Cache) -> torch.Tensor:
        output = self._body(input_ids=ids_RT, past_key_values=cache, use_cache=True, return_dict=True)
        return cast(torch.Tensor, output.logits if self._head is None else output.last_hidden_state)

    def _logprobs(self, states_RH: torch.Tensor, targets_RK: torch.Tensor) -> torch.Tensor:
        """Log-probabilities R x K of K tokens per row, in float32 or wider, a chunk of rows at a time."""
        chunks = []
        for states, targets in zip(states_RH.split(_HEAD_ROWS), targets_RK.split(_HEAD_ROWS), strict=True):
            logits = _wide(states if self._head is None else self._head(states)) / self._temperature
            chunks.append(torch.log_softmax(logits, dim=-1).gather(1, targets))
        return torch.cat(chunks)


def _body_and_head(model: PreTrainedModel, device: torch.device) -> tuple[torch.nn.Module, torch.nn.Module | None]:
    """What to call for states, and what makes them logits; `(model, None)` where the whole model must be called.

    The head alone can skip padding and positions without a target. Whether the model does more to its logits than
    apply its output layer is seen by comparing both on a few tokens, bit by bit: the computation is the same one.
    """
    body, head = model.get_decoder(), model.get_output_embeddings()
    if head is None or body is model:
        return model, None
    ids_1T = torch.arange(min(8, _vocabulary(model)), device=device)[None]
    logits = model(input_ids=ids_1T, use_cache=False, return_dict=True).logits
    states = body(input_ids=ids_1T, use_cache=False, return_dict=True).last_hidden_state
    return (body, head) if torch.equal(_wide(head(states)), _wide(logits)) else (model, None)


def _vocabulary(model: PreTrainedModel) -> int:
    return cast(torch.Tensor, model.get_input_embeddings().weight).shape[0]


def _wide(logits: torch.Tensor) -> torch.Tensor:
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def _equally_long(prompts: list[Ids], budget: int) -> Iterator[list[int]]:
    """Columns of prompts that are read in one pass: of one length, so that no position is padding."""
    by_length: dict[int, list[int]] = {}
    for column, ids in enumerate(prompts):
        by_length.setdefault(len(ids), []).append(column)
    for length, columns in by_length.items():
        size = max(1, budget // length)
        yield from (columns[start : start + size] for start in range(0, len(columns), size))


def _plan_rows(lengths: list[int], budget: int, longest_prompt: int) -> list[list[int]]:
    """The rows of each pass: non-empty thoughts sorted by length and cut where padding plus passes cost least.

    A pass is taken to cost, besides its tokens, an eighth of the budget (measured: 48 tokens of 512 on a CPU).
    """
    rows = sorted((row for row, length in enumerate(lengths) if length), key=lambda row: lengths[row])
    most = max(1, _PREFIX_COPIES * budget // longest_prompt)
    cheapest = [(0.0, 0)]
    for end in range(1, len(rows) + 1):
        width = lengths[rows[end - 1]] - 1
        size = min(most, end, max(1, budget // max(1, width)))
        cost, start = min((cheapest[start][0] + (end - start) * width, start) for start in range(end - size, end))
        cheapest.append((cost + budget / 8, start))
    plan: list[list[int]] = []
    end = len(rows)
    while end:
        start = cheapest[end][1]
        plan.append(rows[start:end])
        end = start
    return plan


def _rounding_error(model: PreTrainedModel, sums_MN: np.ndarray, lengths_M: list[int]) -> float:
    """Rounding error of one sum in nats, as stated in `CrossScores.noise`; about the largest one measured.

    Float32 (and wider): 9 eps (largest sum + 10 nats), that is 1e-6 relative and 1e-5 at least. Against float64 the
    largest error was 5.5 eps of the largest sum, over random models of 0.85M to 0.5B parameters, 15 and 100 tokens,
    weights of standard deviation .02 to .2.
    Half precision and TF32: eps |sum| / sqrt(T), at its largest. Errors of single tokens are coarse and independent
    there, so they grow with the root of the length. On the smaller models the largest error was .6 of this at standard
    deviations up to .05 and 1.9 at .1: a typical error, not a bound, since a bound would call everything a tie.
    """
    finite_MN = np.where(np.isfinite(sums_MN), np.abs(sums_MN), 0.0)
    eps = max(torch.finfo(p.dtype).eps for p in model.parameters() if p.is_floating_point() and p.itemsize > 1)
    if model.device.type == "cuda":
        eps = max(eps, {"highest": 0.0, "high": 2.0**-10, "medium": 2.0**-7}[torch.get_float32_matmul_precision()])
    if eps > torch.finfo(torch.float32).eps:
        roots_M1 = np.sqrt(np.maximum(lengths_M, 1))[:, None]
        return float(eps * (finite_MN / roots_M1).max(initial=0.0))
    return float(9 * eps * (finite_MN.max(initial=0.0) + 10))


@contextmanager
def _evaluating(model: PreTrainedModel) -> Iterator[None]:
    """Dropout off; afterwards every module is back in the state it was in, which need not be the model's."""
    before = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in before:
            module.training = training


def _refuse_malformed(prompts: list[Ids], thoughts: list[Ids], own_M: Sequence[int], temperature: float) -> None:
    if not temperature > 0:
        raise ValueError(f"HFScorer expects a temperature above 0, found {temperature}: pass the one sampled with.")
    if not prompts or not all(prompts):
        raise ValueError(
            f"HFScorer expects prompts of at least one token, found {len(prompts)} prompts with lengths "
            f"{sorted(set(map(len, prompts)))}: leave out what was not prompted."
        )
    column_of: dict[Ids, int] = {}
    for column, ids in enumerate(prompts):
        if column_of.setdefault(ids, column) != column:
            raise ValueError(
                f"HFScorer expects distinct prompts, found the same {len(ids)} token ids as prompts {column_of[ids]} "
                f"and {column}: pass one of them and let own_M point both prompts' thoughts at it."
            )
    if len(own_M) != len(thoughts) or not all(0 <= own < len(prompts) for own in own_M):
        raise ValueError(
            f"HFScorer expects own_M to name a column from 0 to {len(prompts) - 1} for each of {len(thoughts)} "
            f"thoughts, found {len(own_M)} entries {sorted(set(own_M))}."
        )


def _refuse_unreadable(model: PreTrainedModel, prompts: list[Ids], thoughts: list[Ids]) -> None:
    """Ids that the model has no embedding for, and positions for which it was not made."""
    vocabulary = _vocabulary(model)
    ids = set().union(*prompts, *thoughts)
    if min(ids) < 0 or max(ids) >= vocabulary:
        raise ValueError(
            f"HFScorer expects token ids from 0 to {vocabulary - 1}, found {min(ids)} to {max(ids)}: prompts and "
            "thoughts must come from the tokenizer of the scoring model."
        )
    config = model.config.get_text_config(decoder=True)
    limit = getattr(config, "max_position_embeddings", None)
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") in ("dynamic", "longrope"):
        # Beyond this length these change the rotation of tokens that are already in the cache.
        limit = rope.get("original_max_position_embeddings", limit)
    longest = max(map(len, prompts)) + max(map(len, thoughts), default=0) - 1
    if limit is not None and longest > limit:
        raise ValueError(
            f"HFScorer expects prompt and thought to fit the model's {limit} positions, found {longest} tokens: score "
            "shorter prompts, or raise max_position_embeddings where the model allows it."
        )
