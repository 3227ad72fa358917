"""Environments of users, named as module:Class: what cannot be made is refused in a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from heedful.run.presets import preset

CLASSES = """
from dataclasses import dataclass
from heedful.envs.toys.echo import Echo

@dataclass(frozen=True, kw_only=True)
class Number(Echo):
    name = 5

@dataclass(frozen=True, kw_only=True)
class Raises(Echo):
    def __post_init__(self):
        raise KeyError("no file")

class NameRaises:
    turns = 1
    def task(self, seed): ...
    def episode(self): ...
    @property
    def name(self):
        raise KeyError("no name")

def function():
    raise RuntimeError("not today")
"""


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("Number", "to be a text, found 5"),
        ("Raises", "found KeyError: 'no file'"),
        ("NameRaises", "found a NameRaises without `name`"),
        ("function", "found RuntimeError: not today"),
        ("Absent", "found AttributeError: "),
    ],
)
def test_a_class_that_makes_no_environment_is_refused(
    name: str, found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_and_bad.py").write_text(CLASSES)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ValueError, match=f"own_and_bad:{name}.*{found}"):
        preset(f"own_and_bad:{name}")


@pytest.mark.parametrize("source", ["def (:", "raise KeyError('x')", "\x00", "def f(): f()\nf()"])
def test_a_module_that_cannot_be_imported_is_refused(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = f"bad_{abs(sum(map(ord, source)))}"
    (tmp_path / f"{module}.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ValueError, match=f"Expected '{module}:X' to name a class|null bytes"):
        preset(f"{module}:X")
