"""Tool calls of a served model: without a tokenizer the server's template would not be given the tools."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from heedful.run.served.model import open_served
from tool_toy import Dictionary


def test_text_alone_is_refused_where_replies_are_calls():
    settings = cast(Any, SimpleNamespace(env=Dictionary(actions="tool_calls")))
    with (
        pytest.raises(ValueError, match="Expected --tokenizer, since the replies are tool calls"),
        open_served("http://127.0.0.1:1", "model", None, settings, print),
    ):
        pass
