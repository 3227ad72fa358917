"""Tasks that begin with help: the environment's solver makes the first steps, and the agent goes on from there.

A task with help is another task, with an id of its own. The environment without help draws all tasks, so that no
held-out task ever has any. The help is part of the first prompt, so nothing of it is trained on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

from heedful.envs.common.contract import demonstrated, steps_of
from heedful.protocols import Demonstrates, Episode, TellsSteps
from heedful.seeds import stream
from heedful.types import HELPED, Ending, Observation, Step, Task, without_help

PLANTED = ("imperfect", "systematic", "template", "thoughtless")
"""Knobs that plant errors in demonstrations. The solver that helps has none."""

MEMBERS = 4
"""Episodes in which a solver is given the chance to be paid, where chance decides, too."""

TRIED = 16
"""Tasks on which it is tried whether chance moves the state."""


@dataclass(frozen=True, slots=True)
class Way:
    """What the solver does on a task."""

    replies: tuple[str, ...]
    actions: tuple[tuple[str, ...], ...]
    """The executed actions of each reply."""
    steps: tuple[str, ...]
    """The steps of its only reply, where the environment tells them. Empty where it has several replies."""
    unpaid: bool | None
    """It got all the way, and no episode counted as solved: the reward is broken. `None`: it did not get so far."""

    @property
    def length(self) -> int:
        """The number of steps or turns. Help is fewer than that, so a task of length 1 has none."""
        return max(len(self.steps), len(self.replies))


@dataclass(frozen=True)
class Helped:
    """An environment with a solver, whose tasks can begin with help. Everything else is as in the environment.

    `given(task, 3)` is the task with the first three turns played by the solver, without planted errors. The agent's
    conversation begins with the `opening` of the observation after them. A solver that needs one turn gives its first
    steps as a line of the prompt, where the environment is one that `TellsSteps`.
    """

    env: Any
    _ways: dict[str, Way] = field(default_factory=dict, repr=False, compare=False)
    _refused: set[str] = field(default_factory=set, repr=False, compare=False)

    def given(self, task: Task, turns: int) -> Task:
        """The task that begins after so many turns, or steps, of help: ID+h3. Without any, the task itself."""
        return replace(task, id=f"{task.id}+h{turns}", tags=(*task.tags, HELPED)) if turns else task

    def way(self, task: Task) -> Way:
        """What the solver does on a task that has no help. Raises ValueError where it does nothing."""
        if task.id not in self._ways:
            planted = [each.name for each in fields(self.env) if each.name in PLANTED] if is_dataclass(self.env) else []
            solver = replace(self.env, **dict.fromkeys(planted, 0.0)) if planted else self.env
            replies = tuple(reply for _, reply in demonstrated(solver, task, stream(task.seed, HELPED)))
            played = [steps_of(self.env, task, replies, member) for member in range(MEMBERS if self._noisy else 1)]
            solved = any(steps[-1].ending is Ending.SOLVED for steps in played)
            told = len(replies) == 1 and isinstance(self.env, TellsSteps)
            self._ways[task.id] = Way(
                replies,
                tuple(tuple(step.actions) for step in played[0]),
                tuple(self.env.solver_steps(task)) if told else (),
                not solved if solved or any(steps[-1].progress == 1 for steps in played) else None,
            )
        return self._ways[task.id]

    def unpaid(self, task: Task) -> bool | None:
        """Whether the solver is not paid. `None`: there is none, or it cannot play this task to its end."""
        if not isinstance(self.env, Demonstrates) or task.id in self._refused:
            return None
        try:
            return self.way(task).unpaid
        except ValueError:  # an environment may refuse to demonstrate, for instance a problem without a solution
            self._refused.add(task.id)
            return None

    @property
    def _noisy(self) -> bool:
        return bool(getattr(self.env, "noisy", False))

    def _strays(self, task: Task) -> bool:
        """Whether the solver's replies, but the last, lead other members elsewhere: an environment may not say so."""
        replies = self.way(task).replies[:-1]
        played = [steps_of(self.env, task, replies, member) for member in range(MEMBERS)]
        return any([step.observation for step in steps] != [step.observation for step in played[0]] for steps in played)

    def check(self, tasks: Sequence[Task]) -> None:
        """Raises ValueError, a sentence, where the environment cannot help with any of these tasks."""
        why = ""
        if not isinstance(self.env, Demonstrates):
            why = "which has no solver (`demonstrate`)"
        elif self._noisy or any(map(self._strays, tasks[:TRIED])):
            why = "in which chance would begin the members of a group in different places"
        elif not (helped := [self.given(task, 1) for task in tasks if self.way(task).length > 1]):
            why = "whose solver needs one turn and does not tell its steps (`solver_steps`)"
        elif not self.episode().start(helped[0], 0).text:
            why = "whose observations have no `opening`, so no conversation can begin in the middle of an episode"
        if why:
            raise ValueError(
                f"Expected an environment that can help (--treat help), found {self.env.name}, {why}. Leave help out, "
                "or change the knobs of the environment."
            )

    def episode(self) -> Episode:
        return _HelpedEpisode(self.env.episode(), self)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "env":  # asked while it is unpickled
            raise AttributeError(name)
        found = getattr(self.env, name)
        if name == "answer_worth":
            return lambda task, reply: None if HELPED in task.tags else found(task, reply)
        if name != "right_actions":
            return found

        def right_actions(task: Task, before: Sequence[Sequence[str]] = ()) -> Any:
            bare, turns = without_help(task)
            way = self.way(bare) if turns else None
            return found(bare, (*way.actions[:turns], *before) if way and not way.steps else before)

        return right_actions


class _HelpedEpisode:
    def __init__(self, episode: Episode, env: Helped) -> None:
        self._episode, self._env = episode, env

    def start(self, task: Task, member: int) -> Observation:
        bare, turns = without_help(task)
        shown = self._episode.start(bare, member)
        if not turns:
            return shown
        way = self._env.way(bare)
        if way.steps:
            told = "steps" if getattr(self._env, "brief", False) else "First steps of a solution:"
            line = f"\n{told} {' '.join(way.steps[:turns])}"
            return replace(shown, text=shown.text + line, opening=shown.opening and shown.opening + line)
        for reply in way.replies[:turns]:
            shown = self._episode.step(reply).observation
        return replace(shown, text=shown.opening, role="user")

    def step(self, response: str) -> Step:
        return self._episode.step(response)


def is_helped(task: str) -> bool:
    """Whether this is the id of a task that begins with help."""
    _, given, turns = task.rpartition("+h")
    return bool(given) and turns.isdigit()
