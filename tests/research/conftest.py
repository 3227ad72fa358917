"""Every test of a study runs in a folder of its own."""

from studies.conftest import own_place, started, written  # noqa: F401
