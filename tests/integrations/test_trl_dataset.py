"""The data set of an environment inside TRL: how it ends, and what it refuses. The environment is the user's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

pytest.importorskip("trl", reason="TRL is not installed (pip install 'heedful[trl]')")

from heedful.envs.common.tasks import task_of
from heedful.envs.toys.echo import Echo, EchoEpisode
from heedful.integrations.trl import rollouts as module
from heedful.integrations.trl import to_trl_rollout_func
from heedful.types import Observation, Task


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
        (without(lambda self, seed: {}["x"], "task"), "from the environment doors, found that it raised KeyError"),
        (without(lambda self, seed: seed, "task"), "from the environment doors, found int where a Task was expected"),
        (
            without(lambda self: Shows(Echo()), "episode"),
            "that starts, found ContractError: .*an Observation with a text",
        ),
        (
            without(lambda self: Pictures(Echo()), "episode"),
            "that starts, found ContractError: .*pictures as a tuple",
        ),
        (without(lambda self: [].pop(), "episode"), "that starts, found IndexError: pop from empty list"),
    ],
)
def test_an_environment_that_answers_oddly_is_named(env: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        to_trl_rollout_func(env).dataset(2)
