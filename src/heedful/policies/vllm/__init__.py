"""Sampling with vLLM servers: `--sampler vllm`. The learner owns the weights, and servers hold copies of them."""

from heedful.policies.vllm.probes import WrongWeights

__all__ = ["WrongWeights"]
