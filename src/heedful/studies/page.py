"""What a study ends in: `results.json`, a Markdown table, and one self-contained page.

Promise: the page needs no network. Every number has its interval and its n, and a comparison that shows nothing is said
to show nothing.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from heedful.boundary import to_json
from heedful.boundary.jsontext import read_json
from heedful.report.drawing.panel import DrawnPanel
from heedful.report.drawing.standalone import standalone
from heedful.report.templates import chart_style, fill
from heedful.storage import write_whole
from heedful.studies.declaration import Study
from heedful.studies.figures import curves, legend_of, over_the_dial
from heedful.studies.outcomes import Outcomes
from heedful.studies.paired import Count
from heedful.studies.study_folder import StudyFolder
from heedful.studies.tables import markdown_page, markdown_rows, tables
from heedful.studies.verdict import MOST_SENTENCES, verdict
from heedful.version import __version__


def write_results(folder: StudyFolder, study: Study, outcomes: Outcomes, runs_in_all: int) -> list[str]:
    """Write `results.json`, `results.md`, `study.html` and the charts in `figures`; returns the verdict's sentences."""
    sentences = verdict(study, outcomes, runs_in_all)
    write_whole(folder.results, json.dumps(_tree(study, outcomes, sentences), indent=1) + "\n")
    again = command(study, outcomes, _noted(folder, "starts"))
    write_whole(folder.table, markdown(study, outcomes, sentences, again))
    changes = _noted(folder, "remeasured")
    rest = len(changes) - MOST_SENTENCES
    remeasured = changes if rest <= 0 else [*changes[:MOST_SENTENCES], f"and {rest} more, in {folder.declaration.name}"]
    figures = [*over_the_dial(study, outcomes), *(each for reading in outcomes.readings for each in reading.figures)]
    panels = curves(study, outcomes)
    page = fill(
        "study.html",
        {
            "name": study.name,
            "question": study.question,
            "version": __version__,
            "sentences": sentences,
            "notes": study.notes,
            "command": again,
            "arms": _arms(study, outcomes),
            "tables": [(table.title, table.lead, table.rows) for table in tables(study, outcomes)],
            "figures": figures,
            "panels": panels,
            "remeasured": remeasured,
        },
    )
    write_whole(folder.page, page)
    _write_charts(folder.figures, [*figures, *panels])
    return sentences


def _write_charts(folder: Path, panels: Sequence[DrawnPanel]) -> None:
    """Each chart as a file, named after its title. A second one of the same title ends in -2."""
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.svg"):
        old.unlink()
    for panel in panels:
        if not panel.absent:
            stem = re.sub(r"[^a-z0-9]+", "-", panel.title.lower()).strip("-")
            ends = itertools.chain([""], (f"-{number}" for number in itertools.count(2)))
            path = next(path for end in ends if not (path := folder / f"{stem}{end}.svg").exists())
            write_whole(path, standalone(panel, chart_style()))


def markdown(study: Study, outcomes: Outcomes, sentences: Sequence[str], again: str) -> str:
    """The tables as Markdown, for docs/results/. `again`: the command that makes them."""
    lines = [f"# Study: {study.name}", "", study.question, "", f"    {again}", ""]
    lines += [f"- {sentence}" for sentence in sentences]
    for table in tables(study, outcomes):
        lines += ["", table.caption, "", *markdown_rows(table.rows)]
    lines += ["", *(f"- {note}" for note in study.notes)]
    return markdown_page(lines)


def command(study: Study, outcomes: Outcomes, starts: Sequence[Mapping[str, Any]] = ()) -> str:
    """The command that makes these results. `starts`: what each start asked for beyond the declaration."""
    seeds = sorted({each.run.seed for each in outcomes.runs})
    if study.flat and seeds:  # the configuration of each seed is in the study's folder
        environment = to_json(study.arms[0].job.seeded(seeds[0]))["env"]["type"]
        return f"heedful train {environment} --config s{seeds[0]}.json --seeds {','.join(map(str, seeds))}"
    files = [str(start["file"]) for start in starts if start.get("file")]
    programs = [str(start["program"]) for start in starts if start.get("program")]
    program = shlex.split(programs[-1] if programs else "heedful study")
    words = [*program, files[-1] if files else study.name, "--seeds", ",".join(map(str, seeds))]
    asked = [start.get("arms", ()) for start in starts]
    if asked and all(asked):
        words += ["--arms", ",".join(dict.fromkeys(itertools.chain.from_iterable(asked)))]
    steps = {start["steps"] for start in starts if start.get("steps")}
    return shlex.join([*words, *(word for each in steps for word in ("--steps", str(each)))])


def _arms(study: Study, outcomes: Outcomes) -> list[tuple[Any, str, str, str]]:
    samples, controls = legend_of(study), {pair.arm: pair.control for pair in study.pairs}
    return [
        (
            samples[arm.name],
            arm.name,
            f"{len(outcomes.of_arm(arm.name))} of {len(study.seeds)} seeds over",
            f"control: {controls[arm.name]}" if arm.name in controls else "",
        )
        for arm in study.arms
    ]


def _noted(folder: StudyFolder, name: str) -> list[Any]:
    """What `study.json` notes beside the declaration: its `starts`, or what was `remeasured`."""
    return list(read_json(folder.declaration).get(name, [])) if folder.declaration.exists() else []


def _tree(study: Study, outcomes: Outcomes, sentences: Sequence[str]) -> dict[str, Any]:
    read = zip(study.outcomes, outcomes.readings, strict=True)
    return {
        "study": study.name,
        "question": study.question,
        "verdict": list(sentences),
        "runs": [each.run.label for each in outcomes.runs],
        "measures": [_plain(outcome) for outcome in outcomes.measures],
        "outcomes": [{"title": each.title, **_plain(reading.values)} for each, reading in read],
    }


def _plain(value: Any) -> Any:
    """Dataclasses, counts and mappings as JSON; what a property says is not repeated, but exact limits are."""
    if isinstance(value, Count):
        limits = value.limits
        return {"hits": value.hits, "of": value.of, "limits": None if limits is None else list(limits)}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: _plain(getattr(value, each.name)) for each in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value
