"""`python -m benchmarks.exchanged_thoughts`: the time of exchanging thoughts within blocks of prompts.

32 thoughts of 16 prompts, each under the 4 of its block, against 16 thoughts of 8 prompts, each under all 8. Then a
second turn of 8 and of 16 tasks, with a new observation half as long as the prompt, against the same. The model is
random. All are timed in turn. Printed is the ratio of the medians, with the smallest and the largest of a round.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from heedful.diagnostics.actions.exchanged import exchange
from heedful.diagnostics.actions.later import later_exchange
from heedful.measuring.swapped import requests_of_actions, requests_of_later, score_exchange, score_later
from heedful.measuring.thought_scores import tokens_read
from heedful.scorers.hf import HFScorer
from heedful.types import Ending, Group, Prompt, Reply, Span, Task, Trajectory, Turn

ROUNDS = 5


def sampled(prompt: int, thought: int, seed: int) -> list[Group]:
    """16 groups of 4 episodes of two turns, whose prompts and thoughts have up to a quarter more or fewer tokens."""
    rng, groups = random.Random(seed), []

    def ids(length: int) -> tuple[int, ...]:
        return tuple(rng.randrange(100, 500) for _ in range(rng.randint(length * 3 // 4, length * 5 // 4)))

    def turn(asked: Prompt) -> Turn:
        before, action = ids(thought), rng.randrange(10, 14)
        spans = Span(0, len(before) + 1), Span(len(before) + 1, len(before) + 4)
        reply = Reply(asked, (*before, 1, 2, action, 3, 0), "", (), (), *spans, True, False)
        return Turn(reply, {}, (str(action),), True, "", "")

    for number in range(16):
        task, asked = Task(f"lake-{number:016x}", number, "train"), Prompt("", ids(prompt))
        turns = [(turn(asked), turn(Prompt("", ids(prompt // 2)))) for _ in range(4)]
        members = (Trajectory(task, member, both, Ending.FAILED, 0.0) for member, both in enumerate(turns))
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
        few, many = (later_exchange(groups, random.Random(0), rows) for rows in (8, 16))
        calls: dict[str, Callable[[], object]] = {
            "all pairs": lambda: score_exchange(scorer, whole, 1.0),  # noqa: B023
            "blocks": lambda: score_exchange(scorer, blocks, 1.0),  # noqa: B023
            "a later turn of 8 tasks": lambda: score_later(scorer, few, 1.0),  # noqa: B023
            "a later turn of 16 tasks": lambda: score_later(scorer, many, 1.0),  # noqa: B023
        }
        asked = [requests_of_actions(whole), requests_of_actions(blocks), requests_of_later(few)]
        asked.append(requests_of_later(many))
        tokens = [sum(tokens_read(scorer, each.prompts, each.thoughts) for each in requests) for requests in asked]
        seconds: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(ROUNDS + 1):
            for name, call in calls.items():
                start = time.process_time()
                call()
                seconds[name].append(time.process_time() - start)
        old = seconds["all pairs"][1:]
        print(f"prompts of {prompt}, thoughts of {thought}: all pairs {statistics.median(old):.2f} s")
        for (name, measured), read in zip(list(seconds.items())[1:], tokens[1:], strict=True):
            ratios = [one / other for one, other in zip(measured[1:], old, strict=True)]
            ratio = statistics.median(measured[1:]) / statistics.median(old)
            print(f"  {name}: {ratio:.2f} [{min(ratios):.2f}, {max(ratios):.2f}] of it; tokens {read / tokens[0]:.2f}")


if __name__ == "__main__":
    main()
