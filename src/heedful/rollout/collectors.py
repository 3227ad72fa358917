"""The two ways to collect, as configuration: `--collect lock_step` and `--collect async`.

Promise: both play the same episodes where replies do not depend on who is asked together; they differ in who waits for
whom.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from heedful.configuration import refuse_below
from heedful.policies.sampling import Sampling
from heedful.protocols import Episode, Policy
from heedful.rollout.collect import collect
from heedful.rollout.collect_async import collect_async
from heedful.rollout.context import FULL_HISTORY, Context
from heedful.types import Group, Task


class Collector(Protocol):
    """Plays episodes."""

    def sampling(self, sampling: Sampling) -> Sampling:
        """How a policy must sample to be asked by this collector. Raises ValueError where the settings forbid it."""
        ...

    def __call__(
        self,
        policy: Policy,
        make_environment: Callable[[], Episode],
        tasks: Sequence[Task],
        group_size: int,
        max_turns: int,
        context: Context = FULL_HISTORY,
    ) -> list[Group]:
        """`group_size` episodes of each task, all ended, in order."""
        ...


@dataclass(frozen=True, slots=True)
class LockStep:
    """All conversations one turn further at a time: the largest batches, and every turn waits for its slowest
    environment."""

    threads: int = 1
    """Environments at work at once; 1 = one after the other, in the sampler's own thread."""

    def __post_init__(self) -> None:
        refuse_below(self, threads=1)

    def sampling(self, sampling: Sampling) -> Sampling:
        return replace(sampling, noise="batch") if sampling.noise == "auto" else sampling

    def __call__(
        self,
        policy: Policy,
        make_environment: Callable[[], Episode],
        tasks: Sequence[Task],
        group_size: int,
        max_turns: int,
        context: Context = FULL_HISTORY,
    ) -> list[Group]:
        return collect(policy, make_environment, tasks, group_size, max_turns, context, threads=self.threads)


@dataclass(frozen=True, slots=True)
class Asynchronous:
    """Whoever is ready is answered while the environments of the others still work: for environments that are slow."""

    threads: int = 32
    """Environments at work at once; with --env-workers at least as many as there are workers."""

    def __post_init__(self) -> None:
        refuse_below(self, threads=1)

    def sampling(self, sampling: Sampling) -> Sampling:
        if sampling.noise == "batch":
            raise ValueError(
                "--collect async answers conversations as they come, so noise drawn for a whole batch would make "
                "episodes a matter of time; leave --sampling.noise out (auto), or set it to conversation"
            )
        return replace(sampling, noise="conversation")

    def __call__(
        self,
        policy: Policy,
        make_environment: Callable[[], Episode],
        tasks: Sequence[Task],
        group_size: int,
        max_turns: int,
        context: Context = FULL_HISTORY,
    ) -> list[Group]:
        return collect_async(policy, make_environment, tasks, group_size, max_turns, context, threads=self.threads)


LOCK_STEP = LockStep()

COLLECTORS: dict[str, type[LockStep] | type[Asynchronous]] = {"lock_step": LockStep, "async": Asynchronous}
"""By the name that configurations and the command line use."""
