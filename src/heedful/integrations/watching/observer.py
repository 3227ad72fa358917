"""Observer of another trainer's sampled batches: groups, verdicts, measurements, record.

It only reads. It is called after a batch was rewarded and before it is trained on. So the weights are those that
sampled the batch, unless the trainer samples ahead.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

from heedful.diagnostics.alarms.watch import Alarm
from heedful.diagnostics.cross_scores.thoughts import ThoughtTags
from heedful.diagnostics.statistics.group_statistics import is_constant, scored
from heedful.envs.common.contract import rightness_of
from heedful.filters import Remembering, Visit
from heedful.integrations.watching.completions import BatchReader, Completion, values_of
from heedful.integrations.watching.pictures import Unplaced
from heedful.integrations.watching.record import Record
from heedful.integrations.watching.settings import WatchingConfig
from heedful.measuring.diagnostician import Diagnostician
from heedful.measuring.swapped import TokenScorer
from heedful.models.chat.replies import ReplyParser
from heedful.protocols import Environment, Filter
from heedful.rollout.choosers import as_probe
from heedful.seeds import stream
from heedful.storage.trackers import JsonlTracker
from heedful.types import Group, Metric, Verdict, nothing_right
from heedful.watching.sinks import Measured, Sink
from heedful.watching.status import Status
from heedful.watching.webhook import Webhook, webhook_url

_LOG = logging.getLogger("heedful")
STATUS = 60.0
"""Seconds from one status to the next, if no alarm is raised: the training waits meanwhile."""


@dataclass(frozen=True, slots=True)
class Seen:
    """Result of observing one batch."""

    step: int
    """Number of the batch, from 0."""
    groups: list[Group]
    verdicts: list[Verdict]
    metrics: list[Metric]
    raised: tuple[Alarm, ...] = ()
    """Alarms that were not yet raised in the previous batch."""


@dataclass(slots=True)
class Observer:
    """One process's view of a run. `generation` counts the batches seen."""

    chooses: Filter
    reader: BatchReader
    diagnostician: Diagnostician
    temperature: float
    seed: int
    record: Record | None = None
    tracker: JsonlTracker | None = None
    generation: int = 0
    read: int | None = None
    """Most groups whose thoughts are read. `None` = all."""
    measuring: Callable[[], AbstractContextManager[None]] = nullcontext
    """Makes a context in which the trainer's model reads what the scorer asks. Outside of it the model is as it was."""
    webhook: str = ""
    """The environment variable with the URL to which alarms are posted."""
    sinks: Sequence[Sink] = ()
    """Told of each batch, while there is a record."""

    def observe(
        self,
        members_PG: Sequence[Sequence[Completion]],
        version: int,
        also: Sequence[Metric] = (),
        most: int | None = None,
        probes: Collection[int] = (),
        earlier_PV: Sequence[Sequence[Visit]] = (),
    ) -> Seen:
        """Measure one batch.

        `version`: the number of updates before the weights. `also`: metrics that are recorded with those of the batch.
        `most`: groups that the trainer has room for. Those that the filter keeps beyond it are dropped as `surplus`.
        `probes`: numbers of groups that a chooser's floor drew. They get its tag. `earlier_PV`: the earlier visits to
        the task of each group, for a filter that uses them. Empty where nothing remembers.
        """
        step = self.generation
        groups, unreadable = self._groups(members_PG, version)
        for place in probes:
            groups[place] = replace(groups[place], task=as_probe(groups[place].task))
        values_PG = values_of(members_PG, groups, self.chooses.on)
        chooses = self.chooses
        if earlier_PV and isinstance(chooses, Remembering):
            chooses = chooses.after(earlier_PV)
        verdicts = list(chooses(values_PG, stream(self.seed, "filter", step)))
        for place in [place for place, verdict in enumerate(verdicts) if verdict.kept][most:] if most else ():
            verdicts[place] = replace(verdicts[place], weight=0.0, reason="surplus")
        start = time.perf_counter()
        with self.measuring():
            read = self.read if most is None else most
            diagnosis = self.diagnostician.measure(step, groups, verdicts, self.chooses.on, read, unreadable)
        sampled = sum(len(turn.reply.ids) for group in groups for member in group.trajectories for turn in member.turns)
        metrics = [
            *diagnosis.metrics,
            *also,
            Metric("filter/empty", float(not any(verdict.kept for verdict in verdicts))),
            Metric("tokens/collect", float(sampled)),
            Metric("time/diagnose", time.perf_counter() - start),
        ]
        if self.record is not None and self.tracker is not None:
            self.record.write(step, groups, verdicts, diagnosis)
            self.tracker.write(step, metrics)
        for sink in self.sinks:
            sink.step(Measured(step, metrics, diagnosis.raised))
        self.generation += 1
        for alarm in diagnosis.raised:
            _LOG.warning(alarm.sentence())
        return Seen(step, groups, verdicts, metrics, diagnosis.raised)

    def varying(self, members_PG: Sequence[Sequence[Completion]]) -> int:
        """The number of groups that vary in the value that the filter looks at."""
        groups, _ = self._groups(members_PG, 0)
        return sum(not is_constant(scored(values)) for values in values_of(members_PG, groups, self.chooses.on))

    def _groups(self, members_PG: Sequence[Sequence[Completion]], version: int) -> tuple[list[Group], str]:
        """The completions as groups, and why their pictures cannot be read, if they cannot."""
        why = next((member.unreadable for members in members_PG for member in members if member.unreadable), "")
        if not why:
            try:
                return self.reader.groups(members_PG, version, self.temperature), ""
            except Unplaced as error:
                why = str(error)
        return replace(self.reader, sight=None).groups(members_PG, version, self.temperature), why

    def begin(self, record: Record) -> None:
        """Keep a record from now on. Raises ValueError where the variable of the webhook holds no URL."""
        self.close()
        place = record.folder.path.resolve()
        hook = [Webhook(webhook_url(self.webhook), place.parent.name, _LOG.warning)] if self.webhook else []
        self.record, self.tracker = record, JsonlTracker(record.folder.metrics)
        self.sinks = (Status(place, every=STATUS, page=False), *hook)
        for sink in self.sinks:
            sink.begin(place)

    def close(self) -> None:
        for sink in self.sinks:
            sink.end("")
        self.sinks = ()
        if self.tracker is not None:
            self.tracker.close()
        if self.record is not None:
            self.record.close()
        self.record, self.tracker = None, None

    def state(self) -> dict[str, Any]:
        """The state that a resumed run needs, as a JSON tree."""
        folder = str(self.record.folder.path.name) if self.record is not None else None
        return {"generation": self.generation, "folder": folder, "diagnostics": self.diagnostician.state()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.generation = state["generation"]
        self.diagnostician.load_state(state["diagnostics"])


def observer_of(
    config: WatchingConfig,
    chooses: Filter,
    tokenizer: Any,
    stop_ids: Sequence[int],
    scorer: TokenScorer | None,
    *,
    seed: int,
    temperature: float,
    unknown: Mapping[str, str],
    unreadable: str,
    sight: Any = None,
    env: Environment | None = None,
) -> Observer:
    """An observer of batches that this tokenizer wrote.

    `unknown`: metric -> why the trainer cannot give it. `unreadable`: why thoughts cannot be scored, if they cannot.
    `env`: one of heedful's environments, if it is played.
    `sight`: for a model that sees, a `models.sight.Sight` that also decodes (`collapsed`) and is `attached`.
    """

    def decode(ids: Sequence[int]) -> str:
        read = list(ids) if sight is None else list(sight.collapsed(ids))
        return str(tokenizer.decode(read, skip_special_tokens=False, clean_up_tokenization_spaces=False))

    parser = ReplyParser(decode, config.tags, stop_ids)
    diagnostician = Diagnostician(
        config.diagnostics,
        scorer,
        seed,
        ThoughtTags(config.tags.open, config.tags.close),
        parser.piece,
        unknown=dict(unknown),
        unreadable=unreadable,
        right=nothing_right if env is None else rightness_of(env),
    )
    reader = BatchReader(parser, decode, config.tags, sight)
    measuring = nullcontext if sight is None else sight.attached
    return Observer(chooses, reader, diagnostician, temperature, seed, measuring=measuring, webhook=config.webhook)


def refuse_replaced(tokenizer: Any, source: str, trainer: str, advice: str) -> None:
    """Refuse a tokenizer that transformers built in place of its folder's: the trainer would train on other ids."""
    from heedful.models.own_tokenizer import difference_from_folder

    found = difference_from_folder(tokenizer, source) if source else ""
    if found:
        raise ValueError(
            f"Expected the tokenizer of {source} as its tokenizer.json has it, found a {type(tokenizer).__name__} that "
            f"differs ({found}): transformers made it for the model's architecture, and {trainer} would train on other "
            f"ids. {advice}"
        )
