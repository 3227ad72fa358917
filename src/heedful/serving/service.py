"""The requests of an environment server: one function per request, from a JSON tree to a JSON tree. No network.

An unknown or malformed request raises `Refusal` with a status and a sentence.

| request                                                   | answer                                          |
|-----------------------------------------------------------|-------------------------------------------------|
| GET /health                                               | `status`, `sessions`                            |
| GET /environment                                               | what is served: see `Service.description`       |
| POST /tasks `{"seeds": [0, 1]}` or `{"seed": 0}`          | `tasks`                                         |
| POST /sessions `{"seed": 0, "member": 0}`                 | `session`, `observation` (or `raised`)          |
| POST /sessions/ID/step `{"response": "...", "turn": 0}`   | `step` (or `raised`)                            |
| DELETE /sessions/ID                                       | `closed`                                        |
| POST /demonstrate `{"task": ..., "rng": ...}`             | `pairs`, `rng`                                  |
| POST /random-answer `{"task": ..., "rng": ...}`           | `answer`, `rng`                                 |
| POST /blind-answers `{"tasks": [...]}`                    | `answers`                                       |
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from heedful.boundary import to_json
from heedful.envs.common.actions import actions_of, most_actions_of
from heedful.envs.common.contract import blind_answers_of, demonstrated, random_answer_of, task_of_seed, turns_of
from heedful.envs.common.tools import tools_of
from heedful.envs.remote.answers import PROTOCOL
from heedful.envs.transport.wire import Tree, WireError, generator_tree, read_generator, read_seed, read_task, task_tree
from heedful.guarded import Raised, guarded_call
from heedful.protocols import AnswersBlindly, AnswersFreely, Demonstrates, Environment, Summarises
from heedful.serving.sessions import Refusal, Sessions
from heedful.types import Task

MOST_SEEDS = 1000
"""Maximum number of seeds in one request for tasks."""

OFFERS = {"demonstrate": Demonstrates, "random_answer": AnswersFreely, "blind_answers": AnswersBlindly}
"""Methods that an environment may have in addition to the contract, and that a client can call."""


class Service:
    """Answers requests about one environment and its episodes. As thread-safe as the environment itself."""

    def __init__(self, env: Environment, sessions: Sessions) -> None:
        self._env = env
        self._sessions = sessions
        self.description = _description(env)

    def answer(self, method: str, path: str, body: Tree) -> tuple[int, Tree]:
        """HTTP status and answer. `body`: the request's JSON, or `{}` if there is none. Raises Refusal."""
        words = [word for word in path.split("?")[0].split("/") if word]
        for (known_method, *pattern), handle in _ROUTES:
            if len(pattern) == len(words) and all(
                each in ("ID", word) for each, word in zip(pattern, words, strict=True)
            ):
                if method != known_method:
                    continue
                if not isinstance(body, dict):
                    raise Refusal(400, f"Expected a JSON object as the body of {method} {path}.")
                name = next((word for each, word in zip(pattern, words, strict=True) if each == "ID"), "")
                try:
                    return handle(self, body, name)
                except WireError as error:
                    raise Refusal(400, str(error)) from error
        known = ", ".join(f"{route[0]} /{'/'.join(route[1:])}" for route, _ in _ROUTES)
        raise Refusal(404, f"There is nothing at {method} {path[:60]}; known are {known}.")

    def _health(self, body: Mapping[str, Tree], name: str) -> tuple[int, Tree]:
        return 200, {"status": "ok", "sessions": self._sessions.open}

    def _describe(self, body: Mapping[str, Tree], name: str) -> tuple[int, Tree]:
        return 200, self.description

    def _tasks(self, body: Mapping[str, Tree], name: str) -> tuple[int, Tree]:
        seeds = body["seeds"] if "seeds" in body else [_whole(body, "seed")]
        if not isinstance(seeds, list) or not seeds or any(type(seed) is not int for seed in seeds):
            raise Refusal(400, 'Expected "seeds" as a list of whole numbers, not empty.')
        if len(seeds) > MOST_SEEDS:
            raise Refusal(400, f"Expected at most {MOST_SEEDS} seeds in one request, found {len(seeds)}.")
        seeds = [read_seed(seed) for seed in seeds]
        tasks: list[Task] = self._foreign(lambda: [task_of_seed(self._env, seed) for seed in seeds])
        return 200, {"tasks": [task_tree(task) for task in tasks]}

    def _start(self, body: Mapping[str, Tree], name: str) -> tuple[int, Tree]:
        expected = body.get("digest", self.description["digest"])
        if expected != self.description["digest"]:
            raise Refusal(
                409,
                f"Expected another environment than {self.description['name']} with its present knobs (digest "
                f"{self.description['digest']}, the client knows {str(expected)[:20]!r}): the server was restarted "
                "with other ones. Restart the client too.",
            )
        for old in _listed(body, "close"):
            self._sessions.close(str(old))
        member, key = _whole(body, "member") if "member" in body else 0, body.get("key", "")
        if member < 0 or not isinstance(key, str) or len(key) > 100:
            raise Refusal(400, 'Expected "member" of at least 0 and "key" as a text of at most 100 characters.')
        if "task" in body:
            task = read_task(body["task"])
        else:
            seed = read_seed(_whole(body, "seed"))
            task = self._foreign(lambda: task_of_seed(self._env, seed))
        return 201, self._sessions.start(task, member, key)

    def _step(self, body: Mapping[str, Tree], name: str) -> tuple[int, Tree]:
        response = body.get("response")
        if not isinstance(response, str):
            raise Refusal(400, 'Expected "response" as text.')
        return 200, self._sessions.step(name, response, _whole(body, "turn") if "turn" in body else None)

    def _close(self, body: Mapping[str, Tree], name: str) -> tuple[int, Tree]:
        return 200, {"closed": self._sessions.close(name)}

    def _demonstrate(self, body: Mapping[str, Tree], name: str) -> tuple[int, Tree]:
        task, env = read_task(body.get("task")), self._env
        if not isinstance(env, Demonstrates):
            raise self._not_offered("demonstrate")
        rng = read_generator(body.get("rng"))
        faults = {knob: body[knob] for knob in ("imperfect", "template") if knob in body}
        if not faults.keys() <= self.description["knobs"].keys():
            raise Refusal(400, f"{self.description['name']} has no {' and '.join(faults)} demonstrations.")
        if any(isinstance(value, bool) or not isinstance(value, int | float) for value in faults.values()):
            raise Refusal(400, f"Expected {' and '.join(faults)} as numbers.")
        teacher: Any = dataclasses.replace(env, **faults) if faults else env  # type: ignore[type-var]
        pairs: list[tuple[str, str]] = self._foreign(lambda: demonstrated(teacher, task, rng))
        return 200, {"pairs": [list(pair) for pair in pairs], "rng": generator_tree(rng)}

    def _random_answer(self, body: Mapping[str, Tree], name: str) -> tuple[int, Tree]:
        task, env = read_task(body.get("task")), self._env
        if not isinstance(env, AnswersFreely):
            raise self._not_offered("random_answer")
        rng = read_generator(body.get("rng"))
        answer: str = self._foreign(lambda: random_answer_of(env, task, rng))
        return 200, {"answer": answer, "rng": generator_tree(rng)}

    def _blind_answers(self, body: Mapping[str, Tree], name: str) -> tuple[int, Tree]:
        env = self._env
        if not isinstance(env, AnswersBlindly):
            raise self._not_offered("blind_answers")
        tasks = [read_task(tree) for tree in _listed(body, "tasks")]
        answers: Sequence[str] = self._foreign(lambda: blind_answers_of(env, tasks))
        return 200, {"answers": list(answers)}

    def _not_offered(self, offer: str) -> Refusal:
        return Refusal(404, f"{self.description['name']} has no `{offer}`.")

    def _foreign(self, call: Callable[[], Any]) -> Any:
        """The environment's answer. Raises Refusal 500 with the environment's error."""
        answer = guarded_call(call)
        if isinstance(answer, Raised):
            raise Refusal(500, f"The environment {self.description['name']} raised {str(answer).rstrip('.')}.")
        return answer.value


_ROUTES: tuple[tuple[tuple[str, ...], Callable[[Service, Mapping[str, Tree], str], tuple[int, Tree]]], ...] = (
    (("GET", "health"), Service._health),
    (("GET", "environment"), Service._describe),
    (("POST", "tasks"), Service._tasks),
    (("POST", "sessions"), Service._start),
    (("POST", "sessions", "ID", "step"), Service._step),
    (("DELETE", "sessions", "ID"), Service._close),
    (("POST", "demonstrate"), Service._demonstrate),
    (("POST", "random-answer"), Service._random_answer),
    (("POST", "blind-answers"), Service._blind_answers),
)
"""(method, *words of the path, ID for a session's id) -> the method that answers."""


def _description(env: Environment) -> dict[str, Tree]:
    """What a client needs to know about the environment. `digest` identifies the environment with its knobs."""
    knobs: Tree = to_json(env) if dataclasses.is_dataclass(env) else {}
    kind = f"{type(env).__module__}:{type(env).__qualname__}"
    telling = {knob: value for knob, value in knobs.items() if (knob, value) != ("cell", 28)}  # a later knob
    named = json.dumps([PROTOCOL, kind, env.name, telling], sort_keys=True)
    return {
        "protocol": PROTOCOL,
        "name": env.name,
        "summary": _summary(env),
        "turns": turns_of(env),
        "actions": list(actions_of(env)),
        "actions_per_turn": most_actions_of(env) if actions_of(env) else None,
        "tools": [{**dataclasses.asdict(tool), "parameters": dict(tool.parameters)} for tool in tools_of(env)],
        "offers": [offer for offer, kind in OFFERS.items() if isinstance(env, kind)],
        "knobs": knobs,
        "digest": hashlib.sha256(named.encode()).hexdigest()[:16],
    }


def _summary(env: Environment) -> str:
    summary = env.summary if isinstance(env, Summarises) else ""
    if not isinstance(summary, str):
        raise ValueError(
            f"Expected a text as `summary` of the environment {env.name}, found {summary!r:.80}. Correct it; "
            "`heedful check-env` names every member that is wrong."
        )
    return summary


def _whole(body: Mapping[str, Tree], name: str) -> int:
    value = body.get(name)
    if type(value) is not int:
        raise Refusal(400, f'Expected "{name}" as a whole number.')
    return value


def _listed(body: Mapping[str, Tree], name: str) -> list[Tree]:
    value = body.get(name, [])
    if not isinstance(value, list):
        raise Refusal(400, f'Expected "{name}" as a list.')
    return value
