"""Runs a study: arms x seeds as processes, resumable, and the tables at its end.

Promise: a finished run is never run again, and an interrupted run goes on from its last checkpoint. A run that fails is
named and stops no other.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from heedful.console import duration
from heedful.stopping import exit_code
from heedful.storage import held
from heedful.studies.declaration import Study, narrowed
from heedful.studies.jobs import ForkJob, TrainingJob, has_begun, job_trust
from heedful.studies.running.growth import Growths, growths, start_of
from heedful.studies.running.processes import Child, at_once, run_children
from heedful.studies.running.progress import RunRow, RunsView
from heedful.studies.running.warm import Warm, warm_server
from heedful.studies.study_folder import StudyFolder, StudyRun

LAST_LINES = 12
"""Lines shown of the log of a run that failed."""

OVER = ("done", "stopped")
"""States of runs with nothing left to do; `stopped` is a run that its own alarm ended."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request to run a study: which part of it, where, and with how many processes."""

    study: Study
    out: Path
    arms: tuple[str, ...] = ()
    """Empty: all of them."""
    seeds: tuple[int, ...] = ()
    """Empty: those declared."""
    steps: int | None = None
    """In place of the declared steps of every arm."""
    processes: int | None = None
    """Runs at the same time; none = as many as have their threads."""
    remeasure: bool = False
    take_over: bool = False
    file: str = ""
    """The JSON file of the declaration. Empty for a declared study."""
    program: str = "heedful study"
    """The command that knows the study by its name."""

    @property
    def selected(self) -> Study:
        """The study as far as it is asked for."""
        return narrowed(self.study, self.arms, self.seeds, self.steps)

    @property
    def overrides(self) -> dict[str, Any]:
        asked = {"arms": list(self.arms), "seeds": list(self.seeds), "steps": self.steps, "file": self.file}
        asked["program"] = "" if self.program == "heedful study" else self.program
        return {name: value for name, value in asked.items() if value}


@dataclass(slots=True)
class _Session:
    """One start of a study."""

    study: Study
    folder: StudyFolder
    runs: list[StudyRun]
    console: Console
    known: dict[str, dict[str, Any]] = field(default_factory=dict)

    def job(self, run: StudyRun) -> Any:
        return self.study.arm(run.arm).job

    def is_over(self, run: StudyRun) -> bool:
        stopped = self.known.get(run.label, {}).get("state") == "stopped" and has_begun(run.folder)
        return stopped or self.job(run).done(run.folder)

    def say(self, text: str, style: str = "") -> None:
        self.console.print(text, style=style, markup=False, soft_wrap=True)


def run_study(request: Request, console: Console) -> int:
    """Run what is left of a study, then write its results and its page.

    Returns:
        0, 1 if a run failed, 128 and the signal if interrupted; for a flat study 3 if an alarm stopped a run.

    Raises:
        ValueError: the folder holds another study, a changed one, or is in use.
    """
    selected, folder = request.selected, StudyFolder(request.out)
    with held(folder.path, lambda sentence: console.print(sentence, markup=False), request.take_over) as lock:
        folder.claim(narrowed(request.study, steps=request.steps), request.overrides, request.remeasure)
        session = _Session(selected, folder, folder.runs(selected), console, folder.read_states())
        pending = [run for run in session.runs if not session.is_over(run)]
        for run in session.runs:  # some ended after their study was killed, with nobody to watch them
            if run not in pending and session.known.get(run.label, {}).get("state", "done") not in OVER:
                session.known[run.label]["state"] = "done"
                folder.write_states(session.known)
        workers = request.processes or _workers(selected)
        kept = len(session.runs) - len(pending)
        already = f", {kept} of them over already" if kept else ""
        side = f"{min(workers, max(1, len(pending)))} at a time"
        session.say(f"study {selected.name}: {len(session.runs)} runs in {folder.path}{already}, {side}", "bold")
        interrupted, failed = _run_pending(session, pending, workers, lock, request.take_over) if pending else (0, [])
        for run in session.runs:  # of a finished run they are kept where the study says so
            if isinstance(session.job(run), TrainingJob) and session.is_over(run) and not selected.keep_checkpoints:
                shutil.rmtree(run.folder.path / "checkpoints", ignore_errors=True)
        unread = _conclude(session)
    return _end(session, failed, interrupted) or (1 if unread else 0)


def reread_study(path: Path, console: Console) -> bool:
    """Write the results of a study's folder again, from its runs as they are now; whether all could be read.

    No run is started. Raises ValueError where the folder cannot be read.
    """
    folder = StudyFolder(path)
    study = folder.read_study()
    with held(folder.path):
        return not _conclude(_Session(study, folder, folder.runs(study), console, folder.read_states()))


def estimate(study: Study, processes: int | None = None) -> str:
    """About how long the whole study takes, in words."""
    if study.minutes is None:
        return "unknown"
    runs, workers = len(study.arms) * len(study.seeds), processes or _workers(study)
    whole = study.minutes * runs * 60
    side = f", {duration(whole / min(workers, runs))} with {workers} at a time" if workers > 1 else ""
    return f"{runs} runs of about {study.minutes:g} min: {duration(whole)} on one core{side}"


def growth(study: Study) -> str:
    """How many models the runs begin with, in words; empty where all are loaded."""
    count = len({start_of(arm.job.seeded(seed)) for arm in study.arms for seed in study.seeds} - {""})
    return f"and {count} {'model' if count == 1 else 'models'} to grow, unless stored" if count else ""


def _workers(study: Study) -> int:
    configs = [arm.job.seeded(study.seeds[0]) for arm in study.arms]
    return min(at_once(config.device, config.threads) for config in configs)


def _run_pending(
    session: _Session, pending: Sequence[StudyRun], workers: int, lock: int, take_over: bool
) -> tuple[int, list[Child]]:
    """Run what is left, and grow what it begins with. The signal that interrupted it, or 0, and what failed."""
    configs = {run.label: session.job(run).seeded(run.seed) for run in pending}
    grown = growths(configs, session.folder.growing, lock, session.console)

    forks = [run for run in pending if isinstance(session.job(run), ForkJob) and configs[run.label].device == "cpu"]

    def child(run: StudyRun, warm: Warm | None) -> Child:
        job, after = session.job(run), session.study.arm(run.arm).after
        taken = ["--take-over"] if take_over and isinstance(job, TrainingJob) else []
        return Child(
            run.label,
            run.log,
            lambda: [*job.command(run.folder, run.seed), *job_trust(job), *taken],
            (lock,),
            lambda: grown.done(run.label) and (not after or session.is_over(session.folder.run(after, run.seed))),
            warm if run in forks else None,
        )

    # Forks are many and short, so torch is loaded once for all of them.
    with warm_server((lock,)) if len(forks) > 1 else nullcontext() as warm:
        children = [child(run, warm) for run in pending]
        interrupted = _watch(session, children, workers, grown)
    failed = [child for child in (*grown.children, *children) if child.state == "failed"]
    if not interrupted:  # nobody asked this growth to end, and runs wait for it
        failed += [child for child in grown.children if child.state == "interrupted"]
    for each in failed:
        session.say(f"{each.label} failed (exit code {each.exit_code}); the end of {each.log}:", "red")
        for line in each.last_words(LAST_LINES):
            session.say(f"  {line}")
    return interrupted, failed


def _watch(session: _Session, children: Sequence[Child], workers: int, grown: Growths) -> int:
    """Run the children; note every state as it changes, so that a killed study knows what it knew."""
    rows = []
    for run in session.runs:
        evaluated = f"eval/{session.job(run).seeded(run.seed).evaluation.split}/sampled/success"
        rows.append(RunRow(run.label, run.folder.metrics, session.job(run).steps, evaluated))
    over = {run.label: "done" for run in session.runs}
    over |= {label: "stopped" for label, known in session.known.items() if known.get("state") == "stopped"}
    before = {label: known.get("seconds", 0.0) for label, known in session.known.items()}
    noted: dict[str, str] = {}

    with RunsView(rows, session.console) as view:

        def show(every: Mapping[str, str]) -> None:
            grown.tell()
            states = {child.label: every[child.label] for child in children}
            if states != noted:
                for child in children:
                    seconds = round(before.get(child.label, 0.0) + child.seconds, 1)
                    session.known[child.label] = {"state": states[child.label], "seconds": seconds}
                session.folder.write_states(session.known)
                noted.update(states)
            view.show(over | states)

        return run_children([*grown.children, *children], workers, show)


def _end(session: _Session, failed: Sequence[Child], interrupted: int) -> int:
    """Say how to go on with what is not done; returns the exit code."""
    path, flat = session.folder.path, session.study.flat
    trust = job_trust(session.study.arms[0].job)
    if interrupted:
        resume = shlex.join(["heedful", "train", "--resume", str(path), *trust])
        session.say(f"interrupted; go on with {resume if flat else f'the same command, which finds {path}'}", "bold")
    if failed:
        waiting = [label for label, known in session.known.items() if known["state"] == "waiting"]
        if waiting and not interrupted:
            session.say(f"not begun, since what failed is needed for them: {', '.join(waiting)}")
        runs = [child.label for child in failed if child.label in session.known]
        if runs:
            session.say(f"{len(runs)} of {len(session.runs)} runs failed: {', '.join(runs)}", "red")
    stopped = [run for run in session.runs if flat and session.is_over(run) and not session.job(run).done(run.folder)]
    if stopped:
        names = ", ".join(str(run.seed) for run in stopped)
        session.say(
            f"an alarm stopped seed {names}: its last evaluation counts, which is not one of a whole run. Go on with:",
            "bold",
        )
        for run in stopped:
            session.say(f"  {shlex.join(['heedful', 'train', '--resume', str(run.folder.path), *trust])}")
        report = shlex.join(["heedful", "report", str(path), *trust])
        session.say(f"and then, for the table of all seeds: {report}")
    return 1 if failed else exit_code(interrupted) if interrupted else 3 if stopped else 0


def _conclude(session: _Session) -> tuple[str, ...]:
    """Write and print what the runs that are over say. Returns those that cannot be read."""
    from heedful.studies.outcomes import read_outcomes
    from heedful.studies.page import write_results
    from heedful.studies.tables import run_rows

    over = [run for run in session.runs if session.is_over(run)]
    if not over:
        session.say("No run is over: there is nothing to read yet.")
        return ()
    begun = {run.arm for run in over}
    study = narrowed(session.study, tuple(arm.name for arm in session.study.arms if arm.name in begun))
    outcomes = read_outcomes(study, over)
    if study.flat:
        header, *rows = run_rows(study, outcomes)
        table = Table(*header, box=None, header_style="bold", pad_edge=False)
        for row in rows:
            table.add_row(*row)
        session.console.print(table)
    for sentence in write_results(session.folder, study, outcomes, len(session.runs)):
        session.say(f"  - {sentence}")
    session.say(f"Table: {session.folder.table}\nPage:  {session.folder.page}")
    if study.flat:
        for run in over:
            session.say(f"Report of seed {run.seed}: {run.folder.report}")
    return outcomes.unread
