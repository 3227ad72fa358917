"""`python -m benchmarks.exchanged_thoughts`: the time of exchanging thoughts within blocks of prompts.

32 thoughts of 16 prompts, each under the 4 of its block, against 16 thoughts of 8 prompts, each under all 8. Both are
timed alone, and in a measurement that has read the prompts with its first turns (`HFScorer.asking`). Then a later turn
of 8 tasks against the same. One thread.

    python -m benchmarks.exchanged_thoughts                          # a random model, two lengths
    python -m benchmarks.exchanged_thoughts sokoban frozen_lake      # seedlings of presets and their own episodes

All are timed in turn, in CPU time of the process. Printed is the mean ratio of a round, with its 95% interval over
rounds (of the logarithms), and the largest difference of a log-probability between alone and in a measurement.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Sequence

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from heedful.console import SafeConsole
from heedful.diagnostics.actions.exchanged import exchange
from heedful.diagnostics.actions.later import later_exchange
from heedful.diagnostics.cross_scores.thoughts import ThoughtTags, first_turn_thoughts
from heedful.diagnostics.statistics.special import student_quantile
from heedful.measuring.swapped import requests_of_actions, requests_of_later, score_exchange, score_later
from heedful.measuring.thought_scores import tokens_read
from heedful.run.evaluation.subjects import Subject, load
from heedful.run.presets import preset
from heedful.scorers.hf import HFScorer
from heedful.types import Ending, Group, Prompt, Reply, Span, Task, Trajectory, Turn
from research.rightness.readings import drawn

LENGTHS = ((34, 17), (200, 100))
"""Tokens of prompts and of thoughts."""


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


def compare(title: str, scorer: HFScorer, groups: Sequence[Group], rounds: int) -> None:
    """Print the ratios of one batch."""
    blocks, whole = exchange(groups, 32, 16), exchange(groups, 16, 8, foreign=8)
    later, first = later_exchange(groups, random.Random(0), 8), first_turn_thoughts(groups, ThoughtTags(), 16, 1)
    calls: dict[str, Callable[[], np.ndarray]] = {
        "all pairs": lambda: score_exchange(scorer, whole, 1.0),
        "blocks": lambda: score_exchange(scorer, blocks, 1.0),
        "a later turn of 8 tasks": lambda: score_later(scorer, later, 1.0),
    }
    asked = [requests_of_actions(whole), requests_of_actions(blocks), requests_of_later(later)]
    read = [sum(tokens_read(scorer, each.prompts, each.thoughts) for each in requests) for requests in asked]
    tokens = dict(zip(calls, read, strict=True))
    seconds: dict[str, list[float]] = {}
    differs = 0.0
    for _ in range(rounds + 1):
        alone = {name: timed(seconds, name, call) for name, call in calls.items()}
        with scorer.asking():
            scorer.cross_score(first.prompts_N, first.thoughts_M[:1], [0], 1.0)
            for name, call in calls.items():
                again = timed(seconds, f"{name}, in a measurement", call)
                differs = max(differs, float(np.nanmax(np.abs(again - alone[name]))))
    old = np.array(seconds.pop("all pairs")[1:])  # the first round warms up
    lengths = sorted(map(len, blocks.prompts_N))
    print(f"{title}: prompts of {lengths[0]} to {lengths[-1]} tokens, all pairs {1000 * np.median(old):.0f} ms")
    for name, measured in seconds.items():
        logs = np.log(np.array(measured[1:]) / old)
        half = student_quantile(rounds - 1, 0.975) * logs.std(ddof=1) / np.sqrt(rounds)
        mean, low, high = np.exp([logs.mean(), logs.mean() - half, logs.mean() + half])
        said = tokens[name.split(",")[0]] / tokens["all pairs"]
        print(f"  {name}: {mean:.2f} [{low:.2f}, {high:.2f}] (n {rounds}); tokens if alone {said:.2f}")
    print(f"  log-probabilities differ by at most {differs:.1e} nats")


def timed(seconds: dict[str, list[float]], name: str, call: Callable[[], np.ndarray]) -> np.ndarray:
    start = time.process_time()
    found = call()
    seconds.setdefault(name, []).append(time.process_time() - start)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("presets", nargs="*", help="presets whose seedlings are read, in place of a random model")
    parser.add_argument("--rounds", type=int, default=10)
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    for name in given.presets:
        config = preset(name)
        with load(Subject(name, config), SafeConsole(quiet=True)) as loaded:
            compare(name, HFScorer(loaded.model), drawn(loaded, config, 16, 4, 901), given.rounds)
    if given.presets:
        return
    shape = LlamaConfig(
        vocab_size=512, hidden_size=128, intermediate_size=352, num_hidden_layers=4, num_attention_heads=4
    )
    scorer = HFScorer(LlamaForCausalLM(shape).eval())
    for prompt, thought in LENGTHS:
        compare(f"thoughts of {thought}", scorer, sampled(prompt, thought, 0), given.rounds)


if __name__ == "__main__":
    main()
