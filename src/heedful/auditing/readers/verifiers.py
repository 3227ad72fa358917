"""The logs of verifiers (and of trainers built on it): `traces.jsonl` and the older `results.jsonl`.

Source: verifiers 0.4, `v1/episode.py`, `v1/trace.py`, `legacy/utils/save_utils.py`; prime-rl, `monitors/file.py`. A
line of `traces.jsonl` is one episode with its task, the run's step, and one trace per agent: messages as a graph, named
and weighted rewards, calls with their sampling. A line may also be a trace alone. A line of `results.jsonl` is one
rollout: `example_id`, `prompt`, `completion`, `reward` and `metrics`.
Only the messages of the agents in training are read, and no trace that ended in an error. Of a branched trace, the last
branch is read, as verifiers does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from heedful.auditing.logs import records
from heedful.auditing.logs.conversations import messages_of, turns_of, unread_parts
from heedful.auditing.logs.records import Faults, Fields, Knowledge, Location, LoggedEpisode, Misfit, Row
from heedful.auditing.readers.reader import NO_STEP, Hints, RowReader, Sample, known_rewards, prompt_task, step_of_file
from heedful.boundary import listed

TRACELESS = "of episodes that failed without a trace"
FAILED = "of traces that ended in an error"
_BRANCHED = "Of traces that branch (compaction, helpers) the last branch is read, as if the episode had begun there."
_BATCH = re.compile(r"step_(\d+)/(?:train|eval)/(?:all|effective)/")
"""prime-rl's folder of a batch. Its episodes name the step at which they were begun, which may be an earlier one."""


def traceless(row: Row) -> bool:
    """Whether the row is an episode that failed before its first message."""
    return not row.get("traces") and "nodes" not in row and ("task" in row or "env" in row)


@dataclass(frozen=True, slots=True)
class VerifiersTraces(RowReader):
    """Lines of `traces.jsonl`. Such a reader reads a log once."""

    begun: dict[str, int] = field(default_factory=dict, compare=False)
    """Group of the log -> the step in which it was met first: prime-rl logs an episode in the step in which it ends."""

    FIELDS: ClassVar[frozenset[str]] = frozenset(
        {"traces", "task", "env", "run", "group", "agent", "nodes", "calls", "rewards", "metrics", "ok"}
    )

    @staticmethod
    def fits(row: Row) -> bool:
        whole = isinstance(row.get("traces"), list) and ("task" in row or "env" in row)
        return whole or (isinstance(row.get("nodes"), list) and "rewards" in row)

    @classmethod
    def begin(cls, sample: Sequence[Row], hints: Hints) -> Self:
        rows = [row for row in sample if cls.fits(row)]
        traces = [trace for row in rows for trace in row.get("traces", [row]) if isinstance(trace, dict)]
        success = Sample(records.fitting(_named_scores, traces)).success(hints)
        found = [f"Success is read from {success}."] if success else []
        assumed = [
            "A group is what the log calls one, else the episodes of one task.",
            "Prompts are rendered with the chat template of --model, which need not be the one in training.",
        ]
        assumed += [] if any(step is not None for step in records.fitting(_work_step, rows)) else [NO_STEP]
        assumed += [_BRANCHED] if any(records.fitting(_is_branched, traces)) else []
        assumed += unread_parts(traces)
        temperature = any(found is not None for found in records.fitting(_temperature, traces))
        unknown = records.unknown_of(success=success is not None, turns=True)
        return cls(hints, Knowledge(tuple(found), tuple(assumed), unknown, temperature=temperature), success)

    def of_row(self, place: Location, row: Fields, faults: Faults) -> Iterable[LoggedEpisode]:
        if traceless(row):
            faults.aside[TRACELESS] += 1
            return
        if not self.fits(row):
            raise Misfit("an episode with `traces`", f"fields {listed(row)}")
        batch, step = _BATCH.search(place.file.as_posix()), _work_step(row)
        if batch or step is None:
            step = records.step_number(int(batch[1]), "the folder's name") if batch else step_of_file(place.file)
        for trace in row.objects("traces") if "traces" in row else [row]:
            agent = trace.inner("agent")
            if trace.get("ok") is False:
                faults.aside[FAILED] += 1
            elif agent.get("trainable", True):
                yield self._trace(place, step, row, trace, str(agent.get("name", "agent")))

    def _trace(self, place: Location, step: int, row: Fields, trace: Fields, agent: str) -> LoggedEpisode:
        tags = self.hints.tags
        path = _last_branch(trace.objects("nodes"))
        first = next((at for at, node in enumerate(path) if node.get("sampled")), len(path))
        messages = messages_of([node.get("message") for node in path], "nodes", tags) if path else ()
        rewards = known_rewards({name: _reward(entry) for name, entry in trace.inner("rewards").items()})
        group = row.inner("group").key("id")
        begun = None if group is None else self.begun.setdefault(group, step)
        if group is None:
            named = trace.inner("task") or row.inner("task")
            group = str(named.get("key") or named.get("hash") or records.digest(repr(dict(named))))
        # An assistant's message that no model sampled is context.
        others = ({**message, "role": message["role"].replace("assistant", "context")} for message in messages)
        said = tuple(
            {**other, "role": "assistant"} if node.get("sampled") else other
            for node, other in zip(path, others, strict=True)
        )
        task, (_, turns) = prompt_task(group, agent), turns_of(said, tags)
        trajectory = self.trajectory(task, turns, rewards, self.outcome(_named_scores(trace)), _temperature(trace))
        return LoggedEpisode(place, step, f"{group} {agent}", task, trajectory, messages[:first], begun=begun)


@dataclass(frozen=True, slots=True)
class VerifiersResults(RowReader):
    """Lines of `results.jsonl`."""

    FIELDS: ClassVar[frozenset[str]] = frozenset(
        {"example_id", "prompt", "completion", "reward", "error", "task", "metrics"}
    )

    @staticmethod
    def fits(row: Row) -> bool:
        return {"example_id", "prompt", "completion"} <= row.keys()

    @classmethod
    def begin(cls, sample: Sequence[Row], hints: Hints) -> Self:
        rows = [row for row in sample if cls.fits(row)]
        success = Sample(records.fitting(_flat_scores, rows)).success(hints)
        found = [f"Success is read from {success}."] if success else []
        parts = unread_parts([[row["prompt"], row["completion"]] for row in rows])
        assumed = (NO_STEP, "Rollouts of one example_id of a task are one group.", *parts)
        unknown = records.unknown_of(success=success is not None, turns=True)
        return cls(hints, Knowledge(tuple(found), assumed, unknown), success)

    def of_row(self, place: Location, row: Fields, faults: Faults) -> Iterable[LoggedEpisode]:
        if not self.fits(row):
            raise Misfit("`example_id`, `prompt` and `completion`", f"fields {listed(row)}")
        _, messages, turns = self.dialogue(row)
        failed, reward, group = row.get("error") is not None, row.number("reward"), row.key("example_id")
        if group is None:
            raise Misfit("text or a whole number as `example_id`", "nothing")
        kind = str(row.get("task", ""))  # each environment of several counts its own examples
        task = prompt_task(kind, group)
        rewards = known_rewards({"reward": None if failed else reward})
        trajectory = self.trajectory(task, turns, rewards, self.outcome(_flat_scores(row)))
        yield LoggedEpisode(place, step_of_file(place.file), f"{group} {kind}", task, trajectory, messages)


def _last_branch(nodes: Sequence[Fields]) -> list[Fields]:
    """From the root to the last leaf: the path that ends in the last message that no other one follows."""
    parents = [node.get("parent") for node in nodes]
    leaves = [place for place in range(len(nodes)) if place not in parents]
    path: list[Fields] = []
    place: Any = leaves[-1] if leaves else "a circle" if nodes else None
    while place is not None:
        if not isinstance(place, int) or not 0 <= place < len(nodes) or len(path) == len(nodes):
            raise Misfit("`parent` to name an earlier node", records.shown(place))
        path.append(nodes[place])
        place = parents[place]
    return path[::-1]


def _is_branched(trace: Fields) -> bool:
    parents = [repr(node.get("parent")) for node in trace.objects("nodes")]
    return len({*parents}) < len(parents)


def _reward(entry: Any) -> float | None:
    if isinstance(entry, dict):
        named = Fields({"weight": 1.0, **entry})
        score, weight = named.number("score"), named.number("weight")
        return None if score is None or weight is None else records.number(score * weight, "score times weight")
    return records.number(entry, "rewards")


def _named_scores(trace: Fields) -> Fields:
    """Everything that a trace measured by name: unweighted rewards and metrics."""
    rewards = trace.inner("rewards")
    scores = {name: entry.get("score") if isinstance(entry, dict) else entry for name, entry in rewards.items()}
    return Fields(scores | trace.inner("metrics"))


def _flat_scores(row: Fields) -> Fields:
    return Fields(row.inner("metrics") | {name: value for name, value in row.items() if name != "metrics"})


def _work_step(row: Fields) -> int | None:
    return row.inner("run").inner("work").step("step")


def _temperature(trace: Fields) -> float | None:
    sampled = (call.inner("sampling").number("temperature") for call in trace.objects("calls"))
    return next((temperature for temperature in sampled if temperature is not None), None)
