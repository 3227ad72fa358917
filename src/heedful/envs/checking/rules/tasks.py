"""Rules on tasks: pure in the seed, in disjoint splits, and silent about what the agent must not know.

An environment that draws from a shared random generator is found by examining the generator, not by luck.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import combinations

from heedful.envs.checking.evidence import Evidence, play_ordinary, seeds_of
from heedful.envs.checking.global_state import moved_generators
from heedful.envs.checking.pixels import appearance
from heedful.envs.checking.play import Bench, made_anew, scripted
from heedful.envs.checking.report import Finding, broken, doubtful, holds, parted, shortened
from heedful.envs.common.tasks import SPLITS
from heedful.guarded import Raised, guarded_call
from heedful.types import Task

_MORE_SEEDS = 1500
"""Tried before a split counts as empty."""


def pure(bench: Bench, evidence: Evidence) -> Finding:
    """The same seed draws the same task: again, in another order, between episodes, from an equal environment."""
    seeds = seeds_of(bench.effort.seeds)
    first = dict(zip(seeds, evidence.tasks, strict=True))
    shuffled = sorted(seeds, key=lambda seed: str(seed)[::-1])
    anew = guarded_call(lambda: made_anew(bench.env))
    copied = bench.env if isinstance(anew, Raised) else anew.value
    for turn, seed in enumerate(shuffled):
        with moved_generators(turn):
            again = bench.task(seed)
            if turn % 20 == 0:
                play_ordinary(bench, again, 1)
            other = bench.task(seed, copied)
        for task, way in (
            (again, "in another order, between episodes"),
            (other, "from an equal copy of the environment"),
        ):
            if task != first[seed]:
                return broken(
                    "a seed does not always draw the same task",
                    expected="`task(seed)` depends on the seed and the knobs alone",
                    found=f"asked again, {way}: {_difference(first[seed], task)}",
                    where=f"seed {seed}",
                    remedy="draw from random.Random(f'{name}:{seed}') made inside, and from nothing else",
                )
    return holds(f"{len(seeds)} seeds draw the same tasks again, in any order and between episodes")


def _difference(first: Task, second: Task) -> str:
    names = [
        field.name for field in dataclasses.fields(Task) if getattr(first, field.name) != getattr(second, field.name)
    ]
    return ", ".join(f"{name} {getattr(first, name)!r} became {getattr(second, name)!r}" for name in names)


def generators(bench: Bench, evidence: Evidence) -> Finding:
    """Nobody else's random numbers change because an environment is played."""
    touched: dict[str, list[str]] = defaultdict(list)
    for number, played in enumerate(evidence.sound[:8]):
        seed = played.task.seed
        with moved_generators(number) as by_task:
            task = bench.task(seed)
        with moved_generators(number) as by_start:
            environment, _ = bench.start(task, played.member)
        calls = [("task", by_task), ("start", by_start)]
        for reply in played.replies:
            with moved_generators(number) as by_step:
                bench.step(environment, reply)
            calls.append(("step", by_step))
        # What a module draws while it is loaded, it draws once: the first episode is only played.
        for call, names in calls if number else []:
            for name in names:
                touched[name].append(call)
    if not touched:
        return holds("the random generators that the process shares are left alone")
    name, calls_of = next(iter(touched.items()))
    return broken(
        "the environment draws from, or seeds, a random generator that the whole process shares",
        expected="generators of its own, made from the task's seed (and the member's number)",
        found=f"the state of {name} changed in {' and '.join(dict.fromkeys(calls_of))}",
        where=f"{len(calls_of)} calls in {len(evidence.sound[:8]) - 1} episodes",
        remedy="make a random.Random(f'{task.seed}:{member}') in start and draw from it; where a library insists on "
        "the shared one, put its state back afterwards",
    )


def splits(bench: Bench, evidence: Evidence) -> Finding:
    """Every start state belongs to one known split, and there are some in each."""
    tasks = list(evidence.tasks)
    for task in tasks:
        if task.split not in SPLITS:
            return _split_broken("a task has an unknown split", f"the split {task.split!r}", f"seed {task.seed}")
    by_id: dict[str, list[Task]] = defaultdict(list)
    for task in tasks:
        by_id[task.id].append(task)
    shown: dict[str, tuple[str, ...]] = {}
    for same in by_id.values():
        for task in same:
            looks = appearance(bench.start(task, 0)[1])
            pair = f"seeds {same[0].seed} and {task.seed}, both {task.id}"
            if task.split != same[0].split:
                return _split_broken("one id stands in two splits", f"{same[0].split} and {task.split}", pair)
            if shown.setdefault(task.id, looks) != looks:
                found = " and ".join(_parted(shown[task.id], looks))
                return _split_broken("equal ids begin with different observations", found, pair)
    counts = Counter(task.split for task in tasks)
    seed = len(tasks)
    while set(counts) != set(SPLITS) and seed < _MORE_SEEDS:
        task = bench.task(seed)
        tasks.append(task)
        counts[task.split] += 1
        seed += 1
    distinct = len({task.id for task in tasks})
    numbers = ", ".join(f"{split} {counts[split]}" for split in SPLITS)
    if set(counts) != set(SPLITS):
        missing = " and ".join(split for split in SPLITS if split not in counts)
        found = (
            f"no task of {missing} in {len(tasks):,} seeds ({numbers}), which drew {distinct:,} distinct start states"
        )
        return _split_broken("a split is empty", found, "")
    sentence = f"{distinct:,} distinct start states from {len(tasks):,} seeds, each in one split ({numbers})"
    return _alike(bench, [same[0] for same in by_id.values()], shown) or holds(sentence)


def _split_broken(sentence: str, found: str, where: str) -> Finding:
    return broken(
        sentence,
        expected="splits named train, val and test, none of them empty, each start state (id) in one of them",
        found=found,
        where=where,
        remedy="let heedful.envs.common.tasks.task_of(name, start_state, seed) make id and split from everything that "
        "makes two start states different, and nothing else; give the environment more start states where a split "
        "stays empty",
    )


def _parted(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, str]:
    """What tells two appearances apart: their texts, or else their pictures."""
    return parted(one[0], other[0]) if one[0] != other[0] else (" ".join(one[1:]), " ".join(other[1:]))


def _alike(bench: Bench, tasks: Sequence[Task], shown: dict[str, tuple[str, ...]]) -> Finding | None:
    """A warning where tasks of different ids and splits cannot be told apart by playing them."""
    by_text: dict[tuple[str, ...], list[Task]] = defaultdict(list)
    for task in tasks:
        by_text[shown[task.id]].append(task)
    pairs = [pair for same in by_text.values() for pair in combinations(same[:6], 2)]
    across = [pair for pair in pairs if pair[0].split != pair[1].split][:20]
    for one, other in across:
        played = play_ordinary(bench, one, 0)
        if bench.play(other, 0, scripted(played.replies), len(played.exchanges)).transcript() != played.transcript():
            return None
    if len(across) < 3:
        return None
    one, other = across[0]
    return doubtful(
        "start states in different splits look the same",
        expected="what is alike has one id, so that nothing of a held-out split is seen in training",
        found=f"{len(across)} pairs of tasks with different ids begin alike and answered the same replies alike",
        where=f"seed {one.seed} ({one.split}) and seed {other.seed} ({other.split})",
        remedy="leave out of the id what is no part of the start state, such as the seed; where the difference is "
        "hidden from the agent on purpose, all is well",
    )


def members(bench: Bench, evidence: Evidence) -> Finding:
    """The members of a group start alike. Only noise may tell them apart."""
    for task in evidence.tasks[:20]:
        first, *others = (appearance(bench.start(task, member)[1]) for member in (0, 1, 2, 7))
        for other in (shown for shown in others if shown != first):
            here, there = _parted(first, other)
            return broken(
                "members of a group start from different states",
                expected="`start(task, member)` shows every member the same first observation",
                found=f"{here} and {there}",
                where=f"task {task.id} (seed {task.seed})",
                remedy="build the start state from task.seed; use the member's number for the noise of the steps alone",
            )
    return holds("every member of a group begins with the same observation")


def secrets(bench: Bench, evidence: Evidence) -> Finding:
    """Ids, seeds and tags are for us: by an id or a seed an agent could know the task again."""
    shown_by_task: dict[Task, list[str]] = defaultdict(list)
    for played in evidence.sound:
        shown_by_task[played.task] += played.observations
    for task, shown in shown_by_task.items():
        if any(task.id in text for text in shown):
            return _told("its task's id", task.id, task)
    large = [task for task in shown_by_task if task.seed > 10**9]
    seen = [task for task in large if any(_stands_alone(str(task.seed), text) for text in shown_by_task[task])]
    if seen:
        return _told("its task's seed", str(seen[0].seed), seen[0])
    return _tags(shown_by_task) or holds("no observation tells its task's id, seed or tags")


def _told(what: str, text: str, task: Task) -> Finding:
    return broken(
        f"an observation tells {what}",
        expected="observations that show the state alone: by an id the answer could be learnt by heart",
        found=shortened(text),
        where=f"task {task.id} (seed {task.seed})",
        remedy="leave it out of the text",
    )


def _tags(shown_by_task: dict[Task, list[str]]) -> Finding | None:
    """A warning if a tag of some tasks occurs in their observations and in no others."""
    for tag in sorted({tag for task in shown_by_task for tag in task.tags}):
        tagged = [
            any(_stands_alone(tag, text) for text in shown) for task, shown in shown_by_task.items() if tag in task.tags
        ]
        others = [
            any(_stands_alone(tag, text) for text in shown)
            for task, shown in shown_by_task.items()
            if tag not in task.tags
        ]
        if others and all(tagged) and not any(others) and len(tagged) > 1:
            return doubtful(
                "observations tell a tag of their task",
                found=f"{tag!r} stands in the observations of the {len(tagged)} tasks tagged so, and in no others",
                remedy="leave it out, unless the agent is meant to know it",
            )
    return None


def _stands_alone(word: str, text: str) -> bool:
    return word in text and re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text) is not None
