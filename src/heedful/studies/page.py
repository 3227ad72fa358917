"""What a study ends in: `results.json`, a Markdown table, and one self-contained page.

Promise: the page needs no network. Every number has its interval and its n, and a comparison that shows nothing is said
to show nothing.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from heedful.configuration import to_json
from heedful.configuration.jsontext import read_json
from heedful.report.drawing.panel import DrawnPanel
from heedful.report.drawing.standalone import standalone
from heedful.report.templates import chart_style, fill
from heedful.storage import write_whole
from heedful.studies.declaration import Study
from heedful.studies.detector.candidates import HuntOutcome, counted
from heedful.studies.detector.early_warning import LeadOutcome
from heedful.studies.detector.separation import SeparationOutcome
from heedful.studies.factorial import FactorialOutcome, is_clear
from heedful.studies.figures import areas_over_the_dial, curves, legend_of, over_the_dial, roc_figures
from heedful.studies.outcomes import MeasureOutcome, Outcomes, PairValue
from heedful.studies.paired import Count
from heedful.studies.study_folder import StudyFolder
from heedful.studies.tables import (
    Rows,
    alarm_rows,
    area_rows,
    area_text,
    factorial_rows,
    hunt_rows,
    lead_rows,
    markdown_rows,
    measure_rows,
    mover_rows,
    pair_rows,
    run_rows,
    signed,
)
from heedful.types import Metric
from heedful.version import __version__

MOST_SENTENCES = 6
"""Comparisons that the verdict tells one by one. The tables have all."""


def write_results(folder: StudyFolder, study: Study, outcomes: Outcomes, runs_in_all: int) -> list[str]:
    """Write `results.json`, `results.md`, `study.html` and the charts in `figures`; returns the verdict's sentences."""
    sentences = verdict(study, outcomes, runs_in_all)
    write_whole(folder.results, json.dumps(_tree(study, outcomes, sentences), indent=1) + "\n")
    again = command(study, outcomes, _starts(folder))
    write_whole(folder.table, markdown(study, outcomes, sentences, again))
    figures = [*over_the_dial(study, outcomes), *areas_over_the_dial(study, outcomes), *roc_figures(outcomes)]
    panels = curves(study, outcomes)
    write_whole(folder.page, _page(folder, study, outcomes, sentences, again, figures, panels))
    _write_charts(folder.figures, [*figures, *panels])
    return sentences


def _write_charts(folder: Path, panels: Sequence[DrawnPanel]) -> None:
    """Each chart as a file, named after its title. A second one of the same title ends in -2."""
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.svg"):
        old.unlink()
    for panel in panels:
        if not panel.absent:
            stem = re.sub(r"[^a-z0-9]+", "-", panel.title.lower()).strip("-")
            ends = itertools.chain([""], (f"-{number}" for number in itertools.count(2)))
            path = next(path for end in ends if not (path := folder / f"{stem}{end}.svg").exists())
            write_whole(path, standalone(panel, chart_style()))


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
    if outcomes.measures:
        sentences += _all_compared(outcomes.measures[0])
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


def _all_compared(outcome: MeasureOutcome) -> list[str]:
    """A sentence for each comparison. Of many: all unclear ones in one sentence, then one for each clear one."""
    if len(outcome.pairs) <= MOST_SENTENCES:
        return [_compared(outcome, pair) for pair in outcome.pairs]
    known = [pair for pair in outcome.pairs if isinstance(pair.over_seeds.mean.value, int | float)]
    unclear = [float(pair.over_seeds.mean.value or 0.0) for pair in known if not pair.over_seeds.clear]
    sentence = (
        f"{outcome.measure.title}: {len(known)} of {len(outcome.pairs)} comparisons have values, and "
        f"{len(known) - len(unclear)} of these are clear. Where nothing differs, about {len(known) / 20:.2g} would be, "
        "by chance."
    )
    if unclear:
        lowest, highest = (signed(Metric(outcome.measure.title, find(unclear))) for find in (min, max))
        sentence += f" The differences that are not clear lie from {lowest} to {highest}."
    return [sentence, *(_compared(outcome, pair) for pair in known if pair.over_seeds.clear)]


def _compared(outcome: MeasureOutcome, value: PairValue) -> str:
    difference, names = value.over_seeds, f"{value.pair.arm} against {value.pair.control}"
    if not isinstance(difference.mean.value, int | float):
        return f"{outcome.measure.title}, {names}: unknown ({difference.mean.why})."
    said = "not distinguishable from no difference"
    if difference.clear:
        said = "higher" if difference.mean.value > 0 else "lower"
    tasks = value.over_tasks
    over_tasks = "" if tasks is None or tasks.value is None else f"; over {_many(tasks.n, 'task')} {signed(tasks)}"
    return (
        f"{outcome.measure.title}, {names}: {said}. Difference {signed(difference.mean)} over "
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


def markdown(study: Study, outcomes: Outcomes, sentences: Sequence[str], again: str) -> str:
    """The tables as Markdown, for docs/results/. `again`: the command that makes them."""
    lines = [f"# Study: {study.name}", "", study.question, "", f"    {again}", ""]
    lines += [f"- {sentence}" for sentence in sentences]
    for table in _tables(study, outcomes):
        lines += ["", table.caption, "", *markdown_rows(table.rows)]
    lines += ["", *(f"- {note}" for note in study.notes)]
    return "\n".join(lines).rstrip() + "\n"


def command(study: Study, outcomes: Outcomes, starts: Sequence[Mapping[str, Any]] = ()) -> str:
    """The command that makes these results. `starts`: what each start asked for beyond the declaration."""
    seeds = sorted({each.run.seed for each in outcomes.runs})
    if study.flat and seeds:  # the configuration of each seed is in the study's folder
        environment = to_json(study.arms[0].job.seeded(seeds[0]))["env"]["type"]
        return f"heedful train {environment} --config s{seeds[0]}.json --seeds {','.join(map(str, seeds))}"
    files = [str(start["file"]) for start in starts if start.get("file")]
    words = ["heedful", "study", files[-1] if files else study.name, "--seeds", ",".join(map(str, seeds))]
    asked = [start.get("arms", ()) for start in starts]
    if asked and all(asked):
        named = dict.fromkeys(itertools.chain.from_iterable(asked))
        words += ["--arms", ",".join(each for each in named if any(fnmatchcase(arm.name, each) for arm in study.arms))]
    steps = {start["steps"] for start in starts if start.get("steps")}
    return shlex.join([*words, *(word for each in steps for word in ("--steps", str(each)))])


@dataclass(frozen=True, slots=True)
class _Table:
    """One table of results."""

    title: str
    """On the page."""
    lead: str
    """What a reader of the page has to know."""
    caption: str
    """In Markdown."""
    rows: Rows


def _tables(study: Study, outcomes: Outcomes) -> Iterator[_Table]:
    """The tables of a study, in reading order."""
    if study.flat:
        lead = "Success before and after training with its 95% interval; gains are paired by task."
        yield _Table("Each seed", lead, "Each seed, with 95% intervals.", run_rows(study, outcomes))
    if outcomes.measures:
        lead = (
            "Mean over seeds with its 95% interval; n counts the seeds. †: these few seeds differ too little in number "
            "to show a rare run. If one run in five collapses, such intervals of 3 seeds hold the true mean in 54%."
        )
        yield _Table("Measures", lead, "Mean over seeds with 95% interval; n = seeds.", measure_rows(study, outcomes))
    if study.pairs and outcomes.measures:
        lead = (
            "Arm or pool minus control. Over seeds: Student's interval, and the exact two-sided sign-flip test, which "
            "cannot fall below 2/2^n. Over tasks: would the same policies differ as much on other tasks?"
        )
        yield _Table("Paired differences", lead, "Paired differences.", pair_rows(outcomes))
    for separation in outcomes.separations:
        title = separation.spec.title
        lead = (
            f"{', '.join(separation.spec.collapsed)} against {', '.join(separation.spec.healthy)}. "
            "A direction that was not declared is the one that separates better, which flatters areas near one half."
        )
        yield _Table(f"{title}: areas", lead, f"{title}: areas under the ROC curve.", area_rows(separation))
    for hunt in outcomes.hunts:
        lead = (
            "The start is the mean of the first readings, and the lowest is that of later neighbours. A run is a "
            "candidate if it has lost the declared part, and more than noise, while its replies were valid."
        )
        yield _Table(hunt.spec.title, lead, f"{hunt.spec.title}: each run.", hunt_rows(hunt))
    for crossed in outcomes.factorials:
        lead = (
            "The mean of the arms with a setting minus that of the arms with the other one, by least squares on all "
            "settings at once. The noise of the 95% intervals is what they leave unexplained. What two settings do "
            "together counts as noise."
        )
        title = crossed.spec.title
        yield _Table(title, lead, f"{title}: effects with 95% intervals.", factorial_rows(crossed))
    for warning in outcomes.leads:
        title = warning.spec.title
        lead = (
            f"Fallen: {warning.spec.success} lies {100 * warning.spec.points:g} points below its start and the "
            "intervals leave no doubt. Lead: steps from the first alarm to the evaluation that shows the fall."
        )
        yield _Table(f"{title}: runs", lead, f"{title}: each run.", lead_rows(warning))
        yield _Table(f"{title}: alarms", "Counts with exact 95% limits.", "By alarm.", alarm_rows(warning))
        lead = (
            "A metric departs when its whole interval lies outside the range of its first three readings, on the "
            "declared side where there is one. Exploratory: with many metrics some depart by chance."
        )
        caption = "Which metrics leave their start before success has fallen."
        yield _Table(f"{title}: what moves first", lead, caption, mover_rows(warning))


def _page(
    folder: StudyFolder,
    study: Study,
    outcomes: Outcomes,
    sentences: Sequence[str],
    again: str,
    figures: Sequence[DrawnPanel],
    panels: Sequence[DrawnPanel],
) -> str:
    return fill(
        "study.html",
        {
            "name": study.name,
            "question": study.question,
            "version": __version__,
            "sentences": sentences,
            "notes": study.notes,
            "command": again,
            "arms": _arms(study, outcomes),
            "tables": [(table.title, table.lead, table.rows) for table in _tables(study, outcomes)],
            "figures": figures,
            "panels": panels,
            "remeasured": _remeasured(folder),
        },
    )


def _arms(study: Study, outcomes: Outcomes) -> list[tuple[Any, str, str, str]]:
    samples, controls = legend_of(study), {pair.arm: pair.control for pair in study.pairs}
    return [
        (
            samples[arm.name],
            arm.name,
            f"{len(outcomes.of_arm(arm.name))} of {len(study.seeds)} seeds over",
            f"control: {controls[arm.name]}" if arm.name in controls else "",
        )
        for arm in study.arms
    ]


def _starts(folder: StudyFolder) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = (
        read_json(folder.declaration).get("starts", []) if folder.declaration.exists() else []
    )
    return found


def _remeasured(folder: StudyFolder) -> list[str]:
    if not folder.declaration.exists():
        return []
    changes: list[str] = read_json(folder.declaration).get("remeasured", [])
    rest = len(changes) - MOST_SENTENCES
    return changes if rest <= 0 else [*changes[:MOST_SENTENCES], f"and {rest} more, in {folder.declaration.name}"]


def _tree(study: Study, outcomes: Outcomes, sentences: Sequence[str]) -> dict[str, Any]:
    return {
        "study": study.name,
        "question": study.question,
        "verdict": list(sentences),
        "runs": [each.run.label for each in outcomes.runs],
        "measures": [_plain(outcome) for outcome in outcomes.measures],
        "separations": [_plain(outcome) for outcome in outcomes.separations],
        "leads": [_plain(outcome) for outcome in outcomes.leads],
        "hunts": [_plain(outcome) for outcome in outcomes.hunts],
        "factorials": [_plain(outcome) for outcome in outcomes.factorials],
    }


def _plain(value: Any) -> Any:
    """Dataclasses, counts and mappings as JSON; what a property says is not repeated, but exact limits are."""
    if isinstance(value, Count):
        limits = value.limits
        return {"hits": value.hits, "of": value.of, "limits": None if limits is None else list(limits)}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: _plain(getattr(value, each.name)) for each in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value
