"""Method "plain": one forward pass per pair, for any causal language model. Slow, without a KV cache or padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import torch

from heedful.models.forward.exactness import plain_states
from heedful.scorers.output_head import OutputHead
from heedful.scorers.packs import Ids, Targets
from heedful.scorers.score_sums import ScoreSums


def score_plain(head: OutputHead, prompts: Sequence[Ids], thoughts: Sequence[Ids], sums: ScoreSums) -> None:
    """Score every thought after every prompt into `sums`, one pair in each pass."""
    device = cast(torch.Tensor, next(head.body.parameters())).device
    for column, prompt in enumerate(prompts):
        for row, thought in enumerate(thoughts):
            if thought:
                ids_1T = torch.tensor([prompt + thought[:-1]], device=device)
                states_TH = plain_states(head.body, ids_1T)[0, len(prompt) - 1 :]
                logprobs_T = head.logprobs(states_TH, Targets(np.arange(len(thought)), np.array(thought)))
                sums.add([row], [column], logprobs_T.double().cpu().numpy()[None, None])
