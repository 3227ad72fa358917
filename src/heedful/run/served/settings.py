"""The settings of an evaluation of a served model. The API key is none of them, since settings are written to files."""

from __future__ import annotations

from dataclasses import field
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Interval

from heedful import envs
from heedful.boundary import (
    Choice,
    Count,
    Episodes,
    NamesSecret,
    Natural,
    Seconds,
    Threads,
    Wait,
    Workers,
    settings,
)
from heedful.models.chat.replies import Tags
from heedful.models.chat.template import read_options
from heedful.policies import Sampling
from heedful.protocols import Environment
from heedful.rollout import COLLECTORS, Asynchronous, Collector, Context
from heedful.run.evaluation.subjects import shared_fields
from heedful.run.presets import preset


@settings(kw_only=True)
class ServedSettings:
    """Settings of an evaluation of a model that a server holds."""

    split: Literal["val", "test"] = "val"
    """The split of the tasks."""
    tasks: Episodes = 64
    """Number of held-out tasks. They are the same for every model, so results of two models are paired."""
    samples: Episodes = 4
    """Sampled episodes per task."""
    greedy: bool = True
    """Play every task once more with the likeliest tokens."""
    at_once: Count = 1024
    """Most episodes played at once."""
    search_tasks: Natural
    """Training tasks on which the best fixed sequence is searched. 0 = no search."""
    json: Path | None = None
    """Write the numbers to this file, too."""
    api_key_env: Annotated[str, NamesSecret()] = ""
    """The environment variable that holds the server's API key. The key itself is written nowhere."""
    price_in: Annotated[float, Interval(ge=0, lt=float("inf"))] | None = None
    """Price of a million tokens of prompts, to print the cost."""
    price_out: Annotated[float, Interval(ge=0, lt=float("inf"))] | None = None
    """Price of a million sampled tokens."""
    connections: Threads = 32
    """Most requests at once. A server that answers 429 gets fewer."""
    timeout: Seconds = 600.0
    """Seconds for one whole answer."""
    patience: Wait = 900.0
    """Seconds for which one request waits for a server that is away or busy."""
    env: Annotated[Any, Choice(envs.ENVIRONMENTS, Environment)]
    """The environment and its knobs."""
    context: Context
    collect: Annotated[Collector, Choice(COLLECTORS, Collector)] = field(default_factory=Asynchronous)
    """How episodes are played at the same time: async asks for each reply as soon as its episode is ready."""
    env_workers: Workers
    """Processes in which episodes are played. 0 = in this one."""
    env_timeout: Wait
    """Seconds for one start or step of an environment in such a process. 0 = no limit."""
    sampling: Sampling
    tags: Tags
    template_options: tuple[str, ...]
    """Options of the chat template as name=value. They need --tokenizer."""
    seed: int
    """Seed of the sampling, sent with every request. The tasks do not depend on it."""

    def __post_init__(self) -> None:
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
