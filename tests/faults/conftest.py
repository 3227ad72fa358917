"""Processes that run heedful with faults, shared by the tests of this folder."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from running import Bench, Runner
from subjects import STUDY, write_log


@pytest.fixture(scope="session")
def heedful(_own_cache: None, tmp_path_factory: pytest.TempPathFactory) -> Runner:
    pytest.importorskip("transformers")
    return Runner(tmp_path_factory.mktemp("faults") / "said.txt")


@pytest.fixture(scope="session")
def bench(heedful: Runner, seedling_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    def prepare(name: str) -> Path:
        folder = tmp_path_factory.mktemp(name.replace(" ", "-"))
        if name == "audit":
            write_log(folder / "log")
            shutil.copytree(seedling_folder, folder / "model")
        if name == "study":
            (folder / "study.json").write_text(json.dumps(STUDY))
        return folder

    return Bench(heedful, prepare)
