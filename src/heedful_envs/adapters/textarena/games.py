"""What heedful knows about textarena's single-player games: which are played, and the form of their answers.

A game that would download, that needs a model as a judge, or that this Python cannot read, is refused before it is
loaded.

A pattern is an answer with blanks: `{1-6}` is a whole number from 1 to 6, `{red|blue}` one of these words. Random
players fill the blanks. What they answer is of the right form, and often not a legal move.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping

_MOVES = ("[up]", "[down]", "[left]", "[right]")

PATTERNS: Mapping[str, tuple[str, ...]] = {
    "2048": _MOVES,
    "Bandit": ("[{red|blue|green|yellow|purple}]",),
    "Blackjack": ("[Hit]", "[Stand]"),
    "Countdown": ("[{0-5} {0-5} {+|-|*|/}]",),
    "Cryptarithm": ("[{S|E|N|D|M|O|R|Y} {0-9}]",),
    "FifteenPuzzle": _MOVES,
    "FrozenLake": _MOVES,
    "GuessTheNumber": ("[{1-20}]",),
    "LightsOut": ("[{0-4} {0-4}]",),
    "LogicPuzzle": ("[{Alice|Bob|Charlie} {park|school|hospital} {X|O}]",),
    "Mastermind": ("[{1-6} {1-6} {1-6} {1-6}]",),
    "Minesweeper": ("[{0-7} {0-7}]",),
    "PegJump": ("[{1-15} {1-15}]",),
    "RushHour": ("[{A|B|C|D|F|G|H|I|J|X}{+|-}]",),
    "Secretary": ("[accept]", "[continue]"),
    "Set": ("[{1-12}, {1-12}, {1-12}]",),
    "Slitherlink": ("[{h|v} {0-4} {0-4}]",),
    "Sokoban": _MOVES,
    "Sudoku": ("[{1-9} {1-9} {1-9}]",),
    "ThreeCardMonte": ("[{0-2}]",),
    "TowerOfHanoi": ("[{A|B|C} {A|B|C}]",),
}
"""Game without version -> patterns of an answer. These games can be played."""

DOWNLOADS = "it downloads word lists when it is made, or asks a model on the network"
SYNTAX = "its source cannot be read by Python before 3.12"

EXCLUDED: Mapping[str, str] = {
    "Crosswords": DOWNLOADS,
    "GuessWho": DOWNLOADS,
    "Hangman": DOWNLOADS,
    "Klondike": SYNTAX,
    "TwentyQuestions": DOWNLOADS,
    "UltimateTexasHoldem": SYNTAX,
    "WordLadder": DOWNLOADS,
    "Wordle": DOWNLOADS,
    "WordSearch": DOWNLOADS,
}
"""Games for one player that are not played -> why."""

_BLANK = re.compile(r"\{([^{}]+)\}")


def game_of(id: str) -> str:
    """`Sudoku-v0-easy` is the game `Sudoku`."""
    return id.partition("-v")[0]


def check_game(id: str) -> None:
    """Raises ValueError, in a sentence, for a game that is not played. Loads nothing."""
    game = game_of(id)
    if game in EXCLUDED:
        raise ValueError(f"textarena: {game} is not played, because {EXCLUDED[game]}.")
    if game not in PATTERNS:
        raise ValueError(
            f"textarena: {id!r} is not among the games for one player that can be played offline: "
            f"{', '.join(PATTERNS)}. Ids are written with their version, such as Sudoku-v0-easy."
        )


def random_move(id: str, rng: random.Random) -> str:
    """A random answer of the form that the game asks for."""
    pattern = rng.choice(PATTERNS[game_of(id)])
    return _BLANK.sub(lambda blank: _fill(blank[1], rng), pattern)


def some_moves(id: str, count: int) -> list[str]:
    """Up to `count` different answers of the form that the game asks for: the same ones every time."""
    rng = random.Random(f"textarena moves:{game_of(id)}")
    moves = dict.fromkeys(move for move in PATTERNS[game_of(id)] if not _BLANK.search(move))
    for _ in range(count * 10):
        if len(moves) == count:
            break
        moves.setdefault(random_move(id, rng))
    return list(moves)


def _fill(blank: str, rng: random.Random) -> str:
    numbers = re.fullmatch(r"(\d+)-(\d+)", blank)
    if numbers:
        return str(rng.randint(int(numbers[1]), int(numbers[2])))
    return rng.choice(blank.split("|"))
