"""Bandit: two arms and their earlier payouts. Pull the better one.

The prompt always shows which arm is better. The outcome judges the choice and has no luck in it. The reward is what
the arm pays.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, ClassVar

from annotated_types import Interval

from heedful.boundary import Share
from heedful.envs.common.actions import answer_rules, fault_line, format_reply, read_reply
from heedful.envs.common.base import BaseEpisode, Played, SolvableEnvironment, remarks
from heedful.envs.common.demonstrations import phrase, template_in, wording
from heedful.envs.common.tasks import task_of
from heedful.types import Ending, Task

_TRIES = 10_000
_LONGEST = 1_000
"""Most payouts of an arm in a prompt."""


@dataclass(frozen=True, slots=True)
class Arms:
    """One start state: the arms by number, in the order in which they are listed."""

    order: tuple[int, int]
    better: int
    payouts: tuple[tuple[int, ...], tuple[int, ...]]
    """The payouts of each arm, by arm number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bandit(SolvableEnvironment):
    """Pull the arm that has paid more often. A random policy is right half of the time.

    Each arm pays 1 with a fixed chance, `good` or `bad`. The shown payouts are drawn with these chances, again and
    again until the better arm has paid strictly more often, so that a reader can be certain. Reward components:
    `payout` (1 or 0, drawn from the pulled arm's chance by the member's noise) and `format`. Outcome: 1 if the better
    arm was pulled, else 0, so the members of a group can differ in reward and agree in outcome. A valid reply ends the
    episode. More than one turn only allows for another try after an invalid reply.
    """

    name: ClassVar[str] = "bandit"
    english: ClassVar[bool] = True
    actions_per_turn: ClassVar[int] = 1

    good: Share = 0.8
    """Chance that the better arm pays."""
    bad: Share = 0.3
    """Chance that the other arm pays."""
    history: Annotated[int, Interval(ge=1, le=_LONGEST)] = 6
    """Past payouts shown of each arm, 1,000 at most."""
    names: tuple[str, str] = ("Fox", "Owl")
    """The names of the arms: the actions. Which is better and which is listed first is drawn per task."""
    shared_noise: bool = False
    """Give all members of a group the same noise (for comparison with published set-ups)."""

    def check(self) -> None:
        if self.good <= self.bad:
            raise ValueError(f"bandit: good must be above bad, but they are {self.good:g} and {self.bad:g}.")
        if len({name.lower() for name in self.names if name.isalnum()}) != 2:
            raise ValueError(f"bandit: names must be two different words of letters or digits, but are {self.names!r}.")
        _draw_arms(self.good, self.bad, self.history, 0)

    @property
    def summary(self) -> str:
        return f"Pull the better of two arms ({self.good:g} against {self.bad:g}) after {self.history} payouts of each."

    @property
    def actions(self) -> tuple[str, ...]:
        return self.names

    def arms(self, seed: int) -> Arms:
        """The start state that a seed draws."""
        return _draw_arms(self.good, self.bad, self.history, seed)

    def task(self, seed: int) -> Task:
        arms = self.arms(seed)
        rows = [f"{arm} {''.join(map(str, arms.payouts[arm]))}" for arm in arms.order]
        return task_of(self.name, "\n".join(rows), seed)

    def right_actions(self, task: Task, before: Sequence[Sequence[str]] = ()) -> dict[str, float]:
        """The better arm."""
        return {self.names[self.arms(task.seed).better]: 1.0}

    def episode(self) -> BanditEpisode:
        return BanditEpisode(self)

    def demonstrate(self, task: Task, rng: random.Random) -> list[tuple[str, str]]:
        """Play one episode, pulling the better arm. See `imperfect` and `template`."""
        episode = self.episode()
        observation = episode.start(task, member=0).text
        choice = self.names[episode.arms.better]
        if rng.random() < self.imperfect:
            choice = rng.choice(self.names)
        if rng.random() < self.template:
            return [(observation, format_reply([choice], template_in(self.thoughts, rng)))]
        rows = [(self.names[arm], episode.arms.payouts[arm]) for arm in episode.arms.order]
        thought = " ".join([*(f"{name} {sum(paid)}" for name, paid in rows), "pull", choice])
        if self.thoughts == "english":
            thought = bandit_thought(rows, choice, wording(rng))
        return [(observation, format_reply([choice], thought))]

    def full_rules(self) -> str:
        return (
            "You choose one of two arms and pull it once. A pull pays 1 or 0, each arm by its own fixed chance. Pull "
            "the arm with the higher chance.\n"
            f"The lines show what each arm paid in {self.history} earlier pull{'s' if self.history > 1 else ''}; the "
            "arm with the higher chance is the one that paid more often there.\n"
            f"The actions are {', '.join(self.names)}.\n{answer_rules(self.names, self.turns, 1)}\n"
        )


class BanditEpisode(BaseEpisode[Bandit]):
    """One episode of `Bandit`."""

    __slots__ = ("_noise_name", "arms")

    arms: Arms

    def begin(self, task: Task, member: int) -> str:
        self.arms = self.env.arms(task.seed)
        self._noise_name = str(task.seed) if self.env.shared_noise else f"{task.seed}:{member}"
        return self._show()

    def play(self, response: str) -> Played:
        env = self.env
        read = read_reply(response, env.names, 1)
        rewards: dict[str, float] = {}
        ending = None if self.turns_left else Ending.OUT_OF_TURNS
        effect = "nothing executed"
        if read.actions:
            arm = env.names.index(read.actions[0])
            right = arm == self.arms.better
            paid = random.Random(self._noise_name).random() < (env.good if right else env.bad)
            rewards["payout"] = float(paid)
            ending = Ending.SOLVED if right else Ending.FAILED
            effect = f"{read.actions[0]}, the {'better' if right else 'worse'} arm, paid {int(paid)}"
        return Played(
            fault=read.fault,
            rewards=rewards,
            ending=ending,
            actions=read.actions,
            note=fault_line(read, env.brief),
            shown=self._show(),
            effect=remarks(effect, read.fault),
            state=f"pulled {read.actions[0]}" if read.actions else "not pulled",
        )

    def _show(self) -> str:
        """The end of every observation: the limits and the state."""
        rows = [f"{self.env.names[arm]} {' '.join(map(str, self.arms.payouts[arm]))}" for arm in self.arms.order]
        return "\n".join([self.limits(1, "One action each."), *rows])


@lru_cache(maxsize=16_384)
def _draw_arms(good: float, bad: float, history: int, seed: int) -> Arms:
    rng = random.Random(f"bandit:{seed}")
    better = rng.randrange(2)
    order = (0, 1) if rng.random() < 0.5 else (1, 0)
    chances = (good, bad) if better == 0 else (bad, good)
    for _ in range(_TRIES):
        first, second = (tuple(int(rng.random() < chance) for _ in range(history)) for chance in chances)
        if sum(first) != sum(second) and (sum(first) > sum(second)) == (better == 0):
            return Arms(order, better, (first, second))
    raise ValueError(
        f"bandit: in {_TRIES:,} draws of {history} payouts the better arm never paid more often, so the prompt could "
        "not tell it: raise good or history, or lower bad."
    )


_LONGEST_ROW = 10
"""Payouts of an arm that a thought repeats. Of a longer row it tells the sum alone."""


def bandit_thought(rows: Sequence[tuple[str, Sequence[int]]], choice: str, words: random.Random) -> str:
    """The payouts of both arms (`rows`: name and payouts) and their sums, then the arm that is pulled."""
    opening = words.choice(
        (
            "I add up what each arm paid.",
            "Let me count the payouts.",
            "First I count how often each arm paid.",
            "I compare the earlier payouts of both arms.",
            "The better arm is the one that paid more often.",
        )
    )
    if len(rows[0][1]) > _LONGEST_ROW:
        form = words.choice(("{name} paid {sum} of {all} times", "{name} has {sum} payouts in {all} pulls"))
    else:
        form = words.choice(
            (
                "{name} paid {row}, which is {sum} in total",
                "{name} paid {row}, that makes {sum}",
                "{name} has {row}, a sum of {sum}",
                "{name} shows {row}, {sum} in all",
            )
        )
    counts = [form.format(name=name, row=" ".join(map(str, paid)), sum=sum(paid), all=len(paid)) for name, paid in rows]
    (worse, fewer), (better, more) = sorted(rows, key=lambda row: sum(row[1]))
    compared = words.choice(
        (
            f"{better} has the higher sum.",
            f"{better} paid more often than {worse}.",
            f"{sum(more)} is more than {sum(fewer)}.",
            f"{better} is ahead with {sum(more)} against {sum(fewer)}.",
            f"{worse} paid less often than {better}.",
        )
    )
    plan = phrase(words, ("I pull", "I will pull", "I choose", "My choice is", "Now I pull", "My pull:"))
    return f"{opening} {words.choice(('; ', '. ', ', and ')).join(counts)}. {compared} {plan} {choice}."
