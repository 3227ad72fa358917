"""What runs inside a worker process: environments, answered for over a socket.

Promise: a worker never outlives whoever started it, whatever its environments are doing; what an environment raises
goes back as text, the same as it would read in the trainer's own process.

Signals of a scheduler reach every process of a job. A worker ignores them: the trainer finishes its step first.

Each request is acknowledged by an empty message before foreign code is called, so that the other side can tell a
process that was found dead from one that died of the request.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import sys
import threading
from contextlib import suppress
from typing import Any

from heedful.envs.transport.wire import (
    Line,
    Tree,
    checked_episode,
    checked_observation,
    checked_step,
    decode,
    encode,
    observation_tree,
    read_task,
    step_tree,
)
from heedful.guarded import Raised, guarded_call
from heedful.protocols import Environment, Episode
from heedful.stopping import leave_signals_to_the_parent

BEGUN = b""
"""The acknowledgement of a request."""

PROGRAM = (
    "import sys; line, lifeline, limit = sys.argv[1:4]; sys.path[:] = sys.argv[4:]; sys.argv[1:] = []; "
    "from heedful.rollout.worker_process import serve; serve(int(line), int(lifeline), float(limit))"
)
"""For `python -c`, with the arguments: descriptor of the socket, of the lifeline, seconds of a request, *sys.path."""


def serve(line_descriptor: int, lifeline: int, limit: float) -> None:
    """Answer requests until the other end closes.

    `lifeline`: the reading end of a pipe that is closed when whoever started this process ends. `limit`: seconds that a
    request may take, as known to the other side, which kills this process past them; 0 = no limit.
    """
    leave_signals_to_the_parent()
    threading.Thread(target=_die_with_parent, args=(lifeline,), daemon=True).start()
    with socket.socket(fileno=line_descriptor) as connection, suppress(EOFError):
        line = Line(connection)
        received = line.receive()
        env = guarded_call(lambda: pickle.loads(received))
        line.send(encode({"raised": str(env)} if isinstance(env, Raised) else {"ready": True}))
        if not isinstance(env, Raised):
            _answer_all(line, env.value, limit)


def _answer_all(line: Line, env: Environment, limit: float) -> None:
    episodes: dict[int, Episode] = {}
    while True:
        request = decode(line.receive())
        line.send(BEGUN)
        for number in request["forget"]:
            episodes.pop(number, None)
        _alarm(limit)
        answer = guarded_call(lambda request=request: _answer(env, episodes, request))  # type: ignore[misc]
        _alarm(0.0)
        if isinstance(answer, Raised):
            episodes.pop(request["episode"], None)
            line.send(encode({"raised": str(answer)}))
        else:
            line.send(encode(answer.value))


def _answer(env: Environment, episodes: dict[int, Episode], request: dict[str, Any]) -> Tree:
    number = request["episode"]
    if "task" in request:
        episode = checked_episode(env.episode())
        observation = checked_observation(episode.start(read_task(request["task"]), request["member"]))
        episodes[number] = episode
        return {"observation": observation_tree(observation)}
    step = checked_step(episodes[number].step(request["response"]))
    if step.ending is not None:
        del episodes[number]
    return {"step": step_tree(step)}


def _alarm(limit: float) -> None:
    """Have the kernel end this process long after whoever asked should have done so; 0 takes it back.

    It is for a parent that has died while foreign code holds the interpreter: no thread of ours would run then.
    """
    signal.setitimer(signal.ITIMER_REAL, 2 * limit + 5 if limit > 0 else 0)


def _die_with_parent(lifeline: int) -> None:
    while os.read(lifeline, 1):
        pass
    # What the environments have started is in this process's group and goes with it.
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpgrp(), signal.SIGKILL)
    sys.stdout.flush()
    os._exit(1)
