"""The thoughts of demonstrated programs: a search in a fixed order that a small model can learn token by token."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from itertools import product

import pytest

from heedful_envs.code.environment import Code
from heedful_envs.code.grading import Grade
from heedful_envs.code.problems import apply, digits, expression
from heedful_envs.code.programs import read_program
from heedful_envs.code.thoughts import searched

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


def test_a_search_shows_the_value_between_the_operations_and_the_wanted_digit_next_to_each_of_a_result() -> None:
    assert ORDERED.problem(1).statement == "8265 > 562 , 0896 > 698"
    thought, names = searched(ORDERED.drawn(1), ORDERED.operations, 0.0, random.Random(0))
    assert names == ("rest", "turn")
    assert thought == (
        "want 562 : 8265 turn = 5628 : turn 85 no next 65 no rest 65 no big 55 66 82 no "
        ": 8265 next = 9376 : turn 65 no next 05 no rest 35 no big 95 no : 8265 rest = 265 : turn 55 66 22 yes"
    )


def test_every_pair_of_a_search_is_a_digit_of_the_result_and_the_wanted_one() -> None:
    for seed in range(50):
        drawn = ORDERED.drawn(seed)
        given = list(drawn.inputs[0])
        wanted = digits(apply(drawn.operations, given))
        thought, _ = searched(drawn, ORDERED.operations, 0.0, random.Random(0))
        blocks = thought.split(" : ")[1:]
        for head, tries in zip(blocks[::2], blocks[1::2], strict=True):
            first = head.split()[1]
            for tried in re.findall(r"([a-z]+)((?: [0-9-]{2})+) (?:yes|no)", tries):
                made = digits(apply((first, tried[0]), given))
                pairs = tried[1].split()
                assert made.startswith("".join(pair[0] for pair in pairs).rstrip("-"))
                assert wanted.startswith("".join(pair[1] for pair in pairs).rstrip("-"))
                assert all(one == other for one, other in pairs[:-1])


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


def test_a_demonstration_runs_nothing_and_shows_what_the_sandbox_would_say(monkeypatch: pytest.MonkeyPatch) -> None:
    env = replace(ORDERED, turns=2, imperfect=0.7)
    demonstrated = [env.demonstrate(env.task(seed), random.Random(seed)) for seed in range(12)]
    assert any(len(pairs) == 2 for pairs in demonstrated)
    for seed, pairs in enumerate(demonstrated):
        episode = env.episode()
        shown = episode.start(env.task(seed), 0).text
        for observation, reply in pairs:
            assert shown == observation
            shown = episode.step(reply).observation.text

    def refuse(*arguments: object) -> None:
        raise AssertionError("a program was run")

    monkeypatch.setattr("heedful_envs.code.environment._graded", refuse)
    assert env.demonstrate(env.task(0), random.Random(0)) == demonstrated[0]


def test_ordered_thoughts_are_for_programs_of_two_steps() -> None:
    with pytest.raises(ValueError, match="ordered thoughts are for programs of 2 steps, but steps is 3"):
        Code(ordered=True, steps=3)


def test_a_program_for_a_drawn_problem_is_run_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []

    def counting(problem: object, program: str, *arguments: object) -> Grade:
        ran.append(program)
        return Grade(5, 5, None)

    monkeypatch.setattr("heedful_envs.code.environment.grade", counting)
    env = replace(ORDERED, digits=5)  # no other test has graded such problems
    for program in ("x", "x", "x[1:]", "x"):
        for _ in range(2):
            episode = env.episode()
            episode.start(env.task(0), 0)
            episode.step(f"<think>t</think><answer>{program}</answer>")
    assert ran == ["x", "x[1:]"]
