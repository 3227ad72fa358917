"""Runs a study: its processes, the view of them, and the models that they begin with."""
