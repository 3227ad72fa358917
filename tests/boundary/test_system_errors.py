"""Typed paths that cannot be used: a sentence of ours in every command, and no number of the system."""

import errno
import io
import os
from pathlib import Path

import pytest

from heedful import cli
from heedful.boundary.system_errors import sentence_of


@pytest.mark.parametrize(
    "typed",
    [
        "train echo --out PATH",
        "train --resume PATH",
        "audit PATH",
        "report PATH",
        "study smoke --out PATH",
        "study PATH.json",
        "index PATH",
    ],
)
def test_a_typed_path_that_cannot_be_is_a_sentence(
    typed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    (tmp_path / "circle").symlink_to("circle")
    for path in ("file/run", "circle", "x" * 300):
        assert cli.run(typed.replace("PATH", path).split()) == 2
        said = capsys.readouterr().err
        assert said.startswith("heedful: ")
        assert said.rstrip().endswith(".")
        assert "Errno" not in said
        assert len(said) < 1500


def test_the_sentence_names_the_path_and_a_remedy() -> None:
    for number in errno.errorcode:
        said = sentence_of(OSError(number, os.strerror(number), "runs/{mine}"))
        assert "runs/{mine}" in said
        assert said.endswith(".")
    assert sentence_of(NotADirectoryError(errno.ENOTDIR, "Not a directory", b"log")).startswith(
        "Expected a folder at log"
    )
    assert sentence_of(ConnectionRefusedError(errno.ECONNREFUSED, "refused")) == "The system says: refused."
    assert sentence_of(OSError("a sentence.")) == "a sentence."
    assert sentence_of(ValueError()) == "ValueError"
    quoted = ValueError(f"Expected JSON, found {OSError(errno.ENOENT, 'No such file', 'a.json')}.")
    assert str(sentence_of(quoted)) == "Expected JSON, found No such file: 'a.json'."


class Full(io.StringIO):
    """A stream to a full disk."""

    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("words", ["--version", "--help", "envs", "study"])
def test_a_full_disk_behind_the_output_is_a_sentence_in_every_command(
    words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout", Full())
    assert cli.run([words]) == 2
    said = capsys.readouterr().err.removeprefix(
        "heedful: Expected room on the disk to write the output, but it is full"
    )
    kept = " What its runs have saved is safe, and the same command goes on." if words == "study" else ""
    assert said == f". Free some space, then go on.{kept}\n"


def test_an_error_that_nobody_can_read_keeps_its_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", Full())
    assert cli.run(["bogus"]) == 2


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory"),
        RuntimeError("CUDA out of memory. Tried to allocate 20.00 MiB."),
        MemoryError(),
    ],
)
def test_memory_that_ends_is_a_sentence_in_every_command(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(name: str, rest: list[str]) -> int:
        raise error

    monkeypatch.setattr(cli, "_command", full)
    assert cli.run(["train"]) == 2
    assert capsys.readouterr().err.startswith("heedful: The memory does not suffice. Choose a smaller model")
