"""What a server says of itself before training: its model's name, window, dtype, and how it reports log-probabilities.

Only ids cross to a server. So its chat template does not matter, and is not asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from heedful.inference import Client, Server, ServerRefused
from heedful.inference.dialects import MODELS, SERVER_INFO, models

if TYPE_CHECKING:
    from transformers import PreTrainedModel

BACKEND = "heedful"
"""The server's side of a broadcast, in `--weight-transfer-config`."""

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
    from heedful.models.attention import longest_context

    tree = client.tell(server, MODELS)
    name = models(tree)[0]
    window = tree["data"][0].get("max_model_len")
    own = longest_context(model) or 1 << 30
    window = min(window, own) if isinstance(window, int) else own
    try:
        info = client.tell(server, SERVER_INFO)
    except ServerRefused as error:
        if sync == "adapters" and error.status == 404:
            return Facts(name, window, extended=False)
        raise
    config = info.get("vllm_config") if isinstance(info, dict) else None
    dtype = str(_within(config, "model_config", "dtype")).removeprefix("torch.")
    mode = _within(config, "model_config", "logprobs_mode")
    extension = str(_within(config, "parallel_config", "worker_extension_cls") or "")
    expected = str(model.dtype).removeprefix("torch.")
    if dtype not in (expected, "None"):
        raise ValueError(
            f"Expected the server at {server.url} to hold the weights in {expected}, as the learner does, found "
            f"{dtype}; start it with --dtype {expected}, or train with --dtype {dtype}."
        )
    if mode not in ("processed_logprobs", None):
        raise ValueError(
            f"Expected the server at {server.url} to report log-probabilities at the temperature of the sampling, "
            f"found {mode}; start it with --logprobs-mode processed_logprobs."
        )
    backend = _within(config, "weight_transfer_config", "backend")
    if sync == "broadcast" and backend != BACKEND:
        raise ValueError(
            f"Expected the server at {server.url} to receive broadcasts of heedful, found the backend {backend}; "
            f"""start it with --worker-extension-cls {WORKER} --weight-transfer-config '{{"backend": "{BACKEND}"}}'."""
        )
    return Facts(name, window, extension.startswith("heedful."))


def _within(tree: Any, *names: str) -> Any:
    """A nested field, or `None` where the server does not say."""
    for name in names:
        tree = tree.get(name) if isinstance(tree, dict) else None
    return tree
