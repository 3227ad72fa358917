"""Policies: what answers conversations, how it samples, and the seam by which a run chooses it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from heedful.exports import lazily
from heedful.policies.local import Local
from heedful.policies.rows import ReplyRenderer
from heedful.policies.sampling import Sampling
from heedful.policies.source import OpenPolicySource, PolicySource, Weights, open_with
from heedful.policies.vllm.source import Vllm

if TYPE_CHECKING:
    from heedful.policies.hf import HFPolicy

__all__ = [
    "POLICIES",
    "HFPolicy",
    "Local",
    "OpenPolicySource",
    "PolicySource",
    "ReplyRenderer",
    "Sampling",
    "Vllm",
    "Weights",
    "open_with",
]

POLICIES: Mapping[str, type] = {"local": Local, "vllm": Vllm}
"""Policy sources by the name that configurations and the command line use."""


__getattr__ = lazily(__name__, {"HFPolicy": "heedful.policies.hf"})
