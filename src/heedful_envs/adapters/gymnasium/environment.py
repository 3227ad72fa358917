"""gymnasium: any of its environments with a discrete action space, as a game in words.

The start state is a function of the seed of the task. The noise after it is a function of seed and member. The stated
limits are enforced, and the step limit of the library is switched off.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Interval

from heedful.boundary import NamesCode
from heedful.envs.common import (
    MOST_PER_TURN,
    PLAN_SHOWN,
    SEPARATOR,
    BaseEpisode,
    Played,
    SolvableEnvironment,
    Turns,
    answer_rules,
    choose_plan,
    fault_line,
    format_reply,
    played_through,
    read_reply,
    remarks,
    template_thought,
)
from heedful.seeds import derive
from heedful.types import Task
from heedful_envs.adapters.gymnasium.games import base_name, known_game
from heedful_envs.adapters.gymnasium.making import (
    begin,
    draws_maps,
    give_back,
    numbered_actions,
    solution_of,
    start_state,
    state_in_words,
    success_threshold,
)
from heedful_envs.adapters.gymnasium.solver import Solution, likely_next
from heedful_envs.adapters.library import ending_of, load_library, read_options, task_of_start

_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gymnasium(SolvableEnvironment):
    """An environment of gymnasium with a discrete action space.

    FrozenLake, CliffWalking, Taxi and Blackjack come with names for their actions, a state in words and a definition of
    success. Others with what `action_names`, `render` and `success` say. Reward components: `game`, the sum of what the
    environment paid in the turn, and `format`. Outcome: 1 on success, else 0 (Blackjack: a draw is 0.5).
    """

    name: ClassVar[str] = "gymnasium"
    package: ClassVar[str] = "gymnasium"
    """The package that is played."""

    id: Annotated[str, NamesCode()] = "Taxi-v4"
    """Which environment: an id of gymnasium's registry (module:id imports the module first)."""
    options: str = ""
    """What is passed to gymnasium.make, as name=value with spaces between, or as JSON."""
    maps: Literal["random", "library"] = "random"
    """FrozenLake alone. random: a random 4x4 map for each task; library: the map that `options` choose."""
    action_names: tuple[str, ...] = ()
    """Names of the actions of an environment that heedful does not know, in the order of their numbers; empty: those
    numbers."""
    render: Annotated[str, NamesCode()] = "auto"
    """How a state is written. auto: in words, for a game that heedful knows, else its mode `ansi`, or the numbers of
    its observation. Or module:function, which gets the environment (without wrappers) and the observation."""
    success: str = "auto"
    """What counts as success. auto: the goal of a game that heedful knows, else `threshold`. threshold: the rewards sum
    up to the environment's reward_threshold. A number: to that. Where that is 0 or less, the environment must also have
    ended by itself. terminated: it ended by itself."""
    turns: Turns = 10
    actions_per_turn: Annotated[int, Interval(ge=1, le=MOST_PER_TURN)] = 2
    """Most actions in one turn."""

    def check(self) -> None:
        if self.render != "auto" and ":" not in self.render:
            raise ValueError(
                f"gymnasium: render must be auto or a function as module:function, but is {self.render!r}."
            )
        if self.success not in ("auto", "threshold", "terminated") and not _NUMBER.fullmatch(self.success):
            raise ValueError(
                f"gymnasium: success must be auto, threshold, terminated or a number, but is {self.success!r:.80}."
            )
        for word in self.action_names:
            if read_reply(format_reply([word], ""), self.action_names, 1).actions != (word,):
                raise ValueError(
                    f"gymnasium: action_names must be different names that an answer can hold, without {SEPARATOR}, "
                    f"tags and spaces around them, found {word!r:.80}."
                )
        chosen = read_options(self.name, "options", self.options)
        if draws_maps(self) and {"desc", "map_name"} & chosen.keys():
            raise ValueError(
                "gymnasium: options choose a map, but maps is random, which draws one for each task. Set --env.maps "
                "library."
            )

    @property
    def summary(self) -> str:
        return f"{self.id}, a game of the library gymnasium in words."

    @property
    def actions(self) -> tuple[str, ...]:
        """The names of the actions. Raises ImportError where the library is missing and has to tell their number."""
        game = known_game(self.id)
        return self.action_names or (game.actions if game else numbered_actions(self))

    @property
    def start_states(self) -> int | None:
        """The number of tasks, if it is small. `None` = many."""
        return getattr(known_game(self.id), "starts", None)

    def task(self, seed: int) -> Task:
        """The task of a seed. If all seeds draw one start state, each seed is a separate task, with a warning."""
        return task_of_start(self, start_state, seed)

    def episode(self) -> GymnasiumEpisode:
        return GymnasiumEpisode(self)

    def demonstrate(self, task: Task, rng: random.Random) -> list[tuple[str, str]]:
        """Play one episode by the best policy. See `imperfect` and `template`. Raises for a game without a solver."""
        best = solution_of(self, task.seed)

        def reply(episode: GymnasiumEpisode) -> str:
            plan = choose_plan(episode.plan(best), self.actions, self.actions_per_turn, self.imperfect, rng)
            vague = rng.random() < self.template
            thought = template_thought(rng) if vague else f"{episode.last_line} plan {' '.join(plan)}"
            return format_reply(plan[: self.actions_per_turn], thought)

        return played_through(self.episode(), task, reply)

    def full_rules(self) -> str:
        game = known_game(self.id)
        told = game.rules if game else f"You play the game {self.id}, one action after the other."
        if self.success == "auto" and game:
            goal = f"It is a success if {game.success}."
        elif self.success == "terminated":
            goal = "It is a success if the game comes to its end within the limits."
        else:
            goal = f"It is a success if the rewards sum up to {success_threshold(self, begin(self, 0)[0]):g} or more."
        names = self.actions
        form = answer_rules(names, self.turns, self.actions_per_turn)
        return f"{told}\n{goal}\nThe actions are {', '.join(names)}.\n{form}\n"


class GymnasiumEpisode(BaseEpisode[Gymnasium]):
    """One episode of `Gymnasium`."""

    __slots__ = ("_game", "_seed", "_shown", "_total")

    _game: Any
    _shown: str

    @property
    def last_line(self) -> str:
        """The state in one line, as thoughts repeat it."""
        lines = self._shown.split("\n")
        return lines[-1] if base_name(self.env.id) != "Taxi" else " ".join(lines)

    def begin(self, task: Task, member: int) -> str:
        env = self.env
        self._seed, self._total = task.seed, 0.0
        self._game, first = begin(env, task.seed)
        noise = derive(task.seed, "noise", member)
        core, game = self._game.unwrapped, known_game(env.id)
        core.np_random = load_library("gymnasium", "utils.seeding").np_random(noise)[0]
        if game:
            game.hide(core)
        self._shown = state_in_words(env, self._game, first)
        return self._show()

    def play(self, response: str) -> Played:
        env = self.env
        names = env.actions
        read = read_reply(response, names, env.actions_per_turn)
        paid, last, over, executed = 0.0, 0.0, False, list[str]()
        for action in read.actions:
            number = names.index(action) + int(getattr(self._game.action_space, "start", 0))
            seen, reward, terminated, truncated, _ = self._game.step(number)
            last = float(reward)
            paid += last
            executed.append(action)
            self._shown = state_in_words(env, self._game, seen)
            if terminated or truncated:
                over = True
                break
        self._total += paid
        ended = bool(over and terminated)
        outcome = self._outcome(last, ended) if over or not self.turns_left else None
        if outcome is not None:
            give_back(env, self._seed, self._game)
            del self._game
        return Played(
            fault=read.fault,
            rewards={"game": paid} if executed else {},
            ending=None if outcome is None else ending_of(outcome, ended),
            outcome=outcome,
            actions=tuple(executed),
            note=fault_line(read, env.brief),
            shown=self._show(),
            effect=remarks(f"paid {paid:g}" if executed else "nothing executed", read.fault),
            state=" / ".join(self._shown.split("\n")),
        )

    def plan(self, best: Solution) -> list[str]:
        """The best actions from here, as far as a thought states them, if everything goes the likeliest way."""
        core, env = self._game.unwrapped, self.env
        state, over, plan = int(core.s), False, list[str]()
        left = self.turns_left * env.actions_per_turn
        while not over and len(plan) < min(left, max(PLAN_SHOWN, env.actions_per_turn)):
            action = best.action(left - len(plan), state)
            plan.append(env.actions[action])
            state, over = likely_next(core, state, action)
        return plan

    def _outcome(self, last: float, ended: bool) -> float:
        env, game = self.env, known_game(self.env.id)
        if env.success == "auto" and game:
            return game.outcome(last, ended)
        if env.success == "terminated":
            return float(ended)
        threshold = success_threshold(env, self._game)
        # Where every step costs, an agent that does nothing has not reached a threshold below zero.
        return float(self._total >= threshold and (threshold > 0 or ended))

    def _show(self) -> str:
        most = self.env.actions_per_turn
        told = "One action each." if most == 1 else f"Actions per turn: at most {most}."
        return f"{self.limits(most, told)}\n{self._shown}"
