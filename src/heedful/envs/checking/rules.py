"""The rules of the contract, one function each, and what they look at: tasks of many seeds and episodes of all replies.

The same environment and effort give the same seeds, tasks and replies.
"""

from __future__ import annotations

import dataclasses
import pickle
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from heedful.boundary import from_json, to_json
from heedful.envs.checking.play import Bench, Exchange, Played, appearance, made_anew
from heedful.envs.checking.replies import (
    actions_per_turn,
    generated,
    hostile,
    listed_actions,
    ordinary,
)
from heedful.envs.checking.report import Finding, broken, holds, parted, shortened, shown, unchecked
from heedful.envs.common.contract import missing_from
from heedful.envs.common.tasks import SPLITS
from heedful.guarded import Raised, guarded_call
from heedful.types import Ending, Task

MOST_REPLAYED = 60

HOSTILE_TURNS = 3
"""Most replies of a hostile episode: a million characters are read so often, and no more."""

MOST_LATE = 5
"""Hanging calls of one kind of episodes after which no more of them are played: each costs the whole patience."""

MEMBERS = 4
"""Member numbers that occur."""

MORE_SEEDS = 1500
"""Tried before a split counts as empty."""

_NUMBER_WORDS = [
    "one|once|single",
    "two|twice",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
]


# What the rules look at


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that was drawn and played before the rules look at it."""

    tasks: tuple[Task, ...]
    """The tasks of `seeds_of(effort.seeds)`, in that order."""
    ordinary: tuple[Played, ...]
    """Played to their end, or two replies beyond their turns."""
    idle: tuple[Played, ...]
    """Episodes of unreadable replies alone, played likewise: the longest that there are."""
    hostile: tuple[Played, ...]
    """Cut after a few replies."""

    @property
    def episodes(self) -> tuple[Played, ...]:
        return self.ordinary + self.idle + self.hostile

    @property
    def sound(self) -> tuple[Played, ...]:
        """Ordinary episodes that did not break."""
        return tuple(played for played in self.ordinary if played.fault is None)

    def exchanges(self) -> Iterator[tuple[Played, int, Exchange]]:
        """(episode, turn from 0, exchange) of everything that was played."""
        for played in self.episodes:
            for turn, exchange in enumerate(played.exchanges):
                yield played, turn, exchange

    def fault_of(self, rule: str) -> tuple[str, str] | None:
        """What an episode returned against a rule, and where. `None` if none did."""
        faults = ((each.fault, each) for each in self.episodes)
        return next(
            ((fault.text, each.where(len(each.exchanges))) for fault, each in faults if fault and fault.rule == rule),
            None,
        )


def seeds_of(count: int) -> list[int]:
    """Small seeds, and in every fourth place one of the 48-bit numbers that training draws."""
    rng = random.Random("the seeds of a check")
    return [rng.randrange(2**47, 2**48) if place % 4 == 3 else place for place in range(count)]


def open_environment(bench: Bench) -> Finding | None:
    """What keeps the environment from being played at all. `None` if nothing does."""
    env = bench.env
    found = missing_from(env) if not isinstance(env, type) else f"the class {env.__name__}, not an object of it"
    if not found:
        for offered in ("actions", "actions_per_turn", "summary"):
            getattr(env, offered, None)  # it may be missing, but reading it must not raise
        fits = isinstance(env.name, str) and re.fullmatch(r"[^\s/\\\x00-\x1f]{1,100}", env.name)
        if not fits:
            found = f"the name {shown(env.name)}; it becomes part of folder names: no spaces, no slashes"
        elif type(env.turns) is not int or env.turns < 1:
            found = f"turns = {shown(env.turns)}; a whole number of at least 1 was expected"
        elif bench.demand("episode", env.episode, "twice") is bench.demand("episode", env.episode, "twice"):
            found = "`episode` returned the same object twice, not a fresh episode each time"
    if not found:
        return None
    return broken(
        "the environment lacks what the contract asks for",
        expected="an environment has `name`, `turns`, `task(seed)` and `episode()`; see docs/environments.md, The "
        "contract",
        found=found,
        remedy="give it what is missing; the other rules are looked at once it has it",
    )


def gather(bench: Bench, tell: Callable[[str, Finding | None], None]) -> Evidence:
    """Play everything that the rules look at. Raises Broke where an episode cannot be started."""
    tell(f"{bench.effort.seeds} tasks", None)
    tasks = tuple(bench.task(seed) for seed in seeds_of(bench.effort.seeds))
    tell("episodes with all kinds of replies", None)
    most = bench.effort.episodes
    played = _until_it_hangs(_ordinary(bench, tasks[each % len(tasks)], each % MEMBERS) for each in range(most))
    if all(one.fault is not None and one.fault.late for one in played):
        return Evidence(tasks, played, (), ())
    idle = _until_it_hangs(
        bench.play(tasks[each % len(tasks)], each % MEMBERS, lambda told, turn: ("unreadable", "<think>hm"))
        for each in range(max(2, most // 10))
    )
    # An answer that the environment understands, as far as it has said so.
    reply = played[0].exchanges[0].reply if played[0].exchanges else played[0].last[1]
    example = reply.partition("<answer>")[2].partition("</answer>")[0].split("||")[0].strip()[:40] or "1"
    strange = _until_it_hangs(_hostile(bench, tasks, example))
    made: list[Played] = []

    def answered(text: str) -> bool:
        if made and made[-1].fault is not None and made[-1].fault.late:
            return True  # one that hangs is enough
        made.append(bench.play(tasks[0], 0, lambda told, turn: ("generated", text), 1))
        return made[-1].fault is None

    if all(one.fault is None for one in strange):
        generated(example, answered)
        # Of those that broke, the shortest came last.
        strange += (*(one for one in made if one.fault is None), *[one for one in made if one.fault is not None][-1:])
    return Evidence(tasks, played, idle, strange)


def _until_it_hangs(episodes: Iterable[Played]) -> tuple[Played, ...]:
    """The episodes up to the one whose call is the last of `MOST_LATE` that did not return."""
    played: list[Played] = []
    late = 0
    for one in episodes:
        played.append(one)
        late += one.fault is not None and one.fault.late
        if late == MOST_LATE:
            break
    return tuple(played)


def _ordinary(bench: Bench, task: Task, member: int) -> Played:
    """One episode of well-formed replies, the same ones whenever it is played again."""
    rng = random.Random(f"{task.seed}:{member}")
    return bench.play(task, member, lambda told, turn: ("ordinary", ordinary(bench.env, task, told, rng)))


def _hostile(bench: Bench, tasks: Sequence[Task], example: str) -> Iterator[Played]:
    """Each kind of hostile reply from the first turn on, and where there are several, after a well-formed reply."""
    most = min(bench.turns, HOSTILE_TURNS)
    for number, (kind, reply) in enumerate(hostile(bench.env, example).items()):
        task = tasks[number % len(tasks)]
        rng = random.Random(f"{task.seed}:{kind}")

        def source(told: str, turn: int, first: int) -> tuple[str, str]:
            return (kind, reply(told)) if turn >= first else ("ordinary", ordinary(bench.env, task, told, rng))  # noqa: B023

        for first in range(min(most, 2)):
            yield bench.play(task, first, partial(source, first=first), most)


# Rules on the environment itself


def protocol(bench: Bench, evidence: Evidence) -> Finding:
    """Everything that episodes answered has the types that the contract says."""
    fault = evidence.fault_of("protocol")
    if fault is None:
        return holds("the environment, its tasks, observations and steps have what the contract asks for")
    return broken(
        "an episode answered what the contract does not know",
        expected="start returns an Observation, step a Step, with the types that heedful.types gives their fields",
        found=fault[0],
        where=fault[1],
        remedy="return the type that is expected",
    )


def frozen(bench: Bench, evidence: Evidence) -> Finding:
    """The environment is a frozen dataclass. Equal knobs give equal environments."""
    env = bench.env
    finding = partial(
        broken,
        expected="a frozen dataclass whose fields are the knobs, so that equal knobs make equal environments",
        remedy="write @dataclass(frozen=True) above the class, and give fields values that can be hashed (tuples, no "
        "lists)",
    )
    if not dataclasses.is_dataclass(env):
        found = f"{type(env).__name__} is no dataclass: its knobs cannot be set, stored or compared"
        return finding("the environment is no dataclass", found=found)
    names = [field.name for field in dataclasses.fields(env)]
    for name in names:
        if not isinstance(guarded_call(partial(setattr, env, name, getattr(env, name))), Raised):
            found = f"the knob {name} can be set on the finished object"
            return finding("the environment is not frozen", found=found)
    together = guarded_call(lambda: len({env, made_anew(env)}))  # a set asks for hash and equality at once
    if isinstance(together, Raised):
        return finding("the environment cannot be copied, or not be hashed", found=str(together))
    if together.value != 1:
        found = "a copy with the same knobs is another environment"
        return finding("equal knobs give different environments", found=found)
    return holds(
        f"the environment is frozen, can be hashed, and equals its copy; its knobs: {', '.join(names) or 'none'}"
    )


def knobs(bench: Bench, evidence: Evidence) -> Finding:
    """Every knob can be set by a flag, written into a run's configuration, and read back."""
    env = bench.env
    if not dataclasses.is_dataclass(env):
        return unchecked("the environment is no dataclass: see frozen")
    read = guarded_call(lambda: from_json(type(env), to_json(env)))
    if isinstance(read, Raised) or not _same(read.value, env):
        return broken(
            "a knob cannot be written into a run's configuration",
            expected="fields of the kinds that a configuration knows: bool, int, float, str, Path, Literal, Enum, "
            "None, unions and tuples of these, and dataclasses",
            found=shortened(str(read), 300)[1:-1] if isinstance(read, Raised) else f"read back: {shown(read.value)}",
            remedy="give the field a plain type; what is worked out from it belongs in a method or a cached function",
        )
    return holds("knobs can be set by flags, written into a run's configuration and read back")


def pickled(bench: Bench, evidence: Evidence) -> Finding:
    """Environment and tasks survive the way to a worker process."""
    for name, thing in (("the environment", bench.env), ("a task", evidence.tasks[0])):
        copied = guarded_call(lambda thing=thing: pickle.loads(pickle.dumps(thing)))  # type: ignore[misc]
        if isinstance(copied, Raised) or not _same(copied.value, thing):
            return broken(
                f"{name} cannot be pickled",
                expected=f"{name} equal to its copy after pickle, which is how it travels to a worker process",
                found=str(copied) if isinstance(copied, Raised) else f"the copy is {shown(copied.value)}",
                remedy="define the class at the top level of a module, and keep open files, generators and lambdas "
                "out of fields",
            )
    return holds("the environment and its tasks can be sent to a worker process")


def _same(one: Any, other: Any) -> bool:
    """Equal knob by knob. Whether equal knobs make equal environments is asked elsewhere."""
    if type(one) is not type(other) or not dataclasses.is_dataclass(one):
        return type(one) is type(other)
    return all(getattr(one, field.name) == getattr(other, field.name) for field in dataclasses.fields(one))


# Rules on tasks


def tasks(bench: Bench, evidence: Evidence) -> Finding:
    """The same seed draws the same task: again, in another order, between episodes, from an equal environment."""
    seeds = seeds_of(bench.effort.seeds)
    first = dict(zip(seeds, evidence.tasks, strict=True))
    anew = guarded_call(lambda: made_anew(bench.env))
    copied = bench.env if isinstance(anew, Raised) else anew.value
    finding = partial(
        broken,
        expected="`task(seed)` depends on the seed and the knobs alone",
        remedy="draw from random.Random(f'{name}:{seed}') made inside, and from nothing else",
    )
    state = random.getstate()
    for turn, seed in enumerate(sorted(seeds, key=lambda seed: str(seed)[::-1])):
        random.seed(turn)  # a draw from the generator that all share is another number now
        shared = random.getstate()
        again, other = bench.task(seed), bench.task(seed, copied)
        touched = random.getstate() != shared
        if turn % 20 == 0:
            _ordinary(bench, again, 1)
        random.setstate(state)
        ways = (again, "in another order, between episodes"), (other, "from an equal copy of the environment")
        for task, way in ways:
            if task != first[seed]:
                found = f"asked again, {way}: {first[seed]} became {task}"
                return finding("a seed does not always draw the same task", found=found, where=f"seed {seed}")
        if touched and turn:  # what a module draws while it is loaded, it draws once
            found = "the state of `random` changed"
            return finding("`task` draws from, or seeds, a generator that the whole process shares", found=found)
    return holds(f"{len(seeds)} seeds draw the same tasks again, in any order and between episodes")


def splits(bench: Bench, evidence: Evidence) -> Finding:
    """Every start state belongs to one known split, and there are some in each."""
    finding = partial(
        broken,
        expected="splits named train, val and test, none of them empty, each start state (id) in one of them",
        remedy="let heedful.envs.common.tasks.task_of(name, start_state, seed) make id and split from everything that "
        "makes two start states different, and nothing else; give the environment more start states where a split "
        "stays empty",
    )
    drawn = list(evidence.tasks)
    known: dict[str, tuple[Task, tuple[str, ...]]] = {}
    for task in drawn:
        if task.split not in SPLITS:
            return finding("a task has an unknown split", found=f"the split {task.split!r}", where=f"seed {task.seed}")
        looks = appearance(bench.start(task, 0)[1])
        same, seen = known.setdefault(task.id, (task, looks))
        pair = f"seeds {same.seed} and {task.seed}, both {task.id}"
        if task.split != same.split:
            return finding("one id stands in two splits", found=f"{same.split} and {task.split}", where=pair)
        if looks != seen:
            found = " and ".join(parted(str(seen), str(looks)))
            return finding("equal ids begin with different observations", found=found, where=pair)
    while {task.split for task in drawn} != set(SPLITS) and len(drawn) < MORE_SEEDS:
        drawn.append(bench.task(len(drawn)))
    distinct, counts = len({task.id for task in drawn}), Counter(task.split for task in drawn)
    numbers = ", ".join(f"{split} {counts[split]}" for split in SPLITS)
    if set(counts) != set(SPLITS):
        missing = " and ".join(split for split in SPLITS if split not in counts)
        found = (
            f"no task of {missing} in {len(drawn):,} seeds ({numbers}), which drew {distinct:,} distinct start states"
        )
        return finding("a split is empty", found=found)
    return holds(f"{distinct:,} distinct start states from {len(drawn):,} seeds, each in one split ({numbers})")


def members(bench: Bench, evidence: Evidence) -> Finding:
    """The members of a group start alike. Only noise may tell them apart."""
    for task in evidence.tasks[:20]:
        first, *others = (appearance(bench.start(task, member)[1]) for member in (0, 1, 2, 7))
        for other in others:
            if other != first:
                return broken(
                    "members of a group start from different states",
                    expected="`start(task, member)` shows every member the same first observation",
                    found=" and ".join(parted(str(first), str(other))),
                    where=f"task {task.id} (seed {task.seed})",
                    remedy="build the start state from task.seed; use the member's number for the noise of the steps "
                    "alone",
                )
    return holds("every member of a group begins with the same observation")


# Rules on how episodes run


def replay(bench: Bench, evidence: Evidence) -> Finding:
    """Task, member and replies replay an episode, whatever was played in between."""
    whole = [*evidence.sound[:MOST_REPLAYED], *(one for one in evidence.hostile[:20] if one.fault is None)]
    for played in whole:
        again = bench.replay(played).transcript()
        if again != played.transcript():
            return _unequal("an episode does not replay", "played again, it", played, again)
    return holds(f"{len(whole)} episodes replay word for word from task, member and replies")


def isolation(bench: Bench, evidence: Evidence) -> Finding:
    """Episodes that are played side by side go as they do alone."""
    whole = list(evidence.sound[:12])
    if any(bench.replay(played).transcript() != played.transcript() for played in whole):
        return unchecked("episodes do not even replay when they are played one after the other: see replay")
    # The first one twice, and another one on the same task: what is kept by task or by class shows there.
    side_by_side = [*whole, whole[0], bench.replay(whole[0])]
    running = [bench.start(played.task, played.member) for played in side_by_side]
    said: list[list[Exchange]] = [[] for _ in side_by_side]
    for turn in range(max(len(played.exchanges) for played in side_by_side)):
        for place, played in reversed(list(enumerate(side_by_side))):
            if turn < len(played.exchanges):
                step = bench.step(running[place][0], played.replies[turn])
                if not hasattr(step, "cause"):
                    said[place].append(dataclasses.replace(played.exchanges[turn], step=step))
    for place, played in enumerate(side_by_side):
        mixed = dataclasses.replace(played, first=running[place][1], exchanges=tuple(said[place])).transcript()
        if mixed != played.transcript():
            return _unequal("episodes share state", "played beside others, it", played, mixed)
    return holds(f"{len(side_by_side)} episodes go the same way side by side as one after the other")


def _unequal(sentence: str, way: str, played: Played, other: list[str]) -> Finding:
    own = played.transcript()
    place = next(at for at in range(max(len(own), len(other))) if own[at : at + 1] != other[at : at + 1])
    before, after = parted(*(told[place] if place < len(told) else "nothing" for told in (own, other)))
    return broken(
        sentence,
        expected="an episode that depends on task, member and replies alone",
        found=f"{way} says {after} in the place of {before}",
        where=played.where(place - 1 if place else None),
        remedy="keep the whole state in the object that `episode` returns, and draw noise from a generator made in "
        "`start`",
    )


def turns(bench: Bench, evidence: Evidence) -> Finding:
    """An episode ends by itself within its turns, and the first observation tells the limits."""
    limit, per_turn = bench.turns, actions_per_turn(bench.env) if listed_actions(bench.env) else 1
    finding = partial(
        broken,
        expected=f"`turns` = {limit} is the most that an episode lasts, enforced by the environment and told the agent",
        remedy=f"end with Ending.OUT_OF_TURNS at reply number {limit}, and state the number in the first observation",
    )
    whole = [played for played in evidence.ordinary + evidence.idle if played.fault is None]
    for played in whole:
        count = len(played.exchanges)
        if not played.ended and count < limit:
            return unchecked(f"an episode was played for {count:,} of its {limit:,} turns only, unended")
        if count > limit or not played.ended:
            found = f"no ending after {min(count, limit)} replies"
            return finding("an episode goes on after its last turn", found=found, where=played.where(limit - 1))
        if played.exchanges[-1].step.ending is Ending.OUT_OF_TURNS and count < limit:
            found = f"Ending.OUT_OF_TURNS at reply {count} of {limit}"
            return finding("an episode is out of turns too early", found=found, where=played.where())
    first = whole[0].first.text if whole else ""
    for number, told in ((limit, "turns"), (per_turn, "actions of a turn")):
        # One action is what anybody expects.
        if (told == "turns" or number > 1) and not tells(first, number):
            found = f"no {number} in {shortened(first, 300)}"
            return finding(f"the first observation does not tell the {told}", found=found, where=whole[0].where())
    for played, turn, exchange in evidence.exchanges() if listed_actions(bench.env) else ():
        if len(exchange.step.actions) > per_turn:
            return broken(
                "more actions are executed than allowed",
                expected=f"`actions_per_turn` = {per_turn}: no more are executed in a turn",
                found=f"{len(exchange.step.actions)} actions executed",
                where=played.where(turn),
                remedy="stop reading a reply at the limit, and say so in the next observation",
            )
    return holds(
        f"{len(whole)} episodes ended by themselves within {limit} turn{'s' * (limit > 1)}, which the first "
        "observation tells"
    )


def tells(text: str, number: int) -> bool:
    """Whether a text states a number, in digits or (up to twelve) in words."""
    word = rf"|\b(?:{_NUMBER_WORDS[number - 1]})\b" if 1 <= number <= len(_NUMBER_WORDS) else ""
    return re.search(rf"(?<![\d.]){number}(?![\d]){word}", text, re.IGNORECASE) is not None


def text(bench: Bench, evidence: Evidence) -> Finding:
    """Every reply is answered, in reasonable time. A reply that cannot be read is the agent's fault."""
    answered = {exchange.kind for _, _, exchange in evidence.exchanges()}
    by_cause: dict[str, list[Played]] = defaultdict(list)
    for played in evidence.episodes:
        if played.fault is not None and played.fault.rule == "text":
            by_cause[played.fault.cause or played.fault.text].append(played)
    if not by_cause:
        return holds(
            f"replies of {len(answered)} kinds were answered, a million characters and lone surrogates among them"
        )
    episodes = max(by_cause.values(), key=len)
    kinds = list(dict.fromkeys(played.last[0] for played in episodes))
    every = answered | {played.last[0] for failed in by_cause.values() for played in failed}
    named = ", ".join(kinds[:4]) + (f" and {len(kinds) - 4} more" if len(kinds) > 4 else "")
    others = f"; {len(by_cause) - 1} further cause{'s' * (len(by_cause) > 2)}" if len(by_cause) > 1 else ""
    assert episodes[0].fault is not None
    return broken(
        "a reply is not answered",
        expected="any text is accepted: what cannot be read spends the turn",
        found=f"{episodes[0].fault.text}; after {len(kinds)} of {len(every)} kinds of reply: {named}{others}",
        where=episodes[0].where(len(episodes[0].exchanges)),
        remedy="answer such a reply with a Step of valid=False and a line on what was wrong; "
        "heedful.envs.common.actions.read_reply and heedful.envs.common.answers.read_answer never raise",
    )


# Rules on scores


def rewards(bench: Bench, evidence: Evidence) -> Finding:
    """Components have names, and values that training takes. Their observed ranges are told."""
    fault = evidence.fault_of("rewards")
    if fault is not None:
        return broken(
            "a reward is not a named, finite number",
            expected="Step.rewards maps names (texts) to finite numbers",
            found=fault[0],
            where=fault[1],
            remedy="leave out what cannot be computed, and catch divisions by zero and logarithms of it",
        )
    ranges: dict[str, list[float]] = defaultdict(list)
    for _, _, exchange in evidence.exchanges():
        for name, value in exchange.step.rewards.items():
            ranges[name].append(value)
    if not ranges:
        return holds(
            "no reward was given in any episode: advantages will come from nothing; give the outcome as a reward"
        )
    totals = [sum(sum(each.step.rewards.values()) for each in played.exchanges) for played in evidence.episodes]
    each = ", ".join(f"{shortened(name, len(name))[1:-1]} {_range(values)}" for name, values in sorted(ranges.items()))
    return holds(f"finite; per step {each}; per episode {_range(totals)}")


def _range(values: list[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def outcome(bench: Bench, evidence: Evidence) -> Finding:
    """There exactly at the end, in [0, 1], and 1 just where the ending says solved."""
    finding = partial(
        broken,
        expected="`outcome` is None until the step with the ending, and there a number in [0, 1]; 1 goes with "
        "Ending.SOLVED and with no other",
        remedy="set ending and outcome together, in one place; partial credit stays below 1",
    )
    fault = evidence.fault_of("outcome")
    if fault is not None:
        return finding("an episode ends without an outcome in [0, 1]", found=fault[0], where=fault[1])
    seen: Counter[float] = Counter()
    for played, turn, exchange in evidence.exchanges():
        ending, value = exchange.step.ending, exchange.step.outcome
        if ending is None and value is not None:
            found = f"outcome {value!r} without an ending"
            return finding("an outcome before the end", found=found, where=played.where(turn))
        if ending is None or ending is Ending.ERROR or value is None:
            continue
        if (value == 1.0) != (ending is Ending.SOLVED):
            found = f"outcome {value!r} with Ending.{ending.name}"
            return finding("outcome and ending contradict each other", found=found, where=played.where(turn))
        seen[value] += 1
    if not seen:
        return unchecked("no episode ended: see turns")
    most = [f"{value:g}" for value in sorted(seen)]
    told = ", ".join(most) if len(most) <= 6 else f"{len(most)} values from {most[0]} to {most[-1]}"
    solved = "1 exactly where it is solved" if 1.0 in seen else "though none was solved, so 1 was not seen"
    return holds(f"set at the end of each episode and nowhere else, {solved}; seen: {told}")


def endings(bench: Bench, evidence: Evidence) -> Finding:
    """Named by the enum, and not an error because of what an agent wrote."""
    errors = (
        (f"Ending.ERROR: {exchange.step.effect}", played.where(turn))
        for played, turn, exchange in evidence.exchanges()
        if exchange.step.ending is Ending.ERROR
    )
    fault = evidence.fault_of("endings") or next(errors, None)
    if fault is not None:
        return broken(
            "an episode ends as it must not",
            expected="SOLVED, FAILED or OUT_OF_TURNS of heedful.types.Ending; ERROR is for what breaks without the "
            "agent, and such an episode is never scored",
            found=fault[0],
            where=fault[1],
            remedy="end with the member that fits; a reply that cannot be read spends the turn",
        )
    steps = [exchange.step for _, _, exchange in evidence.exchanges()]
    seen = Counter(step.ending.value for step in steps if step.ending is not None)
    if not seen:
        return unchecked("no episode ended: see turns")
    return holds("seen: " + ", ".join(f"{name} {count}" for name, count in seen.most_common()))
