"""The process that decides by algebra: what a hanging question costs, and that no process is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from multiprocessing import get_context
from typing import Any

import pytest

from heedful.envs.math import verifier as math_verifier
from heedful.envs.math.answers import Judgement
from heedful.envs.math.verifier import VERIFIER, Verifier, verify
from patience import PATIENCE, comes

pytest.importorskip("latex2sympy2_extended", reason='pip install "heedful[math]"')

RIGHT, WRONG, UNDECIDED = Judgement.RIGHT, Judgement.WRONG, Judgement.UNDECIDED


@pytest.fixture(scope="module")
def verifier() -> Iterator[Verifier]:
    one = Verifier()
    yield one
    assert one.worker is not None
    one.worker.end()


def process_of(verifier: Verifier) -> int:
    verifier.ask("7", "3+4", PATIENCE)
    assert verifier.worker is not None
    return verifier.worker.process_id


def alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be collected does not."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True).stdout.strip()
    return bool(state) and not state.startswith("Z")


def gone(pid: int) -> bool:
    return comes(lambda: not alive(pid))


def test_a_question_that_hangs_is_undecided_in_its_time_and_the_next_one_is_answered(verifier: Verifier) -> None:
    before = process_of(verifier)
    assert verifier.ask("7", "9^{9^{9^{9}}}", 1.0) is UNDECIDED  # it would take more than all the time there is
    assert gone(before)
    assert verifier.ask("7", "3+4", PATIENCE) is RIGHT


def test_a_process_that_was_killed_while_idle_costs_nothing(verifier: Verifier) -> None:
    victim = process_of(verifier)
    os.kill(victim, signal.SIGKILL)
    assert gone(victim)
    assert verifier.ask("7", "3+4", PATIENCE) is RIGHT


def test_threads_take_turns_and_each_gets_its_own_answer(verifier: Verifier) -> None:
    said: dict[int, Judgement] = {}

    def ask(number: int) -> None:
        said[number] = verifier.ask(str(number), f"{number - 1}+{1 + number % 2}", PATIENCE)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(2, 14)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert said == {number: WRONG if number % 2 else RIGHT for number in range(2, 14)}


@pytest.mark.parametrize("end", ["", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_no_process_outlives_the_one_that_started_it(end: str) -> None:
    program = f"""
import os, signal
from heedful.envs.math.verifier import VERIFIER, verify
verify("7", "3+4", {PATIENCE})
print(VERIFIER.worker.process_id, flush=True)
{end}
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE)
    assert ended.stdout.strip(), ended.stderr
    assert gone(int(ended.stdout))


def _verify_here(_: int) -> tuple[Judgement, int]:
    return verify("7", "3+4", PATIENCE), process_of(VERIFIER)


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_worker_processes_of_environments_have_processes_of_their_own(method: str) -> None:
    mine = process_of(VERIFIER)
    verify.cache_clear()  # a fork would find the answer there
    with get_context(method).Pool(1) as pool:
        ((judged, theirs),) = pool.map(_verify_here, [0])
    assert judged is RIGHT
    assert theirs != mine
    assert alive(mine)
    assert gone(theirs)


def test_without_the_library_a_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(math_verifier.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r'pip install "heedful\[math\]"'):
        Verifier().ask("7", "3+4", 5.0)


def unloadable(argument: bytes) -> Any:
    raise SystemExit(3)


def test_a_library_that_cannot_be_loaded_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(math_verifier, "load_algebra", unloadable)
    with pytest.raises(RuntimeError, match=r"expected to load .* it could not load: SystemExit: 3"):
        Verifier().ask("7", "3+4", 5.0)
