"""An audit for Python: `heedful.audit`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from heedful.auditing.progress import AuditProgress
from heedful.auditing.recognised import open_log
from heedful.auditing.run import measure_log
from heedful.auditing.settings import AuditSettings
from heedful.boundary import trusting
from heedful.boundary.open_files import path_of
from heedful.console import SafeConsole
from heedful.report.record import stored_sentences
from heedful.storage import RunFolder, StepMetrics, read_metrics


@dataclass(frozen=True, slots=True)
class Audit:
    """An audit and its folder."""

    path: Path

    @property
    def report(self) -> Path:
        """The page."""
        return RunFolder(self.path).report

    @property
    def verdict(self) -> tuple[str, ...]:
        """The sentences that head the page."""
        return stored_sentences(RunFolder(self.path).verdict)

    def metrics(self) -> list[StepMetrics]:
        """All metrics, one entry per measured step of the log."""
        return read_metrics(RunFolder(self.path).metrics)


def audit(
    log: Path | str,
    *,
    model: Path | str | None = None,
    out: Path | str | None = None,
    settings: AuditSettings | None = None,
    trust: Iterable[str] = (),
    show: bool = True,
    take_over: bool = False,
) -> Audit:
    """Measure what a trainer logged: heedful, TRL, verl, verifiers, RAGEN, or plain JSON lines.

    Args:
        log: a file or a folder of rollouts; it is only read.
        model: a causal model (folder or Hugging Face name) that scores the thoughts; without one, what needs no model
            is measured.
        out: the audit's folder; by default `audits/<name>-<n>`. In the folder of an interrupted audit of the same log
            the audit continues.
        settings: everything else that can be set.
        trust: models (a folder or a Hugging Face name) that may run code of their own. No log names code.
        show: print the progress.
        take_over: take over the folder from a process on another host that has ended.

    Raises ValueError, a sentence, where nothing can be read, or `out` holds another audit.
    """
    chosen = AuditSettings() if settings is None else settings
    if not isinstance(chosen, AuditSettings):
        raise ValueError(f"Expected settings as heedful.auditing.AuditSettings(...), found a {type(chosen).__name__}.")
    if model is not None:
        chosen = replace(chosen, model=str(model))
    console = SafeConsole(soft_wrap=True, quiet=not show)
    with trusting(trust), AuditProgress(console) as progress:
        folder = None if out is None else path_of(out, "out")
        return Audit(measure_log(open_log(path_of(log, "log"), chosen), chosen, folder, progress, take_over))
