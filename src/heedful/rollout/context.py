"""How much of an episode is in the prompt of a turn: all of it, the last turns, or the newest observation only.

The turns in a prompt depend on the turn's number only.
"""

from __future__ import annotations

from heedful.boundary import Natural, settings
from heedful.types import Observation


@settings
class Context:
    """The history in the agent's prompt."""

    turns: Natural | None = None
    """Earlier turns in the prompt, with the agent's own replies. none = all of them, 0 = no memory."""

    def first(self, turn: int) -> int:
        """The earliest turn in the prompt of turn number `turn` (from 0)."""
        return 0 if self.turns is None else max(0, turn - self.turns)

    def cuts(self, most: int) -> bool:
        """Whether any prompt in an episode of at most `most` turns shows less than the full history."""
        return self.turns is not None and self.turns < most - 1

    def check(self, observation: Observation, turn: int, most: int) -> None:
        """Raise ValueError if a window begins with this observation and it has no `opening`.

        `turn`: its number, from 0. `most`: most turns of the episode.
        """
        if self.turns is not None and 0 < turn < most - self.turns and not observation.opening:
            raise ValueError(
                f"Expected observations that can begin a conversation, since --context.turns {self.turns} shows a "
                f"window of the episode, but the observation of turn {turn + 1} has no `opening`: this environment "
                "can only be shown with its full history. Leave --context.turns out, or let the environment fill "
                "Observation.opening with the instructions and the observation."
            )


FULL_HISTORY = Context()
