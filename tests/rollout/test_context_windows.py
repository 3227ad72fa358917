"""What stands in a prompt: the full history, the last turns, or the newest observation alone."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest

from heedful.envs.frozen_lake.environment import FrozenLake
from heedful.envs.sokoban.environment import Sokoban
from heedful.envs.toys.echo import Echo
from heedful.policies.scripted import ScriptedPolicy
from heedful.rollout import Context, LockStep, Request
from heedful.rollout.player import Player
from heedful.types import Conversation, Ending, Observation, Step, Task

TASK = Task("count-1", 0, "train")


@dataclass
class Counting:
    """Shows the number of the turn; its openings say that they are ones."""

    openings: bool = True
    turns: int = 5
    shown: int = 0

    def start(self, task: Task, member: int) -> Observation:
        return self.show("first ")

    def step(self, response: str) -> Step:
        self.shown += 1
        over = self.shown == self.turns
        return Step(self.show(), {}, Ending.SOLVED if over else None, 1.0 if over else None)

    def show(self, before: str = "") -> Observation:
        return Observation(f"{before}see {self.shown}", f"open {self.shown}" if self.openings else "")


def conversations(context: Context, episode: Any = None) -> list[Conversation]:
    """What is asked in each turn of an episode of five."""
    player = Player(episode or Counting(), TASK, 0, 5, context)
    asked = []
    while player.ending is None:
        asked.append(player.conversation)
        said = f"say {len(asked) - 1}"
        player.advance(ScriptedPolicy(lambda conversation, said=said: said).respond([asked[-1]])[0])
    return asked


def texts(conversation: Conversation) -> list[str]:
    return [message.content for message in conversation.messages]


def test_the_full_history_grows_and_never_restarts() -> None:
    asked = conversations(Context())
    assert texts(asked[2]) == ["first see 0", "say 0", "see 1", "say 1", "see 2"]
    for before, after in pairwise(asked):
        assert after.messages[: len(before.messages)] == before.messages
    assert not any(conversation.restarts for conversation in asked)


def test_a_window_keeps_the_last_turns_behind_an_opening_and_restarts_once_it_moves() -> None:
    asked = conversations(Context(turns=2))
    assert [texts(conversation) for conversation in asked] == [
        ["first see 0"],
        ["first see 0", "say 0", "see 1"],
        ["first see 0", "say 0", "see 1", "say 1", "see 2"],
        ["open 1", "say 1", "see 2", "say 2", "see 3"],
        ["open 2", "say 2", "see 3", "say 3", "see 4"],
    ]
    assert [conversation.restarts for conversation in asked] == [False, False, False, True, True]
    assert {conversation.key for conversation in asked} == {"count-1/0"}


def test_replies_in_a_window_bring_the_ids_that_were_sampled() -> None:
    (kept,) = [message for message in conversations(Context(turns=1))[3].messages if message.role == "assistant"]
    assert kept.content == "say 2"
    assert kept.ids == (*map(ord, "say 2"), 0x110000)


def test_without_memory_a_prompt_is_one_opening() -> None:
    asked = conversations(Context(turns=0))
    assert [texts(conversation) for conversation in asked] == [["first see 0"], *([f"open {n}"] for n in range(1, 5))]
    assert [conversation.restarts for conversation in asked] == [False, True, True, True, True]


@pytest.mark.parametrize("turns", [4, 9])
def test_a_window_longer_than_the_episode_is_the_full_history(turns: int) -> None:
    assert conversations(Context(turns)) == conversations(Context())
    assert not Context(turns).cuts(5)
    assert Context(3).cuts(5)


def test_an_environment_without_openings_is_refused_when_a_window_would_begin_there() -> None:
    with pytest.raises(ValueError, match=r"observation of turn 2 has no `opening`.*--context\.turns out"):
        conversations(Context(turns=0), Counting(openings=False))
    with pytest.raises(ValueError, match=r"--context\.turns 3 shows a window"):
        conversations(Context(turns=3), Counting(openings=False))
    assert len(conversations(Context(turns=4), Counting(openings=False))) == 5
    assert len(conversations(Context(), Counting(openings=False))) == 5


def test_an_opening_that_is_no_text_is_the_environments_error() -> None:
    class Broken(Counting):
        def show(self, before: str = "") -> Observation:
            return Observation("see", None)  # type: ignore[arg-type]

    player = Player(Broken(), TASK, 0, 5, Context(turns=0))
    assert player.ending is Ending.ERROR
    assert "an opening as None; expected text" in player.trajectory(1.0, 0).error


@pytest.mark.parametrize(
    "env",
    [FrozenLake(), FrozenLake(instructions="brief"), Sokoban(), Echo(turns=4)],
    ids=["lake", "brief_lake", "sokoban", "echo"],
)
def test_a_memory_less_prompt_holds_nothing_of_earlier_turns(env: Any) -> None:
    def answer(conversation: Conversation) -> str:
        numbers.append(len(numbers))
        return f"<think>zebra{numbers[-1]}x</think><answer>{env.actions[0]}</answer>"

    numbers: list[int] = []
    tasks = [env.task(seed) for seed in range(3)]
    for group in LockStep()(ScriptedPolicy(answer), Request(env.episode, tasks, 2, env.turns, Context(turns=0))):
        for trajectory in group.trajectories:
            first = trajectory.turns[0].reply.prompt.text
            rules = first[: first.index("Turns left" if "Turns left" in first else "turns ")]
            for number, turn in enumerate(trajectory.turns):
                prompt = turn.reply.prompt
                assert "zebra" not in prompt.text
                assert "<answer>" not in prompt.text.removeprefix(rules)
                assert prompt.text.startswith(rules)
                assert prompt.text.lower().count("turns left" if rules else "turns ") == 1
                assert prompt.restarts == (number > 0)
                assert trajectory.context_ids(number) == prompt.ids
