"""Inference servers: requests and answers (`dialects`), and the client that sends them. Torch-free."""

from __future__ import annotations

from heedful.policies.servers.client import Client, Limits, Server, read_key
from heedful.policies.servers.connection import (
    Failed,
    ServerRefused,
    ServerUnreachable,
    check_urls,
    parts_of,
    redirected,
    refuse_interim,
    take_kept,
    without_secret,
)
from heedful.policies.servers.dialects import (
    Call,
    Draw,
    Drawn,
    ForeignAnswer,
    OpenAIText,
    OpenAITokens,
    OtherWeights,
    TokenDialect,
    Usage,
    Vllm,
    Written,
)

__all__ = [
    "Call",
    "Client",
    "Draw",
    "Drawn",
    "Failed",
    "ForeignAnswer",
    "Limits",
    "OpenAIText",
    "OpenAITokens",
    "OtherWeights",
    "Server",
    "ServerRefused",
    "ServerUnreachable",
    "TokenDialect",
    "Usage",
    "Vllm",
    "Written",
    "check_urls",
    "parts_of",
    "read_key",
    "redirected",
    "refuse_interim",
    "take_kept",
    "without_secret",
]
