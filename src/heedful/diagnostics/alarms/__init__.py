"""Alarms: their rules as data, and the state that watches a run for them."""
