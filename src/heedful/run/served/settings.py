"""The settings of an evaluation of a served model. The API key is none of them, since settings are written to files."""

from __future__ import annotations

from typing import Annotated

from heedful.boundary import NamesSecret, NotNegative, Seconds, Threads, Wait, settings
from heedful.models.chat.template import read_options
from heedful.rollout import Asynchronous
from heedful.run.evaluation.evaluate import HeldOutSettings
from heedful.run.evaluation.subjects import shared_fields
from heedful.run.presets import preset


@settings(kw_only=True)
class ServedSettings(HeldOutSettings):
    """Settings of an evaluation of a model that a server holds. `template_options` need --tokenizer."""

    greedy: bool = True
    """Play every task once more with the likeliest tokens."""
    api_key_env: Annotated[str, NamesSecret()] = ""
    """The environment variable that holds the server's API key. The key itself is written nowhere."""
    price_in: NotNegative | None = None
    """Price of a million tokens of prompts, to print the cost."""
    price_out: NotNegative | None = None
    """Price of a million sampled tokens."""
    connections: Threads = 32
    """Most requests at once. A server that answers 429 gets fewer."""
    timeout: Seconds = 600.0
    """Seconds for one whole answer."""
    patience: Wait = 900.0
    """Seconds for which one request waits for a server that is away or busy."""

    def __post_init__(self) -> None:
        HeldOutSettings.__post_init__(self)
        if (self.price_in is None) != (self.price_out is None):
            raise ValueError("price_in and price_out belong together: give both prices of a million tokens, or none")
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
    shared |= {"split": "val", "tasks": 64, "samples": 4, "at_once": 1024, "collect": Asynchronous()}
    return ServedSettings(**shared, search_tasks=config.evaluation.search_tasks)
