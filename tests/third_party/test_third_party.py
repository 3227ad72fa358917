"""A package that is no part of heedful adds an environment, a filter and a reader of logs by its entry points alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from patience import PATIENCE
from source_trees import tree
from test_layers import private_imports

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for `sys.path` with the package, and with what an installer writes about it."""
    place = tmp_path_factory.mktemp("site")
    shutil.copytree(HERE / "maze_plugin", place / "maze_plugin")
    project = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]
    about = place / "maze_plugin-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.4\nName: maze-plugin\nVersion: 1.0\n")
    groups = project["entry-points"].items()
    lines = [f"[{group}]\n" + "\n".join(f"{name} = {value}" for name, value in each.items()) for group, each in groups]
    (about / "entry_points.txt").write_text("\n\n".join(lines))
    return place


def heedful(installed: Path, *words: str, folder: Path) -> str:
    """What the command prints, in a process in which the package is installed."""
    path = os.pathsep.join([str(installed), *filter(None, sys.path)])
    command = [sys.executable, "-m", "heedful", *words]
    ended = subprocess.run(
        command, cwd=folder, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=PATIENCE
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr


def test_the_package_imports_public_names_only() -> None:
    files = sorted((HERE / "maze_plugin").glob("*.py"))
    assert {file.name: names for file in files if (names := private_imports(tree(file)))} == {}


def test_its_environments_are_listed_with_what_they_need(installed: Path, tmp_path: Path) -> None:
    told = " ".join(heedful(installed, "envs", folder=tmp_path).split())
    assert "corridor A corridor with a door at one end. 1 x 1 of Left, Right." in told
    assert 'Not installed: pip install "maze-plugin[graphics]"' in told


def test_its_environment_is_trained_with_its_filter(installed: Path, tmp_path: Path) -> None:
    words = ["train", "echo", "--steps", "1", "--out", "run", "--env", "corridor", "--filter", "every_other"]
    words += ["--filter.first", "1", "--seedling.steps", "2", "--evaluation.tasks", "4", "--evaluation.times", "0"]
    words += ["--groups", "2", "--group-size", "2", "--seedling.hidden", "32", "--seedling.layers", "1"]
    heedful(installed, *words, "--diagnostics.no-enabled", folder=tmp_path)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["env"]["type"] == "corridor"
    assert config["filter"] == {"type": "every_other", "on": "outcome", "first": 1}


def test_its_logs_are_audited(installed: Path, tmp_path: Path) -> None:
    rows = [
        {
            "maze_step": 0,
            "asked": f"door {door}",
            "said": f"<think>door {door}</think>{said}",
            "paid": float(said == door),
        }
        for door in ("Left", "Right", "Up", "Down")
        for said in ("Left", "Right", door, door)
    ]
    (tmp_path / "log.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    told = heedful(installed, "audit", "log.jsonl", folder=tmp_path)
    assert "A log of mazes." in told
    assert "maze logs" in told
