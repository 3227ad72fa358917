"""What an inference server says about itself: version, models, settings, and the flags that it lacks.

Nothing is changed on the server. vLLM shows its settings in development mode only. Without it they are unknown, which
is not the same as wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from heedful.boundary.foreign_text import where_apart
from heedful.boundary.http import UNTRUSTED, ServerRefused
from heedful.policies.servers.client import Client, Server
from heedful.policies.servers.dialects import MODELS, SERVER_INFO, VERSION, Call, Draw, Tree, Vllm, given
from heedful.policies.servers.exchange import Failed

TESTED = "0.32."
"""The release of vLLM that heedful was run against. Its RL interface changes between minor versions."""

BACKEND = "heedful"
"""The server's side of a broadcast, in `--weight-transfer-config`."""
WORKER = "heedful.integrations.vllm.worker.Worker"
"""What a server imports into its workers (`--worker-extension-cls`)."""

_LEAST_WINDOW = 8
"""Tokens. Less leaves no room for a prompt and a reply."""
_TIMEOUT = 120.0

Use = Literal["sample", "weights"]
"""sample: ids and log-probabilities of replies. weights: weights that go out to the server."""


@dataclass(frozen=True, slots=True)
class Lack:
    """A flag that a server was started without."""

    flag: str
    why: str
    use: Use


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What one server answered. `None` = it does not say."""

    url: str
    vllm: str
    """The version of vLLM, or empty for another server."""
    windows: Mapping[str, int | None]
    """Model name -> most tokens of prompt and reply together."""
    generates: bool | None = None
    """Whether `/inference/v1/generate` is switched on."""
    settings: Mapping[str, Any] | None = None
    """The settings that matter here, from development mode."""

    @property
    def development(self) -> bool:
        return self.settings is not None

    def setting(self, name: str) -> Any:
        return None if self.settings is None else self.settings.get(name)

    @property
    def processed_logprobs(self) -> bool | None:
        """Whether log-probabilities are reported at the temperature that was sampled with."""
        mode = self.setting("logprobs_mode")
        return None if mode is None else mode == "processed_logprobs"

    @property
    def extended(self) -> bool:
        """Whether it was started with heedful's worker module."""
        return str(self.setting("worker_extension") or "").startswith("heedful.")

    @property
    def lacks(self) -> list[Lack]:
        """The flags for training that this vLLM lacks. Empty for another server, of which none is expected."""
        if not self.vllm:
            return []
        found = []
        if not self.generates:
            why = "/inference/v1/generate is off, which takes ids and names the version of the weights"
            found.append(Lack("--enable-scale-out", why, "sample"))
        if not self.development:
            why = "the endpoints that take weights do not exist without development mode, nor those that show settings"
            return [*found, Lack("VLLM_SERVER_DEV_MODE=1", why, "weights")]
        if not self.processed_logprobs:
            why = f"log-probabilities are {self.setting('logprobs_mode')}: wrong at every temperature but 1"
            found.append(Lack("--logprobs-mode processed_logprobs", why, "sample"))
        if self.setting("generation_config") != "vllm":
            why = "a file of the model can set top-k, top-p and penalties for requests that leave them out"
            found.append(Lack("--generation-config vllm", why, "sample"))
        if self.setting("device") == "cpu" and self.setting("chunked_prefill"):
            why = "on a CPU, a request with a seed whose prompt is read in pieces ends the engine"
            found.append(Lack("--no-enable-chunked-prefill", why, "sample"))
        return found

    @property
    def ways_out(self) -> dict[str, str]:
        """The three ways of pushing weights, and what stands in the way of each. Empty: nothing that it shows."""
        if not self.vllm:
            return dict.fromkeys(("folder", "broadcast", "adapters"), "this server takes no weights")
        closed = "" if self.development else "needs VLLM_SERVER_DEV_MODE=1"
        repack = "needs --worker-extension-cls on a CPU, where a tied output head keeps its old weights without it"
        folder = closed or (repack if self.setting("device") == "cpu" and not self.setting("worker_extension") else "")
        backend = f"needs --weight-transfer-config with the backend {BACKEND}"
        broadcast = folder or ("" if self.setting("transfer_backend") == BACKEND else backend)
        lora = "" if self.setting("lora") else "needs --enable-lora"
        lora = lora or ("" if self.setting("lora_updating") else "needs VLLM_ALLOW_RUNTIME_LORA_UPDATING=1")
        return {"folder": folder, "broadcast": broadcast, "adapters": closed or lora}


def examine(client: Client, server: Server) -> ServerFacts:
    """Ask one server about itself. Raises Failed where it cannot be reached, and ServerRefused for a wrong key."""
    listed = _answer(client, server, MODELS)
    version = _answer(client, server, VERSION)
    vllm = str(given(version, "version") or "")
    info = _answer(client, server, SERVER_INFO) if vllm else None
    windows = windows_in(listed)
    generates = _generates(client, server, next(iter(windows), "")) if vllm else None
    return ServerFacts(server.url, vllm, windows, generates, settings_in(info) if isinstance(info, dict) else None)


def refuse_unknown(facts: ServerFacts, model: str) -> None:
    """Raise ValueError if the server lists its models, and this name is none of them."""
    if facts.windows and model not in facts.windows:
        raise ValueError(
            f"Expected the name of a model at {facts.url}, which has {', '.join(list(facts.windows)[:5])}, found "
            f"--model-name {model}."
        )


def refuse_unfit(facts: ServerFacts, dtype: str, window: int, sync: str) -> None:
    """Raise ValueError for a server that cannot sample for a learner as it was started.

    `dtype`: the learner's. `window`: tokens that both can read. `sync`: the way of the weights. To load adapters, a
    server needs no endpoint for weights.
    """
    at = f"Expected the server at {facts.url} to"
    if not facts.windows or window < _LEAST_WINDOW:
        found = f"one of {window}" if facts.windows else "no model"
        raise ValueError(
            f"{at} name a model with a window of at least {_LEAST_WINDOW} tokens, found {found}; look at "
            f"{facts.url}/v1/models."
        )
    if facts.settings is None and sync != "adapters":
        raise ValueError(f"{at} have endpoints for weights, found none; start vLLM with VLLM_SERVER_DEV_MODE=1.")
    if facts.setting("dtype") not in (dtype, "", None):
        found = facts.setting("dtype")
        raise ValueError(
            f"{at} hold the weights in {dtype}, as the learner does, found {found}; start it with --dtype {dtype}, or "
            f"train with --dtype {found}."
        )
    if facts.processed_logprobs is False:
        raise ValueError(
            f"{at} report log-probabilities at the temperature of the sampling, found {facts.setting('logprobs_mode')};"
            " start it with --logprobs-mode processed_logprobs."
        )
    backend = facts.setting("transfer_backend")
    if sync == "broadcast" and backend != BACKEND:
        raise ValueError(
            f"{at} receive broadcasts of heedful, found the backend {backend or None}; start it with "
            f"""--worker-extension-cls {WORKER} --weight-transfer-config '{{"backend": "{BACKEND}"}}'."""
        )


def check_tokenizer(client: Client, model: str, encode: Callable[[str], Sequence[int]], source: str) -> str:
    """Compare one text with the server's own tokenizer. Returns a sentence about the comparison.

    `encode`: the tokenizer that was found in `source`, without special tokens at the ends. Raises ValueError if the
    server reads the text otherwise.
    """
    text = "<think>Go up, 3 + 4 = 7: na\u00efve?</think>"
    ids = list(encode(text))
    body = {"model": model, "prompt": text, "add_special_tokens": False}
    try:
        tree = client.ask(Call("/tokenize", body), lambda tree: tree)
    except ServerRefused:
        return "The server has no /tokenize, so nothing shows that --tokenizer is the served model's."
    found = tree.get("tokens") if isinstance(tree, dict) else None
    if found != ids:
        ours, theirs = where_apart(ids, found) if isinstance(found, list) else (ids[:8], found)
        raise ValueError(
            f"Expected the tokenizer of the served model {model}, found another one in {source}: in {text!r} it reads "
            f"{ours}, and the server {str(theirs)[:80]}. Give the model's own."
        )
    return "The server reads text as --tokenizer does."


def base_of(url: str) -> str:
    """The address of a server. The `/v1` at the end, with which many clients write it, is left out.

    >>> base_of("http://127.0.0.1:8000/v1/")
    'http://127.0.0.1:8000'
    """
    return url.rstrip("/").removesuffix("/v1")


def windows_in(listed: Tree) -> dict[str, int | None]:
    """Model name -> window, from an answer of `/v1/models`."""
    rows, found = given(listed, "data"), {}
    for row in rows if isinstance(rows, list) else []:
        name, window = given(row, "id"), given(row, "max_model_len")
        if isinstance(name, str):
            found[name] = window if type(window) is int and window > 0 else None
    return found


def settings_in(info: Tree) -> dict[str, Any]:
    """The settings that matter here, from an answer of `/server_info`. Everything else in it is left out: it may hold
    what belongs to the server's owner alone."""
    config = given(info, "vllm_config")
    return {
        "dtype": str(given(config, "model_config", "dtype") or "").removeprefix("torch."),
        "logprobs_mode": given(config, "model_config", "logprobs_mode"),
        "generation_config": given(config, "model_config", "generation_config"),
        "window": given(config, "model_config", "max_model_len"),
        "prefix_caching": given(config, "cache_config", "enable_prefix_caching"),
        "chunked_prefill": given(config, "scheduler_config", "enable_chunked_prefill"),
        "device": str(given(config, "device_config", "device_type") or given(config, "device_config", "device") or ""),
        "worker_extension": given(config, "parallel_config", "worker_extension_cls") or "",
        "transfer_backend": given(config, "weight_transfer_config", "backend") or "",
        "lora": given(config, "lora_config") is not None,
        "lora_updating": bool(given(info, "vllm_env", "VLLM_ALLOW_RUNTIME_LORA_UPDATING")),
    }


def _answer(client: Client, server: Server, call: Call) -> Tree:
    """The answer, or `None` where the server has no such endpoint, or answers with what is no JSON."""
    try:
        return client.tell(server, call, _TIMEOUT)
    except ServerRefused as refusal:
        if refusal.status == UNTRUSTED or (call is MODELS and refusal.status in (401, 403)):
            raise
        return None
    except Failed as failure:
        if failure.kind == "garbled":
            return None
        raise


def _generates(client: Client, server: Server, model: str) -> bool:
    """Whether the endpoint samples: one token after one id."""
    try:
        client.tell(server, Vllm().draw([0], Draw(1.0, True, 1, 0), model), _TIMEOUT)
    except ServerRefused as refusal:
        return refusal.status not in (403, 404)
    except Failed as failure:
        if failure.kind != "garbled":
            raise
    return True
