"""`heedful serve-search`: a retrieval server for an index, in both protocols that trainers speak.

The first line of output names the index and its address. Ctrl-C and `STOP_SIGNALS` end the server with exit code 0.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Annotated

from annotated_types import Interval

from heedful.boundary import CommandLine, Port, Positional, complain, in_home, settings, tell


@dataclass(frozen=True, slots=True)
class ServeSearchWords:
    """Serve an index over HTTP: POST /retrieve as Search-R1 and verl ask, or as RAGEN and rLLM do, and GET /health.

    docs/search.md explains both. The environment search_qa is a client of both.

      heedful serve-search indexes
      heedful play search_qa --env.questions dev.jsonl --env.url http://127.0.0.1:8000
    """

    index: Annotated[str, Positional("INDEX", example="indexes")]
    """The folder that `heedful index` has built, or the folder that it is in."""


@settings(kw_only=True)
class ServeSearchSettings:
    """Settings of a retrieval server."""

    host: str = "127.0.0.1"
    """Address to listen on. 127.0.0.1 serves this machine only. Another address needs a token."""
    port: Port = 8000
    """Port to listen on. 0 = any free one, which the first line of output names."""
    largest_request: Annotated[int, Interval(ge=1024)] = 2**22
    """Bytes of the longest request."""
    host_name: tuple[str, ...] = ()
    """Names by which clients call a server without a token, besides localhost and the addresses of this machine."""
    token_file: str = ""
    """A file whose first line is the token that clients must send. Empty = the variable HEEDFUL_ENV_TOKEN, if set."""


def main(argv: list[str]) -> int:
    """serve an index of passages over HTTP, in two protocols"""
    line = CommandLine(ServeSearchWords, argv, "heedful serve-search")
    chosen = line.settings(ServeSearchSettings, ServeSearchSettings())
    from heedful.serving import EnvironmentServer, read_token
    from heedful_envs.search_qa.passages import find_index, open_index
    from heedful_envs.search_qa.retrieval_service import RetrievalService

    token = read_token(chosen.token_file)
    folder = find_index(in_home(line.words.index))
    index = open_index(folder)
    address, service = (chosen.host, chosen.port), RetrievalService(index)
    server = EnvironmentServer(address, service, None, token, chosen.largest_request, _tell, chosen.host_name)
    asks = ", clients need the token" if token else ""
    tell(f"serving {len(index):,} passages of {folder.name} at {server.url}{asks}; Ctrl-C ends it")
    server.serve_forever()
    _tell(f"{server.requests:,} requests in all; {server.standing()}")
    return 0


def _tell(line: str) -> None:
    complain(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}")
