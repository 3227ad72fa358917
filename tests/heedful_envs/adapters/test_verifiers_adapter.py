"""verifiers: rows as tasks, one turn, several turns, tools, rubrics, and what is refused. With the real library."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import sys
import threading
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip(
    "verifiers",
    reason="verifiers pulls in some ninety packages, of which several do not fit constraints.txt, so the shared "
    "environment has it not: install heedful[verifiers] in an environment of its own",
)

from datasets import Dataset

from heedful.boundary.trust import hold
from heedful.envs.checking.check import QUICK, check
from heedful.envs.common.tasks import evaluation_tasks
from heedful.guarded import Raised, guarded_call
from heedful.models.chat.calls import tools_of
from heedful.types import Ending
from heedful_envs.adapters.verifiers.environment import Verifiers
from heedful_envs.adapters.verifiers.library import library, loaded

vf = library()
ROWS = [{"question": f"What is {a} plus {b}?", "answer": str(a + b)} for a in range(10) for b in range(10)]


def said(completion: Any) -> str:
    told = [dict(message) if isinstance(message, dict) else message.model_dump() for message in completion]
    return next(str(message["content"]) for message in reversed(told) if message["role"] == "assistant")


def right(completion, answer, **more):
    return float(answer in said(completion).split())


async def short(completion, **more):
    await asyncio.sleep(0)
    return float(len(said(completion)) < 200)


def rubric() -> Any:
    return vf.Rubric(funcs=[right, short], weights=[1.0, 0.5])


def single(**more: Any) -> Any:
    return vf.SingleTurnEnv(dataset=Dataset.from_list(ROWS), system_prompt="Add.", rubric=rubric(), **more)


def held_out() -> Any:
    return single(eval_dataset=Dataset.from_list([*ROWS[:5], {"question": "What is 20 plus 20?", "answer": "40"}]))


class Guess(vf.MultiTurnEnv):
    async def env_response(self, messages, state, **more):
        guess, wanted = said(messages), state["answer"]
        if guess.split()[-1:] == [wanted]:
            state["final_env_response"] = [{"role": "user", "content": "yes"}]
            return state["final_env_response"]
        return [{"role": "user", "content": f"no, try again ({random.randrange(100)})"}]


def guess(turns: int = 3) -> Any:
    return Guess(dataset=Dataset.from_list(ROWS), rubric=vf.Rubric(funcs=[right]), max_turns=turns)


def plus(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: The first number.
        b: The second number.
    """
    return a + b


async def ask(word: str) -> str:
    """Repeat a word.

    Args:
        word: The word.
    """
    return f"{word}!"


def with_tools() -> Any:
    return vf.ToolEnv(tools=[plus, ask], dataset=Dataset.from_list(ROWS), rubric=vf.Rubric(funcs=[right]), max_turns=4)


def fails(completion, **more):
    raise KeyError("gone")


def failing() -> Any:
    return vf.SingleTurnEnv(dataset=Dataset.from_list(ROWS), rubric=vf.Rubric(funcs=[fails]))


async def sleeps(completion, **more):
    await asyncio.sleep(60)
    return 1.0


def sleeping() -> Any:
    return vf.SingleTurnEnv(dataset=Dataset.from_list(ROWS), rubric=vf.Rubric(funcs=[sleeps]))


def grouped() -> Any:
    def best(completions, **more) -> list:
        return [0.0 for _ in completions]

    return vf.SingleTurnEnv(dataset=Dataset.from_list(ROWS), rubric=vf.Rubric(funcs=[best]))


def judged() -> Any:
    found = vf.SingleTurnEnv(dataset=Dataset.from_list(ROWS), rubric=vf.Rubric(funcs=[right]))
    found.rubric.rubrics[0].class_objects["judge"] = right
    return found


def unrewarded() -> Any:
    return vf.SingleTurnEnv(dataset=Dataset.from_list(ROWS), rubric=vf.Rubric(funcs=[right], weights=[0.0]))


def not_an_environment() -> Any:
    return vf.Rubric(funcs=[right])


MODULE = "heedful_tests_of_verifiers"


@pytest.fixture(autouse=True)
def module(monkeypatch):
    """The functions above as a module that can be named, whatever pytest calls this file."""
    made = ModuleType(MODULE)
    made.__dict__.update({name: value for name, value in globals().items() if callable(value)})
    monkeypatch.setitem(sys.modules, MODULE, made)
    loaded.cache_clear()


def env(function: str, **knobs: Any) -> Verifiers:
    hold(f"{MODULE}:{function}")
    return Verifiers(id=f"{MODULE}:{function}", **knobs)


def play(environment: Verifiers, *replies: str, seed: int = 0, member: int = 0):
    episode = environment.episode()
    first = episode.start(environment.task(seed), member)
    return first, [episode.step(reply) for reply in replies]


def answer_of(environment: Verifiers, seed: int = 0) -> str:
    return str(environment.library.row(seed).content["answer"])


def test_one_turn_is_scored_by_the_rubric_with_its_weights():
    environment = env("single", success=1.5)
    wanted = answer_of(environment)
    first, (step,) = play(environment, f"<think>so</think>the sum is {wanted}")
    assert first.text.startswith("Turns left: 1.")
    assert "Add.\n\nWhat is " in first.text
    assert dict(step.rewards) == {"right": 1.0, "short": 0.5}
    assert (step.ending, step.outcome, step.progress) == (Ending.SOLVED, 1.0, 1.0)
    _, (wrong,) = play(environment, "no idea")
    assert dict(wrong.rewards) == {"right": 0.0, "short": 0.5}
    assert (wrong.ending, wrong.outcome) == (Ending.OUT_OF_TURNS, 0.0)
    _, (part,) = play(replace(environment, partial=True), "no idea")
    assert part.outcome == pytest.approx(1 / 3)


def test_only_the_answer_is_handed_on_if_so_asked():
    environment = env("single", completion="answer")
    wanted = answer_of(environment)
    _, (step,) = play(environment, f"<think>not handed on {'x ' * 400}</think><answer>{wanted}</answer>")
    assert dict(step.rewards) == {"right": 1.0, "short": 0.5}
    _, (unread,) = play(environment, f"the sum is {wanted}")
    assert dict(unread.rewards) == {"format": -0.1}
    assert not unread.valid


def test_several_turns_go_on_until_the_library_ends_them():
    environment = env("guess", turns=3)
    wanted = answer_of(environment)
    first, steps = play(environment, "0 or 99", wanted)
    assert "Turns left: 3." in first.text
    assert "no, try again" in steps[0].observation.text
    assert steps[0].observation.text.startswith("Turns left: 2.")
    assert (steps[0].ending, steps[1].ending) == (None, Ending.SOLVED)
    _, replayed = play(environment, "0 or 99", wanted)
    assert [step.observation.text for step in replayed] == [step.observation.text for step in steps]


def test_an_episode_ends_and_is_scored_at_its_own_limit_of_turns():
    environment = env("guess", turns=2)
    _, steps = play(environment, "no", "no")
    assert steps[-1].ending is Ending.OUT_OF_TURNS
    assert dict(steps[-1].rewards) == {"right": 0.0}
    _, (empty, late) = play(environment, " ", "no")
    assert dict(empty.rewards) == {"format": -0.1}
    assert late.ending is Ending.OUT_OF_TURNS
    with pytest.raises(ValueError, match=r"ends after 1 turn, but --env.turns is 3"):
        env("single", turns=3).task(0)


def test_tools_are_called_and_a_reply_without_a_call_is_the_final_answer():
    environment = env("with_tools", turns=4)
    assert [tool.name for tool in tools_of(environment)] == ["plus", "ask"]
    wanted = answer_of(environment)
    call = json.dumps({"name": "plus", "arguments": {"a": 40, "b": 2}})
    _, steps = play(
        environment,
        f"<think>hm</think><tool_call>{call}</tool_call>",
        '{"name": "ask", "parameters": {"word": "so"}}',
        f"It is {wanted}",
    )
    assert steps[0].observation.text.endswith("\n42")
    assert steps[0].observation.role == "tool"
    assert steps[1].observation.text.endswith("\nso!")
    assert steps[2].ending is Ending.SOLVED
    assert dict(steps[2].rewards) == {"right": 1.0}


@pytest.mark.parametrize(
    "reply",
    [
        '<tool_call>{"name": "minus", "arguments": {}}</tool_call>',
        '<tool_call>{"name": "plus", "arguments": {"a": "x", "b": 1}}</tool_call>',
        "<tool_call>plus(1, 2)</tool_call>",
        "<think>never closed",
    ],
)
def test_a_call_that_does_not_fit_costs_the_penalty_and_is_not_handed_on(reply):
    environment = env("with_tools", turns=4)
    _, steps = play(environment, reply, answer_of(environment))
    assert (steps[0].valid, dict(steps[0].rewards)) == (False, {"format": -0.1})
    assert steps[1].ending is Ending.SOLVED


def test_an_error_of_a_reward_function_is_an_error_and_no_zero():
    environment = env("failing")
    broke = guarded_call(lambda: play(environment, "5"))
    assert isinstance(broke, Raised)
    assert "gone" in str(broke)


def test_a_function_that_never_returns_meets_its_deadline():
    broke = guarded_call(lambda: play(env("sleeping", timeout=0.2), "5"))
    assert isinstance(broke, Raised)
    assert "more than 0.2 seconds" in str(broke)


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        ("grouped", "scores the members of a group together"),
        ("judged", "asks a judge model over the network"),
        ("unrewarded", "no reward function with a weight"),
        ("not_an_environment", "found a Rubric"),
    ],
)
def test_what_cannot_be_played_is_refused_with_a_sentence(function, sentence):
    with pytest.raises(ValueError, match=sentence):
        env(function).task(0)
    with pytest.raises(ValueError, match="names the function that makes the environment"):
        Verifiers().task(0)


def test_rows_for_evaluation_are_never_trained_on():
    environment = env("held_out")
    held = {row["prompt"][-1]["content"] for row in environment.library.eval}
    for seed in range(300):
        question = environment.library.row(seed).content["prompt"][-1]["content"]
        assert (environment.task(seed).split == "train") == (question not in held)
    assert len(evaluation_tasks(env("single"), "val", 5)) == 5


def test_generators_and_signal_handlers_of_the_process_are_left_alone():
    state, handlers = random.getstate(), [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    environment = env("guess", turns=3)
    made: list[Any] = []
    thread = threading.Thread(target=lambda: made.append(play(environment, "no")))
    thread.start()
    thread.join()
    assert made
    assert random.getstate() == state
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers


@pytest.mark.parametrize(("function", "turns"), [("single", 1), ("guess", 3), ("with_tools", 4)])
def test_the_library_keeps_the_contract_through_the_adapter(function, turns):
    effort = QUICK
    report = check(env(function, turns=turns), effort, skip=["pickle", "knobs", "members"])
    assert report.ok, str(report)
