"""RAGEN's JSONL export of evaluation rollouts (`output.format=jsonl`).

Source: RAGEN, `ragen/llm_agent/agent_proxy.py`. One line per trajectory: `custom_id`, `messages`, `metadata` with
`env_id`, `group_id`, `total_reward`, `num_turns`, `success` and metrics named `<tag>/<metric>`.
Success is read from `<tag>/success`. RAGEN's own field `success` is looked up under a name that the metrics do not
have, so it is always false: it is read only where the user names it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from heedful.auditing.logs.conversations import messages_of, turns_of
from heedful.auditing.logs.records import Faults, Fields, Knowledge, Location, LoggedEpisode, Misfit, Row, unknown_of
from heedful.auditing.readers.reader import Hints, RowReader, Sample, known_rewards, prompt_task, step_of_file
from heedful.boundary import listed


@dataclass(frozen=True, slots=True)
class RagenTrajectories(RowReader):
    """Lines of RAGEN's export."""

    FIELDS: ClassVar[frozenset[str]] = frozenset({"messages", "metadata"})

    @staticmethod
    def fits(row: Row) -> bool:
        metadata = row.get("metadata")
        return isinstance(row.get("messages"), list) and isinstance(metadata, dict) and "group_id" in metadata

    @classmethod
    def begin(cls, sample: Sequence[Row], hints: Hints) -> Self:
        metadata = Sample(row["metadata"] for row in sample if cls.fits(row))
        metadata.require([hints.success], "success")
        keys = {_success_key(of, hints) for of in metadata} - {None}
        found = [f"Success is read from metadata: {', '.join(sorted(map(str, keys)))}."] if keys else []
        assumed = (
            "The export has no step: each file is one step, the number in its name, or 0.",
            "The system prompt and the wording around states are not exported, so a model reads other prompts here "
            "than the policy did.",
            "A group's start states are taken to be equal (group_id), even where first messages differ.",
        )
        return cls(hints, Knowledge(tuple(found), assumed, unknown_of(success=bool(keys), turns=True)))

    def of_row(self, place: Location, row: Fields, faults: Faults) -> Iterable[LoggedEpisode]:
        if not self.fits(row):
            raise Misfit("`messages`, and `metadata` with a `group_id`", f"fields {listed(row)}")
        metadata = row.inner("metadata")
        prompt, turns = turns_of(messages_of(row["messages"], "messages", self.hints.tags), self.hints.tags)
        rewards = known_rewards({"total_reward": metadata.number("total_reward")})
        key, group = _success_key(metadata, self.hints), metadata.key("group_id")
        if group is None:
            raise Misfit("text or a whole number as `metadata.group_id`", "nothing")
        task = prompt_task(place.file.name, group)
        trajectory = self.trajectory(task, turns, rewards, metadata.outcome(key) if key else None)
        yield LoggedEpisode(place, step_of_file(place.file), group, task, trajectory, prompt)


def _success_key(metadata: dict[str, Any], hints: Hints) -> str | None:
    if hints.success is not None:
        return hints.success if hints.success in metadata else None
    return min((name for name in metadata if name.endswith("/success")), default=None)
