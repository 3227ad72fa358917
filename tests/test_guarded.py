"""What foreign code raises becomes a value, and what stops the process does not."""

import asyncio
from time import process_time

import pytest

from heedful.guarded import Answered, PassesThrough, Raised, guarded_call


def test_an_answer_comes_back_as_one() -> None:
    assert guarded_call(lambda: 3) == Answered(3)


def test_what_is_raised_comes_back_with_its_text_and_its_place() -> None:
    def broken() -> None:
        raise KeyError("red")

    found = guarded_call(broken)
    assert isinstance(found, Raised)
    assert str(found) == "KeyError: 'red'"
    assert found.place.startswith("test_guarded.py, line ")


def test_the_place_of_an_error_that_is_raised_again_and_again_is_found_at_once() -> None:
    once = KeyError("kept")

    def broken() -> None:
        raise once

    found = Raised(once)
    for _ in range(20_000):
        answer = guarded_call(broken)
        assert isinstance(answer, Raised)
        found = answer
    before = process_time()
    assert found.place.startswith("test_guarded.py, line ")
    assert process_time() - before < 0.1  # with the text of each line: seconds


@pytest.mark.parametrize(
    "error", [GeneratorExit, asyncio.CancelledError, SystemExit, type("Own", (BaseException,), {})]
)
def test_what_derives_from_base_exception_alone_is_an_error_like_any_other(error: type[BaseException]) -> None:
    def broken() -> None:
        raise error("gone")

    found = guarded_call(broken)
    assert isinstance(found, Raised)
    assert str(found) == f"{error.__name__}: gone"


@pytest.mark.parametrize("stop", [KeyboardInterrupt, PassesThrough])
def test_what_stops_the_process_passes_through(stop: type[BaseException]) -> None:
    def leave() -> None:
        raise stop

    with pytest.raises(stop):
        guarded_call(leave)


def class_interrupted_by(error: BaseException) -> object:
    """Define a class while a request to end arrives. Python 3.11 makes a RuntimeError of it."""

    class Part:
        def __set_name__(self, owner: type, name: str) -> None:
            raise error

    return type("Whole", (), {"part": Part()})


def imported(error: BaseException) -> object:
    """The same inside of a library that names the module that it could not import."""
    try:
        return class_interrupted_by(error)
    except RuntimeError as inner:
        raise ImportError("Failed to import") from inner


@pytest.mark.parametrize("request_", [KeyboardInterrupt(), type("Limit", (PassesThrough,), {})()])
@pytest.mark.parametrize("meet", [class_interrupted_by, imported])
def test_a_request_to_end_passes_through_whatever_wraps_it(meet, request_: BaseException) -> None:
    with pytest.raises(type(request_)) as found:
        guarded_call(lambda: meet(request_))
    assert found.value is request_


def test_errors_that_caused_each_other_in_a_circle_are_errors() -> None:
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first

    def raising() -> None:
        raise first

    assert isinstance(guarded_call(raising), Raised)
