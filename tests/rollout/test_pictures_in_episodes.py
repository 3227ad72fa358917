"""Pictures on their way to the policy: beside their text, in windows as well, and never to a model that reads text."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("PIL", reason="pictures are drawn with Pillow: install heedful[vision]")
pytest.importorskip("torch", reason="the renderer is tested with a tokenizer: install heedful[train]")

from heedful.boundary import to_json
from heedful.envs.frozen_lake.environment import FrozenLake
from heedful.envs.remote.environment import Remote
from heedful.envs.sokoban.environment import Sokoban
from heedful.models.chat.render import Renderer
from heedful.models.chat.replies import Tags
from heedful.policies.sampling import Sampling
from heedful.policies.scripted import ScriptedPolicy
from heedful.policies.served_text import TextPolicy
from heedful.rollout import Context, LockStep, Request
from heedful.rollout.workers import isolated
from heedful.seedlings.demonstrations import batches, teacher
from heedful.seedlings.grow import shown_to_a_learner
from heedful.seedlings.tokenizer import grow_tokenizer
from heedful.serving.service import Service
from heedful.serving.sessions import Sessions
from heedful.types import Conversation, Group
from heedful_verl.tasks import task_rows
from patience import PATIENCE
from served import serving

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


def test_a_server_sends_the_same_pictures() -> None:
    with serving(ENV) as server:
        elsewhere = played(Context(), Remote(server.url, timeout=PATIENCE))[1]
    assert elsewhere == played(Context())[1]
    assert elsewhere[0].trajectories[0].turns[0].reply.prompt.images[0].alt


def test_a_model_that_reads_text_refuses_a_picture_before_it_samples() -> None:
    conversation = played(Context())[0][0]
    tags = Tags()
    written = [tags.open, tags.close, tags.answer_open, tags.answer_close]
    renderer = Renderer(grow_tokenizer(["Go up"], 300, 256, written), tags)
    found = r"a picture of 32 x 32 pixels.*Give a model that sees.*--env.observation both"
    with pytest.raises(ValueError, match=found):
        renderer.next_prompt(conversation)


def test_no_model_learns_from_demonstrations_whose_pictures_it_cannot_read() -> None:
    tags = Tags()
    written = [tags.open, tags.close, tags.answer_open, tags.answer_close]
    renderer = Renderer(grow_tokenizer(["Go up"], 300, 256, written), tags)
    with pytest.raises(ValueError, match="text alone for a model that reads text, found a picture"):
        next(batches(teacher(ENV, 0.0, 0.0), 1, 0, renderer, Context()))


def test_a_served_model_refuses_a_picture_before_it_is_asked() -> None:
    client: Any = SimpleNamespace(limits=SimpleNamespace(connections=1))
    policy = TextPolicy(client, "model", Sampling(), Tags(), 0)
    with pytest.raises(ValueError, match="text alone for a served model, found a picture of 32 x 32 pixels"):
        policy.respond([played(Context())[0][0]])


def test_verl_refuses_tasks_with_pictures() -> None:
    with pytest.raises(ValueError, match="text alone for verl, found pictures in task"):
        task_rows(ENV, [ENV.task(1)], "")


NAMED = [
    (FrozenLake(), "fe93042779676e5b", "6fd4ad41a4717531"),
    (FrozenLake(slip=0.2, observation="grid"), "835d5daba535d59b", "2738eadddcddf1c1"),
    (Sokoban(), "0e2c514cc646ca71", "83136ec122590bdf"),
]
"""Environments, and the digests of them served and shown to a seedling before there were pictures."""


@pytest.mark.parametrize(("env", "served", "shown"), NAMED)
def test_the_size_of_cells_renames_no_seedling_and_no_served_environment(env: Any, served: str, shown: str) -> None:
    tree = shown_to_a_learner(env, to_json(env), Tags(), Context())
    assert hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()[:16] == shown
    assert Service(env, Sessions(env.episode, 1, 1.0)).description["digest"] == served
    small = replace(env, observation="image", cell=8)
    assert shown_to_a_learner(small, to_json(small), Tags(), Context()) != tree
