"""textarena's games for one player as environments, although the library draws from the global generator."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from heedful import cli
from heedful.envs.common.actions import format_reply
from heedful.rollout.baselines import random_reply
from heedful.types import Ending, Step
from heedful_envs.adapters.textarena.environment import (
    EXCLUDED,
    PATTERNS,
    TextArena,
    canonical,
    game_of,
    random_move,
    some_moves,
)
from scripted_episodes import play

pytest.importorskip("textarena", reason="the extra textarena is not installed")

pytestmark = pytest.mark.filterwarnings("ignore:All seeds of")

QUICK = (
    "2048-v0-mega-easy",
    "Bandit-v0",
    "Blackjack-v0",
    "Countdown-v0",
    "Cryptarithm-v0",
    "FifteenPuzzle-v0",
    "FrozenLake-v0-random",
    "GuessTheNumber-v0",
    "LightsOut-v0",
    "LogicPuzzle-v0",
    "Mastermind-v0",
    "Minesweeper-v0-small",
    "PegJump-v0",
    "Secretary-v0",
    "Slitherlink-v0",
    "Sudoku-v0-very-easy",
    "ThreeCardMonte-v0",
    "TowerOfHanoi-v0",
)
every_quick_one = pytest.mark.parametrize("id", QUICK)


def at_random(env: TextArena, seed: int, member: int = 0) -> list[Step]:
    rng, task = random.Random(seed), env.task(seed)
    return play(env, task, member, lambda observation, turn: random_reply(env, task, rng))


@every_quick_one
def test_episodes_are_played_to_a_named_end_and_replayed_without_a_trace(id: str) -> None:
    env = TextArena(id=id, turns=8, partial=True)
    state, numpy_state = random.getstate(), np.random.get_state()[1].tolist()
    for seed in range(6):
        steps = at_random(env, seed, member=1)
        random.random()
        assert steps == at_random(env, seed, member=1)
        assert len(steps) <= 8
        assert (steps[-1].outcome == 1.0) == (steps[-1].ending is Ending.SOLVED)
        assert 0.0 <= (steps[-1].outcome or 0.0) <= 1.0
    random.setstate(state)
    at_random(env, 1)
    assert random.getstate() == state
    assert np.random.get_state()[1].tolist() == numpy_state


@every_quick_one
def test_an_agent_that_makes_no_legal_move_earns_nothing(id: str) -> None:
    for partial in (False, True):
        env = TextArena(id=id, turns=4, partial=partial)
        steps = play(env, env.task(2), 0, lambda observation, turn: format_reply(["[hello world]"], ""))
        assert steps[-1].outcome == 0.0
        assert sum(step.rewards.get("game", 0.0) for step in steps) == 0.0


def test_the_members_of_a_group_meet_one_start_and_their_own_noise() -> None:
    env = TextArena(id="2048-v0", turns=3)
    replies = [format_reply([move], "") for move in ("[left]", "[down]", "[left]")]
    ways = {tuple(step.state for step in play(env, env.task(0), m, lambda o, t: replies[t])) for m in range(6)}
    assert len(ways) > 3
    assert env.episode().start(env.task(0), 0) == env.episode().start(env.task(0), 5)


def test_a_game_can_be_won() -> None:
    env = TextArena(id="TowerOfHanoi-v0", turns=9)
    moves = ["[A C]", "A B", "[C B]", "[A C]", "[B A]", "[B C]", "[A C]"]
    steps = play(env, env.task(0), 0, lambda observation, turn: format_reply([moves[turn]], ""))
    assert steps[-1].ending is Ending.SOLVED
    assert dict(steps[-1].rewards) == {"game": 1.0}
    assert len(steps) == 7


def test_the_limit_that_is_told_is_the_one_that_holds_and_reaches_the_game() -> None:
    env = TextArena(id="LightsOut-v0", turns=3)
    episode = env.episode()
    text = episode.start(env.task(0), 0).text
    assert "You have 3 turns" in text
    assert "Turns left: 3." in text
    steps = [episode.step(format_reply([f"[0 {turn}]"], "")) for turn in range(3)]
    assert [step.ending for step in steps[:2]] == [None, None]
    assert "You used all 3 moves" in steps[2].effect


def test_an_unreadable_reply_never_reaches_the_game() -> None:
    env = TextArena(id="Secretary-v0")
    episode = env.episode()
    episode.start(env.task(0), 0)
    before = episode.step("[accept]")
    assert dict(before.rewards) == {"format": -0.1}
    assert before.ending is None
    assert before.observation.text.startswith("Your last reply was invalid: there is no <answer> block")


@pytest.mark.parametrize("id", ["Countdown-v0", "PegJump-v0", "TowerOfHanoi-v0-medium"])
def test_a_game_with_one_start_state_says_so(id: str) -> None:
    with pytest.warns(UserWarning, match=f"All seeds of {id} draw one start state"):
        assert TextArena(id=id, turns=7).task(0).tags == ("one start state",)


@pytest.mark.parametrize(
    ("id", "sentence"),
    [
        ("Wordle-v0", "Wordle is not played, because it downloads word lists"),
        ("Klondike-v0", "cannot be read by Python before 3.12"),
        ("Chess-v0", "not among the games for one player"),
        ("Sudoku", "cannot be made with the options"),
        ("Sudoku-v0-nice", "cannot be made with the options"),
    ],
)
def test_a_game_that_is_not_played_is_refused_in_a_sentence(id: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^textarena: .*{sentence}"):
        TextArena(id=id).task(0)


def test_options_reach_the_game() -> None:
    env = TextArena(id="GuessTheNumber-v0", options="max_number=7")
    assert "between 1 and 7" in env.episode().start(env.task(0), 0).text
    with pytest.raises(ValueError, match="unexpected keyword argument 'depth'"):
        TextArena(id="GuessTheNumber-v0", options="depth=7").task(0)


def test_every_listed_game_has_patterns_that_can_be_filled() -> None:
    rng = random.Random(0)
    for game in PATTERNS:
        assert not {"{", "}"} & set("".join(random_move(f"{game}-v0", rng) for _ in range(20)))
        assert 1 < len(some_moves(f"{game}-v0", 64)) <= 64
    assert not PATTERNS.keys() & EXCLUDED.keys()
    assert game_of("Sudoku-v0-very-easy") == "Sudoku"


def test_equal_states_are_written_alike() -> None:
    class Piece:
        def __init__(self, name: str) -> None:
            self.name = name

    states: list[Any] = [{"b": {3, 1}, "a": np.array([1, 2])}, {"a": [1, 2], "b": {1, 3}}]
    assert canonical(states[0]) == canonical(states[1]) == "{'a': [1, 2], 'b': {1, 3}}"
    assert canonical([Piece("x"), None]) == "[Piece(name='x'), None]"


def test_the_command_line_plays_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["play", "textarena", "--by", "random", "--env.id", "Mastermind-v0"]) == 0
    assert "ended: " in capsys.readouterr().out
