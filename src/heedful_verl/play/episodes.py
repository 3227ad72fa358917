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

from heedful.boundary.jsontext import parse_json
from heedful.envs.transport.wire import read_step, read_task, step_tree, task_tree
from heedful.types import Ending, Observation, Prompt, Reply, Span, Step, Trajectory, Turn

FIELD = "heedful"
"""The key of an episode's JSON in verl's `extra_fields`, and of a task in `extra_info`."""

FORM = 1
"""The form of the JSON. Another number is refused."""


_NOTHING = step_tree(Step(Observation("")))
_SHARED = ("rewards", "outcome", "progress", "valid", "effect", "state")
"""What is read as of a step. An action may be longer than one that is sent between machines."""


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
    """Consecutive turns of an episode as one row: each context extends the last.

    Example: prompt `a b`, reply `C D`, glue `e`, reply `F` gives the prompt `a b`, the response `C D e F` and the mask
    `1 1 0 1`.
    """

    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    response_mask: tuple[int, ...]
    """1 = sampled."""
    logprobs: tuple[float, ...] | None
    """The sampler's, 0 where not sampled. `None` if it gave none."""


def outputs_of(trajectory: Trajectory) -> list[Output]:
    """The rows of an episode, in order. Empty for an episode without a turn."""
    known = all(len(turn.reply.logprobs) == len(turn.reply.ids) for turn in trajectory.turns)
    return [_output(run, known) for run in _runs(trajectory.turns)]


def write_episode(trajectory: Trajectory) -> str:
    """What the rows of an episode do not hold, as one line of JSON."""
    ids_of_rows = [turn for run in _runs(trajectory.turns) for turn in _written_run(run)]
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
        "turns": ids_of_rows,
    }
    return json.dumps(tree)


def read_episode(text: str, rows: Sequence[EpisodeRow]) -> Trajectory:
    """The episode of these rows. Raises ValueError if the JSON is of another form, or belongs to other rows."""
    try:
        tree = parse_json(text)
        if not isinstance(tree, dict) or tree.get("form") != FORM:
            raise ValueError(f"form {tree.get('form') if isinstance(tree, dict) else type(tree).__name__}")
        turns = tuple(_read_turns(tree["turns"], rows))
        last = _as_step(tree)
        return Trajectory(
            read_task(tree["task"]),
            int(tree["member"]),
            turns,
            Ending(tree["ending"]),
            last.outcome,
            last.progress,
            int(tree["policy_version"]),
            float(tree["temperature"]),
            str(tree["error"]),
        )
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
        raise ValueError(
            f"Expected an episode of heedful's agent loop (form {FORM}) in `extra_fields[{FIELD!r}]`, found {error!r}. "
            "Use the same version of heedful on every node, and leave this key to heedful."
        ) from error


def _runs(turns: Sequence[Turn]) -> list[list[Turn]]:
    """The turns, cut where a context begins anew."""
    runs: list[list[Turn]] = []
    for turn in turns:
        if not runs or turn.reply.prompt.restarts:
            runs.append([])
        runs[-1].append(turn)
    return runs


def _output(run: Sequence[Turn], known: bool) -> Output:
    ids: list[int] = []
    mask: list[int] = []
    logprobs: list[float] = []
    for place, turn in enumerate(run):
        reply = turn.reply
        glue = reply.prompt.ids if place else ()
        ids += glue + reply.ids
        mask += [0] * len(glue) + [1] * len(reply.ids)
        logprobs += [0.0] * len(glue) + list(reply.logprobs)
    prompt = tuple(run[0].reply.prompt.ids)
    return Output(prompt, tuple(ids), tuple(mask), tuple(logprobs) if known else None)


def _written_run(run: Sequence[Turn]) -> Iterator[dict[str, Any]]:
    for place, turn in enumerate(run):
        reply = turn.reply
        yield {
            "begins": place == 0,
            "glue": len(reply.prompt.ids) if place else 0,
            "ids": len(reply.ids),
            "prompt": {"text": reply.prompt.text, "ids": (), **_continuing(reply.prompt)},
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


def _continuing(prompt: Prompt) -> dict[str, Any]:
    return {"restarts": prompt.restarts, "history": prompt.history}


def _read_turns(trees: Sequence[Mapping[str, Any]], rows: Sequence[EpisodeRow]) -> Iterator[Turn]:
    begun, at = -1, 0
    for tree in trees:
        begins = bool(tree["begins"])
        if begins:
            _check_end(rows, begun, at)
            begun, at = begun + 1, 0
        if not 0 <= begun < len(rows):
            raise ValueError(f"{begun + 1} rows in the JSON, but {len(rows)} in the batch")
        row = rows[begun]
        first, last = at + int(tree["glue"]), at + int(tree["glue"]) + int(tree["ids"])
        glue = row.prompt_ids if begins else row.response_ids[at:first]
        logprobs = () if row.logprobs is None else tuple(map(float, row.logprobs[first:last]))
        prompt = Prompt(**{**tree["prompt"], "ids": tuple(map(int, glue))})
        ids = tuple(map(int, row.response_ids[first:last]))
        if len(ids) != int(tree["ids"]):
            raise ValueError(f"replies up to id {last} in the JSON, but {len(row.response_ids)} ids in the row")
        at = last
        thought, answer = (Span(*map(int, tree[name])) for name in ("thought", "answer"))
        reply = Reply(prompt, ids, tree["text"], logprobs, (), thought, answer, tree["closed"], tree["cut"])
        if not isinstance(prompt.text, str) or not isinstance(reply.text, str):
            raise TypeError(f"a prompt or a reply in row {begun + 1} that is no text")
        actions = tuple(tree["actions"])
        if not all(isinstance(action, str) for action in actions):
            raise TypeError(f"an action in row {begun + 1} that is no text")
        step = _as_step(tree)
        yield Turn(reply, step.rewards, actions, step.valid, step.effect, step.state)
    _check_end(rows, begun, at)
    if begun + 1 != len(rows):
        raise ValueError(f"{begun + 1} rows in the JSON, but {len(rows)} in the batch")


def _as_step(tree: Mapping[str, Any]) -> Step:
    """What a turn or the end of an episode shares with a step of an environment, checked as a step is."""
    return read_step(_NOTHING | {name: tree[name] for name in _SHARED if name in tree})


def _check_end(rows: Sequence[EpisodeRow], begun: int, at: int) -> None:
    if 0 <= begun < len(rows) and at != len(rows[begun].response_ids):
        raise ValueError(f"{at} ids of row {begun + 1} in the JSON, but {len(rows[begun].response_ids)} in the batch")
