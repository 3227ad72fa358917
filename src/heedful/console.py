"""The console of every command: what it prints holds no control character of foreign text.

rich writes its own control characters for colours and live tables after this point. Text in brackets is text and not
markup, since it may come from a log.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from heedful.boundary.foreign_text import clean


class SafeConsole(Console):
    """A rich console that cleans all text before it is written, without markup, emoji names and highlighting."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**({"highlight": False, "markup": False, "emoji": False} | settings))

    def on_broken_pipe(self) -> None:
        """Leave the end to the command: rich would end the program with exit code 1, without a sentence."""
        raise BrokenPipeError

    def render_str(self, text: str, **settings: Any) -> Text:
        """A text as rich lays it out. Cleaned before, so that columns of a table are as wide as what they show."""
        return super().render_str(clean(text), **settings)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=clean(segment.text))


def duration(seconds: float, digits: int = 0) -> str:
    """Seconds as `1h02m`, `3m07s` or `12s`. `digits`: of seconds below ten."""
    if digits and seconds < 9.95:
        return f"{seconds:.{digits}f}s"
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 60}m{whole % 60:02d}s" if whole >= 60 else f"{whole}s"


def plain_table(*headings: str, left: str = "") -> Table:
    """A table without lines. All columns but the one called `left` are aligned to the right."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in headings:
        table.add_column(heading, justify="left" if heading == left else "right", overflow="fold")
    return table
