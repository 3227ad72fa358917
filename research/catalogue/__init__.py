"""Declared studies, one file a subject."""
