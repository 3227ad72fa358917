"""The run of a gradients job: every checkpoint of a finished run is measured, and the readings become its metrics."""

from __future__ import annotations

import json
from collections.abc import Sequence

from heedful.configuration import to_json
from heedful.console import SafeConsole
from heedful.report import write_report
from heedful.report.gradients import write_gradients_page
from heedful.run.evaluation.subjects import choose_checkpoint, read_config
from heedful.run.gradients import GradientsSettings, measure_gradients
from heedful.storage import RunFolder, read_gradients, write_whole
from heedful.storage.trackers import JsonlTracker


def measure_checkpoints(
    measured: RunFolder, checkpoints: Sequence[int], settings: GradientsSettings, folder: RunFolder
) -> int:
    """Measure the checkpoints that have no measurement yet, into the run they belong to; then copy all into `folder`.

    Returns 0. Raises ValueError where the run has no such checkpoint.
    """
    config, console = read_config(measured), SafeConsole(soft_wrap=True)
    for step in checkpoints:
        if step:
            choose_checkpoint(measured, config, str(step))
        if not measured.gradients(step).exists():
            measure_gradients(measured, config, step, settings, console)
    write_gradients_page(measured)
    folder.path.mkdir(parents=True, exist_ok=True)
    write_whole(folder.config, json.dumps(to_json(config), indent=2) + "\n")
    folder.metrics.unlink(missing_ok=True)
    tracker = JsonlTracker(folder.metrics)
    for step in checkpoints:
        tracker.write(step, list(read_gradients(measured.gradients(step)).metrics.values()))
    tracker.close()
    write_report(folder)
    return 0
