"""The episodes that a server holds for its clients, each with its own id.

Only one request at a time uses a session. A repeated request gets the answer of the first one, so a client may repeat a
request if an answer was lost. Unused sessions are closed.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from heedful.envs.common.contract import checked_episode, checked_observation, checked_step
from heedful.envs.common.wire import Tree, observation_tree, step_tree
from heedful.guarded import Raised, guarded_call
from heedful.protocols import Episode
from heedful.types import Task


class Refusal(Exception):
    """A request that is not served, with its HTTP status and a sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


@dataclass(slots=True, eq=False)
class _Session:
    name: str
    key: str
    used: float
    """Time of its last request, on the table's clock."""
    episode: Episode | None = None
    """`None` before the start and after the end."""
    turn: int = 0
    """Replies executed so far."""
    response: str = ""
    """The last executed reply."""
    answer: Tree = None
    """The answer to that reply."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def over(self) -> bool:
        return self.episode is None and self.answer is not None


class Sessions:
    """A table of at most `most` open episodes. An episode that is unused for `idle` seconds is closed.

    An answer is a tree with `observation`, `step` or `raised`. `raised` holds the text of the environment's error, and
    ends the episode. The last answer of an ended episode is kept while there is room.
    """

    def __init__(
        self,
        make: Callable[[], Episode],
        most: int,
        idle: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._make, self._most, self._idle, self._clock = make, most, idle, clock
        self._table = threading.Lock()
        self._sessions: dict[str, _Session] = {}
        self.opened = 0
        self.expired = 0

    @property
    def open(self) -> int:
        """Number of episodes that are running or about to begin."""
        return sum(not session.over for session in tuple(self._sessions.values()))

    def start(self, task: Task, member: int, key: str) -> Tree:
        """Begin an episode: `{"session": id, "observation": ...}`, or `raised` and no session.

        `key`: chosen by the client at random. A second request with the same key gets the same session. Empty = no key.
        Raises Refusal 429 if there is no room.
        """
        with self._table:
            session = next((each for each in self._sessions.values() if key and each.key == key), None)
            session = session or self._admit(key)
        with session.lock:
            if session.turn > 0:
                raise Refusal(409, f"The session of key {key!r} has continued: choose a new key.")
            if session.answer is None:

                def begin() -> Tree:
                    session.episode = checked_episode(self._make())
                    first = checked_observation(session.episode.start(task, member))
                    return {"observation": observation_tree(first)}

                self._play(session, begin)
                if session.over:
                    self.close(session.name)
            return {"session": session.name, **session.answer}

    def step(self, name: str, response: str, turn: int | None) -> Tree:
        """Execute one reply.

        `turn`: the number of replies executed before this one, as the client counts. A repeated request with the same
        number and reply gets the same answer. `None`: no check, the next turn is taken.

        Raises Refusal 404 for an unknown session, 409 for a turn that is not the next one.
        """
        session = self._sessions.get(name)
        if session is None:
            raise Refusal(
                404,
                f"There is no session {name[:60]!r}: it was closed, or idle for more than {self._idle:g} s, or the "
                "server was restarted.",
            )
        with session.lock:
            session.used = self._clock()
            if turn is not None and turn == session.turn - 1 and response == session.response:
                return session.answer
            episode = session.episode
            if episode is None:
                raise Refusal(409, f"The episode of session {name} is over: begin another one with POST /sessions.")
            if turn is not None and turn != session.turn:
                raise Refusal(
                    409, f"Expected turn {session.turn} of session {name}, or the last one again, found turn {turn}."
                )

            def executed() -> Tree:
                step = checked_step(episode.step(response))
                session.episode = None if step.ending is not None else episode
                return {"step": step_tree(step)}

            session.turn, session.response = session.turn + 1, response
            return self._play(session, executed)

    def close(self, name: str) -> bool:
        """Drop a session. Returns whether it existed."""
        with self._table:
            return self._sessions.pop(name, None) is not None

    def sweep(self) -> int:
        """Close idle sessions. Returns how many of them were still running."""
        latest = self._clock() - self._idle
        # A session that is executing a request is not idle, however long it takes.
        stale = [each for each in tuple(self._sessions.values()) if each.used < latest and not each.lock.locked()]
        lost = sum(self.close(session.name) and not session.over for session in stale)
        self.expired += lost
        return lost

    def _play(self, session: _Session, call: Callable[[], Tree]) -> Tree:
        """The session's answer, under its lock: what the episode says, or raised."""
        answer = guarded_call(call)
        if isinstance(answer, Raised):
            session.answer, session.episode = {"raised": str(answer)}, None
        else:
            session.answer = answer.value
        session.used = self._clock()
        return session.answer

    def _admit(self, key: str) -> _Session:
        """A new session, under the table's lock. Raises Refusal 429 if there is no room."""
        if len(self._sessions) >= self._most:
            self._sessions = {name: session for name, session in self._sessions.items() if not session.over}
        if len(self._sessions) >= self._most:
            raise Refusal(
                429,
                f"All {self._most} sessions of this server are in use. Close some with DELETE /sessions/ID, wait until "
                f"idle ones are closed (after {self._idle:g} s), or start the server with more --sessions.",
            )
        session = _Session(secrets.token_hex(12), key, self._clock())
        self._sessions[session.name] = session
        self.opened += 1
        return session
