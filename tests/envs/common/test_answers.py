"""Answers in free text: how they are read, and what scripted players make of an environment that takes them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from heedful.cli.human_reply import reply_of, ways_to_answer
from heedful.envs.common.actions import format_reply, read_reply
from heedful.envs.common.answers import ReadAnswer, answer_fault_line, free_text_rules, read_answer
from heedful.envs.common.tasks import evaluation_tasks, task_of
from heedful.rollout.baselines import best_fixed_sequence, fixed_sequence_success, random_policy_success
from heedful.run.evaluation.held_out import measure_baselines
from heedful.types import Ending, Observation, Step, Task

WORDS = ("one", "two", "two", "three", "three", "three")


@dataclass(frozen=True, slots=True)
class Guess:
    """Say the word of the task, in so many turns."""

    turns: int = 1
    listed: tuple[str, ...] = ()
    """Actions that would be searched if there were no blind answers."""

    @property
    def name(self) -> str:
        return "guess"

    @property
    def actions(self) -> tuple[str, ...]:
        return self.listed

    @property
    def actions_per_turn(self) -> int:
        return 2

    def task(self, seed: int) -> Task:
        return task_of("guess", f"{seed} {self.word(seed)}", seed)

    def word(self, seed: int) -> str:
        return random.Random(f"guess:{seed}").choice(WORDS)

    def random_answer(self, task: Task, rng: random.Random) -> str:
        return rng.choice(WORDS)

    def blind_answers(self, tasks: Sequence[Task]) -> list[str]:
        return [word for word, _ in Counter(self.word(task.seed) for task in tasks).most_common()]

    def episode(self) -> Guessing:
        return Guessing(self)


class Guessing:
    def __init__(self, env: Guess) -> None:
        self.env, self.turn = env, 0

    def start(self, task: Task, member: int) -> Observation:
        self.word = self.env.word(task.seed)
        return Observation("Which word?", "Which word?")

    def step(self, response: str) -> Step:
        read = read_answer(response, 10)
        self.turn += 1
        solved = read.text == self.word
        over = solved or self.turn == self.env.turns
        return Step(
            observation=Observation("No."),
            rewards={"solved": float(solved)},
            ending=None if not over else Ending.SOLVED if solved else Ending.FAILED,
            outcome=float(solved) if over else None,
            actions=(read.text,) if read.text else (),
            valid=not read.fault,
        )


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        ("<think>hm", "open thought"),
        ("", "no answer"),
        ("<answer>4</answer><think>hm</think>", "no answer"),
        ("<think>hm</think><answer>4", "open answer"),
        ("<answer> \n </answer>", "empty answer"),
        ("<answer>" + "4" * 11 + "</answer>", "too long"),
    ],
)
def test_a_reply_without_an_answer_has_the_fault_that_the_reader_of_actions_finds(reply: str, kind: str) -> None:
    read = read_answer(reply, 10)
    assert (read.text, read.kind) == ("", kind)
    if kind != "too long":
        asked = read_reply(reply, ["4"], 1)
        assert (asked.fault, asked.kind) == (read.fault, read.kind)
    assert answer_fault_line(read, brief=True) == f"invalid {kind}\n"
    assert answer_fault_line(read, brief=False) == f"Your last reply was invalid: {read.fault}. The turn is spent.\n"


@pytest.mark.parametrize(
    "reply",
    [
        "<think>hm</think><answer> 3 || 4 </answer>",
        "so <answer>3 || 4</answer> and <answer>5</answer>",
        "<think>a <answer>9</answer></think>\n<answer>\n3 || 4</answer></answer>",
    ],
)
def test_an_answer_is_the_first_block_after_the_thought_with_separators_left_in_it(reply: str) -> None:
    assert read_answer(reply, 10) == ReadAnswer("3 || 4")
    assert answer_fault_line(read_answer(reply, 10), brief=True) == ""


def test_the_rules_tell_the_limits_and_an_example_that_can_be_read() -> None:
    rules = free_text_rules("Answer with one word.", "four", 3)
    assert rules.startswith("You have 3 turns, with one answer in each. Answer with one word.\n")
    assert read_answer(rules.splitlines()[1].partition(": ")[2], 10) == ReadAnswer("four")
    assert free_text_rules("Answer.", "four", 1).startswith("You have 1 turn,")


def test_the_best_blind_answers_are_the_commonest_ones_each_once() -> None:
    env = Guess(turns=2)
    tasks = evaluation_tasks(env, "train", 300)
    assert best_fixed_sequence(env, tasks) == ("three", "two")
    held_out = evaluation_tasks(env, "test", 400)
    assert fixed_sequence_success(env, held_out, ("three", "two")).rate == pytest.approx(5 / 6, abs=0.06)
    assert fixed_sequence_success(replace(env, turns=1), held_out, ("three",)).rate == pytest.approx(1 / 2, abs=0.08)
    expected = sum((WORDS.count(word) / 6) ** 2 for word in ("one", "two", "three"))
    guessed = random_policy_success(replace(env, turns=1), held_out, random.Random(0))
    assert guessed.rate == pytest.approx(expected, abs=0.08)


def test_blind_answers_are_searched_even_where_actions_are_listed_and_random_players_take_actions() -> None:
    env = Guess(listed=("four", "five"))
    measured = measure_baselines(env, "val", 100)
    assert measured.sequence == ("three",)
    assert measured.random.value == 0.0
    assert measured.fixed.value is not None


def test_an_environment_without_answers_for_a_blind_player_says_so() -> None:
    @dataclass(frozen=True, slots=True)
    class Mute(Guess):
        def blind_answers(self, tasks: Sequence[Task]) -> list[str]:
            return []

    measured = measure_baselines(Mute(), "val", 50)
    assert (measured.sequence, measured.fixed.value) == ((), None)
    assert measured.fixed.why == "the environment offers no answer to a player who does not read"
    assert measured.random.value is not None


def test_what_a_person_types_is_the_answer() -> None:
    assert reply_of("(3 + 4) * 5", Guess()) == format_reply(["(3 + 4) * 5"], "")
    assert reply_of("<think>a</think><answer>b</answer>", Guess()) == "<think>a</think><answer>b</answer>"
    assert reply_of("quit", Guess()) is None
    assert ways_to_answer(Guess()).startswith("What you type is your answer")
