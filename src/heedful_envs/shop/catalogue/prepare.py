"""Preparing a catalogue once: from WebShop's files, or drawn, into a folder with one SQLite file.

Files are streamed, so memory does not grow with them. A bad row is left out, with its file and line. The folder appears
whole or not at all. The same files give the same catalogue again.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from heedful.boundary import make_folder
from heedful_envs.shop.catalogue.drawn import ATTRIBUTES, DEAREST, SHADES, SIZES, TYPES
from heedful_envs.shop.catalogue.nouns import Way, check_spacy, nouns_of
from heedful_envs.shop.catalogue.postings import Indexer
from heedful_envs.shop.catalogue.prepared import FILE, INDEXES, SUMMARY, TABLES, VERSION, goal_of, is_prepared
from heedful_envs.shop.catalogue.products import Product, searched_text
from heedful_envs.shop.catalogue.stream import listed, named
from heedful_envs.shop.catalogue.webshop import Faulty, Wish, read_human, read_product, read_synthetic
from heedful_envs.shop.wishes import meetable, why_unmet

_ASIDE = "instructions.sqlite"
"""The rows of the instruction files, until the catalogue is ready."""

_ROWS_NAMED = 5
_AT_ONCE = 1000

_TABLES = f"""
PRAGMA main.journal_mode = OFF;
PRAGMA aside.journal_mode = OFF;
PRAGMA main.synchronous = OFF;
PRAGMA aside.synchronous = OFF;
PRAGMA main.cache_size = -65536;
CREATE TABLE aside.told (id TEXT, kind TEXT, line INTEGER, body TEXT);
{TABLES}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """The files of a WebShop download."""

    items: Path
    attributes: Path | None = None
    """`items_ins_v2*.json`: attributes and synthetic instructions."""
    human: Path | None = None
    """`items_human_ins.json`: instructions that people wrote."""


@dataclass(slots=True)
class Count:
    """What was read and what was left out."""

    products: int = 0
    goals: Counter[str] = field(default_factory=Counter)
    met: Counter[str] = field(default_factory=Counter)
    """Goals that their own product can meet."""
    left_out: Counter[str] = field(default_factory=Counter)
    """Why, for rows and for goals that cannot be met."""
    named: list[str] = field(default_factory=list)
    """The first bad rows of each file, with file and line."""

    def bad(self, path: Path, line: int, why: str) -> None:
        """Count a bad row."""
        of_file = f"bad rows of {path.name}"
        self.left_out[of_file] += 1
        if self.left_out[of_file] <= _ROWS_NAMED:
            self.named.append(f"{path.name}:{line}: {why}")


def find_sources(folder: Path) -> Sources:
    """The files of a folder by their names. Raises ValueError unless there is one of items, and one at most of each."""
    found = {
        kind: sorted(path for path in folder.glob(pattern) if fits(path.name))
        for kind, pattern, fits in (
            ("items", "items_*.json", lambda name: "_ins" not in name),
            ("attributes", "items_ins*.json", lambda name: True),
            ("human", "items_human_ins*.json", lambda name: True),
        )
    }
    if not found["items"]:
        raise ValueError(f"Expected a file of products such as items_shuffle.json in {folder}, found none.")
    several = [kind for kind, paths in found.items() if len(paths) > 1]
    if several:
        names = ", ".join(path.name for path in found[several[0]])
        raise ValueError(f"Expected one file of {several[0]} in {folder}, found {names}; name one with --{several[0]}.")
    return Sources(**{kind: paths[0] for kind, paths in found.items() if paths})


def prepare(
    sources: Sources, out: Path, nouns: Way, most: int = 0, progress: Callable[[int], None] = lambda products: None
) -> Count:
    """Prepare WebShop's files. `most`: the first products only, 0 = all. Raises ValueError for other files."""
    if nouns == "spacy":
        check_spacy()
    count = Count()

    def fill(tables: sqlite3.Connection) -> Iterator[tuple[Product, list[Wish]]]:
        _read_wishes(sources, tables, count)
        return _products(sources, tables, most, count)

    named_by = {"items": sources.items.name, "nouns": nouns}
    return _written(out, fill, nouns, named_by, count, progress)


def prepare_drawn(
    products: int, seed: int, out: Path, progress: Callable[[int], None] = lambda products: None
) -> Count:
    """Prepare a drawn catalogue of any size, with a synthetic goal for each product."""
    return _written(
        out, lambda tables: _drawn(products, seed), None, {"drawn": products, "seed": seed}, Count(), progress
    )


def _written(
    out: Path,
    fill: Callable[[sqlite3.Connection], Iterator[tuple[Product, list[Wish]]]],
    nouns: Way | None,
    source: dict[str, Any],
    count: Count,
    progress: Callable[[int], None],
) -> Count:
    if out.exists() and (is_prepared(out) or any(out.iterdir())):
        raise ValueError(f"Expected a new folder for the catalogue, but {out} is not empty: name another one.")
    make_folder(out.parent)
    part = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        with sqlite3.connect(part / FILE, isolation_level=None) as tables:
            tables.execute("ATTACH ? AS aside", (str(part / _ASIDE),))
            tables.executescript(_TABLES)
            tables.execute("BEGIN")
            _fill(tables, fill(tables), nouns, count, progress)
            missing = "SELECT COUNT(DISTINCT id) FROM told WHERE id NOT IN (SELECT id FROM products)"
            count.left_out["instructions of products that are not there"] += tables.execute(missing).fetchone()[0]
            count.left_out = +count.left_out
            for index in INDEXES:
                tables.execute(index)
            tables.execute("COMMIT")
        tables.close()
        (part / _ASIDE).unlink()
        summary = {"version": VERSION, **source, "products": count.products, "goals": dict(count.goals)}
        summary |= {"met": dict(count.met), "left_out": dict(count.left_out)}
        (part / SUMMARY).write_text(json.dumps(summary, indent=1), encoding="utf-8")
        part.chmod(0o755)
        if out.exists():
            out.rmdir()
        os.replace(part, out)
    except sqlite3.Error as error:
        raise ValueError(
            f"Expected to write the catalogue beside {out}, found: {error}. Nothing was kept. Free some space, or name "
            "another folder."
        ) from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return count


def _fill(
    tables: sqlite3.Connection,
    rows: Iterator[tuple[Product, list[Wish]]],
    nouns: Way | None,
    count: Count,
    progress: Callable[[int], None],
) -> None:
    indexer = Indexer(tables)
    while batch := list(islice(rows, _AT_ONCE)):
        if nouns is not None:
            found = nouns_of((product.title for product, _ in batch), nouns)
            batch = [
                (replace(product, nouns=each), wishes) for (product, wishes), each in zip(batch, found, strict=True)
            ]
        for product, wishes in batch:
            place = count.products
            body = json.dumps(asdict(product), ensure_ascii=False)
            tables.execute("INSERT INTO products VALUES (?, ?, ?)", (place, product.id, body))
            indexer.add(searched_text(product))
            count.products += 1
            for wish in wishes:
                _add_goal(tables, place, product, wish, count)
        progress(count.products)
    if not count.products:
        named_rows = "; ".join(count.named)
        raise ValueError(f"Expected products, found none that can be used{f': {named_rows}' if named_rows else ''}.")
    indexer.flush()


def _add_goal(tables: sqlite3.Connection, place: int, product: Product, wish: Wish, count: Count) -> None:
    """Store a wish, and whether its own product can earn 1. Of synthetic ones, the values that can be asked for."""
    kept = meetable(product) if wish.kind == "synthetic" else None
    if wish.kind == "synthetic" and kept is None:
        why = "an option has no value that meets itself"
    else:
        why = why_unmet(product, goal_of(product, wish, tuple((name, values[0]) for name, values in kept or ())))
    number = count.goals.total()
    met = None if why else count.met[wish.kind]
    row = (number, wish.kind, place, json.dumps(asdict(wish), ensure_ascii=False), json.dumps(kept or ()))
    tables.execute("INSERT INTO goals VALUES (?, ?, ?, ?, ?, ?, ?)", (*row, count.goals[wish.kind], met))
    count.goals[wish.kind] += 1
    if why:
        count.left_out[f"{wish.kind} goals: {why}"] += 1
    else:
        count.met[wish.kind] += 1


def _read_wishes(sources: Sources, tables: sqlite3.Connection, count: Count) -> None:
    """The rows of the instruction files by asin, in a table, so that products can be read one by one."""
    for kind, path in (("synthetic", sources.attributes), ("human", sources.human)):
        if path is not None:
            rows = ((id, kind, line, json.dumps(value)) for line, id, value in _members(path, count))
            tables.executemany("INSERT INTO aside.told VALUES (?, ?, ?, ?)", rows)
    tables.execute("CREATE INDEX aside.by_id ON told (id)")


def _members(path: Path, count: Count) -> Iterable[tuple[int, str, Any]]:
    for line, id, value in named(path):
        if isinstance(value, ValueError):
            count.bad(path, line, f"expected a member of an object, found {value}")
        else:
            yield line, id, value


def _products(
    sources: Sources, tables: sqlite3.Connection, most: int, count: Count
) -> Iterator[tuple[Product, list[Wish]]]:
    seen: set[str] = set()
    for number, (line, row) in enumerate(listed(sources.items)):
        if most and number == most:
            return
        if isinstance(row, ValueError):
            count.bad(sources.items, line, f"expected a product, found {row}")
            continue
        told = tables.execute(
            "SELECT kind, line, body FROM told WHERE id = ? ORDER BY kind, line", (str(_asin(row)),)
        ).fetchall()
        try:
            attributes, wishes = _wishes(sources, told, count)
            product = read_product(row, attributes)
        except Faulty as fault:
            count.bad(sources.items, line, str(fault))
            continue
        if product.id in seen:
            count.left_out["products with the asin of an earlier one"] += 1
            continue
        seen.add(product.id)
        yield product, wishes


def _asin(row: Any) -> Any:
    return row.get("asin") if isinstance(row, dict) else ""


def _wishes(sources: Sources, told: Sequence[tuple[str, int, str]], count: Count) -> tuple[tuple[str, ...], list[Wish]]:
    """Attributes and wishes of a product. A bad one is left out and counted, and its product stays."""
    attributes: tuple[str, ...] = ()
    wishes: list[Wish] = []
    for kind, line, body in told:
        path = sources.human if kind == "human" else sources.attributes
        assert path is not None
        rows = json.loads(body)
        for row in rows if kind == "human" and isinstance(rows, list) else [rows]:
            try:
                if kind == "human":
                    wishes.append(read_human(row))
                else:
                    attributes, wish = read_synthetic(row)
                    wishes += [wish] if wish else []
            except Faulty as fault:
                count.bad(path, line, str(fault))
    return attributes, wishes


def _drawn(products: int, seed: int) -> Iterator[tuple[Product, list[Wish]]]:
    """Products with a maker's name in the title, so that each can be found by its title."""
    for number in range(products):
        rng = random.Random(f"shop catalogue:{seed}:{number}")
        kind, attributes = rng.choice(TYPES), tuple(rng.sample(ATTRIBUTES, 3))
        maker = "".join(rng.choice("bdfgklmnprstvz") + rng.choice("aeiou") for _ in range(4))
        price = round(rng.uniform(5, 4 * DEAREST), 2)
        options = tuple(
            (name, tuple(rng.sample(values, rng.randint(2, 4))))
            for name, values in (("color", SHADES), ("size", SIZES))
        )
        product = Product(
            id=f"D{number:08}",
            title=f"{kind} {' '.join(attributes)} {maker}",
            price=price,
            price_text=f"${price}",
            query=kind,
            category=f"Shop › {kind}",
            attributes=attributes,
            options=options,
            description=f"A {kind} by {maker}.",
            bullets=(f"{attributes[0]} {kind}", attributes[1]),
            nouns=(kind,),
        )
        asked = tuple(rng.sample(attributes, 2))
        yield product, [Wish("synthetic", f"Find me a {kind} that is {' and '.join(asked)}", asked, ())]
