"""The rule on tools: what an environment declares is fit for a chat template, and calls pay as plain answers do."""

from __future__ import annotations

import dataclasses
import json
import random
import re
from collections.abc import Sequence
from itertools import islice
from typing import Any

from heedful.envs.checking.evidence import Evidence
from heedful.envs.checking.play import MOST_REPLIES, Bench, Played
from heedful.envs.checking.replies import ordinary
from heedful.envs.checking.report import Finding, absent, broken, holds, in_words
from heedful.envs.common.tools import in_form
from heedful.guarded import Raised, guarded_call
from heedful.models.chat.calls import fitting_tools
from heedful.protocols import Demonstrates
from heedful.types import Ending, Step, Task, Tool

MOST_COMPARED = 40
"""Episodes that are played in both forms."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")


def tool_calls(bench: Bench, evidence: Evidence) -> Finding:
    """Tools can be written into a template, and the same answers earn the same in both forms."""
    env = bench.env
    other = _other_form(env)
    tools = getattr(env, "tools", ()) or fitting_tools(other)
    if not tools:
        return absent("the environment offers no tools, so its actions are plain text")
    fault = _tools_misfit(tools)
    if fault:
        return broken(
            "the tools cannot be written into a chat template",
            expected="a tuple of Tool with different names, and JSON schemas of objects",
            found=fault,
            remedy="declare them with heedful.envs.common.tools.text_tool, or see Tool in heedful.types",
        )
    names = ", ".join(tool.name for tool in tools)
    if other is None:
        return holds(f"the tools {names} can be written into a chat template")
    tasks = evidence.tasks[: min(MOST_COMPARED, bench.effort.episodes)]
    twin, solved = Bench(other, bench.effort), 0
    for number, task in enumerate(tasks):
        for play in (_random, _demonstrated):
            mine, theirs = play(bench, task, number), play(twin, task, number)
            if mine is None or theirs is None:
                continue
            if _earned(mine) != _earned(theirs):
                return broken(
                    "tool calls and plain answers earn different things",
                    expected="the same answers earn the same rewards, endings and outcomes in both forms",
                    found=f"{in_words(_earned(mine))} and {in_words(_earned(theirs))}",
                    where=mine.where(),
                    remedy="read both forms in one place: heedful.envs.common.answers.read_answer with tools=env.tools",
                )
            solved += bool(mine.exchanges) and mine.exchanges[-1].step.ending is Ending.SOLVED
    told = f"{solved} of them solved" if solved else "none of them solved, so pay for solving was not compared"
    return holds(
        f"the tools {names}: episodes of {len(tasks)} tasks earn the same by calls and by plain answers, {told}"
    )


def _other_form(env: Any) -> Any:
    """The same environment under the other value of the knob `actions`. `None` without such a knob."""
    form = getattr(env, "actions", None)
    if form not in ("plain", "tool_calls") or not dataclasses.is_dataclass(env) or isinstance(env, type):
        return None
    changed = "plain" if form == "tool_calls" else "tool_calls"
    made = guarded_call(lambda: dataclasses.replace(env, actions=changed))
    return None if isinstance(made, Raised) else made.value


def _tools_misfit(tools: Any) -> str:
    if not isinstance(tools, tuple) or not all(isinstance(tool, Tool) for tool in tools):
        return f"`tools` is {in_words(tools)}"
    wrong = next(
        (tool.name for tool in tools if not isinstance(tool.name, str) or not _NAME.fullmatch(tool.name)), None
    )
    if wrong is not None:
        return f"the name {wrong!r}; letters, digits, - and _ were expected, 64 at most"
    if len({tool.name.lower() for tool in tools}) < len(tools):
        return "the same name twice (case does not count)"
    for tool in tools:
        written = guarded_call(lambda tool=tool: json.dumps(tool.schema))  # type: ignore[misc]
        properties = tool.parameters.get("properties")
        if isinstance(written, Raised) or not isinstance(properties, dict):
            return f"the parameters of {tool.name}: {in_words(tool.parameters)}"
    return ""


def _random(bench: Bench, task: Task, number: int) -> Played:
    rng = random.Random(f"{task.seed}:{number}")
    return bench.play(task, 0, lambda shown, turn: ("ordinary", ordinary(bench.env, task, shown, rng)))


def _demonstrated(bench: Bench, task: Task, number: int) -> Played | None:
    """The solver's episode. `None` where nothing is demonstrated: another rule looks at that."""
    env = bench.env
    if not isinstance(env, Demonstrates):
        return None
    pairs, _ = bench.ask(
        "demonstrate", lambda: list(islice(env.demonstrate(task, random.Random(number)), MOST_REPLIES))
    )
    if not pairs or not all(isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[1], str) for pair in pairs):
        return None
    replies = [in_form(env, reply) for _, reply in pairs]
    return bench.play(task, 0, lambda shown, turn: ("demonstrated", replies[turn]), len(replies))


def _earned(played: Played) -> Sequence[tuple[object, ...]]:
    return [_result(exchange.step) for exchange in played.exchanges]


def _result(step: Step) -> tuple[object, ...]:
    return dict(step.rewards), step.ending, step.outcome, step.progress, step.valid, tuple(step.actions), step.state
