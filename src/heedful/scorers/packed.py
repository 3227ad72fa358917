"""Method "packed": thoughts in one flat row without padding after each prompt. Shared prefixes can be read once.

The model's own modules run unchanged. Only the attention is replaced, through the interface that transformers has for
it. Everything around the attention (norms of queries and keys, biases, multipliers, any kind of positions) is the
model's own. Any model that calls the interface and passes its arguments on can be read this way.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from functools import partial
from typing import cast

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedModel

from heedful.models.forward.exactness import Unsupported, plain_states, states_in
from heedful.models.forward.states import empty_cache, keeps_keys_alone, read
from heedful.scorers.cached import FirstTokens, equally_long, read_prompts
from heedful.scorers.kept import KeptPrompts, ReadPrompts
from heedful.scorers.output_head import OutputHead
from heedful.scorers.packed_attention import PackedAttention, groups_of, packed_attention
from heedful.scorers.packs import Ids, Pack, plan_packs
from heedful.scorers.pairs import ScoreSums

_PATHS = 16
"""Maximum tokens of thoughts per token of a pass. A shared token counts for each thought."""
_PASS = 64
"""Tokens that cost as much as a pass more, on a CPU: 2.3 ms of .03 ms each at width 128."""


def cpu_tokens(model: PreTrainedModel) -> int:
    """Tokens of one pass above which a CPU is not faster: 4 times the width of the states, 512 to 1,024.

    One thread: at width 128 passes of 512 tokens take .29 s and of 1,024 tokens .32 s. At width 256 passes of 1,024
    tokens take 1.34 s and of 512 tokens 1.45 s.
    """
    width = int(model.config.get_text_config(decoder=True).hidden_size)
    return max(512, min(1024, 4 * width))


def score_packed(
    model: PreTrainedModel,
    head: OutputHead,
    prompts: Sequence[Ids],
    thoughts: Sequence[Ids],
    budget: int,
    sums: ScoreSums,
    kept: KeptPrompts,
    *,
    share: bool,
) -> None:
    """Score every thought after every prompt into `sums`. `budget`: maximum tokens of one pass.

    Prompts in `kept` are not read again. `share`: read shared beginnings of thoughts once.
    """
    packs = plan_packs(thoughts, budget, share=share)
    weight = max((max(len(pack.ids_R), pack.scored_BT.size // _PATHS, 1) for pack in packs), default=1)
    together = max(1, budget // weight) if len(packs) == 1 else 1
    first = FirstTokens(thoughts)
    for columns in similarly_long(prompts, budget):
        unread = partial(_read_padded, head.body, model.device)
        cache, last_PH, lengths_P = kept.read([prompts[column] for column in columns], unread)
        first_PM = first.logprobs(head, last_PH)
        for start in range(0, len(columns), together):
            part = slice(start, start + together)
            for pack in packs:
                first_PB = first_PM[part][:, pack.rows]
                lengths = None if lengths_P is None else lengths_P[part]
                packed = PackedAttention.of(cache, part, groups_of(pack, len(first_PB), model), lengths)
                rest_PE = _read_pack(model, head, pack, packed, len(first_PB))
                padded_PE = np.pad(rest_PE, ((0, 0), (0, 1)))
                logprobs_PBT = np.concatenate([first_PB[:, :, None], padded_PE[:, pack.scored_BT]], axis=2)
                sums.add(pack.rows, columns[part], logprobs_PBT)


def similarly_long(prompts: Sequence[Ids], budget: int) -> Iterator[list[int]]:
    """Columns of prompts that are read in one pass, from short to long. Padding costs less than one more pass would.

    Prompts with pictures have positions of their own, so they are read with others of their length alone.
    """
    if any(min(ids, default=0) < 0 for ids in prompts):
        yield from equally_long(prompts, budget)
        return
    chosen: list[int] = []
    longest = 0
    for column in sorted(range(len(prompts)), key=lambda column: len(prompts[column])):
        length = len(prompts[column])
        if chosen and ((length - longest) * len(chosen) > _PASS or (len(chosen) + 1) * length > budget):
            yield chosen
            chosen = []
        chosen, longest = [*chosen, column], length
    yield chosen


def _read_padded(body: nn.Module, device: torch.device, prompts: list[Ids]) -> ReadPrompts:
    """Prompts padded on the right.

    No token attends to the padding behind it. Thoughts have to leave it out.
    """
    lengths = list(map(len, prompts))
    if len(set(lengths)) == 1:
        return ReadPrompts(*read_prompts(body, prompts, device))
    padded = torch.tensor([ids + (0,) * (max(lengths) - len(ids)) for ids in prompts], device=device)
    states_PTH, cache = read(body, padded, empty_cache(body))
    lengths_P = torch.tensor(lengths, device=device)
    return ReadPrompts(cache, states_PTH[torch.arange(len(prompts), device=device), lengths_P - 1], lengths_P)


def _read_pack(
    model: PreTrainedModel, head: OutputHead, pack: Pack, packed: PackedAttention, prompts: int
) -> np.ndarray:
    """Log-probabilities P x E (float64) of a pack's targets after each of P prompts."""
    if not len(pack.ids_R):
        return np.zeros((prompts, 0))
    states_PRH = packed_states(model, head.body, pack, packed, prompts)
    logprobs = [head.logprobs(states_RH, pack.targets) for states_RH in states_PRH]
    return torch.stack(logprobs).double().cpu().numpy()


def packed_states(
    model: PreTrainedModel, body: nn.Module, pack: Pack, packed: PackedAttention, prompts: int
) -> torch.Tensor:
    """The states P x R of a pack's read tokens after each of P prompts."""
    ids_1R = torch.from_numpy(pack.ids_R).to(model.device)[None]
    positions_PR = torch.from_numpy(pack.depths_R).to(model.device)[None]
    longest = packed.prefixes[0][0].shape[2]
    positions_PR = positions_PR + (longest if packed.lengths_P is None else packed.lengths_P[:, None])
    if packed.shift_P is not None:
        positions_PR = positions_PR + packed.shift_P[:, None]
    with packed_attention(model):
        output = body(
            input_ids=ids_1R.expand(prompts, -1),
            position_ids=positions_PR,
            use_cache=False,
            return_dict=True,
            packed=packed,
        )
    return states_in(output)


def refuse_unless_packable(model: PreTrainedModel, body: nn.Module) -> None:
    """Raise `Unsupported` unless every layer uses the packed attention and asks it for nothing that it lacks.

    Two prompts and three thoughts, two of them with a common prefix, are read in a pack. In half precision their states
    may differ from the model's own by 4 eps of their norm, or by ten times the difference between its own cached and
    uncached pass, which shows the effect of rounding. There this is sharper than to compare log-probabilities.
    """
    passed_on = inspect.signature(body.forward).parameters.values()
    if not getattr(model, "_supports_attention_backend", False) or all(p.kind is not p.VAR_KEYWORD for p in passed_on):
        raise Unsupported("its attention cannot be exchanged")
    prompts, thoughts = _few(cast(torch.Tensor, model.get_input_embeddings().weight).shape[0])
    pack = plan_packs(thoughts, 64, share=True)[0]
    cache, _ = read_prompts(body, prompts, model.device)
    if not keeps_keys_alone(body):
        raise Unsupported("it keeps more of a prompt than keys and values")
    packed = PackedAttention.of(cache, slice(None), groups_of(pack, len(prompts), model))
    states_PRH = packed_states(model, body, pack, packed, len(prompts))
    if packed.asked_for:
        unsupported = ", ".join(sorted(packed.asked_for))
        raise Unsupported(f"its layers pass arguments to their attention that packs do not support: {unsupported}")
    if len(packed.layers) != len(packed.prefixes):
        own = len(packed.prefixes) - len(packed.layers)
        raise Unsupported(f"{own} of its layers have an attention of their own")
    eps = torch.finfo(states_PRH.dtype).eps
    if eps > torch.finfo(torch.float32).eps:
        inputs = [thoughts[row][:-1] for row in pack.rows]
        reads = [pack.targets.rows_E[scored[scored >= 0]] for scored in pack.scored_BT]
        ours_RH = torch.cat([states_RH[rows] for states_RH in states_PRH for rows in reads]).double()
        error, rounding = _state_errors(body, prompts, inputs, ours_RH)
        if error > max(4 * eps, 10 * rounding):
            raise Unsupported(f"its packed states differ from its own by {error:.0e} of their norm")


def _state_errors(
    body: nn.Module, prompts: Sequence[Ids], inputs: Sequence[Ids], ours_RH: torch.Tensor
) -> tuple[float, float]:
    """Differences from the states of plain forward passes, relative to their norm: of `ours_RH`, and of cached passes.

    `inputs`: the tokens that are read after each prompt.
    """
    own, behind = [], []
    for prompt in prompts:
        for ids in inputs:
            own.append(plain_states(body, torch.tensor([prompt + ids], device=ours_RH.device))[0, len(prompt) :])
            cache, _ = read_prompts(body, [prompt], ours_RH.device)
            behind.append(read(body, torch.tensor([ids], device=ours_RH.device), cache, len(prompt))[0][0])
    own_RH = torch.cat(own).double()
    errors = [float((other_RH - own_RH).norm() / own_RH.norm()) for other_RH in (ours_RH, torch.cat(behind).double())]
    return errors[0], errors[1]


def _few(vocabulary: int) -> tuple[list[Ids], list[Ids]]:
    """Two prompts, and three thoughts. Two of the thoughts begin alike."""
    ids = [(1 + 7 * place % max(1, vocabulary - 1)) % vocabulary for place in range(24)]
    shared = tuple(ids[10:13])
    thoughts = [(*shared, *ids[13:15]), (*shared, *ids[15:17]), tuple(ids[17:22])]
    return [tuple(ids[:5]), tuple(ids[5:10])], thoughts
