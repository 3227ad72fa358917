"""A probe for any `GRPOTrainer`: a reward function that reads, measures and logs, and rewards nothing.

Promise: public seams of TRL only, but for the trainer's own way to tokenise a prompt. It returns None for every row, so
it is no part of any reward; what it logs passes through TRL's `log_metric`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from heedful.filters import KeepAll
from heedful.integrations.trl.batch import Completion
from heedful.integrations.trl.compatibility import PRIVATE_OF_PROBE, check
from heedful.integrations.trl.observer import Observer, claim_record, observer_of
from heedful.integrations.trl.rollouts import FIELD, EnvironmentRollouts
from heedful.integrations.trl.rows import completions_of
from heedful.integrations.trl.settings import HeedfulConfig

Reward = Callable[..., Sequence[float | None]]


class Probe:
    """Diagnostics inside any `GRPOTrainer`, without a subclass.

        probe = Probe()
        trainer = GRPOTrainer(model, [probe.watch(correct), probe], ...)
        probe.attach(trainer)

    It must come last among the reward functions. `HeedfulConfig.filter` is not used: a reward function cannot filter
    without side effects on TRL's denominators (`HeedfulGRPOTrainer` can). TRL logs the probe's own reward as missing.
    """

    def __init__(self, config: HeedfulConfig | None = None) -> None:
        self.config = config or HeedfulConfig()
        self.__name__ = "heedful_probe"
        self._trainer: Any = None
        self._observer: Observer | None = None
        self._watched: dict[str, list[float | None]] = {}

    def watch(self, reward: Reward) -> Reward:
        """The same reward function; what it gives is noted on the way. Not for models and coroutines."""
        name = getattr(reward, "__name__", type(reward).__name__)

        @functools.wraps(reward)
        def noted(**fields: Any) -> Sequence[float | None]:
            given = reward(**fields)
            self._watched[name] = [None if value is None else float(value) for value in given]
            return given

        return noted

    def attach(self, trainer: Any) -> None:
        """Tell the probe which trainer it is in. Raises ValueError for a TRL it does not know, and unknown names."""
        check(PRIVATE_OF_PROBE)
        chooses = KeepAll(on=self.config.filter.on)
        self._trainer, self._observer = trainer, observer_of(trainer, self.config, chooses)
        if self.config.record and trainer.accelerator.is_main_process:
            self._observer.begin(claim_record(trainer, self.config, chooses))

    def __call__(
        self,
        prompts: list[Any],
        completions: list[Any],
        completion_ids: list[list[int]],
        log_metric: Callable[[str, float], None],
        **fields: Any,
    ) -> list[None]:
        """One None per row. TRL passes everything it knows by name, hence the open parameters."""
        from accelerate.utils import gather_object

        trainer, observer = self._trainer, self._observer
        if trainer is None or observer is None:
            raise ValueError("The probe expected to know its trainer: call probe.attach(trainer) before train().")
        if trainer.model.training:
            local = self._completions(prompts, completion_ids, fields)
            gathered: list[Completion] = gather_object(local)
            if trainer.accelerator.is_main_process:
                seen = observer.observe(gathered, trainer.num_generations, trainer.state.global_step)
                for name, value in self.config.logged(seen.metrics).items():
                    log_metric(name, value)
        self._watched.clear()
        return [None] * len(prompts)

    def _completions(
        self, prompts: list[Any], completion_ids: list[list[int]], fields: dict[str, Any]
    ) -> list[Completion]:
        trainer = self._trainer
        if isinstance(trainer.rollout_func, EnvironmentRollouts):
            prompt_ids = [trajectory.context_ids(0) if trajectory.turns else () for trajectory in fields[FIELD]]
        else:
            prompt_ids, _, _ = trainer._tokenize_prompts(prompts)
        inputs = [
            {name: values[row] for name, values in fields.items() if name in (FIELD, "environment")}
            for row in range(len(prompts))
        ]
        rewards = [
            [
                math.nan if (value := self._watched.get(name, [None] * len(prompts))[row]) is None else value
                for name in trainer.reward_func_names
            ]
            for row in range(len(prompts))
        ]
        first_turns = [self._first_turn(ids) for ids in completion_ids]
        return completions_of(trainer, inputs, prompt_ids, first_turns, None, rewards, self.config.outcome)

    def _first_turn(self, ids: list[int]) -> list[int]:
        """Up to the first token that ends a turn: TRL does not tell reward functions which tokens were sampled."""
        stops = set(self._trainer.eos_token_ids)
        end = next((place for place, token in enumerate(ids) if token in stops), len(ids) - 1)
        return ids[: end + 1]
