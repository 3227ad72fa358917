"""The console of every command: what it prints holds no control character of foreign text.

rich writes its own control characters for colours and live tables after this point. Text in brackets is text and not
markup, since it may come from a log.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
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
