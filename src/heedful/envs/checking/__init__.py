"""The rules of the contract, one function each, and how environments are played for them."""

from heedful.envs.checking.check import check
from heedful.envs.checking.play import QUICK, Effort
from heedful.envs.checking.report import Finding, Report

__all__ = ["QUICK", "Effort", "Finding", "Report", "check"]
