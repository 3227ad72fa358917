"""Policies: what answers conversations, how it samples, and the seam by which a run chooses it.

Importing this package loads no torch. `HFPolicy` loads it when it is first used.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from heedful.policies.local import Local
from heedful.policies.rows import ReplyRenderer
from heedful.policies.sampling import Sampling
from heedful.policies.scripted import ScriptedPolicy
from heedful.policies.source import OpenPolicySource, PolicySource, Weights, open_with

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
    "ScriptedPolicy",
    "Weights",
    "open_with",
]

POLICIES: Mapping[str, type] = {"local": Local}
"""Policy sources by the name that configurations and the command line use."""


def __getattr__(name: str) -> object:
    if name == "HFPolicy":
        from heedful.policies.hf import HFPolicy

        return HFPolicy
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
