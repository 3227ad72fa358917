"""What each family of answers in free text promises, checked for all of them in several configurations.

The counterpart of `test_every_environment.py` for families without a list of actions. To have a family checked, add it
to `FAMILIES` and, at its defaults, to `BY_CLASS`.
"""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import pytest

from heedful.envs.actions import CLOSE_ANSWER, CLOSE_THOUGHT, OPEN_ANSWER, OPEN_THOUGHT, format_reply
from heedful.envs.answers import read_answer
from heedful.envs.countdown import Countdown
from heedful.envs.math_problems import MathProblems
from heedful.envs.sudoku import Sudoku
from heedful.envs.tasks import evaluation_tasks
from heedful.presets import preset
from heedful.protocols import EnvironmentFamily
from heedful.rollout.baselines import MOST_CANDIDATES, best_fixed_sequence
from heedful.types import Ending, Step, Task

FAMILIES: list[Any] = [
    MathProblems(),
    MathProblems(instructions="brief", show_reward=True, most=2, largest=20),
    MathProblems(turns=1, least=4, most=6, kinds=("shopping", "ages", "bus")),
    Countdown(),
    Countdown(turns=3, use="some", least_numbers=4, most_numbers=5, largest=25, instructions="brief", show_reward=True),
    preset("countdown").env,
    Sudoku(),
    Sudoku(size=6, least_empties=8, most_empties=20, turns=5, instructions="brief", tell="wrong"),
]
BY_CLASS: list[Any] = [MathProblems(), Countdown(), Sudoku()]

PIECES = (
    *(OPEN_THOUGHT, CLOSE_THOUGHT, OPEN_ANSWER, CLOSE_ANSWER, "||", " ", "\n", "12", "-3", "7/2", "4 apples", "(", ")"),
    *("\\boxed{5}", "\\frac", "+", "*", "=", "x", "\x00", "é", "<|im_end|>", "<", "1e9", "½", "", "  ", "$", "50%"),
)


def identify(family: Any) -> str:
    changed = [
        f"{field.name}={getattr(family, field.name)}"
        for field in dataclasses.fields(family)
        if getattr(family, field.name) != field.default
    ]
    return "-".join([family.name, *changed])


every_family = pytest.mark.parametrize("family", FAMILIES, ids=identify)
every_longer_one = pytest.mark.parametrize("family", [one for one in FAMILIES if one.turns > 1], ids=identify)
every_class = pytest.mark.parametrize("family", BY_CLASS, ids=identify)


def play(family: Any, task: Task, member: int, replies: list[str]) -> tuple[str, list[Step]]:
    episode = family.make()
    first = episode.start(task, member).text
    steps: list[Step] = []
    for reply in replies:
        steps.append(episode.step(reply))
        if steps[-1].ending is not None:
            break
    return first, steps


def random_reply(family: Any, task: Task, rng: random.Random) -> str:
    if rng.random() < 0.5:
        return format_reply([family.random_answer(task, rng)], "a thought")
    return "".join(rng.choice(PIECES) for _ in range(rng.randint(0, 12)))


@every_family
def test_a_family_keeps_the_protocol(family: Any) -> None:
    assert "\n" not in family.summary
    assert hash(family) == hash(dataclasses.replace(family))
    assert isinstance(family, EnvironmentFamily)


@every_family
def test_a_seed_draws_the_same_task_every_time(family: Any) -> None:
    again = dataclasses.replace(family)
    assert [family.task(seed) for seed in range(50)] == [again.task(seed) for seed in range(50)]
    assert {family.task(seed).split for seed in range(100)} == {"train", "val", "test"}


@every_family
def test_task_member_and_replies_replay_an_episode(family: Any) -> None:
    rng = random.Random(1)
    for seed in range(20):
        task = family.task(seed)
        replies = [random_reply(family, task, rng) for _ in range(family.turns)]
        assert play(family, task, 3, replies) == play(family, task, 3, replies)


@every_family
def test_random_replies_never_raise_and_every_episode_ends_in_time(family: Any) -> None:
    rng = random.Random(2)
    for seed in range(150):
        task = family.task(seed)
        replies = [random_reply(family, task, rng) for _ in range(family.turns)]
        _, steps = play(family, task, seed, replies)
        assert len(steps) <= family.turns
        for reply, step in zip(replies, steps, strict=False):
            assert not (step.valid and read_answer(reply, 10_000).fault)
            assert ("format" in step.rewards) == (not step.valid)
            assert step.rewards.get("format", -family.format_penalty) == -family.format_penalty
            assert "\n" not in step.effect
            assert (step.outcome is None) == (step.ending is None)
        last = steps[-1]
        assert last.ending is not None
        assert last.outcome is not None
        assert (last.outcome == 1.0) == (last.ending is Ending.SOLVED)
        assert 0.0 <= last.outcome <= 1.0
        assert last.progress is None or 0.0 <= last.progress <= 1.0


@every_family
def test_an_unreadable_reply_costs_the_turn_and_a_penalty(family: Any) -> None:
    _, steps = play(family, family.task(0), 0, ["<think>hm"] * family.turns)
    assert len(steps) == family.turns
    assert all(step.actions == () and not step.valid for step in steps)
    assert all(dict(step.rewards) == {"format": -family.format_penalty} for step in steps)
    assert steps[-1].outcome == 0.0


@every_longer_one
def test_the_next_observation_tells_of_a_fault(family: Any) -> None:
    _, steps = play(family, family.task(0), 0, ["<think>hm"])
    first_line = steps[0].observation.text.split("\n")[0]
    assert "invalid" in first_line
    assert (first_line == "invalid open thought") == (family.instructions == "brief")


@every_family
def test_the_solver_solves_200_tasks_within_the_limits(family: Any) -> None:
    for seed in range(200):
        task = family.task(seed)
        pairs = family.demonstrate(task, random.Random(seed))
        first, steps = play(family, task, 0, [reply for _, reply in pairs])
        assert first == pairs[0][0]
        assert [step.observation.text for step in steps[:-1]] == [text for text, _ in pairs[1:]]
        assert all(step.valid for step in steps)
        assert steps[-1].ending is Ending.SOLVED
        assert steps[-1].outcome == 1.0


@every_family
def test_the_first_observation_tells_every_limit(family: Any) -> None:
    text = family.make().start(family.task(5), 0).text
    if family.instructions == "brief":
        assert text.startswith(f"turns {family.turns} moves {getattr(family, 'placements_per_turn', 1)}\n")
        return
    assert f"You have {family.turns} turn" in text
    assert f"Turns left: {family.turns}." in text
    assert "one answer in each" in text
    assert all(tag in text for tag in (OPEN_THOUGHT, CLOSE_THOUGHT, OPEN_ANSWER, CLOSE_ANSWER))


@every_family
def test_an_opening_is_the_observation_behind_the_rules_of_the_first_one(family: Any) -> None:
    rng = random.Random(4)
    for seed in range(20):
        task = family.task(seed)
        episode = family.make()
        first = episode.start(task, 0)
        assert first.opening == first.text
        begin = "turns " if family.instructions == "brief" else "Turns left"
        rules = first.text[: first.text.index(begin)]
        assert bool(rules) == (family.instructions == "full")
        while True:
            step = episode.step(random_reply(family, task, rng))
            if step.ending is not None:
                break
            assert step.observation.opening == rules + step.observation.text
            assert not rules or rules not in step.observation.text


@every_longer_one
def test_the_reward_is_shown_only_if_asked_for(family: Any) -> None:
    for show in (False, True):
        shown = dataclasses.replace(family, show_reward=show, format_penalty=0.7)
        first, steps = play(shown, shown.task(0), 0, ["nothing"])
        assert "reward" not in first
        assert ("reward -0.7\n" in steps[0].observation.text) == show


@every_family
def test_random_answers_have_the_form_and_are_seldom_right(family: Any) -> None:
    rng = random.Random(5)
    right = 0
    for seed in range(200):
        task = family.task(seed)
        _, steps = play(family, task, 0, [format_reply([family.random_answer(task, rng)], "")])
        assert steps[0].valid
        right += steps[0].ending is Ending.SOLVED
    assert right < 60


@every_class
def test_blind_answers_are_different_and_few_and_the_best_of_them_solves_something(family: Any) -> None:
    tasks = evaluation_tasks(family, "train", 100)
    answers = family.blind_answers(tasks)
    assert 0 < len(answers) <= MOST_CANDIDATES
    assert len(set(answers)) == len(answers)
    assert list(answers) == list(family.blind_answers(tasks))
    assert len(best_fixed_sequence(family, tasks)) == family.turns


@every_class
def test_imperfect_demonstrations_fail_more_often_and_state_what_they_do(family: Any) -> None:
    few = {"most_empties": 4} if family.name == "sudoku" else {}  # what fits into a single turn
    noisy = dataclasses.replace(family, imperfect=1.0, turns=1, **few)
    solved = 0
    for seed in range(60):
        task = noisy.task(seed)
        pairs = noisy.demonstrate(task, random.Random(seed))
        for _, reply in pairs:
            if family.name == "math":  # the thoughts of the others are read in their own tests
                assert read_answer(reply, 10_000).text in reply.split(CLOSE_THOUGHT)[0]
        solved += play(noisy, task, 0, [reply for _, reply in pairs])[1][-1].ending is Ending.SOLVED
    assert solved < 15


@every_class
def test_template_thoughts_ignore_the_task_while_the_answers_still_solve(family: Any) -> None:
    vague = dataclasses.replace(family, template=1.0)
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
def test_demonstrations_are_a_function_of_task_and_generator(family: Any) -> None:
    mixed = dataclasses.replace(family, imperfect=0.3, template=0.5)
    task = mixed.task(4)
    assert mixed.demonstrate(task, random.Random(1)) == mixed.demonstrate(task, random.Random(1))


@every_class
def test_the_example_in_the_docstring_is_real(family: Any) -> None:
    brief = dataclasses.replace(family, instructions="brief")
    words = (type(family).__doc__ or "").split("First observation of seed ")[1]
    seed = int(words.split()[0])
    observation, reply = brief.demonstrate(brief.task(seed), random.Random(0))[0]
    blocks = ["\n".join(line.strip() for line in block.strip().splitlines()) for block in words.split("```")[1::2]]
    assert blocks[:2] == [observation, reply]


@every_class
def test_a_task_of_other_knobs_is_refused(family: Any) -> None:
    with pytest.raises(ValueError, match="was drawn by another environment or with other knobs"):
        family.make().start(dataclasses.replace(family.task(0), id="other-0"), 0)


@every_class
@pytest.mark.parametrize(
    ("knob", "value"),
    [
        ("turns", 0),
        ("format_penalty", -1.0),
        ("format_penalty", float("nan")),
        ("imperfect", 1.5),
        ("template", -0.1),
        ("instructions", "short"),
    ],
)
def test_a_knob_out_of_range_is_refused_by_name(family: Any, knob: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"^{family.name}: .*{knob}"):
        dataclasses.replace(family, **{knob: value})


@every_class
def test_evaluation_finds_enough_distinct_tasks(family: Any) -> None:
    assert len(evaluation_tasks(family, "test", 100)) == 100
