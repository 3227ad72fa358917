"""`heedful fork`: what a run would have done from before an alarm, with one thing taken away or given."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated

from heedful.boundary import CommandLine, Count, Distinct, Positional, Shown, Threads, expecting, tell

SEEDS = (101, 102, 103, 104, 105, 106)


@dataclass(frozen=True, slots=True)
class ForkWords:
    """Continue a run from before an alarm, several times, with one thing taken away or given each time.

    Removals take one thing of the run away: a part of the reward, the entropy bonus, the KL penalty, the filter, half
    of the learning rate. The one without which success stays names the cause. Cures give something: the filter, a KL
    penalty. They say what would help. All are compared with the arm that changes nothing, seed by seed.

      heedful train chain --checkpoint-every 5 --keep-checkpoints around
      heedful fork runs/chain-grpo-s0-1
      heedful fork runs/chain-grpo-s0-1 --before template_collapse --steps 12
      heedful fork runs/chain-grpo-s0-1 --before 10 --cure "--algorithm.kl 0.01"

    It ends in a sentence, two tables with intervals, and a page in RUN/forks/1. The run itself does not change. The
    same command goes on with forks that were interrupted. On the built-in models the default size takes minutes.

    Exit codes: 0 done, whatever the answer is; 1 a fork failed; 2 bad input; 130, 143, 138 or 129 interrupted, saved.
    """

    run: Annotated[Path, Positional("RUN")]
    """The folder of a run with a checkpoint from before the alarm."""
    before: Annotated[str | None, Shown("ALARM")] = None
    """The alarm, such as noise_collapse, or a step. Default: the first collapse. Of an alarm the newest checkpoint is
    taken that is two steps or more before its change, of a step the newest one at or before it."""
    steps: Annotated[Count, Shown("N")] = 6
    """Training steps of each fork. It is evaluated after them."""
    seeds: Annotated[tuple[int, ...], Distinct(), Shown("101,102")] = SEEDS
    """Seeds of tasks and sampling. Two show which arm is first. To name a cause takes about six."""
    arms: Annotated[tuple[str, ...], Shown("A,B")] = ()
    """Run only these arms, or patterns such as "no_*", and none. --plan lists them."""
    cure: Annotated[str, Shown('"FLAGS"')] = ""
    """One more cure: settings as after heedful train, in quotes. Of a single word: --cure=--algorithm.kl=0.01."""
    tasks: Annotated[Count | None, Shown("N")] = None
    """Held-out tasks of each evaluation. Default: those of the run, and 256 at most."""
    samples: Annotated[Count, Shown("N")] = 2
    """Sampled episodes of each. One greedy episode comes beside them."""
    processes: Annotated[Threads | None, Shown("N")] = None
    """Forks at the same time. Default: the number of cores divided by the threads of the run."""
    plan: bool = False
    """Print the checkpoint and the arms, and end."""
    json: bool = False
    """Print what was found as one JSON object, and everything else to standard error."""

    def __post_init__(self) -> None:
        with expecting("cure as flags that a shell splits", value=self.cure):
            shlex.split(self.cure)


def main(argv: list[str]) -> int:
    line = CommandLine(ForkWords, argv, "heedful fork")
    line.end()
    words = line.words
    from heedful.boundary.jsontext import read_json
    from heedful.console import plain_table
    from heedful.run.train import Run
    from heedful.studies.declaration import narrowed
    from heedful.studies.fork_arms import NONE
    from heedful.studies.forks import claim, finished, fork_study
    from heedful.studies.running.progress import wide_console
    from heedful.studies.running.runner import Request, run_study
    from heedful.studies.study_folder import StudyFolder

    run = Run.open(words.run)
    study = fork_study(run, words.before, words.steps, words.seeds, words.tasks, words.samples, words.cure)
    asked = (NONE, *words.arms) if words.arms else ()
    (forks,) = narrowed(study, asked).outcomes
    console = wide_console(stderr=words.json)
    where = f"{forks.alarm} at step {forks.step}" if forks.alarm else f"step {forks.step}"
    console.print(f"forks of {words.run} from the checkpoint of step {forks.checkpoint}, before {where}")
    listed = plain_table("arm", "kind", "flags", left="flags")
    for arm in forks.arms:
        listed.add_row(arm.name, arm.kind, arm.flags)
    console.print(listed)
    if words.plan:
        if words.json:
            tell(json.dumps({"checkpoint": forks.checkpoint, "arms": list(map(asdict, forks.arms))}, indent=1))
        return 0
    folder = claim(run.folder, study)
    seeds = (*words.seeds, *finished(study, folder, asked, words.seeds))
    typed, usual = asdict(words), asdict(ForkWords(words.run))
    changed = [name for name in ("before", "steps", "tasks", "samples", "cure") if typed[name] != usual[name]]
    # A cure of a single word would read as a flag of this command.
    pairs = ([f"--{name}={typed[name]}"] if name == "cure" else [f"--{name}", str(typed[name])] for name in changed)
    program = shlex.join(["heedful", "fork", *chain.from_iterable(pairs)])
    request = Request(study, folder, asked, seeds, processes=words.processes, file=str(words.run), program=program)
    code = run_study(request, console)
    results = StudyFolder(folder).results
    if code or not results.exists():
        return code
    (found,) = read_json(results)["outcomes"]
    for title, (header, *rows) in found["tables"].items():
        if not rows:
            continue
        console.print(title, style="bold")
        shown = plain_table(*header, left=header[-1])
        for row in rows:
            shown.add_row(*row)
        console.print(shown)
    if words.json:
        tell(json.dumps(found, ensure_ascii=False, indent=1))
    return 0
