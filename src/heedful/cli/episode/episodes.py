"""What every way of playing one episode shares: the settings of its task, and how its turns and its end are shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from rich.table import Table
from rich.text import Text

from heedful import envs
from heedful.boundary import Choice, shown
from heedful.protocols import Environment
from heedful.types import Task, Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedSettings:
    """Settings of an episode that no model plays."""

    seed: int = 0
    """Seed of the task, and of the random draws of the player."""
    split: Literal["train", "val", "test"] = "val"
    """The split of the task."""
    member: int = 0
    """Number of the member: another noise of the environment on the same task, and other draws of a model."""
    env: Annotated[Any, Choice(envs.ENVIRONMENTS, Environment)]
    """The environment and its knobs."""


def drawn_task(settings: ScriptedSettings) -> Task:
    from heedful.envs.common.tasks import TaskStream

    if settings.member < 0:
        raise ValueError(f"--member must be at least 0, found {settings.member}.")
    return TaskStream(settings.env, settings.split, settings.seed).next(1)[0]


def named(task: Task, member: int) -> str:
    return f"task {task.id} of {task.split}, member {member}"


def ended(ending: str, outcome: float | None, reward: float | None) -> str:
    success = " (success)" if outcome == 1.0 else ""
    return f"ended: {ending.replace('_', ' ')}, outcome {outcome:g}{success}, reward {reward:g}"


def table_of_turns(turns: Sequence[Turn]) -> Table:
    """A table of the turns: length of the reply, probability and entropy of its tokens, reward and effect."""
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in ("turn", "tokens", "thought", "log p / token", "entropy / token", "reward"):
        table.add_column(column, justify="right")
    table.add_column("effect")
    for number, turn in enumerate(turns, start=1):
        reply = turn.reply
        table.add_row(
            str(number),
            str(len(reply.ids)),
            str(len(reply.thought)),
            _mean(reply.logprobs),
            _mean(reply.entropies),
            f"{turn.reward:g}",
            Text(shown(turn.effect or ", ".join(turn.actions)) or "nothing executed"),
        )
    return table


def _mean(values: tuple[float, ...]) -> str:
    return f"{sum(values) / len(values):.3f}" if values else "-"
