"""Pictures in rows that another trainer made: its placeholders become the ids of the pictures that stand there.

The trainer's processor wrote one placeholder for each feature of a picture, and text of its own around them. A picture
takes as many ids here, so the length of a row and its masks stay. Torch-free.
"""

from __future__ import annotations

from collections.abc import Sequence

from heedful.models.sight import Sight
from heedful.types import Image

Ids = tuple[int, ...]


class Unplaced(ValueError):
    """Pictures that cannot be found in a row of ids. The message is the reason."""


def with_pictures(ids: Ids, written: Sequence[bool], images: Sequence[Image], sight: Sight) -> Ids:
    """The ids, with the placeholders of each picture replaced by its own ids.

    `written`: True = the trainer's processor wrote this id. Elsewhere the policy sampled it, and a sampled placeholder
    is a token like others. `images`: those of the whole row, in order.

    Raises Unplaced unless the placeholders are those of exactly these pictures.
    """
    one = sight.placeholder
    found, at = list(ids), 0
    places = [place for place, id in enumerate(ids) if id == one and written[place]]
    for number, image in enumerate(images):
        own = _shown(image, sight)
        first = next((place for place in places if place >= at), None)
        begin = -1 if first is None else first - next(place for place, id in enumerate(own) if id < 0)
        end = begin + len(own)
        if begin < at or list(ids[begin:end]) != [one if id < 0 else id for id in own] or not all(written[begin:end]):
            raise Unplaced(
                f"picture {number + 1} of {len(images)} of a prompt ({image.width} x {image.height} pixels, "
                f"{sum(id < 0 for id in own)} features) does not stand in the trainer's ids as heedful reads it: "
                "another number of tiles or tokens"
            )
        found[begin:end], at = own, end
    left = sum(place >= at for place in places)
    if left:
        raise Unplaced(
            f"a prompt has {left} placeholders of pictures more than its {len(images)} pictures take: "
            "another number of tiles or tokens, or a text holds a placeholder"
        )
    return tuple(found)


def count_in(ids: Ids, images: Sequence[Image], sight: Sight) -> int:
    """How many of the pictures, from the first on, stand in these ids."""
    places, count = sum(id < 0 for id in ids), 0
    while places > 0:
        places -= sum(id < 0 for id in _shown(images[count], sight))
        count += 1
    return count


def _shown(image: Image, sight: Sight) -> Ids:
    try:
        return sight.show(image).ids
    except ValueError as error:
        raise Unplaced(str(error)) from error
