"""The requests of an environment server: one function per request, from a JSON tree to a JSON tree. No network.

An unknown or malformed request raises `Refusal` with a status and a sentence. docs/isolation.md has the table of
requests and answers.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from heedful.boundary import expecting, to_json
from heedful.envs.common.actions import actions_of, most_actions_of
from heedful.envs.common.contract import (
    blind_answers_of,
    demonstrated,
    random_answer_of,
    right_actions_of,
    task_of_seed,
    turns_of,
)
from heedful.envs.common.wire import Tree, WireError, generator_tree, read_generator, read_task, task_tree
from heedful.envs.remote.answers import PROTOCOL
from heedful.guarded import Raised
from heedful.models.chat.calls import tools_of
from heedful.protocols import AnswersBlindly, AnswersFreely, Demonstrates, Environment, KnowsRight
from heedful.serving.sessions import Refusal, Sessions

OFFERS = {
    "demonstrate": Demonstrates,
    "random_answer": AnswersFreely,
    "blind_answers": AnswersBlindly,
    "right_actions": KnowsRight,
}
"""Methods that an environment may have in addition to the contract, and that a client can call."""

Answer = TypeVar("Answer")


class Service:
    """Answers requests about one environment and its episodes. As thread-safe as the environment itself."""

    def __init__(self, env: Environment, sessions: Sessions) -> None:
        self._env = env
        self.sessions = sessions
        self.description = _description(env)

    def answer(self, method: str, path: str, body: Tree) -> tuple[int, Tree]:
        """HTTP status and answer. `body`: the request's JSON, or `{}` if there is none. Raises Refusal."""
        words = [word for word in path.split("/") if word]
        name = words[1] if len(words) > 1 else ""
        route = f"{method} /{'/'.join('ID' if place == 1 else word for place, word in enumerate(words))}"
        handle = _ROUTES.get(route)
        if handle is None:
            raise Refusal(404, f"There is nothing at {method} {path[:60]}; known are {', '.join(_ROUTES)}.")
        what = f"a body of {method} {path[:60]} as docs/isolation.md has it"
        with expecting(what, error=partial(Refusal, 400)):
            try:
                return 201 if route == "POST /sessions" else 200, handle(self, body, name)
            except WireError as error:
                raise Refusal(400, str(error)) from error

    def _tasks(self, body: Mapping[str, Tree], name: str) -> Tree:
        seeds = body["seeds"] if "seeds" in body else [body["seed"]]
        return {"tasks": self._foreign(lambda: [task_tree(task_of_seed(self._env, seed)) for seed in seeds])}

    def _start(self, body: Mapping[str, Tree], name: str) -> Tree:
        expected = body.get("digest", self.description["digest"])
        if expected != self.description["digest"]:
            raise Refusal(
                409,
                f"Expected another environment than {self.description['name']} with its present knobs (digest "
                f"{self.description['digest']}, the client knows {str(expected)[:20]!r}): the server was restarted "
                "with other ones. Restart the client too.",
            )
        for old in body.get("close", []):
            self.sessions.close(old)
        if "task" in body:
            task = read_task(body["task"])
        else:
            seed = body["seed"]
            task = self._foreign(lambda: task_of_seed(self._env, seed))
        return self.sessions.start(task, int(body.get("member", 0)), body.get("key", ""))

    def _demonstrate(self, body: Mapping[str, Tree], name: str) -> Tree:
        env = self._offering("demonstrate")
        task, rng = read_task(body.get("task")), read_generator(body.get("rng"))
        faults = {knob: body[knob] for knob in ("imperfect", "template") if knob in body}
        pairs = self._foreign(lambda: demonstrated(dataclasses.replace(env, **faults) if faults else env, task, rng))
        return {"pairs": [list(pair) for pair in pairs], "rng": generator_tree(rng)}

    def _random_answer(self, body: Mapping[str, Tree], name: str) -> Tree:
        env = self._offering("random_answer")
        task, rng = read_task(body.get("task")), read_generator(body.get("rng"))
        answer = self._foreign(lambda: random_answer_of(env, task, rng))
        return {"answer": answer, "rng": generator_tree(rng)}

    def _blind_answers(self, body: Mapping[str, Tree], name: str) -> Tree:
        env, tasks = self._offering("blind_answers"), [read_task(tree) for tree in body["tasks"]]
        return {"answers": self._foreign(lambda: blind_answers_of(env, tasks))}

    def _right_actions(self, body: Mapping[str, Tree], name: str) -> Tree:
        env, task = self._offering("right_actions"), read_task(body.get("task"))
        return {"actions": self._foreign(lambda: right_actions_of(env, task, body.get("before", [])))}

    def _offering(self, offer: str) -> Any:
        """The environment, if it offers this. Raises Refusal."""
        if offer not in self.description["offers"]:
            raise Refusal(404, f"{self.description['name']} has no `{offer}`.")
        return self._env

    def _foreign(self, call: Callable[[], Answer]) -> Answer:
        """The environment's answer, as the contract gives it. Raises Refusal 500 with its error."""
        try:
            return call()
        except (ValueError, OSError, ImportError) as error:
            said = str(Raised(error)).rstrip(".")
            raise Refusal(500, f"The environment {self.description['name']} raised {said}.") from error


_ROUTES: dict[str, Callable[[Service, Mapping[str, Tree], str], Tree]] = {
    "GET /health": lambda service, body, name: {"status": "ok", "sessions": service.sessions.open},
    "GET /environment": lambda service, body, name: service.description,
    "POST /tasks": Service._tasks,
    "POST /sessions": Service._start,
    "POST /sessions/ID/step": lambda service, body, name: service.sessions.step(
        name, body["response"], body.get("turn")
    ),
    "DELETE /sessions/ID": lambda service, body, name: {"closed": service.sessions.close(name)},
    "POST /demonstrate": Service._demonstrate,
    "POST /random-answer": Service._random_answer,
    "POST /blind-answers": Service._blind_answers,
    "POST /right-actions": Service._right_actions,
}
"""Method and path (ID for a session's id) -> the method that answers."""


def _description(env: Environment) -> dict[str, Tree]:
    """What a client needs to know about the environment. `digest` identifies the environment with its knobs."""
    knobs: Tree = to_json(env) if dataclasses.is_dataclass(env) else {}
    kind = f"{type(env).__module__}:{type(env).__qualname__}"
    telling = {knob: value for knob, value in knobs.items() if (knob, value) != ("cell", 28)}  # a later knob
    named = json.dumps([PROTOCOL, kind, env.name, telling], sort_keys=True)
    return {
        "protocol": PROTOCOL,
        "name": env.name,
        "summary": str(getattr(env, "summary", "")),
        "turns": turns_of(env),
        "actions": list(actions_of(env)),
        "actions_per_turn": most_actions_of(env) if actions_of(env) else None,
        "tools": [{**dataclasses.asdict(tool), "parameters": dict(tool.parameters)} for tool in tools_of(env)],
        "offers": [offer for offer, kind in OFFERS.items() if isinstance(env, kind)],
        "knobs": knobs,
        "digest": hashlib.sha256(named.encode()).hexdigest()[:16],
    }
