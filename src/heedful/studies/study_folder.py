"""The folder of a study: its declaration, its runs and their states.

Promise: a folder never holds runs of two different declarations, and one process at a time works in it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heedful.boundary import cut, listed
from heedful.boundary.jsontext import expecting, read_json
from heedful.report.record import flatten
from heedful.storage import LOCK, RunFolder, describe_environment, write_whole
from heedful.studies.declaration import Study, study_from_json, study_to_json


@dataclass(frozen=True, slots=True)
class StudyRun:
    """One arm with one seed."""

    arm: str
    seed: int
    folder: RunFolder
    label: str
    """The run's folder within the study's, such as `top_p/s0`."""

    @property
    def log(self) -> Path:
        return self.folder.path.with_name(f"{self.folder.path.name}.log")


@dataclass(frozen=True, slots=True)
class StudyFolder:
    """The paths of one study. Making the object touches nothing."""

    path: Path

    @property
    def declaration(self) -> Path:
        """The declaration, and what each start asked for in its place."""
        return self.path / "study.json"

    @property
    def states(self) -> Path:
        """State and seconds of each run."""
        return self.path / "runs.json"

    @property
    def results(self) -> Path:
        return self.path / "results.json"

    @property
    def table(self) -> Path:
        return self.path / "results.md"

    @property
    def page(self) -> Path:
        return self.path / "study.html"

    @property
    def figures(self) -> Path:
        """The page's charts as SVG files."""
        return self.path / "figures"

    @property
    def growing(self) -> Path:
        """Jobs and logs of the models that are grown for several runs."""
        return self.path / "growing"

    def run(self, arm: str, seed: int, flat: bool = False) -> StudyRun:
        label = f"s{seed}" if flat else f"{arm}/s{seed}"
        return StudyRun(arm, seed, RunFolder(self.path / label), label)

    def runs(self, study: Study) -> list[StudyRun]:
        """The runs of a study, seed by seed: so an unfinished study holds whole comparisons."""
        return [self.run(arm.name, seed, study.flat) for seed in study.seeds for arm in study.arms]

    def claim(self, study: Study, overrides: Mapping[str, Any], remeasure: bool) -> None:
        """Take the folder for this study, new or begun.

        Further seeds and arms are welcome: their runs join those that are there.

        Raises:
            ValueError: the folder holds something else, or the declaration of the runs in it has changed. What is
                read out of the runs may change with `remeasure`, which is noted in the file.
        """
        declared = study_to_json(study)
        notes: list[str] = []
        starts: list[Any] = []
        if self.declaration.exists():
            before = read_declaration(self.declaration)
            notes, starts = list(before.get("remeasured", [])), list(before.get("starts", []))
            self._refuse_changes(_completed(before["study"]), declared, remeasure, notes)
            known = {arm["name"] for arm in declared["arms"]}
            declared["arms"] += [arm for arm in before["study"]["arms"] if arm["name"] not in known]
            declared["seeds"] = sorted({*before["study"]["seeds"], *declared["seeds"]})
            self._check(declared)
        elif self.path.exists() and any(entry.name != LOCK for entry in self.path.iterdir()):
            raise ValueError(
                f"Expected an empty or new folder for the study at {self.path}, or one that it was begun in, found "
                "other files. Give another --out."
            )
        tree = {
            "study": declared,
            "starts": [*starts, dict(overrides)],
            "remeasured": notes,
            "environment": describe_environment("see each run", study.arms[0].job.seeded(0).threads),
        }
        write_whole(self.declaration, json.dumps(tree, indent=1) + "\n")

    def _refuse_changes(
        self, before: Mapping[str, Any], now: Mapping[str, Any], remeasure: bool, notes: list[str]
    ) -> None:
        jobs = {arm["name"]: arm["job"] for arm in before["arms"]}
        both = [(arm["name"], jobs[arm["name"]], arm["job"]) for arm in now["arms"] if arm["name"] in jobs]
        runs = [(name, _without_alarms(old), _without_alarms(new)) for name, old, new in both]
        changed = [f"arm {name}: {change}" for name, old, new in runs for change in _changes(old, new)]
        if changed:
            told = listed(changed, most=6, between="; ")
            raise ValueError(
                f"Expected the runs in {self.path} to be those of this declaration, but it has changed: "
                f"{told}. Give another --out for the changed study, or take the change back to go on here."
            )
        changed = _changes(*({name: tree.get(name, []) for name in ("measures", "outcomes")} for tree in (before, now)))
        if not changed:  # what is left are the alarms' thresholds, which change what a run says but not what it does
            changed = [f"arm {name}: {change}" for name, old, new in both for change in _changes(old, new)]
        if changed and not remeasure:
            told = listed(changed, most=6, between="; ")
            raise ValueError(
                f"What is read out of the runs in {self.path} has changed since they were begun: {told}. "
                "Add --remeasure to read them again, which is noted in study.json, or give another --out."
            )
        notes += changed

    def read_study(self) -> Study:
        """The study that was declared here, with every arm and seed that joined it since.

        Raises ValueError where there is none, or it cannot be understood.
        """
        return self._check(read_declaration(self.declaration)["study"])

    def _check(self, declared: Mapping[str, Any]) -> Study:
        """The study of this folder from its tree. Raises ValueError where it cannot be one."""
        try:
            return study_from_json(declared)
        except ValueError as error:
            raise ValueError(f"The study in {self.declaration} cannot be used. {error}") from error

    def read_states(self) -> dict[str, dict[str, Any]]:
        """Label -> `state` and `seconds`, for the runs that were started."""
        return dict(read_json(self.states)) if self.states.exists() else {}

    def write_states(self, states: Mapping[str, Mapping[str, Any]]) -> None:
        write_whole(self.states, json.dumps(states, indent=1) + "\n")


def read_declaration(path: Path) -> dict[str, Any]:
    """The content of a `study.json`. Raises ValueError where it cannot be read."""
    with expecting(f"the declaration of a study in {path}", "Restore the file."):
        tree: dict[str, Any] = read_json(path)
    return tree


def _completed(declared: Mapping[str, Any]) -> Mapping[str, Any]:
    """A declaration with the defaults of settings that did not exist when it was written."""
    try:
        return study_to_json(study_from_json(declared))
    except ValueError:  # a setting is gone: the comparison names it
        return declared


def _without_alarms(job: Mapping[str, Any]) -> dict[str, Any]:
    """A job without the thresholds of its alarms, where alarms only warn: then they change no other number."""
    config = job["config"]
    if config.get("on_collapse") != "warn":
        return dict(job)
    others = {name: value for name, value in config["diagnostics"].items() if name != "alarms"}
    return {**job, "config": {**config, "diagnostics": others}}


def _changes(before: Any, now: Any) -> list[str]:
    """Each setting that differs, with both values."""
    old, new = flatten({"": _by_name(before)}), flatten({"": _by_name(now)})
    keys = dict.fromkeys([*old, *new])
    return [
        f"{key.strip('.')} was {cut(old.get(key, 'absent'), 120)}, is {cut(new.get(key, 'absent'), 120)}"
        for key in keys
        if old.get(key) != new.get(key)
    ]


def _by_name(tree: Any) -> Any:
    """Lists of objects as objects under their titles, so that a change is named where it is."""
    if isinstance(tree, list) and tree and all(isinstance(item, dict) for item in tree):
        titles = [str(item.get("title", place)) for place, item in enumerate(tree)]
        distinct = len(set(titles)) == len(titles)
        tree = dict(zip(titles if distinct else map(str, range(len(tree))), tree, strict=True))
    return {name: _by_name(value) for name, value in tree.items()} if isinstance(tree, dict) else tree
