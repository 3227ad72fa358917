"""Environments over HTTP: sessions, requests and the server. It needs the extra `serve` (starlette and uvicorn).

Every request gets an answer, errors as a sentence. A faulty client cannot disturb another client's session.
"""

from heedful.boundary.http import read_token
from heedful.serving.server import EnvironmentServer
from heedful.serving.service import Service
from heedful.serving.sessions import Refusal, Sessions

__all__ = [
    "EnvironmentServer",
    "Refusal",
    "Service",
    "Sessions",
    "read_token",
]
