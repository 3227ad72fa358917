"""`heedful watch`: an audit of a run that goes on, whose alarms are told when they are raised."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from heedful.auditing.settings import AuditSettings
from heedful.boundary import CommandLine, Positional, Seconds, Shown
from heedful.cli.audit import conclude
from heedful.cli.report import concluded
from heedful.console import SafeConsole

if TYPE_CHECKING:
    from heedful.auditing.follow import Ends


@dataclass(frozen=True, slots=True)
class WatchWords:
    """Watch a run that goes on: measure each step when it is logged, and tell of alarms with their likely causes.

    It runs beside any trainer, and reads what `heedful audit` reads: rollouts, scalars, or both. The log is never
    changed. STATUS.md, status.json and report.html in its folder are kept up to date. Ctrl-C ends it, and the same
    command goes on.

      heedful watch trl-output/completions trl-output/runs
      heedful watch rollout_dumps --ends pid:4711 --on-collapse signal:4711
      heedful watch trl-output --webhook SLACK_URL --trackers trackio
      heedful watch trl-output --once --json

    Exit codes: 0 the watch is over, 2 bad input, 3 an alarm that --fail-on names was raised, 4 none could be judged.
    """

    log: Annotated[str, Positional("LOG")]
    """A folder of rollouts that is filled, a file that grows, or a file of scalars. `heedful audit --help` lists what
    is read."""
    scalars: Annotated[tuple[Path, ...], Positional("SCALARS")] = ()
    """Files or folders of scalars of the same run, joined by step. They need not be there yet."""
    out: Annotated[Path | None, Shown("FOLDER")] = None
    """The folder of the results. Default: <LOG>/heedful-watch, or audits/<name>-watch where LOG is a file or holds the
    rollouts directly."""
    take_over: bool = False
    """Take over the folder from a process on another host that has ended without releasing it."""
    once: bool = False
    """Measure what is there now, and end. The next time goes on from there."""
    ends: Annotated[str, Shown("WHEN")] = "never"
    """When the watch is over: idle:MINUTES without anything new, pid:N a process of this machine has ended, step:N the
    log has come to it, or never."""
    poll: Seconds = 2.0
    """Seconds between two looks at the log."""
    settle: Seconds | None = None
    """Seconds of silence after which a file counts as whole. Default: three polls."""
    on_collapse: Annotated[str, Shown("ACTION")] = "note"
    """What an alarm that names a collapse does: note, stop-file:PATH writes a file for which the trainer looks,
    signal:N sends SIGTERM to a process of yours."""
    webhook: Annotated[str | None, Shown("VARIABLE")] = None
    """The environment variable that holds the URL of a webhook (Slack's or any other), to which alarms are posted."""
    webhook_examples: bool = False
    """Post the best and the worst paid episode of the step, too. Else no text of a rollout leaves this machine."""
    trackers: tuple[Literal["tensorboard", "wandb", "trackio"], ...] = ()
    """Dashboards that get the readings, and the alarms if they take alerts: tensorboard, wandb, trackio."""
    wandb_run: Annotated[str | None, Shown("RUN")] = None
    """Write into this run of W&B (ENTITY/PROJECT/ID) beside its trainer, in place of a new run."""
    fail_on: tuple[str, ...] = ("never",)
    """Alarms for which the exit code is 3: their names, or collapse, warning or notice for all that are at least
    that. The first of them ends the watch. With --ends, a collapse at which --on-collapse stops the trainer does not:
    the trainer's end is waited for. Exit code 4: none of them could be judged."""
    json: bool = False
    """With --once: print the outcome as one JSON object, and everything else to standard error."""
    summary: Annotated[Path | None, Shown("FILE")] = None
    """Append the outcome as Markdown to a file, such as "$GITHUB_STEP_SUMMARY"."""

    def __post_init__(self) -> None:
        if self.json and not self.once:
            raise ValueError("--json prints one outcome: add --once. A watch that goes on keeps status.json up to date")
        if self.webhook_examples and self.webhook is None:
            raise ValueError("--webhook-examples belongs to --webhook VARIABLE")
        if self.wandb_run is not None and "wandb" not in self.trackers:
            raise ValueError("--wandb-run belongs to --trackers wandb")


def main(argv: list[str]) -> int:
    line = CommandLine(WatchWords, argv, "heedful watch")
    words, settings = line.words, line.settings(AuditSettings, AuditSettings())

    from heedful.auditing.follow import follow
    from heedful.report.outcome import Outcome, named_alarms
    from heedful.watching.acting import Dashboards, StopOnCollapse
    from heedful.watching.sinks import Sink
    from heedful.watching.status import Status, run_name
    from heedful.watching.terminal import Terminal
    from heedful.watching.webhook import Webhook, webhook_url

    failures = named_alarms(words.fail_on)
    ends, stop, log = _ends(words.ends), _stop(words.on_collapse), Path(words.log)
    if stop is not None and words.ends != "never":  # it ends when the trainer has stopped, as it was asked to
        failures -= named_alarms(["collapse"])
    signalled = words.on_collapse.partition("signal:")[2]
    console = SafeConsole(soft_wrap=True, stderr=words.json)
    terminal, status = Terminal(console), Status(log)
    sinks: list[Sink] = [terminal, status]

    def note(sentence: str) -> None:
        terminal.note(sentence)
        status.note(sentence)

    if words.trackers:
        sinks.append(Dashboards(words.trackers, {"log": words.log}, words.wandb_run or ""))
    if words.webhook is not None:
        sinks.append(Webhook(webhook_url(words.webhook), run_name(log), note, words.webhook_examples))
    if stop is not None:
        sinks.append(StopOnCollapse(stop, note))
    with ExitStack() as stack:
        for sink in sinks:
            stack.callback(sink.close)
        folder = follow(
            log,
            settings,
            scalars=words.scalars,
            out=words.out,
            sinks=sinks,
            poll=words.poll,
            settle=words.settle,
            ends=replace(ends, alarms=failures),
            once=words.once,
            pid=int(signalled) if signalled and ends.pid is None else None,
            take_over=words.take_over,
        )
    outcome = Outcome.of(folder)
    conclude(console, folder, outcome)
    return concluded(outcome, words)


def _ends(text: str) -> Ends:
    """What --ends says. Raises ValueError, a sentence, for anything else."""
    from heedful.auditing.follow import Ends

    kind, _, value = text.partition(":")
    if text == "never":
        return Ends()
    if kind == "idle" and value.replace(".", "", 1).isdecimal():
        return Ends(idle=60 * float(value))
    if kind in ("pid", "step") and value.isdecimal():
        return Ends(pid=int(value)) if kind == "pid" else Ends(step=int(value))
    raise ValueError(f"Expected --ends idle:MINUTES, pid:N, step:N or never, found {text!r}.")


def _stop(text: str) -> Callable[[str], str] | None:
    """What --on-collapse says. Raises ValueError, a sentence, for anything else, and for what cannot be done."""
    from heedful.watching.acting import stop_by_file, stop_by_signal

    kind, _, value = text.partition(":")
    if kind == "stop-file" and value:
        return stop_by_file(Path(value))
    if kind == "signal" and value.isdecimal():
        return stop_by_signal(int(value))
    if text == "note":
        return None
    raise ValueError(f"Expected --on-collapse note, stop-file:PATH or signal:N, found {text!r}.")
