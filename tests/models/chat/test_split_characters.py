"""Thought and answer of replies whose tokens are single bytes: the truth is the place of each byte."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from heedful.models.chat.replies import ReplyParser, Tags
from heedful.types import Prompt

STOP = 256
THOUGHTS = ("目标在右边", "e\u0301 naïve", "👩\u200d🔬👍🏽", "שָׁלוֹם", "a\u200bb", "हिन्दी", "\ufffd", "𠀀")


def decode(ids: Sequence[int]) -> str:
    return bytes(ids).decode("utf-8", "replace")


@pytest.mark.parametrize("opening", ["<think>", ""])
@pytest.mark.parametrize("thought", THOUGHTS)
def test_the_ranges_end_at_the_byte_where_tags_end_wherever_the_reply_is_cut(thought: str, opening: str) -> None:
    parser = ReplyParser(decode, Tags(), [STOP])
    head = b"" if opening else b"<think>"
    closed = head + thought.encode() + b"</think>"
    opened = closed + thought.encode()
    whole = opened + b"<answer>" + thought.encode() + b"</answer>" + thought.encode()
    answer_end = len(opened) + len(b"<answer>") + len(thought.encode()) + len(b"</answer>")
    for length in range(1, len(whole) + 1):
        reply = parser.parse(Prompt("", (1,)), tuple(whole[:length]), (), opening=opening)
        assert reply.cut
        assert reply.closed == (length >= len(closed)), length
        if length >= len(closed):
            assert (reply.thought.start, reply.thought.end) == (len(head), len(closed))
        elif length >= len(head):
            assert (reply.thought.start, reply.thought.end) == (len(head), length)
        if length >= len(opened) + len(b"<answer>"):
            assert (reply.answer.start, reply.answer.end) == (len(opened), min(length, answer_end))
    stopped = parser.parse(Prompt("", (1,)), (*whole, STOP), (), opening=opening)
    assert not stopped.cut
    assert stopped.text == opening + whole.decode()
    assert decode(stopped.ids[stopped.thought.start : stopped.thought.end]) == thought + "</think>"
    assert decode(stopped.ids[stopped.answer.start : stopped.answer.end]) == f"<answer>{thought}</answer>"
