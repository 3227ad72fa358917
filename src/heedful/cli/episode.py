"""What every way of playing one episode shares: the settings of its task, its turns, its pictures and its end.

Pictures are shown in colour in a terminal, and in words in a pipe. A character of the terminal is two pixels: the upper
one is its colour, the lower one the colour behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from rich.color import Color
from rich.console import Console
from rich.style import Style
from rich.table import Table
from rich.text import Text

from heedful import envs
from heedful.boundary import Choice, Natural, shown
from heedful.console import plain_table
from heedful.models.chat.replies import Tags
from heedful.policies import Sampling
from heedful.protocols import Environment
from heedful.rollout.context import Context
from heedful.storage import refuse_typed, write_whole
from heedful.types import Image, Task, Trajectory, Turn

MOST_COLUMNS = 48
"""Characters of a picture's width: 8 and more for a cell of a small board."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedSettings:
    """Settings of an episode that no model plays."""

    seed: int = 0
    """Seed of the draw of a task, and of the random draws of the player."""
    task: int | None = None
    """Play the task of this seed, as rollouts and the page of a run name it, whatever its split. none = draw one."""
    split: Literal["train", "val", "test"] = "val"
    """The split of the task."""
    member: Natural = 0
    """Number of the member: another noise of the environment on the same task, and other draws of a model."""
    env: Annotated[Any, Choice(envs.ENVIRONMENTS, Environment)]
    """The environment and its knobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledSettings(ScriptedSettings):
    """Settings of an episode that a model plays, here or on a server."""

    context: Context
    sampling: Sampling
    tags: Tags
    template_options: tuple[str, ...]
    """Options of the chat template as name=value. With a server they need --tokenizer."""


def drawn_task(settings: ScriptedSettings) -> Task:
    from heedful.envs.common.tasks import TaskStream

    if settings.task is not None:
        drawn: Task = settings.env.task(settings.task)
        return drawn
    return TaskStream(settings.env, settings.split, settings.seed).next(1)[0]


def named(task: Task, member: int) -> str:
    return f"task {task.id} of {task.split}, member {member}"


def show_end(trajectory: Trajectory, console: Console) -> int:
    """Print how an episode ended. Returns the exit code: 1 if its environment broke."""
    if trajectory.outcome is None:
        console.print(f"the environment broke: {trajectory.error}", style="red")
        return 1
    ending, success = trajectory.ending.value.replace("_", " "), " (success)" if trajectory.outcome == 1.0 else ""
    told = f"ended: {ending}, outcome {trajectory.outcome:g}{success}, reward {trajectory.reward:g}"
    console.print(told, style="bold")
    return 0


def table_of_turns(turns: Sequence[Turn]) -> Table:
    """A table of the turns: length of the reply, probability and entropy of its tokens, reward and effect."""
    headings = ("turn", "tokens", "thought", "log p / token", "entropy / token", "reward", "effect")
    table = plain_table(*headings, left="effect")
    for number, turn in enumerate(turns, start=1):
        reply = turn.reply
        table.add_row(
            str(number),
            str(len(reply.ids)),
            str(len(reply.thought)),
            _mean(reply.logprobs),
            _mean(reply.entropies),
            f"{turn.reward:g}",
            Text(shown(turn.effect or ", ".join(turn.actions)) or "nothing executed"),
        )
    return table


def _mean(values: tuple[float, ...]) -> str:
    return f"{sum(values) / len(values):.3f}" if values else "-"


def show_pictures(images: Sequence[Image], console: Console) -> None:
    """Print each picture. Raises ValueError for a file that cannot be read, ImportError without Pillow."""
    coloured = console.is_terminal and console.color_system is not None and not console.no_color
    for image in images:
        if coloured:
            console.print(half_blocks(image, min(console.width, MOST_COLUMNS)))
        else:
            words = image.alt or f"[a picture of {image.width} x {image.height} pixels; --picture FILE writes it]"
            console.print(words, style="cyan", soft_wrap=True)


def write_pictures(images: Sequence[Image], file: Path) -> None:
    """Write the first picture to `file`, and others beside it: board.png, board-2.png, board-3.png."""
    for number, image in enumerate(images, start=1):
        place = file if number == 1 else file.with_stem(f"{file.stem}-{number}")
        refuse_typed(place, b"\x89PNG\r\n\x1a\n")
        write_whole(place, image.png)


def half_blocks(image: Image, columns: int) -> Text:
    """The picture as coloured characters, at most `columns` wide."""
    from heedful.pixels import decoded

    pixels = decoded(image.png)
    width = min(columns, pixels.width)
    height = max(1, round(pixels.height * width / pixels.width / 2)) * 2
    small = pixels.resize((width, height), resample=4)  # 4 = averages of boxes
    values = small.tobytes()
    text = Text(no_wrap=True)
    for top in range(0, height, 2):
        for left in range(width):
            places = ((row * width + left) * 3 for row in (top, top + 1))
            upper, lower = (Color.from_rgb(*values[at : at + 3]) for at in places)
            text.append("\N{UPPER HALF BLOCK}", Style(color=upper, bgcolor=lower))
        text.append("\n" if top + 2 < height else "")
    return text
