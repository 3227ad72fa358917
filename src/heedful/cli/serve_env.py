"""`heedful serve-env`: an environment server, for trainers on other machines or in other languages.

The first line of output names the environment and its address. Ctrl-C and `STOP_SIGNALS` end the server with
exit code 0.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Annotated, Any

from annotated_types import Interval

from heedful import envs
from heedful.boundary import (
    Choice,
    CommandLine,
    Count,
    Port,
    Positional,
    Seconds,
    Wait,
    Workers,
    complain,
    settings,
    tell,
)
from heedful.protocols import Environment
from heedful.rollout.workers import DEFAULT_TIMEOUT, isolated
from heedful.run.presets import preset


@dataclass(frozen=True, slots=True)
class ServeWords:
    """Serve the episodes of an environment over HTTP, as JSON: many sessions at once, each with an id.

    docs/isolation.md explains the protocol. A trainer plays it as the environment `remote`.

      heedful serve-env frozen_lake --env.slip 0.2 --env-workers 2
      heedful play remote --env.url http://127.0.0.1:8765
      heedful train remote --env.url http://127.0.0.1:8765 --model Qwen/Qwen2.5-0.5B-Instruct
    """

    env: Annotated[str, Positional("ENV", example="frozen_lake")]
    """An environment or preset (heedful envs lists them), or your own as module:Class."""


@settings(kw_only=True)
class ServeSettings:
    """Settings of an environment server."""

    env: Annotated[Any, Choice(envs.ENVIRONMENTS, Environment)]
    """The environment and its knobs."""
    host: str = "127.0.0.1"
    """Address to listen on. 127.0.0.1 serves this machine only. Another address needs a token."""
    port: Port = 8765
    """Port to listen on. 0 = any free one, which the first line of output names."""
    sessions: Count = 1024
    """Most episodes open at once."""
    idle: Seconds = 600.0
    """Seconds after which a session that was not used is closed."""
    env_workers: Workers = 0
    """Processes in which the episodes are played. If one crashes or hangs, only its own episodes end. 0 = the server's
    own process."""
    env_timeout: Wait = field(default=DEFAULT_TIMEOUT)
    """Seconds for one start or step in such a process. 0 = no limit."""
    largest_request: Annotated[int, Interval(ge=1024)] = 2**22
    """Bytes of the longest request. A character of a reply can take six bytes."""
    host_name: tuple[str, ...] = ()
    """Names by which clients call a server without a token, besides localhost and the addresses of this machine."""
    token_file: str = ""
    """A file whose first line is the token that clients must send. Empty = the variable HEEDFUL_ENV_TOKEN, if set."""


def main(argv: list[str]) -> int:
    line = CommandLine(ServeWords, argv, "heedful serve-env")
    name = line.words.env
    # With its own defaults, not its preset's for a seedling: its rules are given in full.
    env = envs.ENVIRONMENTS.get_class(name)() if name in envs.ENVIRONMENTS else preset(name).env
    settings = line.settings(ServeSettings, ServeSettings(env=env))
    return serve(settings)


def serve(settings: ServeSettings) -> int:
    """Listen until Ctrl-C or one of `STOP_SIGNALS`."""
    from heedful.serving import EnvironmentServer, Service, Sessions, read_token

    token = read_token(settings.token_file)
    where = f"{settings.env_workers} worker processes" if settings.env_workers else "the server's process"
    asks = ", clients need the token" if token else ""
    with isolated(settings.env, settings.env_workers, settings.env_timeout) as env:
        sessions = Sessions(env.episode, settings.sessions, settings.idle)
        service = Service(settings.env, sessions)
        address, names = (settings.host, settings.port), settings.host_name
        server = EnvironmentServer(address, service, sessions, token, settings.largest_request, log_line, names)
        tell(f"serving {settings.env.name} at {server.url}, episodes in {where}{asks}; Ctrl-C ends it")
        server.serve_forever()
        log_line(f"{server.requests:,} requests in all; {server.standing()}")
    return 0


def log_line(line: str) -> None:
    complain(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}")
