"""Where `ulimit -v` leaves no memory, the process says so. It neither hangs nor ends in a library's own words."""

from __future__ import annotations

import subprocess
import sys

import pytest

from heedful.limited_memory import report_no_lack_of_memory_at_exit

LIMIT = """
import re, resource, sys

def leave(mebibytes):
    held = int(re.search(r"VmSize:\\s+(\\d+)", open("/proc/self/status").read())[1]) << 10
    resource.setrlimit(resource.RLIMIT_AS, (held + (mebibytes << 20), resource.RLIM_INFINITY))
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads the size of the process from /proc")


def ended(script: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", LIMIT + script]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_linear_algebra_has_its_buffers_before_the_memory_ends() -> None:
    done = ended(
        """
import numpy as np
from scipy.linalg import lapack
from heedful.limited_memory import reserve_buffers
leave(600)
reserve_buffers()
leave(2)
square = np.eye(64)
lapack.dpotrf(square)  # without its buffer it would try for ever
np.linalg.eigh(square @ square)
print("computed")
"""
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "computed\n", "")


def test_a_command_without_room_for_the_buffers_is_refused_in_a_sentence() -> None:
    done = ended(
        """
from heedful import cli
leave(40)
cli.main(["report", "runs/none"])
"""
    )
    assert done.returncode == 2
    assert done.stderr.startswith("heedful: The memory does not suffice. Choose a smaller model")
    assert "Traceback" not in done.stderr


def test_what_libraries_do_at_the_end_fails_in_silence_where_the_memory_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: told.append(unraisable.exc_value))
    report_no_lack_of_memory_at_exit()

    class Fails:
        def __init__(self, error: Exception) -> None:
            self.error = error

        def __del__(self) -> None:
            raise self.error

    Fails(MemoryError())
    assert told == []
    other = ValueError("told")
    Fails(other)
    assert told == [other]
