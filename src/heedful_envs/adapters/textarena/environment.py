"""textarena: its single-player games that need no network. A turn is a message of the game and an answer in brackets.

The start is a function of the seed of the task, and later draws are a function of seed and member. This holds although
the library draws from the global generator. An unreadable answer never reaches the game. A game that would download,
that needs a model as a judge, or that this Python cannot read, is refused before it is loaded.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import inspect
import io
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

from heedful.boundary import Count
from heedful.envs.common import (
    BaseEnvironment,
    BaseEpisode,
    Instructions,
    Played,
    Raised,
    Turns,
    answer_fault_line,
    free_text_rules,
    read_answer,
)
from heedful.types import Task
from heedful_envs.adapters.global_random import OwnRandom
from heedful_envs.adapters.library import (
    FULL,
    above_floor,
    answer_of_library,
    ending_of,
    load_library,
    made_by_library,
    read_options,
    task_of_start,
    write_options,
)

MOST_BLIND = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class TextArena(BaseEnvironment):
    """A game of textarena for one player.

    The game reads the text of an answer, put in square brackets if it has none. Two invalid moves in a row lose, as in
    the library. Reward components: `game`, 1 if the game was won (with `partial` the share that the library pays, above
    what it pays for doing nothing), `format`. Outcome: the same. Progress: what the library paid.
    """

    name: ClassVar[str] = "textarena"
    package: ClassVar[str] = "textarena"
    """The package that is played."""

    id: str = "FrozenLake-v0-random"
    """Which game, as the library calls it. An unknown id lists the games."""
    options: str = ""
    """What is passed to the game, as name=value with spaces between, or as JSON."""
    turns: Turns = 12
    """Most turns of an episode. Told to the game as well, where it takes a limit."""
    partial: bool = False
    """Partial credit: the share that the library pays for an unfinished game, above what it pays for doing nothing."""
    longest: Count = 200
    """Most characters of an answer."""
    instructions: Instructions = "full"
    """`full`: the form of an answer in plain English in the first observation. `brief`: the limits alone. The game's
    own prompt is shown in any case."""

    def check(self) -> None:
        game = game_of(self.id)
        if game in EXCLUDED:
            raise ValueError(f"textarena: {game} is not played, because {EXCLUDED[game]}.")
        if game not in PATTERNS:
            raise ValueError(
                f"textarena: {self.id!r} is not among the games for one player that can be played offline: "
                f"{', '.join(PATTERNS)}. Ids are written with their version, such as Sudoku-v0-easy."
            )
        read_options(self.name, "options", self.options)

    @property
    def summary(self) -> str:
        return f"{self.id}, a game of the library textarena: answers in square brackets."

    def task(self, seed: int) -> Task:
        """The task of a seed. If all seeds draw one start state, each seed is a separate task, with a warning."""
        return task_of_start(self, _start_state, seed)

    def episode(self) -> TextArenaEpisode:
        return TextArenaEpisode(self)

    def random_answer(self, task: Task, rng: random.Random) -> str:
        """A random move of the form that the game asks for, often an illegal one."""
        return random_move(self.id, rng)

    def blind_answers(self, tasks: Sequence[Task]) -> list[str]:
        return some_moves(self.id, MOST_BLIND)

    def full_rules(self) -> str:
        form = (
            "An answer is one move of the game described below, in square brackets. Where the game mentions another "
            "limit on turns, the smaller one holds."
        )
        return f"{free_text_rules(form, '[your move]', self.turns)}\n"


class TextArenaEpisode(BaseEpisode[TextArena]):
    """One episode of `TextArena`."""

    __slots__ = ("_game", "_random", "_seed")

    restarts = False
    """What the game says is spread over the turns."""
    _game: Any

    def begin(self, task: Task, member: int) -> str:
        self._seed = task.seed
        self._game = begin(self.env, task.seed)
        self._random = OwnRandom(task.seed, "noise", member)
        return self._show(_heard(self._game))

    def play(self, response: str) -> Played:
        read = read_answer(response, self.env.longest)
        done, effect = (False, read.fault) if read.fault else self._moved(read.text)
        ended = done or not self.turns_left
        paid = self._paid() if done else 0.0
        outcome = self._outcome(paid)
        return Played(
            fault=read.fault,
            rewards={"game": outcome} if ended and outcome else {},
            ending=ending_of(outcome, done) if ended else None,
            outcome=outcome,
            progress=paid if done else None,
            actions=(" ".join(read.text.split()),) if read.text else (),
            note=answer_fault_line(read, self.env.brief),
            shown=self._show("" if ended or read.fault else _heard(self._game)),
            effect=" ".join(effect.split()),
            state=hashlib.sha256(canonical(self._game.state.game_state).encode()).hexdigest()[:16],
        )

    def _moved(self, text: str) -> tuple[bool, str]:
        """Hand an answer to the game: whether the game is over, and one line on what came of it."""
        move = text if "[" in text or "]" in text else f"[{text}]"
        invalid_before = self._game.state.error_count
        moved = answer_of_library(self._random, lambda: self._game.step(move))
        if isinstance(moved, Raised):  # on an answer that the game does not expect: the turn is spent
            return False, f"the game could not take it ({type(moved.error).__name__})"
        done, _ = moved.value
        reason = self._game.state.game_info[0].get("reason")
        if done:
            return True, str(reason or "the game is over")
        return False, "an invalid move" if self._game.state.error_count > invalid_before else "played"

    def _paid(self) -> float:
        """What the library pays at the end, in [0, 1]. 0 for what is no number (some games swap reason and reward)."""
        rewards = self._game.state.rewards or {}
        paid = rewards.get(0)
        return min(1.0, max(0.0, float(paid))) if isinstance(paid, int | float) and paid == paid else 0.0

    def _outcome(self, paid: float) -> float:
        lost = bool(self._game.state.game_info[0].get("invalid_move"))
        if paid >= FULL:
            return 0.0 if lost else 1.0
        return above_floor(paid, _floor(self.env, self._seed)) if self.env.partial and paid else 0.0

    def _show(self, said: str) -> str:
        return f"{self.limits()}\n{said}".rstrip()


def begin(env: TextArena, seed: int) -> Any:
    """The game in its start state. Raises ValueError with a sentence if it cannot be made."""
    library = load_library(env.name)
    options = read_options(env.name, "options", env.options)
    drawn = int.from_bytes(hashlib.sha256(f"textarena:{seed}".encode()).digest()[:4], "big") >> 1

    def started() -> Any:
        spec = load_library(env.name, "envs.registration").ENV_REGISTRY.get(f"{env.id}-raw")
        if spec is None:
            raise ValueError(f"there is no id {env.id!r}")
        module, _, name = str(spec.entry_point).partition(":")
        takes = inspect.signature(getattr(importlib.import_module(module), name)).parameters
        limit = {"max_turns": env.turns} if "max_turns" in takes else {}
        game = library.make(f"{env.id}-raw", **(limit | options))
        game.reset(num_players=1, seed=drawn)
        return game

    with OwnRandom(seed, "start"), contextlib.redirect_stdout(io.StringIO()):
        return made_by_library(f"textarena: {env.id}", write_options(options), started)


def _heard(game: Any) -> str:
    """What the game has said since it was asked last, without the player's own words."""
    _, messages = game.get_observation()
    return "\n".join(str(text).strip() for sender, text, _ in messages if sender == -1)


@lru_cache(maxsize=16_384)
def _start_state(env: TextArena, seed: int) -> str:
    """The start state in a canonical form: what is shown and what is hidden."""
    game = begin(env, seed)
    hidden = {name: value for name, value in vars(game).items() if name != "state"}
    options = write_options(read_options(env.name, "options", env.options))
    return f"{env.id} {options}\n{canonical(hidden)}\n{canonical(game.state.game_state)}\n{_heard(game)}"


@lru_cache(maxsize=4_096)
def _floor(env: TextArena, seed: int) -> float:
    """What the library pays an agent that makes no legal move."""
    episode = TextArenaEpisode(env)
    episode.start(env.task(seed), 0)
    for _ in range(env.turns):
        done, _ = episode._moved("[no move]")
        if done:
            return episode._paid()
    return 0.0


def canonical(value: Any) -> str:
    """A text that is equal for equal values, on every machine: no addresses, no order of sets."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(sorted(f"{canonical(key)}: {canonical(item)}" for key, item in value.items())) + "}"
    if isinstance(value, set | frozenset):
        return "{" + ", ".join(sorted(map(canonical, value))) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(canonical, value)) + "]"
    if value is None or isinstance(value, str | int | float | bool):
        return repr(value)
    if hasattr(value, "tolist"):
        return canonical(value.tolist())
    names = getattr(value, "__slots__", None) or sorted(getattr(value, "__dict__", {}))
    if callable(value) or not names:
        return type(value).__name__
    return f"{type(value).__name__}({', '.join(f'{n}={canonical(getattr(value, n, None))}' for n in names)})"


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
