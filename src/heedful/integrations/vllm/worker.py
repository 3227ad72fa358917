"""Methods for the workers of a vLLM server, and a way of weights that runs without a GPU.

vLLM imports this module into each of its workers: `--worker-extension-cls heedful.integrations.vllm.worker.Worker`. It
needs torch and vLLM, and nothing else of heedful. Read from the source of vLLM 0.32.0, and run against it on a CPU.

vLLM has no backend of weight transfer for a CPU. The backend `heedful` broadcasts over a process group of torch, gloo
on CPUs and nccl on GPUs: `--weight-transfer-config '{"backend": "heedful"}'`. With nccl it was not run.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
from vllm.distributed.weight_transfer import WeightTransferEngine, WeightTransferEngineFactory
from vllm.distributed.weight_transfer.base import WeightTransferInitInfo, WeightTransferUpdateInfo

BACKEND = "heedful"


@dataclass
class GroupInit(WeightTransferInitInfo):
    """The process group: the learner is rank 0, and the server's workers follow from 1 on."""

    name: str
    address: str
    port: int
    size: int
    kind: str
    timeout: float


@dataclass
class TensorsToCome(WeightTransferUpdateInfo):
    """The tensors of one update, in the order in which they are broadcast."""

    group: str
    """The group over which they come. The workers may be in another one by now, whose learner would send nothing."""
    names: list[str]
    dtypes: list[str]
    shapes: list[list[int]]


class GroupEngine(WeightTransferEngine[GroupInit, TensorsToCome]):
    """Receives each tensor from rank 0, and loads it as if it came from a model folder."""

    init_info_cls = GroupInit
    update_info_cls = TensorsToCome

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._group: Any = None
        self._name = ""

    def init_transfer_engine(self, init_info: GroupInit) -> None:
        self._group = None  # leave an earlier group before joining the next one
        parallel = self.parallel_config
        rank = 1 + parallel.data_parallel_index * parallel.world_size + parallel.rank
        self._group, self._name = joined(init_info, rank), init_info.name

    def start_weight_update(self) -> None:
        from vllm.model_executor.model_loader.reload import initialize_layerwise_reload

        initialize_layerwise_reload(self.model)

    def receive_weights(self, update_info: TensorsToCome) -> None:
        if self._group is None or self._name != update_info.group:
            raise RuntimeError(
                f"Expected the workers in the group {update_info.group}, found them in {self._name or 'none'}; call "
                "init_weight_transfer_engine first."
            )
        for name, dtype, shape in zip(update_info.names, update_info.dtypes, update_info.shapes, strict=True):
            tensor = torch.empty(shape, dtype=getattr(torch, dtype), device=self.device)
            broadcast(self._group, tensor)
            self.model.load_weights([(name, tensor)])

    def finish_weight_update(self) -> None:
        from vllm.model_executor.model_loader.reload import finalize_layerwise_reload

        finalize_layerwise_reload(self.model, self.model_config)
        pack_output_layer(self.model)

    def shutdown(self) -> None:
        self._group = None


class Worker:
    """Methods that vLLM adds to its workers."""

    def heedful_reload(self, weights_path: str) -> None:
        """Load the weights of a model folder, the tied output layer included."""
        worker: Any = self
        worker.reload_weights(weights_path=weights_path)
        pack_output_layer(worker.model_runner.get_model())


def pack_output_layer(model: Any) -> None:
    """Pack a tied output layer again after its weights have changed.

    On a CPU, linear layers work on packed copies. A tied output layer loads nothing itself, so its copy stays old.
    """
    head = getattr(model, "lm_head", None)
    method = getattr(head, "quant_method", None)
    if head is None or not getattr(getattr(model, "config", None), "tie_word_embeddings", False):
        return
    if method is not None and head.weight.device.type == "cpu":
        method.process_weights_after_loading(head)


def joined(init: GroupInit, rank: int) -> Any:
    """A process group beside vLLM's own ones. Blocks until all members have joined."""
    distributed: Any = torch.distributed
    limit = timedelta(seconds=init.timeout)
    store = distributed.TCPStore(init.address, init.port, init.size, is_master=False, timeout=limit)
    if init.kind == "nccl":
        return distributed.ProcessGroupNCCL(store, rank, init.size, limit)
    return distributed.ProcessGroupGloo(store, rank, init.size, limit)


def broadcast(group: Any, tensor: torch.Tensor) -> None:
    """Receive one tensor from rank 0, in place."""
    options = torch.distributed.BroadcastOptions()
    options.rootRank, options.rootTensor = 0, 0
    group.broadcast([tensor], options).wait()


WeightTransferEngineFactory.register_engine(BACKEND, __name__, "GroupEngine")
