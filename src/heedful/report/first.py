"""The first screen of a page: three sentences on a run, made from its verdict, its readings and its alarms."""

from __future__ import annotations

from dataclasses import dataclass

from heedful.boundary import listed
from heedful.diagnostics.actions.rightness import PARTS, carriers
from heedful.report.drawing.numerals import in_full
from heedful.report.outcome import SEVERITIES, Outcome
from heedful.report.record import RunRecord

MOST_ALARMS = 4


@dataclass(frozen=True, slots=True)
class Told:
    """One sentence, with the steps where a reader can see it."""

    label: str
    text: str
    steps: tuple[int, ...] = ()
    warns: bool = False


def told(run: RunRecord) -> tuple[Told, Told, Told]:
    """Gain; where the rightness comes from, or whether thoughts depend on prompts; alarms with their likely cause."""
    return Told("Gain", _gain(run)), Told("Thoughts", _thoughts(run)), _alarms(run)


def _gain(run: RunRecord) -> str:
    if run.verdict and run.verdict.sentences and not run.audited:
        return run.verdict.sentences[0]
    for words, name in (("Success", "success/rate"), ("Reward", "reward/mean"), ("Reward", "trainer/reward")):
        if points := run.get(name).numeric:
            ends = dict.fromkeys((points[0], points[-1]))
            values = ", ".join(f"{in_full(point.metric)} at step {point.step}" for point in ends)
            return f"{words} of training episodes: {values}. Held-out tasks were not measured."
    return "Neither success nor reward was recorded."


def _thoughts(run: RunRecord) -> str:
    if run.audited and run.verdict and run.verdict.sentences:
        return run.verdict.sentences[0]
    heads = dict.fromkeys(name.rpartition("/")[0] for name in run.series if name.startswith("grounding"))
    for head in heads:
        series = [run.get(f"{head}/{label}{part}") for label in ("right", "agreed") for part in PARTS]
        readings = {one.name: one.numeric[-1].metric for one in series if one.numeric}
        if found := carriers(readings, f"{head}/"):
            step = max(one.numeric[-1].step for one in series if one.numeric)
            return f"{found[0]} (step {step})."
    points = run.get(f"{run.family('information')}/first_turn/mi").numeric
    if points:
        return (
            f"Mutual information of thoughts and prompts, in nats: {in_full(points[-1].metric)} (step "
            f"{points[-1].step}). Where right actions come from was not measured."
        )
    return "Whether thoughts depend on prompts was not measured."


def _alarms(run: RunRecord) -> Told:
    outcome = Outcome.of_run(run)
    if not outcome.raised:
        judged = (
            f"None was raised, of {len(outcome.judged)} that could be judged."
            if outcome.judged
            else "No alarm could be judged."
        )
        return Told("Alarms", judged)
    gravest = sorted(outcome.raised, key=lambda one: -SEVERITIES.index(one.severity))[:MOST_ALARMS]
    shown = [one for one in outcome.raised if one in gravest]
    named = [f"{one.name} ({one.severity}) at step {one.step}" for one in shown]
    more = len(outcome.raised) - len(named)
    causes = outcome.told_causes()
    cause = f" Likely cause: {causes[0]}" if causes else ""
    text = f"{listed(named)}{f', and {more} more' if more else ''}.{cause}"
    steps = tuple(dict.fromkeys(one.step for one in shown))
    return Told("Alarms", text, steps, warns=True)
