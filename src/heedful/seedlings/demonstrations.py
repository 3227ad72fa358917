"""Demonstrations of an environment's solver as texts for a tokenizer, and as rows of ids to learn from.

The rows hold the ids that a sampled episode would have. The demonstrator's replies are trained, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

from heedful.envs.common.contract import demonstrated, steps_of, turns_of
from heedful.envs.common.tasks import TaskStream
from heedful.models.chat.render import Renderer
from heedful.protocols import Demonstrates, Environment
from heedful.rollout.context import Context
from heedful.rollout.player import Player, made
from heedful.seeds import derive, stream
from heedful.training.samples import merge_rows
from heedful.types import Conversation, Ending, Group, Image, Message, Task, TrainingSample, Verdict

TOKENIZER_EPISODES = 200
"""Demonstrated for the tokenizer. An environment with fewer training tasks demonstrates each of them."""


def teacher(env: Environment, imperfect: float, template: float) -> Demonstrates:
    """The environment with these shares of faulty plans and of template thoughts in its demonstrations.

    Raises ValueError for an environment without `demonstrate` and the knobs `imperfect` and `template`.
    """
    knobs: Any = {field.name for field in fields(env)} if is_dataclass(env) else set()
    if not isinstance(env, Demonstrates) or not {"imperfect", "template"} <= knobs:
        raise ValueError(
            f"Expected an environment whose solver a model can learn from: a dataclass with a method `demonstrate` and "
            f"the fields `imperfect` and `template`, found {type(env).__name__} without. Add them, or train a model of "
            "your own with --model PATH and without a warm start."
        )
    faulty: Any = env
    return replace(faulty, imperfect=imperfect, template=template)


def first_images(env: Environment, tasks: int = 1) -> list[Image]:
    """The pictures of the first observations of a few tasks. Empty for an environment that raises."""
    found: list[Image] = []
    for seed in range(tasks):
        player = Player(made(env.episode), env.task(seed), 0, 1)
        # One that raises is told of with its task, where it is demonstrated.
        found += player.observation.images if player.ending is None else ()
    return found


def corpus(env: Demonstrates, seed: int) -> Iterator[str]:
    """Texts for the tokenizer: demonstrated episodes, and the environment's answers to faulty replies."""
    tasks = TaskStream(env, "train", derive(seed, "demonstrations", "tokenizer"))
    rng = stream(seed, "demonstrator", "tokenizer")
    for task in tasks.next(TOKENIZER_EPISODES, fewer=True):
        pairs = demonstrated(env, task, rng)
        yield from (text for pair in pairs for text in pair)
        whole = pairs[0][1]
        for faulty in (
            whole[: len(whole) // 2],
            whole[: len(whole) - 3],
            whole.replace("<answer>", "<answer>Nothing || "),
        ):
            yield steps_of(env, task, [faulty])[-1].observation.text


def batches(
    env: Demonstrates, episodes: int, seed: int, renderer: Renderer, context: Context
) -> Iterator[list[TrainingSample]]:
    """Rows of `episodes` demonstrated training tasks each, without end. They depend on `seed` alone."""
    tasks = TaskStream(env, "train", derive(seed, "demonstrations", "batches"))
    rng = stream(seed, "demonstrator", "batches")
    replayed = context.cuts(turns_of(env)) or bool(first_images(env))
    while True:
        played = [(task, demonstrated(env, task, rng)) for task in tasks.next(episodes)]
        if replayed:
            yield [row for one in played for row in encode_replayed(env, *one, renderer, context)]
        else:
            yield [encode(episode, renderer) for _, episode in played]


def encode(episode: Sequence[tuple[str, str]], renderer: Renderer) -> TrainingSample:
    """A demonstrated episode as token ids, exactly as a sampled episode would have them. Replies are trained."""
    ids: list[int] = []
    trained: list[bool] = []
    messages: list[Message] = []
    for observation, reply in episode:
        messages.append(Message("tool" if messages and renderer.tools else "user", observation))
        prompt, written = renderer.next_prompt(Conversation("", tuple(messages))), renderer.as_sampled(reply)
        messages.append(Message("assistant", reply, written))
        ids += [*prompt.ids, *written]
        trained += [False] * len(prompt.ids) + [True] * len(written)
    zeros = (0.0,) * len(ids)
    return TrainingSample(tuple(ids), tuple(trained), zeros, zeros, group=0, member=0, weight=1.0)


def encode_replayed(
    env: Environment,
    task: Task,
    pairs: Sequence[tuple[str, str]],
    renderer: Renderer,
    context: Context,
) -> list[TrainingSample]:
    """A demonstrated episode as rows, exactly as a sampled episode would have them: with pictures, and in windows.

    The replies are played again, because demonstrations are texts. They hold neither the pictures of an observation nor
    its opening, with which a window begins. Raises ValueError if the environment then shows something else than the
    demonstration.
    """
    player = Player(made(env.episode), task, 0, len(pairs), context)
    for shown, text in pairs:
        if player.ending is not None or player.observation.text != shown:
            found = player.observation.text if player.ending is None else f"the end: {player.ending.value}"
            raise ValueError(
                f"Expected an environment that replays its demonstration of task {task.id}, played as member 0, which "
                f"pictures and windows of history need, but after the same replies it shows {found[:60]!r} for "
                f"{shown[:60]!r}. Let `demonstrate` play member 0, or show text without --context.turns."
            )
        ids = renderer.as_sampled(text)
        player.advance(renderer.parse(renderer.next_prompt(player.conversation), ids, (0.0,) * len(ids)))
    trajectory = player.trajectory(temperature=1.0, policy_version=0)
    if trajectory.ending is Ending.ERROR:
        raise ValueError(f"{env.name} broke while its demonstration of task {task.id} was replayed: {trajectory.error}")
    group = Group(task, (trajectory,))
    return [
        TrainingSample(row.ids, row.trained, row.logprobs, (0.0,) * len(row.ids), group=0, member=0, weight=1.0)
        for row in merge_rows([group], [Verdict(1.0, "kept", None)])
    ]
