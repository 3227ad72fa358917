"""The pictures that a model has been shown, by the ids under which they stand in rows."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from heedful.pixels import decoded, picture_id, pixels_hash
from heedful.types import Image

MOST_PICTURES = 65_536
"""Pictures that are kept. The ones that no row named for longest are forgotten first."""
MOST_BYTES = 4 << 30
"""Bytes of their files, likewise. Boards take some hundred bytes each, photographs some million."""

Layout = tuple[tuple[int, ...], tuple[int, int] | None]
"""The ids of a picture, with `PLACE` where a feature stands, and the rows and columns of its features."""
PLACE = -1
"""A place of a feature in a layout."""


@dataclass(frozen=True, slots=True, eq=False)
class Picture:
    """One picture as a model reads it."""

    image: Image
    own: int
    """Its id, negative."""
    ids: tuple[int, ...]
    """What stands for it in a row: its own id once for each feature, and the ids of text around and between them."""
    grid: tuple[int, int] | None
    """Rows and columns of its features, for models whose positions have three axes."""

    @property
    def features(self) -> int:
        return self.ids.count(self.own)


class Pictures:
    """Every picture that rows of ids may name. One table serves a model and its copies."""

    def __init__(self, layout: Callable[[Any], Layout]) -> None:
        """`layout`: of a decoded picture."""
        self._layout = layout
        self._by_image: OrderedDict[Image, Picture] = OrderedDict()
        self._by_id: dict[int, Picture] = {}
        self._bytes = 0

    def __deepcopy__(self, memo: object) -> Pictures:
        return self

    def put(self, image: Image) -> Picture:
        """Remember a picture. Raises ValueError for a file that cannot be read."""
        if image not in self._by_image:
            pixels = decoded(image.png)
            own, (ids, grid) = picture_id(pixels_hash(pixels)), self._layout(pixels)
            picture = Picture(image, own, tuple(own if id == PLACE else id for id in ids), grid)
            self._by_image[image] = self._by_id[own] = picture
            self._bytes += len(image.png)
        self._by_image.move_to_end(image)
        while len(self._by_image) > MOST_PICTURES or (self._bytes > MOST_BYTES and len(self._by_image) > 1):
            _, oldest = self._by_image.popitem(last=False)
            self._bytes -= len(oldest.image.png)
            if self._by_id[oldest.own] is oldest:  # and not a later file with the same pixels
                del self._by_id[oldest.own]
        return self._by_image[image]

    def of(self, own: int) -> Picture:
        """The picture of this id. Raises ValueError for one that was never shown."""
        if own not in self._by_id:
            raise ValueError(
                f"Expected ids of tokens and of pictures that were shown, found {own}, which is neither: the picture "
                "was not given with its prompt. Read the rollouts with their pictures."
            )
        return self._by_id[own]
