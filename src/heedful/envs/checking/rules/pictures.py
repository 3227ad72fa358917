"""The rule on pictures: they can be read, show something, tell no secret, and change as the state does.

That they are the same after a replay, in other processes and for all members is looked at with the texts.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from heedful.envs.checking.evidence import Evidence
from heedful.envs.checking.pixels import seen
from heedful.envs.checking.play import Bench, Played
from heedful.envs.checking.report import Finding, absent, broken, doubtful, holds, shortened
from heedful.pixels import chunks
from heedful.types import Image, Step

_TELLING = frozenset({b"tEXt", b"zTXt", b"iTXt", b"eXIf", b"tIME"})
"""Chunks of a PNG file that hold words or a time."""


def pictures(bench: Bench, evidence: Evidence) -> Finding:
    """Every picture can be read, has more than one colour and no words in its file."""
    shown = {image.digest: (image, where) for image, where in _shown(evidence)}
    if not shown:
        return absent("observations have no pictures")
    for image, where in shown.values():
        finding = _looked_at(image, where)
        if finding is not None:
            return finding
    distinct = len({seen(image).digest for image, _ in shown.values()})
    sizes = sorted({(image.width, image.height) for image, _ in shown.values()})
    first, last = (f"{width} x {height}" for width, height in (sizes[0], sizes[-1]))
    size = first if first == last else f"{first} to {last}"
    return _state(evidence) or holds(f"{distinct:,} distinct pictures of {size} pixels, which change as the state does")


def _shown(evidence: Evidence) -> Iterator[tuple[Image, str]]:
    for played in evidence.episodes:
        for image in played.first.images:
            yield image, played.where()
    for played, turn, exchange in evidence.exchanges():
        for image in exchange.step.observation.images:
            yield image, played.where(turn)


def _looked_at(image: Image, where: str) -> Finding | None:
    look = seen(image)
    expected = "PNG files that any viewer can read, with more than one colour, and without texts or times in the file"
    if look.fault:
        found, remedy = shortened(look.fault, 200), "write the whole file, for example with Pillow's `save`"
        sentence = "a picture cannot be read"
    elif look.plain:
        found, remedy = f"{image.width} x {image.height} pixels of one colour", "draw the state before it is shown"
        sentence = "a picture shows nothing"
    elif telling := sorted(_TELLING & {name for name, _ in chunks(image.png)}):
        found, remedy = f"the chunk {telling[0].decode()}", "save the pixels alone: a text in the file can tell a seed"
        sentence = "the file of a picture holds more than pixels"
    else:
        return None
    return broken(sentence, expected=expected, found=found, where=where, remedy=remedy)


def _state(evidence: Evidence) -> Finding | None:
    """A warning where the picture changes and the state does not, or the other way round."""
    for played, turn, before, after in _successive(evidence):
        same_state = before.state == after.state
        same_picture = _digests(before) == _digests(after)
        if same_state != same_picture:
            stays, changes = ("state", "picture") if same_state else ("picture", "state")
            return doubtful(
                f"the {changes} changes and the {stays} does not",
                expected="a picture that changes if and only if `Step.state` does, so that it shows the state",
                found=f"after reply {turn} and reply {turn + 1} an equal {stays} and another {changes}",
                where=played.where(turn),
                remedy="draw all of the state and nothing else; where a part of it is hidden on purpose, all is well",
            )
    return None


def _successive(evidence: Evidence) -> Iterator[tuple[Played, int, Step, Step]]:
    """(episode, turn of the second, step, the step after it), where both have a state and a picture."""
    for played in evidence.sound:
        for turn, (one, other) in enumerate(pairwise(played.exchanges), start=1):
            before, after = one.step, other.step
            if before.state and after.state and before.observation.images and after.observation.images:
                yield played, turn, before, after


def _digests(step: Step) -> list[str]:
    return [seen(image).digest for image in step.observation.images]
