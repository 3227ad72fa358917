"""Catalogues that somebody else has prepared, or that are damaged: each ends in a sentence that names the folder."""

import json
import random
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from heedful import cli
from heedful.rollout.baselines import random_reply
from heedful.types import Task
from heedful_envs.shop.catalogue.prepare import prepare_drawn
from heedful_envs.shop.environment import Shop

Damage = Callable[[Path], object]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("catalogues") / "whole"
    prepare_drawn(20, 0, folder)
    return folder


def sql(*statements: str) -> Damage:
    def damage(folder: Path) -> None:
        tables = sqlite3.connect(folder / "catalogue.sqlite")
        for statement in statements:
            tables.execute(statement)
        tables.commit()
        tables.close()

    return damage


def summary(**change: object) -> Damage:
    def damage(folder: Path) -> None:
        told = json.loads((folder / "catalogue.json").read_text()) | change
        (folder / "catalogue.json").write_text(json.dumps(told))

    return damage


def product(**change: object) -> Damage:
    """Every product has these fields."""

    def damage(folder: Path) -> None:
        tables = sqlite3.connect(folder / "catalogue.sqlite")
        for place, body in tables.execute("SELECT place, body FROM products").fetchall():
            changed = json.dumps(json.loads(body) | change)
            tables.execute("UPDATE products SET body = ? WHERE place = ?", (changed, place))
        tables.commit()
        tables.close()

    return damage


ENDLESS = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r)"

DAMAGES: dict[str, Damage] = {
    "no database": lambda folder: (folder / "catalogue.sqlite").write_bytes(b"no database" * 500),
    "a cut database": lambda folder: (folder / "catalogue.sqlite").write_bytes(
        (folder / "catalogue.sqlite").read_bytes()[:5000]
    ),
    "no lengths": sql("DELETE FROM lengths"),
    "a table less": sql("DROP TABLE words"),
    "texts in place of numbers": sql("UPDATE words SET places = 'x'"),
    "lengths that are text": sql("UPDATE lengths SET lengths = 'x'"),
    "products that are numbers": sql("UPDATE products SET body = 5"),
    "goals without end": sql(
        "DROP TABLE goals",
        f"CREATE VIEW goals AS {ENDLESS} SELECT n AS number, 'synthetic' AS kind, n AS product, '' AS body, "
        "'' AS options, n AS in_all, n AS in_met FROM r",
    ),
    "a list for a summary": lambda folder: (folder / "catalogue.json").write_text("[]"),
    "goals that are no counts": summary(goals={"synthetic": "many"}, met=5),
    "a title that is a number": product(title=5),
    "a query that is none": product(query=None),
    "a price that is no number": product(price=float("nan")),
    "a price that no float holds": product(price=10**400),
    "a price that is true": product(price=True),
    "an id that is a number": product(id=5),
    "a price in words that is a number": product(price_text=5),
    "attributes that are numbers": product(attributes=[1]),
    "nouns that are one text": product(nouns="abc"),
    "options that are numbers": product(options=[[1, [2]]]),
    "attributes of goals that are numbers": sql("UPDATE goals SET body = json_set(body, '$.attributes[0]', 1)"),
    "changes beside the file": lambda folder: (folder / "catalogue.sqlite-wal").write_bytes(b"1"),
    "fewer than no goals": summary(met={"synthetic": -1}),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_catalogue_ends_in_a_sentence(
    name: str, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "damaged"
    shutil.copytree(whole, folder)
    DAMAGES[name](folder)
    assert cli.run(["play", "shop", "--env.catalogue", str(folder), "--by", "random"]) == 2
    said = capsys.readouterr().err
    assert f"expected a whole catalogue in {folder}" in said
    assert said.count("Prepare it again") == 1


def test_a_random_answer_that_fails_is_named() -> None:
    class Broken(Shop):
        def random_answer(self, task: Task, rng: random.Random) -> str:
            raise KeyError("gone")

    env = Broken()
    with pytest.raises(ValueError, match=r"`random_answer` of the environment shop .* raised KeyError: 'gone'"):
        random_reply(env, env.task(1), random.Random(0))


def test_a_disk_that_is_full_while_a_catalogue_is_prepared_ends_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*given: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr("heedful_envs.shop.catalogue.prepare._fill", full)
    with pytest.raises(ValueError, match=r"found: database or disk is full\. Nothing was kept"):
        prepare_drawn(5, 0, tmp_path / "new")
    assert not list(tmp_path.iterdir())
