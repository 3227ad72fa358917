"""Method "packed": thoughts in one flat row without padding after each prompt. Shared prefixes can be read once.

It is used only if a small probe gives the same states as the model's own forward pass.

The model's own modules run unchanged. Only the attention is replaced, through the interface that transformers has for
it. Everything around the attention (norms of queries and keys, biases, multipliers, any kind of positions) is the
model's own. Any model that calls the interface and passes its arguments on can be read this way.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import cast

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, DynamicCache

from heedful.scorers.cached import FirstTokens, equally_long, read_prompts, states_after
from heedful.scorers.output_head import OutputHead
from heedful.scorers.packed_attention import PackedAttention, groups_of, packed_attention
from heedful.scorers.packs import Ids, Pack, plan_packs
from heedful.scorers.score_sums import ScoreSums

_PATHS = 16
"""Maximum tokens of thoughts per token of a pass. A shared token counts for each thought."""


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
    *,
    share: bool,
) -> None:
    """Score every thought after every prompt into `sums`. `budget`: maximum tokens of one pass.

    `share`: read shared beginnings of thoughts once.
    """
    packs = plan_packs(thoughts, budget, share=share)
    weight = max((max(len(pack.ids_R), pack.scored_BT.size // _PATHS, 1) for pack in packs), default=1)
    together = max(1, budget // weight) if len(packs) == 1 else 1
    first = FirstTokens(thoughts)
    for columns in equally_long(prompts, budget):
        cache, last_PH = read_prompts(head.body, [prompts[column] for column in columns], model.device)
        first_PM = first.logprobs(head, last_PH)
        for start in range(0, len(columns), together):
            part = slice(start, start + together)
            for pack in packs:
                rest_PE = _read_pack(model, head, cache, part, pack, len(first_PM[part]))
                sums.add(pack.rows, columns[part], _by_thought(first_PM[part][:, pack.rows], rest_PE, pack.scored_BT))


def _by_thought(first_PB: np.ndarray, rest_PE: np.ndarray, scored_BT: np.ndarray) -> np.ndarray:
    """Log-probabilities P x B x T of whole thoughts, from those of first tokens and of a pack's targets."""
    with_padding = np.concatenate([rest_PE, np.zeros((len(rest_PE), 1))], axis=1)
    return np.concatenate([first_PB[:, :, None], with_padding[:, scored_BT]], axis=2)


def _read_pack(
    model: PreTrainedModel, head: OutputHead, cache: Cache, part: slice, pack: Pack, prompts: int
) -> np.ndarray:
    """Log-probabilities P x E (float64) of a pack's targets after each of P prompts."""
    if not len(pack.ids_R):
        return np.zeros((prompts, 0))
    packed = PackedAttention.of(cache, part, groups_of(pack, prompts, model))
    states_PRH = packed_states(model, head.body, pack, packed, prompts)
    logprobs = [head.logprobs(states_RH, pack.targets) for states_RH in states_PRH]
    return torch.stack(logprobs).double().cpu().numpy()


def packed_states(
    model: PreTrainedModel, body: nn.Module, pack: Pack, packed: PackedAttention, prompts: int
) -> torch.Tensor:
    """The states P x R of a pack's read tokens after each of P equally long prompts."""
    ids_1R = torch.from_numpy(pack.ids_R).to(model.device)[None]
    behind = packed.prefixes[0][0].shape[2]
    positions_1R = torch.from_numpy(pack.depths_R + behind).to(model.device)[None]
    with packed_attention(model):
        output = body(
            input_ids=ids_1R.expand(prompts, -1),
            position_ids=positions_1R,
            use_cache=False,
            return_dict=True,
            packed=packed,
        )
    return cast(torch.Tensor, output.logits if "logits" in output else output.last_hidden_state)


def obstacle_to_packing(model: PreTrainedModel, body: nn.Module) -> str | None:
    """Why this model cannot be read in packs, as half a sentence. Empty if it can, `None` if its states are not finite.

    Two prompts and three thoughts, two of them with a common prefix, are read in a pack and in the model's own way. The
    states may differ by 1e-5 of their norm. In half precision they may differ by 4 eps, or by ten times the difference
    between the model's own cached and uncached pass, which shows the effect of rounding.
    """
    passed_on = inspect.signature(body.forward).parameters.values()
    if not getattr(model, "_supports_attention_backend", False) or all(p.kind is not p.VAR_KEYWORD for p in passed_on):
        return "its attention cannot be exchanged"
    vocabulary = cast(torch.Tensor, model.get_input_embeddings().weight).shape[0]
    prompts, thoughts = _probe(vocabulary)
    pack = plan_packs(thoughts, 64, share=True)[0]
    cache, _ = read_prompts(body, prompts, model.device)
    packed = PackedAttention.of(cache, slice(None), groups_of(pack, len(prompts), model))
    states_PRH = packed_states(model, body, pack, packed, len(prompts))
    if packed.asked_for:
        unsupported = ", ".join(sorted(packed.asked_for))
        return f"its layers pass arguments to their attention that packs do not support: {unsupported}"
    if len(packed.layers) != len(packed.prefixes):
        return f"{len(packed.prefixes) - len(packed.layers)} of its layers have an attention of their own"
    ours, cached, own = [], [], []
    for place, prompt in enumerate(prompts):
        for row, reads in zip(pack.rows, _paths(pack), strict=True):
            ids = torch.tensor([prompt + thoughts[row][:-1]], device=model.device)
            output = body(input_ids=ids, use_cache=False, return_dict=True)
            whole = output.logits if "logits" in output else output.last_hidden_state
            own.append(whole[0, len(prompt) :])
            behind = DynamicCache()
            states_after(body, ids[:, : len(prompt)], behind)
            cached.append(states_after(body, ids[:, len(prompt) :], behind)[0])
            ours.append(states_PRH[place, reads])
    own_RH = torch.cat(own).double()
    error, rounding = ((torch.cat(other).double() - own_RH).norm() / own_RH.norm() for other in (ours, cached))
    if not own_RH.isfinite().all():
        return None
    if not error <= max(1e-5, 4 * torch.finfo(states_PRH.dtype).eps, 10 * float(rounding)):
        return f"its packed states differ from its own by {float(error):.0e} of their norm"
    return ""


def _probe(vocabulary: int) -> tuple[list[Ids], list[Ids]]:
    ids = [1 + 7 * place % max(1, vocabulary - 1) for place in range(24)]
    ids = [token % vocabulary for token in ids]
    shared = tuple(ids[10:13])
    return [tuple(ids[:5]), tuple(ids[5:10])], [
        (*shared, ids[13], ids[14]),
        (*shared, ids[15], ids[16]),
        tuple(ids[17:22]),
    ]


def _paths(pack: Pack) -> list[np.ndarray]:
    """For each thought of a pack the positions of the tokens that it reads."""
    return [pack.targets.rows_E[scored[scored >= 0]] for scored in pack.scored_BT]
