"""What the adapters have in common: libraries that are missing, options, floors of scores, isolated random state."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import subprocess
import sys
import threading
import tomllib
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from heedful import cli, envs
from heedful_envs.adapters.global_random import OwnRandom
from heedful_envs.adapters.library import (
    LIBRARIES,
    ONE_START,
    above_floor,
    is_installed,
    load_library,
    read_options,
    task_of_start,
    write_options,
)
from patience import PATIENCE

PROJECT = Path(__file__).parents[3] / "pyproject.toml"


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if no library of an adapter were installed."""
    find = importlib.util.find_spec
    hidden = {module.partition(".")[0] for module in LIBRARIES.values()}
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name in hidden else find(name, *a))
    for module in [name for name in sys.modules if name.partition(".")[0] in hidden]:
        monkeypatch.setitem(sys.modules, module, None)
    for module in LIBRARIES.values():
        monkeypatch.setitem(sys.modules, module, None)
    for module in [name for name in sys.modules if name.startswith("heedful_envs.adapters.")]:
        for remembered in vars(sys.modules[module]).values():
            if hasattr(remembered, "cache_clear"):
                remembered.cache_clear()  # what other tests have drawn with the library


@pytest.mark.usefixtures("nothing_installed")
@pytest.mark.parametrize("name", LIBRARIES)
def test_a_missing_library_is_answered_with_the_extra_that_brings_it(name: str, capsys: Any) -> None:
    assert not is_installed(name)
    extra = name.replace("_", "-")  # as the package spells it: older pips find no other spelling
    assert extra in tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"]
    with pytest.raises(ImportError, match=rf'pip install "heedful\[{extra}\]"'):
        load_library(name)
    env = envs.ENVIRONMENTS.get_class(name)(instructions="brief")
    assert env.name == name
    assert env.summary
    assert cli.run(["play", name, "--by", "random", "--seed", "771"]) in (1, 2)
    shown = capsys.readouterr()
    assert f'pip install "heedful[{extra}]"' in " ".join((shown.out + shown.err).split())


@pytest.mark.usefixtures("nothing_installed")
def test_the_list_of_environments_says_which_library_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["envs"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    absent = [name for name in LIBRARIES if f'pip install "heedful[{name.replace("_", "-")}]"' not in shown]
    assert absent == []
    assert "Left, Down, Right, Up" in shown


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("", {}),
        ("a=1 b=x", {"a": 1, "b": "x"}),
        ("slow=False p=0.5 none=None", {"slow": False, "p": 0.5, "none": None}),
        ('{"a": [1, 2]}', {"a": [1, 2]}),
        ("a=[1,2] word='two words'", {"a": [1, 2], "word": "two words"}),
    ],
)
def test_options_are_read_from_pairs_or_json(text: str, options: dict[str, Any]) -> None:
    read = read_options("game", "options", text)
    assert read == options
    assert write_options(read) == write_options(dict(reversed(read.items())))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a", "found 'a'"),
        ("1=2", "found '1=2'"),
        ("{1", "as a JSON object, found text"),
        ("a='b", "No closing quotation"),
    ],
)
def test_options_that_cannot_be_read_are_refused(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=f"options .*{sentence}"):
        read_options("game", "options", text)


@pytest.mark.parametrize(
    ("score", "floor", "worth"),
    [(1.0, 0.0, 1.0), (1.0, 0.9, 1.0), (0.01, 0.01, 0.0), (0.0, 0.0, 0.0), (0.6, 0.2, 0.5), (0.5, 1.0, 0.0)],
)
def test_what_garbage_is_paid_is_worth_nothing_and_full_marks_one(score: float, floor: float, worth: float) -> None:
    assert above_floor(score, floor) == pytest.approx(worth)


class Game(NamedTuple):
    id: str
    name: str = "game"


def always(env: Any, seed: int) -> str:
    return "start"


def by_forty(env: Any, seed: int) -> str:
    return str(seed // 40)


def draw() -> tuple[float, float]:
    return random.random(), float(np.random.rand())


def test_foreign_draws_follow_their_owner_and_leave_no_trace() -> None:
    outside = random.getstate(), np.random.get_state()[1].tolist(), np.random.get_state()[2]
    one, other = OwnRandom(1, "a"), OwnRandom(2, "a")
    seen: dict[str, list[tuple[float, float]]] = {"one": [], "other": [], "again": []}
    for _ in range(3):
        with one:
            seen["one"].append(draw())
        with other:
            seen["other"].append(draw())
            with OwnRandom(3):
                draw()
    with OwnRandom(1, "a"):
        seen["again"] = [draw() for _ in range(3)]
    assert seen["one"] == seen["again"] != seen["other"]
    assert (random.getstate(), np.random.get_state()[1].tolist(), np.random.get_state()[2]) == outside


def test_threads_draw_from_their_own_states() -> None:
    drawn: dict[int, list[tuple[float, float]]] = {}

    def play(seed: int) -> None:
        own = OwnRandom(seed)
        drawn[seed] = []
        for _ in range(50):
            with own:
                drawn[seed].append(draw())

    threads = [threading.Thread(target=play, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed in range(4):
        with OwnRandom(seed):
            assert drawn[seed] == [draw() for _ in range(50)]


def test_an_error_inside_leaves_no_trace_either() -> None:
    outside = random.getstate()
    with pytest.raises(ZeroDivisionError), OwnRandom(5):
        random.random() / 0
    assert random.getstate() == outside


def test_one_start_state_is_told_in_a_warning() -> None:
    with pytest.warns(UserWarning, match=r"All seeds of Cliff draw one start state.*nothing that a thought could"):
        task = task_of_start(Game("Cliff"), always, 3)
    assert task.tags == (ONE_START,)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert task_of_start(Game("Lake"), by_forty, 3).id == task_of_start(Game("Lake"), by_forty, 4).id


@pytest.mark.parametrize(
    ("name", "knob", "games"),
    [
        ("textarena", "id", ["2048-v0", "LogicPuzzle-v0", "Slitherlink-v0"]),
        ("reasoning_gym", "dataset", ["chain_sum", "graph_color"]),
    ],
)
def test_tasks_are_the_same_in_every_process(name: str, knob: str, games: list[str]) -> None:
    if not is_installed(name):
        pytest.skip(f"the extra {name} is not installed")
    program = f"""
import json, sys, warnings
warnings.simplefilter("ignore")
from heedful.envs import ENVIRONMENTS
print(json.dumps([[ENVIRONMENTS[{name!r}]({knob}=game).task(seed).id for seed in range(3)] for game in sys.argv[1:]]))
"""
    there = subprocess.run(
        [sys.executable, "-c", program, *games],
        env=os.environ | {"PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=True,
    )
    here = [[envs.ENVIRONMENTS.get_class(name)(**{knob: game}).task(seed).id for seed in range(3)] for game in games]
    assert json.loads(there.stdout) == here


def test_an_episode_that_is_held_to_the_end_of_the_process_does_not_keep_it_from_ending() -> None:
    # Python 3.11 begins no thread while it ends, and waits for it for ever. OpenEnv and verifiers close in a thread.
    program = """
import threading
from heedful_envs.adapters.openenv.environment import OpenEnv

class Held:
    def close(self):
        threading.Thread(target=int).start()

kept = OpenEnv().episode()
kept.held = Held()
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE)
    assert (ended.returncode, ended.stderr) == (0, "")
