"""`heedful study`: a declared study, arms x seeds, which ends in tables with intervals and a page."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from heedful.boundary import CommandLine, Count, Distinct, Positional, Shown, Threads, from_json, settings, tell
from heedful.boundary.jsontext import read_json

if TYPE_CHECKING:
    from heedful.studies.declaration import Study
    from heedful.studies.running.runner import Request


@settings(kw_only=True)
class StudyWords:
    """Run a declared study: arms x seeds, tables with intervals, and a page.

    Without a name the studies are listed. The same command continues an interrupted study, and finished runs are never
    run again.

      heedful study
      heedful study smoke --help
      heedful study my_study.json --processes 2

    Exit codes: 0 done, 1 a run failed (the others continued), 2 bad input, 130, 143, 138 or 129
    interrupted by Ctrl-C, SIGTERM, SIGUSR1 or a closed terminal, and saved.
    """

    name: Annotated[str | None, Positional("NAME")] = None
    """A declared study, or a JSON file of your own (docs/studies.md)."""
    out: Annotated[Path | None, Shown("DIR")] = None
    """The study's folder. Default: runs/study-NAME, with --steps runs/study-NAME-N-steps."""
    seeds: Annotated[tuple[int, ...], Distinct(), Shown("0,1,2")] = ()
    """Seeds in place of the declared ones."""
    arms: Annotated[tuple[str, ...], Shown("A,B")] = ()
    """Run some of the arms only: names, or patterns such as sokoban_*."""
    steps: Annotated[Count | None, Shown("N")] = None
    """Steps of every arm, for a quick look."""
    processes: Annotated[Threads | None, Shown("N")] = None
    """Runs at the same time. Default: the number of cores divided by the threads of a run."""
    remeasure: bool = False
    """Read finished runs with changed measures. This is noted in study.json and on the page."""
    take_over: bool = False
    """Take over the study's folder from a process on another host that has ended without releasing it."""
    print: bool = False
    """Print the declaration as JSON, with every setting of every arm."""
    job: Annotated[Path | None, Shown("FILE")] = None
    """Run one job that does not train. A study starts its runs in this way."""
    seed: Annotated[int | None, Shown("N")] = None
    """The seed of --job."""


def main(
    argv: list[str], studies: Mapping[str, Callable[[], Study]] | None = None, program: str = "heedful study"
) -> int:
    """`studies`: those known by name, in place of heedful's own, and `program` the command that knows them."""
    line = CommandLine(StudyWords, argv, program)
    words = line.words
    if words.name is None or not line.helping:
        line.end()
    if words.job is not None:
        return _job(words, line.besides("job"))
    from heedful.studies import STUDIES, find_study

    studies = STUDIES if studies is None else studies
    if words.name is None:
        lines = ["Studies:", ""]
        for name, make in studies.items():
            study = make()
            lines += [f"  {name}", f"      {study.question}", f"      {_cost(study)}"]
        tell("\n".join([*lines, "", f"{program} NAME --help shows one; {program} NAME runs it."]))
        return 0
    from heedful.studies.declaration import study_to_json
    from heedful.studies.running.progress import wide_console
    from heedful.studies.running.runner import Request, run_study

    study = find_study(words.name, studies)
    folder = f"runs/study-{study.name}{f'-{words.steps}-steps' if words.steps else ''}"
    request = Request(
        study,
        words.out or Path(folder),
        words.arms,
        words.seeds,
        words.steps,
        words.processes,
        words.remeasure,
        words.take_over,
        "" if words.name in studies else words.name,
        program,
    )
    if line.helping:
        tell(f"{_about(request)}\n\n{line.help()}")
        return 0
    if words.print:
        tell(json.dumps(study_to_json(request.selected), indent=2))
        return 0
    return run_study(request, wide_console())


def _job(words: StudyWords, others: list[str]) -> int:
    """Run one seed of a job that has no command of its own. The runner of a study starts it in this way."""
    from heedful.storage import RunFolder
    from heedful.studies.jobs import Runnable, StoredJob

    path = words.job
    if path is None or words.out is None or words.seed is None or sorted(others) != ["--out", "--seed"]:
        raise ValueError("Expected heedful study --job FILE --out DIR --seed N.")
    job = from_json(StoredJob, read_json(path)).job
    if not isinstance(job, Runnable):
        raise ValueError(f"Expected a job without a command of its own in {path}; training begins with heedful train.")
    return job.run(RunFolder(words.out), words.seed)


def _cost(study: Study, processes: int | None = None) -> str:
    from heedful.studies.running.runner import estimate, growth

    return ", ".join(filter(None, (estimate(study, processes), growth(study))))


def _about(request: Request) -> str:
    study = request.selected
    width = max(len(arm.name) for arm in study.arms)
    arms = [f"  {arm.name:<{width}}  {getattr(arm.job, 'about', type(arm.job).__name__)}" for arm in study.arms]
    measures = [f"  {measure.title} ({measure.metric}, {measure.when})" for measure in study.measures]
    pools = [f"  {pool.name}: {', '.join(pool.arms)}" for pool in study.pools]
    pairs = [f"  {names}" for names in (*(p.names for p in study.pairs), *(i.names for i in study.interactions))]
    return "\n".join(
        [
            f"{study.name}: {study.question}",
            "",
            f"Arms ({len(study.arms)}) x seeds {', '.join(map(str, study.seeds))}:",
            *arms,
            *(["", "Pools, of which the mean is taken seed by seed:", *pools] if pools else []),
            *(["", "Compared, seed by seed:", *pairs] if pairs else []),
            *(["", "Measures:", *measures] if measures else []),
            "",
            f"Cost: {_cost(study, request.processes)}",
            f"Folder: {request.out}",
        ]
    )
