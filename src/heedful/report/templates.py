"""Fills the page templates of the folder `layouts`.

Promise: everything that is not marked as markup by the drawing code is escaped. Control and bidi characters are written
as escapes, for those who print a page in a terminal. A missing value is an error.
"""

from __future__ import annotations

from functools import cache
from importlib import resources

import jinja2
from markupsafe import Markup

from heedful.boundary import clean


def chart_style() -> str:
    """The colours of all pages and the rules of charts."""
    return _source("charts.css")


def _source(name: str) -> str:
    return resources.files("heedful.report").joinpath("layouts", name).read_text(encoding="utf-8")


def fill(template: str, content: dict[str, object], refresh: int = 0) -> str:
    """The HTML of one page, with its style and script inline. `refresh`: seconds after which a browser loads it again,
    0 = never."""
    own: dict[str, object] = {"refresh": refresh, "beside": ""}
    own |= {
        "style": Markup(chart_style() + _source("report.css")),
        "script": Markup(_source("report.js") + _source("look.js")),
    }
    return clean(_environment().get_template(template).render(own | content))


@cache
def _environment() -> jinja2.Environment:
    """One for all pages: it compiles a template once, which takes longer than to fill it."""
    return jinja2.Environment(
        loader=jinja2.FunctionLoader(_source),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
