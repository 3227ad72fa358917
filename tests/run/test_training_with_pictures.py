"""Runs on pictures: grown, trained, resumed to the byte, evaluated, with a frozen and a trained tower."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("PIL")
