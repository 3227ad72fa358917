"""A rollout engine of verl for a CPU: a transformers model in a Ray actor, under the name `hf_cpu`.

Named in VERL_USE_EXTERNAL_MODULES, after `cpu_platform`. It samples one token at a time and one conversation at a time,
so it is slow, and it is exact: the log-probabilities are those of softmax(logits / temperature). The n-th reply to a
prompt under given weights draws from a generator of its own, whatever other requests arrive between.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections import Counter
from typing import Any

import ray
import torch
from verl.workers.rollout.base import _ROLLOUT_REGISTRY, BaseRollout
from verl.workers.rollout.replica import RolloutReplica, RolloutReplicaRegistry, TokenOutput

ENGINE = "hf_cpu"


@ray.remote
class Server:
    """One model. It answers `aborted` while it sleeps, as an engine does whose requests were aborted."""

    def __init__(self, folder: str, seed: int, most: int) -> None:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        torch.set_num_threads(1)
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self.end = AutoTokenizer.from_pretrained(folder).eos_token_id
        self.seed, self.most = seed, most
        self.version, self.awake = 0, True
        self.asked: Counter[tuple[int, ...]] = Counter()

    async def generate(
        self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any], **_: Any
    ) -> TokenOutput:
        """One reply. It ends with the end-of-text token, at `max_tokens`, or when the server goes to sleep."""
        most = sampling_params.get("max_tokens") or self.most
        temperature = sampling_params.get("temperature", 1.0)
        generator = self._generator(tuple(prompt_ids))
        ids: list[int] = []
        logprobs: list[float] = []
        cache, unread = None, list(prompt_ids)
        while self.awake and len(ids) < most and (not ids or ids[-1] != self.end):
            with torch.no_grad():
                output = self.model(torch.tensor([unread]), past_key_values=cache, use_cache=True)
            cache = output.past_key_values
            logprobs_V = torch.log_softmax(output.logits[0, -1] / (temperature or 1.0), dim=-1)
            greedy = temperature == 0
            token = logprobs_V.argmax() if greedy else torch.multinomial(logprobs_V.exp(), 1, generator=generator)
            ids.append(int(token))
            logprobs.append(float(logprobs_V[ids[-1]]))
            unread = ids[-1:]
            await asyncio.sleep(0)  # other requests take their turn
        return TokenOutput(
            token_ids=ids,
            log_probs=logprobs,
            stop_reason="completed" if self.awake else "aborted",
            extra_fields={"global_steps": self.version},
        )

    def _generator(self, prompt: tuple[int, ...]) -> torch.Generator:
        """A generator for the n-th reply to this prompt under these weights."""
        number = self.asked[prompt]
        self.asked[prompt] += 1
        content = repr((self.seed, self.version, number, prompt)).encode()
        return torch.Generator().manual_seed(int.from_bytes(hashlib.sha256(content).digest()[:6], "big"))

    async def load(self, weights: dict[str, Any], version: int) -> None:
        """Take the weights of the actor. verl syncs them after every step."""
        state = {name: torch.from_numpy(values.copy()) for name, values in weights.items()}
        wrong = self.model.load_state_dict(state, strict=False)
        if wrong.unexpected_keys:
            raise ValueError(f"Expected the weights of {type(self.model).__name__}, found {wrong.unexpected_keys[:3]}.")
        self.version, self.awake = version, True
        self.asked.clear()

    async def weights(self) -> dict[str, Any]:
        """The weights that sample now, for tests."""
        return {name: value.detach().numpy().copy() for name, value in self.model.named_parameters()}

    async def wake_up(self) -> None:
        self.awake = True

    async def resume_generation(self) -> None:
        self.awake = True

    async def sleep(self) -> None:
        self.awake = False

    async def abort_all_requests(self, reject_request: bool = False) -> None:
        self.awake = False

    async def clear_kv_cache(self, **_: Any) -> None:
        """A request keeps its own cache, so there is nothing to clear."""

    release_kv_cache = resume_kv_cache = start_profile = stop_profile = clear_kv_cache


class Replica(RolloutReplica):
    """verl's handle of one server."""

    async def launch_servers(self) -> None:
        self._server_address = address_of(self.replica_rank)
        self._server_handle = Server.options(
            name=self._server_address, num_cpus=0, max_concurrency=self.max_concurrency
        ).remote(self.model_config.path, self.config.seed + self.replica_rank, self.config.response_length)
        self.servers = [self._server_handle]
        await self._server_handle.wake_up.remote()


class Adapter(BaseRollout):
    """The side of the training worker: it sends its weights to the server of its rank."""

    async def resume(self, tags: list[str]) -> None:
        """The server keeps its weights while it sleeps."""

    async def release(self) -> None:
        """The server keeps its weights while it sleeps."""

    async def update_weights(
        self, weights: Any, wire_format: str = "named_tensors", global_steps: int | None = None, **_: Any
    ) -> None:
        state = {name: tensor.detach().float().cpu().numpy() for name, tensor in weights}
        await ray.get_actor(address_of(int(os.environ["RANK"]))).load.remote(state, global_steps or 0)


def address_of(rank: int) -> str:
    """The name of the server's Ray actor."""
    return f"{ENGINE}_{rank}"


_ROLLOUT_REGISTRY[ENGINE, "async"] = f"{__name__}.{Adapter.__name__}"
RolloutReplicaRegistry.register(ENGINE, lambda: Replica)
