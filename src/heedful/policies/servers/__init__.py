"""Inference servers: requests and answers (`dialects`), and the client that sends them. Torch-free."""

from __future__ import annotations

from heedful.boundary.http import ServerRefused, ServerUnreachable, parts_of, read_key
from heedful.policies.servers.client import Client, Limits, Server
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
from heedful.policies.servers.exchange import Failed, WindowFull, check_urls

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
    "WindowFull",
    "Written",
    "check_urls",
    "parts_of",
    "read_key",
]
