"""A process that runs heedful with faults, shared by the tests of this folder."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import faulty
import pytest
from running import Runner


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
