"""Pictures in a report: each file once, within a budget, and words where a picture is not shown."""

from __future__ import annotations

import base64
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from synthetic_run import make_run

from heedful.report import write_report
from heedful.report.embedding import embedded_pictures, unpacked
from heedful.storage import read_rollouts, write_rollouts
from heedful.types import Image, Trajectory

HOSTILE = '"><script>alert(1)</script>'


def picture(number: int, alt: str = "") -> Image:
    return Image(bytes([137, 80, 78, 71, number]) * 30, 32, 32, alt)


def seeing(trajectory: Trajectory, *images: tuple[Image, ...]) -> Trajectory:
    """The trajectory with pictures in its prompts."""
    return replace(
        trajectory,
        turns=tuple(
            replace(turn, reply=replace(turn.reply, prompt=replace(turn.reply.prompt, images=shown)))
            for turn, shown in zip(trajectory.turns, images, strict=False)
        ),
    )


@pytest.fixture(scope="module")
def trajectory(tmp_path_factory: pytest.TempPathFactory) -> Trajectory:
    run = make_run(tmp_path_factory.mktemp("run"))
    trajectories = [one for group in read_rollouts(run.rollouts(0)).groups for one in group.trajectories]
    return max(trajectories, key=lambda one: len(one.turns))


def test_a_picture_is_embedded_once_with_its_words(trajectory: Trajectory) -> None:
    shown = embedded_pictures([seeing(trajectory, (picture(1, "P_"),), (picture(1, "P_"), picture(2)))] * 2)
    assert list(shown) == [picture(1).digest, picture(2).digest]
    first = shown[picture(1).digest]
    assert first["alt"] == "P_"
    assert base64.b64decode(str(first["src"]).removeprefix("data:image/png;base64,")) == picture(1).png


def test_a_picture_without_words_has_the_state_before_it(trajectory: Trajectory) -> None:
    if len(trajectory.turns) > 1:
        shown = embedded_pictures([seeing(trajectory, (picture(1),), (picture(2),))])
        assert shown[picture(1).digest]["alt"] == ""
        assert shown[picture(2).digest]["alt"] == trajectory.turns[0].state


def test_beyond_the_budget_there_are_words_alone(trajectory: Trajectory) -> None:
    shown = embedded_pictures([seeing(trajectory, (picture(1, "first"), picture(2, "second")))], budget=250)
    assert "src" in shown[picture(1).digest]
    assert shown[picture(2).digest] == {"width": 32, "height": 32, "alt": "second"}


def test_the_page_holds_pictures_packed_and_pages_of_text_hold_none(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    assert _part(write_report(run))["pictures"] == {}
    rollouts = read_rollouts(run.rollouts(0))
    first, *others = rollouts.groups
    changed = replace(
        first,
        trajectories=(seeing(first.trajectories[0], (picture(1, HOSTILE),)), *first.trajectories[1:]),
    )
    write_rollouts(run.rollouts(0), 0, "train", [changed, *others], rollouts.verdicts, rollouts.environment)
    page = write_report(run)
    assert HOSTILE not in page.read_text(encoding="utf-8")
    part = _part(page)
    assert part["pictures"][picture(1).digest]["alt"] == HOSTILE
    shown = [
        turn["images"] for members in part["groups"] for one in members for turn in one["turns"] if "images" in turn
    ]
    assert shown == [[picture(1).digest]]


def _part(page: Path) -> Any:
    """What the page holds of step 0."""
    (text,) = re.findall(r'id="pack-0-0">(.*?)</script>', page.read_text(encoding="utf-8"), re.DOTALL)
    return unpacked(text)
