from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from heedful.models.chat.render import Renderer


@pytest.fixture(scope="session")
def renderer(tokenizer: Any) -> Renderer:
    """A sixth of all ids end a reply, so lengths vary from one token to the limit."""
    from heedful.models.chat.render import Renderer

    return Renderer(tokenizer, stop_ids=range(7, len(tokenizer), 6))
