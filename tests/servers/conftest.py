"""One real vLLM server for all tests of a session, with the small seedling of the tests.

Every test of this folder has the marker `servers`, and is skipped, with the reason, where vLLM's environment is absent.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from real_vllm import RealVllm, alone, missing, running

from heedful.policies.servers import Call, Client

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reason = missing()
    for item in items:
        if HERE in item.path.parents:
            item.add_marker("servers")
            if reason:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the end of the engine's own log beside a failure: why a server ended is said nowhere else."""
    report = yield
    server = getattr(item, "funcargs", {}).get("vllm")
    if report.failed and isinstance(server, RealVllm):
        report.sections.append(("the engine of vLLM", server.said_by_the_engine()))
    return report


@pytest.fixture
def first_weights(vllm: RealVllm, seedling_folder: Path) -> None:
    """The server holds the weights that it started with, whatever other tests have pushed to it."""
    client = Client([vllm.url])
    for path, body in (
        ("/collective_rpc", {"method": "heedful_reload", "kwargs": {"weights_path": str(seedling_folder)}}),
        ("/reset_prefix_cache", {}),
    ):
        client.tell(client.servers[0], Call(path, body))
    client.close()


@pytest.fixture(scope="session")
def no_other_session() -> Iterator[None]:
    """No other test session on this machine runs a real server meanwhile."""
    with alone():
        yield


@pytest.fixture(scope="session")
def vllm(no_other_session: None, seedling_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealVllm]:
    """A running server. A test that stops it starts it again."""
    log = os.environ.get("HEEDFUL_VLLM_LOG")
    with running(seedling_folder, Path(log) if log else tmp_path_factory.mktemp("vllm") / "server.log") as server:
        yield server
