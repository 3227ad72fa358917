"""What each environment promises, checked for all of them in several configurations.

To have an environment checked, add it to `ENVIRONMENTS` and, at its defaults, to `BY_CLASS`. Those without a list of
actions are answered in free text.
"""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path
from typing import Any

import pytest

from heedful.envs.common.actions import CLOSE_ANSWER, CLOSE_THOUGHT, OPEN_ANSWER, OPEN_THOUGHT, format_reply, read_reply
from heedful.envs.common.answers import read_answer
from heedful.envs.common.tasks import evaluation_tasks
from heedful.envs.countdown.environment import Countdown
from heedful.envs.frozen_lake.environment import FrozenLake
from heedful.envs.math.environment import MathProblems
from heedful.envs.sokoban.environment import Sokoban
from heedful.envs.toys.bandit import Bandit
from heedful.envs.toys.chain import Chain
from heedful.envs.toys.echo import Echo
from heedful.protocols import AnswersFreely, Environment
from heedful.rollout.baselines import MOST_CANDIDATES, best_fixed_sequence
from heedful.run.presets import preset
from heedful.types import Ending, Step, Task
from heedful_envs.search_qa.environment import SearchQA
from heedful_envs.shop.environment import Shop

OTHER_CHAIN = Chain(turns=3, modulus=5, operations=("+1", "-2", "*3"), least=2, most=4, instructions="brief")
ENVIRONMENTS: list[Any] = [
    FrozenLake(),
    FrozenLake(slip=0.3, size=5, instructions="brief", show_reward=True, turns=7, actions_per_turn=1),
    FrozenLake(observation="coordinates", actions_per_turn=3),
    Echo(),
    Echo(turns=3, decoys=0, instructions="brief"),
    Bandit(),
    Bandit(turns=3, instructions="brief"),
    Chain(),
    OTHER_CHAIN,
    Sokoban(),
    Sokoban(size=7, boxes=2, turns=10, observation="grid", instructions="brief"),
    MathProblems(),
    MathProblems(instructions="brief", show_reward=True, most=2, largest=20),
    MathProblems(turns=1, least=4, most=6, kinds=("shopping", "ages", "bus")),
    Countdown(),
    Countdown(turns=3, least_numbers=4, most_numbers=5, largest=25, instructions="brief", show_reward=True),
    preset("countdown").env,
    SearchQA(),
    SearchQA(instructions="brief", show_reward=True, results=1, turns=2),
    SearchQA(instructions="brief", people_passages=True, names="words", distractors=5),
    Shop(),
    Shop(instructions="brief", turns=27, show_reward=True),
]
BY_CLASS: list[Any] = [
    *(FrozenLake(), Echo(), Bandit(), Chain(), Sokoban()),
    *(MathProblems(), Countdown(), SearchQA(), Shop()),
]

PAGE = (Path(__file__).parents[2] / "docs" / "built_in.md").read_text(encoding="utf-8")

PIECES = (
    *(OPEN_THOUGHT, CLOSE_THOUGHT, OPEN_ANSWER, CLOSE_ANSWER, "||", " ", "\n", "\x00", "é", "<|im_end|>", "<", "|", ""),
    *("Left", "up", "DOWN", "A", "E", "Fox", "Jump", "plan", "12", "-3", "7/2", "4 apples", "(", ")", "\\boxed{5}"),
    *("\\frac", "+", "*", "=", "x", "1e9", "½", "  ", "$", "50%"),
)


def identify(env: Any) -> str:
    """Its name and the knobs that differ from the defaults."""
    changed = [
        f"{field.name}={getattr(env, field.name)}"
        for field in dataclasses.fields(env)
        if getattr(env, field.name) != field.default
    ]
    return "-".join([env.name, *changed])


def each(envs: list[Any]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("env", envs, ids=identify)


def is_free(env: Any) -> bool:
    return isinstance(env, AnswersFreely)


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
        return "".join(rng.choice(PIECES) for _ in range(rng.randint(0, 12)))
    if is_free(env):
        return format_reply([env.random_answer(task, rng)], "a thought")
    return format_reply([rng.choice(env.actions) for _ in range(rng.randint(1, 4))], "a thought")


@each(ENVIRONMENTS)
def test_an_environment_keeps_the_protocol(env: Any) -> None:
    assert "\n" not in env.summary
    assert is_free(env) or len(set(env.actions)) == len(env.actions)
    assert hash(env) == hash(dataclasses.replace(env))
    assert isinstance(env, Environment)
    assert env.task(0).environment == env.name


@each(ENVIRONMENTS)
def test_a_seed_draws_the_same_task_every_time(env: Any) -> None:
    again = dataclasses.replace(env)
    assert [env.task(seed) for seed in range(50)] == [again.task(seed) for seed in range(50)]
    assert {env.task(seed).split for seed in range(100)} == {"train", "val", "test"}


@each(ENVIRONMENTS)
def test_task_member_and_replies_replay_an_episode(env: Any) -> None:
    rng = random.Random(1)
    for seed in range(20):
        task = env.task(seed)
        replies = [random_reply(env, task, rng) for _ in range(env.turns)]
        assert play(env, task, 3, replies) == play(env, task, 3, replies)


@each(ENVIRONMENTS)
def test_random_replies_never_raise_and_every_episode_ends_in_time(env: Any) -> None:
    rng = random.Random(2)
    for seed in range(30):
        task = env.task(seed)
        replies = [random_reply(env, task, rng) for _ in range(env.turns)]
        _, steps = play(env, task, seed, replies)
        assert len(steps) <= env.turns
        for reply, step in zip(replies, steps, strict=False):
            if is_free(env):
                assert not (step.valid and read_answer(reply, 10_000).fault)
            else:
                read = read_reply(reply, env.actions, env.actions_per_turn)
                assert (step.actions, step.valid) == (read.actions[: len(step.actions)], not read.fault)
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


@each(ENVIRONMENTS)
def test_an_unreadable_reply_executes_nothing_and_costs_the_turn_and_a_penalty(env: Any) -> None:
    _, steps = play(env, env.task(0), 0, ["<think>hm"] * env.turns)
    assert len(steps) == env.turns
    assert all(step.actions == () and not step.valid for step in steps)
    assert all(dict(step.rewards) == {"format": -env.format_penalty} for step in steps)
    assert steps[-1].outcome == 0.0
    if env.turns > 1:
        first_line = steps[0].observation.text.split("\n")[0]
        assert "invalid" in first_line
        assert (first_line == "invalid open thought") == (env.instructions == "brief")


@each(ENVIRONMENTS)
def test_the_solver_solves_its_tasks_within_the_limits(env: Any) -> None:
    still = dataclasses.replace(env, slip=0.0) if hasattr(env, "slip") else env
    for seed in range(30):
        task = still.task(seed)
        pairs = still.demonstrate(task, random.Random(seed))
        first, steps = play(still, task, 0, [reply for _, reply in pairs])
        assert first == pairs[0][0]
        assert [step.observation.text for step in steps[:-1]] == [text for text, _ in pairs[1:]]
        assert all(step.valid for step in steps)
        assert (steps[-1].ending, steps[-1].outcome) == (Ending.SOLVED, 1.0)


@each(ENVIRONMENTS)
def test_the_first_observation_tells_every_limit(env: Any) -> None:
    text = env.episode().start(env.task(5), 0).text
    per_turn = getattr(env, "placements_per_turn", 1) if is_free(env) else env.actions_per_turn
    if env.instructions == "brief":
        assert text.startswith(f"turns {env.turns} moves {per_turn}\n")
        return
    assert f"You have {env.turns} turn" in text
    assert f"Turns left: {env.turns}." in text
    one = "one answer in each" if is_free(env) else "one action in each"
    assert (one if is_free(env) or per_turn == 1 else f"at most {per_turn} actions in") in text
    assert is_free(env) or all(action in text for action in env.actions)
    assert all(tag in text for tag in (OPEN_THOUGHT, CLOSE_THOUGHT, OPEN_ANSWER, CLOSE_ANSWER))


@each(ENVIRONMENTS)
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
        while (step := episode.step(random_reply(env, task, rng))).ending is None:
            assert step.observation.opening == rules + step.observation.text
            assert not rules or rules not in step.observation.text


@each([one for one in ENVIRONMENTS if one.turns > 1])
def test_the_reward_is_shown_only_if_asked_for(env: Any) -> None:
    for show in (False, True):
        shown = dataclasses.replace(env, show_reward=show, format_penalty=0.7)
        first, steps = play(shown, shown.task(0), 0, ["nothing"])
        assert "reward" not in first
        assert ("reward -0.7\n" in steps[0].observation.text) == show


@each([one for one in ENVIRONMENTS if is_free(one)])
def test_random_answers_have_the_form_and_are_seldom_right(env: Any) -> None:
    rng = random.Random(5)
    right = 0
    for seed in range(80):
        task = env.task(seed)
        _, steps = play(env, task, 0, [format_reply([env.random_answer(task, rng)], "")])
        assert steps[0].valid
        right += steps[0].ending is Ending.SOLVED
    assert right < 24


@each([one for one in BY_CLASS if is_free(one)])
def test_blind_answers_are_different_and_few_and_the_search_fills_every_turn_with_one(env: Any) -> None:
    tasks = evaluation_tasks(env, "train", 40)
    answers = env.blind_answers(tasks)
    assert 0 < len(answers) <= MOST_CANDIDATES
    assert len(set(answers)) == len(answers)
    assert list(answers) == list(env.blind_answers(tasks))
    few = tasks[:6]
    found = best_fixed_sequence(env, few)
    assert len(found) == env.turns
    assert set(found) <= set(env.blind_answers(few))


@each(BY_CLASS)
def test_imperfect_demonstrations_fail_more_often_and_state_what_they_do(env: Any) -> None:
    # Of answers in free text, what fits into a single turn, if anything does.
    fewer = {"shop": {}}.get(env.name, {"turns": 1})
    noisy = dataclasses.replace(env, imperfect=1.0, **(fewer if is_free(env) else {}))
    solved = 0
    for seed in range(60):
        task = noisy.task(seed)
        pairs = noisy.demonstrate(task, random.Random(seed))
        for _, reply in pairs:
            thought, answer = reply.split(CLOSE_THOUGHT)
            if env.name == "math":  # the thoughts of the others are read in their own tests
                assert read_answer(answer, 10_000).text in thought
            elif not is_free(env):
                said = read_reply(answer, env.actions, env.actions_per_turn).actions[0]
                assert thought.endswith(said) if env.name == "chain" else said in thought.split()
        solved += play(noisy, task, 0, [reply for _, reply in pairs])[1][-1].ending is Ending.SOLVED
    assert solved < (15 if is_free(env) else 50)


@each(BY_CLASS)
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


@each(BY_CLASS)
def test_demonstrations_are_a_function_of_task_and_generator(env: Any) -> None:
    mixed = dataclasses.replace(env, imperfect=0.3, template=0.5)
    task = mixed.task(4)
    assert mixed.demonstrate(task, random.Random(1)) == mixed.demonstrate(task, random.Random(1))


@each(BY_CLASS)
def test_the_example_on_the_page_or_in_the_docstring_is_real(env: Any) -> None:
    brief = dataclasses.replace(env, instructions="brief")
    _, told, words = (type(env).__doc__ or "").partition("First observation of seed ")
    seed = int(words.split()[0]) if told else 2 * (env.name == "frozen_lake")
    if not told:
        words = PAGE.partition(f"\n## {type(env).__name__}\n")[2]
    observation, reply = brief.demonstrate(brief.task(seed), random.Random(0))[0]
    blocks = ["\n".join(line.strip() for line in block.strip().splitlines()) for block in words.split("```")[1::2]]
    assert blocks[:2] == [observation, reply]


@each(BY_CLASS)
def test_a_task_of_other_knobs_is_refused(env: Any) -> None:
    with pytest.raises(ValueError, match="was drawn by another environment or with other knobs"):
        env.episode().start(dataclasses.replace(env.task(0), id="other-0"), 0)


@each(BY_CLASS)
def test_evaluation_finds_enough_distinct_tasks(env: Any) -> None:
    assert len(evaluation_tasks(env, "test", 100)) == 100
