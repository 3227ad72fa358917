"""`python -m benchmarks.exchanged_thoughts`: the time of exchanging thoughts within blocks of prompts.

32 thoughts of 16 prompts, each under the 4 of its block, against 16 thoughts of 8 prompts, each under all 8. The model
is random. The two are timed in turn. Printed is the ratio of the medians, with the smallest and the largest of a pair.
"""

from __future__ import annotations

import random
import statistics
import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from heedful.diagnostics.actions.exchanged import exchange
from heedful.measuring.swapped import requests_of_actions, score_exchange
from heedful.measuring.thought_scores import tokens_read
from heedful.scorers.hf import HFScorer
from heedful.types import Ending, Group, Prompt, Reply, Span, Task, Trajectory, Turn

ROUNDS = 5


def sampled(prompt: int, thought: int, seed: int) -> list[Group]:
    """16 groups of 4, whose prompts and thoughts have up to a quarter more or fewer tokens."""
    rng, groups = random.Random(seed), []

    def ids(length: int) -> tuple[int, ...]:
        return tuple(rng.randrange(100, 500) for _ in range(rng.randint(length * 3 // 4, length * 5 // 4)))

    for number in range(16):
        task, asked, turns = Task(f"lake-{number:016x}", number, "train"), Prompt("", ids(prompt)), []
        for _ in range(4):
            before, action = ids(thought), rng.randrange(10, 14)
            spans = Span(0, len(before) + 1), Span(len(before) + 1, len(before) + 4)
            reply = Reply(asked, (*before, 1, 2, action, 3, 0), "", (), (), *spans, True, False)
            turns.append(Turn(reply, {}, (str(action),), True, "", ""))
        members = (Trajectory(task, member, (turn,), Ending.FAILED, 0.0) for member, turn in enumerate(turns))
        groups.append(Group(task, tuple(members)))
    return groups


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    shape = LlamaConfig(
        vocab_size=512, hidden_size=128, intermediate_size=352, num_hidden_layers=4, num_attention_heads=4
    )
    scorer = HFScorer(LlamaForCausalLM(shape).eval())
    for prompt, thought in ((34, 17), (200, 100), (400, 100), (1000, 100), (200, 400)):
        groups = sampled(prompt, thought, 0)
        blocks, whole = exchange(groups, 32, 16), exchange(groups, 16, 8, foreign=8)
        tokens = [
            sum(tokens_read(scorer, each.prompts, each.thoughts) for each in requests_of_actions(asked))
            for asked in (blocks, whole)
        ]
        pairs = []
        for _ in range(ROUNDS + 1):
            seconds = []
            for asked in (blocks, whole):
                start = time.process_time()
                score_exchange(scorer, asked, 1.0)
                seconds.append(time.process_time() - start)
            pairs.append(seconds)
        new, old = (statistics.median(column) for column in zip(*pairs[1:], strict=True))
        ratios = [one / other for one, other in pairs[1:]]
        print(
            f"prompts of {prompt}, thoughts of {thought}: {new:.2f} s against {old:.2f} s, "
            f"ratio {new / old:.2f} [{min(ratios):.2f}, {max(ratios):.2f}]; tokens {tokens[0] / tokens[1]:.2f}"
        )


if __name__ == "__main__":
    main()
