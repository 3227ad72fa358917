"""The run of a gradients job: every checkpoint of a finished run is measured, and the readings become its metrics."""

from __future__ import annotations

import json
from collections.abc import Sequence

from heedful.boundary import to_json
from heedful.console import SafeConsole
from heedful.report import write_report
from heedful.report.gradients import write_gradients_page
from heedful.run.config import read_config
from heedful.run.evaluation.subjects import choose_checkpoint
from heedful.run.gradients import GradientsSettings, measure_gradients
from heedful.storage import RunFolder, StoredGradients, read_gradients, write_whole
from heedful.storage.trackers import JsonlTracker


def measure_checkpoints(
    measured: RunFolder, checkpoints: Sequence[int], settings: GradientsSettings, folder: RunFolder
) -> int:
    """Measure the checkpoints that have no measurement yet, into the run they belong to; then copy all into `folder`.

    Returns 0. Raises ValueError where the run has no such checkpoint.
    """
    config, console = read_config(measured), SafeConsole(soft_wrap=True)
    found: dict[int, StoredGradients] = {}
    for step in checkpoints:
        if step:
            choose_checkpoint(measured, config, str(step))
        path = measured.gradients(step)
        # Another arm, or the user, may have measured the run with other settings.
        if not path.exists() or not _is_of(read_gradients(path), settings):
            measure_gradients(measured, config, step, settings, console)
        found[step] = read_gradients(path)
    write_gradients_page(measured)
    folder.path.mkdir(parents=True, exist_ok=True)
    write_whole(folder.config, json.dumps(to_json(config), indent=2) + "\n")
    folder.metrics.unlink(missing_ok=True)
    tracker = JsonlTracker(folder.metrics)
    for step in checkpoints:
        tracker.write(step, list(found[step].metrics.values()))
    tracker.close()
    write_report(folder)
    return 0


def _is_of(stored: StoredGradients, settings: GradientsSettings) -> bool:
    """Whether a measurement was taken with these settings."""
    return all(
        stored.facts.get(name) == getattr(settings, name) for name in ("groups", "group_size", "buckets", "seed")
    )
