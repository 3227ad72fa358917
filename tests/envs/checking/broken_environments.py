"""An environment that keeps every rule, and others that each break one: what `check` must tell apart.

They live in a module of their own because a check hands them to other processes.
"""

from __future__ import annotations

import dataclasses
import io
import itertools
import random
import secrets
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from heedful.envs.common.actions import format_reply
from heedful.envs.common.answers import answer_fault_line, read_answer
from heedful.envs.common.tasks import task_of
from heedful.types import Ending, Observation, Step, Task


@dataclass(frozen=True)
class Right:
    """Add two numbers; as many attempts as there are turns."""

    turns: int = 3
    name = "sums"
    summary = "Add two numbers."

    def draw(self, seed: int) -> tuple[int, int]:
        rng = random.Random(f"sums:{seed}")
        return rng.randrange(10, 100), rng.randrange(10, 100)

    def task(self, seed: int) -> Task:
        return task_of(self.name, str(self.draw(seed)), seed)

    def episode(self) -> Any:
        return Attempt(self)

    def random_answer(self, task: Task, rng: random.Random) -> str:
        return str(rng.randrange(20, 199))

    def blind_answers(self, tasks: Sequence[Task]) -> Sequence[str]:
        return ["109", "108"]

    def demonstrate(self, task: Task, rng: random.Random) -> list[tuple[str, str]]:
        episode = self.episode()
        shown = episode.start(task, 0).text
        return [(shown, format_reply([str(episode.wanted)], "carry the one"))]


class Attempt:
    """One episode of `Right`; each method is there to be broken by a subclass."""

    def __init__(self, env: Right) -> None:
        self.env, self.left = env, env.turns

    def start(self, task: Task, member: int) -> Observation:
        self.task, self.member = task, member
        first, second = self.env.draw(task.seed)
        self.wanted = first + second
        self.rules = f"Add the numbers. You have {self.env.turns} turns; answer in <answer> tags.\n"
        return self.observe(f"{first} and {second}", first=True)

    def observe(self, text: str, first: bool = False) -> Observation:
        return Observation(self.rules + text if first else text, self.rules + text)

    def step(self, response: str) -> Step:
        self.left -= 1
        read = read_answer(response, 40)
        digits = read.text.isascii() and read.text.isdigit()
        right = digits and int(read.text) == self.wanted
        ending = Ending.SOLVED if right else None if self.left else Ending.OUT_OF_TURNS
        word = answer_fault_line(read, False) or ("Not so.\n" if digits else "That is no number.\n")
        return Step(
            observation=self.observe(f"{word}Turns left: {self.left}. The numbers: {self.env.draw(self.task.seed)}."),
            rewards={"solved": 1.0} if right else {} if digits else {"format": -0.1},
            ending=ending,
            outcome=None if ending is None else float(right),
            actions=(read.text,) if digits else (),
            valid=digits,
            effect="right" if right else "wrong",
        )


_THE_EPISODE = Attempt(Right())


def changed(alter: Callable[[Step, str, Attempt], Step]) -> Any:
    """An episode class whose steps are altered: (step, response, episode) -> step."""

    class Altered(Attempt):
        def step(self, response: str) -> Step:
            return alter(super().step(response), response, self)

    return Altered


@dataclass(frozen=True)
class WithoutMake:
    turns: int = 3
    name = "sums"

    def task(self, seed: int) -> Task:
        return Right().task(seed)


@dataclass(frozen=True)
class MisnamedInFolders(Right):
    name = "sums/of numbers"


@dataclass(frozen=True)
class StartsWithText(Right):
    def episode(self) -> Any:
        class Bare(Attempt):
            def start(self, task: Task, member: int) -> Any:
                return super().start(task, member).text

        return Bare(self)


@dataclass(frozen=True)
class StepsWithNothing(Right):
    def episode(self) -> Any:
        return changed(lambda step, response, episode: None)(self)  # type: ignore[arg-type,return-value]


class SaysMoreThanMemoryHolds(Right):
    def episode(self) -> Any:
        endless = Observation("x" * 4_000_001)
        return changed(lambda step, response, episode: dataclasses.replace(step, observation=endless))(self)


def _raise_at_the_end(step: Step, response: str, episode: Attempt) -> Step:
    if step.ending is not None:
        raise RuntimeError("no score today")
    return step


@dataclass(frozen=True)
class RaisesAtEveryStep(Right):
    def episode(self) -> Any:
        class Silent(Attempt):
            def step(self, response: str) -> Step:
                raise RuntimeError("no answer today")

        return Silent(self)


@dataclass(frozen=True)
class RaisesAtTheLastStep(Right):
    """Each episode is played well up to the reply that ends it."""

    def episode(self) -> Any:
        return changed(_raise_at_the_end)(self)


@dataclass(frozen=True)
class RaisesWithoutAText(Right):
    def episode(self) -> Any:
        class Mute(Exception):
            def __str__(self) -> str:
                raise ValueError("not even that")

        class Silent(Attempt):
            def step(self, response: str) -> Step:
                raise Mute

        return Silent(self)


@dataclass(frozen=True)
class RaisesWhenAskedItsActions(Right):
    @property
    def actions(self) -> tuple[str, ...]:
        raise RuntimeError("no list today")


@dataclass(frozen=True)
class HasTheTimeOfTheWorld(Right):
    turns: int = 10**6


@dataclass(frozen=True)
class LeavesTheProcessAtEveryStep(Right):
    def episode(self) -> Any:
        class Leaving(Attempt):
            def step(self, response: str) -> Step:
                sys.exit(3)

        return Leaving(self)


@dataclass(frozen=True)
class RaisesGeneratorExit(Right):
    def episode(self) -> Any:
        class Leaving(Attempt):
            def step(self, response: str) -> Step:
                raise GeneratorExit("no more")

        return Leaving(self)


@dataclass(frozen=True)
class HangsAtEveryStep(Right):
    def episode(self) -> Any:
        class Asleep(Attempt):
            def step(self, response: str) -> Step:
                while True:
                    time.sleep(0.01)

        return Asleep(self)


@dataclass(frozen=True)
class RaisesAtTheStart(Right):
    def episode(self) -> Any:
        class Late(Attempt):
            def start(self, task: Task, member: int) -> Observation:
                raise RuntimeError("no board today")

        return Late(self)


@dataclass(frozen=True)
class NeedsALibrary(Right):
    def task(self, seed: int) -> Task:
        raise ImportError("The library of sums is not installed: pip install sums")


@dataclass(unsafe_hash=True)
class NotFrozen:
    turns: int = 3
    name = "sums"
    draw, task, episode = Right.draw, Right.task, Right.episode


class NoDataclass:
    name, turns = "sums", 3
    draw, task, episode = Right.draw, Right.task, Right.episode


@dataclass(frozen=True)
class RaisesWhenAskedItsName(Right):
    @property
    def name(self) -> str:  # type: ignore[override]
        raise RuntimeError("not today")


@dataclass(frozen=True)
class OneEpisodeForAll(Right):
    def episode(self) -> Any:
        return _THE_EPISODE


@dataclass(frozen=True, eq=False)
class NeverEqual:
    turns: int = 3
    name = "sums"
    draw, task, episode = Right.draw, Right.task, Right.episode


@dataclass(frozen=True)
class KnobOfNoKind(Right):
    slope: complex = 1j


@dataclass(frozen=True)
class NotForThePost(Right):
    def __reduce__(self) -> Any:
        raise TypeError("an open file stays here")


_COUNT = itertools.count()


@dataclass(frozen=True)
class CountsItsTasks(Right):
    def draw_at(self, count: int) -> tuple[int, int]:
        return Right.draw(self, count)

    def task(self, seed: int) -> Task:
        return task_of(self.name, str(self.draw_at(next(_COUNT))), seed)


@dataclass(frozen=True)
class SeedsTheSharedGenerator(Right):
    def task(self, seed: int) -> Task:
        random.seed(seed)
        return super().task(seed)


@dataclass(frozen=True)
class OneSplit(Right):
    def task(self, seed: int) -> Task:
        return dataclasses.replace(super().task(seed), split="train")


@dataclass(frozen=True)
class UnknownSplit(Right):
    def task(self, seed: int) -> Task:
        task = super().task(seed)
        return dataclasses.replace(task, split="dev" if task.split == "val" else task.split)


@dataclass(frozen=True)
class SplitBySeed(Right):
    def draw(self, seed: int) -> tuple[int, int]:
        return 10 + seed % 20, 10

    def task(self, seed: int) -> Task:
        task = super().task(seed)
        return dataclasses.replace(task, split=("train", "val", "test")[seed // 20 % 3])


@dataclass(frozen=True)
class IdsThatHideNoise(Right):
    """Ids leave something out that the first observation shows."""

    def draw(self, seed: int) -> tuple[int, int]:
        return 10 + seed % 20, 10 + seed // 20

    def task(self, seed: int) -> Task:
        return task_of(self.name, str(self.draw(seed)[0]), seed)


@dataclass(frozen=True)
class MembersStartApart(Right):
    def episode(self) -> Any:
        class Own(Attempt):
            def start(self, task: Task, member: int) -> Observation:
                return Observation(f"{super().start(task, member).text} You are number {member}.")

        return Own(self)


@dataclass(frozen=True)
class NeverTheSame(Right):
    def episode(self) -> Any:
        return changed(
            lambda step, response, episode: dataclasses.replace(step, effect=f"{step.effect} {secrets.token_hex(4)}")
        )(self)


_CURRENT: dict[str, int] = {}


@dataclass(frozen=True)
class SharesItsState(Right):
    def episode(self) -> Any:
        class Shared(Attempt):
            def start(self, task: Task, member: int) -> Observation:
                observation = super().start(task, member)
                _CURRENT["wanted"] = self.wanted
                return observation

            def step(self, response: str) -> Step:
                self.wanted = _CURRENT["wanted"]
                step = super().step(response)
                return dataclasses.replace(step, state=f"looked for {self.wanted}")

        return Shared(self)


@dataclass(frozen=True)
class NeverEnds(Right):
    def episode(self) -> Any:
        def alter(step: Step, response: str, episode: Attempt) -> Step:
            endless = step.ending is Ending.OUT_OF_TURNS
            return dataclasses.replace(step, ending=None, outcome=None) if endless else step

        return changed(alter)(self)


@dataclass(frozen=True)
class EndsTooSoon(Right):
    def episode(self) -> Any:
        def alter(step: Step, response: str, episode: Attempt) -> Step:
            soon = step.ending is None and episode.left == 1
            return dataclasses.replace(step, ending=Ending.OUT_OF_TURNS, outcome=0.0) if soon else step

        return changed(alter)(self)


@dataclass(frozen=True)
class KeepsItsLimitsSecret(Right):
    turns: int = 5

    def episode(self) -> Any:
        class Silent(Attempt):
            def start(self, task: Task, member: int) -> Observation:
                observation = super().start(task, member)
                self.rules = "Add the numbers.\n"
                return self.observe(observation.text.splitlines()[-1], first=True)

        return Silent(self)


def _raising_at(part: str) -> Any:
    def alter(step: Step, response: str, episode: Attempt) -> Step:
        if part in response:
            raise ValueError(f"cannot read {part!r}")
        return step

    return changed(alter)


@dataclass(frozen=True)
class FearsNul(Right):
    def episode(self) -> Any:
        return _raising_at("\x00")(self)


@dataclass(frozen=True)
class FearsLongNumbers(Right):
    def episode(self) -> Any:
        class Unlimited(Attempt):
            def step(self, response: str) -> Step:
                digits = response.rpartition("<answer>")[2].partition("</answer>")[0]
                if digits.isdigit() and digits.isascii():
                    int(digits)  # raises ValueError above the interpreter's limit of digits
                return super().step(response)

        return Unlimited(self)


@dataclass(frozen=True)
class LeavesTheProcess(Right):
    def episode(self) -> Any:
        def alter(step: Step, response: str, episode: Attempt) -> Step:
            return sys.exit(3) if not response else step

        return changed(alter)(self)


@dataclass(frozen=True)
class HangsOnLongReplies(Right):
    def episode(self) -> Any:
        def alter(step: Step, response: str, episode: Attempt) -> Step:
            if len(response) > 900_000 and response[0] == "x":
                time.sleep(60)
            return step

        return changed(alter)(self)


@dataclass(frozen=True)
class PaysNan(Right):
    def episode(self) -> Any:
        return changed(
            lambda step, response, episode: (
                dataclasses.replace(step, rewards={"length": float("nan")}) if not response else step
            )
        )(self)


@dataclass(frozen=True)
class PaysWithoutAName(Right):
    def episode(self) -> Any:
        return changed(lambda step, response, episode: dataclasses.replace(step, rewards={0: 1.0}))(self)  # type: ignore[dict-item]


@dataclass(frozen=True)
class ScoresBeforeTheEnd(Right):
    def episode(self) -> Any:
        return changed(lambda step, response, episode: step if step.ending else dataclasses.replace(step, outcome=0.0))(
            self
        )


@dataclass(frozen=True)
class FailsWithOutcomeOne(Right):
    def episode(self) -> Any:
        return changed(
            lambda step, response, episode: (
                dataclasses.replace(step, outcome=1.0) if step.ending is Ending.OUT_OF_TURNS else step
            )
        )(self)


@dataclass(frozen=True)
class ErrsOnUnreadableReplies(Right):
    def episode(self) -> Any:
        def alter(step: Step, response: str, episode: Attempt) -> Step:
            return step if step.valid else dataclasses.replace(step, ending=Ending.ERROR, outcome=None)

        return changed(alter)(self)


@dataclass(frozen=True)
class EndsInWords(Right):
    def episode(self) -> Any:
        return changed(
            lambda step, response, episode: dataclasses.replace(step, ending=step.ending and step.ending.value)  # type: ignore[arg-type]
        )(self)


def seeing(drawn: Callable[[Attempt, str], Any]) -> Any:
    """An episode class that shows a picture with every observation: (episode, text) -> picture."""

    class Seeing(Attempt):
        def observe(self, text: str, first: bool = False) -> Observation:
            observation = super().observe(text, first)
            return dataclasses.replace(observation, images=(drawn(self, text),))

        def step(self, response: str) -> Step:
            return dataclasses.replace(super().step(response), state=str(self.left))

    return Seeing


def striped(*bars: int, text: str = "") -> Any:
    """A picture of grey bars, one of each lightness, as a PNG file. `text`: what the file tells besides."""
    from PIL import Image as pillow
    from PIL.PngImagePlugin import PngInfo

    from heedful.envs.transport.images import image_of

    pixels, file, told = pillow.new("L", (len(bars), 2)), io.BytesIO(), PngInfo()
    pixels.putdata(bars * 2)
    if text:
        told.add_text("seed", text)
    pixels.save(file, "PNG", pnginfo=told)
    return image_of(file.getvalue())


@dataclass(frozen=True)
class StatesAnotherSize(Right):
    def episode(self) -> Any:
        return seeing(lambda episode, text: dataclasses.replace(striped(1, 2), width=3))(self)


@dataclass(frozen=True)
class ShowsOthersOtherPictures(Right):
    def episode(self) -> Any:
        return seeing(lambda episode, text: striped(1, 2, episode.left, episode.member % 2))(self)


def an_environment() -> Right:
    """A factory."""
    return Right(turns=4)


def a_factory_that_raises() -> Right:
    raise ZeroDivisionError("nothing to divide by")


NOT_A_FACTORY = 3
