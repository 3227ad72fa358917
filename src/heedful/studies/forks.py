"""Forks of a run before an alarm: arms that each change one thing, paired by seed with the arm that changes nothing.

A removal takes one thing of the run away and so names a cause. A cure adds something and so says what to do. The best
cure names no cause: a filter can win over the removal of what did the harm.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from statistics import fmean

import numpy as np

from heedful.diagnostics.alarms.watch import before_change
from heedful.diagnostics.attribution import is_clear
from heedful.diagnostics.statistics.group_statistics import is_constant
from heedful.diagnostics.statistics.special import student_quantile
from heedful.envs.common.tasks import TaskStream
from heedful.report.attribution import part_names, summed
from heedful.report.drawing.chart import Axis, Curve, Frame
from heedful.report.drawing.numerals import numeral
from heedful.report.drawing.panel import DrawnPanel, Panel, draw
from heedful.report.gradients import cell
from heedful.report.outcome import Outcome
from heedful.report.record import Series, read_run
from heedful.run.config import AttributionConfig, TrainConfig
from heedful.run.edits import LEARNED, edits_of
from heedful.run.train import Run, config_at
from heedful.seeds import derive
from heedful.storage import RunFolder, StoredGradients, read_gradients
from heedful.studies.declaration import Arm, Study, narrowed, study_to_json
from heedful.studies.figures import mean_series
from heedful.studies.fork_arms import NONE, ForkArm, components_beside_the_task, cures, removals
from heedful.studies.jobs import ForkJob, parent_of
from heedful.studies.outcomes import Outcomes, Reading, Rows, Table
from heedful.studies.paired import mean_over, paired_difference
from heedful.studies.study_folder import StudyFolder, read_declaration
from heedful.studies.tables import shown, signed
from heedful.types import Metric

MATTERS = 0.03
"""Least gain of success that names a cause."""
SHARED = frozenset({"steps", "seed", "tasks", "task_seeds", "evaluation", "model", *LEARNED})
"""Settings in which arms cannot differ: a difference would not be the treatment's, or they act at the start alone."""
_COLUMNS = {
    "gap": "information/first_turn/gap",
    "entropy of thoughts": "policy/thought_entropy_per_token",
    "valid replies": "format/valid_rate",
}


@dataclass(frozen=True, slots=True)
class ForkRow:
    """What one arm does to success after the fork's last step, minus the arm that changes nothing, seed by seed."""

    arm: ForkArm
    success: Metric
    """Sampled. Student's 95% interval over seeds."""
    greedy: Metric
    corrected: tuple[float, float] | None
    """The interval of `success` at 1 - .05 / number of removals (Bonferroni)."""
    named: bool
    """Of a removal: its gain is the largest, at least `MATTERS`, and clear of 0 after the correction."""
    levels: Mapping[str, Metric]
    """Mean over seeds of the last reading of the gap, the entropy of thoughts and the share of valid replies."""
    attributed: float | None
    """What the parts that it takes away did to success in the newest split update before the alarm."""


@dataclass(frozen=True, slots=True)
class Forked:
    """All that the forks say."""

    checkpoint: int
    steps: int
    seeds: tuple[int, ...]
    none: Mapping[str, Metric]
    """Sampled and greedy success of the arm that changes nothing."""
    removals: tuple[ForkRow, ...]
    cures: tuple[ForkRow, ...]
    sentences: tuple[str, ...]
    command: str
    """Goes on with the best arm. Empty where none is clear."""
    tables: Mapping[str, Rows]


@dataclass(frozen=True, slots=True)
class Forks:
    """The outcome of a study of forks: two tables, sentences and curves."""

    run: str
    """Its name."""
    alarm: str
    step: int
    """The step of the alarm, or the one that was given."""
    checkpoint: int
    steps: int
    split: str
    arms: tuple[ForkArm, ...]
    removals: int
    """Of the run, whether they are among `arms` or not: the comparisons of the correction."""
    title: str = "What forks of the run say"

    @property
    def arms_read(self) -> tuple[str, ...]:
        return ()

    def among(self, arms: Collection[str]) -> Forks | None:
        return replace(self, arms=tuple(arm for arm in self.arms if arm.name in arms)) if NONE in arms else None

    def read(self, study: Study, outcomes: Outcomes) -> Reading:
        parent = parent_of(outcomes.runs[0].run.folder)
        stored = _split_update(RunFolder(parent), self.step)
        success, greedy = (self._success(outcomes, kind) for kind in ("sampled", "greedy"))
        rows = [self._row(arm, outcomes, success, greedy, stored) for arm in self.arms if arm.kind != "none"]
        rows.sort(key=_gain, reverse=True)
        removals, cures = ([row for row in rows if row.arm.kind == kind] for kind in ("removal", "cure"))
        removals = [replace(row, named=row.named and not place) for place, row in enumerate(removals)]
        best = rows[0] if rows else None
        words = ["heedful", "train", "--resume", str(parent), "--checkpoint", str(self.checkpoint)]
        clear = best is not None and best.success.low is not None and best.success.low > 0
        command = f"{shlex.join(words)} {best.arm.flags}" if best is not None and clear else ""
        sentences = [*self._of_removals(removals), *self._of_cures(cures), *_agreement(removals, stored)]
        sentences += [f"Go on with the best arm: {command}"] if command else []
        none = {
            kind: mean_over(kind, list(found[NONE].values()))
            for kind, found in (("sampled", success), ("greedy", greedy))
        }
        tables = self._tables(none, stored, removals, cures)
        values = Forked(
            self.checkpoint,
            self.steps,
            tuple(sorted(success[NONE])),
            none,
            tuple(removals),
            tuple(cures),
            tuple(sentences),
            command,
            {table.title: table.rows for table in tables},
        )
        return Reading(values, tuple(tables), tuple(sentences), tuple(self._figures(outcomes)))

    def _success(self, outcomes: Outcomes, kind: str) -> dict[str, dict[int, float]]:
        """Arm -> seed -> success after the last step."""
        last, found = self.checkpoint + self.steps, dict[str, dict[int, float]]()
        for arm in self.arms:
            points = {
                each.run.seed: each.record.get(f"eval/{self.split}/{kind}/success").numeric
                for each in outcomes.of_arm(arm.name)
            }
            found[arm.name] = {
                seed: float(of[-1].number or 0.0) for seed, of in points.items() if of and of[-1].step == last
            }
        return found

    def _row(
        self,
        arm: ForkArm,
        outcomes: Outcomes,
        success: Mapping[str, Mapping[int, float]],
        greedy: Mapping[str, Mapping[int, float]],
        stored: StoredGradients | None,
    ) -> ForkRow:
        difference = paired_difference("success", success[arm.name], success[NONE])
        values = list(difference.by_seed.values())
        corrected = corrected_interval(values, self.removals)
        named = corrected is not None and corrected[0] > 0 and fmean(values) >= MATTERS
        levels = {}
        for title, metric in _COLUMNS.items():
            readings = [each.record.get(metric).numeric for each in outcomes.of_arm(arm.name)]
            levels[title] = mean_over(title, [float(of[-1].number or 0.0) for of in readings if of])
        taken = None
        if stored is not None and arm.parts:
            held = [part for part in part_names(stored) if part in arm.parts]
            taken = sum(stored.metric(f"attribution/success/{part}").number or 0.0 for part in held)
        return ForkRow(
            arm,
            difference.mean,
            paired_difference("greedy", greedy[arm.name], greedy[NONE]).mean,
            corrected,
            named and arm.kind == "removal",
            levels,
            taken,
        )

    def _of_removals(self, rows: Sequence[ForkRow]) -> list[str]:
        gain = rows[0].success.number if rows else None
        if gain is None:
            return ["Nothing was taken away, so no cause can be named."]
        first, rest = rows[0], rows[1:]
        if not first.named:
            return [
                f"No cause is named: the largest gain of success {self.steps} steps later is {gain:+.2f} "
                f"{_within(first.success)}, {first.arm.words}. More --seeds or --steps make intervals narrower."
            ]
        most = max((abs(row.success.number or 0.0) for row in rest), default=0.0)
        other = f"nothing else that was taken away changes it by more than {most:.2f}"
        if rest and most >= MATTERS:
            second = rest[0].success
            other = f"{rest[0].arm.words} it changes by {second.number or 0.0:+.2f} {_within(second)}"
        higher = f"{gain:.2f} higher {_within(first.success)}"
        said = f"{first.arm.words}, sampled success {self.steps} steps later is {higher}"
        return [said[0].upper() + said[1:] + (f"; {other}." if rest else ".")]

    def _of_cures(self, rows: Sequence[ForkRow]) -> list[str]:
        change = rows[0].success.number if rows else None
        if change is None:
            return []
        told = f"{rows[0].arm.words} success changes by {change:+.2f} {_within(rows[0].success)}"
        if rows[0].success.low is None or rows[0].success.low <= 0:
            return [f"No cure is clear of 0: {told}."]
        return [f"Of the cures the best is clear: {told}. It names no cause."]

    def _tables(
        self,
        none: Mapping[str, Metric],
        stored: StoredGradients | None,
        removals: Sequence[ForkRow],
        cures: Sequence[ForkRow],
    ) -> list[Table]:
        lead = (
            f"Success after step {self.checkpoint + self.steps} minus that of the unchanged run "
            f"(sampled {shown(none['sampled'])}, greedy {shown(none['greedy'])}), "
            f"paired over {none['sampled'].n} seeds, with Student's 95% interval. "
        )
        named = (
            f"A cause is named if its gain is the largest, at least {MATTERS}, and clear of 0 at "
            f"1 - .05 / {self.removals}, the number of removals that the run has."
        )
        heads = ["arm", "sampled", "greedy", *_COLUMNS, "settings"]
        of_removals = ["corrected", "named", *([f"attribution, step {stored.step}"] if stored is not None else [])]
        first: Rows = [[*heads[:3], *of_removals, *heads[3:]]]
        second: Rows = [heads]
        for row in (*removals, *cures):
            cells = [row.arm.words, signed(row.success), signed(row.greedy)]
            rest = [*(shown(replace(row.levels[name], low=None)) for name in _COLUMNS), row.arm.flags]
            if row.arm.kind == "cure":
                second.append([*cells, *rest])
                continue
            within = "–" if row.corrected is None else " to ".join(map(numeral, row.corrected))
            told = ["–" if row.attributed is None else numeral(row.attributed)] if stored is not None else []
            first.append([*cells, within, "yes" if row.named else "no", *told, *rest])
        titles = "Removals: what is the cause?", "Cures: what would help?"
        leads = lead + named, lead + "They say what to do, and name no cause."
        return [
            Table(title, told, title, rows) for title, told, rows in zip(titles, leads, (first, second), strict=True)
        ]

    def _figures(self, outcomes: Outcomes) -> list[DrawnPanel]:
        frame = Frame((self.checkpoint, self.checkpoint + self.steps))
        records = {arm.name: {each.run.seed: each.record for each in outcomes.of_arm(arm.name)} for arm in self.arms}
        drawn = []
        for kind, title in (("removal", "Removals"), ("cure", "Cures")):
            if not self._of_kind(kind):
                continue
            for metric, what, axis in (
                ("success/rate", "success in the episodes of training", Axis.SHARE),
                (_COLUMNS["gap"], "gap", Axis.FITTED),
            ):
                lines = [(NONE, 0), *((arm.name, hue) for hue, arm in enumerate(self._of_kind(kind), start=1))]
                series = {name: _from(mean_series(metric, [records[name]]), self.checkpoint) for name, _ in lines}
                curves = [Curve(name, series[name], hue, reference=name == NONE) for name, hue in lines]
                panel = draw(Panel(f"{title}: {what}", "", tuple(curves), axis, optional=True), frame)
                drawn += [panel] if panel is not None else []
        return drawn

    def _of_kind(self, kind: str) -> list[ForkArm]:
        return [arm for arm in self.arms if arm.kind == kind]


def corrected_interval(values: Sequence[float], comparisons: int) -> tuple[float, float] | None:
    """Student's interval of the mean at the level 1 - .05 / comparisons (Bonferroni).

    `None` for fewer than two values, and for values that all agree: a width of zero is not certainty.
    """
    if len(values) < 2 or is_constant(values):
        return None
    error = float(np.std(values, ddof=1)) / len(values) ** 0.5
    half = student_quantile(len(values) - 1, 1 - 0.025 / max(1, comparisons)) * error
    return fmean(values) - half, fmean(values) + half


def alarm_of(run: Run, before: str | None) -> tuple[str, int, int]:
    """The alarm, its step, and the latest step at which a fork may begin. `before`: its name, or a step.

    By default the first collapse.

    Raises ValueError, a sentence, where the run raised no such alarm.
    """
    if before is not None and before.isdecimal():
        return "", int(before), int(before)
    raised = Outcome.of(run.path).raised
    found = [one for one in raised if (one.name == before if before else one.severity == "collapse")]
    if not found:
        known = ", ".join(f"{one.name} (step {one.step})" for one in raised)
        wanted = f"the alarm {before}" if before else "an alarm of a collapse"
        raise ValueError(
            f"Expected {wanted} in {run.path}, found {known or 'none'}. "
            f"Name {'one of these, or ' if known else ''}a step: --before 12 goes back to the newest "
            "checkpoint at or before step 12."
        )
    return found[0].name, found[0].step, before_change(found[0].step, found[0].evidence)


def checkpoint_before(run: Run, latest: int) -> int:
    """The newest checkpoint at or before a step. Raises ValueError, a sentence, where there is none."""
    kept = run.folder.checkpoint_steps()
    found = [step for step in kept if step <= latest]
    if not found:
        has = ", ".join(map(str, kept)) or "none"
        raise ValueError(
            f"Expected a checkpoint of {run.path} at or before step {latest}, found {has}. Give a later step to "
            "--before, or train with --checkpoint-every 5 --keep-checkpoints around, which keeps some older ones."
        )
    return found[-1]


def fork_study(
    run: Run,
    before: str | None,
    steps: int,
    seeds: Sequence[int],
    tasks: int | None = None,
    samples: int = 2,
    own: str = "",
) -> Study:
    """The study of the forks of a run before an alarm.

    Raises ValueError where there is no such alarm, no checkpoint before it, or `own` changes nothing.
    """
    from heedful.run.checkpoint import Checkpoint

    alarm, step, latest = alarm_of(run, before)
    start = checkpoint_before(run, latest)
    written, _ = config_at(run, start)
    base = _shared(run, written, start, steps, tasks, samples)
    components = components_beside_the_task(read_run(run.path), step)
    arms = [ForkArm(NONE, "none", "nothing"), *removals(base, components), *cures(base, own)]
    checksum = Checkpoint(run.folder.checkpoint(start), start).digest()

    jobs = {arm.name: ForkJob(base, checkpoint=start, checksum=checksum, typed=arm.flags) for arm in arms}
    edits = edits_of(jobs["own"].seeded(0), jobs["own"].changed(0)) if own else {}
    if shared := {name.partition(".")[0] for name in edits} & SHARED:
        raise ValueError(
            f"Expected a cure in which forks may differ, found {own!r}, which sets {', '.join(sorted(shared))}. Forks "
            "have that in common, or it acts before the first step alone. Leave it out: --steps, --seeds, --tasks and "
            "--samples of heedful fork are for all arms."
        )
    unchanged = [arm.flags for arm in arms[1:] if jobs[arm.name].changed(0) == jobs[arm.name].seeded(0)]
    if unchanged:
        raise ValueError(
            f"Expected an arm that changes something, found {unchanged[0]!r}, which is as the run was. Give other "
            "settings, or leave it out."
        )
    name = run.path.resolve().name
    which = f"{alarm} at step {step}" if alarm else f"what came after step {step}"
    return Study(
        "fork",
        f"What would have prevented {which} of {name}?",
        tuple(Arm(arm.name, jobs[arm.name]) for arm in arms),
        tuple(seeds),
        outcomes=(
            Forks(
                name,
                alarm,
                step,
                start,
                steps,
                base.evaluation.split,
                tuple(arms),
                sum(arm.kind == "removal" for arm in arms),
            ),
        ),
        notes=(
            f"Each fork goes on from the checkpoint of step {start} for {steps} steps, with moments, schedule and the "
            "reference of a KL penalty as they were. Equal seeds play the same tasks with the same noise.",
            f"It says nothing of what comes after these {steps} steps: a cure may only postpone. A removal changes the "
            "size of AdamW's other steps, too.",
            "Going back alone, with other seeds, is the arm none.",
        ),
    )


def _shared(run: Run, written: TrainConfig, start: int, steps: int, tasks: int | None, samples: int) -> TrainConfig:
    """The settings of the checkpoint, with what all forks have in common: their length, what is measured, and nothing
    stored. A run that cuts its bonus at an alarm is measured as it was, so that the same alarms are raised."""
    pool = written.task_seeds
    if written.tasks is not None:  # a pool is drawn by the seed, and all forks play that of the run
        stream = TaskStream(written.env, "train", derive(written.seed, "tasks"), written.tasks)
        pool = tuple(task.seed for task in stream.pool or ())
    most, asked = written.evaluation.tasks if tasks is None else tasks, written.diagnostics
    if written.on_collapse != "cut":
        asked = replace(asked, every=max(1, steps // 3), full_every=0)
    return replace(
        written,
        steps=start + steps,
        tasks=None,
        task_seeds=pool,
        evaluation=replace(
            written.evaluation,
            tasks=min(256, most) if tasks is None else tasks,
            samples=samples,
            times=1,
            search_tasks=0,
        ),
        diagnostics=asked,
        attribution=AttributionConfig(),
        gradients=replace(written.gradients, every=0),
        on_collapse="warn" if written.on_collapse == "stop" else written.on_collapse,
        checkpoint_every=start + steps,
        keep_checkpoints="last",
        keep_rollouts="none",
        trackers=(),
        tracked_completions=0,
    )


def claim(run: RunFolder, study: Study) -> Path:
    """The folder of these forks: the one in which they were begun, with whatever seeds, or the next free number."""
    declared = json.loads(json.dumps(study_to_json(study)))
    for number in count(1):
        folder = run.forks / str(number)
        path = folder / "study.json"
        if not path.exists() or read_declaration(path)["study"] | {"seeds": declared["seeds"]} == declared:
            return folder
    raise AssertionError


def finished(study: Study, folder: Path, arms: Sequence[str], asked: Sequence[int]) -> list[int]:
    """Further seeds of which all forks of these arms are over."""
    known = read_declaration(folder / "study.json")["study"]["seeds"] if (folder / "study.json").exists() else []
    jobs = {arm.name: arm.job for arm in narrowed(study, tuple(arms)).arms}

    def over(seed: int) -> bool:
        return all(job.done(StudyFolder(folder).run(arm, seed).folder) for arm, job in jobs.items())

    return [seed for seed in known if seed not in asked and over(seed)]


def _gain(row: ForkRow) -> float:
    """The gain of an arm, for its rank. An arm of which no fork is over comes last."""
    return -math.inf if row.success.number is None else row.success.number


def _split_update(folder: RunFolder, step: int) -> StoredGradients | None:
    """The newest update up to a step whose parts of success were read."""
    newest = [one for one in reversed(folder.attribution_steps()) if one <= step]
    split = (read_gradients(folder.attribution(one)) for one in newest)
    return next((one for one in split if one.metric("attribution/success/total").number is not None), None)


def _agreement(rows: Sequence[ForkRow], stored: StoredGradients | None) -> list[str]:
    """Whether the removal that wins is what took most of success in the split update."""
    known = [row for row in rows if row.attributed is not None]
    if stored is None or not known:
        return []
    worst = min(known, key=lambda row: row.attributed or 0.0)
    held = [stored.metric(f"attribution/success/{part}") for part in worst.arm.parts if part in part_names(stored)]
    took = summed(held)
    if (took.number or 0.0) >= 0 or not is_clear(took):
        return [f"In the split update of step {stored.step} nothing that was taken away here clearly took success."]
    what = worst.arm.words.removeprefix("without ")
    taken = f"In the split update of step {stored.step}, {what} took most of success ({cell(took)})"
    return [f"{taken}: both name the same." if rows[0].named and worst is rows[0] else f"{taken}."]


def _within(metric: Metric) -> str:
    """The interval of a gain with two decimals, or why there is none."""
    if metric.low is None or metric.high is None:
        return f"({metric.why})"
    return f"[{metric.low:+.2f}, {metric.high:+.2f}]"


def _from(series: Series, step: int) -> Series:
    return Series(series.name, tuple(point for point in series.points if point.step >= step))
