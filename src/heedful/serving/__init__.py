"""Environments over HTTP: sessions, requests and the server. Standard library only.

Every request gets an answer, errors as a sentence. A faulty client cannot disturb another client's session.
"""

from heedful.envs.remote.server_calls import read_token
from heedful.serving.browser import ROOT, Html, Pages
from heedful.serving.connections import Limits
from heedful.serving.server import EnvironmentServer, check_address
from heedful.serving.service import Service
from heedful.serving.sessions import Refusal, Sessions

__all__ = [
    "ROOT",
    "EnvironmentServer",
    "Html",
    "Limits",
    "Pages",
    "Refusal",
    "Service",
    "Sessions",
    "check_address",
    "read_token",
]
