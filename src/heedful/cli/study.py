"""`heedful study`: run a declared study - arms x seeds - and end in tables with intervals and a page.

Promise: the same command goes on where an earlier one was interrupted, and nothing that is finished is run again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from heedful.cli.words import asks_for_help, take, take_positional

if TYPE_CHECKING:
    from heedful.studies.runner import Request

USAGE = """usage: heedful study
       heedful study NAME [--out DIR] [--seeds 0,1,2] [--arms a,b] [--steps N] [--processes N]

Without a name: the studies there are. NAME is one of them, or a JSON file of your own (docs/studies.md).

  --out DIR      the study's folder (default: runs/study-NAME); the same one goes on with what was interrupted
  --seeds 0,1,2  in place of the declared ones
  --arms a,b     some of the arms
  --steps N      steps of every arm, for a quick look (default folder: runs/study-NAME-N-steps)
  --processes N  runs side by side (default: as many as there are cores for their threads)
  --remeasure    read finished runs with changed measures; noted in study.json and on the page
  --print        print the declaration as JSON, every setting of every arm

Exit codes: 0 done, 1 a run failed (the others went on), 2 bad input, 130 interrupted and saved."""


def main(argv: list[str]) -> int:
    helping = asks_for_help(argv)
    argv = [word for word in argv if word not in ("--help", "-h")]
    job = take(argv, "job")
    if job is not None:
        return _job(Path(job), argv)
    words = {name: take(argv, name) for name in ("out", "seeds", "arms", "steps", "processes")}
    switches = {name: _switch(argv, name) for name in ("remeasure", "print")}
    name = take_positional(argv)
    if argv:
        raise ValueError(f"`heedful study` does not know {' '.join(argv)}; see heedful study --help.")
    if name is None:
        print(USAGE if helping else _listing())
        return 0
    from heedful.studies import find_study
    from heedful.studies.declaration import narrowed, study_to_json
    from heedful.studies.runner import Request, run_study

    study = find_study(name)
    steps = _count("steps", words["steps"])
    request = Request(
        study,
        Path(words["out"] or f"runs/study-{study.name}{f'-{steps}-steps' if steps else ''}"),
        tuple(filter(None, (words["arms"] or "").split(","))),
        _seeds(words["seeds"]),
        steps,
        _count("processes", words["processes"]),
        switches["remeasure"],
    )
    if helping:
        print(_help(request))
        return 0
    if switches["print"]:
        print(json.dumps(study_to_json(narrowed(study, request.arms, request.seeds, steps)), indent=2))
        return 0
    from rich.console import Console

    console = Console(highlight=False)
    return run_study(request, console if console.is_terminal else Console(highlight=False, width=160))


def _job(path: Path, argv: list[str]) -> int:
    """One run of a job that has no command of its own; the runner starts it so."""
    from heedful.storage import RunFolder
    from heedful.studies.jobs import SamplingJob, job_from_json

    out, seed = take(argv, "out"), take(argv, "seed")
    if out is None or seed is None or argv:
        raise ValueError("Expected heedful study --job FILE --out DIR --seed N.")
    try:
        job = job_from_json(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise ValueError(f"Expected a job in {path}, which cannot be read: {error.strerror}.") from error
    if not isinstance(job, SamplingJob):
        raise ValueError(f"Expected a sampling job in {path}; a training job is begun with heedful train.")
    number = _whole("seed", seed)
    return job.run(RunFolder(Path(out)), number)


def _listing() -> str:
    from heedful.studies import STUDIES
    from heedful.studies.runner import estimate

    lines = ["Studies:", ""]
    for name, make in STUDIES.items():
        study = make()
        lines += [f"  {name}", f"      {study.question}", f"      {estimate(study)}"]
    return "\n".join([*lines, "", "heedful study NAME --help shows one; heedful study NAME runs it."])


def _help(request: Request) -> str:
    from heedful.studies.runner import estimate

    study = request.selected
    arms = [f"  {arm.name:<{max(len(each.name) for each in study.arms)}}  {_kind(arm.job)}" for arm in study.arms]
    measures = [f"  {measure.title} ({measure.metric}, {measure.when})" for measure in study.measures]
    pairs = [f"  {pair.arm} against {pair.control}" for pair in study.pairs]
    return "\n".join(
        [
            f"{study.name}: {study.question}",
            "",
            f"Arms ({len(study.arms)}) x seeds {', '.join(map(str, study.seeds))}:",
            *arms,
            *(["", "Compared, seed by seed:", *pairs] if pairs else []),
            *(["", "Measures:", *measures] if measures else []),
            "",
            f"Cost: {estimate(study, request.processes)}",
            f"Folder: {request.out}",
            "",
            USAGE,
        ]
    )


def _kind(job: object) -> str:
    from heedful.studies.jobs import SamplingJob, TrainingJob

    if isinstance(job, TrainingJob):
        return f"trains {job.config.env.name} for {job.steps} steps"
    if isinstance(job, SamplingJob):
        return f"samples {job.batches} batches of {job.config.groups} x {job.config.group_size} from a warm start"
    return type(job).__name__


def _switch(argv: list[str], name: str) -> bool:
    found = f"--{name}" in argv
    if found:
        argv.remove(f"--{name}")
    return found


def _seeds(text: str | None) -> tuple[int, ...]:
    seeds = tuple(_whole("seeds", part) for part in text.split(",")) if text else ()
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"Expected distinct --seeds, found {text!r}.")
    return seeds


def _count(name: str, text: str | None) -> int | None:
    if text is None:
        return None
    number = _whole(name, text)
    if number < 1:
        raise ValueError(f"Expected --{name} of at least 1, found {text!r}.")
    return number


def _whole(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise ValueError(f"Expected --{name} in whole numbers, found {text!r}.") from error
