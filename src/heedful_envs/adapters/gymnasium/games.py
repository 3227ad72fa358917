"""What heedful knows about single games of gymnasium: names of actions, a state in words, the rule of success.

A game is found by its name without the version. The state in words holds all that an agent needs, and nothing that the
game hides.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from heedful_envs.adapters.library import load_library

Describe = Callable[[Any, Any], str]
"""(environment without wrappers, observation) -> the state in words."""


@dataclass(frozen=True, slots=True)
class Game:
    """A game that heedful knows."""

    actions: tuple[str, ...]
    """Names, in the order of the numbers."""
    describe: Describe
    outcome: Callable[[float, bool], float]
    """Of the last step's reward, and whether the game itself ended."""
    success: str
    """In words, for the agent and the documentation."""
    rules: str
    starts: int | None = None
    """How many start states there are, where they are few and more than one."""
    hide: Callable[[Any], None] = lambda environment: None
    """Draw again, from the member's noise, what the start state holds but does not show."""


def known_game(id: str) -> Game | None:
    """The game of an id such as `FrozenLake8x8-v1`. `None` if heedful does not know it."""
    return GAMES.get(base_name(id))


def base_name(id: str) -> str:
    """`FrozenLake8x8-v1` without version and variant: `FrozenLake`."""
    name = re.sub(r"-v\d+$", "", id)
    return next((known for known in GAMES if name.startswith(known)), name)


def _describe_lake(environment: Any, observation: Any) -> str:
    rows = [[cell.decode() for cell in row] for row in environment.desc]
    player = _put_player(rows, environment.s)
    goals = [f"G {r} {c}" for r, line in enumerate(rows) for c, cell in enumerate(line) if cell == "G"]
    return "\n".join([*map("".join, rows), " ".join([player, *goals])])


def _describe_cliff(environment: Any, observation: Any) -> str:
    height, width = environment.shape
    rows = [["_"] * width for _ in range(height - 1)] + [["_", *"C" * (width - 2), "G"]]
    player = _put_player(rows, environment.s)
    return "\n".join([*map("".join, rows), f"{player} G {height - 1} {width - 1}"])


def _put_player(rows: list[list[str]], state: int) -> str:
    row, column = divmod(int(state), len(rows[0]))
    rows[row][column] = "P"
    return f"P {row} {column}"


_STANDS = "RGYB"


def _describe_taxi(environment: Any, observation: Any) -> str:
    row, column, passenger, destination = (int(part) for part in environment.decode(int(environment.s)))
    places = [f"{name} {r} {c}" for name, (r, c) in zip(_STANDS, environment.locs, strict=True)]
    where = "in taxi" if passenger == len(_STANDS) else places[passenger]
    return f"taxi {row} {column}\npassenger {where}\nto {places[destination]}"


def _describe_blackjack(environment: Any, observation: Any) -> str:
    total, shown, ace = (int(part) for part in observation)
    return f"sum {total} ace {'yes' if ace else 'no'} dealer {shown}"


def _redraw_hidden_card(environment: Any) -> None:
    blackjack = load_library("gymnasium", "envs.toy_text.blackjack")
    environment.dealer[1] = blackjack.draw_card(environment.np_random)


_TAXI_MAP = """+---------+
|R: | : :G|
| : | : : |
| : : : : |
| | : | : |
|Y| : |B: |
+---------+"""

GAMES: Mapping[str, Game] = {
    "FrozenLake": Game(
        actions=("Left", "Down", "Right", "Up"),
        describe=_describe_lake,
        outcome=lambda reward, ended: float(ended and reward > 0),
        success="the goal is reached",
        rules=(
            "You cross a frozen lake to the goal. In the grid, P is you, S the start, F is ice, H is a hole and G is "
            "the goal.\nPlaces are given as row and column, both counted from 0 at the top left. Ice may be slippery: "
            "you may then slide to a side. Stepping into a hole ends the attempt."
        ),
    ),
    "CliffWalking": Game(
        actions=("Up", "Right", "Down", "Left"),
        describe=_describe_cliff,
        outcome=lambda reward, ended: float(ended),
        success="the goal is reached",
        rules=(
            "You walk along a cliff to the goal. In the grid, P is you, C is the cliff and G is the goal.\nPlaces are "
            "given as row and column, both counted from 0 at the top left. Stepping onto the cliff takes you back to "
            "the start."
        ),
    ),
    "Taxi": Game(
        actions=("South", "North", "East", "West", "Pickup", "Dropoff"),
        describe=_describe_taxi,
        outcome=lambda reward, ended: float(ended and reward > 0),
        success="the passenger is dropped off at the destination",
        rules=(
            "You drive a taxi: fetch the passenger, and drop them off at the destination. The map, where | is a wall "
            f"and : can be passed:\n{_TAXI_MAP}\nIts five rows and columns are counted from 0 at the top left; R, G, Y "
            "and B are the four stands. Pickup and Dropoff work on the passenger's stand and at the destination."
        ),
        starts=300,
    ),
    "Blackjack": Game(
        actions=("Stick", "Hit"),
        describe=_describe_blackjack,
        outcome=lambda reward, ended: 0.0 if not ended or reward < 0 else 1.0 if reward > 0 else 0.5,
        success="the dealer is beaten (a draw counts half)",
        rules=(
            "You play blackjack against a dealer. Hit takes a card, Stick ends your turn; the higher sum wins, and "
            "above 21 you lose. You see the sum of your cards, whether an ace among them counts 11, and one card of "
            "the dealer, who takes cards until the sum is 17 or more."
        ),
        starts=280,
        hide=_redraw_hidden_card,
    ),
}
"""Name without version -> what heedful knows."""


def random_lake(seed: int, size: int) -> list[str]:
    """A random lake with a way from start to goal, as gymnasium draws it."""
    frozen_lake = load_library("gymnasium", "envs.toy_text.frozen_lake")
    drawn = random.Random(f"gymnasium lake:{seed}").getrandbits(32)
    rows: list[str] = frozen_lake.generate_random_map(size=size, seed=drawn)
    return rows


# States of other games in words

_MARKED = re.compile(r"\x1b\[[0-9;]*m(.)\x1b\[0m", re.DOTALL)
_CODES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def plain_ansi(text: str) -> str:
    """A rendering in mode `ansi` without its colours: a cell that stood out is put in brackets."""
    return _CODES.sub("", _MARKED.sub(r"[\1]", text)).strip("\n")


def words_of(observation: Any) -> str:
    """An observation as text: numbers with four digits, nested ones in brackets."""
    if isinstance(observation, Mapping):
        return "; ".join(f"{name} {words_of(value)}" for name, value in observation.items())
    if hasattr(observation, "tolist"):
        observation = observation.tolist()
    if isinstance(observation, list | tuple):
        return " ".join(
            f"[{words_of(item)}]" if isinstance(item, list | tuple) else words_of(item) for item in observation
        )
    return f"{observation:.4g}" if isinstance(observation, float) else str(observation)
