"""WebShop's files: items of JSON files of any size, and rows as products and goals, or what is wrong with a row."""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from heedful.envs.common import Faulty, text_of
from heedful_envs.shop.products import Product

LONGEST_ID = 10
"""Characters of an asin. WebShop leaves longer ones out."""

LONGEST_ITEM = 64 << 20
"""Characters. A longer item is no product, but a file that lacks a bracket."""

UNPRICED = 100.0
"""The price of a product without one."""

_CHUNK = 1 << 20
_BETWEEN = re.compile(r"[\s,]*")
_COLON = re.compile(r"\s*:\s*")
_AMOUNT = re.compile(r"[^\d.]")
_DECODER = json.JSONDecoder()


def items_of(path: Path, opening: Literal["[", "{"]) -> Iterator[tuple[int, str, Any]]:
    """(line, name, value) of each item of a list, whose name is empty, or of each member of an object.

    The memory holds one item and a part of the file. Raises ValueError for another file, or one that was cut.
    """
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        text = file.read(_CHUNK)
        place = len(text) - len(text.lstrip())
        if text[place : place + 1] != opening:
            what = "a list" if opening == "[" else "an object"
            raise ValueError(f"Expected {what} as JSON in {path}, found {text[place : place + 40]!r}.")
        line, place, last = 1, 0, place + 1
        while True:
            last = _end(_BETWEEN, text, last)
            line += text.count("\n", place, last)
            place = last
            if text.startswith("]" if opening == "[" else "}", place):
                return
            try:
                name = ""
                if opening == "{":
                    name, last = _DECODER.raw_decode(text, place)
                    last = _end(_COLON, text, last)
                value, last = _DECODER.raw_decode(text, last)
            except ValueError:
                last = len(text)
            if _end(_BETWEEN, text, last) < len(text):  # else a number may go on
                yield line, name, value
                continue
            # As much again as is held, so that a text without an end is not read once for each part of it.
            more = file.read(max(_CHUNK, len(text) - place))
            if not more or len(text) - place > LONGEST_ITEM:
                raise ValueError(f"Expected JSON in {path}, but line {line} begins an item that cannot be read.")
            text, place, last = text[place:] + more, 0, 0


def _end(pattern: re.Pattern[str], text: str, place: int) -> int:
    """Where a pattern that begins at a place ends. Raises ValueError if it is not there."""
    found = pattern.match(text, place)
    if found is None:
        raise ValueError
    return found.end()


@dataclass(frozen=True, slots=True)
class Wish:
    """A goal as it is stored, without the limit and, for synthetic goals, without a choice of options."""

    kind: str
    """`human` or `synthetic`."""
    instruction: str
    attributes: tuple[str, ...]
    options: tuple[str, ...]


def read_product(row: Any, attributes: tuple[str, ...]) -> Product:
    """The product of a row of `items_*.json`. `nouns` are left out. Raises Faulty."""
    id, title = _text(row, "asin"), _text(row, "name")
    if not id or id == "nan" or len(id) > LONGEST_ID:
        raise Faulty(f"asin is {id[:20]!r}, expected 1 to {LONGEST_ID} characters")
    if not title.strip():
        raise Faulty("name is empty")
    amounts = read_amounts(row.get("pricing"))
    bullets = row.get("small_description") or []
    return Product(
        id=id,
        title=title,
        price=drawn_price(amounts, id),
        price_text=f"${amounts[0]} to ${amounts[1]}" if len(amounts) > 1 else f"${amounts[0] if amounts else UNPRICED}",
        query=_text(row, "query").lower().strip(),
        category=_text(row, "product_category"),
        attributes=attributes,
        options=read_options(row.get("customization_options")),
        description=_text(row, "full_description"),
        bullets=tuple(str(each) for each in (bullets if isinstance(bullets, list) else [bullets]) if each is not None),
    )


def read_amounts(pricing: Any) -> list[float]:
    """The first two amounts of a price such as `$5.00$9.99`, or of a list. None if there is no price."""
    if not pricing:
        return []
    parts = pricing.split("$")[1:] if isinstance(pricing, str) else pricing
    try:
        amounts = [float(_AMOUNT.sub("", str(part))) for part in parts]
    except (ValueError, TypeError):
        amounts = []
    if not amounts or not all(map(math.isfinite, amounts)):
        raise Faulty(f"pricing is {str(pricing)[:30]!r}, expected amounts such as $5.00$9.99")
    return amounts[:2]


def drawn_price(amounts: Sequence[float], product: str) -> float:
    """The price of a product: the only amount, or a uniform draw between two, named by the product."""
    if len(amounts) < 2:
        return amounts[0] if amounts else UNPRICED
    return random.Random(f"shop price:{product}").uniform(*amounts)


def read_options(options: Any) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """{name: [{value, ..}] or null} as pairs. Names and values in lower case, and `/` becomes ` | `."""
    try:
        found = {
            name.lower(): dict.fromkeys(str(one["value"]).strip().replace("/", " | ").lower() for one in values)
            for name, values in (options or {}).items()
            if values is not None
        }
    except (TypeError, AttributeError, KeyError):
        raise Faulty(
            f"customization_options is {str(options)[:30]!r}, expected lists of objects with a value"
        ) from None
    return tuple((name, tuple(values)) for name, values in found.items() if values)


def read_synthetic(row: Any) -> tuple[tuple[str, ...], Wish | None]:
    """The attributes of a product, and its synthetic wish if it has one, of a member of `items_ins_v2*.json`."""
    attributes, asked = _texts(row, "attributes"), _texts(row, "instruction_attributes")
    instruction = _text(row, "instruction")
    return attributes, Wish("synthetic", instruction, asked, ()) if instruction.strip() and asked else None


def read_human(row: Any) -> Wish:
    """One instruction of `items_human_ins.json`. Raises Faulty."""
    instruction, asked = _text(row, "instruction"), _texts(row, "instruction_attributes")
    if not instruction.strip() or not asked:
        raise Faulty(f"instruction{'_attributes' if instruction.strip() else ''} is empty")
    return Wish("human", instruction.strip("."), asked, _texts(row, "instruction_options"))


def _text(row: Any, name: str) -> str:
    return text_of(_value(row, name) or "", name)


def _texts(row: Any, name: str) -> tuple[str, ...]:
    values = _value(row, name) or []
    if not isinstance(values, list):
        raise Faulty(f"{name} is no list of texts but {str(values)[:30]!r}")
    return tuple(text_of(value, name) for value in values)


def _value(row: Any, name: str) -> Any:
    if not isinstance(row, Mapping):
        raise Faulty(f"a row is no object but {str(row)[:30]!r}")
    return row.get(name)
