"""What a server says of itself before training: its model's name, window, dtype, and how it reports log-probabilities.

Only ids cross to a server. So its chat template does not matter, and is not asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from heedful.policies.servers import Client, Server, ServerRefused
from heedful.policies.servers.dialects import MODELS, SERVER_INFO
from heedful.policies.servers.examination import settings_in, windows_in

if TYPE_CHECKING:
    from transformers import PreTrainedModel

BACKEND = "heedful"
"""The server's side of a broadcast, in `--weight-transfer-config`."""

LEAST_WINDOW = 8
"""Tokens. Less leaves no room for a prompt and a reply."""

WORKER = "heedful.integrations.vllm.worker.Worker"
"""What a server imports into its workers (`--worker-extension-cls`)."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a server said."""

    model: str
    """The name of the model that it started with."""
    window: int
    """Most tokens of a context and its reply together: the smaller one of the server's and the learner's."""
    extended: bool
    """It was started with heedful's worker module."""


def meet(client: Client, server: Server, model: PreTrainedModel, sync: str) -> Facts:
    """Ask a server for its facts. Raises ValueError where it cannot sample for this model as it was started.

    `sync`: the way of the weights. To load adapters, a server needs no endpoint for weights.
    """
    from heedful.models.forward.attention import longest_context

    windows = windows_in(client.tell(server, MODELS))
    name = next(iter(windows), "")
    window = windows.get(name)
    own = longest_context(model) or 1 << 30
    window = own if window is None else min(window, own)
    if not name or window < LEAST_WINDOW:
        raise ValueError(
            f"Expected the server at {server.url} to name a model with a window of at least {LEAST_WINDOW} tokens, "
            f"found {f'one of {window}' if name else 'no model'}; look at {server.url}/v1/models."
        )
    try:
        settings = settings_in(client.tell(server, SERVER_INFO))
    except ServerRefused as error:
        if sync == "adapters" and error.status == 404:
            return Facts(name, window, extended=False)
        raise
    dtype, mode, backend = settings["dtype"], settings["logprobs_mode"], settings["transfer_backend"]
    expected = str(model.dtype).removeprefix("torch.")
    if dtype not in (expected, ""):
        raise ValueError(
            f"Expected the server at {server.url} to hold the weights in {expected}, as the learner does, found "
            f"{dtype}; start it with --dtype {expected}, or train with --dtype {dtype}."
        )
    if mode not in ("processed_logprobs", None):
        raise ValueError(
            f"Expected the server at {server.url} to report log-probabilities at the temperature of the sampling, "
            f"found {mode}; start it with --logprobs-mode processed_logprobs."
        )
    if sync == "broadcast" and backend != BACKEND:
        raise ValueError(
            f"Expected the server at {server.url} to receive broadcasts of heedful, found the backend "
            f"{backend or None}; start it with --worker-extension-cls {WORKER} "
            f"""--weight-transfer-config '{{"backend": "{BACKEND}"}}'."""
        )
    return Facts(name, window, str(settings["worker_extension"]).startswith("heedful."))
