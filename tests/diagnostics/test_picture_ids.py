from heedful.diagnostics.cross_scores.picture_ids import filled, frame, one_text, picture_ids, shapes
from heedful.types import Image

A, B, C = -7, -9, -2147483648
"""Ids of pictures; the last one is the smallest that there is."""


def image(name: str) -> Image:
    return Image(name.encode(), 8, 8)


def test_a_row_is_its_text_and_its_pictures() -> None:
    ids = (5, A, A, 6, 0, B, C)
    assert frame(ids) == (5, None, None, 6, 0, None, None)
    assert picture_ids(ids) == (A, A, B, C)
    assert filled(frame(ids), picture_ids(ids)) == ids
    assert filled(frame(ids), (B, B, A, A)) == (5, B, B, 6, 0, A, A)


def test_prompts_of_one_text_differ_in_pictures_alone() -> None:
    assert one_text([(5, A, 6), (5, B, 6)])
    assert not one_text([(5, A, 6), (5, A, A, 6)])
    assert not one_text([(5, A, 6), (5, A, 7)])


def test_the_shape_of_a_picture_is_the_lengths_of_its_parts_and_the_text_between_them() -> None:
    assert shapes((1, A, A, 2)) == (((2,), ()),)
    assert shapes((1, A, A, 3, A, 4, 4, A, 2)) == (((2, 1, 1), ((3,), (4, 4))),)
    assert shapes((1, A, A, 3, B, 2)) == (((2,), ()), ((1,), ()))
    assert shapes((A, A, B, B)) == shapes((B, B, C, C)) == (((2,), ()), ((2,), ()))
    assert shapes((1, 2)) == ()


def test_a_picture_that_is_shown_twice_in_a_row_is_two_pictures() -> None:
    twice = image("a"), image("a")
    assert shapes((1, A, A, 3, A, A, 2), twice) == shapes((1, A, A, 3, B, B, 2)) == (((2,), ()), ((2,), ()))
    assert shapes((A, A, A, A), twice) == (((2,), ()), ((2,), ()))
    parts = 1, A, 8, A, 3, A, 8, A, 2
    assert shapes(parts, twice) == (((1, 1), ((8,),)),) * 2
    assert shapes(parts) == (((1, 1, 1, 1), ((8,), (3,), (8,))),)
    assert shapes((A, 3, A, B), (*twice, image("b"))) == (((1,), ()),) * 3
