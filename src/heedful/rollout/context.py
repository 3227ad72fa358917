"""How much of an episode stands in the prompt of a turn: all of it, the last turns, or the newest observation alone.

Promise: torch-free; which turns stand in a prompt depends on the turn's number and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass

from heedful.types import Observation


@dataclass(frozen=True, slots=True)
class Context:
    """What the agent remembers of its episode."""

    turns: int | None = None
    """Earlier turns that stand in the prompt, with the agent's own replies; none = all of them, 0 = memory-less."""

    def __post_init__(self) -> None:
        if self.turns is not None and self.turns < 0:
            raise ValueError(f"turns must be at least 0 (none = the full history), found {self.turns}")

    def first(self, turn: int) -> int:
        """The earliest turn that stands in the prompt of turn number `turn` (from 0)."""
        return 0 if self.turns is None else max(0, turn - self.turns)

    def cuts(self, most: int) -> bool:
        """Whether any prompt in an episode of `most` turns shows less than the full history."""
        return self.turns is not None and self.turns < most - 1

    def check(self, observation: Observation, turn: int, most: int) -> None:
        """Refuse the observation of turn number `turn` (from 0) if a window of an episode of `most` turns begins there.

        Raises ValueError for one that cannot: a later observation without its `opening`.
        """
        if self.turns is not None and 0 < turn < most - self.turns and not observation.opening:
            raise ValueError(
                f"Expected observations that can begin a conversation, since --context.turns {self.turns} shows a "
                f"window of the episode, but the observation of turn {turn + 1} has no `opening`: this environment "
                "can only be shown with its full history. Leave --context.turns out, or let the environment fill "
                "Observation.opening with the instructions and the observation."
            )


FULL_HISTORY = Context()
