"""Pictures on their way to the policy: beside their text, in windows as well, and never to a model that reads text."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("PIL", reason="pictures are drawn with Pillow: install heedful[vision]")
pytest.importorskip("torch", reason="the renderer is tested with a tokenizer: install heedful[train]")

from heedful.envs.frozen_lake.environment import FrozenLake
from heedful.models.render import Renderer
from heedful.models.replies import Tags
from heedful.policies.scripted import ScriptedPolicy
from heedful.rollout import Context, LockStep, Request
from heedful.rollout.workers import isolated
from heedful.seedlings.demonstrations import teacher
from heedful.seedlings.tokenizer import grow_tokenizer
from heedful.types import Conversation, Group

ENV = FrozenLake(observation="image", cell=8, shortest=4)


def played(context: Context, env: Any = ENV) -> tuple[list[Conversation], list[Group]]:
    asked: list[Conversation] = []

    def answer(conversation: Conversation) -> str:
        asked.append(conversation)
        return "<think>so</think><answer>Nothing</answer>"

    task = FrozenLake(shortest=4).task(1)
    return asked, LockStep()(ScriptedPolicy(answer), Request(env.episode, [task], 1, ENV.turns, context))


def test_each_observation_comes_with_its_picture() -> None:
    asked, (group,) = played(Context())
    (trajectory,) = group.trajectories
    assert [len(message.images) for message in asked[-1].messages] == [1, 0] * 4 + [1]
    assert [len(turn.reply.prompt.images) for turn in trajectory.turns] == [1] * 5
    assert trajectory.turns[0].reply.prompt.images == asked[0].messages[0].images
    assert trajectory.turns[1].reply.prompt.images[0].alt == trajectory.turns[0].state


def test_a_window_shows_the_pictures_of_its_turns() -> None:
    asked, (group,) = played(Context(1))
    last = group.trajectories[0].turns[-1].reply.prompt
    assert [len(message.images) for message in asked[-1].messages] == [1, 0, 1]
    assert asked[-1].messages[0].content.startswith("You cross")
    assert last.restarts
    assert len(last.images) == 2


def test_workers_and_this_process_show_the_same_pictures() -> None:
    with isolated(ENV, 1) as env:
        elsewhere, here = played(Context(), env)[1], played(Context())[1]
    assert elsewhere == here
    assert here[0].trajectories[0].turns[0].reply.prompt.images


def test_a_model_that_reads_text_refuses_a_picture_before_it_samples() -> None:
    conversation = played(Context())[0][0]
    tags = Tags()
    written = [tags.open, tags.close, tags.answer_open, tags.answer_close]
    renderer = Renderer(grow_tokenizer(["Go up"], 300, 256, written), tags)
    found = r"a picture of 32 x 32 pixels.*cannot read pictures yet.*--env.observation both"
    with pytest.raises(ValueError, match=found):
        renderer.next_prompt(conversation)


def test_no_model_learns_from_demonstrations_whose_pictures_it_cannot_read() -> None:
    with pytest.raises(ValueError, match="a model that learns from demonstrations, found a picture"):
        teacher(ENV, 0.0, 0.0)
    assert teacher(FrozenLake(), 0.0, 0.0)
