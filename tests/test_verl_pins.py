"""The environment of the tests with a real verl: its pins, and where CI runs them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def pins(name: str) -> dict[str, str]:
    """Package -> version, in the lower case in which pip compares names."""
    found = re.findall(r"^([\w.-]+)==(\S+)", (ROOT / name).read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {package.lower().replace("_", "-"): version for package, version in found}


def test_heedfuls_own_needs_have_the_versions_of_all_other_tests() -> None:
    ours, verls = pins("constraints.txt"), pins("constraints-verl.txt")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needs = [re.match(r"[\w-]+", need) for need in [*project["dependencies"], "torch", "pytest", "safetensors"]]
    for need in needs:
        assert need is not None
        assert verls[need.group()] == ours[need.group()]


def test_the_pinned_verl_is_of_the_series_that_heedful_expects() -> None:
    source = ROOT / "src" / "heedful_verl" / "compatibility.py"
    tested = re.search(r'^TESTED = "([\d.]+)"', source.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert tested is not None
    assert pins("constraints-verl.txt")["verl"].startswith(f"{tested.group(1)}.")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert extras["verl"][0] == "verl>=0.9.1,<0.10"


def test_tests_with_a_real_verl_have_a_section_of_their_own_before_the_others() -> None:
    run = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert 0 < run.index("make test-verl") < run.index("make test\n")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "-m pytest -m verl" in makefile
    assert "not verl" in makefile
