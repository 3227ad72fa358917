"""The rows of WebShop's files as products and goals, or what is wrong with a row."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from heedful_envs.filed import Faulty
from heedful_envs.shop.catalogue.products import Product, drawn_price, price_tag

LONGEST_ID = 10
"""Characters of an asin. WebShop leaves longer ones out."""

_AMOUNT = re.compile(r"[^\d.]")


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
    if not isinstance(row, Mapping):
        raise Faulty(f"a product is no object but {row!s:.40}")
    id = _text(row, "asin")
    if not id or id == "nan" or len(id) > LONGEST_ID:
        raise Faulty(f"asin is {id[:20]!r}, expected 1 to {LONGEST_ID} characters")
    title = _text(row, "name")
    if not title.strip():
        raise Faulty("name is empty")
    amounts = read_amounts(row.get("pricing"))
    bullets = row.get("small_description") or []
    return Product(
        id=id,
        title=title,
        price=drawn_price(amounts, id),
        price_text=price_tag(amounts),
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
        raise Faulty(f"pricing is {str(pricing)[:30]!r}, expected amounts such as $5.00$9.99") from None
    if not amounts or not all(map(math.isfinite, amounts)):
        raise Faulty(f"pricing is {str(pricing)[:30]!r}, expected amounts such as $5.00$9.99")
    return amounts[:2]


def read_options(options: Any) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """{name: [{value, ..}] or null} as pairs. Names and values in lower case, and `/` becomes ` | `."""
    if not options:
        return ()
    if not isinstance(options, Mapping):
        raise Faulty(f"customization_options is {str(options)[:30]!r}, expected an object")
    found: dict[str, tuple[str, ...]] = {}
    for name, values in options.items():
        if values is None:
            continue
        if not isinstance(values, list) or not all(isinstance(one, Mapping) and "value" in one for one in values):
            raise Faulty(f"the values of the option {name[:20]!r} are no list of objects with a value")
        texts = dict.fromkeys(str(one["value"]).strip().replace("/", " | ").lower() for one in values)
        found[name.lower()] = tuple(texts)
    return tuple((name, values) for name, values in found.items() if values)


def read_synthetic(row: Any) -> tuple[tuple[str, ...], Wish | None]:
    """The attributes of a product, and its synthetic wish if it has one, of a member of `items_ins_v2*.json`."""
    if not isinstance(row, Mapping):
        raise Faulty(f"it is no object but {row!s:.40}")
    attributes = _texts(row, "attributes")
    instruction, asked = row.get("instruction"), _texts(row, "instruction_attributes")
    if not isinstance(instruction, str) or not instruction.strip() or not asked:
        return attributes, None
    return attributes, Wish("synthetic", instruction, asked, ())


def read_human(row: Any) -> Wish:
    """One instruction of `items_human_ins.json`. Raises Faulty."""
    if not isinstance(row, Mapping):
        raise Faulty(f"an instruction is no object but {row!s:.40}")
    instruction, asked = _text(row, "instruction"), _texts(row, "instruction_attributes")
    if not instruction.strip():
        raise Faulty("instruction is empty")
    if not asked:
        raise Faulty("instruction_attributes is empty")
    return Wish("human", instruction.strip("."), asked, _texts(row, "instruction_options"))


def _text(row: Mapping[str, Any], name: str) -> str:
    value = row.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise Faulty(f"{name} is no text but {str(value)[:30]!r}")
    return value


def _texts(row: Mapping[str, Any], name: str) -> tuple[str, ...]:
    values = row.get(name) or []
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise Faulty(f"{name} is no list of texts but {str(values)[:30]!r}")
    return tuple(values)
