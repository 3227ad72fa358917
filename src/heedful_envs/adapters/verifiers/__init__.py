"""Environments of the library verifiers, scored by their own rubrics."""
