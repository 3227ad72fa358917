"""The ways of the weights to a server: a shared folder, a broadcast, or LoRA adapters.

`prepare` is called on every rank, since the weights of a sharded model are gathered. `send` is called on rank 0 alone,
for each server, and again for a server that has lost its weights.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from heedful.policies.servers import Client, Server, ServerRefused
from heedful.policies.servers.dialects import Call
from heedful.policies.source import Weights


class WeightsOut(Protocol):
    """One way of the weights to the servers."""

    def prepare(self, weights: Weights, label: str, rank: int) -> None:
        """Take these weights. Called on every rank."""
        ...

    def send(self, client: Client, server: Server, label: str) -> None:
        """Bring the prepared weights to one server, whole. Raises ServerUnreachable, ServerRefused or OSError."""
        ...

    def model(self, served: str, label: str) -> str:
        """The name that requests use for these weights. `served`: the name that the server started with."""
        ...

    def close(self) -> None: ...


class FolderOut:
    """A model folder per version, which the server reads. The server needs to see the same folder.

    `extended`: whether a server was started with our worker module, which packs a tied output layer again.
    """

    def __init__(self, folder: Path, extended: Callable[[Server], bool]) -> None:
        self._folder, self._extended = folder, extended
        self._current: Path | None = None

    def prepare(self, weights: Weights, label: str, rank: int) -> None:
        from heedful.models.writing import write_weights

        saveable = weights.saveable()
        if rank:
            return
        self.close()
        self._current = (self._folder / label).absolute()
        self._current.mkdir(parents=True)
        write_weights(self._current, saveable)

    def send(self, client: Client, server: Server, label: str) -> None:
        method = "heedful_reload" if self._extended(server) else "reload_weights"
        rpc(client, server, method, {"weights_path": str(self._current)})
        client.tell(server, Call("/update_weight_version", {"new_version": label}))

    def model(self, served: str, label: str) -> str:
        return served

    def close(self) -> None:
        """Delete the folder of the last version. Every server has read it, or is given the next one."""
        if self._current is not None:
            shutil.rmtree(self._current, ignore_errors=True)


class AdaptersOut:
    """A LoRA adapter per version, under a name of its own. The server keeps the untrained model."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._current: Path | None = None
        self._loaded: dict[str, str] = {}
        """The adapter of each server, by its URL."""

    def prepare(self, weights: Weights, label: str, rank: int) -> None:
        """Raises ValueError for a model without LoRA."""
        save = getattr(weights.saveable(), "save_additions", None)
        if save is None:
            raise ValueError("--sampler.sync adapters needs LoRA (--lora.rank); choose folder or broadcast without it.")
        if rank:
            return
        self.close()
        self._current = (self._folder / label).absolute()
        self._current.mkdir(parents=True)
        save(self._current)

    def send(self, client: Client, server: Server, label: str) -> None:
        earlier = self._loaded.pop(server.url, "")
        for name in {earlier, label} - {""}:
            try:
                client.tell(server, Call("/v1/unload_lora_adapter", {"lora_name": name}, plain=True))
            except ServerRefused as error:
                if error.status not in (400, 404):  # a server that was started again does not have it
                    raise
        body = {"lora_name": label, "lora_path": str(self._current)}
        client.tell(server, Call("/v1/load_lora_adapter", body, plain=True))
        self._loaded[server.url] = label

    def model(self, served: str, label: str) -> str:
        return label

    def close(self) -> None:
        if self._current is not None:
            shutil.rmtree(self._current, ignore_errors=True)


def rpc(client: Client, server: Server, method: str, named: dict[str, str] | None = None) -> None:
    """Run a method in every worker of the server."""
    client.tell(server, Call("/collective_rpc", {"method": method, "kwargs": named or {}}))
