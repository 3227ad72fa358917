"""Evaluation of a model that a server holds: the settings, the connection, the journal of replies, the measurement."""

from heedful.run.served.evaluation import ServedEvaluation, evaluate_served
from heedful.run.served.model import ServedModel, open_served
from heedful.run.served.settings import ServedSettings, served_settings

__all__ = [
    "ServedEvaluation",
    "ServedModel",
    "ServedSettings",
    "evaluate_served",
    "open_served",
    "served_settings",
]
