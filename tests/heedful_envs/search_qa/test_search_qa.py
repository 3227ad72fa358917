"""The environment of searches and answers: what is drawn, shown, found and paid."""

from __future__ import annotations

import dataclasses
import random

import pytest

from heedful.envs.common.actions import format_reply
from heedful.rollout.baselines import random_reply
from heedful.types import Ending
from heedful_envs.replies import read_action
from heedful_envs.search_qa.encyclopaedia import drawn_index
from heedful_envs.search_qa.environment import SearchQA
from scripted_episodes import play

BRIEF = SearchQA(instructions="brief")
SCAN = SearchQA(instructions="brief", least_hops=2, most_hops=2, least_people=5, most_people=5, thought="scan", turns=3)
VARIANTS = [
    BRIEF,
    SearchQA(),
    SearchQA(instructions="brief", distractors=5, least_people=8, most_people=10, names="words"),
    SearchQA(people_passages=True, names="words", distractors=8),
    SearchQA(instructions="brief", distractors=0, results=1),
]


@pytest.mark.parametrize("env", VARIANTS, ids=range(len(VARIANTS)))
def test_a_search_for_a_school_finds_its_register_first(env: SearchQA) -> None:
    for seed in range(100):
        drawn = env.drawn(seed)
        found = drawn_index(env, seed, env.brief).search(drawn.school.name, 1)
        assert found[0].title == drawn.school.name


def links_and_numbers(text: str) -> tuple[dict[str, str], dict[str, str]]:
    """A brief register, read as text."""
    links, numbers = text.partition(" ; near")[0].split(" ; ")
    return dict(each.split(" > ") for each in links.split(" , ")), dict(
        each.split(" = ") for each in numbers.split(" , ")
    )


@pytest.mark.parametrize("env", VARIANTS, ids=range(len(VARIANTS)))
def test_the_answer_follows_from_the_brief_register(env: SearchQA) -> None:
    hops = set()
    for seed in range(50):
        drawn = env.drawn(seed)
        text = next(each.text for each in drawn.passages(True) if each.title == drawn.school.name)
        links, numbers = links_and_numbers(text)
        person = drawn.person
        for _ in range(drawn.hops):
            assert links[person] != person
            person = links[person]
        assert drawn.gold == numbers[person]
        assert env.task(seed).tags == (f"{drawn.hops} hops", "drawn")
        hops.add(drawn.hops)
    assert hops == {1, 2, 3}


def test_the_same_facts_are_in_the_english_register() -> None:
    drawn = BRIEF.drawn(0)
    terse, plain = (next(each.text for each in drawn.passages(brief) if each.title == "fir") for brief in (True, False))
    links, numbers = links_and_numbers(terse)
    assert all(f" {person} is taught by {teacher}." in plain for person, teacher in links.items())
    assert all(f" {person} has {number} medals." in plain for person, number in numbers.items())


def step_through(env: SearchQA, seed: int, *answers: str):
    episode = env.episode()
    episode.start(env.task(seed), 0)
    return [episode.step(format_reply([answer], "t")) for answer in answers]


def test_a_search_shows_passages_and_repeats_neither_query_nor_verb() -> None:
    found, nothing = step_through(BRIEF, 0, "search[the school fir]", "search[zebra <|im_end|>]")
    register = next(each for each in BRIEF.drawn(0).passages(True) if each.title == "fir")
    assert found.observation.text == f"turns 3 moves 1\nfir : {register.text}\nask fir : Y > _ > _ = _"
    assert nothing.observation.text == "turns 2 moves 1\nnone\nask fir : Y > _ > _ = _"


def test_an_exact_answer_is_the_outcome_and_f1_is_progress() -> None:
    env = dataclasses.replace(BRIEF, partial=0.5)
    gold = env.drawn(0).gold
    (right,) = step_through(env, 0, f"FINISH[ The {gold}. ]")
    assert (right.rewards, right.outcome, right.progress, right.ending) == ({"solved": 1.0}, 1.0, 1.0, Ending.SOLVED)
    (half,) = step_through(env, 0, f"finish[{gold} of them]")
    assert half.ending is Ending.FAILED
    assert (half.rewards, half.outcome) == ({"partial": pytest.approx(1 / 4)}, 0.0)
    assert half.progress == pytest.approx(1 / 2)
    (wrong,) = step_through(env, 0, "finish[none]")
    assert (wrong.rewards, wrong.outcome, wrong.progress) == ({}, 0.0, 0.0)


def test_a_list_of_candidates_is_no_success() -> None:
    (listed,) = step_through(BRIEF, 0, "finish[0 1 2 3 4 5 6 7 8 9]")
    assert (listed.outcome, listed.rewards) == (0.0, {})
    assert listed.progress == pytest.approx(2 / 11)


def test_the_last_turn_is_told_and_a_search_in_it_is_out_of_turns() -> None:
    env = SearchQA(turns=2)
    first, last = step_through(env, 0, "search[fir]", "search[fir]")
    assert "This is your last turn: only finish[answer] counts." in first.observation.text
    assert (last.ending, last.outcome, last.valid) == (Ending.OUT_OF_TURNS, 0.0, True)


@pytest.mark.parametrize(
    ("reply", "verb", "text", "kind"),
    [
        ("search[a b]", "search", "a b", ""),
        (" Finish [ x [1] y ] ", "finish", "x [1] y", ""),
        ("SEARCH[a]\n", "search", "a", ""),
        ("finish[[x]]", "finish", "[x]", ""),
        ("search[a\n  b]", "search", "a b", ""),
        ("search[]", "", "", "empty action"),
        ("finish[  ]", "", "", "empty action"),
        ("search a", "", "", "unknown action"),
        ("search[a] || finish[b]", "", "", "several actions"),
        ("Paris", "", "", "unknown action"),
        ("please search[a]", "", "", "unknown action"),
        ("search[a] now", "", "", "unknown action"),
        ("find[a]", "", "", "unknown action"),
        (f"search[{'x' * 600}]", "", "", "too long"),
    ],
)
def test_an_action_is_a_verb_and_the_text_between_the_outer_brackets(
    reply: str, verb: str, text: str, kind: str
) -> None:
    action = read_action(format_reply([reply], "t"), ("search", "finish"), 508)
    assert (action.verb, action.text, action.read.kind) == (verb, text, kind)


def test_text_that_is_no_action_spends_the_turn() -> None:
    fault, *_ = step_through(BRIEF, 0, "Paris")
    assert fault.observation.text.startswith("invalid unknown action\nturns 3 moves 1\nask fir")
    assert (fault.rewards, fault.ending) == ({"format": -0.1}, None)


def test_a_random_player_answers_seldom_right() -> None:
    rng = random.Random(1)
    solved = sum(
        play(BRIEF, BRIEF.task(seed), 0, lambda text, turn, seed=seed: random_reply(BRIEF, BRIEF.task(seed), rng))[
            -1
        ].ending
        is Ending.SOLVED
        for seed in range(300)
    )
    assert 10 <= solved <= 45


def test_a_demonstrated_thought_follows_the_links() -> None:
    pairs = BRIEF.demonstrate(BRIEF.task(0), random.Random(0))
    assert [reply for _, reply in pairs] == [
        "<think>fir</think><answer>search[fir]</answer>",
        "<think>Y > K > X = 8</think><answer>finish[8]</answer>",
    ]


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
    assert 5 < solved(dataclasses.replace(SCAN, imperfect=0.3), 40) < 30


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


@pytest.mark.parametrize(
    ("knobs", "sentence"),
    [
        ({"least_hops": 2, "most_hops": 1}, "most_hops must be between 2 and 3"),
        ({"least_people": 3}, "least_people must be at least 4"),
        (
            {"most_people": 10},
            "need 30 names, and there are 26 letters. Choose fewer people or distractors, or names w",
        ),
    ],
)
def test_a_knob_out_of_range_is_a_sentence(knobs: dict, sentence: str) -> None:
    with pytest.raises(ValueError, match=f"search_qa: .*{sentence}"):
        SearchQA(**knobs)
