"""Episodes as rows of verl and back. Neither verl nor torch is needed.

A row is a prompt and a response. The response holds the sampled ids and the ids between them, and a mask tells them
apart. An episode is one row, or more if its context begins anew. What ids do not say travels with the last row as JSON.
Promise: what is read back equals the episode, up to the precision in which verl stores log-probabilities.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from heedful.envs.common import read_task, task_tree
from heedful.integrations.watching import row_of
from heedful.types import Ending, Prompt, Reply, Span, Trajectory, Turn

FIELD = "heedful"
"""The key of an episode's JSON in verl's `extra_fields`, and of a task in `extra_info`."""

ENVIRONMENT = "heedful_environment"
"""The key of the environment's JSON in `extra_fields`, beside the episode."""

FORM = 1
"""The form of the JSON. Another number is refused."""


class EpisodeRow(Protocol):
    """What is read of one row, in the order in which the parts of the episode were played."""

    @property
    def prompt_ids(self) -> Sequence[int]: ...

    @property
    def response_ids(self) -> Sequence[int]: ...

    @property
    def logprobs(self) -> Sequence[float] | None: ...


@dataclass(frozen=True, slots=True)
class Output:
    """Consecutive turns of an episode as one row: each context extends the last."""

    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    response_mask: tuple[int, ...]
    """1 = sampled."""
    logprobs: tuple[float, ...] | None
    """The sampler's, 0 where not sampled. `None` if it gave none."""


def outputs_of(trajectory: Trajectory) -> list[Output]:
    """The rows of an episode, in order. Empty for an episode without a turn."""
    known = all(len(turn.reply.logprobs) == len(turn.reply.ids) for turn in trajectory.turns)
    outputs = []
    for run in _runs(trajectory.turns):
        ids, mask, logprobs = row_of(run)
        outputs.append(Output(run[0].reply.prompt.ids, tuple(ids), tuple(mask), tuple(logprobs) if known else None))
    return outputs


def write_episode(trajectory: Trajectory) -> str:
    """What the rows of an episode do not hold, as one line of JSON."""
    turns = [turn for run in _runs(trajectory.turns) for turn in _written_run(run)]
    tree = {
        "form": FORM,
        "task": task_tree(trajectory.task),
        "member": trajectory.member,
        "ending": trajectory.ending.value,
        "outcome": trajectory.outcome,
        "progress": trajectory.progress,
        "policy_version": trajectory.policy_version,
        "temperature": trajectory.temperature,
        "error": trajectory.error,
        "turns": turns,
    }
    return json.dumps(tree)


def read_episode(text: str, rows: Sequence[EpisodeRow]) -> Trajectory:
    """The episode of these rows. Raises ValueError if another version of heedful wrote the JSON."""
    tree = json.loads(text)
    if tree["form"] != FORM:
        raise ValueError(
            f"Expected an episode of heedful's agent loop (form {FORM}) in `extra_fields[{FIELD!r}]`, found form "
            f"{tree['form']}. Use the same version of heedful on every node."
        )
    return Trajectory(
        read_task(tree["task"]),
        tree["member"],
        tuple(_read_turns(tree["turns"], rows)),
        Ending(tree["ending"]),
        tree["outcome"],
        tree["progress"],
        tree["policy_version"],
        tree["temperature"],
        tree["error"],
    )


def _runs(turns: Sequence[Turn]) -> list[list[Turn]]:
    """The turns, cut where a context begins anew."""
    runs: list[list[Turn]] = []
    for turn in turns:
        if not runs or turn.reply.prompt.restarts:
            runs.append([])
        runs[-1].append(turn)
    return runs


def _written_run(run: Sequence[Turn]) -> Iterator[dict[str, Any]]:
    for place, turn in enumerate(run):
        reply = turn.reply
        yield {
            "begins": place == 0,
            "glue": len(reply.prompt.ids) if place else 0,
            "ids": len(reply.ids),
            "prompt": {"text": reply.prompt.text, "restarts": reply.prompt.restarts, "history": reply.prompt.history},
            "text": reply.text,
            "thought": [reply.thought.start, reply.thought.end],
            "answer": [reply.answer.start, reply.answer.end],
            "closed": reply.closed,
            "cut": reply.cut,
            "rewards": dict(turn.rewards),
            "actions": list(turn.actions),
            "valid": turn.valid,
            "effect": turn.effect,
            "state": turn.state,
        }


def _read_turns(trees: Sequence[Mapping[str, Any]], rows: Sequence[EpisodeRow]) -> Iterator[Turn]:
    number, at = -1, 0
    for tree in trees:
        if tree["begins"]:
            number, at = number + 1, 0
        row = rows[number]
        first, last = at + tree["glue"], at + tree["glue"] + tree["ids"]
        glue = row.prompt_ids if tree["begins"] else row.response_ids[at:first]
        logprobs = () if row.logprobs is None else tuple(map(float, row.logprobs[first:last]))
        at = last
        reply = Reply(
            Prompt(**{**tree["prompt"], "ids": tuple(map(int, glue))}),
            tuple(map(int, row.response_ids[first:last])),
            tree["text"],
            logprobs,
            (),
            Span(*tree["thought"]),
            Span(*tree["answer"]),
            tree["closed"],
            tree["cut"],
        )
        yield Turn(reply, tree["rewards"], tuple(tree["actions"]), tree["valid"], tree["effect"], tree["state"])
