"""What has to agree when heedful is released: versions, Pythons, package data, and what the public CI runs."""

from __future__ import annotations

import re
import tomllib
import zipfile
from pathlib import Path

import pytest

import heedful
import installed_wheel

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
WORKFLOW = ROOT / ".github" / "workflows" / "ci.yml"
IMAGES = ROOT / "docs" / "images"


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def test_one_version_is_told_everywhere() -> None:
    version = heedful.__version__
    assert PROJECT["project"]["version"] == version
    assert f"\nversion: {version}\n" in text_of(ROOT / "CITATION.cff")
    assert f"\n## [{version}]" in text_of(ROOT / "CHANGELOG.md")
    assert f"release: {version} " in text_of(IMAGES / "badge_release.svg")


def test_the_same_pythons_are_promised_tested_and_shown() -> None:
    classifiers = PROJECT["project"]["classifiers"]
    promised = re.findall(r"Python :: (3\.\d+)", "\n".join(classifiers))
    assert f">={promised[0]}" == PROJECT["project"]["requires-python"]
    assert f"python: {' | '.join(promised)}" in text_of(IMAGES / "badge_python.svg")
    assert re.findall(r'"(3\.\d+)"', text_of(WORKFLOW)) == promised


def test_the_public_ci_runs_what_the_own_ci_runs() -> None:
    own = re.findall(r"^make (\w+)$", text_of(ROOT / ".ci" / "run"), flags=re.MULTILINE)
    public = re.findall(r"- run: make (\w+)", text_of(WORKFLOW))
    assert public == own
    assert set(own) >= {"setup", "lint", "test", "docs", "dist"}


def test_the_image_copies_what_is_there_and_installs_an_extra_that_is_declared() -> None:
    lines = text_of(ROOT / "Dockerfile").splitlines()
    copied = [words[1:-1] for line in lines if (words := line.split())[:1] == ["COPY"] and "--from" not in line]
    assert {"pyproject.toml", "src"} <= {name for names in copied for name in names}
    assert all((ROOT / name).exists() for names in copied for name in names)
    assert set(re.findall(r"\.whl\)\[(\w+)\]", "\n".join(lines))) == {"parquet"}
    assert "parquet" in PROJECT["project"]["optional-dependencies"]


def test_every_file_that_is_no_module_is_package_data() -> None:
    package = ROOT / "src" / "heedful"
    globs = PROJECT["tool"]["setuptools"]["package-data"]["heedful"]
    shipped = {path for pattern in globs for path in package.glob(pattern)}
    others = {path for path in package.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")}
    assert others == shipped


@pytest.mark.parametrize(
    ("names", "missing"),
    [
        ([*installed_wheel.PACKAGE_DATA, "heedful/report/layouts/page.html"], []),
        ([*installed_wheel.PACKAGE_DATA[1:], "heedful/report/layouts/page.html"], ["heedful/py.typed"]),
        ([*installed_wheel.PACKAGE_DATA], ["heedful/report/layouts/*.html"]),
    ],
)
def test_a_wheel_without_its_data_is_noticed(names: list[str], missing: list[str], tmp_path: Path) -> None:
    wheel = tmp_path / "heedful.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        for name in names:
            file.writestr(name, "")
    assert installed_wheel.missing_data(wheel) == missing


def test_words_that_a_program_does_not_print_are_missed(tmp_path: Path) -> None:
    with pytest.raises(installed_wheel.Failed, match="Expected 'no' from"):
        installed_wheel.expect("no", ["echo", "yes"], tmp_path)
    with pytest.raises(installed_wheel.Failed, match="ended with exit code 1"):
        installed_wheel.expect("", ["false"], tmp_path)
