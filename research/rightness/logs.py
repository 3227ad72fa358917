"""Test 9: labels that a log without a solver offers, on policies whose rightness the solver knows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from heedful import audit
from heedful.envs.common.contract import rightness_of
from heedful.run.config import TrainConfig
from heedful.run.evaluation.subjects import LoadedModel
from heedful.seeds import derive
from heedful.storage import read_metrics
from heedful.types import Group, Task
from research.rightness.figures import Figure, Result, figure, once
from research.rightness.planted import KINDS, policies
from research.rightness.readings import BY_THOUGHT, drawn, loading, numbers, readings

AGREED = "grounding/agreed_by_thought"
_EXCHANGED = 2
"""Members of a group whose thoughts are exchanged. The others are labels."""


def logged(seed: int, planted_seed: int, folder: Path, small: bool = False) -> Result:
    """Test 9, on the policies of test 3, which were grown with `planted_seed`."""
    found: dict[tuple[str, float], Any] = {}
    for number, (kind, share, config) in enumerate(policies(30 if small else 100)):
        grown = replace(config.seedling, seed=derive(planted_seed, "seedling", number) % 2**31)
        config = replace(config, seedling=grown, threads=1)
        path = folder / f"{kind}_{round(100 * share):03d}.json"
        found[kind, share] = once(path, partial(_measured, config, seed, number, 1 if small else 2, folder))
    figures: list[Figure] = []
    ranked: dict[str, float] = {}
    solver = {place: _mean(its, "solver") for place, its in found.items()}
    for title in ("members", "successful"):
        read = {place: _mean(its, title) for place, its in found.items()}
        known = [place for place in read if read[place] is not None]
        pairs = [(read[place], solver[place]) for place in known]
        ranked[title] = float(spearmanr(*zip(*pairs, strict=True)).statistic)
        shown = ", ".join(
            f"{kind} {share:g}: {read[kind, share]:.3f} ({solver[kind, share]:.3f})" for kind, share in known
        )
        figures.append(figure(f"labels of {title}: Spearman with the solver", ranked[title], len(known), shown))
        for kind in KINDS:
            places = [place for place in known if place[0] in (kind, "none")]
            if len(places) > 2:
                rho = float(spearmanr([read[p] for p in places], [solver[p] for p in places]).statistic)
                figures.append(figure(f"labels of {title}, {kind}: Spearman with the solver", rho, len(places)))
    right, of = (sum(each[name] for its in found.values() for each in its["batches"]) for name in ("right", "labelled"))
    figures.append(figure("labels of successful members that are right", right / of if of else None, of))
    audited = found["none", 0.0]["audit"]
    figures.append(figure("heedful audit of TRL's form: agreed_by_thought", audited["value"], note=audited["why"]))
    return Result(min(ranked.values()) >= 0.9 and right >= 0.9 * of, figures)


def _mean(stored: Mapping[str, Any], title: str) -> float | None:
    values = [each[title] for each in stored["batches"] if each[title] is not None]
    return float(np.mean(values)) if values else None


def _measured(config: TrainConfig, seed: int, number: int, batches: int, folder: Path) -> dict[str, Any]:
    found = []
    with loading(config) as loaded:
        for batch in range(batches):
            one = derive(seed, "batch", number, batch)
            found.append(_read(loaded, config, drawn(loaded, config, 16, 4, one), one))
        audited = _audited(loaded, drawn(loaded, config, 16, 4, one), folder / "trl") if number == 0 else None
    return {"batches": found, "audit": audited}


def _read(loaded: LoadedModel, config: TrainConfig, groups: Sequence[Group], seed: int) -> dict[str, Any]:
    solver, labels = rightness_of(config.env), {group.task.id: successful(group) for group in groups}

    def told(task: Task, before: Sequence[Sequence[str]] = ()) -> Mapping[str, float] | None:
        return labels[task.id]

    own = numbers(readings(loaded, config, groups, seed, rows=_EXCHANGED * len(groups)))
    others = numbers(readings(loaded, config, groups, seed, told, rows=_EXCHANGED * len(groups)))
    known = [(group.task, label) for group in groups if (label := labels[group.task.id]) is not None]
    right = sum(set(label) <= set(solver(task) or {}) for task, label in known)
    taken = {"solver": own[BY_THOUGHT], "members": own[AGREED], "successful": others[BY_THOUGHT]}
    return {**taken, "right": right, "labelled": len(known)}


def successful(group: Group) -> dict[str, float] | None:
    """First actions of the successful members that are not exchanged, as right ones; `None` without any."""
    others = [one for one in group.trajectories[_EXCHANGED:] if one.success and one.turns[0].actions]
    return {one.turns[0].actions[0]: 1.0 for one in others} or None


def _audited(loaded: LoadedModel, groups: Sequence[Group], folder: Path) -> dict[str, Any]:
    """What the audit of the same texts, in the form of TRL's log, reads with the model that wrote them."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [
        {
            "step": 1,
            "prompt": one.turns[0].reply.prompt.text,
            "completion": one.turns[0].reply.text,
            "advantage": 0.0,
            "reward": float(one.success or 0),
        }
        for group in groups
        for one in group.trajectories
    ]
    log = folder / "completions.jsonl"
    log.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    loaded.model.save_pretrained(folder / "model")
    loaded.renderer.tokenizer.save_pretrained(folder / "model")
    out = folder / "audit"
    audit(log, model=folder / "model", out=out, show=False)
    (line, *_) = read_metrics(out / "metrics.jsonl")
    name = AGREED.rpartition("/")[2]
    metric = next(each for found, each in line.metrics.items() if found.endswith(f"/{name}"))
    return {"value": metric.value, "why": metric.why}
