"""heedful inside TRL's `AsyncGRPOTrainer`: the filter, the record and the diagnostics of texts and rewards.

An engine samples beside the training, and the trainer takes rows from `trainer.rollout_queue`, which is public. heedful
stands in that queue. TRL fills each batch from it, so a dropped group is replaced by a later one: a refill. A row that
was dropped enters no forward pass and no term of the loss, which is a mean over the tokens of the rows that are there.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from transformers import TrainerState, TrainingArguments

from heedful.integrations.trl.callback import Bridge
from heedful.integrations.trl.observer import begin, check_names, checked_tokenizer, unknown_to_trl
from heedful.integrations.trl.settings import HeedfulConfig
from heedful.integrations.watching import observer as watching
from heedful.integrations.watching.completions import Completion, success_of
from heedful.rollout.choosers import InOrder

_REWARDS = "rewards/"
"""What TRL puts before the name of a reward function in the numbers of a row."""
UNREADABLE = (
    "the weights that sampled are those of a server, some updates old, and TRL's learner reads packed rows alone: "
    "heedful audit scores the saved model"
)


class AsyncGroups(Bridge):
    """The queue of an `AsyncGRPOTrainer` without the groups that a filter drops.

        trainer = AsyncGRPOTrainer(...)
        AsyncGroups(HeedfulConfig(filter=DropConstant(on="reward"))).attach(trainer)
        trainer.train()

    As many groups as one update has are collected, measured and filtered. If none is kept in `sampling_batches` such
    collections, the shortest group is handed on with the advantage 0, so that the training goes on. Rank 0 alone holds
    the queue. A worker must hand over the rows of one group after the other, as TRL's own does.
    """

    def __init__(self, config: HeedfulConfig | None = None) -> None:
        """Raises ValueError for settings that have no effect here."""
        self.heedful = config or HeedfulConfig()
        idle = {
            "sampling_tokens": self.heedful.sampling_tokens is not None,
            "loss_scale": self.heedful.loss_scale != "kept",
            "choose": not isinstance(self.heedful.choose, InOrder),
        }
        if found := [name for name, given in idle.items() if given]:
            raise ValueError(
                f"AsyncGroups expected the defaults of {', '.join(idle)}, found another {', '.join(found)}. "
                "AsyncGRPOTrainer fills each batch with groups that were kept. Leave it out."
            )
        super().__init__(stops=self.heedful.on_collapse == "stop")
        self._trainer: Any = None
        self._queue: Any = None
        self._rows: list[Any] = []
        """The rows of the group that is arriving."""
        self._window: list[list[Any]] = []
        self._ready: deque[Any] = deque()
        self._empty = 0
        """Collections in a row without a group that was kept."""

    def attach(self, trainer: Any) -> None:
        """Stand in the trainer's queue. Called once, before `train`, on every rank.

        Raises ValueError for names that the trainer does not have.
        """
        self._trainer = trainer
        trainer.add_callback(self)
        if trainer.rollout_queue is None:  # not rank 0
            return
        self._queue, trainer.rollout_queue = trainer.rollout_queue, self
        args = trainer.args
        rows = args.per_device_train_batch_size * args.gradient_accumulation_steps * trainer.accelerator.num_processes
        self._groups = max(1, rows // args.num_generations)
        self._observer = self._new_observer()

    def _new_observer(self) -> watching.Observer:
        trainer, config = self._trainer, self.heedful
        return watching.observer_of(
            config,
            config.filter,
            checked_tokenizer(trainer),
            trainer.eos_token_ids,
            None,
            seed=config.seed_in(trainer.args),
            temperature=float(trainer.temperature),
            unknown=unknown_to_trl(config.outcome is not None, False),
            unreadable=UNREADABLE,
        )

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """The next row of a group that was kept, as `queue.Queue.get`. TRL looks after its worker on `queue.Empty`."""
        while not self._ready:
            row = self._queue.get(block, timeout)
            if self._rows and row.group_id != self._rows[0].group_id:
                self._window.append(self._rows)
                self._rows = []
            self._rows.append(row)
            if len(self._window) == self._groups:
                window, self._window = self._window, []
                self._ready.extend(self._kept(window))
        return self._ready.popleft()

    def qsize(self) -> int:
        """The rows that wait."""
        return len(self._ready) + int(self._queue.qsize())

    def _kept(self, window: Sequence[list[Any]]) -> list[Any]:
        """The rows of the groups that are kept, after the observation of all."""
        trainer = self._trainer
        names = [name.removeprefix(_REWARDS) for name in window[0][0].metrics if name.startswith(_REWARDS)]
        check_names(names, [1.0] * len(names), self.heedful, self.heedful.filter.on, False)
        members_PG = [[self._completion(rows, names) for rows in conversations_in(group)] for group in window]
        seen = self._observer.observe(members_PG, trainer.model_version)
        self.collapsed |= any(alarm.collapse for alarm in seen.raised)
        trainer.rollout_worker.metrics_queue.put_nowait(self.heedful.logged(seen.metrics))
        kept = [group for group, verdict in zip(window, seen.verdicts, strict=True) if verdict.kept]
        self._empty = 0 if kept else self._empty + 1
        if self._empty == self.heedful.sampling_batches:
            self._empty = 0
            shortest = min(window, key=lambda group: sum(len(row.input_ids) for row in group))
            kept = [[replace(row, advantage=0.0) for row in shortest]]
        # TRL counts its epochs, and finds its place in the data after a resume, by the groups that it has trained on.
        left = {group[0].group_id for group in window} - {group[0].group_id for group in kept}
        trainer._trained_groups.update(left)
        return [row for group in kept for row in group]

    def _completion(self, rows: Sequence[Any], names: Sequence[str]) -> Completion:
        """A conversation. TRL may have cut it into rows, each with a context of its own."""
        first, *rest = rows
        given = {name: first.metrics[_REWARDS + name] for name in names}
        outcome = self.heedful.outcome
        ids, sampled = tuple(map(int, first.input_ids)), tuple(map(bool, first.completion_mask))
        start = sampled.index(True)  # TRL leaves out rows without a sampled token
        return Completion(
            prompt_ids=ids[:start],
            ids=ids[start:],
            sampled=sampled[start:],
            rewards={} if all(map(math.isnan, given.values())) else given,
            outcome=success_of(given.get(str(outcome), math.nan), str(outcome), "HeedfulConfig.outcome"),
            logprobs=tuple(map(float, first.old_log_probs[start:])),
            version=first.model_version,
            rest=tuple(self._completion([row], names) for row in rest),
        )

    def begin(
        self, args: TrainingArguments, state: TrainerState, checkpoint: Path, resumed: Mapping[str, Any] | None
    ) -> None:
        self._rows, self._window, self._ready = [], [], deque()
        self._observer = self._new_observer()
        begin(self._observer, self._trainer, self.heedful, self.heedful.filter, checkpoint, resumed)

    def state(self) -> Mapping[str, Any]:
        return self._observer.state()

    def close(self) -> None:
        if self._queue is not None:
            self._observer.close()


def conversations_in(group: Sequence[Any]) -> list[list[Any]]:
    """The rows of a group by conversation. TRL numbers none. A conversation of several rows shows one text in all of
    them, and never equal ids twice."""
    found: list[list[Any]] = []
    for row in group:
        last = found[-1] if found else []
        same = bool(last) and (row.prompt, row.completion) == (last[0].prompt, last[0].completion)
        if same and not any(list(other.input_ids) == list(row.input_ids) for other in last):
            last.append(row)
        else:
            found.append([row])
    return found
