"""The metrics of a logged step, under the names of the metrics page.

Promise: a metric that the log cannot give is `None` with the reason, also where a placeholder was in its place. No
name is written that training does not use.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from heedful.auditing.recognised import RecognisedLog
from heedful.auditing.settings import AuditSettings
from heedful.auditing.steps import LoggedStep
from heedful.boundary import listed
from heedful.diagnostics.actions.strategies import input_to_action
from heedful.diagnostics.cross_scores.thoughts import ThoughtTags
from heedful.diagnostics.names import SPREAD_METRICS, unavailable
from heedful.diagnostics.signal import cause_metrics, episode_metrics, spread_metrics, verdict_metrics
from heedful.diagnostics.statistics.group_statistics import values_on
from heedful.diagnostics.text import text_metrics
from heedful.measuring.diagnostician import Diagnosis
from heedful.seeds import derive, stream
from heedful.types import Group, Metric

if TYPE_CHECKING:
    from heedful.auditing.scoring import ModelJudge

JUDGED_THOUGHTS = 16
"""Most thoughts of one prompt that the judge of words is shown."""


def measure_step(
    log: RecognisedLog, settings: AuditSettings, judge: ModelJudge | None, place: int, step: LoggedStep, untagged: str
) -> Diagnosis:
    """All metrics of a step, and its scores.

    `place`: its number in the log. `untagged`: why thoughts cannot be told apart so far (`Noticed.untagged`).
    """
    unknown = spread_unknown(step, log.on, log.unknown)
    if untagged:
        why = f"{untagged[:1].lower()}{untagged[1:]} so far: never asked for, or lost in decoding (--tags)"
        unknown["format/closed_rate"] = why
    metrics = unavailable(step_metrics(step, log.on), unknown)
    if place % settings.every:
        return Diagnosis(metrics)
    texts = judged(
        step.groups,
        log.tags,
        settings.prompts if log.foreign else None,
        np.random.default_rng(derive(log.seed, "text", step.number)),
    )
    texts.append(input_to_action(step.groups))
    if judge is None:
        return Diagnosis([*metrics, *texts])
    rng = None if log.own else stream(log.seed, "audit", step.number)
    groups = sampled_groups(step.groups, settings.prompts, settings.thoughts, rng)
    groups = judge.with_ids(groups, step.messages)
    if log.foreign:  # lengths in tokens of the model, where the log has none
        lengths = {name for name in unknown if name.startswith("length/") and name.endswith("tokens")}
        read = LoggedStep(step.number, tuple(groups), None, {}, "")
        found = {metric.name: metric for metric in step_metrics(read, log.on) if metric.name in lengths}
        metrics = [found.get(metric.name, metric) for metric in metrics]
    # Text alone may be read otherwise than it was sampled.
    own, model = log.own, settings.model
    version = own.version_of(model) if own and model and log.reader.knowledge.own else None
    sampled_it = version is not None and all(
        member.policy_version == version for group in step.groups for member in group.trajectories
    )
    scored = judge.measure(step.number, groups, sampled_it)
    return replace(scored, metrics=[*metrics, *scored.metrics, *texts])


def step_metrics(step: LoggedStep, on: str) -> list[Metric]:
    """`signal/*`, `reward/*`, `success/*`, `format/*`, `length/*`, the `grounding/*` of whole episodes, and `filter/*`
    where the log holds verdicts.

    `on`: the values whose spread `signal/*` describes: `outcome`, `reward` or a reward component.
    """
    groups = step.groups
    values_PG = values_on(groups, on)
    verdicts = [] if step.verdicts is None else verdict_metrics(values_PG, step.verdicts)
    spread = [*spread_metrics(values_PG), *cause_metrics(groups, values_PG)]
    return [*spread, *verdicts, *episode_metrics(groups)]


def spread_unknown(step: LoggedStep, on: str, unknown: Mapping[str, str]) -> dict[str, str]:
    """What is unknown of this step, with the metrics of spread where it does not hold the values that they describe.

    `unknown`: what the whole log lacks. A reward that its first rows lacked may be in later steps.
    """
    turns = (turn for group in step.groups for member in group.trajectories for turn in member.turns)
    there = sorted({name for turn in turns for name in turn.rewards})
    missing = {name: why for name, why in unknown.items() if name != "reward/mean" or not there}
    if on in ("outcome", "reward"):
        why = missing.get("success/rate" if on == "outcome" else "reward/mean", "")
    else:
        shown = listed(there) or "none"
        why = "" if on in there else f"no reward {on} (--on) in this step, whose rewards are {shown}"
    return dict.fromkeys(SPREAD_METRICS, why) | missing if why else missing


def judged(groups: Sequence[Group], tags: ThoughtTags, prompts: int | None, rng: np.random.Generator) -> list[Metric]:
    """`text/*` of the first turns' thoughts of at most `prompts` prompts, prompts being distinct by their text.

    `None` = of all prompts and thoughts, prompts being distinct as they were in the run: by their tokens, or by names
    that heedful gave them.
    """
    thoughts: dict[object, list[str]] = {}
    for group in groups:
        for trajectory in (member for member in group.trajectories if member.turns):
            reply = trajectory.turns[0].reply
            # Known by its tokens where there are any, else by its text; a thought of its closing tag alone is one.
            if len(reply.thought) or (reply.text and not reply.ids):
                _, text = tags.split(reply)
                known: object = reply.prompt.text if prompts is not None else reply.prompt.ids or group.task.id
                thoughts.setdefault(known, []).append(text.removesuffix(tags.close).strip())
    if prompts is None:
        return text_metrics(list(thoughts.values()), rng)
    shown = [words[:JUDGED_THOUGHTS] for words in list(thoughts.values())[:prompts]]
    return text_metrics(shown, rng)


def sampled_groups(groups: Sequence[Group], prompts: int, thoughts: int, rng: random.Random | None) -> list[Group]:
    """At most `prompts` groups with at most `thoughts` members each.

    Without `rng` the first ones, as a run measures itself. Foreign logs may be sorted by length or reward, so there
    groups and members are drawn. They stay in the order of the log.
    """
    if rng is None:
        return [Group(group.task, group.trajectories[:thoughts]) for group in groups[:prompts]]
    chosen = sorted(rng.sample(range(len(groups)), min(prompts, len(groups))))
    found = []
    for place in chosen:
        members = groups[place].trajectories
        kept = sorted(rng.sample(range(len(members)), min(thoughts, len(members))))
        found.append(replace(groups[place], trajectories=tuple(members[member] for member in kept)))
    return found
