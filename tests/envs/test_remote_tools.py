"""Tools of a served environment: the client has the same ones, results keep their role, strange ones are refused."""

from __future__ import annotations

import pytest

from heedful.envs.common.tools import call_text
from heedful.envs.remote.answers import checked_description
from heedful.envs.remote.environment import Remote
from heedful.envs.transport.wire import WireError
from heedful.models.chat.calls import tools_of
from patience import PATIENCE
from served import serving
from tool_toy import TOOLS, Dictionary


def test_a_client_has_the_tools_of_the_server():
    with serving(Dictionary(actions="tool_calls")) as server:
        remote = Remote(server.url, timeout=PATIENCE)
        assert tools_of(remote) == TOOLS
        episode = remote.episode()
        assert episode.start(remote.task(0), 0).role == "user"
        assert episode.step(call_text("search[oak]", TOOLS)).observation.role == "tool"
    with serving(Dictionary()) as server:
        assert tools_of(Remote(server.url, timeout=PATIENCE)) == ()


@pytest.mark.parametrize(
    "tools", [{}, [1], [{"name": "x"}], [{"name": "x", "description": "", "form": "", "parameters": 3}]]
)
def test_strange_tools_are_refused(tools):
    tree = {"protocol": 1, "name": "x", "summary": "", "digest": "d", "turns": 1, "actions": [], "offers": []}
    assert checked_description(tree, "url")["tools"] == []
    with pytest.raises(WireError, match=r"'tools' of the environment server at .* as a list of names"):
        checked_description(tree | {"tools": tools}, "url")
