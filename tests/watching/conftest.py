"""A webhook on this machine."""

from collections.abc import Iterator

import pytest

from webhook_receiver import Receiver, receiving


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as server:
        yield server
