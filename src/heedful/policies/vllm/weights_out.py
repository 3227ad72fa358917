"""The ways of the weights to a server: a shared folder, LoRA adapters, or a broadcast.

`prepare` is called on every rank, since the weights of a sharded model are gathered. `send` is called on rank 0 alone,
for each server, and again for a server that has lost its weights. It brings the prepared weights to the server, whole,
and raises ServerUnreachable, ServerRefused or OSError.

The broadcast goes over a process group: the learner is rank 0, the server's workers are the others. gloo on CPUs, nccl
on GPUs (with nccl it was not run). The other side is `heedful.integrations.vllm.worker`. Every wait has an end: a
process that dies in the middle of a broadcast must not hold the learner for ever.
"""

from __future__ import annotations

import shutil
import threading
import uuid
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from heedful.policies.servers import Client, Failed, Server, ServerRefused, ServerUnreachable
from heedful.policies.servers.dialects import Call, given
from heedful.policies.source import Weights

if TYPE_CHECKING:
    import torch


class _Folders:
    """One folder per version. The last one is deleted when the next is made: every server has read it by then."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.current: Path | None = None

    def make(self, label: str) -> Path:
        self.delete()
        self.current = (self._root / label).absolute()
        self.current.mkdir(parents=True)
        return self.current

    def delete(self) -> None:
        if self.current is not None:
            shutil.rmtree(self.current, ignore_errors=True)


class FolderOut:
    """A model folder per version, which the server reads. The server needs to see the same folder.

    `extended`: whether a server was started with our worker module, which packs a tied output layer again.
    """

    def __init__(self, root: Path, extended: Callable[[Server], bool]) -> None:
        self._folders, self._extended = _Folders(root), extended

    def prepare(self, weights: Weights, label: str, rank: int) -> None:
        from heedful.models.writing import write_weights

        saveable = weights.saveable()
        if not rank:
            write_weights(self._folders.make(label), saveable)

    def send(self, client: Client, server: Server, label: str) -> None:
        method = "heedful_reload" if self._extended(server) else "reload_weights"
        named = {"method": method, "kwargs": {"weights_path": str(self._folders.current)}}
        client.tell(server, Call("/collective_rpc", named))
        client.tell(server, Call("/update_weight_version", {"new_version": label}))

    def close(self) -> None:
        self._folders.delete()


class AdaptersOut:
    """A LoRA adapter per version, under a name of its own. The server keeps the untrained model."""

    def __init__(self, root: Path) -> None:
        self._folders = _Folders(root)
        self._loaded: dict[str, str] = {}
        """The adapter of each server, by its URL."""

    def prepare(self, weights: Weights, label: str, rank: int) -> None:
        """Raises ValueError for a model without LoRA."""
        save = getattr(weights.saveable(), "save_additions", None)
        if save is None:
            raise ValueError("--sampler.sync adapters needs LoRA (--lora.rank); choose folder or broadcast without it.")
        if not rank:
            save(self._folders.make(label))

    def send(self, client: Client, server: Server, label: str) -> None:
        earlier = self._loaded.pop(server.url, "")
        for name in {earlier, label} - {""}:
            try:
                client.tell(server, Call("/v1/unload_lora_adapter", {"lora_name": name}, plain=True))
            except ServerRefused as error:
                if error.status not in (400, 404):  # a server that was started again does not have it
                    raise
        body = {"lora_name": label, "lora_path": str(self._folders.current)}
        client.tell(server, Call("/v1/load_lora_adapter", body, plain=True))
        self._loaded[server.url] = label

    def close(self) -> None:
        self._folders.delete()


class BroadcastOut:
    """One process group per server, joined when it is first needed and again after each failure.

    `address`: of this machine, as the servers see it. `timeout`: seconds for joining a group, and for one update.
    """

    def __init__(self, address: str, timeout: float) -> None:
        self._address, self._timeout = address, timeout
        self._groups: dict[str, tuple[str, Any]] = {}
        """The name and the group of each server, by its URL."""
        self._tensors: Mapping[str, torch.Tensor] = {}

    def prepare(self, weights: Weights, label: str, rank: int) -> None:
        from heedful.models.writing import whole_tensors

        tensors = whole_tensors(weights.saveable())
        self._tensors = {} if rank else tensors

    def send(self, client: Client, server: Server, label: str) -> None:
        """After an error, the next call begins with a group of its own."""
        known = self._groups.pop(server.url) if server.url in self._groups else None
        name, group = known or self._joined(client, server)
        try:
            client.tell(server, Call("/start_weight_update", {}), self._timeout)
        except Failed as error:
            if "already active" not in str(error):
                raise
            # An update that broke is still open. It is closed, and all of it sent again.
            client.tell(server, Call("/finish_weight_update", {}), self._timeout)
            client.tell(server, Call("/start_weight_update", {}), self._timeout)
        update = {
            "group": name,
            "names": list(self._tensors),
            "dtypes": [str(tensor.dtype).removeprefix("torch.") for tensor in self._tensors.values()],
            "shapes": [list(tensor.shape) for tensor in self._tensors.values()],
        }
        sent = _Background(lambda: self._broadcast(group))
        client.tell(server, Call("/update_weights", {"update_info": update}), self._timeout)
        sent.result(self._timeout, f"the broadcast to {server.url}")
        client.tell(server, Call("/finish_weight_update", {"weight_version": label}), self._timeout)
        self._groups[server.url] = name, group

    def close(self) -> None:
        self._groups.clear()
        self._tensors = {}

    def _broadcast(self, group: Any) -> None:
        import torch

        options = torch.distributed.BroadcastOptions()
        options.rootRank, options.rootTensor = 0, 0
        for tensor in self._tensors.values():
            group.broadcast([tensor.detach().contiguous()], options).wait()

    def _joined(self, client: Client, server: Server) -> tuple[str, Any]:
        """A new group with the workers of a server, and its name."""
        import torch

        found = client.tell(server, Call("/get_world_size"))
        workers = given(found, "world_size")
        if type(workers) is not int:
            said = repr(found)[:80]
            raise ServerRefused(200, f"The server at {server.url} does not say how many workers it has: {said}.")
        distributed: Any = torch.distributed
        limit = timedelta(seconds=self._timeout)
        on_gpu = any(tensor.is_cuda for tensor in self._tensors.values())
        store = distributed.TCPStore(
            self._address, 0, 1 + workers, is_master=True, timeout=limit, wait_for_workers=False
        )
        kind = distributed.ProcessGroupNCCL if on_gpu else distributed.ProcessGroupGloo
        name = uuid.uuid4().hex
        init = {
            "name": name,
            "address": self._address,
            "port": store.port,
            "size": 1 + workers,
            "kind": "nccl" if on_gpu else "gloo",
            "timeout": self._timeout,
        }
        joining = _Background(lambda: kind(store, 0, 1 + workers, limit))
        client.tell(server, Call("/init_weight_transfer_engine", {"init_info": init}), self._timeout)
        return name, joining.result(self._timeout, f"the group with the workers of {server.url}")


class _Background:
    """A call in a thread of its own, which is never waited for without an end."""

    def __init__(self, call: Any) -> None:
        self._found: Any = None
        self._error: RuntimeError | None = None

        def run() -> None:
            try:
                self._found = call()
            except RuntimeError as error:  # what torch raises where the other side is gone
                self._error = error

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()

    def result(self, timeout: float, what: str) -> Any:
        self._thread.join(timeout)
        if self._thread.is_alive() or self._error is not None:
            reason = str(self._error or f"no end within {timeout:g} s").splitlines()[0]
            raise ServerUnreachable(f"{what} failed: {reason}")
        return self._found


WeightsOut: TypeAlias = FolderOut | AdaptersOut | BroadcastOut
