"""Hostile programs: none reaches anything, and the sandbox serves the next program."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from lockbox import Limits, Outcome, Sandbox, SandboxError, proof
from lockbox.proof import LEVELS, Traps, breaches
from patience import PATIENCE
from tests.lockbox.hostile import BEGIN, BROKEN_SOURCES, EXHAUSTING, QUICK, QUICK_EXHAUSTING

LIMITS = Limits(cpu=1, wall=30, memory=256 << 20, output=1 << 16)

GREEDY = Limits(cpu=1, wall=3, memory=256 << 20, output=1 << 16)

HONEST = "print(sum(map(int, input().split())))"


@pytest.fixture(scope="module", params=LEVELS)
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    try:
        opened = Sandbox(request.param, LIMITS)
    except SandboxError as error:
        pytest.skip(str(error))
    with opened:
        yield opened


@pytest.fixture(scope="module")
def strict() -> Iterator[Sandbox]:
    """One sandbox for all greedy programs, one after the other."""
    with Sandbox("strict", GREEDY) as opened:
        yield opened


@pytest.fixture(scope="module")
def traps() -> Iterator[Traps]:
    with ExitStack() as stack:
        yield Traps(stack)


def attack(sandbox: Sandbox, traps: Traps, program: str, limits: Limits = LIMITS) -> str:
    """Run one program. Returns how it ended. Fails if it got out, or if the next program does not work."""
    for name, place in traps.places.items():
        program = program.replace(name.upper(), str(place))
    outcome = sandbox.run(BEGIN + program, "some input", limits)
    assert not traps.caught(outcome.stdout + outcome.stderr + outcome.result), outcome
    assert sandbox.run(HONEST, "2 40").stdout == b"42\n"
    return outcome.ending


@pytest.mark.parametrize("name", QUICK)
def test_a_hostile_program_reaches_nothing(sandbox: Sandbox, traps: Traps, name: str) -> None:
    assert attack(sandbox, traps, QUICK[name]) in ("ended", "error", "forbidden", "crashed")


@pytest.mark.parametrize("name", QUICK_EXHAUSTING)
def test_a_program_that_wants_everything_gets_its_share(strict: Sandbox, traps: Traps, name: str) -> None:
    attack(strict, traps, EXHAUSTING[name], GREEDY)


@pytest.mark.proof
@pytest.mark.parametrize("name", EXHAUSTING)
def test_at_every_level_a_program_that_wants_everything_gets_its_share(
    sandbox: Sandbox, traps: Traps, name: str
) -> None:
    attack(sandbox, traps, EXHAUSTING[name], GREEDY)


def test_each_sandbox_is_proved_before_it_is_used(sandbox: Sandbox) -> None:
    assert list(breaches(sandbox)) == []


def test_the_proof_names_what_an_open_process_reaches(monkeypatch: pytest.MonkeyPatch) -> None:
    """In an ordinary process the probes break out, as far as that does no harm and takes no time to show."""
    reached = {"reading a file", "writing a file", "a TCP connection", "another process", "another program"}
    monkeypatch.setattr(proof, "PROBES", [each for each in proof.PROBES if each[0] in reached])
    with Sandbox("strict", LIMITS) as sandbox:
        monkeypatch.setattr(sandbox, "run", run_openly)
        assert set(breaches(sandbox)) >= reached


def run_openly(source: str, stdin: str = "", limits: Limits = LIMITS) -> Outcome:
    """The program in an ordinary process, without limits."""
    command = [sys.executable, "-c", source]
    done = subprocess.run(command, input=stdin.encode(), capture_output=True, timeout=PATIENCE, check=False)
    return Outcome("ended", done.returncode, done.stdout, done.stderr, b"", 0.0, 0.0, 0)


@pytest.mark.parametrize("name", BROKEN_SOURCES)
def test_a_broken_source_is_the_program_s_own_failure(sandbox: Sandbox, name: str) -> None:
    outcome = sandbox.run(BROKEN_SOURCES[name])
    assert outcome.ending in (("ended",) if "empty" in name else ("error", "crashed", "cpu", "output"))
    assert sandbox.run(HONEST, "2 40").stdout == b"42\n"
