"""The settings of an evaluation of a served model. The API key is none of them, since settings are written to files."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from heedful import envs
from heedful.boundary import (
    MOST_AT_ONCE,
    MOST_EPISODES,
    Choice,
    NamesSecret,
    refuse_above,
    refuse_below,
    refuse_seconds,
)
from heedful.envs.common.contract import refuse_unless_environment
from heedful.models.chat.replies import Tags
from heedful.models.chat.template import read_options
from heedful.policies import Sampling
from heedful.rollout import COLLECTORS, Asynchronous, Collector, Context
from heedful.rollout.workers import check_timeout
from heedful.run.evaluation.subjects import shared_fields
from heedful.run.presets import preset


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedSettings:
    """Settings of an evaluation of a model that a server holds."""

    split: Literal["val", "test"] = "val"
    """The split of the tasks."""
    tasks: int = 64
    """Number of held-out tasks. They are the same for every model, so results of two models are paired."""
    samples: int = 4
    """Sampled episodes per task."""
    greedy: bool = True
    """Play every task once more with the likeliest tokens."""
    at_once: int = 1024
    """Most episodes played at once."""
    search_tasks: int
    """Training tasks on which the best fixed sequence is searched. 0 = no search."""
    json: Path | None = None
    """Write the numbers to this file, too."""
    api_key_env: Annotated[str, NamesSecret()] = ""
    """The environment variable that holds the server's API key. The key itself is written nowhere."""
    price_in: float | None = None
    """Price of a million tokens of prompts, to print the cost."""
    price_out: float | None = None
    """Price of a million sampled tokens."""
    connections: int = 32
    """Most requests at once. A server that answers 429 gets fewer."""
    timeout: float = 600.0
    """Seconds for one whole answer."""
    patience: float = 900.0
    """Seconds for which one request waits for a server that is away or busy."""
    env: Annotated[Any, Choice(envs.ENVIRONMENTS)]
    """The environment and its knobs."""
    context: Context
    collect: Annotated[Collector, Choice(COLLECTORS, Collector)] = field(default_factory=Asynchronous)
    """How episodes are played at the same time: async asks for each reply as soon as its episode is ready."""
    env_workers: int
    """Processes in which episodes are played. 0 = in this one."""
    env_timeout: float
    """Seconds for one start or step of an environment in such a process. 0 = no limit."""
    sampling: Sampling
    tags: Tags
    template_options: tuple[str, ...]
    """Options of the chat template as name=value. They need --tokenizer."""
    seed: int
    """Seed of the sampling, sent with every request. The tasks do not depend on it."""

    def __post_init__(self) -> None:
        refuse_below(self, env_workers=0, search_tasks=0, tasks=1, samples=1, at_once=1, connections=1)
        refuse_above(self, search_tasks=MOST_EPISODES, tasks=MOST_EPISODES, samples=MOST_EPISODES)
        refuse_above(self, env_workers=MOST_AT_ONCE, connections=MOST_AT_ONCE)
        check_timeout(self.env_timeout)
        refuse_unless_environment(self.env)
        refuse_seconds(self, "timeout", least=("patience",))
        for name in ("price_in", "price_out"):
            price = getattr(self, name)
            if price is not None and not 0 <= price < float("inf"):
                raise ValueError(f"{name} must be a number of at least 0, found {price}")
        if (self.price_in is None) != (self.price_out is None):
            raise ValueError("price_in and price_out belong together: give both prices of a million tokens, or none")
        if self.sampling.greedy:
            raise ValueError("sampling.greedy has no use here: both the sampled and the greedy policy are evaluated")
        if self.sampling.precision != "model":
            raise ValueError(f"sampling.precision is the server's own, found {self.sampling.precision}: leave it out")
        _ = read_options(self.template_options)
        _ = self.collect.sampling(self.sampling)  # raises where the collector cannot work with it


FREE = frozenset({"json", "api_key_env", "price_in", "price_out", "connections", "timeout", "patience"})
"""Settings that change no reply, and may differ when an evaluation goes on."""


def served_settings(environment: str, model_name: str) -> ServedSettings:
    """The settings for an environment or preset, with full instructions and replies of up to 256 tokens."""
    config = preset(environment, model_name)
    shared = shared_fields(ServedSettings, config)
    for own in ("collect", "tasks"):
        shared.pop(own)
    shared["search_tasks"] = config.evaluation.search_tasks
    return ServedSettings(**shared)
