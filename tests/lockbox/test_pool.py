"""The sandbox as a tool: values, limits, many programs, several threads, dead supervisors, the command line."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lockbox import Limits, NotPlain, Sandbox, SandboxError
from lockbox.messages import decode_value, encode_value
from patience import comes
from tests.lockbox.hostile import BEGIN, EXHAUSTING, QUICK

LIMITS = Limits(cpu=2, wall=60, memory=256 << 20, output=1 << 16)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox("strict", LIMITS) as opened:
        yield opened


def test_a_program_reads_its_input_and_writes_its_output(sandbox: Sandbox) -> None:
    outcome = sandbox.run("import sys\nprint(input()[::-1])\nprint('é', file=sys.stderr)", "abc")
    assert (outcome.ending, outcome.status, outcome.stdout, outcome.stderr) == ("ended", 0, b"cba\n", "é\n".encode())
    assert 0 < outcome.cpu < 2
    assert 0 < outcome.memory < LIMITS.memory


def test_every_program_starts_alike(sandbox: Sandbox) -> None:
    source = "import random, os\nprint(random.random(), hash('a'), dict(os.environ), os.getcwd() != '', __name__)"
    assert sandbox.run(source).stdout == sandbox.run(source).stdout


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        3,
        -0.5,
        "é\n",
        [1, [2]],
        (1, (2,)),
        {1, 2},
        frozenset({3}),
        {1: "a", (2,): [None]},
        1j,
        b"\0",
        range(2, 10**30, 3),
        deque([1, deque()]),
        10**4000,
        [10**6000],
    ],
)
def test_plain_values_pass_unchanged(sandbox: Sandbox, value: object) -> None:
    returned = sandbox.call("def f(x): return x", "f", [value]).value()
    assert returned == value
    assert type(returned) is type(value)


def test_infinite_numbers_pass(sandbox: Sandbox) -> None:
    assert repr(sandbox.call("def f(x): return [x, -x, x - x]", "f", [float("inf")]).value()) == "[inf, -inf, nan]"


BEYOND = b'{"complex": [1%s, 0]}' % (b"0" * 400)


@pytest.mark.parametrize(
    "line", [b"", b"{}", b'{"a": 1}', b'{"tuple": 3}', b"[" * 10**5, b"1" * 10**5, b"\xff", b"no", BEYOND]
)
def test_a_line_that_holds_no_value_is_refused_whatever_it_is(line: bytes) -> None:
    with pytest.raises(NotPlain):
        decode_value(line)


@pytest.mark.parametrize("tag", ["set", "frozenset", "dict"])
def test_numbers_of_one_hash_cost_the_reader_no_time(tag: str) -> None:
    """50,000 of them took half a minute, in the process of the trainer."""

    def line(count: int) -> bytes:
        alike = [number * (2**61 - 1) for number in range(count)]
        return json.dumps({tag: [[each, 0] for each in alike] if tag == "dict" else alike}).encode()

    assert len(decode_value(line(100))) == 100
    with pytest.raises(NotPlain):
        decode_value(line(1001))


def test_an_object_is_not_sent() -> None:
    loop: list[object] = []
    loop.append(loop)
    for value in (object(), loop, iter([1])):
        with pytest.raises(NotPlain):
            encode_value(value)


@pytest.mark.parametrize(
    ("value", "held"),
    [
        ("Counter('aab'), OrderedDict(a=1), defaultdict(list, {(1, 2): 3})", ({"a": 2, "b": 1}, {"a": 1}, {(1, 2): 3})),
        ("namedtuple('P', 'x y')(1, 2)", (1, 2)),
        ("type('L', (list,), {'__iter__': lambda x: iter([7]), '__eq__': lambda *x: True})([1])", [1]),
        ("type('I', (int,), {'bit_length': None, '__index__': None, '__eq__': lambda *x: True})(3)", 3),
        ("type('S', (str,), {'__str__': lambda x: 'no'})('yes')", "yes"),
    ],
)
def test_a_value_of_a_subclass_is_sent_as_what_it_holds(sandbox: Sandbox, value: str, held: object) -> None:
    got = sandbox.call(f"from collections import *\ndef f(): return {value}", "f", []).value()
    assert (got, type(got)) == (held, type(held))


@pytest.mark.parametrize(
    ("program", "checker", "verdict"),
    [
        ("yield from (0, 2)", "list(f()) == [0, 2]", "right"),
        ("yield from (0, 2)", "f() == [0, 2]", "wrong"),
        ("return map(int, '02')", "set(f()) == {0, 2}", "right"),
        ("return range(0, 4, 2)", "sorted(f()) == [0, 2] and f()[1] == 2", "right"),
        ("return range(0, 4, 2)", "f() == [0, 2]", "wrong"),
        ("import collections; return collections.deque([0, 2])", "f().popleft() == 0", "right"),
    ],
)
def test_a_checker_gets_iterators_ranges_and_deques_as_they_are(
    sandbox: Sandbox, program: str, checker: str, verdict: str
) -> None:
    judged, _ = sandbox.check(f"def f():\n    {program}", "f", f"assert {checker}")
    assert judged.value()[0] == verdict


def test_an_error_reaches_the_checker_by_its_builtin_class(sandbox: Sandbox) -> None:
    program = "class Mine(ValueError): pass\ndef f(): raise Mine('zero')"
    checker = "try: f()\nexcept ValueError as error: assert str(error) == 'zero'\nelse: assert False"
    assert sandbox.check(program, "f", checker)[0].value()[0] == "right"


def test_a_function_that_is_missing_or_raises_gives_no_value(sandbox: Sandbox) -> None:
    outcome = sandbox.call("def g(x): return x", "f", [1])
    assert outcome.ending == "error"
    assert b"NameError: the program defines no function f" in outcome.stderr
    with pytest.raises(NotPlain):
        outcome.value()


@pytest.mark.parametrize("end", ["sys.exit(121)", "os._exit(121)", "os.write(4, b'!'), os._exit(121)"])
def test_no_program_can_claim_that_the_sandbox_failed(end: str, sandbox: Sandbox) -> None:
    outcome = sandbox.run(f"import os, sys\n{end}")
    assert (outcome.ending, outcome.status) == ("ended", 121)
    called = sandbox.call(f"import os, sys\ndef f():\n    {end}", "f", [])
    with pytest.raises(NotPlain):
        called.value()


def test_a_candidate_cannot_end_a_loop_of_its_checker(sandbox: Sandbox) -> None:
    checker = "def check(candidate):\n    assert all(map(lambda x: candidate(x) == x + 1, range(9)))"
    verdict, _ = sandbox.check("def f(x):\n    raise StopIteration", "f", checker)
    assert verdict.value() == ["raised", "RuntimeError: "]


def test_a_traceback_names_the_program_and_no_file_of_ours(sandbox: Sandbox) -> None:
    outcome = sandbox.run("def f():\n    raise KeyError('x')\nf()")
    assert outcome.stderr.decode().splitlines()[1] == '  File "<program>", line 3, in <module>'
    assert b"heedful" not in outcome.stderr


def test_several_threads_share_a_sandbox(sandbox: Sandbox) -> None:
    with ThreadPoolExecutor(4) as threads:
        outcomes = list(threads.map(lambda number: sandbox.run(f"print({number})").stdout, range(24)))
    assert outcomes == [f"{number}\n".encode() for number in range(24)]


def test_a_supervisor_that_died_is_replaced() -> None:
    with Sandbox("strict", LIMITS) as sandbox:
        assert sandbox.run("print(1)").stdout == b"1\n"
        assert sandbox._supervisor is not None
        os.kill(sandbox._supervisor.process.pid, signal.SIGKILL)
        sandbox._supervisor.process.wait()
        assert sandbox.run("print(2)").stdout == b"2\n"


def test_a_closed_sandbox_leaves_no_process_behind() -> None:
    sandbox = Sandbox("strict", LIMITS)
    assert sandbox._supervisor is not None
    pid = sandbox._supervisor.process.pid
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(sandbox.run, BEGIN + EXHAUSTING["waiting"])
        assert comes(lambda: children(pid))
        sandbox.close()
        with pytest.raises(SandboxError, match="the sandbox was closed"):
            waiting.result()
    assert not Path(f"/proc/{pid}").exists()


def test_a_program_that_cannot_be_handed_over_leaves_no_descriptor_behind() -> None:
    gc.collect()
    before = descriptors(os.getpid())
    sandbox = Sandbox("strict", LIMITS)
    sandbox.close()
    for refused in (lambda: sandbox.run("print(1)"), lambda: sandbox.check("", "f", "")):
        with pytest.raises(SandboxError, match="the sandbox was closed"):
            refused()
    assert descriptors(os.getpid()) <= before


def test_a_candidate_whose_checker_cannot_be_handed_over_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    with Sandbox("strict", LIMITS) as sandbox:
        assert sandbox._supervisor is not None
        hand_over, handed = sandbox._hand_over, list[bytes]()

        def only_once(request: bytes, descriptors: list[int]) -> None:
            if handed:
                raise SandboxError("no more")
            handed.append(request)
            hand_over(request, descriptors)

        monkeypatch.setattr(sandbox, "_hand_over", only_once)
        before = descriptors(os.getpid())
        with pytest.raises(SandboxError, match="no more"):
            sandbox.check(BEGIN + EXHAUSTING["waiting"], "f", "")
        assert descriptors(os.getpid()) <= before
        monkeypatch.undo()
        assert sandbox.run("print(1)").stdout == b"1\n"
        pid = sandbox._supervisor.process.pid
        assert comes(lambda: not children(pid))


def served(count: int) -> None:
    """Many programs, hostile ones among them, leave the pool as it was."""
    hostile = [BEGIN + each for each in QUICK.values()]
    with Sandbox("strict", LIMITS) as sandbox:
        assert sandbox._supervisor is not None
        pid = sandbox._supervisor.process.pid
        gc.collect()  # what earlier tests left to the collector would be closed in between
        ours, theirs = descriptors(os.getpid()), descriptors(pid)
        for number in range(count):
            if number % 5 == 0:
                sandbox.run(hostile[number // 5 % len(hostile)])
            assert sandbox.run(f"print({number})").stdout == f"{number}\n".encode()
        # The last program is reported before its descriptors are closed.
        assert comes(lambda: descriptors(pid) == theirs), (descriptors(pid), theirs)
        assert descriptors(os.getpid()) <= ours
        assert comes(lambda: not children(pid))
        assert sandbox._supervisor.process.pid == pid


def descriptors(pid: int) -> set[tuple[str, str]]:
    """Number and content. A test must add none, and threads of earlier tests may close theirs at any time."""
    found = set()
    for number in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            found.add((number, os.readlink(f"/proc/{pid}/fd/{number}")))
    return found


def children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def test_forty_programs_leave_nothing_behind() -> None:
    served(40)


@pytest.mark.proof
def test_ten_thousand_programs_leave_nothing_behind() -> None:
    served(10_000)


def test_off_must_be_asked_for_and_keeps_the_limits() -> None:
    with Sandbox("off", LIMITS) as sandbox:
        assert sandbox.run("import os\nprint(len(os.listdir('/')) > 0)").stdout == b"True\n"
        assert sandbox.run("x = bytearray(1 << 40)").ending == "error"


def test_an_exit_status_that_no_system_holds_is_255(sandbox: Sandbox) -> None:
    assert sandbox.run("import sys; sys.exit(10**400)").status == 255
    assert sandbox.run("import sys; sys.exit(-1)").status == 255
