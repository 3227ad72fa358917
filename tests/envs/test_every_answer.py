"""What each environment of answers in free text promises, checked for all of them in several configurations.

The counterpart of `test_every_environment.py` for environments without a list of actions. To have an environment
checked, add it to `ENVIRONMENTS` and, at its defaults, to `BY_CLASS`.
"""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import pytest

from heedful.envs.common.actions import CLOSE_ANSWER, CLOSE_THOUGHT, OPEN_ANSWER, OPEN_THOUGHT, format_reply
from heedful.envs.common.answers import read_answer
from heedful.envs.common.tasks import evaluation_tasks
from heedful.envs.countdown.environment import Countdown
from heedful.envs.math.environment import MathProblems
from heedful.envs.sudoku.environment import Sudoku
from heedful.protocols import Environment
from heedful.rollout.baselines import MOST_CANDIDATES, best_fixed_sequence
from heedful.run.presets import preset
from heedful.types import Ending, Step, Task
from heedful_envs.search_qa.environment import SearchQA
from heedful_envs.shop.environment import Shop

ENVIRONMENTS: list[Any] = [
    MathProblems(),
    MathProblems(instructions="brief", show_reward=True, most=2, largest=20),
    MathProblems(turns=1, least=4, most=6, kinds=("shopping", "ages", "bus")),
    Countdown(),
    Countdown(turns=3, use="some", least_numbers=4, most_numbers=5, largest=25, instructions="brief", show_reward=True),
    preset("countdown").env,
    Sudoku(),
    Sudoku(size=6, least_empties=8, most_empties=20, turns=5, instructions="brief", tell="wrong"),
    SearchQA(),
    SearchQA(instructions="brief", neighbours=True, show_reward=True, results=1, turns=2),
    SearchQA(instructions="brief", people_passages=True, names="words", distractors=5),
    Shop(),
    Shop(instructions="brief", turns=27, hidden=1, sums=True, show_reward=True),
]
BY_CLASS: list[Any] = [MathProblems(), Countdown(), Sudoku(), SearchQA(), Shop()]

PIECES = (
    *(OPEN_THOUGHT, CLOSE_THOUGHT, OPEN_ANSWER, CLOSE_ANSWER, "||", " ", "\n", "12", "-3", "7/2", "4 apples", "(", ")"),
    *("\\boxed{5}", "\\frac", "+", "*", "=", "x", "\x00", "é", "<|im_end|>", "<", "1e9", "½", "", "  ", "$", "50%"),
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


def random_reply(env: Any, task: Task, rng: random.Random) -> str:
    if rng.random() < 0.5:
        return format_reply([env.random_answer(task, rng)], "a thought")
    return "".join(rng.choice(PIECES) for _ in range(rng.randint(0, 12)))


@every_env
def test_an_environment_keeps_the_protocol(env: Any) -> None:
    assert "\n" not in env.summary
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
        replies = [random_reply(env, task, rng) for _ in range(env.turns)]
        assert play(env, task, 3, replies) == play(env, task, 3, replies)


@every_env
def test_random_replies_never_raise_and_every_episode_ends_in_time(env: Any) -> None:
    rng = random.Random(2)
    for seed in range(150):
        task = env.task(seed)
        replies = [random_reply(env, task, rng) for _ in range(env.turns)]
        _, steps = play(env, task, seed, replies)
        assert len(steps) <= env.turns
        for reply, step in zip(replies, steps, strict=False):
            assert not (step.valid and read_answer(reply, 10_000).fault)
            assert ("format" in step.rewards) == (not step.valid)
            assert step.rewards.get("format", -env.format_penalty) == -env.format_penalty
            assert "\n" not in step.effect
            assert (step.outcome is None) == (step.ending is None)
        last = steps[-1]
        assert last.ending is not None
        assert last.outcome is not None
        assert (last.outcome == 1.0) == (last.ending is Ending.SOLVED)
        assert 0.0 <= last.outcome <= 1.0
        assert last.progress is None or 0.0 <= last.progress <= 1.0


@every_env
def test_an_unreadable_reply_costs_the_turn_and_a_penalty(env: Any) -> None:
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
    for seed in range(200):
        task = env.task(seed)
        pairs = env.demonstrate(task, random.Random(seed))
        first, steps = play(env, task, 0, [reply for _, reply in pairs])
        assert first == pairs[0][0]
        assert [step.observation.text for step in steps[:-1]] == [text for text, _ in pairs[1:]]
        assert all(step.valid for step in steps)
        assert steps[-1].ending is Ending.SOLVED
        assert steps[-1].outcome == 1.0


@every_env
def test_the_first_observation_tells_every_limit(env: Any) -> None:
    text = env.episode().start(env.task(5), 0).text
    if env.instructions == "brief":
        assert text.startswith(f"turns {env.turns} moves {getattr(env, 'placements_per_turn', 1)}\n")
        return
    assert f"You have {env.turns} turn" in text
    assert f"Turns left: {env.turns}." in text
    assert "one answer in each" in text
    assert all(tag in text for tag in (OPEN_THOUGHT, CLOSE_THOUGHT, OPEN_ANSWER, CLOSE_ANSWER))


@every_env
def test_an_opening_is_the_observation_behind_the_rules_of_the_first_one(env: Any) -> None:
    rng = random.Random(4)
    for seed in range(20):
        task = env.task(seed)
        episode = env.episode()
        first = episode.start(task, 0)
        assert first.opening == first.text
        begin = "turns " if env.instructions == "brief" else "Turns left"
        rules = first.text[: first.text.index(begin)]
        assert bool(rules) == (env.instructions == "full")
        while True:
            step = episode.step(random_reply(env, task, rng))
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


@every_env
def test_random_answers_have_the_form_and_are_seldom_right(env: Any) -> None:
    rng = random.Random(5)
    right = 0
    for seed in range(200):
        task = env.task(seed)
        _, steps = play(env, task, 0, [format_reply([env.random_answer(task, rng)], "")])
        assert steps[0].valid
        right += steps[0].ending is Ending.SOLVED
    assert right < 60


@every_class
def test_blind_answers_are_different_and_few_and_the_search_fills_every_turn_with_one(env: Any) -> None:
    tasks = evaluation_tasks(env, "train", 100)
    answers = env.blind_answers(tasks)
    assert 0 < len(answers) <= MOST_CANDIDATES
    assert len(set(answers)) == len(answers)
    assert list(answers) == list(env.blind_answers(tasks))
    few = tasks[:15]
    found = best_fixed_sequence(env, few)
    assert len(found) == env.turns
    assert set(found) <= set(env.blind_answers(few))


@every_class
def test_imperfect_demonstrations_fail_more_often_and_state_what_they_do(env: Any) -> None:
    fewer = {"sudoku": {"turns": 1, "most_empties": 4}, "shop": {}}  # what fits into a single turn, if anything does
    noisy = dataclasses.replace(env, imperfect=1.0, **fewer.get(env.name, {"turns": 1}))
    solved = 0
    for seed in range(60):
        task = noisy.task(seed)
        pairs = noisy.demonstrate(task, random.Random(seed))
        for _, reply in pairs:
            if env.name == "math":  # the thoughts of the others are read in their own tests
                assert read_answer(reply, 10_000).text in reply.split(CLOSE_THOUGHT)[0]
        solved += play(noisy, task, 0, [reply for _, reply in pairs])[1][-1].ending is Ending.SOLVED
    assert solved < 15


@every_class
def test_template_thoughts_ignore_the_task_while_the_answers_still_solve(env: Any) -> None:
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
def test_evaluation_finds_enough_distinct_tasks(env: Any) -> None:
    assert len(evaluation_tasks(env, "test", 100)) == 100
