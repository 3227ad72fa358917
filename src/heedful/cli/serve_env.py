"""`heedful serve-env`: an environment server, for trainers on other machines or in other languages.

Promise: what is served is told before the first request; Ctrl-C and SIGTERM end it cleanly, with exit code 0.
"""

from __future__ import annotations

import signal
import sys
import time
from dataclasses import dataclass, field
from typing import Annotated, Any

from heedful import envs
from heedful.cli.words import asks_for_help, take_positional
from heedful.configuration import Choice, parse, refuse_below
from heedful.rollout.workers import DEFAULT_TIMEOUT, check_timeout, isolated
from heedful.run.presets import preset, starting_points

HELP = """usage: heedful serve-env ENV [--env.KNOB VALUE ...] [--host H] [--port P] [settings]

Serve the episodes of an environment over HTTP, as JSON: many sessions at once, each with an id. The protocol stands in
docs/environments.md. Whoever trains plays it as the environment `remote`.

  ENV                  an environment (heedful envs lists them), or your own as module:Class
  --host H             127.0.0.1 (default): this machine alone; another address needs a token
  --port P             8765 (default); 0 = any free one, told in the first line
  --sessions N         most episodes open at once (default: 1024)
  --idle SECONDS       a session that was not used for so long is closed (default: 600)
  --env-workers N      play the episodes in N processes: one that crashes or hangs costs its own episodes (default: 0)
  --env-timeout S      seconds for one start or step in such a process (default: 60; 0 = no limit)
  --largest-reply B    bytes of the longest request (default: 4194304)
  --token-file FILE    its first line is the token that clients must send; without it HEEDFUL_ENV_TOKEN, if set

  heedful serve-env frozen_lake --env.slip 0.2 --env-workers 2
  heedful play remote --env.url http://127.0.0.1:8765
  heedful train remote --env.url http://127.0.0.1:8765 --model Qwen/Qwen2.5-0.5B-Instruct"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeSettings:
    """What can be set on the command line of `heedful serve-env`."""

    env: Annotated[Any, Choice(envs.ENVIRONMENTS)]
    """The environment and its knobs."""
    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = 8765
    """Port to listen on; 0 = any free one."""
    sessions: int = 1024
    """Most episodes open at once."""
    idle: float = 600.0
    """Seconds after which a session that was not used is closed."""
    env_workers: int = 0
    """Processes in which the episodes are played; 0 = in the server's own."""
    env_timeout: float = field(default=DEFAULT_TIMEOUT)
    """Seconds for one start or step in such a process; 0 = no limit."""
    largest_reply: int = 2**22
    """Bytes of the longest request."""
    connections: int = 512
    """Most connections open at once."""
    log_every: int = 10_000
    """Requests between two lines of log."""
    token_file: str = ""
    """A file whose first line is the token that clients must send; empty = HEEDFUL_ENV_TOKEN, if it is set."""

    def __post_init__(self) -> None:
        refuse_below(self, port=0, sessions=1, env_workers=0, largest_reply=1024, connections=1, log_every=1)
        check_timeout(self.env_timeout)
        if not 0.0 < self.idle < float("inf"):
            raise ValueError(f"idle must be a number of seconds above 0, found {self.idle}")
        if self.port > 65535:
            raise ValueError(f"port must be at most 65535, found {self.port}")


def main(argv: list[str]) -> int:
    name = take_positional(argv)
    if asks_for_help(argv):
        print(HELP)
        if name is None:
            return 0
    if name is None:
        raise ValueError(
            f"Expected an environment after `heedful serve-env`: {', '.join(starting_points())}, or module:Class."
        )
    # As itself, not as a preset makes it for a seedling: its rules are spelled out.
    env = envs.get(name)() if name in envs.REGISTRY else preset(name).env
    settings = parse(ServeSettings, ServeSettings(env=env), argv, f"heedful serve-env {name}", "The settings:")
    return serve(settings)


def serve(settings: ServeSettings) -> int:
    """Listen until Ctrl-C or SIGTERM."""
    from heedful.envs.remote.server_calls import read_token
    from heedful.serving.server import EnvironmentServer, Limits, check_address
    from heedful.serving.service import Service
    from heedful.serving.sessions import Sessions

    token = read_token(settings.token_file)
    check_address(settings.host, token)
    for end in (signal.SIGTERM, signal.SIGINT):  # a shell has background jobs ignore the latter
        signal.signal(end, signal.default_int_handler)
    limits = Limits(settings.largest_reply, settings.connections, settings.log_every)
    with isolated(settings.env, settings.env_workers, settings.env_timeout) as env:
        sessions = Sessions(env.episode, settings.sessions, settings.idle)
        service = Service(settings.env, sessions)
        with EnvironmentServer((settings.host, settings.port), service, sessions, token, limits, _tell) as server:
            where = f"{settings.env_workers} worker processes" if settings.env_workers else "the server's process"
            asks = ", clients need the token" if token else ""
            print(f"serving {settings.env.name} at {server.url}, episodes in {where}{asks}; Ctrl-C ends it", flush=True)
            try:
                server.serve_forever()
            except KeyboardInterrupt:
                _tell("stopping")
            finally:
                _tell(f"{server.requests:,} requests in all; {server.standing()}")
    return 0


def _tell(line: str) -> None:
    print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}", file=sys.stderr, flush=True)
