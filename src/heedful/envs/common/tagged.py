"""An environment in a run with other tags: what it shows has the run's tags, and it reads replies that have them.

Environments speak of `<think>` and `<answer>`, in their instructions, demonstrations and readers of replies. A run with
other tags plays them through here, so that a prompt asks for the tags by which the run finds thought and answer.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, replace
from typing import Any

from heedful.envs.common.actions import CLOSE_ANSWER, CLOSE_THOUGHT, OPEN_ANSWER, OPEN_THOUGHT
from heedful.models.chat.replies import Tags
from heedful.protocols import Episode
from heedful.types import Observation, Step, Task


def in_tags(env: Any, tags: Tags) -> Any:
    """The environment with these tags in its texts. The same object where they are the usual ones."""
    spoken = _TaggedEnvironment(env, tags)
    return env if all(own == theirs for own, theirs in spoken.pairs) else spoken


@dataclass(frozen=True)
class _TaggedEnvironment:
    env: Any
    tags: Tags

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """(tag of environments, tag of the run)."""
        own, tags = (OPEN_THOUGHT, CLOSE_THOUGHT, OPEN_ANSWER, CLOSE_ANSWER), self.tags
        return tuple(zip(own, (tags.open, tags.close, tags.answer_open, tags.answer_close), strict=True))

    def told(self, text: str, reply: bool = False) -> str:
        """A text of the environment, as the run's model reads it, or a reply of the solver, as the model writes it.

        Tags that a model was taught are tokens of its own. They are never written into a prompt.
        """
        for own, theirs in self.pairs:
            if reply:
                theirs += "\n" if theirs[-1].isalnum() else ""  # Gemma's tag ends in a word
            elif theirs in self.tags.taught:
                text = re.sub(f"{OPEN_THOUGHT}[^<]*{CLOSE_THOUGHT}", "", text)
                text = re.sub(f"{own}([^<]*){CLOSE_ANSWER}", r"\1", text) if own == OPEN_ANSWER else text
                theirs = " ".join(re.findall(r"\w+", theirs))
            text = text.replace(own, theirs)
        return text

    def read(self, text: str) -> str:
        """A text of the model, as the environment reads it."""
        for own, theirs in self.pairs:
            text = text.replace(theirs, own)
        return text

    def shown(self, observation: Observation) -> Observation:
        return replace(observation, text=self.told(observation.text), opening=self.told(observation.opening))

    def episode(self) -> Episode:
        return _TaggedEpisode(self.env.episode(), self)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "env":  # asked while it is unpickled
            raise AttributeError(name)
        found = getattr(self.env, name)
        if name == "answer_worth":
            return lambda task, reply: found(task, self.read(reply))
        if name != "demonstrate":
            return found

        def demonstrate(task: Task, rng: random.Random) -> list[tuple[str, str]]:
            return [(self.told(text), self.told(reply, reply=True)) for text, reply in found(task, rng)]

        return demonstrate


class _TaggedEpisode:
    def __init__(self, episode: Episode, spoken: _TaggedEnvironment) -> None:
        self._episode, self._spoken = episode, spoken

    def start(self, task: Task, member: int) -> Observation:
        return self._spoken.shown(self._episode.start(task, member))

    def step(self, response: str) -> Step:
        step = self._episode.step(self._spoken.read(response))
        return replace(step, observation=self._spoken.shown(step.observation))
