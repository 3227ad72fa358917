"""One rollout of the library, turn by turn: its own loop runs, and asks this end for each reply.

Everything asynchronous runs on an event loop of the rollout's own, for at most a deadline, and only while a reply is
handed in.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from heedful.models.chat import Call
from heedful_envs.adapters.global_random import OwnRandom
from heedful_envs.adapters.verifiers.library import Loaded, Row, failures


@dataclass(frozen=True, slots=True)
class Scored:
    """What the rubric says of a whole rollout."""

    reward: float
    components: Mapping[str, float] = field(default_factory=dict)
    """Weighted scores by the name of the function. They add up to the reward."""


class Rollout:
    """One rollout that waits for replies. `close` ends it."""

    def __init__(self, loaded: Loaded, row: Row, own: OwnRandom, timeout: float) -> None:
        self._loaded, self._row, self._own, self._timeout = loaded, row, own, timeout
        self._loop = asyncio.new_event_loop()
        self._asked: asyncio.Future[None] = self._loop.create_future()
        self._reply: asyncio.Future[Any] | None = None
        self._prompt: list[Any] = []
        self._replies = 0
        self._task: asyncio.Task[Any] | None = None

    def begin(self) -> str:
        """The first prompt, as one text."""
        client = _client_class(self._loaded.library)()
        client.seat = self
        self._task = self._loop.create_task(self._whole(client))
        ended = self._run()
        if ended is not None:
            raise ValueError("verifiers: the environment ended before it asked for a reply.")
        # Roles are named where more than one has spoken, the system apart.
        named = len({_role(message) for message in self._prompt} - {"system"}) > 1
        told = {"assistant": "Assistant: ", "user": "User: "} if named else {}
        return "\n\n".join(f"{told.get(_role(message), '')}{_text(message)}" for message in self._prompt)

    def say(self, text: str, call: Call | None) -> str | Scored:
        """Hand in a reply: the next messages of the environment, or the score at the end."""
        seen = len(self._prompt)
        assert self._reply is not None, "the rollout has not begun, or is over"
        self._replies += 1
        self._reply.set_result(_response(self._loaded.library, text, call, self._replies))
        ended = self._run()
        if ended is not None:
            return ended
        new = self._prompt[seen + 1 :]
        if not new:
            raise ValueError(
                "verifiers: this environment rewrites its conversation, but heedful's prompts are append-only."
            )
        return "\n\n".join(_text(message) for message in new)

    def stop(self) -> Scored:
        """End the rollout before its next reply, and score what there is. 0 if no reply was handed in."""
        if not self._replies or self._reply is None:
            return Scored(0.0)
        self._reply.set_exception(self._loaded.library.OverlongPromptError())
        ended = self._run()
        return Scored(0.0) if ended is None else ended

    def close(self) -> None:
        """Cancel what still runs, and close the event loop."""
        if self._loop.is_closed():
            return
        if self._task is not None and not self._task.done():
            self._task.cancel()
            self._loop.run_until_complete(asyncio.wait({self._task}, timeout=1.0))
        self._loop.close()

    async def reply_to(self, prompt: Sequence[Any]) -> Any:
        """Called by the library's loop, through the client, for each reply."""
        self._prompt = list(prompt)
        self._reply = self._loop.create_future()
        self._asked.set_result(None)
        return await self._reply

    def _run(self) -> Scored | None:
        """Run until the library asks for a reply (`None`) or has ended."""
        task = self._task
        assert task is not None
        if self._asked.done():
            self._asked = self._loop.create_future()
        waited = asyncio.wait({task, self._asked}, timeout=self._timeout, return_when=asyncio.FIRST_COMPLETED)
        with self._own:
            done, _ = self._loop.run_until_complete(waited)
        if task in done:
            scored: Scored = task.result()
            return scored
        if not done:
            raise TimeoutError(
                f"verifiers: the environment took more than {self._timeout:g} seconds for one turn (--env.timeout)."
            )
        return None

    async def _whole(self, client: Any) -> Scored:
        noted: list[BaseException] = []
        failures.set(noted)
        environment = self._loaded.environment
        state = await environment.rollout(self._row.content, client, "heedful", {})
        if state.get("error") is not None:
            raise state["error"]
        await environment.rubric.score_rollout(state)
        await environment.rubric.cleanup(state)
        if noted:
            raise noted[0]
        return _scored(self._loaded, float(state["reward"]), state["metrics"] or {})


def _scored(loaded: Loaded, reward: float, metrics: Mapping[str, float]) -> Scored:
    parts: dict[str, float] = {}
    for rubric in loaded.rubrics():
        for function, weight in zip(rubric.funcs, rubric.weights, strict=True):
            if weight and function.__name__ in metrics:
                parts[function.__name__] = weight * float(metrics[function.__name__])
    # Functions of one name are added up by the library, so their parts cannot be told apart.
    if abs(sum(parts.values()) - reward) > 1e-9 * max(1.0, abs(reward)):
        parts = {"rubric": reward}
    return Scored(reward, parts)


@lru_cache(maxsize=2)
def _client_class(library: Any) -> type:
    """A client of the library that asks a `Rollout` for replies, in place of a server."""

    async def get_response(client: Any, prompt: Any, *rest: Any, **named: Any) -> Any:
        return await client.seat.reply_to(prompt)

    def made(client: Any) -> None:
        return None

    kind = type("Replies", (library.Client,), {"__init__": made, "get_response": get_response})
    kind.__abstractmethods__ = frozenset()  # type: ignore[attr-defined]
    return kind


def _response(library: Any, text: str, call: Call | None, number: int) -> Any:
    calls = None
    if call is not None:
        arguments = json.dumps(dict(call.arguments))
        calls = [library.ToolCall(id=f"call_{number}", name=call.tool.name, arguments=arguments)]
    message = library.ResponseMessage(
        content=text, tool_calls=calls, finish_reason="tool_calls" if calls else "stop", is_truncated=False
    )
    return library.Response(id=f"reply_{number}", created=0, model="heedful", message=message)


def _role(message: Any) -> str:
    return str(message["role"] if isinstance(message, Mapping) else message.role)


def _text(message: Any) -> str:
    content = message["content"] if isinstance(message, Mapping) else message.content
    if isinstance(content, str):
        return content
    parts = [part if isinstance(part, Mapping) else part.model_dump() for part in content or ()]
    if any(part.get("type") != "text" for part in parts):
        kinds = sorted({str(part.get("type")) for part in parts})
        raise ValueError(f"verifiers: expected messages of text, found parts of the types {', '.join(kinds)}.")
    return "\n".join(str(part["text"]) for part in parts)
