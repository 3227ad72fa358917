"""Estimators with an interval, simulated where the truth is known: `python -m benchmarks.truth`."""
