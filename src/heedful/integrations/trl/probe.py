"""A probe for any `GRPOTrainer` or `RLOOTrainer`: a reward function that reads, measures and logs, and rewards nothing.

It uses TRL's public interfaces, except for the trainer's private method that tokenises a prompt. It returns None for
every row, so it is not part of any reward. It logs through TRL's `log_metric`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from accelerate.utils import gather_object

from heedful.filters import KeepAll
from heedful.integrations.trl.callback import Batches
from heedful.integrations.trl.compatibility import PRIVATE_OF_PROBE, check
from heedful.integrations.trl.pictures import pictures_in
from heedful.integrations.trl.rollouts import FIELD, EnvironmentRollouts
from heedful.integrations.trl.rows import completions_of
from heedful.integrations.trl.settings import HeedfulConfig
from heedful.integrations.watching.completions import Completion
from heedful.rollout.choosers import InOrder

Reward = Callable[..., Sequence[float | None]]


class Probe:
    """Diagnostics inside any `GRPOTrainer` or `RLOOTrainer`, without a subclass.

        probe = Probe()
        trainer = GRPOTrainer(model, [probe.watch(correct), probe], ...)
        probe.attach(trainer)

    It must come last among the reward functions. `HeedfulConfig.filter` is not used: a reward function cannot filter
    without side effects on TRL's denominators (`HeedfulGRPOTrainer` can). TRL logs the probe's own reward as missing.
    """

    def __init__(self, config: HeedfulConfig | None = None) -> None:
        self.heedful = config or HeedfulConfig()
        self.__name__ = "heedful_probe"
        self._trainer: Any = None
        self._batches: Batches
        self._watched: dict[int, list[float | None]] = {}
        """The watched function, by its identity, since two may share a name -> what it gave."""

    def watch(self, reward: Reward) -> Reward:
        """The same reward function, with its rewards recorded. Models and coroutines are given to TRL without it."""

        @functools.wraps(reward)
        def noted(**fields: Any) -> Sequence[float | None]:
            given = list(reward(**fields))
            self._watched[id(noted)] = [None if value is None else float(value) for value in given]
            return given

        noted.__name__ = getattr(reward, "__name__", type(reward).__name__)
        return noted

    def attach(self, trainer: Any) -> None:
        """Connect the probe to its trainer.

        Raises ValueError for an unknown TRL version, for unknown names, for a probe that is not the last function, and
        for a chooser.
        """
        check(PRIVATE_OF_PROBE)
        if not isinstance(self.heedful.choose, InOrder):
            raise ValueError(
                f"A reward function is called after prompts were sampled, so the probe cannot choose them, found "
                f"choose={self.heedful.choose!r}. Train with HeedfulGRPOTrainer, or leave choose out."
            )
        if trainer.reward_funcs[-1] is not self:
            where = "in another place" if any(each is self for each in trainer.reward_funcs) else "none"
            raise ValueError(
                "Expected the probe as the last of the reward functions, since it reads what the others gave, found "
                f"{where}. Give TRL reward_funcs=[..., probe]."
            )
        self._trainer = trainer
        self._batches = Batches(trainer, self.heedful, KeepAll(on=self.heedful.filter.on))

    def __call__(
        self,
        prompts: list[Any],
        completions: list[Any],
        completion_ids: list[list[int]],
        log_metric: Callable[[str, float], None],
        **fields: Any,
    ) -> list[None]:
        """One None per row. TRL passes all its data by name, so the parameters are open."""
        trainer = self._trainer
        if trainer is None:
            raise ValueError("The probe expected to know its trainer: call probe.attach(trainer) before train().")
        if trainer.model.training:
            seen = self._batches.observe(gather_object(self._completions(prompts, completion_ids, fields)))
            for name, value in self.heedful.logged(seen.metrics if trainer.accelerator.is_main_process else ()).items():
                log_metric(name, value)
        self._watched.clear()
        return [None] * len(prompts)

    def _completions(
        self, prompts: list[Any], completion_ids: list[list[int]], fields: dict[str, Any]
    ) -> list[Completion]:
        trainer = self._trainer
        if isinstance(getattr(trainer, "rollout_func", None), EnvironmentRollouts):
            prompt_ids = [trajectory.context_ids(0) if trajectory.turns else () for trajectory in fields[FIELD]]
        else:
            prompt_ids, _, _ = trainer._tokenize_prompts(prompts)
        images = pictures_in(prompts)
        inputs = [
            {name: values[row] for name, values in fields.items() if name in (FIELD, "environment")}
            for row in range(len(prompts))
        ]
        rewards = [
            [
                math.nan if (value := self._watched.get(id(function), [None] * len(prompts))[row]) is None else value
                for function in trainer.reward_funcs
            ]
            for row in range(len(prompts))
        ]
        # Up to the first token that ends a turn. TRL does not show reward functions which ids were sampled.
        stops = set(trainer.eos_token_ids)
        ends = [next((at for at, token in enumerate(ids) if token in stops), len(ids) - 1) for ids in completion_ids]
        first_turns = [ids[: end + 1] for ids, end in zip(completion_ids, ends, strict=True)]
        return completions_of(trainer, inputs, prompt_ids, first_turns, None, rewards, self.heedful.outcome, images)
