"""One process at a time works in a folder; what a killed process left behind is taken over, and that is said."""

import errno
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from heedful.boundary.system_errors import sentence_of
from heedful.storage import LOCK, held
from patience import PATIENCE

CHILD = """
import sys, time
from pathlib import Path
from heedful.storage import held
with held(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


def working(folder: Path) -> subprocess.Popen[str]:
    """A process that holds a folder until it is killed."""
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(folder)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "held\n"
    return child


def test_a_second_process_is_told_who_has_the_folder_and_a_killed_one_is_taken_over(tmp_path: Path) -> None:
    child, told = working(tmp_path), list[str]()
    try:
        sentence = rf"at work in {tmp_path}: process {child.pid} on {socket.gethostname()}\. Wait until it is done"
        with pytest.raises(ValueError, match=sentence), held(tmp_path, told.append, take_over=True):
            pass
    finally:
        child.kill()
        child.wait()
    assert (tmp_path / LOCK).exists()
    assert told == []
    with held(tmp_path, told.append):
        pass
    assert told == [
        f"Taking over {tmp_path} from process {child.pid} on {socket.gethostname()}, which ended without releasing it."
    ]


def test_the_lock_is_released_at_the_end_and_at_an_error(tmp_path: Path) -> None:
    told: list[str] = []
    for _ in range(2):
        with held(tmp_path / "a", told.append):
            assert os.listdir(tmp_path / "a") == [LOCK]
        with pytest.raises(KeyError), held(tmp_path / "b", told.append):
            raise KeyError
    assert told == []
    assert os.listdir(tmp_path / "a") == []
    assert not (tmp_path / "b").exists()  # nothing was done there


def test_a_folder_is_held_once_within_a_process(tmp_path: Path) -> None:
    with held(tmp_path), pytest.raises(ValueError, match=f"process {os.getpid()} on"), held(tmp_path):
        pass


def test_a_child_that_outlives_its_starter_keeps_the_folder(tmp_path: Path) -> None:
    keeper = "import sys, time; print('here', flush=True); time.sleep(600)"
    starter = f"""
import subprocess, sys
from pathlib import Path
from heedful.storage import held
with held(Path({str(tmp_path)!r})) as lock:
    command = [sys.executable, "-c", {keeper!r}]
    pipe, none = subprocess.PIPE, subprocess.DEVNULL
    child = subprocess.Popen(command, stdout=pipe, stderr=none, text=True, pass_fds=(lock,))
    child.stdout.readline()
    print(child.pid, flush=True)
    import os
    os._exit(9)
"""
    ended = subprocess.run([sys.executable, "-c", starter], stdout=subprocess.PIPE, text=True, timeout=PATIENCE)
    child = int(ended.stdout)
    try:
        with (
            pytest.raises(ValueError, match=r"one that process \d+ on .* started and that outlived it"),
            held(tmp_path),
        ):
            pass
    finally:
        os.kill(child, 9)


def test_the_lock_of_another_host_is_taken_over_only_when_asked(tmp_path: Path) -> None:
    (tmp_path / LOCK).write_text(json.dumps({"pid": 7, "host": "elsewhere"}))
    with (
        pytest.raises(ValueError, match=r"process 7 on elsewhere has not released it\. .* --take-over"),
        held(tmp_path),
    ):
        pass
    told: list[str] = []
    with held(tmp_path, told.append, take_over=True):
        pass
    assert len(told) == 1


def test_where_the_file_system_has_no_locks_a_living_process_counts_and_a_dead_one_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(descriptor: int, operation: int) -> None:
        raise OSError(95, "Operation not supported")

    child = working(tmp_path)
    try:
        monkeypatch.setattr("heedful.storage.locks.fcntl.flock", no_locks)
        with pytest.raises(ValueError, match=f"process {child.pid} on"), held(tmp_path):
            pass
    finally:
        child.kill()
        child.wait()
    with held(tmp_path):
        pass


@pytest.mark.parametrize("content", [b"", b"{", b"[]"])
def test_a_damaged_lock_that_nobody_holds_is_no_hindrance(tmp_path: Path, content: bytes) -> None:
    (tmp_path / LOCK).write_bytes(content)
    with held(tmp_path):
        pass


def test_a_lock_is_not_written_through_a_link(tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_text("precious")
    (tmp_path / LOCK).symlink_to(target)
    with pytest.raises(OSError, match="symbolic links"), held(tmp_path):
        pass
    assert target.read_text() == "precious"


def test_a_full_disk_is_told_with_the_name_of_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, content: bytes, place: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(OSError, match="it is full") as raised, held(tmp_path / "run"):
        pass
    assert sentence_of(raised.value).startswith(f"Expected room on the disk to write {tmp_path / 'run' / LOCK}, but")
