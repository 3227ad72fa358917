"""What foreign code raises becomes a value, and what stops the process does not."""

import asyncio

import pytest

from heedful.guarded import Answered, OwnPartFailed, PassesThrough, Raised, guarded_call, of_own_part


def test_an_answer_comes_back_as_one() -> None:
    assert guarded_call(lambda: 3) == Answered(3)


def test_what_is_raised_comes_back_with_its_text_and_its_place() -> None:
    def broken() -> None:
        raise KeyError("red")

    found = guarded_call(broken)
    assert isinstance(found, Raised)
    assert str(found) == "KeyError: 'red'"
    assert found.place.startswith("test_guarded.py, line ")


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


def test_what_a_class_of_the_user_raises_is_a_sentence_and_errors_of_heedful_pass() -> None:
    def refuse() -> None:
        raise OwnPartFailed("A sentence.")

    with pytest.raises(OwnPartFailed, match=r"of the filter object at step 3, found that it raised KeyError: 'x' \("):
        of_own_part(object(), "the filter", "step 3", lambda: {}["x"])
    with pytest.raises(OwnPartFailed, match=r"^A sentence\.$"):
        of_own_part(object(), "the filter", "step 3", refuse)
    assert of_own_part(object(), "the filter", "step 3", lambda: 3) == 3
