"""What a person types where an environment wants tool calls."""

from __future__ import annotations

import pytest

from heedful.cli.episode.human_reply import reply_of, ways_to_answer
from heedful.envs.common.actions import answer_text
from tool_toy import TOOLS, Dictionary

ENV = Dictionary(actions="tool_calls")


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("search[oak]", "search[oak]"),
        ("FINISH[elm 3]", "finish[elm 3]"),
        ('{"name": "search", "parameters": {"query": "oak"}}', "search[oak]"),
        ('<tool_call>{"name": "finish", "arguments": {"answer": "elm"}}</tool_call>', "finish[elm]"),
    ],
)
def test_a_plain_answer_or_json_becomes_a_call(line, answer):
    reply = reply_of(line, ENV)
    assert reply is not None
    assert answer_text(reply, TOOLS) == answer


def test_a_line_that_is_no_call_costs_no_turn():
    with pytest.raises(ValueError, match=r"Expected a call of search\(query\), finish\(answer\)"):
        reply_of("look at oak", ENV)
    assert reply_of("quit", ENV) is None
    assert "search[...], finish[...]" in ways_to_answer(ENV)
