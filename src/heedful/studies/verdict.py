"""What a study shows, in sentences, and what it cannot show."""

from __future__ import annotations

from collections.abc import Sequence

from heedful.studies.declaration import Study
from heedful.studies.outcomes import MeasureOutcome, Outcomes, PairValue
from heedful.studies.tables import signed
from heedful.types import Metric

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
    sentences += [sentence for reading in outcomes.readings for sentence in reading.sentences]
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
    known = [value for value in values if value.over_seeds.mean.number is not None]
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
    if difference.mean.number is None:
        return f"{title}, {names}: unknown ({difference.mean.why})."
    said = "not distinguishable from no difference"
    if difference.clear:
        said = "higher" if difference.mean.number > 0 else "lower"
    tasks = value.over_tasks
    over_tasks = "" if tasks is None or tasks.value is None else f"; over {_many(tasks.n, 'task')} {signed(tasks)}"
    p_value = "" if difference.p_value is None else f", exact sign-flip p = {difference.p_value:.3g}"
    return (
        f"{title}, {names}: {said}. Difference {signed(difference.mean)} over "
        f"{_many(difference.mean.n, 'seed')}{p_value}{over_tasks}."
    )
