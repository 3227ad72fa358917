"""math-verify in its processes: what it decides, what a hanging question costs, and that none is left behind."""

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
from heedful.envs.math.verifier import MOST_WORKERS, VERIFIER, Verifier, verify
from patience import PATIENCE, comes

pytest.importorskip("math_verify", reason='pip install "heedful[math]"')


@pytest.fixture(scope="module")
def verifier() -> Iterator[Verifier]:
    one = Verifier()
    yield one
    one.close()
    assert not one.pids


def alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be collected does not."""
    try:
        os.kill(pid, 0)
        state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True).stdout.strip()
    except ProcessLookupError:
        return False
    return bool(state) and not state.startswith("Z")


def gone(pid: int) -> bool:
    return comes(lambda: not alive(pid))


@pytest.mark.parametrize(
    ("right", "answer", "judgement"),
    [
        ("2\\sqrt{3}", "\\sqrt{12}", Judgement.RIGHT),
        ("x^2+2x+1", "(x+1)^2", Judgement.RIGHT),
        ("\\{1,2\\}", "\\{2,1\\}", Judgement.RIGHT),
        ("7", "\\boxed{3+4}", Judgement.RIGHT),
        ("2\\sqrt{3}", "2\\sqrt{2}", Judgement.WRONG),
        ("7", "7x", Judgement.WRONG),
        ("7", "7 or 8", Judgement.WRONG),
        ("3\\times 10^{-8}", "0.0", Judgement.WRONG),  # the library rounds to six decimals
        ("6.02\\times 10^{-23}", "1.6\\times 10^{-19}", Judgement.WRONG),
        ("6.02\\times 10^{-23}", "602\\times 10^{-25}", Judgement.RIGHT),
        ("(1,6\\times 10^{-9})", "(1,7\\times 10^{-9})", Judgement.WRONG),
        ("0.001\\pi", "0.003142", Judgement.RIGHT),
        ("10^{500}", "10^{500}", Judgement.RIGHT),
        ("7", "))((", Judgement.UNREADABLE),
        ("7", "__import__('os').abort()", Judgement.UNREADABLE),
    ],
)
def test_math_verify_decides_what_takes_algebra(right: str, answer: str, judgement: Judgement) -> None:
    assert verify(right, answer, PATIENCE) is judgement


def test_a_question_that_hangs_is_not_verified_in_its_time_and_the_next_one_is_answered(verifier: Verifier) -> None:
    verifier.ask("1", "1", PATIENCE)
    (before,) = verifier.pids
    assert verifier.ask("7", "9^{9^{9^{9}}}", 1.0) is None  # unasked for, it would take more than all the time there is
    assert gone(before)
    assert verifier.ask("7", "3+4", PATIENCE) == {"read": True, "equal": True}
    assert before not in verifier.pids


def test_a_worker_that_was_killed_while_idle_costs_nothing(verifier: Verifier) -> None:
    verifier.ask("1", "1", PATIENCE)
    (victim,) = verifier.pids
    os.kill(victim, signal.SIGKILL)
    assert gone(victim)
    assert verifier.ask("7", "3+4", PATIENCE) == {"read": True, "equal": True}
    assert victim not in verifier.pids


def test_threads_share_a_few_workers_and_each_gets_its_own_answer(verifier: Verifier) -> None:
    said: dict[int, object] = {}

    def ask(number: int) -> None:
        said[number] = verifier.ask(str(number), f"{number - 1}+{1 + number % 2}", PATIENCE)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(2, 14)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert said == {number: {"read": True, "equal": number % 2 == 0} for number in range(2, 14)}
    assert len(verifier.pids) <= MOST_WORKERS


def started_in(child: str) -> int:
    """The worker's process id that a program printed before it ended as it does."""
    program = f"""
import os, signal
from heedful.envs.math.verifier import VERIFIER, verify
verify("7", "3+4", {PATIENCE})
print(*VERIFIER.pids, flush=True)
{child}
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE)
    assert ended.stdout.strip(), ended.stderr
    return int(ended.stdout)


@pytest.mark.parametrize("end", ["", "os._exit(0)", "os.kill(os.getpid(), signal.SIGKILL)", "1 / 0"])
def test_no_worker_outlives_the_process_that_started_it(end: str) -> None:
    assert gone(started_in(end))


def _verify_here(_: int) -> tuple[str, list[int]]:
    return verify("7", "3+4", PATIENCE).value, list(VERIFIER.pids)


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_worker_processes_of_environments_have_verifiers_of_their_own(method: str) -> None:
    verify.cache_clear()
    verify("7", "3+4", PATIENCE)
    mine = list(VERIFIER.pids)
    verify.cache_clear()  # a fork would find the answer there
    with get_context(method).Pool(1) as pool:
        ((value, theirs),) = pool.map(_verify_here, [0])
    assert value == "right"
    assert theirs
    assert not set(theirs) & set(mine)
    assert all(alive(pid) for pid in mine)
    assert all(gone(pid) for pid in theirs)


def test_without_the_library_a_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(math_verifier.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r'pip install "heedful\[math\]"'):
        Verifier().ask("7", "3+4", 5.0)


def unloadable(argument: bytes) -> Any:
    raise SystemExit(3)


def test_a_library_that_cannot_be_loaded_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(math_verifier, "load_math_verify", unloadable)
    with pytest.raises(RuntimeError, match=r"expected to load .* but it could not load: SystemExit: 3"):
        Verifier().ask("7", "3+4", 5.0)
