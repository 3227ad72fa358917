"""What the tests with a real verl look at and compare."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any


def watch(trainer: Any) -> list[dict[str, Any]]:
    """What passed the seam in each step: keys before and after, and whether the actor was updated."""
    seen: list[dict[str, Any]] = []
    balance, update = trainer._balance_batch, trainer._update_actor

    def balanced(batch: Any, metrics: dict[str, Any], *given: Any, **named: Any) -> Any:
        before = list(batch.keys)
        after = balance(batch, metrics, *given, **named)
        seen.append({"before": before, "after": list(after.keys), "real": real(after), "metrics": metrics})
        return after

    def updated(batch: Any, metrics: dict[str, Any]) -> Any:
        seen[-1]["update"] = list(batch.keys)
        return update(batch, metrics)

    trainer._balance_batch, trainer._update_actor = balanced, updated
    return seen


def real(batch: Any) -> list[str]:
    return [key for key, tag in zip(batch.keys, batch.tags, strict=True) if not tag.get("is_padding", False)]


def metrics_of(record: Path) -> list[dict[str, Any]]:
    """The lines of a record: `step`, and `metrics` by name."""
    lines = (record / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def steps_of(record: Path) -> list[int]:
    """The steps of a record, in the order of its lines."""
    return [int(line["step"]) for line in metrics_of(record)]


def values_of(record: Path, name: str) -> list[Any]:
    """A metric over the steps of a record. `None` where it is missing."""
    found = [line["metrics"][name] for line in metrics_of(record) if name in line["metrics"]]
    return [value["value"] if isinstance(value, dict) else value for value in found]


def filtered(session: Any, mode: str) -> tuple[dict[str, Any], dict[str, Any], Any]:
    session.set_loss(mode, counted=True)
    return session.update(session.batch(), session.trainer._balance_batch)


def kept_keys(session: Any) -> list[str]:
    """The stored keys of the groups that the filter keeps."""
    scores: dict[str, set[float]] = {}
    for key, row in zip(session.stored["keys"], session.stored["rows"], strict=True):
        scores.setdefault(key.split("_")[0], set()).add(float(row["rm_scores"].sum()))
    return [key for key in session.stored["keys"] if len(scores[key.split("_")[0]]) > 1]


@contextmanager
def whole_mini_batch(session: Any, groups: int) -> Iterator[None]:
    """verl's mini-batches hold this many groups."""
    from omegaconf import open_dict

    actor = session.trainer.config.actor_rollout_ref.actor
    with open_dict(actor):
        usual, actor.ppo_mini_batch_size = actor.ppo_mini_batch_size, groups
    yield
    with open_dict(actor):
        actor.ppo_mini_batch_size = usual


def without_heedful(session: Any, mode: str, keys: Sequence[str]) -> dict[str, Any]:
    """The change of the weights in plain verl, given these rows alone as a whole mini-batch."""
    from verl.trainer.ppo.v1 import PPOTrainer

    session.set_loss(mode, counted=False)
    with whole_mini_batch(session, groups_of(keys)):
        change, _, batch = session.update(session.batch(keys), partial(PPOTrainer._balance_batch, session.trainer))
    assert len(real(batch)) == len(batch.keys) == len(keys)  # nothing was filled up
    return change


def compare_updates(session: Any, mode: str) -> None:
    """The filtered update against plain verl's update with the kept rows alone.

    Float32 sums depend on the order of rows and on the rank that reads them. So the difference may be as large as
    that between updates of plain verl whose rows stand in another order, and 1e-6 of the largest change in any case.
    """
    from tiny_verl import distance

    change, _, batch = filtered(session, mode)
    assert 2 <= groups_of(real(batch)) <= 6
    keys = kept_keys(session)
    expected = without_heedful(session, mode, keys)
    orders = [keys[::-1], *(random.Random(seed).sample(keys, len(keys)) for seed in range(3))]
    rounding = max(distance(without_heedful(session, mode, order), expected) for order in orders)
    found = distance(change, expected)
    print(f"{mode}: {found:.1e} of the largest change; plain verl with its rows in other orders: {rounding:.1e}")
    assert found < max(1e-6, 3 * rounding)
    assert rounding < 1e-5


def groups_of(keys: Sequence[str]) -> int:
    """The number of groups of these keys."""
    return len({key.split("_")[0] for key in keys})


def compare_scores(session: Any) -> None:
    """The workers' scores against plain forward passes, all thoughts under all prompts, and against the sampler's."""
    import torch
    from transformers import AutoModelForCausalLM

    from heedful.scorers.hf import HFScorer
    from heedful_verl.batch.queue import read

    session.restore()
    model = AutoModelForCausalLM.from_pretrained(session.folder / "model", dtype=torch.float32)
    state = {name: torch.from_numpy(values.copy()) for name, values in session.weights().items()}
    model.load_state_dict(state, strict=False)
    rows = read(session.batch())
    prompts = list(dict.fromkeys(row.prompt_ids for row in rows))
    thoughts, own = [row.response_ids for row in rows], [prompts.index(row.prompt_ids) for row in rows]
    scorer = session.trainer.observer.diagnostician.scorer
    ours = torch.tensor(scorer.cross_score(prompts, thoughts, own, 1.0).scores_MN)
    theirs = torch.tensor(HFScorer(model, method="plain").cross_score(prompts, thoughts, own, 1.0).scores_MN)
    own_N = torch.tensor(own)[:, None]
    sampled = torch.tensor([sum(row.logprobs or ()) for row in rows], dtype=torch.float64)
    largest = {
        "all pairs": float(abs(ours - theirs).max()),
        "own": float(abs(ours.gather(1, own_N) - theirs.gather(1, own_N)).max()),
        "own, sampler": float(abs(ours.gather(1, own_N)[:, 0] - sampled).max()),
    }
    print(f"Largest differences in nats, sums of about {float(-theirs.mean()):.0f}: {largest}")
    # float32 gives sums of 70 nats to about 1e-5; the sampler reads with a KV cache.
    assert largest["own"] < 1e-5
    assert largest["all pairs"] < 2e-5
    assert largest["own, sampler"] < 5e-5
