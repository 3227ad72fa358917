"""`--sampler vllm`: the source of policies over vLLM servers. Torch-free until it is opened."""

from __future__ import annotations

import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from annotated_types import Interval

from heedful.boundary import NamesSecret, Seconds, Threads, settings
from heedful.policies.rows import ReplyRenderer
from heedful.policies.sampling import Sampling
from heedful.policies.servers import Client, Limits, Server, ServerUnreachable, check_urls, read_key
from heedful.policies.servers import Vllm as VllmDialect
from heedful.policies.servers.dialects import WEIGHT_INFO, Call, given
from heedful.policies.servers.examination import WORKER, ServerFacts, examine, refuse_unfit
from heedful.policies.source import OpenPolicySource, Weights
from heedful.policies.vllm.policy import Served, ServerPolicy
from heedful.policies.vllm.weights_out import AdaptersOut, BroadcastOut, FolderOut, WeightsOut
from heedful.types import Metric

if TYPE_CHECKING:
    from heedful.policies.vllm.probes import Probes

Sync = Literal["folder", "broadcast", "adapters"]


@settings
class Vllm:
    """vLLM servers sample. They get the weights after each update, and are measured against the learner."""

    url: tuple[str, ...] = ("http://127.0.0.1:8000",)
    """The servers, such as http://10.0.0.7:8000. Each holds a copy of the weights."""
    sync: Sync = "folder"
    """The way of the weights: a folder that both sides see, a broadcast, or LoRA adapters (with --lora.rank)."""
    folder: str = ""
    """Where weights are written for the servers. Empty = a temporary folder of this machine."""
    address: str = "127.0.0.1"
    """With the broadcast: the address of this machine, as the servers see it."""
    connections: Threads = 256
    """Most requests that one server gets at once."""
    timeout: Seconds = 600.0
    """Seconds for one whole answer."""
    patience: Seconds = 900.0
    """Seconds for which servers that are away or busy are waited for."""
    tolerance: Annotated[float, Interval(gt=0, lt=float("inf"))] = 1e-3
    """The run stops if the servers' log-probabilities of the probes differ by more from the learner's, in nats."""
    api_key_env: Annotated[str, NamesSecret()] = ""
    """The environment variable with the servers' API key."""

    def __post_init__(self) -> None:
        check_urls(self.url)

    def sampling(self, sampling: Sampling) -> Sampling:
        if sampling.noise == "batch" or sampling.precision == "double":
            refused = "--sampling.noise batch" if sampling.noise == "batch" else "--sampling.precision double"
            raise ValueError(
                f"--sampler vllm samples each conversation by itself, in the server's precision; leave {refused} out"
            )
        return replace(sampling, noise="conversation")

    @contextmanager
    def open(self, *, rank: int = 0, note: Callable[[str], None] = print) -> Iterator[OpenPolicySource]:
        limits = Limits(self.connections, self.timeout, self.patience)
        client = Client(self.url, limits, key=read_key(self.api_key_env), note=note)
        with tempfile.TemporaryDirectory(prefix="heedful-weights-") as temporary:
            opened = OpenVllm(self, client, Path(self.folder or temporary), rank, note)
            try:
                yield opened
            finally:
                opened.close()


class OpenVllm:
    """The servers of one run, and the version of the weights that they hold."""

    def __init__(self, config: Vllm, client: Client, folder: Path, rank: int, note: Callable[[str], None]) -> None:
        self._config, self._client, self._rank, self._note = config, client, rank, note
        self._pool = ThreadPoolExecutor(client.most_at_once, thread_name_prefix="request")
        self._name = uuid.uuid4().hex[:8]
        """The name of this run in the servers' versions."""
        self._facts: dict[str, ServerFacts] = {}
        self._window = 1 << 30
        """Most tokens of a context and its reply together, for the learner and all servers."""
        self._version, self._label = 0, ""
        self._probes: Probes | None = None
        self._errors: dict[str, float] = {}
        self._out: WeightsOut = FolderOut(folder, lambda server: self._facts[server.url].extended)
        if config.sync == "adapters":
            self._out = AdaptersOut(folder)
        elif config.sync == "broadcast":
            self._out = BroadcastOut(config.address, config.timeout)
        client.restore = self._restore

    def weights_changed(self, weights: Weights) -> list[Metric]:
        """Push the weights to all servers, and measure them. A server that fails is left out until the next push.

        Raises WrongWeights for a server with other weights, and ServerUnreachable where no server is left.
        """
        from heedful.policies.vllm.probes import probes_of

        self._client.admit_all()
        if not self._facts:
            self._facts = {server.url: self._met(server, weights) for server in self._client.servers}
        self._version, self._label = weights.version, f"{self._name}-{weights.version}"
        self._probes = probes_of(weights.model, self._window)
        self._out.prepare(weights, self._label, self._rank)
        self._errors.clear()
        if self._rank:
            self._label = ""  # rank 0 names it
            return []
        self._push_to_all()
        worst = max(self._errors.values())
        return [Metric("sampler/probe_error", worst, n=self._probes.count * len(self._errors))]

    def policy(self, renderer: ReplyRenderer, sampling: Sampling, seed: int) -> ServerPolicy:
        assert self._probes is not None, "a policy was asked for before any weights were handed over"
        if not self._label:  # another rank than 0, which has given the version to the servers
            self._label = str(given(self._client.tell(self._client.servers[0], WEIGHT_INFO), "weight_version"))
            if not self._label.endswith(f"-{self._version}"):
                expected = f"Expected weights of version {self._version} on the servers"
                raise ServerUnreachable(f"{expected}, found {self._label!r}.")
        served = Served(
            self._client,
            VllmDialect(),
            self._pool,
            self._model,
            self._window,
            self._label,
            (404,) if self._config.sync == "adapters" else (),
            self._probes.next_BV.shape[-1],
        )
        return ServerPolicy(served, renderer, sampling, seed=seed, version=self._version)

    def close(self) -> None:
        """Close all connections, also of requests that still wait for their answers."""
        self._client.close()
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._out.close()

    @property
    def _model(self) -> str:
        """The name that requests use for the weights: that of the adapter, or the one that the server started with."""
        names = [next(iter(facts.windows)) for facts in self._facts.values()]
        return self._label if self._config.sync == "adapters" else min(names)

    def _met(self, server: Server, weights: Weights) -> ServerFacts:
        """The server's facts. Raises ValueError where it cannot sample for this model as it was started."""
        from heedful.models.forward.attention import longest_context_of

        self._client.wait_until_healthy(server)
        facts = examine(self._client, server)
        windows = [longest_context_of(weights.model.config), *list(facts.windows.values())[:1]]
        self._window = min(self._window, *(window for window in windows if window))
        refuse_unfit(facts, str(weights.model.dtype).removeprefix("torch."), self._window, self._config.sync)
        return facts

    def _push_to_all(self) -> None:
        """Push to all servers at once. One that fails gets no requests, unless it is the last one."""
        failures: dict[str, OSError | ValueError] = {}

        def push(server: Server) -> None:
            try:
                self._push(server)
            except (OSError, ValueError) as error:
                failures[server.url] = error
                server.lost = str(error)

        threads = [threading.Thread(target=push, args=(server,), daemon=True) for server in self._client.servers[1:]]
        for thread in threads:
            thread.start()
        push(self._client.servers[0])
        for thread in threads:
            thread.join()
        told = [failures[server.url] for server in self._client.servers if server.url in failures]
        wrong = [error for error in told if isinstance(error, ValueError)]
        if wrong or len(told) == len(self._client.servers):
            raise [*wrong, *told][0]
        for error in told:
            self._note(f"going on without it: {error}")

    def _push(self, server: Server) -> None:
        """Bring the weights to one server, twice if need be, and measure them there."""
        from heedful.policies.vllm.probes import WrongWeights

        for attempt in (1, 2):
            try:
                self._out.send(self._client, server, self._label)
                self._client.tell(server, Call("/reset_prefix_cache", {}))
                break
            except (OSError, ValueError):
                if attempt == 2:
                    raise
                self._client.wait_until_healthy(server)
        assert self._probes is not None
        error = self._probes.error(self._client, server, self._model)
        self._errors[server.url] = error
        if not error <= self._config.tolerance:
            raise WrongWeights(
                f"The server at {server.url} does not hold the learner's weights: on {len(self._probes.ids)} probes "
                f"its log-probabilities differ by up to {error:.2g} nats from the learner's, and --sampler.tolerance "
                f"is {self._config.tolerance:g}. Likely causes: it serves another model; it reads with another window; "
                "its dtype is another one (--dtype); it reports log-probabilities without the temperature (start it "
                "with --logprobs-mode processed_logprobs); on a CPU, a tied output layer that keeps its old weights "
                f"(start it with --worker-extension-cls {WORKER})."
            )

    def _restore(self, server: Server) -> None:
        """Give one server the weights of this version again."""
        if self._rank:
            lost = f"The server at {server.url} lost its weights, and only rank 0 can bring them back."
            raise ServerUnreachable(lost)
        self._push(server)
