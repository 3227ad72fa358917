"""The data set of an environment inside TRL: how it ends, and what it refuses. The environment is the user's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("trl", reason="TRL is not installed (pip install 'heedful[trl]')")

from heedful.envs.common.tasks import task_of
from heedful.envs.toys.echo import Echo, EchoEpisode
from heedful.integrations.trl import rollouts as module
from heedful.integrations.trl import to_trl_rollout_func
from heedful.policies.scripted import ScriptedPolicy
from heedful.types import Conversation, Message, Observation, Task


class Door:
    """An episode that shows which door it is, whatever the task."""

    def __init__(self, doors: int) -> None:
        self.doors = doors

    def start(self, task: Task, member: int) -> Observation:
        return Observation(f"door {task.seed % self.doors}")

    def step(self, response: str) -> Any:
        raise NotImplementedError


@dataclass(frozen=True)
class Doors:
    """Many start states, of which few look different."""

    doors: int = 3
    name = "doors"
    turns = 1

    def task(self, seed: int) -> Task:
        return task_of(self.name, str(seed), seed)

    def episode(self) -> Any:
        return Door(self.doors)


def test_tasks_that_look_alike_count_as_one_and_the_search_for_more_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SEEDS_PER_TASK", 500)
    rollouts = to_trl_rollout_func(Doors())
    shown = {row["prompt"][0]["content"] for row in rollouts.dataset(3)}
    assert shown == {"door 0", "door 1", "door 2"}
    # The number of seeds that are tried does not grow with the number of tasks that are wanted.
    with pytest.raises(ValueError, match=r"Expected 1000000 tasks of doors .* found 3: 500 seeds in a row"):
        rollouts.dataset(10**6)
    with pytest.raises(ValueError, match=r"Expected 1 tasks of doors in the split 'val' .* found 0"):
        rollouts.dataset(1, split="val")  # all doors are prompts of the training tasks


def test_a_data_set_is_a_function_of_its_seed() -> None:
    first, again, other = (to_trl_rollout_func(Echo()).dataset(20, seed=seed)["prompt"] for seed in (0, 0, 1))
    assert first == again != other


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"tasks": 0}, "tasks: expected a whole number of at least 1 and at most 1,000,000, found 0"),
        ({"tasks": "8"}, "tasks: expected a whole number of at least 1 and at most 1,000,000, found '8'"),
        ({"tasks": 10**12}, "tasks: expected a whole number .* found 1000000000000"),
        ({"tasks": 8, "split": "vali"}, "split: expected one of train, val, test, found 'vali'"),
        ({"tasks": 8, "seed": 1.5}, "seed: expected a whole number, found 1.5"),
    ],
)
def test_a_slip_in_the_size_is_named(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        to_trl_rollout_func(Echo()).dataset(**given)


@pytest.mark.parametrize(
    ("env", "given", "sentence"),
    [
        (5, {}, "env: expected an environment .* found a int without `name`, `turns`, `task`, `episode`"),
        (Echo(), {"tokens_per_turn": 0}, "tokens_per_turn: expected a whole number of at least 1, found 0"),
        (Echo(), {"tags": "<think>"}, "tags: expected a Tags, found '<think>'"),
        (Echo(), {"chat_options": 5}, "chat_options: expected a dict, found 5"),
        (Echo(), {"sampler": 5}, "sampler: expected a function of the trainer and the batch, found 5"),
    ],
)
def test_arguments_of_another_kind_are_refused(env: Any, given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        to_trl_rollout_func(env, **given)


class Says:
    """A policy with one reply to everything."""

    version = 0

    def __init__(self, temperature: Any = 1.0, reply: Any = None, **changes: Any) -> None:
        plain = ScriptedPolicy(lambda asked: "AB").respond([Conversation("k", (Message("user", "echo"),))])[0]
        self.temperature, self.replies = temperature, [replace(plain, **changes) if reply is None else reply]

    def respond(self, asked: Any) -> Any:
        return self.replies


@pytest.mark.parametrize(
    ("policy", "sentence"),
    [
        (None, "temperature of the sampler's policy must be a number, found None"),
        (Says(float("nan")), "temperature of the sampler's policy must be from 0 to 1,000,000, found nan"),
        (Says(reply=3), "Expected 1 replies .* from the policy Says, found 1 values, 0 replies. Correct respond"),
        (Says(ids=None), "the policy Says at respond.*, found that it raised TypeError"),
        (Says(ids=(1, 2)), "Expected 1 replies .* from the policy Says, found 2 ids and 3 log-probabilities"),
        (Says(ids=("a", 1, 2)), "from the policy Says .* ids from 0 to 1,114,112 .*, found 'a'. Correct respond"),
        (Says(ids=(1, 2, 10**400)), "ids from 0 to 1,114,112 and finite log-probabilities, found 1000000"),
        (Says(logprobs=(0.0, float("nan"), 0.0)), "ids from 0 .* and finite log-probabilities, found nan"),
        (Says(text=5), "from the policy Says of the sampler a text, ids .*, found 5"),
    ],
)
def test_a_sampler_with_odd_replies_is_told_which(policy: Any, sentence: str) -> None:
    rollouts = to_trl_rollout_func(Echo(), sampler=lambda trainer, batch: policy)
    sizes = SimpleNamespace(get_text_config=lambda decoder: SimpleNamespace(vocab_size=0x110001))
    trainer = SimpleNamespace(
        model=SimpleNamespace(training=True, config=sizes),
        num_generations=1,
        accelerator=SimpleNamespace(process_index=0),
    )
    with pytest.raises(ValueError, match=sentence):
        rollouts([rollouts.dataset(1)[0]["prompt"]], trainer)


def without(change: Callable[..., Any], name: str) -> Any:
    return type("Odd", (Doors,), {name: change})()


class Shows(EchoEpisode):
    def start(self, task: Task, member: int) -> Any:
        return "door 1"


class Pictures(EchoEpisode):
    def start(self, task: Task, member: int) -> Any:
        return Observation("door", images=("x",))  # type: ignore[arg-type]


class Halves(EchoEpisode):
    def start(self, task: Task, member: int) -> Any:
        return Observation(f"{task.seed} \ud800")


def test_half_a_surrogate_pair_is_written_as_an_escape() -> None:
    odd = without(lambda self: Halves(Echo()), "episode")
    prompts = [row[0]["content"] for row in to_trl_rollout_func(odd).dataset(2)["prompt"]]
    assert all(prompt.endswith(r" \ud800") for prompt in prompts)


@pytest.mark.parametrize(
    ("env", "sentence"),
    [
        (without(lambda self, seed: {}["x"], "task"), "from the environment doors, found that `task` raised KeyError"),
        (without(lambda self, seed: seed, "task"), "from the environment doors, found int where a Task was expected"),
        (without(lambda self: Shows(Echo()), "episode"), "that starts, found ValueError: .*an Observation with a text"),
        (
            without(lambda self: Pictures(Echo()), "episode"),
            "that starts, found ValueError: .*pictures as a tuple",
        ),
        (without(lambda self: [].pop(), "episode"), "that starts, found IndexError: pop from empty list"),
    ],
)
def test_an_environment_that_answers_oddly_is_named(env: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        to_trl_rollout_func(env).dataset(2)


def test_turns_that_are_no_number_are_refused_before_anything_is_drawn() -> None:
    env: Any = type("Odd", (Doors,), {"turns": "3"})()
    with pytest.raises(ValueError, match="from 1 to 1,000,000 as `turns` of the environment doors, found '3'"):
        to_trl_rollout_func(env)
