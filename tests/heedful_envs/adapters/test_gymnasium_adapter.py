"""gymnasium's games as environments: four that are known by name, and others by what the user says of them."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import pytest

from heedful import cli
from heedful.envs.common.actions import format_reply
from heedful.envs.common.tasks import TaskStream
from heedful.rollout.baselines import random_reply
from heedful.run.evaluation.held_out import measure_baselines
from heedful.types import Ending, Step
from heedful_envs.adapters.gymnasium import making
from heedful_envs.adapters.gymnasium.environment import Gymnasium
from heedful_envs.adapters.gymnasium.games import plain_ansi, words_of
from heedful_envs.adapters.library import has_one_start
from patience import within_cpu_seconds
from scripted_episodes import play

gymnasium = pytest.importorskip("gymnasium", reason="the extra gymnasium is not installed")

pytestmark = pytest.mark.filterwarnings("ignore:All seeds of")

ICE = Gymnasium(id="FrozenLake-v1", options="is_slippery=false")
SLIPPERY = Gymnasium(id="FrozenLake-v1", instructions="brief")
CLIFF = Gymnasium(id="CliffWalking-v1")
TAXI = Gymnasium()
BLACKJACK = Gymnasium(id="Blackjack-v1", actions_per_turn=1)
CARTPOLE = Gymnasium(id="CartPole-v1", success="20", action_names=("push left", "push right"), turns=15)

every_game = pytest.mark.parametrize(
    "env", [ICE, SLIPPERY, CLIFF, TAXI, BLACKJACK, CARTPOLE], ids=lambda env: f"{env.id} {env.options}"
)
solvable = pytest.mark.parametrize("env", [ICE, CLIFF, TAXI], ids=lambda env: env.id)


def at_random(env: Gymnasium, seed: int, member: int = 0) -> list[Step]:
    rng, task = random.Random(seed), env.task(seed)
    return play(env, task, member, lambda observation, turn: random_reply(env, task, rng))


@every_game
def test_episodes_are_played_to_a_named_end_and_replayed(env: Gymnasium) -> None:
    for seed in range(30):
        steps = at_random(env, seed)
        assert steps == at_random(env, seed)
        assert len(steps) <= env.turns
        assert steps[-1].ending in (Ending.SOLVED, Ending.FAILED, Ending.OUT_OF_TURNS)
        assert (steps[-1].outcome == 1.0) == (steps[-1].ending is Ending.SOLVED)
        assert sum(len(step.actions) for step in steps) <= env.turns * env.actions_per_turn


@every_game
def test_a_task_is_a_function_of_its_seed_and_every_split_has_some(env: Gymnasium) -> None:
    again = dataclasses.replace(env)
    tasks = [env.task(seed) for seed in range(80)]
    assert tasks == [again.task(seed) for seed in range(80)]
    assert {task.split for task in tasks} == {"train", "val", "test"}
    assert env.episode().start(tasks[0], 0) == env.episode().start(tasks[0], 5)


@solvable
def test_the_solver_solves_every_task_within_the_limits(env: Gymnasium) -> None:
    for seed in range(60):
        pairs = env.demonstrate(env.task(seed), random.Random(seed))
        steps = play(env, env.task(seed), 0, lambda observation, turn, pairs=pairs: pairs[turn][1])
        assert steps[-1].ending is Ending.SOLVED
        assert [pair[0] for pair in pairs[1:]] == [step.observation.text for step in steps[:-1]]


def test_the_members_of_a_group_meet_one_start_and_their_own_noise() -> None:
    replies = [format_reply(["Down", "Right"], "")] * 10

    def ways(env: Gymnasium) -> set[str]:
        return {
            " ".join(step.state for step in play(env, env.task(3), member, lambda o, turn: replies[turn]))
            for member in range(12)
        }

    assert len(ways(SLIPPERY)) > 3


def test_the_dealers_hidden_card_is_noise_and_not_part_of_the_task() -> None:
    task = BLACKJACK.task(0)
    stick = format_reply(["Stick"], "")
    rewards = {play(BLACKJACK, task, member, lambda o, turn: stick)[-1].rewards["game"] for member in range(40)}
    assert {-1.0, 1.0} <= rewards
    assert len({BLACKJACK.task(seed).id for seed in range(2_000)}) <= 280


def test_a_draw_is_half_a_success() -> None:
    outcomes = {at_random(BLACKJACK, seed)[-1].outcome for seed in range(80)}
    assert outcomes == {0.0, 0.5, 1.0}


def test_the_state_is_told_in_words_that_an_agent_can_act_on() -> None:
    assert TAXI.episode().start(TAXI.task(0), 0).text.endswith("taxi 3 0\npassenger B 4 3\nto R 0 0")
    text = SLIPPERY.episode().start(SLIPPERY.task(0), 0).text
    assert text.startswith("turns 10 moves 2\nP")
    assert text.endswith("\nP 0 0 G 3 3")
    assert "sum " in BLACKJACK.episode().start(BLACKJACK.task(1), 0).text


def test_what_garbage_does_not_reach_is_not_won() -> None:
    acrobot = Gymnasium(id="Acrobot-v1", turns=3)  # its threshold of -100 is "reached" by doing nothing for 6 steps
    assert at_random(acrobot, 0)[-1].outcome == 0.0
    steps = play(TAXI, TAXI.task(0), 0, lambda observation, turn: "nothing")
    assert len(steps) == TAXI.turns
    assert steps[-1].outcome == 0.0
    assert all(dict(step.rewards) == {"format": -0.1} for step in steps)


def test_a_game_with_one_start_state_says_so_and_can_be_played() -> None:
    with pytest.warns(UserWarning, match="All seeds of CliffWalking-v1 draw one start state"):
        task = Gymnasium(id="CliffWalking-v1", turns=9).task(0)
    assert task.tags == ("one start state",)
    assert len(TaskStream(CLIFF, "val", 0).next(20)) == 20


def test_baselines_of_a_game_with_few_start_states_are_measured() -> None:
    env = Gymnasium(id="Blackjack-v1", turns=2, actions_per_turn=1)
    baselines = measure_baselines(env, "val", 12)
    assert baselines.random.n == 12
    assert baselines.fixed.value is not None
    assert set(baselines.sequence) <= set(env.actions)


def brackets(environment: Any, observation: Any) -> str:
    return f"<{int(environment.s)}>"


def test_a_renderer_of_ones_own_is_asked() -> None:
    env = Gymnasium(render=f"{__name__}:brackets", instructions="brief")
    assert env.episode().start(env.task(0), 0).text.endswith(">")


def test_renderings_lose_their_colours_and_keep_what_stood_out() -> None:
    assert plain_ansi("  (Down)\nS\x1b[41mF\x1b[0mF\n") == "  (Down)\nS[F]F"
    assert words_of([0.123456, [1, 2.0]]) == "0.1235 [1 2]"
    assert words_of({"a": 1}) == "a 1"


@pytest.mark.parametrize(
    ("knobs", "sentence"),
    [
        ({"id": "Nope-v1"}, "Nope-v1 cannot be made"),
        ({"id": "Pendulum-v1"}, "only discrete ones"),
        ({"id": "Blackjack-v1", "options": "foo=1"}, "unexpected keyword argument"),
        ({"action_names": ("a", "b")}, "has 6 actions of at most 10,000, and 2 names"),
        ({"turns": 2}, "cannot be solved within 2 turns of 2 actions"),
    ],
)
def test_what_cannot_be_played_is_refused_in_a_sentence(knobs: dict[str, Any], sentence: str) -> None:
    env = Gymnasium(**knobs)
    with pytest.raises(ValueError, match=f"^gymnasium: .*{sentence}"):
        [env.task(seed) for seed in range(9)]


@pytest.mark.parametrize(
    ("knobs", "sentence"),
    [
        ({"success": "often"}, "success must be auto"),
        ({"render": "nothing"}, "render must be auto or a function"),
        ({"action_names": ("a", "A")}, "must be different names"),
        ({"action_names": ("a||b", "c")}, r"that an answer can hold, .* found 'a\|\|b'"),
        ({"action_names": (" a", "c")}, "that an answer can hold, .* found ' a'"),
        ({"id": "FrozenLake-v1", "options": "map_name=8x8"}, "Set --env.maps library"),
    ],
)
def test_knobs_that_do_not_fit_are_refused_at_once(knobs: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^gymnasium: .*{sentence}"):
        Gymnasium(**knobs)


class Odd(gymnasium.Env):  # type: ignore[misc]
    """A game, of which a test changes one part."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}
    action_space: Any = gymnasium.spaces.Discrete(2)
    played: ClassVar[list[Any]] = []
    render_mode = None

    def __init__(self, render_mode: str | None = None) -> None:
        pass

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return 0, {}

    def step(self, action: Any) -> Any:
        self.played.append(action)
        return 1, 1.0, False, False, {}


@pytest.fixture
def odd(request: pytest.FixtureRequest) -> Iterator[type[Odd]]:
    kind = type("OddOne", (Odd,), {**request.param, "played": []})
    gymnasium.register("Odd-v0", kind)
    for kept in (has_one_start, making.start_state, making.numbered_actions, making._idle):
        kept.cache_clear()
    yield kind
    del gymnasium.registry["Odd-v0"]


def shade(core: Any, observation: Any) -> str:
    return f"shade {observation[0]}"


def raising(error: BaseException) -> Any:
    def call(*_: Any, **__: Any) -> Any:
        raise error

    return call


@pytest.mark.parametrize("odd", [{"action_space": gymnasium.spaces.Discrete(3, start=-1)}], indirect=True)
def test_actions_whose_numbers_begin_elsewhere_are_played_as_such(odd: type[Odd]) -> None:
    env = Gymnasium(id="Odd-v0", success="terminated", actions_per_turn=3)
    assert env.actions == ("-1", "0", "1")
    play(env, env.task(0), 0, lambda observation, turn: format_reply(["-1", "0", "1"], ""))
    assert odd.played[:3] == [-1, 0, 1]


@pytest.mark.parametrize(
    ("odd", "sentence"),
    [
        ({"action_space": gymnasium.spaces.Discrete(2**40)}, "Odd-v0 has 1,099,511,627,776 actions of at most"),
        (
            {"__init__": raising(AttributeError("no end"))},
            r"cannot be made with the options .*Error: no end \(",
        ),
        (
            {"reset": lambda self, seed=None, options=None: (np.zeros(10**7), {})},
            "an observation of 10,000,000 numbers is too long to be read in words",
        ),
    ],
    indirect=["odd"],
)
def test_an_odd_environment_is_named_with_what_is_odd(odd: type[Odd], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^gymnasium: .*{sentence}"):
        Gymnasium(id="Odd-v0", success="terminated").task(0)


@pytest.mark.parametrize(
    "odd", [{"reset": lambda self, seed=None, options=None: (np.full(10**6, seed % 3), {})}], indirect=True
)
def test_a_picture_names_its_task_where_a_renderer_writes_the_state(odd: type[Odd]) -> None:
    env = Gymnasium(id="Odd-v0", success="terminated", render=f"{__name__}:shade")
    starts = {env.task(seed).id: env.episode().start(env.task(seed), 0).text for seed in range(20)}
    assert len(starts) == 3
    assert all("shade" in text for text in starts.values())


@pytest.mark.parametrize("env", [ICE, SLIPPERY, CLIFF, TAXI], ids=lambda env: f"{env.id} {env.options}")
def test_the_largest_budget_is_solved_as_soon_as_no_chance_changes_any_more(env: Gymnasium) -> None:
    large = dataclasses.replace(env, turns=10_000, actions_per_turn=1_000)
    with within_cpu_seconds(60.0):
        assert list(large.demonstrate(large.task(1), random.Random(0)))


def test_only_games_that_list_their_transitions_are_demonstrated() -> None:
    with pytest.raises(ValueError, match="only games that list their transitions"):
        BLACKJACK.demonstrate(BLACKJACK.task(0), random.Random(0))


@pytest.mark.parametrize("who", ["random", "solver"])
def test_the_command_line_plays_it(who: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["play", "gymnasium", "--by", who, "--env.id", "CliffWalking-v1"]) == 0
    shown = capsys.readouterr().out
    assert "You walk along a cliff" in shown
    assert ("outcome 1 (success)" in shown) == (who == "solver")
