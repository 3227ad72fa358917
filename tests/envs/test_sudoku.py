"""Sudoku: one solution each, proved by another solver; what is placed, refused, told and paid."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from heedful.envs.common.actions import format_reply
from heedful.envs.sudoku.environment import Sudoku, SudokuEpisode
from heedful.envs.sudoku.grids import BOXES, Puzzle, candidates, draw, draw_puzzle, place, solutions, units_of
from heedful.envs.sudoku.placements import Placement, write_placements
from heedful.types import Ending, Step

NINE = Sudoku(size=9, least_empties=20, most_empties=45, turns=8, placements_per_turn=6)
ENVIRONMENTS = [
    Sudoku(),
    Sudoku(least_empties=9, most_empties=10, turns=3, tell="wrong"),
    Sudoku(size=6, least_empties=8, most_empties=20, turns=5, instructions="brief"),
    NINE,
]
every_size = pytest.mark.parametrize("env", ENVIRONMENTS, ids=range(len(ENVIRONMENTS)))

SOLUTION = (1, 2, 3, 4, 3, 4, 1, 2, 2, 1, 4, 3, 4, 3, 2, 1)
"""Rows 1234, 3412, 2143, 4321."""


def count_exact_covers(size: int, grid: Sequence[int], most: int) -> int:
    """Solutions of a grid, `most` at the most, by exact cover (Knuth's Algorithm X): nothing shared with the solver.

    A choice is a digit in a cell. It covers that the cell is filled, and that its row, column and box hold the digit.
    """
    high, wide = BOXES[size]
    choices: dict[tuple[int, int, int], list[tuple[str, int, int]]] = {}
    for row in range(size):
        for column in range(size):
            box = row // high * (size // wide) + column // wide
            for digit in range(1, size + 1):
                if grid[row * size + column] in (0, digit):
                    choices[row, column, digit] = [
                        ("cell", row, column),
                        ("row", row, digit),
                        ("column", column, digit),
                        ("box", box, digit),
                    ]
    open_: dict[tuple[str, int, int], set[tuple[int, int, int]]] = {
        (kind, unit, digit): set()
        for kind in ("row", "column", "box")
        for unit in range(size)
        for digit in range(1, size + 1)
    }
    open_ |= {("cell", row, column): set() for row in range(size) for column in range(size)}
    for choice, covered in choices.items():
        for constraint in covered:
            open_[constraint].add(choice)

    def search() -> int:
        if not open_:
            return 1
        constraint = min(open_, key=lambda each: len(open_[each]))
        found = 0
        for choice in list(open_[constraint]):
            removed = []
            for covered in choices[choice]:
                for other in open_[covered]:
                    for further in choices[other]:
                        if further != covered:
                            open_[further].discard(other)
                removed.append((covered, open_.pop(covered)))
            found += search()
            for covered, others in reversed(removed):
                open_[covered] = others
                for other in others:
                    for further in choices[other]:
                        if further != covered:
                            open_[further].add(other)
            if found >= most:
                break
        return found

    return search()


def check_puzzles(env: Sudoku, seeds: Sequence[int]) -> None:
    for seed in seeds:
        puzzle = env.puzzle(seed)
        assert count_exact_covers(env.size, puzzle.givens, 2) == 1, f"seed {seed}"
        assert env.least_empties <= len(puzzle.empties) <= env.most_empties <= env.budget
        assert all(given in (0, digit) for given, digit in zip(puzzle.givens, puzzle.solution, strict=True))
        for _, cells in units_of(env.size).groups:
            assert sorted(puzzle.solution[cell] for cell in cells) == list(range(1, env.size + 1))


@every_size
def test_each_puzzle_has_one_solution_as_another_solver_finds(env: Sudoku) -> None:
    check_puzzles(env, range(60 if env.size < 9 else 12))


@pytest.mark.proof
@every_size
def test_each_of_ten_thousand_puzzles_has_one_solution(
    env: Sudoku, record_property: Callable[[str, Any], None]
) -> None:
    record_property("cases", 10_000)
    check_puzzles(env, range(10_000))


def test_all_grids_of_four_by_four_are_counted() -> None:
    assert len(set(solutions(4, [0] * 16))) == 288
    assert list(solutions(4, [1, 1, *[0] * 14])) == []
    assert list(solutions(4, SOLUTION)) == [SOLUTION]


@pytest.mark.parametrize("size", [4, 6])
def test_both_solvers_count_the_same_solutions(size: int) -> None:
    rng = random.Random(8)
    counts = []
    for seed in range(40):
        grid = list(draw_puzzle(size, 1, 4, seed, 10).givens)
        for cell in rng.sample(range(size * size), size * size // 2):
            grid[cell] = 0
        if seed % 4 == 0:
            grid[rng.randrange(size * size)] = rng.randint(1, size)
        found = 0
        for _ in solutions(size, grid):
            found += 1
            if found == 50:
                break
        # A grid whose givens conflict has no exact cover either: the constraint that both cover is left with neither.
        assert min(count_exact_covers(size, grid, 50), 50) == found
        counts.append(found)
    assert {0, 1} < set(counts)


@pytest.mark.parametrize("size", [4, 6, 9])
def test_rows_columns_and_boxes_are_those_of_the_rules(size: int) -> None:
    units = units_of(size)
    high, wide = BOXES[size]
    assert high * wide == size
    assert len(units.groups) == 3 * size
    assert all(len(cells) == size for _, cells in units.groups)
    assert {len(peers) for peers in units.peers} == {3 * size - high - wide - 1}
    boxes = dict(units.groups)
    assert boxes["box 1"] == tuple(row * size + column for row in range(high) for column in range(wide))
    assert boxes["column 2"][:2] == (1, size + 1)


def started(env: Sudoku, *empties: int) -> SudokuEpisode:
    """An episode on the grid 1234 3412 2143 4321 with these cells empty."""
    episode = env.episode()
    episode.start(env.task(0), 0)
    givens = tuple(0 if cell in empties else digit for cell, digit in enumerate(SOLUTION))
    episode.puzzle = Puzzle(4, givens, SOLUTION)
    episode.grid = givens
    return episode


def answer(episode: SudokuEpisode, text: str) -> Step:
    return episode.step(format_reply([text], "a thought"))


def test_right_placements_are_paid_by_their_share_and_the_last_one_solves() -> None:
    episode = started(Sudoku(), 0, 1, 5, 6)
    step = answer(episode, "r1c1=1 || R 1 C 2 = 2")
    assert step.actions == ("r1c1=1", "r1c2=2")
    assert (dict(step.rewards), step.ending, step.outcome, step.progress) == ({"placed": 0.5}, None, None, None)
    assert step.effect == "r1c1=1 r1c2=2; 2 of 4 right"
    assert step.state == "1234\n3__2\n2143\n4321"
    step = answer(episode, "r2c2=4 || r2c3=1 || r1c1=2")
    assert step.actions == ("r2c2=4", "r2c3=1")
    assert dict(step.rewards) == {"placed": 0.5, "solved": 1.0}
    assert (step.ending, step.outcome, step.progress) == (Ending.SOLVED, 1.0, 1.0)


def test_a_digit_that_is_there_already_is_refused_and_a_given_stays() -> None:
    episode = started(Sudoku(), 0, 1, 5, 6)
    step = answer(episode, "r1c1=4 || r1c1=3 || r3c1=1 || r2c3=0")
    assert dict(step.rewards) == {}
    assert step.valid
    assert step.state == "__34\n3__2\n2143\n4321"
    refused = "r1c1=4 in row 1, r1c1=3 in row 1, r3c1=1 given, r2c3=0 empty"
    assert step.observation.text.startswith(f"Refused: {refused}.\nTurns left: 3.")
    assert step.effect == f"r1c1=4 r1c1=3 r3c1=1 r2c3=0; refused {refused}; 0 of 4 right"
    brief = answer(started(Sudoku(instructions="brief"), 0, 1, 5, 6), "r1c2=1")
    assert brief.observation.text == (
        "refused r1c2=1 in column 2\nturns 3 moves 4\n__34\n3__2\n2143\n4321\nempty r1c1 r1c2 r2c2 r2c3"
    )


def test_a_wrong_digit_without_conflict_stays_and_can_be_taken_back() -> None:
    # Rows 1 and 3, columns 1 and 2 are emptied of 1 and 2 only: nothing but the solution's givens could tell them.
    empties = (0, 1, 8, 9)
    episode = started(Sudoku(instructions="brief"), *empties)
    first = answer(episode, "r1c1=2 || r3c1=1")
    assert dict(first.rewards) == {}
    assert first.observation.text == "turns 3 moves 4\n2_34\n3412\n1_43\n4321\nempty r1c2 r3c2\nyours r1c1 r3c1"
    second = answer(episode, "r1c2=2 || r1c1=0 || r1c2=2 || r3c2=1")
    assert second.observation.text == (
        "refused r1c2=2 in row 1, r3c2=1 in row 3\nturns 2 moves 4\n_234\n3412\n1_43\n4321\n"
        "empty r1c1 r3c2\nyours r1c2 r3c1"
    )
    assert dict(second.rewards) == {"placed": 0.25}
    third = answer(episode, "r1c2=0 || r3c1=2 || r3c2=1")
    assert dict(third.rewards) == {"placed": 0.25}
    last = answer(episode, "r1c1=1")
    assert (last.ending, last.outcome, last.progress) == (Ending.OUT_OF_TURNS, 0.0, 0.75)


def test_wrong_digits_are_refused_where_they_are_told() -> None:
    step = answer(started(Sudoku(tell="wrong"), 0, 1, 8, 9), "r1c1=2 || r3c1=2")
    assert step.observation.text.startswith("Refused: r1c1=2 wrong.\n")
    assert dict(step.rewards) == {"placed": 0.25}


def test_what_all_turns_pay_adds_up_to_two_however_a_task_was_solved() -> None:
    for seed in range(40):
        env = Sudoku(turns=12, imperfect=0.3)
        task = env.task(seed)
        pairs = env.demonstrate(task, random.Random(seed))
        episode = env.episode()
        episode.start(task, 0)
        steps = [episode.step(reply) for _, reply in pairs]
        last = steps[-1]
        assert last.progress is not None
        total = sum(sum(step.rewards.values()) for step in steps)
        assert total == pytest.approx(last.progress + (last.ending is Ending.SOLVED))


@pytest.mark.parametrize(
    ("text", "executed", "fault"),
    [
        ("r1c1=1 || r1c2=2 || r2c2=4 || r2c3=1 || r1c1=1", 4, "there are more than 4 placements"),
        ("r1c1=1 || ", 1, "a placement is empty beside a ||"),
        ("r1c1=1 || r1c2:2", 1, "placement 2 cannot be read (expected one like r1c4=3)"),
        ("1,1=1", 0, "placement 1 cannot be read (expected one like r1c4=3)"),
        ("r1c1=١", 0, "placement 1 cannot be read (expected one like r1c4=3)"),
        ("r1c1=1, r1c2=2", 0, "placement 1 cannot be read (expected one like r1c4=3)"),
        ("r5c1=1", 0, "placement 1 lies outside: rows, columns and digits go from 1 to 4"),
        ("r1c1=5", 0, "placement 1 lies outside: rows, columns and digits go from 1 to 4"),
        ("r0c1=1", 0, "placement 1 lies outside: rows, columns and digits go from 1 to 4"),
        ("r1c1=" + " " * 200 + "1", 0, "the answer has 206 characters, more than 100"),
    ],
)
def test_what_cannot_be_read_ends_the_list_and_is_named(text: str, executed: int, fault: str) -> None:
    env = Sudoku(most_empties=6)
    step = answer(started(env, 0, 1, 5, 6, 10, 15), text)
    assert len(step.actions) == executed
    assert not step.valid
    assert step.rewards["format"] == -0.1
    assert step.observation.text.startswith(f"Your last reply was invalid: {fault}. ")
    assert step.effect.endswith(f"; {fault}")


def test_the_solver_fills_every_puzzle_within_the_fewest_possible_turns() -> None:
    for env in ENVIRONMENTS:
        for seed in range(30 if env.size < 9 else 8):
            task = env.task(seed)
            pairs = env.demonstrate(task, random.Random(seed))
            episode = env.episode()
            assert episode.start(task, 0).text == pairs[0][0]
            steps = [episode.step(reply) for _, reply in pairs]
            assert steps[-1].ending is Ending.SOLVED
            assert all(step.valid and "efused" not in step.observation.text for step in steps)
            empties = len(env.puzzle(seed).empties)
            assert len(steps) == -(-empties // env.placements_per_turn)


def test_a_thought_names_the_digits_around_a_cell_and_what_they_leave() -> None:
    env = Sudoku(instructions="brief")
    for seed in range(40):
        puzzle = env.puzzle(seed)
        observation, reply = env.demonstrate(env.task(seed), random.Random(seed))[0]
        grid = list(puzzle.givens)
        assert draw(4, grid) in observation
        assert observation.endswith(f"empty {' '.join(place(4, cell) for cell in puzzle.empties)}")
        for line in reply.removeprefix("<think>").split("</think>")[0].split("\n"):
            words = line.split()
            cell, digit = (int(words[0][1]) - 1) * 4 + int(words[0][3]) - 1, int(words[-1])
            assert words[0] == place(4, cell)
            shown = {int(mark) for word in (words[2], words[4], words[6]) for mark in word if mark != "_"}
            assert shown == {1, 2, 3, 4} - set(candidates(4, grid, cell))
            assert ("only" in words or "try" in words) == (len(candidates(4, grid, cell)) > 1)
            assert digit == puzzle.solution[cell]
            grid[cell] = digit


def test_hard_puzzles_need_more_than_what_the_cells_around_leave() -> None:
    env = Sudoku(size=9, least_empties=52, most_empties=54, turns=9, placements_per_turn=6)
    texts = [env.demonstrate(env.task(seed), random.Random(0)) for seed in range(6)]
    thoughts = "\n".join(reply for pairs in texts for _, reply in pairs)
    assert "only one in" in thoughts


def test_an_imperfect_demonstration_places_what_it_says() -> None:
    env = Sudoku(imperfect=1.0, instructions="brief")
    taken_back = 0
    for seed in range(30):
        for _, reply in env.demonstrate(env.task(seed), random.Random(seed)):
            thought, text = reply.split("</think>")
            said = [f"{line.split()[0]}={line.split()[-1]}" for line in thought.removeprefix("<think>").split("\n")]
            assert text == f"<answer>{' || '.join(said)}</answer>"
            taken_back += thought.count("is wrong so 0")
    assert taken_back > 0


def test_scripted_players_write_what_can_be_read() -> None:
    rng = random.Random(4)
    for env in ENVIRONMENTS:
        tasks = [env.task(seed) for seed in range(20)]
        blind = env.blind_answers(tasks)
        assert 0 < len(blind) <= 4
        for task, text in zip(tasks, blind, strict=False):
            for said in (text, env.random_answer(task, rng)):
                episode = env.episode()
                episode.start(task, 0)
                step = answer(episode, said)
                assert step.valid
                assert 0 < len(step.actions) <= env.placements_per_turn
    assert write_placements(4, [Placement(1, 3), Placement(7, 1)]) == "r1c2=3 || r2c4=1"


@pytest.mark.parametrize("env", ENVIRONMENTS, ids=range(len(ENVIRONMENTS)))
def test_a_puzzle_is_drawn_in_milliseconds(env: Sudoku) -> None:
    start = time.process_time()
    for seed in range(20):
        env.puzzle(seed)
    assert time.process_time() - start < 20 * 0.05


def test_the_list_of_empty_cells_can_be_left_out() -> None:
    for brief, line in (("brief", "\nempty r"), ("full", "\nEmpty cells: r")):
        shown, hidden = (Sudoku(instructions=brief, list_empties=listed) for listed in (True, False))
        texts = [env.episode().start(env.task(0), 0).text for env in (shown, hidden)]
        assert [line in text for text in texts] == [True, False]
        assert texts[0].startswith(texts[1])


def test_the_prompt_says_what_is_refused_and_what_a_box_is() -> None:
    def opening(env: Sudoku) -> str:
        return env.episode().start(env.task(0), 0).text

    assert "box of 2 rows and 2 columns holds every digit from 1 to 4" in opening(Sudoku())
    assert "box of 2 rows and 3 columns" in opening(Sudoku(size=6))
    assert "A wrong digit is refused" in opening(ENVIRONMENTS[1])
    assert "at most 6 placements, separated by ||." in opening(NINE)
    assert "You have 4 turns, with one answer in each." in opening(Sudoku())
    assert "<answer>r1c2=3</answer>" in opening(Sudoku(turns=8, placements_per_turn=1))
    assert opening(ENVIRONMENTS[2]).startswith("turns 5 moves 4\n")
