"""The run's conclusion in words: the gain, whether it exceeds sharpening, and whether thoughts depend on the input.

Every sentence is based on figures of the run folder, with intervals. A missing figure is reported as unknown.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from heedful.diagnostics.actions.rightness import carriers
from heedful.diagnostics.alarms.causes import likely
from heedful.diagnostics.catalogue import legend_of, mark_of
from heedful.diagnostics.names import CPU
from heedful.report.attribution import measured_causes
from heedful.run.config import TrainConfig
from heedful.run.evaluation.held_out import paired_gain, success_metric
from heedful.storage import RunFolder, StepMetrics, read_metrics, read_rollouts, write_whole
from heedful.storage.measurements import FIELDS
from heedful.types import Metric

_SCOPE = "information/first_turn"
_ACCURACY = "retrieval/first_turn/accuracy"
_NOT_BOTH = "the run was not evaluated both before and after training"


@dataclass(frozen=True, slots=True)
class Conclusion:
    """The conclusion of a run."""

    sentences: tuple[str, ...]
    regime: str
    figures: tuple[Metric, ...]
    """Gains: `gain/sampled` and `gain/greedy`, paired by task."""


def conclude(folder: RunFolder, config: TrainConfig) -> Conclusion:
    """Read the run folder and draw the conclusion. It is also written to `verdict.json`."""
    lines = read_metrics(folder.metrics)
    gains = {kind: _gain(folder, config, kind) for kind in ("sampled", "greedy")}
    regime, first = _last(lines, "regime/first_turn"), min((line.step for line in lines), default=0)
    sentences = [
        *_success(folder, lines, config, gains),
        *_carried(lines),
        *_sharpening(lines, config, gains),
        *_baselines(lines, config),
        f"The measurements of the first {first} steps are lost: what follows is said of the steps after them."
        if first
        else "",
        *_heeding(lines, regime),
        *_alarms(lines, folder),
        _filtering(lines, config),
        _cost(lines),
    ]
    sentences.append(_legend(lines, gains, config.evaluation.split))
    conclusion = Conclusion(
        tuple(sentence for sentence in sentences if sentence),
        str(regime.value) if regime and regime.value else "not determined",
        tuple(gains.values()),
    )
    figures = {figure.name: {name: getattr(figure, name) for name in FIELDS} for figure in conclusion.figures}
    tree = {"sentences": conclusion.sentences, "regime": conclusion.regime, "figures": figures}
    write_whole(folder.verdict, json.dumps(tree, indent=1) + "\n")
    return conclusion


def _gain(folder: RunFolder, config: TrainConfig, kind: str) -> Metric:
    split = config.evaluation.split
    before, after = (folder.rollouts(version, f"{split}_{kind}") for version in _ends(config))
    if config.keep_rollouts == "none":
        return Metric(f"gain/{kind}", None, why="the run kept no rollouts to pair by task (--keep-rollouts none)")
    if not (Path(before).exists() and Path(after).exists()):
        return Metric(f"gain/{kind}", None, why=_NOT_BOTH)
    try:
        return paired_gain(f"gain/{kind}", *(read_rollouts(path, replies=False).groups for path in (before, after)))
    except ValueError as error:
        return Metric(f"gain/{kind}", None, why=str(error))


def _ends(config: TrainConfig) -> tuple[int, int]:
    """The versions of the first and the last evaluation."""
    return config.evaluation.start, config.steps


def _readings(lines: Sequence[StepMetrics], name: str) -> list[tuple[int, Metric]]:
    found = [(line.step, line.metrics[name]) for line in lines if name in line.metrics]
    return [(step, metric) for step, metric in found if metric.value is not None]


def _last(lines: Sequence[StepMetrics], name: str) -> Metric | None:
    readings = _readings(lines, name)
    return readings[-1][1] if readings else None


def _legend(lines: Sequence[StepMetrics], gains: dict[str, Metric], split: str) -> str:
    """What the marks behind intervals mean, where a sentence has one."""
    evaluated = [f"eval/{split}/{kind}/success" for kind in ("sampled", "greedy", "random", "fixed")]
    thoughts = [f"{_SCOPE}/{name}" for name in ("mi", "gap_per_token", "gap", "thought_tokens")]
    thoughts += ["grounding/right_by_thought", "grounding/agreed_by_thought"]
    readings = [_readings(lines, name) for name in (*evaluated, *thoughts, _ACCURACY)]
    return legend_of([*gains.values(), *(found[at][1] for found in readings if found for at in (0, -1))])


def shown(metric: Metric, signed: bool = False) -> str:
    """A value with its interval, or the reason why there is none."""
    if metric.number is None:
        return f"unknown ({metric.why})"
    form = "+.3f" if signed else ".3f"
    text = f"{metric.number:{form}}"
    if metric.low is None or metric.high is None:
        return text
    return f"{text} [{metric.low:{form}}, {metric.high:{form}}]{mark_of(metric)}"


def _evaluated(folder: RunFolder, lines: Sequence[StepMetrics], split: str, kind: str, version: int) -> Metric:
    """Success after `version` steps: as it was measured, or of the stored episodes where that line is lost."""
    name, stored = f"eval/{split}/{kind}/success", folder.rollouts(version, f"{split}_{kind}")
    readings = [line.metrics[name] for line in lines if line.step == version and name in line.metrics]
    if not readings and stored.exists():
        return success_metric(name, read_rollouts(stored, replies=False).groups)
    return readings[-1] if readings else Metric(name, None, why=_NOT_BOTH)


def _success(
    folder: RunFolder, lines: Sequence[StepMetrics], config: TrainConfig, gains: dict[str, Metric]
) -> list[str]:
    sentences = []
    for kind, gain in gains.items():
        before, after = (_evaluated(folder, lines, config.evaluation.split, kind, version) for version in _ends(config))
        if before.value is None or after.value is None:
            return [f"Success on held-out tasks is unknown: {before.why or after.why}."]
        tasks = f"{gain.n} held-out tasks" if gain.n else "held-out tasks"
        clear = gain.low is not None and gain.high is not None and (gain.low > 0 or gain.high < 0)
        doubt = "" if gain.value is None or clear else _doubt(gain)
        # A resumed run may have been given other numbers of tasks or samples.
        counts = "" if before.n == after.n else f" (of {before.n} and {after.n} episodes)"
        sentences.append(
            f"{kind.capitalize()} success on {tasks}: {shown(before)} before, {shown(after)} after{counts}; "
            f"gain {shown(gain, signed=True)}, paired by task{doubt}."
        )
    return sentences


def _carried(lines: Sequence[StepMetrics]) -> list[str]:
    """Where right first actions come from at the last measurement, and the thought's part at the first."""
    told = [(line.step, *found) for line in lines if (found := carriers(line.metrics))]
    if not told:
        return []
    (first, _, before), (last, sentence, after) = told[0], told[-1]
    earlier = (
        f"; at step {first} {shown(before)} came from the thought" if first < last and before.name == after.name else ""
    )
    return [f"{sentence} (step {last}){earlier}."]


def _doubt(gain: Metric) -> str:
    """What is to be said of a gain that has no interval, or one that covers 0."""
    if gain.low is not None:
        return " - not distinguishable from none"
    count, value = gain.n or 0, float(gain.value or 0.0)
    if not value:
        return " - no task changed"
    moved = "rose" if value > 0 else "fell"
    if count < 2:
        return f" - one task {moved}, which says nothing of others"
    # Without any effect, all tasks go one way with this probability: the exact sign test, two-sided.
    p_value = 2.0 ** (1 - count)
    return f" - all {count} tasks {moved} by as much, so there is no interval; exact sign test p = {p_value:.3g}"


def _sharpening(lines: Sequence[StepMetrics], config: TrainConfig, gains: dict[str, Metric]) -> list[str]:
    """A sampled gain without a greedy one moves probability to actions that the policy already preferred."""
    sampled, greedy = gains["sampled"], gains["greedy"]
    if sampled.low is None or greedy.value is None:
        return []
    low = greedy.low if greedy.low is not None else float(greedy.value)
    high = greedy.high if greedy.high is not None else float(greedy.value)
    fell = sampled.high is not None and sampled.high < 0
    if fell and low > 0:
        return [
            "The greedy policy gained, and the sampled policy clearly lost: what it prefers is right on more tasks, "
            "but it draws other replies more often. Look at the token entropy."
        ]
    if sampled.low <= 0 and low > 0:
        return [
            "The greedy policy gained, the sampled policy did not clearly: what it prefers is right on more tasks. "
            "That is not sharpening."
        ]
    if fell:
        return ["Training did harm: the sampled success clearly fell."]
    if sampled.low <= 0:
        return ["No gain to explain: the sampled success did not clearly rise."]
    if low > 0:
        return ["More than sharpening: the greedy policy, free of sampling noise, gained too."]
    if high < 0:
        return [
            "Sharpening only, and at a price: the sampled policy gained, but the greedy policy lost; probability moved "
            "towards what was already preferred, and the best of it was not kept."
        ]
    return [
        "Consistent with sharpening: the sampled policy gained, the greedy policy did not clearly; nothing shows a "
        "skill that the greedy policy did not have before."
    ]


def _baselines(lines: Sequence[StepMetrics], config: TrainConfig) -> list[str]:
    split = config.evaluation.split
    random, fixed, after = (_last(lines, f"eval/{split}/{name}/success") for name in ("random", "fixed", "sampled"))
    if random is None or fixed is None or after is None or after.low is None:
        return []
    above = after.low > max(random.high or 0.0, fixed.high or 0.0)
    return [
        f"Without reading the input a random policy reaches {shown(random)} and the best fixed action sequence "
        f"{shown(fixed)}; the trained policy is {'above both' if above else 'not clearly above both'}."
    ]


def _heeding(lines: Sequence[StepMetrics], regime: Metric | None) -> list[str]:
    mi, gap = _readings(lines, f"{_SCOPE}/mi"), _readings(lines, f"{_SCOPE}/gap_per_token")
    ceiling, saturated = _last(lines, f"{_SCOPE}/mi_ceiling"), _last(lines, f"{_SCOPE}/mi_saturated")
    accuracy, chance = _last(lines, _ACCURACY), _last(lines, "retrieval/first_turn/chance")
    p_value = _last(lines, "retrieval/first_turn/p_value")
    if not mi or not gap or ceiling is None or accuracy is None or chance is None:
        return ["Whether the reasoning depends on the input is unknown: it was not measured."]
    at_ceiling = saturated is not None and saturated.number == 1.0
    reading = " (saturated: this says only that it has not collapsed)" if at_ceiling else ""
    test = f", p = {p_value.value:.3f}" if p_value else ""
    # The gap of a thought and its length beside the gap per token, which longer thoughts lower by themselves.
    whole, length = _readings(lines, f"{_SCOPE}/gap"), _readings(lines, f"{_SCOPE}/thought_tokens")
    per_thought = ""
    if whole and length:  # an earlier version wrote neither
        per_thought = (
            f", that of a thought from {shown(whole[0][1])} to {shown(whole[-1][1])} nats (length "
            f"{shown(length[0][1])}, then {shown(length[-1][1])} tokens)"
        )
    sentences = [
        f"The thoughts and the input share {shown(mi[-1][1])} nats of at most {shown(ceiling)}{reading}.",
        f"The gap per token went from {shown(gap[0][1])} to {shown(gap[-1][1])}{per_thought}.",
        f"The own prompt is found for {shown(accuracy)} of the thoughts, chance {shown(chance)}{test} "
        f"(step {mi[-1][0]}).",
    ]
    if regime is not None:
        sentences.append(f"Regime: {regime.value}{f' ({regime.why})' if regime.why else ''}.")
    return sentences


def _alarms(lines: Sequence[StepMetrics], folder: RunFolder) -> list[str]:
    """Sentences on the raised alarms and their steps, with evidence for collapses, or on their absence if measured."""
    names = list(dict.fromkeys(name for line in lines for name in line.metrics if name.startswith("alarm/")))
    readings = {name: _readings(lines, name) for name in names}
    told = {name: found for name, found in readings.items() if found}
    if not told:
        return []
    raised = {
        name.removeprefix("alarm/"): next((step, metric.why) for step, metric in found if metric.value)
        for name, found in told.items()
        if any(metric.value for _, metric in found)
    }
    if not raised:
        return [f"None of the {len(told)} alarms that had the readings they need was raised."]
    order = sorted(raised, key=lambda name: raised[name][0])
    listed = ", ".join(
        f"{name} at step {raised[name][0]}{'' if told[f'alarm/{name}'][-1][1].value else ' (over since)'}"
        for name in order
    )
    evidence = [f"Evidence of {name}: {raised[name][1]}." for name in order if name.endswith("_collapse")]
    found = [cause.sentence() for cause in likely({name: raised[name][0] for name in order})]
    measured = measured_causes(folder, raised[order[-1]][0])
    causes = [f"Likely cause: {sentence}" for sentence in [*measured, *found][:1]]
    return [f"Alarms raised: {listed}.", *evidence, *causes]


def _filtering(lines: Sequence[StepMetrics], config: TrainConfig) -> str:
    kept = [metric.number for _, metric in _readings(lines, "filter/kept_ratio") if metric.number is not None]
    if not kept:
        return ""
    third = max(1, len(kept) // 3)
    empty = sum(1 for _, metric in _readings(lines, "filter/empty") if metric.value)
    steps = "1 step" if empty == 1 else f"{empty} steps"
    first, last = sum(kept[:third]) / third, sum(kept[-third:]) / third
    return (
        f"The filter kept {first:.0%} of the prompts in the first third of the run and {last:.0%} in the last"
        f"{f'; {steps} had nothing to learn from' if empty else ''}."
    )


def _cost(lines: Sequence[StepMetrics]) -> str:
    totals: dict[str, float] = {}
    for line in lines:
        for name, metric in line.metrics.items():
            seconds = metric.number if name.startswith("time/") and name != CPU else None
            if seconds is not None:
                stage = name.removeprefix("time/")
                totals[stage] = totals.get(stage, 0.0) + seconds
    in_steps = {stage: seconds for stage, seconds in totals.items() if stage != "evaluate"}
    whole = sum(in_steps.values())
    steps = len([line for line in lines if "time/collect" in line.metrics])
    if not whole or not steps:
        return ""
    shares = ", ".join(f"{stage} {seconds / whole:.0%}" for stage, seconds in in_steps.items())
    cost = f" Diagnosis cost {in_steps['diagnose'] / whole:.1%} of the steps' time." if "diagnose" in in_steps else ""
    evaluated = totals.get("evaluate", 0.0)
    return f"A step took {whole / steps:.2f} s: {shares}; evaluations took {evaluated:.0f} s in all.{cost}"
