"""The evaluation of a served model: held-out tasks, baselines beside it, and a folder that can be audited and reported.

The tasks and the derivation of seeds equal those of `heedful eval` on a model in this process. An interrupted
evaluation goes on in its folder and asks for no reply twice.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

from rich.console import Console

from heedful.boundary import cut, to_json
from heedful.boundary.foreign_text import clean_line, listed
from heedful.boundary.jsontext import read_json
from heedful.boundary.open_files import require_pyarrow
from heedful.diagnostics.behaviour_metrics import behaviour
from heedful.diagnostics.names import unavailable
from heedful.envs.common.tagged import in_tags
from heedful.envs.common.tasks import evaluation_tasks
from heedful.policies.served_text import text_alone
from heedful.protocols import Environment, Policy
from heedful.report import write_report
from heedful.rollout import isolated
from heedful.run.evaluation.held_out import (
    broken_sentence,
    evaluation_metrics,
    evaluation_seed,
    measure_baselines,
    play_tasks,
)
from heedful.run.evaluation.verdict import shown
from heedful.run.served.journal import JournaledPolicy, ReplyJournal, Totals
from heedful.run.served.model import NO_IDS, ServedModel
from heedful.run.served.settings import FREE, ServedSettings
from heedful.storage import LOCK, RunFolder, claim_folder, describe_environment, held, write_rollouts, write_whole
from heedful.storage.trackers import JsonlTracker
from heedful.types import Group, Metric

RECORD = "evaluation.json"
VERSION = 1
LINE_EVERY = 30.0
"""Seconds between two lines of progress."""

_OF_IDS = ("length/reasoning_tokens", "length/response_tokens", "format/trailing_tokens", "text/distinct_thoughts")
"""Metrics that count token ids."""


@dataclass(frozen=True, slots=True)
class ServedEvaluation:
    """The result of an evaluation of a served model."""

    folder: RunFolder
    metrics: tuple[Metric, ...]
    sequence: tuple[str, ...]
    """The best input-blind sequence of actions."""
    totals: Totals
    sentences: tuple[str, ...]


def evaluate_served(
    model: ServedModel, settings: ServedSettings, out: Path | None, console: Console, take_over: bool = False
) -> ServedEvaluation:
    """Play the tasks, sampled and greedily, with the baselines, and write the folder.

    `out`: a new folder, or that of an interrupted evaluation with the same settings. `None` claims
    `evals/<environment>-<model>-<n>`. With `take_over` the lock of a process on another host is taken over. Raises
    ValueError if `out` holds something else, or if another process is at work there.
    """
    kept = {name: value for name, value in to_json(settings).items() if name not in FREE}
    record = {"version": VERSION, "served": dict(model.description), "settings": kept, "complete": False}
    require_pyarrow(RunFolder(out or Path("evals")).rollouts(0))  # before a reply is asked for
    if out is not None:
        _refuse_another(out, record)  # before the lock, which makes the folder
    with (
        isolated(in_tags(settings.env, model.settings.tags), settings.env_workers, settings.env_timeout) as env,
        ExitStack() as until_the_end,
    ):
        if out is None:
            name = re.sub(r"[^\w.-]", "-", model.name).strip("-.")
            out = claim_folder(Path("evals") / f"{env.name}-{name}-{number}" for number in count(1))
        until_the_end.enter_context(held(out, console.print, take_over))
        _refuse_another(out, record)
        folder = RunFolder(out)
        config = {**to_json(settings), "server": model.facts.url, "model_name": model.name}
        served = {"served": {**model.description, "settings": model.facts.settings}}
        environment = describe_environment("server", 1) | served
        for path, tree in ((folder.config, config), (folder.environment, environment), (out / RECORD, record)):
            write_whole(path, json.dumps(tree, indent=1) + "\n")
        console.print(f"Writing to {out}. An interrupted evaluation goes on with --out {out}.")
        journal = ReplyJournal(out / "replies.jsonl")
        try:
            if journal.found:
                console.print(f"Going on: {journal.found} replies are here already.")
            sampled = _play(model, settings, env, journal, console, "sampled", settings.samples)
            greedy = _play(model, settings, env, journal, console, "greedy", 1) if settings.greedy else None
            console.print("random player, and search of the best fixed sequence on training tasks")
            baselines = measure_baselines(env, settings.split, settings.tasks, settings.search_tasks)
        finally:
            journal.close()
        split, totals = settings.split, journal.totals
        write_rollouts(folder.rollouts(0), 0, split, sampled, None, env.name)
        if greedy is not None:
            write_rollouts(folder.rollouts(0, of=f"{split}_greedy"), 0, split, greedy, None, env.name)
        missing = dict.fromkeys(_OF_IDS, NO_IDS) if model.text_only else {}
        metrics = evaluation_metrics(f"eval/{split}", sampled, greedy, baselines)
        folder.metrics.unlink(missing_ok=True)
        tracker = JsonlTracker(folder.metrics)
        tracker.write(0, [*metrics, *unavailable(behaviour(sampled), missing)])
        tracker.close()
        sentences = (
            *_sentences(model, settings, metrics, sampled),
            *others(totals, model.name),
            *spent(totals, settings),
        )
        verdict = {"sentences": sentences, "regime": "", "figures": {}}
        write_whole(folder.verdict, json.dumps(verdict, ensure_ascii=False, indent=1) + "\n")
        write_report(folder)
        whole = record | {"complete": True, "totals": asdict(totals)}
        write_whole(out / RECORD, json.dumps(whole, indent=1) + "\n")
        journal.remove()  # its replies are in the rollouts now
    return ServedEvaluation(folder, tuple(metrics), baselines.sequence, totals, sentences)


def _play(
    model: ServedModel,
    settings: ServedSettings,
    env: Environment,
    journal: ReplyJournal,
    console: Console,
    kind: str,
    samples: int,
) -> list[Group]:
    """The episodes of one kind, with replies of the journal where it has them."""
    tasks = evaluation_tasks(env, settings.split, settings.tasks)
    sampling = settings.collect.sampling(replace(settings.sampling, greedy=kind == "greedy"))
    stage = f"{kind}, {len(tasks)} tasks x {samples}"
    console.print(stage)
    said = [time.monotonic()]

    def tell() -> None:
        """A line now and then, in a terminal and in a log."""
        if time.monotonic() - said[0] >= LINE_EVERY:
            said[0] = time.monotonic()
            console.print(f"{stage}: {' '.join(spent(journal.totals, settings))}")

    def policy_of(seed: int) -> Policy:
        return JournaledPolicy(model.policy(sampling, seed), journal, f"{kind}/{seed}", tell)

    groups = play_tasks(
        policy_of,
        evaluation_seed(settings.seed, kind, 0),
        env,
        tasks,
        samples=samples,
        at_once=settings.at_once,
        context=settings.context,
        collect=settings.collect,
    )
    return text_alone(groups) if model.text_only else groups


def _sentences(
    model: ServedModel, settings: ServedSettings, metrics: Sequence[Metric], sampled: Sequence[Group]
) -> list[str]:
    said = model.description
    values = {metric.name.split("/")[2]: metric for metric in metrics if metric.name.endswith("/success")}
    rates = ", ".join(f"{kind} {shown(values[kind])}" for kind in ("sampled", "greedy", "random", "fixed"))
    found = [
        f"{said['model']} at {said['url']} ({said['server']}; {said['dialect']}).",
        f"Success on {settings.tasks} tasks of {settings.split}: {rates}.",
    ]
    if broken := broken_sentence(sampled, "sampled"):
        found.append(broken)
    if refused := sorted(model.client.left_out):
        found.append(f"The server refuses {listed(refused)}, so the requests did without.")
    if model.text_only:
        found.append("No metric of ids or log-probabilities is here, because the server returned text alone.")
    elif settings.sampling.temperature != 1 and not model.keeps_logprobs:
        found.append("No log-probabilities were stored: the server does not show that they belong to the temperature.")
    return found


def spent(totals: Totals, settings: ServedSettings) -> list[str]:
    """Sentences about tokens, time and cost."""
    if not totals.replies:
        return []
    cached = f" ({totals.cached_tokens:,} of them cached)" if totals.cached_tokens else ""
    rate = totals.sampled_tokens / totals.seconds if totals.seconds else 0.0
    found = [
        f"{totals.replies:,} replies with {totals.prompt_tokens:,} tokens of prompts{cached} and "
        f"{totals.sampled_tokens:,} sampled tokens, in {totals.seconds:.0f} s ({rate:.0f} sampled tokens/s)."
    ]
    if totals.uncounted:
        found.append(f"The server named no tokens for {totals.uncounted} replies, so tokens and cost are too low.")
    if settings.price_in is not None and settings.price_out is not None:
        price = (totals.prompt_tokens * settings.price_in + totals.sampled_tokens * settings.price_out) / 1e6
        found.append(f"Cost: {price:.4g}, at {settings.price_in:g} and {settings.price_out:g} per million tokens.")
    return found


def others(totals: Totals, asked: str) -> list[str]:
    """A sentence about replies of models with another name than the one that was asked for."""
    found = sorted(((name, replies) for name, replies in totals.models.items() if name != asked))
    if not found:
        return []
    found.sort(key=lambda each: -each[1])  # answers come in any order
    names = listed((f"{cut(clean_line(name), 80)} ({replies:,})" for name, replies in found), 5)
    several = " So the figures may mix several models." if len(totals.models) > 1 else ""
    return [
        f"Expected replies of {asked}, found other names in the server's answers (replies): {names}."
        f"{several} Give --model-name the name of the one that you mean."
    ]


def _refuse_another(path: Path, record: Mapping[str, Any]) -> None:
    """Refuse a folder that is neither new nor that of this evaluation, interrupted."""
    if not path.exists() or (path.is_dir() and all(entry.name == LOCK for entry in path.iterdir())):
        return
    if not (path / RECORD).is_file():
        raise ValueError(f"Expected a new folder, or that of an evaluation, at {path}. Give another --out.")
    stored = read_json(path / RECORD)
    if stored["complete"]:
        raise ValueError(f"The evaluation in {path} is complete: see its report.html. Give another --out.")
    changed = [name for name, value in record["settings"].items() if stored["settings"].get(name) != value]
    changed += [name for name in ("model", "dialect") if stored["served"].get(name) != record["served"][name]]
    if changed:
        raise ValueError(
            f"Expected the settings with which the evaluation in {path} began, found others of {', '.join(changed)}. "
            "Repeat them, or give another --out."
        )
