"""Environments over HTTP: sessions, requests and the server. Standard library only.

Every request gets an answer, errors as a sentence. A faulty client cannot disturb another client's session.
"""

from heedful.serving.connections import Limits
from heedful.serving.server import EnvironmentServer
from heedful.serving.service import Service
from heedful.serving.sessions import Sessions

__all__ = ["EnvironmentServer", "Limits", "Service", "Sessions"]
