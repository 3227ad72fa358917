"""The one watched process: what it is asked is answered, or the exception says why not."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

import pytest

from heedful.guarded import RaisedElsewhere
from heedful.worker import NotBegun, Worker, WorkerDied, WorkerTimedOut


def load(argument: bytes) -> Callable[[bytes], bytes]:
    """The payload of these tests."""
    if argument == b"broken":
        raise LookupError("nothing to load")

    def answer(question: bytes) -> bytes:
        if question == b"die":
            os._exit(7)
        if question == b"hang":
            time.sleep(1000)
        if question == b"raise":
            raise KeyError("lost")
        return argument + question

    return answer


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    worker = Worker(load, b"one ", quiet=True)
    yield worker
    worker.end(5.0)
    assert worker.obituary


def test_a_question_is_answered_and_an_error_is_a_text_that_costs_nothing(worker: Worker) -> None:
    assert worker.ask(b"two", 60.0) == b"one two"
    with pytest.raises(RaisedElsewhere, match="KeyError: 'lost'"):
        worker.ask(b"raise")
    assert worker.ask(b"", 60.0) == b"one "


def test_a_forked_child_leaves_the_process_to_its_parent(worker: Worker) -> None:
    worker.await_ready()
    child = os.fork()
    if not child:
        os._exit(0 if "forked" in worker.obituary else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert worker.ask(b"two", 60.0) == b"one two"


@pytest.mark.parametrize(
    ("argument", "question", "error", "words"),
    [
        (b"", b"die", WorkerDied, r"died over this question \(exit status 7\)"),
        (b"", b"hang", WorkerTimedOut, "took longer than 1 s"),
        (b"broken", b"any", NotBegun, "could not load: LookupError: nothing to load"),
    ],
)
def test_a_process_that_is_lost_says_how_and_is_gone(
    argument: bytes, question: bytes, error: type[Exception], words: str
) -> None:
    worker = Worker(load, argument)
    with pytest.raises(error, match=words):
        worker.ask(question, 1.0)
    with pytest.raises(NotBegun):
        worker.ask(b"again")
    with pytest.raises(ProcessLookupError):
        os.kill(worker.process_id, 0)
