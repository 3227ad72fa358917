"""Sampling with vLLM servers: `--sampler vllm`. The learner owns the weights, and servers hold copies of them."""

from __future__ import annotations

from heedful.policies.vllm.policy import ServerPolicy
from heedful.policies.vllm.probes import WrongWeights
from heedful.policies.vllm.source import Vllm

__all__ = ["ServerPolicy", "Vllm", "WrongWeights"]
