"""The tasks of a run: splits that are disjoint by construction, and streams of tasks that can be resumed.

A start state belongs to the same split on every machine. A stream is a pure function of (environment, split, seed,
pool, cursor).
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Collection, Sequence

from heedful.envs.common.contract import task_of_seed
from heedful.protocols import Environment
from heedful.types import Task

SPLITS = ("train", "val", "test")

SEEDS_PER_TASK = 10_000
"""Seeds in a row that draw nothing new, before a split counts as exhausted."""


def split_of(digest: str | bytes) -> str:
    """The split of a start state, from a digest of its canonical form: 80% `train`, 10% `val`, 10% `test`."""
    raw = digest.encode() if isinstance(digest, str) else digest
    tenth = int.from_bytes(hashlib.sha256(raw).digest()[:8], "big") % 10
    return "train" if tenth < 8 else "val" if tenth == 8 else "test"


def task_of(env: str, start_state: str, seed: int, tags: tuple[str, ...] = (), kin: str = "") -> Task:
    """The task of a start state given in canonical form: its id and its split depend on nothing else.

    `kin`: decides the split in the start state's place, so that tasks of one kin are in one split.
    """
    texts = (f"{env}\n{text}".encode(errors="surrogatepass") for text in (start_state, kin or start_state))
    digest, of_kin = (hashlib.sha256(text).hexdigest()[:16] for text in texts)
    return Task(f"{env}-{digest}", seed, split_of(of_kin), tags, env)


def check_same_start(expected: Task, task: Task) -> None:
    """Raise if a task's seed draws another start state here than the one its id names."""
    if task.id != expected.id:
        raise ValueError(
            f"Task {task.id} (seed {task.seed}) was drawn by another environment or with other knobs: here its seed "
            f"draws {expected.id}. Use the configuration that drew the task."
        )


class TaskStream:
    """Tasks of one split, `count` at a time.

    Without `pool` each call draws fresh tasks, distinct by start state within the call. `cursor` is the number of seeds
    tried so far. With `pool=N` each call draws without replacement from the first N tasks of the stream, and with a
    pool of seeds from their tasks. `cursor` is then the number of calls. Setting `cursor` to a value read earlier
    continues from there.
    """

    def __init__(self, env: Environment, split: str, seed: int, pool: int | Sequence[int] | None = None) -> None:
        self.env = env
        self.split = split
        self.seed = seed
        self.cursor = 0
        self._base = int.from_bytes(hashlib.sha256(f"{seed}:{split}".encode()).digest()[:6], "big")
        self._pool: list[Task] | None = None
        if pool is not None:
            self._pool = self._draw(pool)[0] if isinstance(pool, int) else self._listed(pool)

    @property
    def pool(self) -> tuple[Task, ...] | None:
        """The fixed pool, or `None` if each call draws fresh tasks."""
        return None if self._pool is None else tuple(self._pool)

    def next(self, count: int, beside: Collection[str] = (), fewer: bool = False) -> list[Task]:
        """The next `count` tasks, distinct by id, and none of the ids `beside`.

        Raises if the split, or the pool, does not hold that many. `fewer`: a split may hold less, but not nothing.
        """
        if self._pool is None:
            tasks, self.cursor = self._draw(count, beside, fewer)
            return tasks
        left = [task for task in self._pool if task.id not in beside] if beside else self._pool
        if count > len(left):
            raise ValueError(f"{count} tasks were asked for at once, but the pool holds {len(left)}: enlarge the pool.")
        rng = random.Random(f"{self.seed}:{self.split}:{self.cursor}")
        self.cursor += 1
        return rng.sample(left, count)

    def _listed(self, seeds: Sequence[int]) -> list[Task]:
        """The tasks of these seeds. Raises where one is of another split, or two are the same."""
        found: dict[str, Task] = {}
        for seed in seeds:
            task = task_of_seed(self.env, seed)
            if task.split != self.split:
                raise ValueError(
                    f"Expected seeds of tasks of the split {self.split!r}, found seed {seed}, whose task {task.id} is "
                    f"of {task.split!r}. Leave it out."
                )
            if task.id in found:
                raise ValueError(
                    f"Expected seeds of distinct tasks, found {found[task.id].seed} and {seed}, which both draw "
                    f"{task.id}. Leave one out."
                )
            found[task.id] = task
        return list(found.values())

    def _draw(self, count: int, beside: Collection[str] = (), fewer: bool = False) -> tuple[list[Task], int]:
        found: dict[str, Task] = {}
        cursor = self.cursor
        last = cursor + SEEDS_PER_TASK
        while len(found) < count:
            if cursor == last and fewer and found:
                break
            if cursor == last:
                raise ValueError(
                    f"{self.env.name}: {count} distinct tasks of split {self.split!r} were asked for, but "
                    f"{cursor - self.cursor:,} seeds drew only {len(found)}. Ask for fewer, or choose knobs "
                    "with more start states."
                )
            task = task_of_seed(self.env, self._base + cursor)
            cursor += 1
            if task.split == self.split and task.id not in beside and task.id not in found:
                found[task.id] = task
                last = cursor + SEEDS_PER_TASK
        return list(found.values()), cursor


def evaluation_tasks(env: Environment, split: str, count: int) -> list[Task]:
    """The fixed first `count` distinct tasks of a split: the same for every run of this configuration."""
    return TaskStream(env, split, seed=0).next(count)
