"""The rules of the contract, one function each: what holds as a sentence, or a `Breach`."""

from __future__ import annotations

import dataclasses
import itertools
import pickle
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from heedful.boundary import from_json, to_json
from heedful.boundary.foreign_text import brief, listed
from heedful.envs.checking.evidence import MEMBERS, Evidence, play_ordinary, seeds_of
from heedful.envs.checking.play import Bench, Exchange, Fault, Played, appearance
from heedful.envs.checking.replies import actions_per_turn, listed_actions
from heedful.envs.checking.report import Breach, Unchecked, parted, shortened
from heedful.envs.common.contract import checked_task, demonstrated
from heedful.envs.common.tasks import SPLITS
from heedful.envs.common.wire import decode, encode, read_task, task_tree
from heedful.guarded import RaisedElsewhere
from heedful.protocols import Demonstrates
from heedful.types import Ending, Task
from heedful.worker import NotBegun, Worker, WorkerDied, WorkerTimedOut

MOST_REPLAYED = 60

MOST_DEMONSTRATED = 100

MOST_ELSEWHERE = 20
"""Seeds that another process draws as well."""

MORE_SEEDS = 1500
"""Tried before a split counts as empty."""

Look = Callable[[Bench, Evidence], str]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: its name, its question, and the function that answers it with what holds, or raises Breach."""

    name: str
    says: str
    expected: str
    remedy: str
    look: Look
    plays: bool
    """Looks at episodes that reached their end. Where there is none, the rule cannot be checked."""


RULES: list[Rule] = []


def rule(says: str, *, expected: str, remedy: str, plays: bool = False) -> Callable[[Look], Look]:
    def named(look: Look) -> Look:
        RULES.append(Rule(look.__name__.removesuffix("_"), says, expected, remedy, look, plays))
        return look

    return named


# Rules on the environment itself


@rule(
    "tasks, observations and steps have the types of the contract",
    expected="start returns an Observation, step a Step, with the types that heedful.types gives their fields",
    remedy="return the type that is expected",
)
def protocol(bench: Bench, evidence: Evidence) -> str:
    evidence.refuse("protocol", "an episode answered what the contract does not know")
    return "the environment, its tasks, observations and steps have what the contract asks for"


@rule(
    "the environment is frozen; equal knobs make equal environments",
    expected="a frozen dataclass whose fields are the knobs, so that equal knobs make equal environments",
    remedy="write @dataclass(frozen=True) above the class, and give fields values that can be hashed (tuples, no "
    "lists)",
)
def frozen(bench: Bench, evidence: Evidence) -> str:
    env = bench.env
    if not dataclasses.is_dataclass(env):
        found = f"{type(env).__name__} is no dataclass: its knobs cannot be set, stored or compared"
        raise Breach("the environment is no dataclass", found)
    names = [field.name for field in dataclasses.fields(env)]
    for name in names:
        if not isinstance(bench.ask("setattr", partial(setattr, env, name, getattr(env, name))), Fault):
            raise Breach("the environment is not frozen", f"the knob {name} can be set on the finished object")
    together = bench.ask("hash", lambda: len({env, _made_anew(env)}))  # a set asks for hash and equality at once
    if isinstance(together, Fault):
        raise Breach("the environment cannot be copied, or not be hashed", together.text)
    if together != 1:
        found = "a copy with the same knobs is another environment"
        raise Breach("equal knobs give different environments", found)
    return f"the environment is frozen, can be hashed, and equals its copy; its knobs: {', '.join(names) or 'none'}"


@rule(
    "knobs can be set by flags, written into a configuration and read back",
    expected="fields of the kinds that a configuration knows: bool, int, float, str, Path, Literal, Enum, None, unions "
    "and tuples of these, and dataclasses",
    remedy="give the field a plain type; what is worked out from it belongs in a method or a cached function",
)
def knobs(bench: Bench, evidence: Evidence) -> str:
    env = bench.env
    if not dataclasses.is_dataclass(env):
        raise Unchecked("the environment is no dataclass: see frozen")
    read = bench.ask("to_json", lambda: from_json(type(env), to_json(env)))
    if isinstance(read, Fault) or not _same(read, env):
        found = read.text if isinstance(read, Fault) else f"read back: {brief(read)}"
        raise Breach("a knob cannot be written into a run's configuration", found)
    return "knobs can be set by flags, written into a run's configuration and read back"


@rule(
    "the environment and its tasks can be sent to a worker process",
    expected="a copy after pickle, which is how it travels to a worker process, that is equal",
    remedy="define the class at the top level of a module, and keep open files, generators and lambdas out of fields",
)
def pickle_(bench: Bench, evidence: Evidence) -> str:
    for name, thing in (("the environment", bench.env), ("a task", evidence.tasks[0])):
        copied: Any = bench.ask("pickle", lambda thing=thing: pickle.loads(pickle.dumps(thing)))  # type: ignore[misc]
        if isinstance(copied, Fault) or not _same(copied, thing):
            found = copied.text if isinstance(copied, Fault) else f"the copy is {brief(copied)}"
            raise Breach(f"{name} cannot be pickled", found)
    return "the environment and its tasks can be sent to a worker process"


def _made_anew(env: Any) -> Any:
    """An equal environment, made by its constructor again. The same object if it is not a dataclass."""
    return dataclasses.replace(env) if dataclasses.is_dataclass(env) and not isinstance(env, type) else env


def _same(one: Any, other: Any) -> bool:
    """Equal knob by knob. Whether equal knobs make equal environments is asked elsewhere."""
    if type(one) is not type(other) or not dataclasses.is_dataclass(one):
        return type(one) is type(other)
    return all(getattr(one, field.name) == getattr(other, field.name) for field in dataclasses.fields(one))


# Rules on tasks


@rule(
    "a seed draws the same task whenever it is asked",
    expected="`task(seed)` depends on the seed and the knobs alone",
    remedy="draw from random.Random(f'{name}:{seed}') made inside, and from nothing else",
)
def tasks(bench: Bench, evidence: Evidence) -> str:
    """The same task again, in another order, between episodes, from an equal environment, in another process."""
    seeds = seeds_of(bench.effort.seeds)
    first = dict(zip(seeds, evidence.tasks, strict=True))
    anew = bench.ask("the constructor", lambda: _made_anew(bench.env))
    copied = bench.env if isinstance(anew, Fault) else anew
    state = random.getstate()
    for turn, seed in enumerate(sorted(seeds, key=lambda seed: str(seed)[::-1])):
        random.seed(turn)  # a draw from the generator that all share is another number now
        shared = random.getstate()
        again, other = bench.task(seed), bench.task(seed, copied)
        touched = random.getstate() != shared
        if turn % 20 == 0:
            play_ordinary(bench, again, 1)
        random.setstate(state)
        ways = (again, "in another order, between episodes"), (other, "from an equal copy of the environment")
        for task, way in ways:
            if task != first[seed]:
                found = f"asked again, {way}: {first[seed]} became {task}"
                raise Breach("a seed does not always draw the same task", found, f"seed {seed}")
        if touched and turn:  # what a module draws while it is loaded, it draws once
            sentence = "`task` draws from, or seeds, a generator that the whole process shares"
            raise Breach(sentence, "the state of `random` changed")
    pickled = bench.ask("pickle", partial(pickle.dumps, bench.env))
    if isinstance(pickled, Fault) or type(bench.env).__module__ == "__main__":  # no process can be handed it
        return f"{len(seeds)} seeds draw the same tasks again, in any order and between episodes"
    worker = Worker(draw_tasks, pickled, quiet=True)
    try:
        elsewhere = decode(worker.ask(encode(seeds[:MOST_ELSEWHERE]), bench.effort.patience * MOST_ELSEWHERE))
    except (NotBegun, WorkerDied, WorkerTimedOut, RaisedElsewhere) as error:
        raise Breach("another process cannot draw the tasks", str(error)) from None
    finally:
        worker.end()
    for seed, task in zip(seeds, map(read_task, elsewhere), strict=False):
        if task != first[seed]:
            found = f"asked in another process: {first[seed]} became {task}"
            remedy = "use neither hash() of a text nor the order of a set: both are others in every process"
            raise Breach("a seed does not always draw the same task", found, f"seed {seed}", remedy=remedy)
    return f"{len(seeds)} seeds draw the same tasks again, in any order, between episodes and in another process"


def draw_tasks(pickled: bytes) -> Callable[[bytes], bytes]:
    """The payload of a worker: the tasks of seeds."""
    env = pickle.loads(pickled)
    return lambda seeds: encode([task_tree(checked_task(env.task(seed))) for seed in decode(seeds)])


@rule(
    "train, val and test are disjoint, and none is empty",
    expected="splits named train, val and test, none of them empty, each start state (id) in one of them",
    remedy="let heedful.envs.common.tasks.task_of(name, start_state, seed) make id and split from everything that "
    "makes two start states different, and nothing else; give the environment more start states where a split "
    "stays empty",
)
def splits(bench: Bench, evidence: Evidence) -> str:
    drawn = list(evidence.tasks)
    known: dict[str, tuple[Task, tuple[str, ...]]] = {}
    alike: dict[tuple[str, ...], dict[str, Task]] = defaultdict(dict)
    for task in drawn:
        if task.split not in SPLITS:
            raise Breach("a task has an unknown split", f"the split {task.split!r}", f"seed {task.seed}")
        looks = appearance(bench.start(task, 0)[1])
        same, seen = known.setdefault(task.id, (task, looks))
        pair = f"seeds {same.seed} and {task.seed}, both {task.id}"
        if task.split != same.split:
            raise Breach("one id stands in two splits", f"{same.split} and {task.split}", pair)
        if looks != seen:
            found = " and ".join(parted(str(seen), str(looks)))
            raise Breach("equal ids begin with different observations", found, pair)
        alike[looks].setdefault(task.id, task)
    _refuse_twins(bench, [list(each.values()) for each in alike.values()])
    while {task.split for task in drawn} != set(SPLITS) and len(drawn) < MORE_SEEDS:
        drawn.append(bench.task(len(drawn)))
    distinct, counts = len({task.id for task in drawn}), Counter(task.split for task in drawn)
    numbers = ", ".join(f"{split} {counts[split]}" for split in SPLITS)
    missing = " and ".join(split for split in SPLITS if split not in counts)
    if missing or set(counts) != set(SPLITS):
        told = f"({numbers}), which drew {distinct:,} distinct start states"
        raise Breach("a split is empty", f"no task of {missing} in {len(drawn):,} seeds {told}")
    return f"{distinct:,} distinct start states from {len(drawn):,} seeds, each in one split ({numbers})"


def _refuse_twins(bench: Bench, alike: list[list[Task]]) -> None:
    """Raise Breach where most held-out tasks are tasks of training under other ids. `alike`: in groups of one look.

    Twins begin alike and answer the same replies alike. Left out are environments whose tasks all begin alike, and
    those of several turns without listed actions: random answers may never tell two hidden states apart.
    """
    held_out = sum(task.split != "train" for tasks in alike for task in tasks)
    if len(alike) == 1 or not (bench.env.turns == 1 or listed_actions(bench.env)):
        return
    twins = list[tuple[Task, Task]]()
    for tasks in alike:
        trained = [task for task in tasks if task.split == "train"][:1]
        for one, other in itertools.product(trained, [task for task in tasks if task.split != "train"]):
            for member in range(MEMBERS):
                played = play_ordinary(bench, one, member)
                again = bench.replay(dataclasses.replace(played, task=other))
                if again.transcript() != played.transcript():
                    break
            else:
                twins.append((one, other))
    if len(twins) > held_out / 2:
        found = f"{len(twins)} of {held_out} held-out tasks begin, and answer the same replies, as one of train does"
        one, other = twins[0]
        where = f"seeds {one.seed} and {other.seed}, {one.id} of {one.split} and {other.id} of {other.split}"
        raise Breach("held-out tasks are tasks of training under other ids", found, where)


@rule(
    "the members of a group start alike",
    expected="`start(task, member)` shows every member the same first observation",
    remedy="build the start state from task.seed; use the member's number for the noise of the steps alone",
)
def members(bench: Bench, evidence: Evidence) -> str:
    for task in evidence.tasks[:20]:
        first, *others = (appearance(bench.start(task, member)[1]) for member in (0, 1, 2, 7))
        for other in others:
            if other != first:
                found = " and ".join(parted(str(first), str(other)))
                where = f"task {task.id} (seed {task.seed})"
                raise Breach("members of a group start from different states", found, where)
    return "every member of a group begins with the same observation"


# Rules on how episodes run

_ALONE = {
    "expected": "an episode that depends on task, member and replies alone",
    "remedy": "keep the whole state in the object that `episode` returns, and draw noise from a generator made in "
    "`start`",
}


@rule("task, member and replies replay an episode", plays=True, **_ALONE)
def replay(bench: Bench, evidence: Evidence) -> str:
    whole = [*evidence.sound[:MOST_REPLAYED], *(one for one in evidence.hostile[:20] if one.fault is None)]
    for played in whole:
        _compare("an episode does not replay", "played again, it", played, bench.replay(played))
    return f"{len(whole)} episodes replay word for word from task, member and replies"


@rule("episodes played side by side do not disturb one another", plays=True, **_ALONE)
def isolation(bench: Bench, evidence: Evidence) -> str:
    whole = list(evidence.sound[:12])
    if any(bench.replay(played).transcript() != played.transcript() for played in whole):
        raise Unchecked("episodes do not even replay when they are played one after the other: see replay")
    # The first one twice, and another one on the same task: what is kept by task or by class shows there.
    side_by_side = [*whole, whole[0], bench.replay(whole[0])]
    running = [bench.start(played.task, played.member) for played in side_by_side]
    said: list[list[Exchange]] = [[] for _ in side_by_side]
    for turn in range(max(len(played.exchanges) for played in side_by_side)):
        for place, played in reversed(list(enumerate(side_by_side))):
            if turn < len(played.exchanges):
                step = bench.step(running[place][0], played.exchanges[turn].reply)
                if not isinstance(step, Fault):
                    said[place].append(dataclasses.replace(played.exchanges[turn], step=step))
    for place, played in enumerate(side_by_side):
        mixed = dataclasses.replace(played, first=running[place][1], exchanges=tuple(said[place]))
        _compare("episodes share state", "played beside others, it", played, mixed)
    return f"{len(side_by_side)} episodes go the same way side by side as one after the other"


def _compare(sentence: str, way: str, played: Played, again: Played) -> None:
    """Raise Breach where the second episode went another way."""
    own, other = played.transcript(), again.transcript()
    if own != other:
        place = next(at for at in range(max(len(own), len(other))) if own[at : at + 1] != other[at : at + 1])
        before, after = parted(*(told[place] if place < len(told) else "nothing" for told in (own, other)))
        found = f"{way} says {after} in the place of {before}"
        raise Breach(sentence, found, played.where(place - 1 if place else None))


@rule(
    "an episode ends by itself within its limits, and the first observation tells them",
    expected="`turns` is the most that an episode lasts, and `actions_per_turn` the most that a turn executes, both "
    "enforced by the environment and told the agent",
    remedy="end with Ending.OUT_OF_TURNS at the last reply, stop reading a reply at its limit, and state the numbers "
    "in the first observation",
    plays=True,
)
def turns(bench: Bench, evidence: Evidence) -> str:
    limit, per_turn = bench.env.turns, actions_per_turn(bench.env) if listed_actions(bench.env) else 1
    whole = [played for played in evidence.ordinary + evidence.idle if played.fault is None]
    for played in whole:
        count = len(played.exchanges)
        if not played.ended and count < limit:
            raise Unchecked(f"an episode was played for {count:,} of its {limit:,} turns only, unended")
        if count > limit or not played.ended:
            found = f"no ending after {min(count, limit)} replies"
            raise Breach("an episode goes on after its last turn", found, played.where(limit - 1))
        if played.exchanges[-1].step.ending is Ending.OUT_OF_TURNS and count < limit:
            found = f"Ending.OUT_OF_TURNS at reply {count} of {limit}"
            raise Breach("an episode is out of turns too early", found, played.where())
    first = whole[0].first.text if whole else ""
    for number, told in ((limit, "turns"), (per_turn, "actions of a turn")):
        # One action is what anybody expects.
        if (told == "turns" or number > 1) and not tells(first, number):
            found = f"no {number} in {shortened(first, 300)}"
            raise Breach(f"the first observation does not tell the {told}", found, whole[0].where())
    for played, turn, exchange in evidence.exchanges() if listed_actions(bench.env) else ():
        if len(exchange.step.actions) > per_turn:
            found = f"{len(exchange.step.actions)} actions executed, of at most {per_turn}"
            raise Breach("more actions are executed than allowed", found, played.where(turn))
    return (
        f"{len(whole)} episodes ended by themselves within {limit} turn{'s' * (limit > 1)}, which the first "
        "observation tells"
    )


_NUMBER_WORDS = re.findall(r"\S+", "one|once|single two|twice three four five six seven eight nine ten eleven twelve")


def tells(text: str, number: int) -> bool:
    """Whether a text states a number, in digits or (up to twelve) in words."""
    word = rf"|\b(?:{_NUMBER_WORDS[number - 1]})\b" if 1 <= number <= len(_NUMBER_WORDS) else ""
    return re.search(rf"(?<![\d.]){number}(?![\d]){word}", text, re.IGNORECASE) is not None


@rule(
    "any text is answered: empty, broken, a million characters, ...",
    expected="any text is accepted: what cannot be read spends the turn",
    remedy="answer such a reply with a Step of valid=False and a line on what was wrong; "
    "heedful.envs.common.actions.read_reply and heedful.envs.common.answers.read_answer never raise",
)
def text(bench: Bench, evidence: Evidence) -> str:
    answered = {exchange.kind for _, _, exchange in evidence.exchanges()}
    by_cause: dict[str, list[tuple[Played, Fault]]] = defaultdict(list)
    for played in evidence.episodes:
        if played.fault is not None and played.fault.rule == "text":
            by_cause[played.fault.cause or played.fault.text].append((played, played.fault))
    if not by_cause:
        return f"replies of {len(answered)} kinds were answered, a million characters and lone surrogates among them"
    failed = max(by_cause.values(), key=len)
    kinds = list(dict.fromkeys(played.last[0] for played, _ in failed))
    every = answered | {played.last[0] for each in by_cause.values() for played, _ in each}
    others = f"; {len(by_cause) - 1} further cause{'s' * (len(by_cause) > 2)}" if len(by_cause) > 1 else ""
    played, fault = failed[0]
    found = f"{fault.text}; after {len(kinds)} of {len(every)} kinds of reply: {listed(kinds, 4)}{others}"
    raise Breach("a reply is not answered", found, played.where(len(played.exchanges)))


# Rules on scores


@rule(
    "rewards are named, finite numbers; their range is told",
    expected="Step.rewards maps names (texts) to finite numbers",
    remedy="leave out what cannot be computed, and catch divisions by zero and logarithms of it",
    plays=True,
)
def rewards(bench: Bench, evidence: Evidence) -> str:
    evidence.refuse("rewards", "a reward is not a named, finite number")
    ranges: dict[str, list[float]] = defaultdict(list)
    for _, _, exchange in evidence.exchanges():
        for name, value in exchange.step.rewards.items():
            ranges[name].append(value)
    if not ranges:
        return "no reward was given in any episode: advantages will come from nothing; give the outcome as a reward"
    totals = [sum(sum(each.step.rewards.values()) for each in played.exchanges) for played in evidence.episodes]
    each = ", ".join(f"{shortened(name, len(name))[1:-1]} {_range(values)}" for name, values in sorted(ranges.items()))
    return f"finite; per step {each}; per episode {_range(totals)}"


def _range(values: list[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


@rule(
    "an outcome in [0, 1] exactly at the end; 1 if and only if it is solved",
    expected="`outcome` is None until the step with the ending, and there a number in [0, 1]; 1 goes with "
    "Ending.SOLVED and with no other",
    remedy="set ending and outcome together, in one place; partial credit stays below 1",
    plays=True,
)
def outcome(bench: Bench, evidence: Evidence) -> str:
    evidence.refuse("outcome", "an episode ends without an outcome in [0, 1]")
    seen: set[float] = set()
    for played, turn, exchange in evidence.exchanges():
        ending, value = exchange.step.ending, exchange.step.outcome
        if ending is None and value is not None:
            raise Breach("an outcome before the end", f"outcome {value!r} without an ending", played.where(turn))
        if ending is None or ending is Ending.ERROR or value is None:
            continue
        if (value == 1.0) != (ending is Ending.SOLVED):
            found = f"outcome {value!r} with Ending.{ending.name}"
            raise Breach("outcome and ending contradict each other", found, played.where(turn))
        seen.add(value)
    if not seen:
        raise Unchecked("no episode ended: see turns")
    most = [f"{value:g}" for value in sorted(seen)]
    told = ", ".join(most) if len(most) <= 6 else f"{len(most)} values from {most[0]} to {most[-1]}"
    solved = "1 exactly where it is solved" if 1.0 in seen else "though none was solved, so 1 was not seen"
    return f"set at the end of each episode and nowhere else, {solved}; seen: {told}"


@rule(
    "what the environment's own solver does is paid",
    expected="Ending.SOLVED where the replies of `demonstrate` end with progress 1, and an outcome above 0 for some",
    remedy="mend the reward or the verifier. Training on such a task teaches that the right answer is wrong",
    plays=True,
)
def paid(bench: Bench, evidence: Evidence) -> str:
    env = bench.env
    if not isinstance(env, Demonstrates):
        return "not asked: the environment has no solver (`demonstrate`)"
    solved, unpaid, poor, earned = 0, list[Task](), list[Task](), False
    tasks = {task.id: task for task in evidence.tasks[:MOST_DEMONSTRATED]}.values()
    for task in tasks:
        told = bench.ask("demonstrate", partial(demonstrated, env, task, random.Random(task.seed)))
        if isinstance(told, Fault):  # an environment may refuse to demonstrate, with a sentence
            continue
        for member in range(MEMBERS):  # chance may end an episode
            played = bench.play(task, member, lambda _, turn: ("solver", told[turn][1]), len(told))  # noqa: B023
            last = played.exchanges[-1].step if played.ended else None
            earned |= last is not None and bool(last.outcome)
            if last is not None and (last.ending is Ending.SOLVED or last.progress == 1):
                solved += last.ending is Ending.SOLVED
                unpaid += [task] * (last.ending is not Ending.SOLVED)
                break
        else:
            poor += [task] * (last is not None)
    if unpaid := unpaid or ([] if earned else poor):
        named = ", ".join(f"{task.id} (seed {task.seed})" for task in unpaid[:3])
        raise Breach("the solver's own episodes are not paid", f"{len(unpaid)} of {len(tasks)} tasks", named)
    return f"the solver is paid on {solved} of {len(tasks)} tasks, and all the way on no other"


@rule(
    "episodes end as SOLVED, FAILED or OUT_OF_TURNS, never as ERROR by a reply",
    expected="SOLVED, FAILED or OUT_OF_TURNS of heedful.types.Ending; ERROR is for what breaks without the agent, and "
    "such an episode is never scored",
    remedy="end with the member that fits; a reply that cannot be read spends the turn",
    plays=True,
)
def endings(bench: Bench, evidence: Evidence) -> str:
    evidence.refuse("endings", "an episode ends as it must not")
    seen: Counter[str] = Counter()
    for played, turn, exchange in evidence.exchanges():
        if exchange.step.ending is Ending.ERROR:
            found = f"Ending.ERROR: {exchange.step.effect}"
            raise Breach("an episode ends as it must not", found, played.where(turn))
        if exchange.step.ending is not None:
            seen[exchange.step.ending.value] += 1
    if not seen:
        raise Unchecked("no episode ended: see turns")
    return "seen: " + ", ".join(f"{name} {count}" for name, count in seen.most_common())
