"""Ranks that share the pairs of thoughts and prompts: each pair once, equal scores, and every error on rank 0."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

from heedful.models.forward.spread import in_step
from heedful.protocols import WindowExceeded
from heedful.scorers.dealt import DealtScorer, deal
from heedful.scorers.hf import HFScorer
from heedful.scorers.pairs import Ids
from tiny_models import llama

RNG = random.Random(0)


def texts(count: int, longest: int, shortest: int = 1) -> list[Ids]:
    return [tuple(RNG.randrange(50) for _ in range(RNG.randint(shortest, longest))) for _ in range(count)]


class Threads:
    """Ranks that are threads of one process."""

    def __init__(self, rank: int, size: int, given: list[Any], barrier: threading.Barrier) -> None:
        self.rank, self.size, self._given, self._barrier = rank, size, given, barrier

    def gather(self, item: Any) -> list[Any]:
        self._given[self.rank] = item
        self._barrier.wait(60)
        found = list(self._given)
        self._barrier.wait(60)
        return found


def together(size: int, ask: Any) -> Any:
    """What `ask` gets of rank 0's scorer, while the other ranks answer."""
    given, barrier = [None] * size, threading.Barrier(size)
    ranks = [DealtScorer(HFScorer(llama(50)), Threads(rank, size, given, barrier)) for rank in range(size)]
    others = [threading.Thread(target=one.answer) for one in ranks[1:]]
    for thread in others:
        thread.start()
    try:
        with ranks[0].asking():
            return ask(ranks[0])
    finally:
        for thread in others:
            thread.join(60)
            assert not thread.is_alive()


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize(("prompts", "thoughts"), [(6, 5), (7, 9), (1, 8), (2, 1), (1, 0)])
def test_every_pair_is_scored_once_and_ranks_read_about_as_much(prompts: int, thoughts: int, size: int) -> None:
    asked, given = texts(prompts, 20), texts(thoughts, 12)
    cells = np.zeros((thoughts, prompts), dtype=int)
    read = []
    for share in deal(asked, given, size):
        read.append(0)
        for part in share:
            cells[np.ix_(part.rows, part.columns)] += 1
            thought = sum(len(given[row]) for row in part.rows)
            read[-1] += sum(len(asked[column]) + thought for column in part.columns)
    assert (cells == 1).all()
    assert thoughts < size or max(read) - min(read) <= 20 + 12 * size


@pytest.mark.parametrize("prompts", [1, 4, 5])
def test_the_scores_of_three_ranks_are_those_of_one(prompts: int) -> None:
    asked, given = texts(prompts, 20, 4), [*texts(7, 9), (), (3,)]
    given.append(given[0])
    own = [row % prompts for row in range(len(given))]
    expected = HFScorer(llama(50)).cross_score(asked, given, own, 0.7, keep="tokens")

    def ask(scorer: DealtScorer) -> Any:
        scorer.cross_score(asked[1:] or asked, given[:2], [0, 0], 0.7)  # prompts that are kept for the next call
        return scorer.cross_score(asked, given, own, 0.7, keep="tokens")

    found = together(3, ask)
    assert np.allclose(found.scores_MN, expected.scores_MN, rtol=0, atol=1e-9)
    assert all(np.allclose(found.heads[k], expected.heads[k], rtol=0, atol=1e-9) for k in expected.heads)
    assert _flat(found.tokens) == pytest.approx(_flat(expected.tokens), abs=1e-6)
    assert (found.own_M, found.lengths_M, found.method) == (expected.own_M, expected.lengths_M, expected.method)


def test_an_error_of_any_rank_is_raised_on_the_first_and_the_others_go_on() -> None:
    """A prompt beyond the model's positions lies on one rank alone."""

    def ask(scorer: DealtScorer) -> Any:
        with pytest.raises(WindowExceeded):
            scorer.cross_score([(1,) * 2000, (2, 3)], [(4, 5)], [0], 1.0)
        return scorer.cross_score([(1, 2), (2, 3)], [(4, 5)], [0], 1.0)

    assert np.isfinite(together(2, ask).scores_MN).all()


def test_the_ranks_are_still_in_step_after_a_ctrl_c() -> None:
    def ask(scorer: DealtScorer) -> Any:
        scorer.reading_model = interrupted
        with pytest.raises(KeyboardInterrupt):
            scorer.cross_score([(1, 2), (2, 3)], [(4, 5)], [0], 1.0)
        scorer.reading_model = nullcontext
        return scorer.cross_score([(1, 2), (2, 3)], [(4, 5)], [0], 1.0)

    def interrupted() -> Any:
        raise KeyboardInterrupt

    assert np.isfinite(together(2, ask).scores_MN).all()


def test_a_rank_that_only_keeps_step_draws_no_dropout(tmp_path: Path) -> None:
    """What a rank draws next must not depend on how much the others read."""
    dist.init_process_group("gloo", store=dist.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)
    try:
        model: Any = llama(50, attention_dropout=0.5).train()
        for layer in model.get_decoder().layers:
            fully_shard(layer)
        fully_shard(model)
        before = torch.get_rng_state()
        with in_step(model, model.get_decoder()):
            model.get_decoder()(input_ids=torch.zeros(1, 2, dtype=torch.int64))
        assert torch.equal(torch.get_rng_state(), before)
        assert all(module.training for module in model.modules())
    finally:
        dist.destroy_process_group()


def test_shards_are_read_in_few_large_passes_and_a_budget_does_not_see_it(tmp_path: Path) -> None:
    """A pass gathers all layers, however few tokens it reads."""
    prompts, thoughts = texts(40, 90, 60), texts(30, 9)
    dist.init_process_group("gloo", store=dist.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)
    try:
        found = []
        for shards in (False, True):
            model: Any = llama(50)
            for layer in model.get_decoder().layers if shards else ():
                fully_shard(layer)
            scorer, passes = HFScorer(model), [0]
            assert scorer.method == "packed"
            hook = model.get_decoder().register_forward_hook(lambda *_, passes=passes: passes.append(1))
            scores = scorer.cross_score(prompts, thoughts, [0] * 30, 1.0)
            hook.remove()
            found.append((sum(passes), scorer.reading(prompts, thoughts), scores.scores_MN))
    finally:
        dist.destroy_process_group()
    assert found[1][0] <= found[0][0] / 4
    assert found[1][1] == found[0][1]
    assert np.allclose(found[1][2], found[0][2], rtol=0, atol=1e-9)


def _flat(tokens_MNT: Sequence[Any] | None) -> list[float]:
    return [float(value) for tokens_NT in tokens_MNT or () for value in np.ravel(tokens_NT)]
