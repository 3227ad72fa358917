"""Pictures in the ids of another trainer: found where its processor wrote them, or refused with the reason."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from heedful.integrations.watching.completions import BatchReader, Completion
from heedful.integrations.watching.pictures import Unplaced, count_in, with_pictures
from heedful.models.chat.replies import ReplyParser, Tags
from heedful.types import Image

PAD, OPEN, CLOSE = 9, 7, 8
"""The placeholder, and text that this family writes around a picture."""


@dataclass(frozen=True)
class Shown:
    ids: tuple[int, ...]


@dataclass
class Sight:
    """Each picture takes as many features as it has pixels in a row, between two ids of text."""

    placeholder: int = PAD
    lost: tuple[Image, ...] = field(default=())

    def show(self, image: Image) -> Shown:
        if image in self.lost:
            raise ValueError("this picture is lost")
        return Shown((OPEN, *(-1 - image.png[0],) * image.width, CLOSE))


def image(number: int, width: int = 2) -> Image:
    return Image(bytes([number]), width, 1)


def written(number: int, width: int = 2) -> tuple[int, ...]:
    """What the processor writes for `image(number, width)`."""
    return (OPEN, *(PAD,) * width, CLOSE)


A, B = image(1), image(2, width=3)


def test_each_picture_stands_where_its_placeholders_stood() -> None:
    ids = (1, *written(1), 2, *written(2, 3), *written(1), 3)
    found = with_pictures(ids, [True] * len(ids), [A, B, A], Sight())
    assert found == (1, OPEN, -2, -2, CLOSE, 2, OPEN, -3, -3, -3, CLOSE, OPEN, -2, -2, CLOSE, 3)
    assert count_in(found, [A, B, A], Sight()) == 3
    assert count_in(found[:6], [A, B, A], Sight()) == 1


def test_a_sampled_placeholder_is_a_token_like_others() -> None:
    ids = (*written(1), 5, PAD, OPEN)
    assert with_pictures(ids, [True] * 5 + [False] * 2, [A], Sight()) == (OPEN, -2, -2, CLOSE, 5, PAD, OPEN)
    with pytest.raises(Unplaced, match="a prompt has 1 placeholders of pictures more than its 1 pictures take"):
        with_pictures(ids, [True] * 7, [A], Sight())


@pytest.mark.parametrize(
    ("ids", "images", "reason"),
    [
        ((1, *written(1)), [A, A], "picture 2 of 2 of a prompt .2 x 1 pixels, 2 features. does not stand in"),
        ((1, *written(1, 4)), [A], "another number of tiles or tokens"),
        ((1, *written(1)), [B], "picture 1 of 1"),
        ((PAD, PAD, CLOSE), [A], "picture 1 of 1"),
        ((1, *written(1)), [], "2 placeholders of pictures more than its 0 pictures"),
    ],
    ids=["too few", "too long", "of another size", "cut", "no picture"],
)
def test_pictures_that_are_not_found_exactly_are_refused(
    ids: tuple[int, ...], images: list[Image], reason: str
) -> None:
    with pytest.raises(Unplaced, match=reason):
        with_pictures(ids, [True] * len(ids), images, Sight())


def test_a_picture_that_cannot_be_shown_is_the_reason() -> None:
    with pytest.raises(Unplaced, match="this picture is lost"):
        with_pictures(written(1), [True] * 4, [A], Sight(lost=(A,)))


def test_pictures_of_tools_stand_in_the_prompts_of_later_turns() -> None:
    tags = Tags()
    reader = BatchReader(ReplyParser(str, tags, [0]), str, tags, Sight())
    ids = (4, 0, *written(2, 3), 5, 0)
    sampled = (True, True, *(False,) * 5, True, True)
    members = [Completion((1, *written(1)), ids, sampled, {"score": 1.0}, images=(A, B)) for _ in range(2)]
    (group,) = reader.groups([members], 0, 1.0)
    first, second = group.trajectories[0].turns
    assert first.reply.prompt.ids == (1, OPEN, -2, -2, CLOSE)
    assert first.reply.prompt.images == (A,)
    assert first.reply.ids == (4, 0)
    assert second.reply.prompt.ids == (OPEN, -3, -3, -3, CLOSE)
    assert second.reply.prompt.images == (B,)
    other = Completion((1, *written(1)), ids, sampled, {"score": 1.0}, images=(image(5), B))
    (changed,) = reader.groups([[other]], 0, 1.0)
    assert changed.task.id != group.task.id
