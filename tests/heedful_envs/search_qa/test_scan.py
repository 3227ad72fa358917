"""Thoughts that go through the whole register, so that each value is found by its place."""

from __future__ import annotations

import random

import pytest

from heedful_envs.search_qa.environment import SearchQA

SCAN = SearchQA(instructions="brief", least_hops=2, most_hops=2, least_people=5, most_people=5, thought="scan", turns=3)


def test_an_entry_of_a_scan_is_value_key_person_and_what_was_found_so_far() -> None:
    first, second = SCAN.demonstrate(SCAN.task(1), random.Random(0))
    register = second[0].splitlines()[1]
    school, links, numbers = (part.strip() for part in register.replace(" ; ", " : ").split(" : "))
    expected, person = [], first[0].split()[-7]
    for rows in (links, links, numbers):
        values = dict(row.replace("=", ">").split(" > ") for row in rows.split(" , "))
        found = "-"
        for key, value in values.items():
            found = value if key == person else found
            expected += [value, key, person, found]
        person = found
    thought = second[1].removeprefix("<think>").split("</think>")[0]
    assert thought == f"{school} : {' '.join(expected)}"
    assert second[1].endswith(f"<answer>finish[{person}]</answer>")


def test_key_and_value_of_a_scan_are_as_far_from_each_other_as_in_the_register() -> None:
    """So a model can copy both from one distance."""
    for seed in range(20):
        _, (observation, reply) = SCAN.demonstrate(SCAN.task(seed), random.Random(0))
        register = observation.splitlines()[1].split()
        scan = reply.removeprefix("<think>").split("</think>")[0].split()
        links = len(register[: register.index(";") + 1])
        for place, copied in ((2, 3), (4, 2)):
            assert scan[copied:links:4] == register[place:links:4]
            assert scan[links + copied - 2 : 2 * links - 2 : 4] == register[place:links:4]
            assert scan[2 * links + copied - 4 :: 4] == register[links + place - 2 :: 4]


def test_a_scanned_demonstration_solves_the_task_and_an_imperfect_one_often_does_not() -> None:
    assert solved(SCAN, 40) == 40
    faulty = SearchQA(
        instructions="brief", least_hops=2, most_hops=2, least_people=5, most_people=5, thought="scan", imperfect=0.3
    )
    assert 5 < solved(faulty, 40) < 30


def solved(env: SearchQA, tasks: int) -> int:
    """How many demonstrations end with the right answer."""
    right = 0
    for seed in range(tasks):
        task = env.task(seed)
        episode = env.episode()
        episode.start(task, 0)
        steps = [episode.step(reply) for _, reply in env.demonstrate(task, random.Random(seed))]
        right += steps[-1].outcome == 1.0
    return right


def test_an_unknown_form_of_thoughts_is_refused() -> None:
    with pytest.raises(ValueError, match="thought"):
        SearchQA(thought="leap")  # type: ignore[arg-type]
