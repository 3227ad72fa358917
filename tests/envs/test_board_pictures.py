"""Boards as pictures: a shape and a colour for every symbol, the same pixels everywhere, the same texts as before."""

from __future__ import annotations

import builtins
import hashlib
import io
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
import pytest

pytest.importorskip("PIL", reason="pictures are drawn with Pillow: install heedful[vision]")

from PIL import Image as pillow

from heedful.envs.common.pictures import draw_board
from heedful.envs.frozen_lake.environment import FrozenLake
from heedful.envs.frozen_lake.picture import PALETTE as LAKE
from heedful.envs.sokoban.environment import Sokoban
from heedful.envs.sokoban.picture import PALETTE as ROOM
from heedful.pixels import need_pillow
from heedful.types import Image

PIXELS = {
    "lake": {
        "_": "1a381eb5b611",
        "O": "c2a2a81ed920",
        "G": "b471fd624ae2",
        "P": "d45142af12f4",
        "V": "6b8731c86228",
        "X": "71cf9141a3f1",
    },
    "room": {
        "_": "30ef5b134cf1",
        "#": "1a87f989e96e",
        "O": "33f195e66aef",
        "X": "c88bf5bc9805",
        "*": "9e76fe63ce0d",
        "P": "aea56af1107a",
        "S": "c195886c25ef",
    },
}
"""SHA-256 of the pixels at 28 per cell, first 12 digits."""

lake_picture, room_picture = partial(draw_board, LAKE), partial(draw_board, ROOM)
DRAWN = {"lake": (lake_picture, "_OGPVX"), "room": (room_picture, "_#OX*PS")}


def pixels(image: Image) -> Any:
    return np.asarray(pillow.open(io.BytesIO(image.png)).convert("RGB")).astype(int)


def digest(image: Image) -> str:
    return hashlib.sha256(pixels(image).astype(np.uint8).tobytes()).hexdigest()[:12]


@pytest.mark.parametrize("board", DRAWN)
def test_a_symbol_has_the_same_pixels_in_every_version(board: str) -> None:
    draw, symbols = DRAWN[board]
    assert {symbol: digest(draw(symbol, 28)) for symbol in symbols} == PIXELS[board]


@pytest.mark.parametrize("cell", [8, 28, 32])
@pytest.mark.parametrize("board", DRAWN)
def test_every_symbol_has_a_shape_and_a_colour_of_its_own(board: str, cell: int) -> None:
    draw, symbols = DRAWN[board]
    ground = pixels(draw("_", cell))
    shapes, colours = {}, {}
    for symbol in symbols[1:]:
        tile = pixels(draw(symbol, cell))
        outline = np.abs(tile - ground).sum(axis=2) > 90
        assert outline.sum() >= 0.08 * cell * cell
        colours[symbol] = tile[outline].mean(axis=0)
        light = tile.sum(axis=2)
        shapes[symbol] = outline, light > light[outline].mean()
    for one, other in combinations(symbols[1:], 2):
        # An outline, or the light and the dark parts within it.
        differs = [(here != there).mean() for here, there in zip(shapes[one], shapes[other], strict=True)]
        assert max(differs) > 0.05, (one, other, differs)
        assert np.abs(colours[one] - colours[other]).sum() > 30, (one, other)


@pytest.mark.parametrize("cell", [8, 28, 32])
def test_a_board_is_its_tiles(cell: int) -> None:
    whole = pixels(lake_picture("P_\nOG", cell))
    assert whole.shape == (2 * cell, 2 * cell, 3)
    for place, symbol in enumerate("P_OG"):
        down, right = divmod(place, 2)
        part = whole[down * cell : (down + 1) * cell, right * cell : (right + 1) * cell]
        assert (part == pixels(lake_picture(symbol, cell))).all()


def test_a_picture_says_its_size_and_its_state_and_holds_no_text() -> None:
    image = lake_picture("P_\nOG", 28)
    assert (image.width, image.height, image.alt) == (56, 56, "P_\nOG")
    assert not pillow.open(io.BytesIO(image.png)).info


@pytest.mark.parametrize("kind", [FrozenLake, Sokoban])
def test_a_picture_shows_the_state_and_the_text_keeps_silent(kind: type) -> None:
    env = kind(observation="image", cell=8)
    task = env.task(3)
    episode = env.episode()
    first = episode.start(task, 0)
    both = kind(observation="both").episode().start(task, 0)
    assert first.images[0].alt in both.text
    assert first.images[0].alt not in first.text
    assert "P 0" not in first.text
    assert "grid" not in first.text
    assert "red figure" in first.text
    step = episode.step("<answer>Up</answer>")
    assert step.observation.images[0].alt == step.state
    assert step.observation.opening.startswith("You ")
    assert step.observation.images != first.images or step.state == first.images[0].alt


@pytest.mark.parametrize("kind", [FrozenLake, Sokoban])
def test_image_and_text_is_both_with_a_picture_before_it(kind: type) -> None:
    task = kind().task(3)
    shown = kind(observation="image_and_text", instructions="brief").episode().start(task, 0)
    both = kind(observation="both", instructions="brief").episode().start(task, 0)
    assert shown.text == both.text
    assert not both.images
    assert (shown.images[0].width, shown.images[0].height) == (28 * kind().size,) * 2


@pytest.mark.parametrize("kind", [FrozenLake, Sokoban])
def test_the_form_and_the_cell_change_no_task(kind: type) -> None:
    assert kind(observation="image", cell=32).task(5) == kind().task(5)


def test_without_pillow_a_sentence_names_the_extra_and_text_is_played(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.startswith("PIL"):
            raise ImportError("No module named 'PIL'")
        return real(name, *rest)

    need_pillow.cache_clear()
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r"pip install 'heedful\[vision\]'"):
        FrozenLake(observation="image").task(0)
    assert FrozenLake().episode().start(FrozenLake().task(0), 0).text
    monkeypatch.undo()
    need_pillow.cache_clear()
