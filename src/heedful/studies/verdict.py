"""What a study shows, in sentences, and what it cannot show."""

from __future__ import annotations

from collections.abc import Sequence

from heedful.studies.declaration import Study
from heedful.studies.factorial import FactorialOutcome, is_clear
from heedful.studies.outcomes import MeasureOutcome, Outcomes, PairValue
from heedful.studies.tables import (
    area_text,
    signed,
)
from heedful.types import Metric
from research.detector.candidates import HuntOutcome, counted
from research.detector.early_warning import LeadOutcome
from research.detector.separation import SeparationOutcome

MOST_SENTENCES = 6
"""Comparisons that the verdict tells one by one. The tables have all."""


def _many(number: int | None, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _named(runs: Sequence[str]) -> str:
    rest = len(runs) - MOST_SENTENCES
    return ", ".join(runs[:MOST_SENTENCES]) + (f", and {rest} more" if rest > 0 else "")


def verdict(study: Study, outcomes: Outcomes, runs_in_all: int) -> list[str]:
    """What the study shows, in sentences, and what it cannot show."""
    sentences = []
    over = len(outcomes.runs) + len(outcomes.unread)
    if over < runs_in_all:
        sentences.append(
            f"Unfinished: {over} of {runs_in_all} runs are over. What follows is of those, without the "
            "arms of which none is over."
        )
    if outcomes.foreign:
        sentences.append(
            f"Runs with other settings than those declared are counted: {_named(outcomes.foreign)}. Delete their "
            "folders, and the study makes them anew."
        )
    if outcomes.unread:
        sentences.append(
            f"Runs that cannot be read are left out: {_named(outcomes.unread)}. Restore the files, or delete the "
            "folders, and the study makes them anew."
        )
    for outcome in outcomes.measures if study.flat else ():
        sentences += _gained(outcome)
    for first in outcomes.measures[:1]:
        sentences += _all_compared(first.measure.title, first.pairs, "comparisons")
        sentences += _all_compared(first.measure.title, first.interactions, "interactions")
    sentences += [_separated(outcome) for outcome in outcomes.separations]
    for lead in outcomes.leads:
        sentences += _warned(lead)
    for hunt in outcomes.hunts:
        sentences += _hunted(study, hunt)
    for crossed in outcomes.factorials:
        sentences += _crossed(crossed)
    return sentences or ["No comparison was declared, or none of its runs is over: the tables show what was measured."]


def _gained(outcome: MeasureOutcome) -> list[str]:
    """What several seeds gain together, over seeds and over tasks; nothing for a measure that is no gain."""
    arm, title = outcome.arms[0], outcome.measure.title
    if outcome.measure.when != "change":
        return []
    if not arm.by_seed:
        return [f"{title}: unknown ({arm.mean.why})"]
    lowest, highest = (signed(Metric(title, find(arm.by_seed.values()))) for find in (min, max))
    sentences = [
        f"{title} over {_many(arm.mean.n, 'seed')} (would another seed gain as much?): {signed(arm.mean)}"
        f"{f' ({arm.mean.why})' if arm.mean.why else ''}; from {lowest} to {highest}"
    ]
    tasks = arm.over_tasks
    if tasks is not None:
        over = f"{signed(tasks)} ({tasks.why})" if tasks.why else signed(tasks)
        question = "would these seeds gain as much on other tasks?"
        sentences.append(f"{title} over {_many(tasks.n, 'task')} ({question}): {over}")
    return sentences


def _all_compared(title: str, values: Sequence[PairValue], kind: str) -> list[str]:
    """A sentence for each comparison. Of many: all unclear ones in one sentence, then one for each clear one."""
    if len(values) <= MOST_SENTENCES:
        return [_compared(title, value) for value in values]
    known = [value for value in values if isinstance(value.over_seeds.mean.value, int | float)]
    unclear = [float(value.over_seeds.mean.value or 0.0) for value in known if not value.over_seeds.clear]
    sentence = (
        f"{title}: {len(known)} of {len(values)} {kind} have values, and {len(known) - len(unclear)} of these are "
        f"clear. Where nothing differs, about {len(known) / 20:.2g} would be, by chance."
    )
    if unclear:
        lowest, highest = (signed(Metric(title, find(unclear))) for find in (min, max))
        sentence += f" The differences that are not clear lie from {lowest} to {highest}."
    return [sentence, *(_compared(title, value) for value in known if value.over_seeds.clear)]


def _compared(title: str, value: PairValue) -> str:
    difference, names = value.over_seeds, value.pair.names
    if not isinstance(difference.mean.value, int | float):
        return f"{title}, {names}: unknown ({difference.mean.why})."
    said = "not distinguishable from no difference"
    if difference.clear:
        said = "higher" if difference.mean.value > 0 else "lower"
    tasks = value.over_tasks
    over_tasks = "" if tasks is None or tasks.value is None else f"; over {_many(tasks.n, 'task')} {signed(tasks)}"
    return (
        f"{title}, {names}: {said}. Difference {signed(difference.mean)} over "
        f"{_many(difference.mean.n, 'seed')}{_p(difference.p_value)}{over_tasks}."
    )


def _p(p_value: float | None) -> str:
    return "" if p_value is None else f", exact sign-flip p = {p_value:.3g}"


def _separated(outcome: SeparationOutcome) -> str:
    title, wanted = outcome.spec.title, f"{outcome.spec.wanted:g}"
    reaching = f"On all runs {outcome.reaching} of {len(outcome.areas)} metrics reach {wanted}"
    if not outcome.areas:
        return f"{title}: unknown ({outcome.why})."
    if outcome.confirmed is None:
        return f"{title}: no metric is confirmed, because {outcome.why}. {reaching}, by choice or by chance."
    reached = "reaches" if outcome.met else "does not reach"
    return (
        f"{title}: the metric that separates best on one half of the runs is {outcome.best}; on the other half its "
        f"area is {area_text(outcome.confirmed)}, which {reached} the {wanted} asked for. {reaching}."
    )


def _warned(outcome: LeadOutcome) -> list[str]:
    table, spec = outcome.table, outcome.spec
    warned = (
        f"an alarm came before the evaluation that shows it in {table.warned}, no later than the last good evaluation "
        f"in {table.surely_warned}"
        if table.fallen.hits
        else "so there was nothing to warn of"
    )
    simulated = f", {outcome.drift_free} simulated runs without drift" if outcome.drift_free else ""
    sentences = [
        f"{spec.title}: success fell by {100 * spec.points:g} points in {table.fallen} induced runs; {warned}. "
        f"False alarms: {table.false_alarms} healthy runs{simulated}."
    ]
    leads = [run.lead for run in table.induced if run.lead is not None]
    if leads:
        shown = ", ".join(f"{lead:+d}" for lead in sorted(leads))
        sentences.append(f"Leads in steps (negative = after the fall was visible): {shown}.")
    return sentences


def _hunted(study: Study, outcome: HuntOutcome) -> list[str]:
    """The candidates and how to repeat them, without any how often there is one at most; repeats by themselves."""
    spec, count, repeats = outcome.spec, counted(outcome.first), counted(outcome.repeats)
    rule = f"lost {spec.fall:.0%} of {' or '.join(spec.metrics)} while {spec.least_valid:.0%} of the replies were valid"
    sentences = []
    if count.of:
        sentences.append(f"{spec.title}: {count} runs {rule}. The limits are Clopper and Pearson's.")
    elif outcome.first:
        sentences.append(f"{spec.title}: unknown, no run could be judged.")
    unjudged = len(outcome.first) - count.of
    if unjudged and count.of:
        said = "run is in no count: it has" if unjudged == 1 else "runs are in no count: they have"
        sentences.append(f"{unjudged} further {said} too few readings with valid replies, or no start above zero.")
    if count.of and not outcome.arms and count.limits is not None:
        sentences.append(f"No candidate: in runs like these there is one in at most {count.limits.high:.1%}.")
    elif outcome.arms and not outcome.repeats and spec.fresh_seeds:
        seeds = ",".join(map(str, spec.fresh_seeds))
        again = f"heedful study {study.name} --arms {','.join(outcome.arms)} --seeds {seeds}"
        sentences.append(f"Repeat the candidates on fresh seeds with: {again}")
    if repeats.of:
        sentences.append(f"{spec.title}, repeats on fresh seeds alone: {repeats} runs {rule}.")
    return sentences


def _crossed(outcome: FactorialOutcome) -> list[str]:
    """How many effects are clear, and those on the first measure."""
    effects = [effect for each in outcome.effects.values() for effect in each if effect.value is not None]
    clear = sum(map(is_clear, effects))
    if not effects:
        return [f"{outcome.spec.title}: unknown, too few arms are over."]
    first, found = next(iter(outcome.effects.items()))
    told = [
        f"{factor.name} against {factor.against} {signed(effect)}"
        for factor, effect in zip(outcome.spec.factors, found, strict=True)
        if is_clear(effect)
    ]
    by_chance = f"about {len(effects) / 20:.2g} would be, by chance"
    return [
        f"{outcome.spec.title}: {clear} of {len(effects)} effects are clear. Where nothing matters, {by_chance}.",
        f"{outcome.spec.title}, {first}: {'; '.join(told) or 'no effect is clear'}.",
    ]
