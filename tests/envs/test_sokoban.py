"""Sokoban: its moves, its proven lengths, its rewards, its words."""

from __future__ import annotations

import itertools
import time
from collections import deque

import pytest

from heedful.envs.common.actions import format_reply
from heedful.envs.sokoban.environment import Sokoban, SokobanEpisode
from heedful.envs.sokoban.levels import ACTIONS, Room
from heedful.types import Ending, Step


def room_of(*rows: str) -> tuple[Room, int, tuple[int, ...]]:
    """A room drawn by hand, square, with its player and boxes."""
    text = "".join(rows)
    found = {symbol: [cell for cell, mark in enumerate(text) if mark in symbol] for symbol in ("#", "O*S", "PS", "X*")}
    walls = tuple(mark == "#" for mark in text)
    room = Room(len(rows), walls, tuple(found["O*S"]), tuple(0 for _ in text))
    return room, found["PS"][0], tuple(found["X*"])


def act(episode: SokobanEpisode, *actions: str) -> Step:
    return episode.step(format_reply(actions, "a thought"))


def place(episode: SokobanEpisode, *rows: str) -> None:
    episode.room, episode.player, episode.boxes = room_of(*rows)


def started() -> SokobanEpisode:
    env = Sokoban()
    episode = env.episode()
    episode.start(env.task(0), 0)
    return episode


@pytest.mark.parametrize(
    ("before", "action", "after"),
    [
        (("#####", "#P__#", "#___#", "#___#", "#####"), "Right", "#####\n#_P_#\n#___#\n#___#\n#####"),
        (("#####", "#P__#", "#___#", "#___#", "#####"), "Up", "#####\n#P__#\n#___#\n#___#\n#####"),
        (("#####", "#PX_#", "#___#", "#___#", "#####"), "Right", "#####\n#_PX#\n#___#\n#___#\n#####"),
        (("#####", "#PX_#", "#___#", "#___#", "#####"), "Left", "#####\n#PX_#\n#___#\n#___#\n#####"),
        (("#####", "#_PX#", "#___#", "#___#", "#####"), "Right", "#####\n#_PX#\n#___#\n#___#\n#####"),
        (("#####", "#P__#", "#X__#", "#X__#", "#####"), "Down", "#####\n#P__#\n#X__#\n#X__#\n#####"),
        (("#####", "#S__#", "#X__#", "#O__#", "#####"), "Down", "#####\n#O__#\n#P__#\n#*__#\n#####"),
    ],
)
def test_a_move_changes_the_grid_as_the_rules_say(before: tuple[str, ...], action: str, after: str) -> None:
    room, player, boxes = room_of(*before)
    assert room.draw(*room.move(player, boxes, ACTIONS.index(action))) == after


def breadth_first(room: Room, player: int, boxes: tuple[int, ...], longest: int) -> int | None:
    """The length of a shortest solution, found without any bound."""
    depths = {(player, boxes): 0}
    queue = deque(depths)
    while queue:
        state = queue.popleft()
        if state[1] == room.targets:
            return depths[state]
        for action in range(4):
            following = room.move(*state, action)
            if following not in depths and depths[state] < longest:
                depths[following] = depths[state] + 1
                queue.append(following)
    return None


@pytest.mark.parametrize("env", [Sokoban(), Sokoban(boxes=2, turns=6), Sokoban(walls=0.3, shortest=6)])
def test_the_solver_agrees_with_a_plain_search_from_every_kind_of_state(env: Sokoban) -> None:
    unsolved = 0
    for seed in range(25):
        level = env.start_state(seed)
        player, boxes = level.player, level.boxes
        for action in itertools.islice(itertools.cycle([0, 2, 1, 3, 3]), seed):
            player, boxes = level.room.move(player, boxes, action)
        found = level.room.solve(player, boxes, env.budget)
        expected = breadth_first(level.room, player, boxes, env.budget)
        unsolved += expected is None
        assert (None if found is None else len(found)) == expected
    assert 0 < unsolved < 25


def test_shortest_solutions_stay_between_the_knob_and_the_budget() -> None:
    env = Sokoban(turns=4, shortest=5)
    lengths = set()
    for seed in range(150):
        level = env.start_state(seed)
        assert breadth_first(level.room, level.player, level.boxes, env.budget) == level.shortest
        lengths.add(level.shortest)
    assert lengths == {5, 6, 7, 8}


def test_a_level_is_drawn_in_milliseconds() -> None:
    env = Sokoban()
    times = []
    for seed in range(10_000, 10_200):
        before = time.process_time()
        env.start_state(seed)
        times.append(time.process_time() - before)
    assert sorted(times)[100] < 0.01


def test_pushing_the_last_box_home_solves_and_leaves_the_rest_unexecuted() -> None:
    episode = started()
    place(episode, "######", "#PXO_#", "#____#", "#____#", "#____#", "######")
    step = act(episode, "Right", "Right")
    assert (step.ending, step.outcome, step.progress, step.actions) == (Ending.SOLVED, 1.0, 1.0, ("Right",))
    assert dict(step.rewards) == {"box_on": 1.0, "step": -0.1, "solved": 10.0}
    assert step.state == "######\n#_P*_#\n#____#\n#____#\n#____#\n######"


def test_a_box_pushed_on_and_off_again_earns_nothing_but_the_steps() -> None:
    env = Sokoban(boxes=2, turns=5)
    episode = env.episode()
    episode.start(env.task(0), 0)
    place(episode, "######", "#PXO_#", "#____#", "#____#", "#X_O_#", "######")
    assert dict(act(episode, "Right").rewards) == {"box_on": 1.0, "step": -0.1}
    assert dict(act(episode, "Right").rewards) == {"box_off": -1.0, "step": -0.1}
    assert dict(act(episode, "Up", "Up").rewards) == {"step": -0.2}


def test_running_out_of_turns_reports_the_share_of_boxes_on_targets() -> None:
    env = Sokoban(boxes=2, turns=5)
    episode = env.episode()
    episode.start(env.task(0), 0)
    place(episode, "######", "#PXO_#", "#____#", "#____#", "#X_O_#", "######")
    steps = [act(episode, "Right"), *(act(episode, "Left") for _ in range(4))]
    assert [step.ending for step in steps] == [None] * 4 + [Ending.OUT_OF_TURNS]
    assert (steps[-1].outcome, steps[-1].progress) == (0.0, 0.5)


def test_the_state_is_told_whole_in_every_form() -> None:
    expected = {
        "grid": "######\n#P_X_#\n#__#_#\n#__O_#\n#____#\n######",
        "coordinates": "P 1 1 X 1 3 O 3 3 # 2 3",
        "both": "######\n#P_X_#\n#__#_#\n#__O_#\n#____#\n######\nP 1 1 X 1 3 O 3 3",
    }
    for form, text in expected.items():
        env = Sokoban(observation=form, instructions="brief")  # type: ignore[arg-type]
        episode = env.episode()
        episode.start(env.task(0), 0)
        place(episode, "######", "#P_X_#", "#__#_#", "#__O_#", "#____#", "######")
        assert act(episode, "Left").observation.text == f"turns 4 moves 2\n{text}"


def test_full_instructions_are_true_for_the_configuration() -> None:
    env = Sokoban(size=7, boxes=2, turns=10)
    text = env.episode().start(env.task(0), 0).text
    assert "2 boxes onto 2 targets in a room of 7 rows and 7 columns" in text
    assert "reward" not in text


def test_a_configuration_without_solvable_tasks_is_refused() -> None:
    with pytest.raises(ValueError, match="no task can be solved within its limits"):
        Sokoban(turns=1)
    with pytest.raises(ValueError, match="no task that can be solved within its limits"):
        Sokoban(walls=1.0)
    with pytest.raises(ValueError, match="boxes must be between 1 and 15"):
        Sokoban(boxes=16)
