"""A server in this process or as a process of its own, and plain requests to it."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from heedful.rollout.workers import isolated
from heedful.serving.server import EnvironmentServer
from heedful.serving.service import Service
from heedful.serving.sessions import Sessions
from patience import PATIENCE

JSON = {"Content-Type": "application/json"}


@contextmanager
def serving(
    env: Any,
    most: int = 100,
    idle: float = 600.0,
    token: str = "",
    largest: int = 2**22,
    told: list[str] | None = None,
    workers: int = 0,
    timeout: float = PATIENCE,
    names: Sequence[str] = (),
    port: int = 0,
) -> Iterator[EnvironmentServer]:
    """A server in a thread of this process, by default on a free port."""
    with isolated(env, workers, timeout) as played:
        sessions = Sessions(played.episode, most, idle)
        tell = [].append if told is None else told.append
        server = EnvironmentServer(("127.0.0.1", port), Service(env, sessions), sessions, token, largest, tell, names)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            if port:  # the next one listens there
                thread.join(PATIENCE)


class Asker:
    """One connection."""

    def __init__(self, server: EnvironmentServer) -> None:
        host, port = server.server_address
        self.connection = http.client.HTTPConnection(str(host), int(port), timeout=PATIENCE)

    def __call__(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Any:
        """(status, tree) of one request."""
        raw = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        self.connection.request(method, path, raw, JSON if headers is None else headers)
        response = self.connection.getresponse()
        return response.status, json.loads(response.read())


@contextmanager
def server_process(*words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`heedful serve-env` as a process, and its url."""
    process, url = start_server(*words)
    try:
        yield process, url
    finally:
        process.kill()
        process.wait(PATIENCE)


def start_server(*words: str) -> tuple[subprocess.Popen[str], str]:
    """It has begun to listen when this returns."""
    paths = [str(Path(__file__).parent), *filter(None, sys.path)]
    process = subprocess.Popen(
        [sys.executable, "-m", "heedful", "serve-env", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    if " at http" not in line:
        process.kill()
        raise AssertionError(f"the server did not start: {line} {process.communicate()[1]}")
    return process, line.partition(" at ")[2].partition(",")[0]
