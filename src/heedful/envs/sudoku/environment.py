"""Sudoku: fill a grid so that every row, column and box holds each digit once. 4x4, 6x6 and 9x9.

Every puzzle has one solution, proven when it is drawn, and fits into the turns and placements that the prompt states.
A configuration with a smaller budget is refused.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from heedful.boundary import Count, NotNegative, Share
from heedful.envs.common.actions import SEPARATOR, format_reply, invalid_line
from heedful.envs.common.answers import free_text_rules
from heedful.envs.common.base import BaseEpisode, Played, SolvableEnvironment, remarks
from heedful.envs.common.demonstrations import played_through, template_thought
from heedful.envs.common.knobs import Turns, check_range
from heedful.envs.common.tasks import task_of
from heedful.envs.sudoku.grids import BOXES, Grid, Puzzle, draw, draw_puzzle, groups_of, place
from heedful.envs.sudoku.placements import Placement, next_placement, read_placements, write_placements
from heedful.types import Ending, Task

MOST_BLIND = 4
"""Number of answers offered to a player that does not read. Hardly any grid can be filled blind, and the search for the
best such player passes through all its tasks once for each answer."""

_TRIES = 10_000
_TRIES_AT_CONSTRUCTION = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Sudoku(SolvableEnvironment):
    """Fill a grid so that every row, column and box holds each digit once.

    The thought looks at one cell after the other: the digits in its row, its column and its box, and what they leave.

    Reward components: `placed` (the share of the empty cells that became right in the turn. Negative if right digits
    were taken back), `solved` (+1) and `format`. So a solved task pays 2 in all, however often a cell is filled.
    Outcome: 1 if solved, else 0. Progress: the share of the empty cells that hold the right digit at the end. There is
    no noise.
    """

    name: ClassVar[str] = "sudoku"

    size: int = 4
    """Rows, columns and digits: 4, 6 or 9."""
    least_empties: Count = 4
    """Fewest empty cells. The number is drawn uniformly."""
    most_empties: int = 8
    """Most empty cells."""
    turns: Turns = 4
    placements_per_turn: Count = 4
    """Most placements carried out in one turn. Refused ones count. With `turns` it must suffice for `most_empties`."""
    tell: Literal["conflicts", "wrong"] = "conflicts"
    """What is refused, and named in the next observation. `conflicts`: digits that are in the row, column or box
    already. Other wrong digits stay, and can be taken back. `wrong`: every wrong digit."""
    list_empties: bool = True
    """Name the empty cells below the grid."""
    format_penalty: NotNegative = 0.1
    """Subtracted once for each turn whose reply has a fault. A refused placement is no fault."""
    imperfect: Share = 0.0
    """Demonstrations: chance of each placement that a random digit takes the place of the right one. The thought
    states it."""
    template: Share = 0.0
    """Demonstrations: share of turns whose thought is a fluent sentence that ignores the grid. The placements are
    those of any other turn."""

    def check(self) -> None:
        if self.size not in BOXES:
            raise ValueError(f"sudoku: size must be one of {', '.join(map(str, BOXES))}, but is {self.size}.")
        check_range(self.name, "most_empties", self.most_empties, self.least_empties, self.size**2)
        if self.most_empties > self.budget:
            raise ValueError(
                f"sudoku: a grid with {self.most_empties} empty cells cannot be filled within its limits: turns x "
                f"placements_per_turn allows {self.budget}. Raise turns or placements_per_turn, or lower most_empties."
            )
        draw_puzzle(self.size, self.most_empties, self.most_empties, 0, _TRIES_AT_CONSTRUCTION)

    @property
    def summary(self) -> str:
        return (
            f"Fill {self.least_empties} to {self.most_empties} empty cells of a {self.size}x{self.size} Sudoku grid "
            f"with one solution."
        )

    @property
    def budget(self) -> int:
        """Most placements of an episode."""
        return self.turns * self.placements_per_turn

    def puzzle(self, seed: int) -> Puzzle:
        """The grid that a seed draws."""
        return draw_puzzle(self.size, self.least_empties, self.most_empties, seed, _TRIES)

    def task(self, seed: int) -> Task:
        return task_of(self.name, draw(self.size, self.puzzle(seed).givens), seed)

    def episode(self) -> SudokuEpisode:
        return SudokuEpisode(self)

    def right_actions(self, task: Task, before: Sequence[Sequence[str]] = ()) -> dict[str, float]:
        """The right digits of the empty cells, but for those that were written already."""
        puzzle, written = self.puzzle(task.seed), {action for turn in before for action in turn}
        rights = [write_placements(self.size, [Placement(cell, puzzle.solution[cell])]) for cell in puzzle.empties]
        return {action: 1.0 for action in rights if action not in written}

    def random_answer(self, task: Task, rng: random.Random) -> str:
        """Random digits for random empty cells of the task, as many as a turn allows."""
        empties = self.puzzle(task.seed).empties
        cells = rng.sample(empties, min(len(empties), self.placements_per_turn))
        return write_placements(self.size, [Placement(cell, rng.randint(1, self.size)) for cell in cells])

    def blind_answers(self, tasks: Sequence[Task]) -> Sequence[str]:
        """The commonest right placements of `tasks`, a turn's worth in each answer."""
        counted: Counter[Placement] = Counter()
        for puzzle in (self.puzzle(task.seed) for task in tasks):
            counted.update(Placement(cell, puzzle.solution[cell]) for cell in puzzle.empties)
        common = [placement for placement, _ in counted.most_common(MOST_BLIND * self.placements_per_turn)]
        step = self.placements_per_turn
        return [write_placements(self.size, common[start : start + step]) for start in range(0, len(common), step)]

    def demonstrate(self, task: Task, rng: random.Random) -> list[tuple[str, str]]:
        """Play one episode, the most certain cells first. See `imperfect` and `template`."""
        return played_through(self.episode(), task, lambda episode: self._demonstrated(episode, rng))

    def _demonstrated(self, episode: SudokuEpisode, rng: random.Random) -> str:
        grid = list(episode.grid)
        thoughts: list[str] = []
        placements: list[Placement] = []
        while len(placements) < self.placements_per_turn and tuple(grid) != episode.puzzle.solution:
            cell, digit, thought = next_placement(episode.puzzle, grid)
            if digit and rng.random() < self.imperfect:
                digit = rng.randint(1, self.size)
            thoughts.append(f"{place(self.size, cell)} {thought} so {digit}")
            placements.append(Placement(cell, digit))
            grid[cell] = digit
        thought = template_thought(rng) if rng.random() < self.template else "\n".join(thoughts)
        return format_reply([write_placements(self.size, placements)], thought)

    def full_rules(self) -> str:
        size, most = self.size, self.placements_per_turn
        high, wide = BOXES[size]
        if most > 1:
            form = f"An answer is a list of at most {most} placements, separated by {SEPARATOR}."
        else:
            form = "An answer is one placement."
        refused = (
            "A digit that stands in the row, column or box already is refused, and you are told."
            if self.tell == "conflicts"
            else "A wrong digit is refused, and you are told."
        )
        example = write_placements(self.size, [Placement(1, 3), Placement(size + 3, 1)][: min(2, most)])
        return (
            f"Fill the empty cells _ of a Sudoku grid, so that each row, each column and each box of {high} rows and "
            f"{wide} columns holds every digit from 1 to {size} once. There is one solution.\n"
            "A placement such as r1c2=3 writes 3 into row 1, column 2, both counted from 1 at the top left. "
            "The digit 0 takes a digit of yours back.\n"
            f"{refused} Refused placements count.\n"
            f"{free_text_rules(form, example, self.turns)}"
            "If a part of your answer cannot be read, only the placements before it are carried out.\n"
        )


class SudokuEpisode(BaseEpisode[Sudoku]):
    """One episode of `Sudoku`."""

    __slots__ = ("grid", "puzzle")

    puzzle: Puzzle
    grid: Grid

    def begin(self, task: Task, member: int) -> str:
        self.puzzle = self.env.puzzle(task.seed)
        self.grid = self.puzzle.givens
        return self._show()

    def play(self, response: str) -> Played:
        env, empties = self.env, len(self.puzzle.empties)
        read = read_placements(response, env.size, env.placements_per_turn)
        before = self._right()
        executed: list[str] = []
        refusals: list[str] = []
        for placement in read.placements:
            if self.grid == self.puzzle.solution:
                break
            executed.append(write_placements(env.size, [placement]))
            refusal = self._refusal(placement)
            if refusal:
                refusals.append(f"{executed[-1]} {refusal}")
            else:
                self.grid = (*self.grid[: placement.cell], placement.digit, *self.grid[placement.cell + 1 :])
        solved, right, refused = self.grid == self.puzzle.solution, self._right(), ", ".join(refusals)
        rewards = {"placed": (right - before) / empties} if right != before else {}
        done = f"Read before it: {f' {SEPARATOR} '.join(executed)}." if executed else "Nothing was placed."
        note = invalid_line(read.fault, read.kind, env.brief, done)
        if refused:
            note += f"refused {refused}\n" if env.brief else f"Refused: {refused}.\n"
        refused = f"refused {refused}" if refused else ""
        placed = " ".join(executed) or "nothing placed"
        return Played(
            fault=read.fault,
            rewards=rewards | ({"solved": 1.0} if solved else {}),
            ending=Ending.SOLVED if solved else None if self.turns_left else Ending.OUT_OF_TURNS,
            progress=right / empties,
            actions=tuple(executed),
            note=note,
            shown=self._show(),
            effect=remarks(placed, refused, f"{right} of {empties} right", read.fault),
            state=draw(env.size, self.grid),
        )

    def _right(self) -> int:
        """How many of the cells that were empty hold the right digit."""
        return sum(self.grid[cell] == self.puzzle.solution[cell] for cell in self.puzzle.empties)

    def _refusal(self, placement: Placement) -> str:
        """Why a placement is refused, in a few words. Empty if it is not."""
        cell, digit = placement.cell, placement.digit
        if self.puzzle.givens[cell]:
            return "given"
        if not digit:
            return "" if self.grid[cell] else "empty"
        for name, cells in groups_of(self.puzzle.size, cell):
            if any(self.grid[other] == digit for other in cells if other != cell):
                return f"in {name}"
        return "wrong" if self.env.tell == "wrong" and digit != self.puzzle.solution[cell] else ""

    def _show(self) -> str:
        """The end of every observation: the limits, the grid, and which digits can be taken back."""
        env, size = self.env, self.puzzle.size
        own = [place(size, cell) for cell in self.puzzle.empties if self.grid[cell]]
        empty = [place(size, cell) for cell in self.puzzle.empties if not self.grid[cell]] * env.list_empties
        most = env.placements_per_turn
        lines = [self.limits(most, f"Placements per turn: at most {most}."), draw(size, self.grid)]
        if empty:
            lines.append(f"empty {' '.join(empty)}" if env.brief else f"Empty cells: {', '.join(empty)}.")
        if own:
            lines.append(f"yours {' '.join(own)}" if env.brief else f"Digits of yours: {', '.join(own)}.")
        return "\n".join(lines)
