"""The evaluation of a served model: held-out tasks, baselines beside it, and a folder that can be audited and reported.

The tasks and the derivation of seeds equal those of `heedful eval` on a model in this process. An interrupted
evaluation goes on in its folder and asks for no reply twice.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

from rich.console import Console

from heedful.boundary import cut, to_json
from heedful.boundary.foreign_text import clean_line
from heedful.boundary.jsontext import read_json
from heedful.diagnostics.behaviour_metrics import behaviour
from heedful.diagnostics.unavailable import unavailable
from heedful.envs.common.tasks import evaluation_tasks
from heedful.policies.served_text import text_alone
from heedful.protocols import Environment, Policy
from heedful.report import write_report
from heedful.rollout import isolated
from heedful.run.evaluation.held_out import (
    Baselines,
    broken_sentence,
    evaluation_metrics,
    evaluation_seed,
    measure_baselines,
    play_tasks,
)
from heedful.run.served.journal import JournaledPolicy, ReplyJournal, Totals
from heedful.run.served.model import NO_IDS, ServedModel
from heedful.run.served.settings import FREE, ServedSettings
from heedful.storage import LOCK, RunFolder, claim_folder, describe_environment, held, write_rollouts, write_whole
from heedful.storage.trackers import JsonlTracker
from heedful.types import Group, Metric

RECORD = "evaluation.json"
VERSION = 1
_LINE_EVERY = 30.0
"""Seconds between two lines of progress where there is no terminal."""

_MOST_NAMED = 5
"""Most models that a sentence names."""

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
    record = _record(model, settings)
    if out is not None:
        _check_same(out, record)  # before the lock, which makes the folder
    with isolated(settings.env, settings.env_workers, settings.env_timeout) as env, ExitStack() as until_the_end:
        path = _claimed(model, env.name) if out is None else out
        until_the_end.enter_context(held(path, console.print, take_over))
        _check_same(path, record)
        folder = _begin(model, settings, path, record)
        console.print(f"Writing to {folder.path}. An interrupted evaluation goes on with --out {folder.path}.")
        journal = ReplyJournal(folder.path / "replies.jsonl")
        try:
            if journal.found:
                console.print(f"Going on: {journal.found} replies are here already.")
            return _Evaluating(model, settings, env, folder, journal, console).run()
        finally:
            journal.close()


@dataclass(frozen=True, slots=True)
class _Evaluating:
    """One evaluation in progress."""

    model: ServedModel
    settings: ServedSettings
    env: Environment
    folder: RunFolder
    journal: ReplyJournal
    console: Console

    def run(self) -> ServedEvaluation:
        sampled = self._play("sampled", self.settings.samples)
        greedy = self._play("greedy", 1) if self.settings.greedy else None
        self.console.print("random player, and search of the best fixed sequence on training tasks")
        settings = self.settings
        baselines = measure_baselines(self.env, settings.split, settings.tasks, settings.search_tasks)
        return self._conclude(sampled, greedy, baselines)

    def _play(self, kind: str, samples: int) -> list[Group]:
        settings, env = self.settings, self.env
        tasks = evaluation_tasks(env, settings.split, settings.tasks)
        sampling = settings.collect.sampling(replace(settings.sampling, greedy=kind == "greedy"))
        with ProgressLine(self.console, f"{kind}, {len(tasks)} tasks x {samples}", self._said) as tell:

            def policy_of(seed: int) -> Policy:
                return JournaledPolicy(self.model.policy(sampling, seed), self.journal, f"{kind}/{seed}", tell)

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
        return text_alone(groups) if self.model.text_only else groups

    def _said(self) -> str:
        totals = self.journal.totals
        price = cost(totals, self.settings)
        paid = "" if price is None else f", cost {price:.4g}"
        return f"{totals.replies} replies, tokens {totals.prompt_tokens:,} in, {totals.sampled_tokens:,} out{paid}"

    def _conclude(
        self, sampled: Sequence[Group], greedy: Sequence[Group] | None, baselines: Baselines
    ) -> ServedEvaluation:
        """Write the rollouts, the metrics, the sentences and the page. Then the journal is not needed any more."""
        folder, split = self.folder, self.settings.split
        write_rollouts(folder.rollouts(0), 0, split, sampled, None, self.env.name)
        if greedy is not None:
            write_rollouts(folder.rollouts(0, of=f"{split}_greedy"), 0, split, greedy, None, self.env.name)
        missing = dict.fromkeys(_OF_IDS, NO_IDS) if self.model.text_only else {}
        metrics = evaluation_metrics(f"eval/{split}", sampled, greedy, baselines)
        folder.metrics.unlink(missing_ok=True)
        tracker = JsonlTracker(folder.metrics)
        tracker.write(0, [*metrics, *unavailable(behaviour(sampled), missing)])
        tracker.close()
        totals = self.journal.totals
        sentences = (
            *self._sentences(metrics, sampled),
            *others(totals, self.model.name),
            *spent(totals, self.settings),
        )
        verdict = {"sentences": sentences, "regime": "", "figures": {}}
        write_whole(folder.verdict, json.dumps(verdict, ensure_ascii=False, indent=1) + "\n")
        write_report(folder)
        record = _record(self.model, self.settings) | {"complete": True, "totals": asdict(totals)}
        write_whole(folder.path / RECORD, json.dumps(record, indent=1) + "\n")
        self.journal.remove()
        return ServedEvaluation(folder, tuple(metrics), baselines.sequence, totals, sentences)

    def _sentences(self, metrics: Sequence[Metric], sampled: Sequence[Group]) -> list[str]:
        said = self.model.description
        found = [f"{said['model']} at {said['url']} ({said['server']}; {said['dialect']})."]
        values = {metric.name.split("/")[2]: metric for metric in metrics if metric.name.endswith("/success")}
        rates = [f"{kind} {_rate(values[kind])}" for kind in ("sampled", "greedy", "random", "fixed")]
        found.append(f"Success on {self.settings.tasks} tasks of {self.settings.split}: {', '.join(rates)}.")
        broken = broken_sentence(sampled, "sampled")
        if broken:
            found.append(broken)
        if self.model.text_only:
            found.append("No metric of ids or log-probabilities is here, because the server returned text alone.")
        elif self.settings.sampling.temperature != 1 and not self.model.keeps_logprobs:
            found.append(
                "No log-probabilities were stored: the server does not show that they belong to the temperature."
            )
        return found


def cost(totals: Totals, settings: ServedSettings) -> float | None:
    """The price of all tokens so far. `None` without prices."""
    if settings.price_in is None or settings.price_out is None:
        return None
    return (totals.prompt_tokens * settings.price_in + totals.sampled_tokens * settings.price_out) / 1e6


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
    price = cost(totals, settings)
    if price is not None:
        found.append(f"Cost: {price:.4g}, at {settings.price_in:g} and {settings.price_out:g} per million tokens.")
    return found


def others(totals: Totals, asked: str) -> list[str]:
    """A sentence about replies of models with another name than the one that was asked for."""
    found = [(name, replies) for name, replies in totals.models.items() if name != asked]
    if not found:
        return []
    found.sort(key=lambda each: (-each[1], each[0]))  # answers come in any order
    first = ", ".join(f"{cut(clean_line(name), 80)} ({replies:,})" for name, replies in found[:_MOST_NAMED])
    more = f", and {len(found) - _MOST_NAMED:,} others" if len(found) > _MOST_NAMED else ""
    several = " So the figures may mix several models." if len(totals.models) > 1 else ""
    return [
        f"Expected replies of {asked}, found other names in the server's answers (replies): {first}{more}."
        f"{several} Give --model-name the name of the one that you mean."
    ]


def _rate(metric: Metric) -> str:
    if not isinstance(metric.value, int | float):
        return f"unknown ({metric.why})"
    interval = "" if metric.low is None or metric.high is None else f" [{metric.low:.3f}, {metric.high:.3f}]"
    return f"{metric.value:.3f}{interval}"


def _claimed(model: ServedModel, env: str) -> Path:
    name = "".join(letter if letter.isalnum() or letter in "._-" else "-" for letter in model.name).strip("-.")
    return claim_folder(Path("evals") / f"{env}-{name}-{number}" for number in count(1))


def _begin(model: ServedModel, settings: ServedSettings, path: Path, record: Mapping[str, Any]) -> RunFolder:
    folder = RunFolder(path)
    config = {**to_json(settings), "server": model.facts.url, "model_name": model.name}
    write_whole(folder.config, json.dumps(config, indent=1) + "\n")
    write_whole(folder.environment, json.dumps(_surroundings(model), indent=1) + "\n")
    write_whole(path / RECORD, json.dumps(record, indent=1) + "\n")
    return folder


def _surroundings(model: ServedModel) -> Mapping[str, Any]:
    return {**describe_environment("server", 1), "served": {**model.description, "settings": model.facts.settings}}


def _record(model: ServedModel, settings: ServedSettings) -> dict[str, Any]:
    kept = {name: value for name, value in to_json(settings).items() if name not in FREE}
    return {"version": VERSION, "served": dict(model.description), "settings": kept, "complete": False}


def _stored(path: Path) -> dict[str, Any]:
    """The record of an evaluation in a file that may be anybody's. Empty if it is none."""
    with suppress(OSError, ValueError):
        tree = read_json(path)
        if isinstance(tree, dict) and all(isinstance(tree.get(name), dict) for name in ("settings", "served")):
            return tree
    return {}


def _check_same(path: Path, record: Mapping[str, Any]) -> None:
    """Refuse a folder that is neither new nor that of this evaluation, interrupted."""
    if path.exists() and not path.is_dir():
        raise ValueError(f"Expected a folder for the evaluation at {path}, found a file. Give another --out.")
    if not path.is_dir() or all(entry.name == LOCK for entry in path.iterdir()):
        return
    stored = _stored(path / RECORD)
    if not stored:
        raise ValueError(f"Expected a new folder, or that of an evaluation, at {path}. Give another --out.")
    if stored.get("complete"):
        raise ValueError(f"The evaluation in {path} is complete: see its report.html. Give another --out.")
    changed = [name for name, value in record["settings"].items() if stored["settings"].get(name) != value] + [
        name for name in ("model", "dialect") if stored["served"].get(name) != record["served"][name]
    ]
    if changed:
        raise ValueError(
            f"Expected the settings with which the evaluation in {path} began, found others of {', '.join(changed)}. "
            "Repeat them, or give another --out."
        )


class ProgressLine:
    """One stage: a line that is kept up to date in a terminal, and a line now and then elsewhere."""

    def __init__(self, console: Console, stage: str, said: Callable[[], str]) -> None:
        self._console, self._stage, self._said = console, stage, said
        self._status = console.status(stage) if console.is_terminal else None
        self._next = time.monotonic() + _LINE_EVERY

    def __enter__(self) -> Callable[[], None]:
        if self._status is None:
            self._console.print(self._stage, soft_wrap=True)
        else:
            self._status.start()
        return self._tell

    def __exit__(self, *exception: object) -> None:
        if self._status is not None:
            self._status.stop()

    def _tell(self) -> None:
        now = time.monotonic()
        if self._status is not None:
            if now >= self._next - _LINE_EVERY + 0.5:
                self._status.update(f"{self._stage}: {self._said()}")
                self._next = now + _LINE_EVERY
        elif now >= self._next:
            self._next = now + _LINE_EVERY
            self._console.print(f"{self._stage}: {self._said()}", soft_wrap=True)
