"""FrozenLake: cross a random lake to the goal without falling into a hole.

Promise: every task can be solved within the turns and actions that the prompt states, and (task, member, replies)
replays an episode exactly.

The dynamics are gymnasium's FrozenLake on random maps with random distinct start and goal cells: the intended move
happens with probability 1 - slip (gymnasium's `success_rate`), each of the two sideways moves with slip / 2.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import lru_cache

from heedful.envs.common.actions import answer_rules, fault_line, format_reply, read_reply
from heedful.envs.common.demonstrations import choose_plan, played_through, template_thought
from heedful.envs.common.knobs import (
    Instructions,
    ObservationForm,
    check_penalty,
    check_range,
    check_share,
    check_wording,
)
from heedful.envs.common.tasks import check_same_start
from heedful.envs.frozen_lake.maps import ACTIONS, Lake, draw_lake, neighbours, slipped
from heedful.types import Ending, Observation, Step, Task

_NUMBER = {name: number for number, name in enumerate(ACTIONS)}
_TRIES = 10_000
_TRIES_AT_CONSTRUCTION = 2_000


@dataclass(frozen=True, slots=True)
class FrozenLake:
    """Cross a frozen lake; the fields are the knobs. At the defaults a random policy solves about 1 task in 7.

    First observation of seed 2 under `instructions="brief"`, and a demonstrated reply:

    ```
    turns 5 moves 2
    P__O
    __GO
    O___
    _O__
    P 0 0 G 1 2
    ```
    ```
    <think>P 0 0 G 1 2 plan Down Right Right</think><answer>Down || Right</answer>
    ```

    Reward components: `solved` (+1 on reaching the goal) and `format` (minus the penalty, once per faulty turn).
    Outcome: 1 on the goal, else 0. Progress: 1 - remaining / initial shortest distance, cut to [0, 1]; 0 in a hole.
    """

    size: int = 4
    """Rows and columns of the lake."""
    slip: float = 0.0
    """Probability of not going where intended, split equally over the two sideways directions."""
    frozen: float = 0.8
    """Probability that a cell is ice, not a hole."""
    turns: int = 5
    """Most turns of an episode."""
    actions_per_turn: int = 2
    """Most actions executed in one turn."""
    format_penalty: float = 0.1
    """Subtracted once for each turn whose reply has a fault."""
    observation: ObservationForm = "both"
    """What shows the state: the grid, coordinates (row column, from 0 at the top left), or both."""
    instructions: Instructions = "full"
    """`full`: the rules in plain English in the first observation; `brief`: the state and the limits alone."""
    show_reward: bool = False
    """Show each turn's reward in the next observation (for comparison with published set-ups)."""
    shared_noise: bool = False
    """Give all members of a group the same noise (for comparison with published set-ups)."""
    shortest: int = 2
    """Fewest moves of a task's shortest solution; the most is the budget, turns x actions_per_turn."""
    imperfect: float = 0.0
    """Demonstrations: share of turns whose plan is random; the thought states the random plan."""
    template: float = 0.0
    """Demonstrations: share of turns whose thought is a fluent sentence that ignores the state."""

    def __post_init__(self) -> None:
        check_range(self.name, "size", self.size, 2)
        check_range(self.name, "turns", self.turns, 1)
        check_range(self.name, "actions_per_turn", self.actions_per_turn, 1)
        check_range(self.name, "shortest", self.shortest, 1)
        for knob in ("slip", "frozen", "imperfect", "template"):
            check_share(self.name, knob, getattr(self, knob))
        check_penalty(self.name, self.format_penalty)
        check_wording(self.name, self.instructions, self.observation)
        if self.shortest > self.budget:
            raise ValueError(
                f"frozen_lake: no task can be solved within its limits: shortest is {self.shortest} moves, but "
                f"turns x actions_per_turn allows {self.budget}. Lower shortest or raise turns."
            )
        draw_lake(self.size, self.frozen, self.shortest, self.budget, 0, _TRIES_AT_CONSTRUCTION)

    @property
    def name(self) -> str:
        return "frozen_lake"

    @property
    def summary(self) -> str:
        return f"Cross a {self.size}x{self.size} lake without falling into a hole; {self.slip:.0%} slip."

    @property
    def actions(self) -> tuple[str, ...]:
        return ACTIONS

    @property
    def budget(self) -> int:
        """Most actions of an episode."""
        return self.turns * self.actions_per_turn

    def lake(self, seed: int) -> Lake:
        """The start state that a seed draws."""
        return draw_lake(self.size, self.frozen, self.shortest, self.budget, seed, _TRIES)

    def task(self, seed: int) -> Task:
        return self.lake(seed).task

    def episode(self) -> FrozenLakeEpisode:
        return FrozenLakeEpisode(self)

    def demonstrate(self, task: Task, rng: random.Random) -> list[tuple[str, str]]:
        """Play one episode by shortest plans, planned anew each turn; see `imperfect` and `template`."""

        def reply(episode: FrozenLakeEpisode) -> str:
            lake, player = episode.lake, episode.player
            plan = choose_plan(lake.plan(player), ACTIONS, self.actions_per_turn, self.imperfect, rng)
            thought = f"{_place(lake, player, 'P')} {_place(lake, lake.goal, 'G')} plan {' '.join(plan)}"
            if rng.random() < self.template:
                thought = template_thought(rng)
            return format_reply(plan[: self.actions_per_turn], thought)

        return played_through(self.episode(), task, reply)


class FrozenLakeEpisode:
    """One episode; see `FrozenLake`."""

    __slots__ = ("_env", "_noise", "_noise_name", "lake", "player", "turns_left")

    lake: Lake
    player: int

    def __init__(self, env: FrozenLake) -> None:
        self._env = env
        self._noise: random.Random | None = None
        self._noise_name = ""
        self.turns_left = env.turns

    def start(self, task: Task, member: int) -> Observation:
        self.lake = self._env.lake(task.seed)
        check_same_start(self.lake.task, task)
        self.player = self.lake.start
        self._noise_name = str(task.seed) if self._env.shared_noise else f"{task.seed}:{member}"
        return self._observation(self._show(self.lake.draw(self.player)), first=True)

    def step(self, response: str) -> Step:
        env, lake = self._env, self.lake
        read = read_reply(response, ACTIONS, env.actions_per_turn)
        before = self.player
        executed: list[str] = []
        while len(executed) < len(read.actions) and not self._over():
            name = read.actions[len(executed)]
            executed.append(name)
            self._move(_NUMBER[name])
        self.turns_left -= 1
        ending = self._ending()
        rewards: dict[str, float] = {}
        if ending is Ending.SOLVED:
            rewards["solved"] = 1.0
        if read.fault:
            rewards["format"] = -env.format_penalty
        grid = lake.draw(self.player)
        note = fault_line(read, env.instructions == "brief")
        if env.show_reward:
            note += f"reward {sum(rewards.values()):g}\n"
        return Step(
            observation=self._observation(note + self._show(grid)),
            rewards=rewards,
            ending=ending,
            outcome=None if ending is None else float(ending is Ending.SOLVED),
            progress=None if ending is None else self._progress(),
            actions=tuple(executed),
            valid=not read.fault,
            effect=self._effect(before, executed, ending, read.fault),
            state=grid,
        )

    def _over(self) -> bool:
        return self.player == self.lake.goal or self.lake.holes[self.player]

    def _move(self, action: int) -> None:
        slip = self._env.slip
        if slip > 0:
            if self._noise is None:
                self._noise = random.Random(self._noise_name)
            action = slipped(action, slip, self._noise.random())
        self.player = neighbours(self.lake.size)[self.player][action]

    def _ending(self) -> Ending | None:
        if self.player == self.lake.goal:
            return Ending.SOLVED
        if self.lake.holes[self.player]:
            return Ending.FAILED
        return Ending.OUT_OF_TURNS if self.turns_left <= 0 else None

    def _progress(self) -> float:
        if self.lake.holes[self.player]:
            return 0.0
        return max(0.0, 1.0 - self.lake.distances[self.player] / self.lake.distances[self.lake.start])

    def _effect(self, before: int, executed: list[str], ending: Ending | None, fault: str) -> str:
        moves = " ".join(executed) or "nothing executed"
        text = f"{moves}: {_place(self.lake, before, 'P')} -> {_place(self.lake, self.player, 'P')}"
        if ending is Ending.SOLVED:
            text += ", goal"
        elif ending is Ending.FAILED:
            text += ", hole"
        return f"{text}; {fault}" if fault else text

    def _observation(self, text: str, first: bool = False) -> Observation:
        """`text` as it goes on a conversation (or, the first one, begins it), and as one could begin with it."""
        opening = _rules(self._env) + text
        return Observation(opening if first else text, opening)

    def _show(self, grid: str) -> str:
        """What every observation ends with: the limits and the state."""
        env, lake = self._env, self.lake
        if env.instructions == "brief":
            lines = [f"turns {self.turns_left} moves {env.actions_per_turn}"]
        else:
            lines = [f"Turns left: {self.turns_left}. Actions per turn: at most {env.actions_per_turn}."]
        if env.observation != "coordinates":
            lines.append(grid)
        if env.observation != "grid":
            line = f"{_place(lake, self.player, 'P')} {_place(lake, lake.goal, 'G')}"
            if env.observation == "coordinates":
                line += "".join(f" {_place(lake, cell, 'O')}" for cell, hole in enumerate(lake.holes) if hole)
            lines.append(line)
        return "\n".join(lines)


def _place(lake: Lake, cell: int, symbol: str) -> str:
    return f"{symbol} {cell // lake.size} {cell % lake.size}"


@lru_cache(maxsize=64)
def _rules(env: FrozenLake) -> str:
    """What an opening begins with; nothing under brief instructions."""
    if env.instructions == "brief":
        return ""
    lines = [
        f"You cross a frozen lake of {env.size} rows and {env.size} columns. "
        "Reach the goal without stepping into a hole."
    ]
    if env.observation != "coordinates":
        lines.append("In the grid, P is you, _ is ice, O is a hole and G is the goal.")
    if env.observation != "grid":
        holes = ", O is a hole" if env.observation == "coordinates" else ""
        lines.append(
            f"Places are given as row and column, both counted from 0 at the top left: P is you, G is the goal{holes}."
        )
    lines.append(
        f"The actions are {', '.join(ACTIONS)}. Each moves you by one cell; at the edge of the lake you stay in place."
    )
    if env.slip > 0:
        lines.append(
            f"The ice is slippery: with probability {env.slip:g} a move goes to one of the two sides of the "
            "intended direction instead, to each equally often."
        )
    lines.append("Stepping into a hole ends the attempt.")
    lines.append(answer_rules(ACTIONS, env.turns, env.actions_per_turn))
    return "\n".join(lines) + "\n"
