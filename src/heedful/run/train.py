"""A run from end to end, for Python and for the command line: `train`, `resume`, and the `Run` that they return."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from heedful.boundary import tell, to_json, trust_flags, trust_needed, trusting
from heedful.boundary.jsontext import read_json
from heedful.console import SafeConsole
from heedful.report.record import stored_sentences
from heedful.run.config import TrainConfig, from_written, read_config
from heedful.run.edits import (
    edits_of,
    refuse_edits,
    refuse_fewer_steps,
    refuse_other_ranks,
    refuse_to_begin_anew,
    settings_of_rank,
)
from heedful.run.evaluation.subjects import choose_checkpoint
from heedful.run.presets import preset
from heedful.storage import (
    DiskFull,
    Rollouts,
    RunFolder,
    StepMetrics,
    advising,
    describe_environment,
    held,
    read_metrics,
    read_rollouts,
    write_whole,
)
from heedful.training.ranks.parallel import ProcessRank
from heedful.types import Metric

if TYPE_CHECKING:
    from heedful.protocols import Tracker
    from heedful.run.loop import Outcome
    from heedful.training.ranks.world import World

OnStep = Callable[[int, Mapping[str, Metric]], object]
"""Called after each step with its number (from 0) and its metrics by name. Returning `False` stops the run.

The evaluation after the last step is no step: `Run.series` has it."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run and its folder: finished, interrupted, or still running in another process."""

    path: Path
    config: TrainConfig
    outcome: Outcome | None = None
    """The end of training. `None` for a run that was opened."""

    @classmethod
    def open(cls, path: Path | str, trust: Iterable[str] = ()) -> Run:
        """Read the run in a folder. `trust`: modules of your own that its settings may name as `module:Class`.

        Raises ValueError, a sentence, where there is no run, or its settings name code that is not trusted.
        """
        folder = RunFolder.open(path, resume=True)
        with trusting(trust):
            return cls(folder.path, read_config(folder))

    @property
    def folder(self) -> RunFolder:
        """The paths of its files."""
        return RunFolder(self.path)

    @property
    def report(self) -> Path:
        """The page of the run, written when the run ends, or by `heedful report`."""
        return self.folder.report

    @property
    def verdict(self) -> tuple[str, ...]:
        """The sentences of the conclusion. Empty before the run has ended."""
        return stored_sentences(self.folder.verdict)

    def metrics(self) -> list[StepMetrics]:
        """All metrics so far, one entry per line of `metrics.jsonl`."""
        return read_metrics(self.folder.metrics)

    def series(self, name: str) -> list[tuple[int, Metric]]:
        """One metric over the steps at which it was written, the missing ones (`value` None) included.

        Raises ValueError for a name that the run never wrote.
        """
        found = [(line.step, metric) for line in self.metrics() for own, metric in line.metrics.items() if own == name]
        if not found:
            raise ValueError(
                f"Expected a metric of the run {self.path}, found {name!r:.80}. docs/metrics.md lists the names."
            )
        return found

    def rollouts(self, step: int, of: str = "") -> Rollouts:
        """The stored episodes of a step. `of` names an evaluation, such as `val_greedy`.

        Raises ValueError for episodes that the run does not have.
        """
        return read_rollouts(self.folder.rollouts(step, of))

    def resume(self, *, on_step: OnStep | None = None, show: bool = True) -> Run:
        """Continue from the last checkpoint."""
        return resume(self.path, trust=trust_needed(self.config), on_step=on_step, show=show)


def train(
    config: TrainConfig | str,
    *,
    out: Path | str | None = None,
    trust: Iterable[str] = (),
    on_step: OnStep | None = None,
    show: bool = True,
    take_over: bool = False,
) -> Run:
    """Train, evaluate, measure, and write the report and the verdict.

    Args:
        config: the configuration, or the name of a preset such as `"frozen_lake"`.
        out: the run's folder, new or empty. By default `runs/<environment>-<algorithm>-s<seed>-<n>`.
        trust: models (a folder or a Hugging Face name) that may run code of their own.
        on_step: called after each step. It may return False to stop the run, which is then saved.
        show: print the live table, notes and the verdict.
        take_over: take over the folder from a process on another host that has ended.

    Ctrl-C, SIGTERM, SIGUSR1 and SIGHUP finish the step, save and return. A second one raises KeyboardInterrupt.
    Handlers of the program for one of the last three stay. Under torchrun, each process calls this function.

    Raises:
        ValueError: the configuration or the folder cannot be used, or another process is at work in the folder. No
            files are left behind.
    """
    chosen = preset(config) if isinstance(config, str) else config
    with trusting(trust):
        return _run(chosen, lambda: _new_folder(chosen, out), _Reporting(on_step, show, take_over), resumed=False)


def resume(
    path: Path | str,
    *,
    trust: Iterable[str] = (),
    on_step: OnStep | None = None,
    show: bool = True,
    take_over: bool = False,
    changed: TrainConfig | None = None,
    typed: Sequence[str] = (),
    checkpoint: int | str | None = None,
    out: Path | str | None = None,
) -> Run:
    """Continue a run from its last checkpoint, or from an earlier one. See `train` for the other arguments.

    Args:
        trust: names that may run code: modules that the run's settings name as `module:Class`, and models (a folder
            or a Hugging Face name) with code of their own.
        changed: a configuration to go on with. It replaces that of the folder.
        typed: dotted names of the settings in which it differs, such as `optimizer.lr`. A difference in any other
            setting from those of the checkpoint is refused.
        checkpoint: go on from this one (a step, `last` or `best`) in the new folder `out`, with a copy of what came
            before it. The run itself stays as it is.
    """
    with trusting(trust):
        run = Run.open(path)
        config = run.config if checkpoint is None else config_at(run, checkpoint)[0]
        names = (
            re.sub(r"(^|\.)no_", r"\1", name.replace("-", "_")) for name in typed
        )  # --tags.no-force sets tags.force
        told = _Reporting(on_step, show, take_over, frozenset(names))
        find_folder = (lambda: run.folder) if checkpoint is None else (lambda: _forked(run, checkpoint, out))
        return _run(changed or config, find_folder, told, resumed=True)


def config_at(run: Run, checkpoint: int | str) -> tuple[TrainConfig, int]:
    """The configuration under which a checkpoint of a run was written, and the checkpoint's step."""
    from heedful.run.checkpoint import Checkpoint

    step, _ = choose_checkpoint(run.folder, run.config, str(checkpoint))
    written = Checkpoint(run.folder.checkpoint(step), step).settings()
    return run.config if written is None else from_written(written), step


def _forked(run: Run, checkpoint: int | str, out: Path | str | None) -> RunFolder:
    """A new folder with the run as it was at a checkpoint."""
    from heedful.run.checkpoint import Checkpoint

    config, step = config_at(run, checkpoint)
    Checkpoint(run.folder.checkpoint(step), step).check("Restore it, or choose another checkpoint.")
    folder = _new_folder(config, out)
    run.folder.copy_until(step, folder.path)
    write_whole(folder.config, json.dumps(to_json(config), indent=2) + "\n")
    return folder


def begin_fork(run: Run, step: int, path: Path, config: TrainConfig) -> RunFolder:
    """A folder that `resume` goes on with from a checkpoint of a run, under other settings, and without its episodes.

    `fork.json` in it is written last. Alarms that were raised before the checkpoint are reported again if they stand.

    Raises ValueError for a checkpoint whose files have changed since they were written.
    """
    from heedful.run.checkpoint import Checkpoint

    checkpoint = Checkpoint(run.folder.checkpoint(step), step)
    checkpoint.check("Restore it: a fork goes on with what the run was.")
    folder = RunFolder.open(path)
    run.folder.copy_until(step, folder.path, episodes=False)
    folder.truncate_after(step - 1)
    write_whole(folder.config, json.dumps(to_json(config), indent=2) + "\n")
    edits = edits_of(config_at(run, step)[0], config)
    about = {"parent": str(run.path.resolve()), "checkpoint": step, "checksum": checkpoint.digest(), "edits": edits}
    write_whole(folder.fork, json.dumps(about, indent=1) + "\n")
    return folder


def _new_folder(config: TrainConfig, out: Path | str | None) -> RunFolder:
    if out not in (None, ""):
        return RunFolder.open(out)
    return RunFolder.create("runs", config.env.name, algorithm_name(config), config.seed)


def algorithm_name(config: TrainConfig) -> str:
    """The name by which the command line chooses the algorithm."""
    return str(to_json(config)["algorithm"]["type"])


@dataclass(slots=True)
class _Reporting:
    """How a run was asked for. As a tracker it is called last, after the step is on disk."""

    on_step: OnStep | None
    show: bool
    take_over: bool = False
    typed: frozenset[str] = frozenset()
    """The settings that the user changed for the rest of the run, such as `optimizer.lr`."""
    stopped: bool = False

    def write(self, step: int, metrics: Sequence[Metric]) -> None:
        by_name = {metric.name: metric for metric in metrics}
        if self.on_step is not None and "success/rate" in by_name:  # an evaluation after the last step has none
            import numpy as np

            answer = self.on_step(step, by_name)
            self.stopped |= isinstance(answer, bool | np.bool_) and not answer  # numpy's comparisons have their own

    def close(self) -> None: ...


def _run(config: TrainConfig, find_folder: Callable[[], RunFolder], told: _Reporting, resumed: bool) -> Run:
    """The run in this process, which may be one of several. Rank 0 finds and holds the folder."""
    process, tree = ProcessRank.of(os.environ), to_json(config)
    with ExitStack() as until_the_end:
        # Torch is loaded here, after all checks that do not need it.
        from heedful.models.load import pick_device
        from heedful.training.ranks.world import Joined, local_device

        device = local_device(pick_device(config.device), process)
        with Joined(process, device, config.parallel.timeout) as world:
            refuse_other_ranks(world.gather(settings_of_rank(config, resumed)))
            folder = RunFolder(Path())
            if world.is_rank_0:
                folder = find_folder()
                until_the_end.enter_context(held(folder.path, tell if told.show else None, told.take_over))
                folder = RunFolder.open(folder.path, resumed)  # as it was, now that nobody else can begin here
                if not resumed:
                    write_whole(folder.config, json.dumps(tree, indent=2) + "\n")
            folder = world.broadcast(folder)
            try:
                with advising(f"heedful train --resume {folder.path}"):
                    outcome = _train(config, folder, world, told, resumed)
            except ValueError as error:
                has_begun = folder.metrics.exists() and folder.metrics.stat().st_size > 0
                refused = not isinstance(error, DiskFull)  # whose sentence names this folder to go on with
                if refused and world.is_rank_0 and not resumed and folder.in_place and not has_begun:
                    shutil.rmtree(folder.path)  # refused before anything was computed
                raise
            config = read_config(folder) if process.is_rank_0 else config  # with the tags of the model
        run = Run(folder.path, config, outcome)  # all ranks have left each other
        if process.is_rank_0:
            with advising(f"heedful train --resume {run.path}"):
                _conclude(run, outcome, told.show)
    return run


def _train(config: TrainConfig, folder: RunFolder, world: World, told: _Reporting, resumed: bool) -> Outcome:
    """The run in one process. Rank 0 shows it and keeps its record."""
    from heedful.run import checkpoint
    from heedful.run.loop import train_steps
    from heedful.run.parts import assemble
    from heedful.run.terminal import GrowthBar, TerminalView
    from heedful.storage.trackers import JsonlTracker, open_trackers

    found = checkpoint.checkpoints(folder.path / "checkpoints") if resumed and world.is_rank_0 else []
    if found:
        found[-1].check()
        refuse_edits(found[-1].settings(), config, folder, told.typed)
        refuse_fewer_steps(config.steps, found[-1].version, folder)
    elif resumed and world.is_rank_0:
        refuse_to_begin_anew(folder, config)
    start = world.broadcast(found[-1] if found else None)
    version = start.version if start else 0
    console = SafeConsole(soft_wrap=True, quiet=not (told.show and world.is_rank_0))
    view = TerminalView(config.steps, version, config.tags, console)
    if not world.is_rank_0:
        parts = assemble(config, GrowthBar(console), start, world)
        return train_steps(replace(config, tags=parts.renderer.tags), parts, folder, [], view)
    if resumed:
        if version and not folder.metrics.exists():
            view.note(f"{folder.metrics} is missing: the measurements of the first {version} steps are lost.")
        view.note(f"resuming {folder.path} after step {version} of {config.steps}")
    if world.size > 1:
        held = "each with a shard of the model" if config.parallel.sharded else "each with the whole model"
        view.note(f"{world.size} processes, {held}")
    if not folder.environment.exists():
        found_here = describe_environment(str(world.device), config.threads, world.size)
        write_whole(folder.environment, json.dumps(found_here, indent=2) + "\n")
    trackers: list[Tracker] = [*open_trackers(config.trackers, folder.path, to_json(config)), told]
    asked = config
    try:
        with GrowthBar(console) as bar:
            parts = assemble(config, bar, start, world)
        config = replace(config, tags=parts.renderer.tags)
        view.tags = config.tags
        if start and folder.fork.exists() and read_json(folder.fork)["checkpoint"] == start.version:
            parts.diagnostician.alarms.forget_raised()
        if resumed:  # the folder changes only now that settings and checkpoint have been found to fit
            folder.truncate_after(version - 1)
        if told.typed or config != asked:
            write_whole(folder.config, json.dumps(to_json(config), indent=2) + "\n")
        trackers.insert(0, JsonlTracker(folder.metrics))
        with view:
            return train_steps(config, parts, folder, trackers, view, lambda: told.stopped)
    finally:
        for tracker in trackers:
            tracker.close()


def _conclude(run: Run, outcome: Outcome, show: bool) -> None:
    """Write the verdict and the report of a run that has ended, and print its last lines."""
    from heedful.report import write_report
    from heedful.run.evaluation.verdict import conclude
    from heedful.run.terminal import TerminalView

    console = SafeConsole(soft_wrap=True, quiet=not show)
    view = TerminalView(run.config.steps, outcome.version, run.config.tags, console)
    resuming = shlex.join(["heedful", "train", "--resume", str(run.path), *trust_flags(run.config)])
    if outcome.interrupted:
        view.note(f"interrupted after step {outcome.version}, saved; go on with: {resuming}")
        return
    if outcome.stopped_by:
        view.note(
            f"stopped after step {outcome.version} by {', '.join(outcome.stopped_by)}, saved; look at "
            f"{write_report(run.folder)}, and if you want to go on all the same: {resuming}"
        )
        return
    conclusion = conclude(run.folder, run.config)
    view.note("\nVerdict")
    for sentence in conclusion.sentences:
        view.line(f"  - {sentence}")
    view.line(f"  Run folder: {run.path}\n  Report:     {write_report(run.folder)}")
