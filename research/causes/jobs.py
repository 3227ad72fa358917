"""Jobs of the studies of causes: the forks of another arm's run, and training on from where another run collapsed."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from heedful.algorithms.table import Grpo
from heedful.boundary import trust_needed
from heedful.report.outcome import Outcome
from heedful.run.edits import edits_of
from heedful.run.train import Run, begin_fork, config_at, resume
from heedful.stopping import exit_code
from heedful.storage import RunFolder, write_whole
from heedful.storage.trackers import JsonlTracker
from heedful.studies.declaration import narrowed
from heedful.studies.forks import alarm_of, claim, fork_study
from heedful.studies.jobs import OwnJob, run_read
from heedful.studies.running.progress import wide_console
from heedful.studies.running.runner import Request, run_study
from heedful.studies.study_folder import StudyFolder
from heedful.types import Metric
from research.causes.chains import COMPONENTS

WITHOUT_ALARM = 10
"""Step before which a run is forked that raised no alarm of a collapse."""


@dataclass(frozen=True, slots=True)
class ForkedJob(OwnJob):
    """`heedful fork` of another arm's run of the same seed, before its first alarm or (healthy) before step 10.

    Removals alone: cures name no cause.

    The forks are in that run's folder. This one gets their results as `forked.json`, and the largest gain as a metric.
    """

    after: str = "healthy"
    fork_steps: int = 6
    seeds: tuple[int, ...] = (101, 102, 103)
    tasks: int = 256

    @property
    def about(self) -> str:
        return (
            f"forks the run of {self.after} before its first alarm, {len(self.seeds)} seeds x {self.fork_steps} steps"
        )

    def with_steps(self, steps: int) -> ForkedJob:
        """A quick look forks for two steps, on two seeds and few tasks."""
        short = replace(self, fork_steps=2, seeds=self.seeds[:2], tasks=16)
        return replace(short, config=replace(self.config, steps=steps))

    def run(self, folder: RunFolder, seed: int) -> int:
        run = Run.open(run_read(self.after, folder).path)
        before = None
        try:
            alarm_of(run, None)
        except ValueError:  # no collapse was raised
            before = str(min(WITHOUT_ALARM, max(run.folder.checkpoint_steps())))
        study = fork_study(run, before, self.fork_steps, self.seeds, tasks=self.tasks)
        study = narrowed(study, tuple(arm.name for arm in study.outcomes[0].arms if arm.kind != "cure"))
        place = claim(run.folder, study)
        code = run_study(Request(study, place, processes=1), wide_console())
        if code:
            return code
        (found,) = json.loads(StudyFolder(place).results.read_text())["outcomes"]
        raised = Outcome.of(run.path)
        found["advice"] = [cause.name for cause in raised.causes()[:1]]
        found["alarm"] = [one.name for one in raised.raised if one.severity == "collapse"][:1]
        folder.path.mkdir(parents=True, exist_ok=True)
        write_whole(folder.path / "forked.json", json.dumps(found, indent=1) + "\n")
        tracker = JsonlTracker(folder.metrics)
        tracker.write(found["checkpoint"], [Metric("fork/gain", found["removals"][0]["success"]["value"])])
        tracker.close()
        write_whole(folder.report, "")  # done
        return 0


@dataclass(frozen=True, slots=True)
class PulledJob(OwnJob):
    """Go on from the end of another arm's run of the same seed, with a KL penalty in place of all rewards but the task.

    The reference is the model with which that run began.
    """

    after: str = "prose"
    kl: float = 0.1

    @property
    def about(self) -> str:
        return f"goes on from the end of {self.after} for {self.steps} steps under a KL penalty of {self.kl:g}"

    def run(self, folder: RunFolder, seed: int) -> int:
        parent = Run.open(run_read(self.after, folder).path)
        step = max(parent.folder.checkpoint_steps())
        before = config_at(parent, step)[0]
        config = replace(
            before, steps=step + self.steps, without_rewards=COMPONENTS, algorithm=Grpo(average="token", kl=self.kl)
        )
        if not folder.fork.exists():
            begin_fork(parent, step, folder.path, config)
        typed = list(edits_of(before, config))
        outcome = resume(folder.path, trust=trust_needed(config), changed=config, typed=typed).outcome
        assert outcome is not None
        return exit_code(outcome.signal) if outcome.interrupted else 0
