"""verifiers: a row of a dataset, the library's own loop over turns and tools, and its rubric as the reward.

The library decides when an episode ends and what it is worth. What it must not have is left out: signal handlers,
judges over the network, scores of whole groups.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from annotated_types import Interval

from heedful.boundary import Count, NamesCode, Seconds
from heedful.envs.common import (
    CLOSE_THOUGHT,
    OPEN_THOUGHT,
    BaseEnvironment,
    Played,
    ReadAnswer,
    Turns,
    answer_fault_line,
    free_text_rules,
    read_answer,
)
from heedful.models.chat import Call, Fault, find_call, read_call
from heedful.seeds import derive
from heedful.types import Task, Tool
from heedful_envs.adapters.global_random import OwnRandom
from heedful_envs.adapters.library import HoldingEpisode, ending_of, read_options
from heedful_envs.adapters.verifiers.library import Loaded, loaded
from heedful_envs.adapters.verifiers.rollout import Rollout, Scored

Completion = Literal["reply", "answer"]

MOST_BLIND = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Verifiers(BaseEnvironment):
    """An environment of the library verifiers, with one turn, several turns, or tools.

    Reward components: those of the rubric, each times its weight, paid at the end, and `format`. Outcome: 1 if the
    rubric's reward reaches `success`, else 0 (with `partial` the share that was reached). Progress: that share. Where
    the environment has tools, replies are tool calls, and a reply without a call is the final answer.
    """

    name: ClassVar[str] = "verifiers"
    package: ClassVar[str] = "verifiers"
    """The package that is played."""

    id: Annotated[str, NamesCode()] = ""
    """The function that makes the environment, as `module:load_environment`."""
    options: str = ""
    """What is passed to that function, as name=value with spaces between, or as JSON."""
    turns: Turns = 1
    """Most turns of an episode. The library's own limit may be lower, not higher."""
    completion: Completion = "reply"
    """What the environment is handed: the whole `reply`, thought included, or the text of the `answer` block."""
    success: Annotated[float, Interval(gt=0, lt=float("inf"))] = 1.0
    """The reward of the rubric from which on an episode is a success."""
    partial: bool = False
    """Partial credit: an outcome below 1 for a reward below `success`."""
    longest: Count = 20_000
    """Most characters of a reply."""
    timeout: Seconds = 60.0
    """Seconds for one turn of the library, its asynchronous functions included."""

    def check(self) -> None:
        read_options(self.name, "options", self.options)

    @property
    def summary(self) -> str:
        return f"{self.id or 'An environment'}, played by the library verifiers."

    @property
    def library(self) -> Loaded:
        """The library's environment. Raises MissingLibrary or ValueError, with a sentence."""
        return loaded(self.id, self.options, self.turns)

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools of the environment, if it has any."""
        return self.library.tools

    def task(self, seed: int) -> Task:
        row = self.library.row(seed)
        digest = f"{derive(0, self.name, self.id, self.options, row.line):016x}"
        return Task(f"{self.name}-{digest}", seed, row.split, (), self.name)

    def episode(self) -> VerifiersEpisode:
        return VerifiersEpisode(self)

    def random_answer(self, task: Task, rng: random.Random) -> str:
        """The answer of another row. A row without one gives a number."""
        return _answer(self, rng.getrandbits(40)) or str(rng.randrange(10))

    def blind_answers(self, tasks: Sequence[Task]) -> list[str]:
        """The commonest answers of the rows."""
        counts = Counter(_answer(self, task.seed) for task in tasks)
        return [answer for answer, _ in counts.most_common(MOST_BLIND) if answer] or ["0"]

    def full_rules(self) -> str:
        if self.tools:
            return (
                f"You have {self.turns} turn{'s' * (self.turns > 1)}, with one tool call in each. A reply without a "
                "call is your final answer.\n"
            )
        if self.completion == "answer":
            return free_text_rules(f"An answer has at most {self.longest} characters.", "your answer", self.turns)
        return ""


class VerifiersEpisode(HoldingEpisode[Verifiers]):
    """One episode of `Verifiers`."""

    __slots__ = ("_shown",)

    held: Rollout

    def begin(self, task: Task, member: int) -> str:
        found = self.env.library
        row = found.row(task.seed)
        info = row.content.get("info")
        if isinstance(info, dict) and "tool_defs" in info:
            raise ValueError("verifiers: expected the tools of the environment, found a row with tools of its own.")
        own = OwnRandom(task.seed, self.env.name, member)
        self.held = Rollout(found, row, own, self.env.timeout)
        self._shown = self.held.begin()
        return self._show()

    def play(self, response: str) -> Played:
        env, rollout = self.env, self.held
        read, call = self._read(response)
        answered: str | Scored = self._shown
        if not read.fault:
            answered = rollout.say(read.text, call)
        if isinstance(answered, str):
            self._shown = answered
            answered = answered if self.turns_left else rollout.stop()
        scored = answered if isinstance(answered, Scored) else None
        if scored is not None:
            self.close()
        share = 0.0 if scored is None else min(1.0, max(0.0, scored.reward / env.success))
        return Played(
            fault=read.fault,
            rewards={} if scored is None else scored.components,
            ending=None if scored is None else ending_of(share, bool(self.turns_left)),
            outcome=share if env.partial or share == 1.0 else 0.0,
            progress=share,
            actions=(call.tool.name if call else " ".join(read.text.split())[:200],) if not read.fault else (),
            note=answer_fault_line(read, env.brief),
            shown=self._show(),
            effect=read.fault or ("the library answered" if scored is None else f"rubric {scored.reward:g}"),
            state=f"turn {self.turn}, {'open' if scored is None else f'scored {scored.reward!r}'}",
        )

    def _read(self, response: str) -> tuple[ReadAnswer, Call | None]:
        """What the library is handed: a text, and a call if there is one. Or a fault.

        Without a call the text is the final answer.
        """
        env, call, text = self.env, None, response
        if len(response) > env.longest:
            return ReadAnswer("", f"the reply has {len(text)} characters, more than {env.longest}", "too long"), None
        if env.completion == "answer" and not env.tools:
            return read_answer(response, env.longest), None
        if env.tools:
            opened, closed = response.find(OPEN_THOUGHT), response.find(CLOSE_THOUGHT)
            if opened >= 0 and closed < 0:
                return ReadAnswer("", f"the thought is not closed by {CLOSE_THOUGHT}", "open thought"), None
            written = find_call(response, max(closed, 0))
            if written is not None:
                text, found = response[: written.start], read_call(written, env.tools)
                if isinstance(found, Fault):
                    return ReadAnswer("", found.clause, found.kind), None
                call = found
        if call is None and not text.strip():
            return ReadAnswer("", "the reply is empty", "empty"), None
        return ReadAnswer(text.encode(errors="replace").decode()), call

    def _show(self) -> str:
        return f"{self.limits()}\n{self._shown}"


def _answer(env: Verifiers, seed: int) -> str:
    return str(env.library.row(seed).content.get("answer") or "").strip()[: env.longest]
