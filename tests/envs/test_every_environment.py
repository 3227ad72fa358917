"""What each environment promises, checked for all of them in several configurations."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import pytest

from heedful.envs.common.actions import CLOSE_THOUGHT, OPEN_THOUGHT, format_reply, read_reply
from heedful.envs.common.tasks import evaluation_tasks
from heedful.envs.frozen_lake.environment import FrozenLake
from heedful.envs.sokoban.environment import Sokoban
from heedful.envs.toys.bandit import Bandit
from heedful.envs.toys.chain import Chain
from heedful.envs.toys.echo import Echo
from heedful.protocols import Environment
from heedful.types import Ending, Step, Task

ENVIRONMENTS: list[Any] = [
    FrozenLake(),
    FrozenLake(slip=0.3, size=5, instructions="brief", show_reward=True, turns=7, actions_per_turn=1),
    FrozenLake(observation="coordinates", actions_per_turn=3),
    Echo(),
    Echo(turns=3, decoys=0, instructions="brief"),
    Bandit(),
    Bandit(turns=3, instructions="brief"),
    Chain(),
    Chain(turns=3, modulus=5, operations=("+1", "-2", "*3"), least=2, most=4, instructions="brief"),
    Sokoban(),
    Sokoban(size=7, boxes=2, turns=10, observation="grid", instructions="brief"),
]
BY_CLASS: list[Any] = [FrozenLake(), Echo(), Bandit(), Chain(), Sokoban()]

PIECES = (
    *(OPEN_THOUGHT, CLOSE_THOUGHT, "<answer>", "</answer>", "||", " ", "\n", "Left", "up", "DOWN", "A", "E", "Fox"),
    *("Jump", "\x00", "é", "<|im_end|>", "plan", "<", "|", "  "),
)


def identify(env: Any) -> str:
    changed = [
        f"{field.name}={getattr(env, field.name)}"
        for field in dataclasses.fields(env)
        if getattr(env, field.name) != field.default
    ]
    return "-".join([env.name, *changed])


every_env = pytest.mark.parametrize("env", ENVIRONMENTS, ids=identify)
every_longer_one = pytest.mark.parametrize("env", [one for one in ENVIRONMENTS if one.turns > 1], ids=identify)
every_class = pytest.mark.parametrize("env", BY_CLASS, ids=identify)


def play(env: Any, task: Task, member: int, replies: list[str]) -> tuple[str, list[Step]]:
    episode = env.episode()
    first = episode.start(task, member).text
    steps: list[Step] = []
    for reply in replies:
        steps.append(episode.step(reply))
        if steps[-1].ending is not None:
            break
    return first, steps


def random_reply(env: Any, rng: random.Random) -> str:
    if rng.random() < 0.5:
        return format_reply([rng.choice(env.actions) for _ in range(rng.randint(1, 4))], "a thought")
    return "".join(rng.choice(PIECES) for _ in range(rng.randint(0, 12)))


@every_env
def test_an_environment_keeps_the_protocol(env: Any) -> None:
    assert "\n" not in env.summary
    assert len(set(env.actions)) == len(env.actions)
    assert hash(env) == hash(dataclasses.replace(env))
    assert isinstance(env, Environment)
    assert env.task(0).environment == env.name


@every_env
def test_a_seed_draws_the_same_task_every_time(env: Any) -> None:
    again = dataclasses.replace(env)
    assert [env.task(seed) for seed in range(50)] == [again.task(seed) for seed in range(50)]
    assert {env.task(seed).split for seed in range(100)} == {"train", "val", "test"}


@every_env
def test_task_member_and_replies_replay_an_episode(env: Any) -> None:
    rng = random.Random(1)
    for seed in range(20):
        task = env.task(seed)
        replies = [random_reply(env, rng) for _ in range(env.turns)]
        assert play(env, task, 3, replies) == play(env, task, 3, replies)


@every_env
def test_random_replies_never_raise_and_every_episode_ends_in_time(env: Any) -> None:
    rng = random.Random(2)
    for seed in range(150):
        replies = [random_reply(env, rng) for _ in range(env.turns)]
        _, steps = play(env, env.task(seed), seed, replies)
        assert len(steps) <= env.turns
        for reply, step in zip(replies, steps, strict=False):
            read = read_reply(reply, env.actions, env.actions_per_turn)
            assert step.actions == read.actions[: len(step.actions)]
            assert step.valid == (not read.fault)
            assert ("format" in step.rewards) == (not step.valid)
            assert step.rewards.get("format", -env.format_penalty) == -env.format_penalty
            assert "\n" not in step.effect
            assert (step.outcome is None) == (step.ending is None)
        last = steps[-1]
        assert last.ending is not None
        assert (last.outcome == 1.0) == (last.ending is Ending.SOLVED)
        assert last.outcome is not None
        assert 0.0 <= last.outcome <= 1.0
        assert last.progress is None or 0.0 <= last.progress <= 1.0


@every_env
def test_an_unreadable_reply_executes_nothing_and_costs_the_turn(env: Any) -> None:
    _, steps = play(env, env.task(0), 0, ["<think>hm"] * env.turns)
    assert len(steps) == env.turns
    assert all(step.actions == () and not step.valid for step in steps)
    assert all(dict(step.rewards) == {"format": -env.format_penalty} for step in steps)
    assert steps[-1].outcome == 0.0


@every_longer_one
def test_the_next_observation_tells_of_a_fault(env: Any) -> None:
    _, steps = play(env, env.task(0), 0, ["<think>hm"])
    first_line = steps[0].observation.text.split("\n")[0]
    assert "invalid" in first_line
    assert (first_line == "invalid open thought") == (env.instructions == "brief")


@every_env
def test_the_solver_solves_200_tasks_within_the_limits(env: Any) -> None:
    still = dataclasses.replace(env, slip=0.0) if hasattr(env, "slip") else env
    for seed in range(200):
        task = still.task(seed)
        pairs = still.demonstrate(task, random.Random(seed))
        first, steps = play(still, task, 0, [reply for _, reply in pairs])
        assert first == pairs[0][0]
        assert [step.observation.text for step in steps[:-1]] == [text for text, _ in pairs[1:]]
        assert all(step.valid for step in steps)
        assert steps[-1].ending is Ending.SOLVED
        assert steps[-1].outcome == 1.0


@every_env
def test_the_first_observation_tells_every_limit(env: Any) -> None:
    text = env.episode().start(env.task(5), 0).text
    if env.instructions == "brief":
        assert text.startswith(f"turns {env.turns} moves {env.actions_per_turn}\n")
        return
    assert f"You have {env.turns} turn" in text
    assert f"Turns left: {env.turns}." in text
    limit = "one action in each" if env.actions_per_turn == 1 else f"at most {env.actions_per_turn} actions in"
    assert limit in text
    assert all(action in text for action in env.actions)
    assert all(tag in text for tag in (OPEN_THOUGHT, CLOSE_THOUGHT, "<answer>", "</answer>"))


@every_env
def test_an_opening_is_the_observation_behind_the_rules_of_the_first_one(env: Any) -> None:
    rng = random.Random(4)
    for seed in range(20):
        episode = env.episode()
        first = episode.start(env.task(seed), 0)
        assert first.opening == first.text
        begin = "turns " if env.instructions == "brief" else "Turns left"
        rules = first.text[: first.text.index(begin)]
        assert bool(rules) == (env.instructions == "full")
        while True:
            step = episode.step(random_reply(env, rng))
            if step.ending is not None:
                break
            assert step.observation.opening == rules + step.observation.text
            assert not rules or rules not in step.observation.text


@every_longer_one
def test_the_reward_is_shown_only_if_asked_for(env: Any) -> None:
    for show in (False, True):
        shown = dataclasses.replace(env, show_reward=show, format_penalty=0.7)
        first, steps = play(shown, shown.task(0), 0, ["nothing"])
        assert "reward" not in first
        assert ("reward -0.7\n" in steps[0].observation.text) == show


@every_class
def test_imperfect_demonstrations_fail_more_often_and_state_what_they_do(env: Any) -> None:
    noisy = dataclasses.replace(env, imperfect=1.0)
    solved = 0
    for seed in range(60):
        task = noisy.task(seed)
        pairs = noisy.demonstrate(task, random.Random(seed))
        for _, reply in pairs:
            thought, answer = reply.split(CLOSE_THOUGHT)
            said = read_reply(answer, env.actions, env.actions_per_turn).actions[0]
            assert thought.endswith(said) if env.name == "chain" else said in thought.split()
        solved += play(noisy, task, 0, [reply for _, reply in pairs])[1][-1].ending is Ending.SOLVED
    assert solved < 50


@every_class
def test_template_thoughts_ignore_the_state_while_the_answers_still_solve(env: Any) -> None:
    vague = dataclasses.replace(env, template=1.0)
    thoughts = []
    for seed in range(60):
        task = vague.task(seed)
        pairs = vague.demonstrate(task, random.Random(7))
        thoughts.append(pairs[0][1].split(CLOSE_THOUGHT)[0])
        assert play(vague, task, 0, [reply for _, reply in pairs])[1][-1].ending is Ending.SOLVED
    assert not any(character.isdigit() for thought in thoughts for character in thought)
    different = {vague.demonstrate(vague.task(0), random.Random(s))[0][1].split(CLOSE_THOUGHT)[0] for s in range(60)}
    assert len(different) > 50


@every_class
def test_demonstrations_are_a_function_of_task_and_generator(env: Any) -> None:
    mixed = dataclasses.replace(env, imperfect=0.3, template=0.5)
    task = mixed.task(4)
    assert mixed.demonstrate(task, random.Random(1)) == mixed.demonstrate(task, random.Random(1))


@every_class
def test_the_example_in_the_docstring_is_real(env: Any) -> None:
    brief = dataclasses.replace(env, instructions="brief")
    words = (type(env).__doc__ or "").split("First observation of seed ")[1]
    seed = int(words.split()[0])
    observation, reply = brief.demonstrate(brief.task(seed), random.Random(0))[0]
    blocks = ["\n".join(line.strip() for line in block.strip().splitlines()) for block in words.split("```")[1::2]]
    assert blocks[:2] == [observation, reply]


@every_class
def test_a_task_of_other_knobs_is_refused(env: Any) -> None:
    with pytest.raises(ValueError, match="was drawn by another environment or with other knobs"):
        env.episode().start(dataclasses.replace(env.task(0), id="other-0"), 0)


@every_class
def test_evaluation_finds_enough_distinct_tasks(env: Any) -> None:
    assert len(evaluation_tasks(env, "test", 100)) == 100
