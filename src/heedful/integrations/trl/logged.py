"""`HeedfulCallback`: watches a run of TRL by what TRL logs, in one line and without a part in the training.

TRL shows a callback its scalars and the model, and neither rewards nor completions. These are in TRL's log of
completions, `<output_dir>/completions/completions_<step>.parquet`. Its file of a step is written after `on_log`, and an
evaluation writes its own completions over it after its own `on_log`. So the rows are read at the next event. A step is
closed before the next one begins, and then holds the scalars of its evaluation, too.
"""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

from accelerate.state import AcceleratorState
from transformers import TrainerControl, TrainerState, TrainingArguments
from trl import GRPOConfig

from heedful.auditing import AuditSettings, open_log
from heedful.auditing.logs.files import rows_of
from heedful.auditing.logs.records import Faults
from heedful.auditing.pipeline import Pipeline
from heedful.auditing.recognised import RecognisedLog
from heedful.auditing.record import RECORD, STATES, AuditRecord, Prints, resume
from heedful.auditing.scalars import mapped
from heedful.auditing.scalars.files import row_of
from heedful.auditing.scalars.history import ScalarFile
from heedful.auditing.scoring import ModelJudge
from heedful.auditing.steps import LoggedStep, steps_of
from heedful.boundary import listed
from heedful.integrations.trl.callback import Bridge
from heedful.integrations.trl.observer import sharded
from heedful.integrations.trl.settings import HeedfulConfig
from heedful.integrations.watching.record import numbered, taken
from heedful.integrations.watching.settings import truncating
from heedful.scorers.hf import HFScorer
from heedful.storage import write_whole
from heedful.storage.trackers import Guarded, TensorBoardTracker
from heedful.types import Metric
from heedful.watching.acting import StopOnCollapse
from heedful.watching.sinks import Measured, Sink
from heedful.watching.status import Status, run_name
from heedful.watching.webhook import Webhook, webhook_url

_LOG = logging.getLogger("heedful")
FOLDER = "heedful-watch"
"""The folder with what was found, in TRL's output folder. A second run there has `heedful-watch-2`."""
SCORER = "next"
"""The name of the trainer's own model as a scorer: its weights are those after the update that used the rows."""


@dataclass(slots=True)
class _Open:
    """A step that was logged, and may still get the scalars of its evaluation."""

    number: int
    trained: bool = False
    """The log of completions holds rows of its training."""
    rows: LoggedStep | None = None


class HeedfulCallback(Bridge):
    """Watches a run of `GRPOTrainer`, in one line:

        trainer = GRPOTrainer(..., callbacks=[HeedfulCallback()])

    What is found goes to `<output_dir>/heedful-watch`: `metrics.jsonl`, `STATUS.md`, `status.json` and the page. Alarms
    are warnings of the logger `heedful`. TRL's log of completions is turned on. Nothing of the training is changed, and
    an error ends the watch alone, with a warning.
    """

    state_file = "heedful-watch.json"

    def __init__(
        self,
        settings: AuditSettings | None = None,
        *,
        score: bool = False,
        webhook: str = "",
        on_collapse: Literal["note", "stop"] = "note",
    ) -> None:
        """
        Args:
            settings: how the log is read, as by `heedful audit`.
            score: the trainer's own model scores the logged thoughts. Its metrics are those of another scorer
                (`information@next/...`), since its weights are those after the update that used the rows.
            webhook: the environment variable that holds a URL, to which alarms are posted.
            on_collapse: stop = an alarm that names a collapse ends the training after the next step, saved.

        Raises ValueError where the environment variable holds no URL, and for settings that name a model or join steps.
        """
        super().__init__(stops=on_collapse == "stop")
        self._settings = settings or AuditSettings()
        if self._settings.scores or self._settings.join > 1:
            raise ValueError(
                "HeedfulCallback expected settings without a model, a server and join: it scores with the trainer's "
                "own model (score=True), and measures each step. Another model scores beside the run: heedful watch."
            )
        self._scores = score
        self._url = webhook_url(webhook) if webhook else ""
        self._model: Any = None
        self._tokenizer: Any = None
        self._active = False
        self._error = ""
        self._temperature = 1.0
        self._of_groups = True
        """TRL's share of rewards without spread is one of groups."""
        self._lock = ExitStack()
        self._completions = self._folder = Path()
        self._sinks: list[Sink] = []
        self._forget()

    def _forget(self) -> None:
        self._log: RecognisedLog | None = None
        self._pipeline: Pipeline | None = None
        self._scalars = ScalarFile(Path(), mapped(self._settings.map))
        self._faults = Faults()
        self._prints = Prints()
        self._open: _Open | None = None
        self._early: list[_Open] = []
        """Steps before the first one with rows."""
        self._evaluated = False
        """TRL's log holds rows of an evaluation that are later than the last batch."""

    def on_init_end(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """TRL looks after this whether it is to log completions.

        Raises ValueError for other trainers, which write none in TRL 1.16 (RLOOTrainer hands them to W&B), and with
        `score` for a model that cannot be scored.
        """
        if not isinstance(args, GRPOConfig):
            raise ValueError(
                "HeedfulCallback expected a GRPOTrainer, which writes its completions to files, found one with "
                f"{type(args).__name__}. Leave it out. Probe measures inside RLOOTrainer, and AsyncGroups inside "
                "AsyncGRPOTrainer. For another trainer watch the scalars: heedful watch EVENT_FILES."
            )
        if not args.log_completions:
            args.log_completions, args.num_completions_to_print = True, 0
            if sent := sorted({"wandb", "trackio"}.intersection(args.report_to)):
                _LOG.warning(f"TRL logs completions for heedful, and so sends them to {listed(sent)}, too.")
        if not self._scores:
            return
        kind, given = sharded(AcceleratorState().distributed_type), args.generation_kwargs or {}
        cuts = truncating(lambda name: given.get(name, getattr(args, name, None)))
        if kind or cuts:
            raise ValueError(
                "HeedfulCallback(score=True) expected a model that one process holds, and sampling with its own "
                f"probabilities, found {f'it sharded ({kind})' if kind else f'{listed(cuts)} in the arguments'}. Leave "
                f"score out, and score checkpoints: heedful watch {args.output_dir} --model CHECKPOINT."
            )

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **others: Any) -> None:
        """Raises ValueError where TRL logs no completions: the callback was added to a trainer that was there."""
        if not getattr(args, "log_completions", False):
            raise ValueError(
                "HeedfulCallback expected TRL's log of completions, found it off. Give callbacks=[HeedfulCallback()] "
                "to the trainer's constructor, or set log_completions=True."
            )
        self._model, self._tokenizer = others["model"], others["processing_class"]
        super().on_train_begin(args, state, control)

    def begin(
        self, args: TrainingArguments, state: TrainerState, checkpoint: Path, resumed: Mapping[str, Any] | None
    ) -> None:
        self._active = True
        self._attempt(lambda: self._begin(args, state, resumed))

    def _begin(self, args: Any, state: TrainerState, resumed: Mapping[str, Any] | None) -> None:
        """Start the sinks. The steps of a run that goes on are handed on again: their lines stand."""
        self._forget()
        output = Path(str(args.output_dir))
        self._completions = output / "completions"
        if resumed is not None and not (output / resumed["folder"]).is_dir():
            resumed = None
        self._folder = numbered(output / FOLDER) if resumed is None else output / resumed["folder"]
        self._lock = taken(self._folder)
        self._temperature = self._settings.temperature or args.temperature
        of_batch = args.scale_rewards == "batch" or args.multi_objective_aggregation == "normalize_then_sum"
        self._of_groups = not of_batch  # else it is 1 where all rewards of the batch are equal, and 0 elsewhere
        self._sinks = [_Told(), Status(self._completions), Beside(args.report_to)]
        self._sinks += [StopOnCollapse(self._stop, _LOG.warning)] if self._stops else []
        self._sinks += [Webhook(self._url, run_name(output), _LOG.warning)] if self._url else []
        for sink in self._sinks:
            sink.begin(self._folder)
        if resumed is None:
            return
        if resumed["states"]:
            write_whole(self._folder / STATES, json.dumps(resumed["states"]))
        for entry in state.log_history:
            self._take(entry)
        self._read()
        if self._log is not None:
            self._pipeline = self._pipeline or self._made(self._log)
            self._pipeline.supersede()

    def state(self) -> Mapping[str, Any]:
        pipeline = self._pipeline
        states = {pipeline.lines: pipeline.judge.state()} if pipeline and pipeline.judge and pipeline.lines else {}
        return {"folder": self._folder.name, "states": states}

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if self._active:
            super().on_save(args, state, control)

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self._attempt(lambda: self._take(state.log_history[-1]))

    def on_step_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self._attempt(self._close_step)

    def close(self) -> None:
        self._attempt(self._end)
        self._active = False
        self._lock.close()

    def _attempt(self, action: Callable[[], None]) -> None:
        """Act on rank 0, from the begin of a run to its end. The first error ends the watch."""
        for work in (action, lambda: self._tell_end(self._error)) if self._active else ():
            try:
                work()
                return
            # Broad on purpose: a watch is not worth a run.
            except Exception as error:
                if self._active:
                    self._active = False
                    self._error = f"heedful no longer watches this run, which goes on: {type(error).__name__}: {error}"
                    warnings.warn(self._error, RuntimeWarning, stacklevel=4)

    def _stop(self, alarm: str) -> str:
        self.collapsed = True
        return "The training ends after the next step, and is saved."

    def _take(self, entry: Mapping[str, Any]) -> None:
        """Take what was logged: scalars of training, of an evaluation, or the totals at the end."""
        number, evaluation = entry["step"], any(name.startswith("eval_") for name in entry)
        if self._open is not None and self._open.number != number:
            self._close_step()
        self._read(keep=evaluation)
        if "train_runtime" in entry:
            return
        for row in row_of({name: entry[name] for name in entry if self._of_groups or name != "frac_reward_zero_std"}):
            self._scalars.take(row)
        step = self._open = self._open or _Open(number)
        # A step without a new batch is logged with the rows that TRL has. An evaluation has pushed some of them out.
        self._evaluated = evaluation or (self._evaluated and "reward" not in entry)
        step.trained |= not self._evaluated

    def _read(self, keep: bool = False) -> None:
        """Read the rows of the open step. `keep`: copy their file, since an evaluation is written over it next."""
        step = self._open
        if step is None or not step.trained or step.rows is not None:
            return
        name = f"completions_{step.number:05d}.parquet"
        file, kept = self._completions / name, self._folder / "completions" / name
        if kept.exists():
            file = kept
        elif keep:
            kept.parent.mkdir(exist_ok=True)
            write_whole(kept, file.read_bytes())
        if self._log is None:
            log = open_log(file, replace(self._settings, temperature=self._temperature))
            if log.format != "TRL completions":
                raise ValueError(
                    f"HeedfulCallback expected rows that TRL alone wrote, found {log.format}. HeedfulGRPOTrainer "
                    "measures them itself: leave the callback out."
                )
            beside = (self._completions.parent / "trainer_state.json",)
            self._log = replace(log, source=self._completions.parent, files=replace(log.files, scalars=beside))
        self._prints.take(file, file.stat().st_size)
        rows = rows_of(file, self._faults, lambda more: None, self._log.reader.columns)
        step.rows = next(steps_of(self._log.reader.episodes(rows, self._faults), self._faults), None)

    def _close_step(self) -> None:
        """Measure the open step."""
        self._read()
        step, self._open = self._open, None
        if step is None:
            return
        self._early.append(step)
        if self._log is None:
            return
        self._pipeline = self._pipeline or self._made(self._log)
        scalars = dict(self._scalars.steps())
        for each in self._early:
            self._pipeline.add(each.number, each.rows, scalars.get(each.number, {}))
        self._early.clear()

    def _made(self, log: RecognisedLog) -> Pipeline:
        record = AuditRecord.of(log, self._settings)
        if (self._folder / RECORD).exists():
            record = resume(self._folder, record)
        judge = None
        if self._scores:
            bare = self._model.get_base_model() if hasattr(self._model, "get_base_model") else self._model
            most = self._settings.max_tokens
            scorer = cache(lambda name: HFScorer(bare, name=name, max_tokens=most))  # its probes run once
            tokenizer = getattr(self._tokenizer, "tokenizer", self._tokenizer)
            judge = ModelJudge(scorer, tokenizer, SCORER, log.tags, log.seed)
            record.assumed.append(
                "Thoughts were scored by the trainer's own model, with the weights after the update that used them "
                f"({SCORER})."
            )
        record.save(self._folder)
        return Pipeline(log, self._settings, self._folder, record, self._sinks, judge)

    def _end(self) -> None:
        self._close_step()
        why = "The training has ended."
        if self._pipeline is None or self._log is None:
            self._tell_end(why)
        else:
            names, files = self._scalars.names, self._prints.listed
            read = {"file": "on_log", "kind": "TRL", "keys": names.used, "unknown": sorted(names.unknown)}
            self._pipeline.record.scalars, self._pipeline.record.files = [read], files
            found = self._pipeline.noticed.found(self._log, self._settings, self._faults, 0, len(files))
            self._pipeline.end(why, [*found], self._faults)
            for sink in self._sinks:
                sink.close()

    def _tell_end(self, why: str) -> None:
        if self._pipeline is not None:
            self._pipeline.close()
        for sink in self._sinks:
            sink.end(why)
            sink.close()


class _Told(Sink):
    """Tells of alarms in the terminal, and of all else where the logger `heedful` shows it."""

    def begin(self, folder: Path) -> None:
        _LOG.info(f"heedful writes to {folder}.")

    def note(self, sentence: str) -> None:
        _LOG.info(sentence)

    def step(self, measured: Measured) -> None:
        for alarm in () if measured.replayed else measured.raised:
            _LOG.warning(alarm.sentence())


class Beside(Sink):
    """Puts readings beside TRL's own, under the names that `HeedfulGRPOTrainer` gives them there.

    In W&B and Trackio they go into the run that TRL has open, as rows of their own with their step in
    `train/global_step`. TRL's writer for TensorBoard cannot be reached, so they are in event files of their own.
    """

    def __init__(self, reported_to: Sequence[str]) -> None:
        self._reported_to = reported_to
        self._trackers: list[Guarded] = []

    def begin(self, folder: Path) -> None:
        if "tensorboard" in self._reported_to:
            self._trackers.append(Guarded(TensorBoardTracker(folder, {})))
        if "wandb" in self._reported_to:
            import wandb

            self._trackers.append(Guarded(_OpenRun(wandb)))
        if "trackio" in self._reported_to:
            import trackio

            self._trackers.append(Guarded(_OpenRun(trackio)))

    def step(self, measured: Measured) -> None:
        own = [metric for metric in measured.metrics if not metric.name.startswith("trainer/")]
        row = [Metric(f"train/{name}", value) for name, value in HeedfulConfig().logged(own).items()]
        for tracker in () if measured.replayed else self._trackers:
            tracker.write(measured.number, row)

    def close(self) -> None:
        for tracker in self._trackers:
            tracker.close()
        self._trackers = []


@dataclass(frozen=True, slots=True)
class _OpenRun:
    """The run that TRL has open in this process. TRL ends it."""

    library: Any

    def write(self, step: int, metrics: Sequence[Metric]) -> None:
        self.library.log({"train/global_step": step} | {metric.name: metric.value for metric in metrics})

    def close(self) -> None:
        pass
