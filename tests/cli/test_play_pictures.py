"""`heedful play` with pictures: colours in a terminal, the state in a pipe, and a PNG file."""

from __future__ import annotations

import io
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("PIL", reason="pictures are drawn with Pillow: install heedful[vision]")

from heedful import cli
from heedful.cli.episode import half_blocks, show_pictures, write_pictures
from heedful.console import SafeConsole
from heedful.envs.common.pictures import draw_board
from heedful.envs.frozen_lake.picture import ICE, PALETTE
from heedful.envs.transport.images import png_size
from heedful.types import Image

lake_picture = partial(draw_board, PALETTE)

PLAY = ["play", "frozen_lake", "--by", "solver", "--env.observation", "image", "--env.cell", "8"]


def test_a_pipe_gets_the_state_as_text_before_every_turn_and_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(PLAY) == 0
    shown = capsys.readouterr().out
    boards = [line for line in shown.splitlines() if len(line) == 4 and set(line) <= set("PGO_V")]
    assert len(boards) % 4 == 0
    assert len(boards) == 4 * (shown.count("executed: ") + 1)
    assert sum("V" in row for row in boards[-4:]) == 1


def test_the_newest_picture_is_written_to_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([*PLAY, "--picture", str(tmp_path / "board.png")]) == 0
    assert png_size((tmp_path / "board.png").read_bytes()) == (32, 32)
    last = "\n".join([line for line in capsys.readouterr().out.splitlines() if set(line) <= set("PGO_V") and line][-4:])
    assert (tmp_path / "board.png").read_bytes() == lake_picture(last, 8).png


def test_further_pictures_are_written_beside_the_first(tmp_path: Path) -> None:
    write_pictures([lake_picture("P", 8), lake_picture("G", 8)], tmp_path / "board.png")
    assert (tmp_path / "board-2.png").read_bytes() == lake_picture("G", 8).png
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ValueError, match=r"config\.json, found another file"):
        write_pictures([lake_picture("P", 8)], tmp_path / "config.json")


def test_a_picture_of_an_observation_in_text_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["play", "frozen_lake", "--by", "solver", "--picture", str(tmp_path / "board.png")]) == 2
    assert "Choose --env.observation image" in " ".join(capsys.readouterr().err.split())
    assert cli.run([*PLAY, "--picture", str(tmp_path / "board.gif")]) == 2
    assert "must be a name that ends in .png, found" in " ".join(capsys.readouterr().err.split())
    assert not list(tmp_path.iterdir())


def test_a_terminal_with_colour_gets_two_pixels_for_each_character() -> None:
    text = half_blocks(lake_picture("P_\n__", 8), 48)
    lines = text.plain.splitlines()
    assert [len(line) for line in lines] == [16] * 8
    style = text.get_style_at_offset(SafeConsole(), 17 + 12)
    assert style.color is not None
    assert tuple(style.color.triplet or ()) == ICE


def test_a_large_picture_is_averaged_down_to_the_width() -> None:
    lines = half_blocks(lake_picture("P___\n____", 28), 48).plain.splitlines()
    assert [len(line) for line in lines] == [48] * 12


@pytest.mark.parametrize(("colours", "block"), [("truecolor", True), (None, False)])
def test_only_a_terminal_with_colour_gets_colours(colours: str | None, block: bool) -> None:
    file = io.StringIO()
    console = SafeConsole(file=file, force_terminal=True, color_system=colours, no_color=False)
    show_pictures([lake_picture("P_", 8)], console)
    assert ("▀" in file.getvalue()) is block
    assert ("P_" in file.getvalue()) is not block


def test_a_picture_without_words_is_named_by_its_size() -> None:
    file = io.StringIO()
    image = lake_picture("P_", 8)
    show_pictures([Image(image.png, 16, 8)], SafeConsole(file=file))
    assert "a picture of 16 x 8 pixels; --picture FILE writes it" in file.getvalue()
