"""Chat messages of logs as turns: the text before each reply, and the reply.

No text is invented. A thought that stands apart from the content is put before it, between the tags. Contents made of
parts keep their texts and thoughts, tool calls and their results are written as JSON, and other parts are named, with a
digest of what they hold.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from heedful.auditing.logs.records import Misfit, digest, shown, text_of
from heedful.diagnostics.cross_scores.thoughts import ThoughtTags
from heedful.types import Prompt, Reply, Span, Turn

Messages = tuple[Mapping[str, str], ...]

UNREAD_PARTS = "Pictures and other parts of messages that are no text are not read: they are told apart, and no more."
"""Assumed of logs that hold such parts."""
_UNREAD = re.compile(r'"type": "(input_)?(image|video|audio|file)')
THOUGHTS = ("reasoning_content", "reasoning", "thinking", "reasoning_details", "thinking_blocks", "thought")
"""Where servers and trainers put a thought beside the content of its message, the first one that is there: as text, as
a part, or as a list of parts."""
_TEXTS = ("text", "thinking", "think", "reasoning", "summary", "content")
"""Keys of a part's text."""


def messages_of(value: object, what: str, tags: ThoughtTags) -> Messages:
    """A list of messages as roles and plain texts. Raises `Misfit`."""
    if not isinstance(value, list) or not value:
        raise Misfit(f"a list of messages as `{what}`", _described(value))
    return tuple(_message(entry, f"{what}[{place}]", tags) for place, entry in enumerate(value))


def _message(entry: object, what: str, tags: ThoughtTags) -> Mapping[str, str]:
    if not isinstance(entry, dict) or not isinstance(entry.get("role"), str):
        raise Misfit(f"a message with `role` and `content` as `{what}`", _described(entry))
    held, calls = entry.get("content"), entry.get("tool_calls")
    if isinstance(held, list):  # neighbouring thoughts are one
        content = "".join(_part(part, what, tags) for part in held).replace(tags.close + tags.open, "\n")
    else:
        content = "" if held is None else text_of(held, f"{what}.content")
    if calls:
        content += text_of(json.dumps(calls, ensure_ascii=False, sort_keys=True, default=str), what)
    elif isinstance(held, list):
        content = content.removesuffix(tags.close)  # of a part that was cut off
    return {"role": text_of(entry["role"], f"{what}.role"), "content": with_thought(content, entry, what, tags)}


def text_of_messages(messages: Sequence[Mapping[str, str]]) -> str:
    """Messages for a reader's eyes, and as the identity of a prompt."""
    return "\n\n".join(f"{message['role']}: {message['content']}" for message in messages)


def turns_of(messages: Messages, tags: ThoughtTags) -> tuple[Messages, tuple[Turn, ...]]:
    """The first prompt, and one turn per assistant message with the text that was new before it.

    What follows the last assistant message was never answered and is left out. Raises `Misfit` if nothing is before
    the first reply.
    """
    at = [place for place, message in enumerate(messages) if message["role"] == "assistant"]
    if at and at[0] == 0:
        raise Misfit("a prompt before the first reply", "an assistant's message first")
    starts = [0, *(place + 1 for place in at)]
    prompts = [messages[start:end] for start, end in zip(starts, at, strict=False)]
    turns = tuple(
        text_turn(text_of_messages(prompt), messages[place]["content"], tags)
        for prompt, place in zip(prompts, at, strict=True)
    )
    return (prompts[0] if prompts else messages), turns


def text_turn(prompt: str, reply: str, tags: ThoughtTags, rewards: Mapping[str, float] | None = None) -> Turn:
    """A turn whose texts alone are known: ids, ranges, actions and validity are placeholders."""
    nothing = Span(0, 0)
    closed = tags.close in reply
    sampled = Reply(Prompt(prompt, ()), (), reply, (), (), nothing, nothing, closed=closed, cut=False)
    return Turn(sampled, dict(rewards or {}), (), True, "", "")


def with_thought(content: str, held: Mapping[str, Any], what: str, tags: ThoughtTags) -> str:
    """The content with the thought that its message or row holds apart, between tags. A content that already has a
    thought keeps it alone. A thought that nothing follows was cut off, and stays open."""
    if tags.close in content:
        return content
    for value in (held.get(name) for name in THOUGHTS):
        parts = [{"type": "thinking", "text": value}] if isinstance(value, str) else value
        thought = "\n".join(text for part in _parts(parts) for text in _texts(part))
        if thought:
            return f"{tags.open}{text_of(thought, what)}{tags.close if content else ''}{content}"
    return content


def unread_parts(value: object) -> tuple[str, ...]:
    """The sentence about parts that are no text, if a message in `value` holds one."""
    return (UNREAD_PARTS,) if _UNREAD.search(json.dumps(value, default=str)) else ()


def _part(part: object, what: str, tags: ThoughtTags) -> str:
    if isinstance(part, str):
        return text_of(part, what)
    if isinstance(part, dict):
        kind = part.get("type")
        is_thought = str(kind).startswith(("think", "thought", "reasoning")) or part.get("thought") is True
        if is_thought and (thought := "\n".join(_texts(part))):
            return f"{tags.open}{text_of(thought, what)}{tags.close}"
        if isinstance(part.get("text"), str):
            return text_of(part["text"], what)
    if not isinstance(part, dict) or not isinstance(kind, str):
        raise Misfit(f"parts with a `type` in `{what}.content`", _described(part))
    held = {name: value for name, value in part.items() if name != "type" and value is not None}
    if kind.startswith(("tool", "function")):  # a call, or what came back
        return text_of(json.dumps(held, ensure_ascii=False, sort_keys=True, default=str), what)
    number = f" {digest(json.dumps(held, sort_keys=True, default=str))}" if held else ""
    return f"[{text_of(kind, what)}{number}]"


def _parts(value: object) -> list[dict[str, Any]]:
    return [part for part in (value if isinstance(value, list) else [value]) if isinstance(part, dict)]


def _texts(part: Mapping[str, Any]) -> Iterator[str]:
    """The text of a part: under one of several names, or in parts of its own."""
    for value in (part.get(name) for name in _TEXTS):
        texts = [value] if isinstance(value, str) else [text for inner in _parts(value) for text in _texts(inner)]
        if any(texts):
            yield from texts
            return


def _described(value: object) -> str:
    if isinstance(value, list) and not value:
        return "an empty list"
    return "nothing" if value is None else shown(value)
