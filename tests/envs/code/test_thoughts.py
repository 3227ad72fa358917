"""The thoughts of demonstrated programs: a search in a fixed order that a small model can learn token by token."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from itertools import product

import pytest

from heedful.envs.code.environment import Code, read_program
from heedful.envs.code.grading import Grade
from heedful.envs.code.problems import apply, digits, expression
from heedful.envs.code.thoughts import searched
from heedful.run.presets import preset

PIECES = re.compile(r"</?(?:think|answer)>| ?[A-Za-z][a-z]*| ?[0-9]|\n| ?[^A-Za-z0-9\s]|\s")
"""What a seedling's tokenizer never joins. Each is one token, or a few if it is rare."""

ORDERED = Code(
    instructions="brief",
    sandbox="strict",
    wall=60.0,
    ordered=True,
    operations=("turn", "next", "rest", "big"),
    shown=2,
    hidden=3,
    turns=1,
)


def test_a_search_goes_through_the_programs_in_order_and_ends_with_the_first_that_explains_all_examples() -> None:
    for seed in range(100):
        drawn = ORDERED.drawn(seed)
        thought, names = searched(drawn, ORDERED.operations, 0.0, random.Random(0))
        programs = list(product(ORDERED.operations, repeat=2))
        before = programs[: programs.index(names)]
        assert drawn.explained_by(names)
        assert not any(map(drawn.explained_by, before))
        assert (thought.count(" no"), thought.count(" yes")) == (len(before), 1)


def test_a_search_shows_the_value_between_the_operations_and_stops_a_result_at_its_first_wrong_digit() -> None:
    assert ORDERED.problem(1).statement == "8265 > 562 , 0896 > 698"
    thought, names = searched(ORDERED.drawn(1), ORDERED.operations, 0.0, random.Random(0))
    assert names == ("rest", "turn")
    assert thought == (
        "want 562 : 8265 turn = 5628 : turn 8 no next 6 no rest 6 no big 568 no "
        ": 8265 next = 9376 : turn 6 no next 0 no rest 3 no big 9 no : 8265 rest = 265 : turn 562 yes"
    )


def test_every_result_of_a_search_is_that_of_its_program_as_far_as_it_is_written() -> None:
    for seed in range(50):
        drawn = ORDERED.drawn(seed)
        given = list(drawn.inputs[0])
        thought, _ = searched(drawn, ORDERED.operations, 0.0, random.Random(0))
        for part in thought.split(" : ")[2::2]:
            words = part.split()
            first = thought[: thought.index(part)].split()[-4]
            for name, result, _ in zip(words[::3], words[1::3], words[2::3], strict=True):
                whole = digits(apply((first, name), given))
                assert whole.startswith(result.removesuffix("-"))


def test_a_search_that_gives_up_ends_with_a_program_that_it_found_wrong() -> None:
    wrong = 0
    for seed in range(100):
        drawn = ORDERED.drawn(seed)
        thought, names = searched(drawn, ORDERED.operations, 1.0, random.Random(seed))
        if not drawn.explained_by(names):
            wrong += 1
            assert thought.endswith(" no")
    assert wrong > 85


def test_a_demonstrated_search_is_answered_with_its_program_and_solves_the_task() -> None:
    for seed in range(5):
        ((_, reply),) = ORDERED.demonstrate(ORDERED.task(seed), random.Random(0))
        _, names = searched(ORDERED.drawn(seed), ORDERED.operations, 0.0, random.Random(0))
        assert read_program(reply).text == expression(names)
        episode = ORDERED.episode()
        episode.start(ORDERED.task(seed), 0)
        assert episode.step(reply).outcome == 1.0


def test_ordered_thoughts_are_for_programs_of_two_steps() -> None:
    with pytest.raises(ValueError, match="ordered thoughts are for programs of 2 steps, but steps is 3"):
        Code(ordered=True, steps=3)


def test_a_program_for_a_drawn_problem_is_run_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []

    def counting(problem: object, program: str, *arguments: object) -> Grade:
        ran.append(program)
        return Grade(5, 5, None)

    monkeypatch.setattr("heedful.envs.code.environment.grade", counting)
    env = replace(ORDERED, memory=100)  # no other test has graded with these limits
    for program in ("x", "x", "x[1:]", "x"):
        for _ in range(2):
            episode = env.episode()
            episode.start(env.task(0), 0)
            episode.step(f"<think>t</think><answer>{program}</answer>")
    assert ran == ["x", "x[1:]"]


def test_the_preset_leaves_room_for_the_longest_search() -> None:
    config = preset("code")
    env = config.env
    longest = 0
    for seed in range(300):
        search, names = searched(env.drawn(seed), env.operations, 0.0, random.Random(0))
        reply = f"<think>{search}</think><answer>{expression(names)}</answer>"
        longest = max(longest, len(PIECES.findall(reply)) + 1)
    assert 100 < longest <= config.sampling.tokens_per_turn
