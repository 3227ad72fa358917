"""Writing of files: in whole, into the folder that was named, and with a sentence where there is no room."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from heedful.storage import (
    DiskFull,
    advising,
    append,
    claim_folder,
    create,
    naming_a_full_disk,
    refuse_typed,
    refuse_unwritable,
    write_whole,
)
from heedful.storage.trackers import JsonlTracker
from patience import PATIENCE


def test_a_planted_link_is_replaced_and_its_target_stays_as_it_is(tmp_path: Path) -> None:
    target, folder = tmp_path / "precious.txt", tmp_path / "audit"
    target.write_text("precious")
    folder.mkdir()
    for name in ("audit.json", f".audit.json.{os.getpid()}.part"):
        (folder / name).symlink_to(target)
    write_whole(folder / "audit.json", "{}")
    assert target.read_text() == "precious"
    assert not (folder / "audit.json").is_symlink()
    assert (folder / "audit.json").read_text() == "{}"
    assert os.listdir(folder) == ["audit.json"]


def test_a_file_that_a_killed_process_left_half_written_is_replaced(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    for process in (ended.pid, os.getppid(), os.getpid()):
        (tmp_path / f".a.json.{process}.part").write_text("hal")
    write_whole(tmp_path / "a.json", "whole")
    assert (tmp_path / "a.json").read_text() == "whole"
    assert sorted(os.listdir(tmp_path)) == [f".a.json.{os.getppid()}.part", "a.json"]  # one that still writes


def test_a_place_that_cannot_be_written_is_named_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    for place in (tmp_path / "folder", tmp_path / "file" / "a.json"):
        with pytest.raises(OSError, match=r"directory|exists"):
            refuse_unwritable(place)
    refuse_unwritable(tmp_path / "folder" / "a.json")
    assert os.listdir(tmp_path / "folder") == []


def test_a_typed_name_replaces_only_what_the_same_command_wrote(tmp_path: Path) -> None:
    for name, content in (("config.json", '{"env": 1}'), ("old.json", '{"subject": 1}'), ("empty.json", "")):
        (tmp_path / name).write_text(content)
    (tmp_path / "link.json").symlink_to(tmp_path / "old.json")  # such as /dev/stdout
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "folder.json").mkdir()
    for name in ("old.json", "empty.json", "new.json"):
        refuse_typed(tmp_path / name, b'{"subject": ')
    with pytest.raises(ValueError, match=r"earlier, at .*config\.json, found another file\. Give another name"):
        refuse_typed(tmp_path / "config.json", b'{"subject": ')
    for name in ("link.json", "pipe.json", "folder.json"):
        with pytest.raises(ValueError, match=rf"{name}, found a folder, a link, a pipe or a device"):
            refuse_typed(tmp_path / name, b'{"subject": ')


def test_lines_are_not_appended_through_a_link(tmp_path: Path) -> None:
    target = tmp_path / "precious.txt"
    target.write_text("precious")
    (tmp_path / "metrics.jsonl").symlink_to(target)
    with pytest.raises(OSError, match="symbolic links"):
        JsonlTracker(tmp_path / "metrics.jsonl")
    assert target.read_text() == "precious"


def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "s0.log")
    with pytest.raises(OSError, match=r"s0\.log"):
        append_at_once(tmp_path / "s0.log")


def append_at_once(path: Path) -> None:
    """A writer that waits for a reader ends in an error of the test, and not of the whole suite."""

    def waited(number: int, frame: object) -> None:
        raise AssertionError("waited for the reader of a pipe")

    before = signal.signal(signal.SIGALRM, waited)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE)
    try:
        append(path)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def test_a_new_file_is_the_only_one_of_its_name(tmp_path: Path) -> None:
    with create(tmp_path / "a") as one:
        one.write(b"1")
    with create(tmp_path / "a") as two:
        two.write(b"2")
    assert (tmp_path / "a").read_bytes() == b"2"


def test_a_file_beyond_the_limit_of_the_system_is_named(tmp_path: Path) -> None:
    words = r"write .*page\.html, but files may not be so large\. Kept: all\. Raise the limit"
    with pytest.raises(DiskFull, match=words), naming_a_full_disk(tmp_path / "page.html", kept="all"):
        raise OSError(errno.EFBIG, "File too large")


def test_a_full_disk_names_the_command_that_goes_on(tmp_path: Path) -> None:
    with (
        pytest.raises(DiskFull, match=r"Free some space, then go on with: heedful audit a --out b$"),
        advising("heedful audit a --out b"),
        naming_a_full_disk(tmp_path, kept="all"),
    ):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_folder_is_claimed_or_refused_in_a_sentence(tmp_path: Path) -> None:
    assert claim_folder([tmp_path, tmp_path / "new"]) == tmp_path / "new"
    for taken in ([tmp_path], []):
        with pytest.raises(ValueError, match="found that all are taken"):
            claim_folder(taken)
