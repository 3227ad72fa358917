"""`heedful play`: people, the solver, random players and models in one episode each, and ways to leave it."""

import io
from collections.abc import Callable
from pathlib import Path

import pytest

from heedful import cli
from heedful.boundary.foreign_text import LONGEST_SHOWN
from heedful.envs.common.tasks import TaskStream
from heedful.envs.frozen_lake.environment import FrozenLake
from heedful.envs.toys.echo import Echo

Typed = Callable[..., None]

OWN = '''
from dataclasses import dataclass
from heedful.envs.common.tasks import task_of
from heedful.types import Ending, Observation, Step

@dataclass(frozen=True)
class Door:
    """A door that opens to one word."""

    word: str = "sesame"
    turns: int = 3
    dots: int = 3

    @property
    def name(self):
        return "door"

    def task(self, seed):
        return task_of("door", str(seed), seed)

    def episode(self):
        return Attempt(self.word, self.dots)

class Attempt:
    def __init__(self, word, dots):
        self.word, self.dots = word, dots

    def start(self, task, member):
        return Observation("Say [the word].")

    def step(self, response):
        if response == "break":
            raise RuntimeError("the hinges are gone")
        opened = response == self.word
        return Step(Observation("." * self.dots), {"opened": float(opened)}, Ending.SOLVED if opened else None,
                    1.0 if opened else None, effect=f"you said {response}")
'''


def asked(split: str = "val", seed: int = 0) -> str:
    """The letter that Echo asks for in the task that is played."""
    env = Echo()
    return env.rows(TaskStream(env, split, seed).next(1)[0].seed)[0][0]


def test_a_person_plays_with_bare_actions(typed: Typed, capsys: pytest.CaptureFixture[str]) -> None:
    typed("nonsense", asked().lower())
    assert cli.run(["play", "echo"]) == 0
    shown = capsys.readouterr().out
    assert "Repeat the letter" in shown  # people get the rules, though the preset leaves them away
    assert "'nonsense' is no action here" in shown
    assert f"executed: {asked()}" in shown
    assert "reward:   solved +1" in shown
    assert "ended: solved, outcome 1 (success), reward 1" in shown


def test_a_reply_with_tags_goes_to_the_environment_faults_and_all(
    typed: Typed, capsys: pytest.CaptureFixture[str]
) -> None:
    typed("<think>hm</think><answer>Nothing</answer>")
    assert cli.run(["play", "echo"]) == 0
    shown = capsys.readouterr().out
    assert "executed: nothing (not a valid reply)" in shown
    assert "format -0.1" in shown


def test_seed_and_split_choose_the_task(typed: Typed, capsys: pytest.CaptureFixture[str]) -> None:
    typed(asked("test", 4))
    assert cli.run(["play", "echo", "--split", "test", "--seed", "4"]) == 0
    assert "outcome 1 (success)" in capsys.readouterr().out


def test_a_task_is_played_by_the_seed_that_rollouts_name(typed: Typed, capsys: pytest.CaptureFixture[str]) -> None:
    typed("quit")
    assert cli.run(["play", "frozen_lake", "--task", "263904178418276"]) == 0
    assert f"task {FrozenLake().task(263904178418276).id} of train" in capsys.readouterr().out


@pytest.mark.parametrize("lines", [("down", "quit"), ("down",)], ids=["quit", "end of input"])
def test_an_episode_can_be_left(lines: tuple[str, ...], typed: Typed, capsys: pytest.CaptureFixture[str]) -> None:
    typed(*lines)
    assert cli.run(["play", "frozen_lake", "--env.frozen", "1"]) == 0
    shown = capsys.readouterr().out
    assert "turn 2 of at most 5" in shown
    assert shown.endswith("left before the end\n")


def test_ctrl_c_leaves_too(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    class Interrupted(io.StringIO):
        def readline(self, size: int | None = -1) -> str:
            raise KeyboardInterrupt

    monkeypatch.setattr("sys.stdin", Interrupted())
    assert cli.run(["play", "echo"]) == 0
    assert "left before the end" in capsys.readouterr().out


@pytest.mark.parametrize("flags", [["--seed", "5"], ["--seed", "6", "--env.slip", "0.5", "--env.turns", "40"]])
def test_the_solver_is_shown_to_solve(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["play", "frozen_lake", "--by", "solver", *flags]) == 0
    shown = capsys.readouterr().out
    assert "plan " in shown
    assert "left before the end" not in shown
    if "--env.slip" not in flags:
        assert "outcome 1 (success)" in shown


def test_a_random_player_plays_to_the_end_and_equal_seeds_play_alike(capsys: pytest.CaptureFixture[str]) -> None:
    games = []
    for seed in ("1", "1", "2"):
        assert cli.run(["play", "sokoban", "--by", "random", "--seed", seed]) == 0
        games.append(capsys.readouterr().out)
    assert "ended: " in games[0]
    assert games[0] == games[1] != games[2]


def test_a_model_shows_what_it_thought_and_how_sure_it_was(echo_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["play", "--by", str(echo_run), "--seed", "3"]) == 0
    shown = capsys.readouterr().out
    assert "checkpoint of step 2" in shown
    assert "turns 1 moves 1\necho " in shown  # the brief prompts it was trained with
    assert "<think>" in shown
    assert "log p / token" in shown
    assert "entropy / token" in shown


def test_the_untrained_seedling_plays(echo_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["play", "echo", "--by", "seedling", "--seedling.steps", "30", "--sampling.greedy"]) == 0
    assert "the untrained seedling in echo" in capsys.readouterr().out


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "own_door.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "own_door:Door"


def test_an_environment_of_ones_own_gets_the_text_as_typed(
    own: str, typed: Typed, capsys: pytest.CaptureFixture[str]
) -> None:
    typed("open up", "please")
    assert cli.run(["play", own, "--env.word", "please"]) == 0
    shown = capsys.readouterr().out
    assert "Say [the word]." in shown
    assert "effect:   you said open up" in shown
    assert "ended: solved" in shown


def test_a_text_without_end_is_cut(own: str, typed: Typed, capsys: pytest.CaptureFixture[str]) -> None:
    typed("x" * 30_000, "sesame")
    assert cli.run(["play", own, "--env.dots", "1000000"]) == 0
    shown = capsys.readouterr().out
    assert "(1,000,000 characters in all)" in shown  # the observation
    assert "(30,009 characters in all)" in shown  # the effect
    assert len(shown) < 2 * LONGEST_SHOWN + 2000


def test_an_environment_that_breaks_is_said_to_have_broken(
    own: str, typed: Typed, capsys: pytest.CaptureFixture[str]
) -> None:
    typed("break")
    assert cli.run(["play", own]) == 1
    assert "the environment broke: RuntimeError: the hinges are gone" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "Expected an environment after `heedful play`"),
        (["maze"], "no environment or preset named 'maze'"),
        (["echo", "--checkpoint", "best"], "--checkpoint is for --by RUN"),
        (["frozen_lake", "--by", "solver", "--member", "2"], "under the noise of member 0"),
        (["echo", "--member", "-1"], "--member: expected a whole number of at least 0, found -1"),
        (["own_door:Door", "--by", "random"], "door has neither `actions` nor `random_answer`"),
        (["own_door:Door", "--by", "solver"], "door has no solver"),
        (["bandit", "--by", "persn"], "found 'persn'. Did you mean person?"),
        (["bandit", "--by", "Random"], "found 'Random'. Did you mean random?"),
        (["bandit", "--by", "./solver"], "found './solver'. Did you mean solver?"),
        (["bandit", "--by", "seedling", "--picture", "a.png"], "--picture is for --by person, solver, random"),
        (["bandit", "--by", "HTTP://127.0.0.1:1"], "--model-name"),
    ],
)
def test_what_cannot_be_played_is_refused_in_a_sentence(
    own: str, words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["play", *words]) == 2
    assert sentence in capsys.readouterr().err


def test_a_run_in_the_place_of_an_environment_is_told_how_it_plays(
    echo_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["play", str(echo_run)]) == 2
    assert f"found the run {echo_run}. To watch it play: heedful play --by {echo_run}" in capsys.readouterr().err


def test_a_runs_environment_is_not_swapped_for_another(echo_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["play", "bandit", "--by", str(echo_run)]) == 2
    assert "was trained in echo, but bandit was named too" in capsys.readouterr().err


def test_a_models_words_are_weighed_against_named_references(
    echo_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["play", "--by", str(echo_run), "--seed", "3"]) == 0
    shown = capsys.readouterr().out
    assert "References: the first 15 evaluation tasks of val (echo-" in shown
    assert "nats in all of at most 2.77 (15 references); most: " in shown
    assert cli.run(["play", "--by", str(echo_run), "--references", "0"]) == 0
    assert "References" not in capsys.readouterr().out
