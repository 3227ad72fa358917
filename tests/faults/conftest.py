"""A process that runs heedful with faults, shared by the tests of this folder."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import faulty
import pytest
from running import Runner
from subjects import STUDY, SUBJECTS, Whole, write_log


@pytest.fixture(scope="session")
def heedful(_own_cache: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    pytest.importorskip("transformers")
    paths = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, sys.path)])
    with subprocess.Popen(
        [sys.executable, faulty.__file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": paths},
    ) as process:
        yield Runner(process, tmp_path_factory.mktemp("faults") / "said.txt")
        assert process.stdin is not None
        process.stdin.close()


@pytest.fixture(scope="session")
def prepared(heedful: Runner, seedling_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Makes folders in which the commands of a subject can be run."""

    def prepare(name: str) -> Path:
        folder = tmp_path_factory.mktemp(name.replace(" ", "-"))
        if name == "audit":
            write_log(folder / "log")
            shutil.copytree(seedling_folder, folder / "model")
        if name == "study":
            (folder / "study.json").write_text(json.dumps(STUDY))
        return folder

    return prepare


@pytest.fixture(scope="session")
def whole(heedful: Runner, prepared: Callable[[str], Path]) -> Callable[[str], Whole]:
    """The run of a subject without a fault. It is run once."""
    known: dict[str, Whole] = {}

    def run(name: str) -> Whole:
        if name not in known:
            heedful(SUBJECTS[name].start.split(), prepared(name))  # what is grown or compiled once is there from now on
            folder = prepared(name)
            ended = heedful(SUBJECTS[name].start.split(), folder)
            assert ended.code == 0, ended.said
            known[name] = Whole(folder, ended.moments)
        return known[name]

    return run
