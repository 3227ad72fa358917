"""An environment that keeps every rule, and others that each break one: what `check` must tell apart.

They live in a module of their own since pickle looks them up there.
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


def env(name: str, fields: Sequence[Any] = (), /, **members: Any) -> type:
    """A frozen environment like `Right`, but for these members and further knobs."""
    space = {"__module__": __name__, **members}
    return dataclasses.make_dataclass(name, fields, bases=(Right,), namespace=space, frozen=True)


def playing(name: str, fields: Sequence[Any] = (), /, **methods: Any) -> type:
    """An environment whose episodes have these methods instead."""
    episode = type("Changed", (Attempt,), methods)
    return env(name, fields, episode=lambda self: episode(self))


def altering(name: str, alter: Callable[[Step, str, Any], Any]) -> type:
    """An environment whose steps are altered: (step, response, episode) -> step."""
    return playing(name, step=lambda self, response: alter(Attempt.step(self, response), response, self))


def changing(name: str, **fields: Any) -> type:
    """An environment whose steps have these fields instead."""
    return altering(name, lambda step, response, episode: dataclasses.replace(step, **fields))


def raising(error: BaseException | type[BaseException]) -> Callable[..., Any]:
    def broken(*_: Any) -> Any:
        raise error

    return broken


# protocol


@dataclass(frozen=True)
class WithoutMake:
    turns: int = 3
    name = "sums"

    def task(self, seed: int) -> Task:
        return Right().task(seed)


_THE_EPISODE = Attempt(Right())

MisnamedInFolders = env("MisnamedInFolders", name="sums/of numbers")
StartsWithText = playing("StartsWithText", start=lambda self, task, member: Attempt.start(self, task, member).text)
StepsWithNothing = playing("StepsWithNothing", step=lambda self, response: None)
SaysMoreThanMemoryHolds = changing("SaysMoreThanMemoryHolds", observation=Observation("x" * 4_000_001))
RaisesAtTheStart = playing("RaisesAtTheStart", start=raising(RuntimeError("no board today")))
RaisesWhenAskedItsName = env("RaisesWhenAskedItsName", name=property(raising(RuntimeError("not today"))))
RaisesWhenAskedItsActions = env("RaisesWhenAskedItsActions", actions=property(raising(RuntimeError("no list today"))))
OneEpisodeForAll = env("OneEpisodeForAll", episode=lambda self: _THE_EPISODE)
NeedsALibrary = env(
    "NeedsALibrary", task=raising(ImportError("The library of sums is not installed: pip install sums"))
)

# frozen, knobs, pickle


@dataclass(unsafe_hash=True)
class NotFrozen:
    turns: int = 3
    name = "sums"
    draw, task, episode = Right.draw, Right.task, Right.episode


class NoDataclass:
    name, turns = "sums", 3
    draw, task, episode = Right.draw, Right.task, Right.episode


@dataclass(frozen=True, eq=False)
class NeverEqual:
    turns: int = 3
    name = "sums"
    draw, task, episode = Right.draw, Right.task, Right.episode


KnobOfNoKind = env("KnobOfNoKind", [("slope", complex, 1j)])
NotForThePost = env("NotForThePost", __reduce__=raising(TypeError("an open file stays here")))

# tasks, splits, members

_COUNT = itertools.count()


def _seeding(self: Any, seed: int) -> Task:
    random.seed(seed)
    return Right.task(self, seed)


def _retold(split: Callable[[Task], str]) -> Callable[[Any, int], Task]:
    def task(self: Any, seed: int) -> Task:
        drawn = Right.task(self, seed)
        return dataclasses.replace(drawn, split=split(drawn))

    return task


class Guessing(Attempt):
    """Shows the first number alone."""

    def observe(self, text: str, first: bool = False) -> Observation:
        return super().observe(f"the theme {self.wanted - self.env.draw(self.task.seed)[1]}", first)


def _own_start(self: Any, task: Task, member: int) -> Observation:
    return Observation(f"{Attempt.start(self, task, member).text} You are number {member}.")


CountsItsTasks = env(
    "CountsItsTasks", task=lambda self, seed: task_of(self.name, str(Right.draw(self, next(_COUNT))), seed)
)
DrawsFromAHash = env(
    "DrawsFromAHash",
    draw=lambda self, seed: (10 + hash(f"sums:{seed}") % 90, 10 + seed % 90),
    task=lambda self, seed: task_of(self.name, str(self.draw(seed)), seed),
)
SeedsTheSharedGenerator = env("SeedsTheSharedGenerator", task=_seeding)
OneSplit = env("OneSplit", task=_retold(lambda task: "train"))
UnknownSplit = env("UnknownSplit", task=_retold(lambda task: "dev" if task.split == "val" else task.split))
SplitBySeed = env(
    "SplitBySeed",
    draw=lambda self, seed: (10 + seed % 20, 10),
    task=_retold(lambda task: ("train", "val", "test")[task.seed // 20 % 3]),
)
IdsThatHideNoise = env(
    "IdsThatHideNoise",  # ids leave something out that the first observation shows
    draw=lambda self, seed: (10 + seed % 20, 10 + seed // 20),
    task=lambda self, seed: task_of(self.name, str(self.draw(seed)[0]), seed),
)
IdsOfSeeds = env(
    "IdsOfSeeds",  # four tasks under as many ids as there are seeds
    [("turns", int, 1)],
    draw=lambda self, seed: (10 + seed % 4, 10),
    task=lambda self, seed: task_of(self.name, str(seed), seed),
)
GuessesInTwoThemes = env(
    "GuessesInTwoThemes",  # in order: what makes tasks different is hidden
    draw=lambda self, seed: (10 + seed % 2, 10 + seed // 2 % 80),
    episode=lambda self: Guessing(self),
)
MembersStartApart = playing("MembersStartApart", start=_own_start)

# replay, isolation, turns

NeverTheSame = altering(
    "NeverTheSame",
    lambda step, response, episode: dataclasses.replace(step, effect=f"{step.effect} {secrets.token_hex(4)}"),
)

_CURRENT: dict[str, int] = {}


class _Shared(Attempt):
    def start(self, task: Task, member: int) -> Observation:
        observation = super().start(task, member)
        _CURRENT["wanted"] = self.wanted
        return observation

    def step(self, response: str) -> Step:
        self.wanted = _CURRENT["wanted"]
        return dataclasses.replace(super().step(response), state=f"looked for {self.wanted}")


def _endless(step: Step, response: str, episode: Any) -> Step:
    return dataclasses.replace(step, ending=None, outcome=None) if step.ending is Ending.OUT_OF_TURNS else step


def _soon(step: Step, response: str, episode: Any) -> Step:
    if step.ending is not None or episode.left != 1:
        return step
    return dataclasses.replace(step, ending=Ending.OUT_OF_TURNS, outcome=0.0)


def _silent_start(self: Any, task: Task, member: int) -> Observation:
    last = Attempt.start(self, task, member).text.splitlines()[-1]
    self.rules = "Add the numbers.\n"
    return Attempt.observe(self, last, first=True)


SharesItsState = env("SharesItsState", episode=lambda self: _Shared(self))
NeverEnds = altering("NeverEnds", _endless)
EndsTooSoon = altering("EndsTooSoon", _soon)
KeepsItsLimitsSecret = playing("KeepsItsLimitsSecret", [("turns", int, 5)], start=_silent_start)
HasTheTimeOfTheWorld = env("HasTheTimeOfTheWorld", [("turns", int, 10**6)])

# text


class Mute(Exception):
    def __str__(self) -> str:
        raise ValueError("not even that")


def _asleep(seconds: float) -> None:
    while seconds > 0:
        time.sleep(0.01)
        seconds -= 0.01


def _at(fits: Callable[[Step, str], bool], then: Callable[[], Any]) -> Callable[[Step, str, Any], Any]:
    """Do something at the replies that fit."""

    def alter(step: Step, response: str, episode: Any) -> Any:
        if fits(step, response):
            then()
        return step

    return alter


def _read_number(step: Step, response: str, episode: Any) -> Step:
    digits = response.rpartition("<answer>")[2].partition("</answer>")[0]
    if digits.isdigit() and digits.isascii():
        int(digits)  # raises ValueError above the interpreter's limit of digits
    return step


RaisesAtEveryStep = playing("RaisesAtEveryStep", step=raising(RuntimeError("no answer today")))
RaisesAtTheLastStep = altering(
    "RaisesAtTheLastStep",  # each episode is played well up to the reply that ends it
    _at(lambda step, response: step.ending is not None, raising(RuntimeError("no score today"))),
)
RaisesWithoutAText = playing("RaisesWithoutAText", step=raising(Mute))
RaisesGeneratorExit = playing("RaisesGeneratorExit", step=raising(GeneratorExit("no more")))
LeavesTheProcessAtEveryStep = playing("LeavesTheProcessAtEveryStep", step=lambda self, response: sys.exit(3))
LeavesTheProcess = altering("LeavesTheProcess", _at(lambda step, response: not response, lambda: sys.exit(3)))
HangsAtEveryStep = playing("HangsAtEveryStep", step=lambda self, response: _asleep(3600))
HangsOnLongReplies = altering(
    "HangsOnLongReplies",
    _at(lambda step, response: len(response) > 10_000 and response[0] == "x", lambda: _asleep(60)),
)
FearsNul = altering(
    "FearsNul", _at(lambda step, response: "\x00" in response, raising(ValueError("cannot read '\\x00'")))
)
FearsLongNumbers = altering("FearsLongNumbers", _read_number)

# rewards, outcome, paid, endings

ReadsItsSolverWrongly = env(
    "ReadsItsSolverWrongly",
    [("turns", int, 1)],
    demonstrate=lambda self, task, rng: [("", format_reply([f"{sum(self.draw(task.seed))}."], "a full stop"))],
)
PaysNobody = altering(
    "PaysNobody",
    lambda step, response, episode: (
        dataclasses.replace(step, ending=Ending.FAILED, outcome=0.0, progress=1.0)
        if step.ending is Ending.SOLVED
        else step
    ),
)
PaysNan = altering(
    "PaysNan",
    lambda step, response, episode: dataclasses.replace(step, rewards={"length": float("nan")} if not response else {}),
)
PaysWithoutAName = changing("PaysWithoutAName", rewards={0: 1.0})
ScoresBeforeTheEnd = altering(
    "ScoresBeforeTheEnd",
    lambda step, response, episode: step if step.ending else dataclasses.replace(step, outcome=0.0),
)
FailsWithOutcomeOne = altering(
    "FailsWithOutcomeOne",
    lambda step, response, episode: (
        dataclasses.replace(step, outcome=1.0) if step.ending is Ending.OUT_OF_TURNS else step
    ),
)
ErrsOnUnreadableReplies = altering(
    "ErrsOnUnreadableReplies",
    lambda step, response, episode: (
        step if step.valid else dataclasses.replace(step, ending=Ending.ERROR, outcome=None)
    ),
)
EndsInWords = altering(
    "EndsInWords",
    lambda step, response, episode: dataclasses.replace(step, ending=step.ending and step.ending.value),  # type: ignore[arg-type]
)

# pictures


def seeing(name: str, drawn: Callable[[Any], Any]) -> type:
    """An environment that shows the picture that is drawn for an episode with every observation."""

    def observe(self: Any, text: str, first: bool = False) -> Observation:
        return dataclasses.replace(Attempt.observe(self, text, first), images=(drawn(self),))

    return playing(name, observe=observe)


def striped(*bars: int) -> Any:
    """A picture of grey bars, one of each lightness, as a PNG file."""
    from PIL import Image as pillow

    from heedful.envs.transport.images import image_of

    pixels, file = pillow.new("L", (len(bars), 2)), io.BytesIO()
    pixels.putdata(bars * 2)
    pixels.save(file, "PNG")
    return image_of(file.getvalue())


StatesAnotherSize = seeing("StatesAnotherSize", lambda episode: dataclasses.replace(striped(1, 2), width=3))
ShowsOthersOtherPictures = seeing(
    "ShowsOthersOtherPictures", lambda episode: striped(1, 2, episode.left, episode.member % 2)
)


def an_environment() -> Right:
    """A factory."""
    return Right(turns=4)


def a_factory_that_raises() -> Right:
    raise ZeroDivisionError("nothing to divide by")


NOT_A_FACTORY = 3
