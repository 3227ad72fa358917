"""Alarms: their rules as data, and the state that watches them over the steps of a run."""
