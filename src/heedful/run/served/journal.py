"""The journal of an evaluation: every reply is written when it arrives. So an interrupted one asks for none twice.

The episodes are played again from the journal, up to the replies that are missing.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.policies.servers import Usage
from heedful.storage.files import naming_a_full_disk
from heedful.types import Conversation, Prompt, Reply, Span

if TYPE_CHECKING:
    from heedful.policies.served_text import TextPolicy
    from heedful.run.served.model import CountedTokens


@dataclass(frozen=True, slots=True)
class Totals:
    """The cost of all replies so far, interrupted sessions included."""

    replies: int = 0
    prompt_tokens: int = 0
    sampled_tokens: int = 0
    cached_tokens: int = 0
    """Tokens of prompts that the server had in its prefix cache. They are counted in `prompt_tokens`, too."""
    uncounted: int = 0
    """Replies for which the server named no tokens."""
    models: Mapping[str, int] = field(default_factory=dict)
    """Name of a model, as the server gives it in its answers -> replies under this name."""
    seconds: float = 0.0
    """Wall time in which replies were asked for."""


class ReplyJournal:
    """The file `replies.jsonl`: one line per reply. Safe for several threads.

    An incomplete last line, as a kill leaves it, is dropped.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._began = time.monotonic()
        content = path.read_bytes() if path.exists() else b""
        whole = content[: content.rfind(b"\n") + 1]
        if len(whole) < len(content):
            path.write_bytes(whole)
        self._entries = {entry["at"]: entry for entry in map(json.loads, whole.splitlines())}
        self._session = max((entry["session"] + 1 for entry in self._entries.values()), default=0)
        self.found = len(self._entries)
        """Replies of earlier sessions."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._stream = path.open("a", encoding="utf-8")

    def get(self, at: str) -> Reply | None:
        """The reply that is written under this name."""
        with self._lock:
            entry = self._entries.get(at)
        if entry is None:
            return None
        stored: dict[str, Any] = dict(entry["reply"])
        prompt = stored.pop("prompt")
        for name in ("ids", "logprobs", "entropies"):
            stored[name] = tuple(stored[name])
        for name in ("thought", "answer"):
            stored[name] = Span(**stored[name])
        return Reply(Prompt(**prompt | {"ids": tuple(prompt["ids"])}), **stored)

    def add(self, at: str, reply: Reply, usage: Usage) -> None:
        stored = asdict(reply)
        del stored["prompt"]["images"]  # none: a served model is asked in text alone
        entry = {
            "at": at,
            "reply": stored,
            "usage": (usage.prompt, usage.sampled, usage.cached),
            "session": self._session,
            "clock": round(time.monotonic() - self._began, 3),
            "model": usage.model,
        }
        line = json.dumps(entry, ensure_ascii=True)
        with self._lock, self._naming():
            self._entries[at] = json.loads(line)
            self._stream.write(line + "\n")
            self._stream.flush()

    @property
    def totals(self) -> Totals:
        with self._lock:
            entries = list(self._entries.values())
        prompt, sampled, cached = (sum(entry["usage"][place] or 0 for entry in entries) for place in range(3))
        clocks: dict[int, float] = {}
        for entry in entries:
            clocks[entry["session"]] = max(entry["clock"], clocks.get(entry["session"], 0.0))
        uncounted = sum(entry["usage"][1] is None for entry in entries)
        models = dict(Counter(entry["model"] for entry in entries if entry["model"]))
        return Totals(len(entries), prompt, sampled, cached, uncounted, models, sum(clocks.values()))

    def close(self) -> None:
        with self._naming():  # what could not be written is tried once more
            self._stream.close()

    def _naming(self) -> AbstractContextManager[None]:
        return naming_a_full_disk(self._path, kept="the replies written before it")

    def remove(self) -> None:
        """Close and delete the file. The replies are in the rollouts then."""
        self.close()
        self._path.unlink(missing_ok=True)


class JournaledPolicy:
    """A policy that takes replies from a journal, and writes those that it has to ask for.

    `scope`: part of the names of the replies, such as the kind and the seed of the sampling. `tell`: called after each
    reply. The name of a reply includes a digest of its conversation, so a changed environment is asked anew.
    """

    def __init__(
        self, policy: TextPolicy | CountedTokens, journal: ReplyJournal, scope: str, tell: Callable[[], None]
    ) -> None:
        self.temperature, self.version, self.parallel = policy.temperature, policy.version, policy.parallel
        self._policy, self._journal, self._scope, self._tell = policy, journal, scope, tell

    def keep(self, keys: Collection[str]) -> None:
        """Do nothing: a server keeps its own cache."""

    def respond(self, conversations: Sequence[Conversation]) -> list[Reply]:
        """One reply per conversation. Several are asked for at once."""
        if len(conversations) < 2:
            return [self._answer(conversation) for conversation in conversations]
        with ThreadPoolExecutor(min(self.parallel, len(conversations)), thread_name_prefix="ask") as pool:
            return list(pool.map(self._answer, conversations))

    def _answer(self, conversation: Conversation) -> Reply:
        texts = [[message.role, message.content, message.ids] for message in conversation.messages]
        digest = hashlib.sha256(json.dumps([texts, conversation.restarts]).encode()).hexdigest()[:16]
        at = f"{self._scope}/{conversation.key}/{conversation.turn}/{digest}"
        reply = self._journal.get(at)
        if reply is None:
            reply, usage = self._policy.answer(conversation)
            self._journal.add(at, reply, usage)
        self._tell()
        return reply
