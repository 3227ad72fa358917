"""Finished runs written by hand: measurements without training."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from heedful.storage.trackers import JsonlTracker
from heedful.studies.study_folder import StudyFolder, StudyRun
from heedful.types import Metric


class WrittenRuns:
    """Writes run folders into one study's folder."""

    def __init__(self, path: Path) -> None:
        self.folder = StudyFolder(path)

    def add(self, arm: str, seed: int, readings: Mapping[str, Sequence[float | Metric | None]]) -> StudyRun:
        """One reading per step from 0 of every metric; `None` = none at that step."""
        run = self.folder.run(arm, seed)
        tracker = JsonlTracker(run.folder.metrics, clock=lambda: 0.0)
        for step in range(max(map(len, readings.values()))):
            found = [(name, values[step]) for name, values in readings.items() if step < len(values)]
            tracker.write(
                step,
                [
                    Metric(name, value.value, value.n, value.low, value.high, value.why)
                    if isinstance(value, Metric)
                    else Metric(name, value)
                    for name, value in found
                    if value is not None
                ],
            )
        tracker.close()
        run.folder.config.write_text(json.dumps({"env": {"type": "echo"}, "model": "seedling", "seed": seed}))
        run.folder.verdict.write_text(json.dumps({"sentences": [], "regime": "", "figures": {}}))
        return run
