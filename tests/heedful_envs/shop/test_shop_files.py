"""WebShop's files: streamed, prepared once, and played."""

from __future__ import annotations

import importlib.util
import json
import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from heedful.envs.common import Faulty
from heedful.types import Ending
from heedful_envs.shop.environment import Shop
from heedful_envs.shop.prepare import Sources, check_spacy, find_sources, nouns_of, prepare
from heedful_envs.shop.prepared import SUMMARY, PreparedShop, goal_of
from heedful_envs.shop.products import NO_LIMIT, Product
from heedful_envs.shop.reward import can_meet, choices, meetable, terms
from heedful_envs.shop.webshop import Wish, items_of, read_amounts, read_human, read_options, read_product

EXAMPLE = Path(__file__).parents[3] / "examples" / "webshop"
ROW = {
    "asin": "B01",
    "name": "Lamp",
    "full_description": None,
    "small_description": "one text",
    "pricing": "$9.99",
    "product_category": "A › B",
    "query": " Lamps ",
    "customization_options": {"Color": [{"value": " Blue/White "}], "Gone": None},
}


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> str:
    out = tmp_path_factory.mktemp("shops") / "few"
    prepare(find_sources(EXAMPLE), out, "words")
    return str(out)


@pytest.fixture(autouse=True)
def _no_warning(recwarn: pytest.WarningsRecorder) -> None:
    """The rule for nouns is told each time a catalogue is opened. A test of its own looks at it."""


def files(folder: Path, items: Any, human: Any = None) -> Sources:
    (folder / "items_few.json").write_text(items if isinstance(items, str) else json.dumps(items))
    if human is not None:
        (folder / "items_human_ins.json").write_text(json.dumps(human))
    return find_sources(folder)


# --- Streams --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [7, 64, 1 << 20])
def test_a_list_is_read_item_by_item_whatever_the_size_of_the_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr("heedful_envs.shop.webshop._CHUNK", size)
    items = [{"a": 'x"],[{\\', "b": [1, [2, {"c": "}"}]]}, 3, "text, [more]", None, {"é": "日本\n"}, []]
    (tmp_path / "one.json").write_text("\ufeff \n" + json.dumps(items, indent=1, ensure_ascii=False) + "\n")
    assert [value for _, _, value in items_of(tmp_path / "one.json", "[")] == items
    (tmp_path / "two.json").write_text(json.dumps({str(number): each for number, each in enumerate(items)}, indent=2))
    found = list(items_of(tmp_path / "two.json", "{"))
    assert [(name, value) for _, name, value in found] == [(str(place), each) for place, each in enumerate(items)]
    (tmp_path / "a.json").write_text('[\n{"a": 1},\n\n{"a":\n 3}, 4]')
    assert [(line, value) for line, _, value in items_of(tmp_path / "a.json", "[")] == [
        (2, {"a": 1}),
        (4, {"a": 3}),
        (5, 4),
    ]


@pytest.mark.parametrize(
    ("text", "sentence"), [('{"a": 1}', "Expected a list"), ('[{"a": 1},\n {"b"', "line 2"), ("[1,\n nope]", "line 2")]
)
def test_another_file_or_one_that_was_cut_is_refused(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(ValueError, match=sentence):
        list(items_of(tmp_path / "a.json", "["))


# --- Rows -----------------------------------------------------------------------------------------------------------


def test_a_row_becomes_a_product_as_webshop_reads_it() -> None:
    read = read_product(ROW, ("soft",))
    assert (read.id, read.title, read.query, read.price, read.price_text) == ("B01", "Lamp", "lamps", 9.99, "$9.99")
    assert read.options == (("color", ("blue | white",)),)
    assert (read.bullets, read.description, read.attributes) == (("one text",), "", ("soft",))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"asin": "B0123456789"}, "asin is 'B0123456789', expected 1 to 10 characters"),
        ({"asin": "nan"}, "asin is 'nan'"),
        ({"asin": 7}, "asin was expected as text"),
        ({"name": " "}, "name is empty"),
        ({"pricing": "$"}, "pricing is '\\$'"),
        ({"pricing": "free"}, "pricing is 'free'"),
        ({"pricing": "$1.2.3"}, "pricing is"),
        ({"pricing": "$" + "9" * 400}, "expected amounts"),
        ({"customization_options": {"color": ["red"]}}, "customization_options is"),
        ({"customization_options": "red"}, "customization_options is 'red'"),
    ],
)
def test_a_bad_row_says_what_is_wrong(change: dict[str, Any], why: str) -> None:
    with pytest.raises(Faulty, match=why):
        read_product(ROW | change, ())


def test_prices_are_read_as_amounts_after_dollar_signs() -> None:
    assert read_amounts("$5.00$1,299.99$7") == [5.0, 1299.99]
    assert read_amounts("$5.00 - $9.99") == [5.0, 9.99]
    assert read_amounts("") == read_amounts(None) == []
    assert read_options("") == ()
    tags = [read_product(ROW | {"pricing": pricing}, ()).price_text for pricing in (None, "$9.99", "$5.00$10.00")]
    assert tags == ["$100.0", "$9.99", "$5.0 to $10.0"]


def test_bad_rows_are_left_out_named_by_line_and_counted(tmp_path: Path) -> None:
    rows = [json.dumps(ROW), json.dumps(ROW | {"asin": "B02", "pricing": "free"}), "{}", json.dumps(ROW), "7"]
    human = {"B01": [{"instruction": "i want a lamp", "instruction_attributes": []}, "x"], "B99": []}
    count = prepare(files(tmp_path, "[\n" + ",\n".join(rows) + "]", human), tmp_path / "out", "words")
    assert count.products == 1
    assert count.named[:3] == [
        "items_human_ins.json:1: instruction_attributes is empty",
        "items_human_ins.json:1: a row is no object but 'x'",
        "items_few.json:3: pricing is 'free', expected amounts such as $5.00$9.99",
    ]
    assert count.left_out["bad rows of items_few.json"] == 3
    assert count.left_out["products with the asin of an earlier one"] == 1
    assert count.left_out["instructions of products that are not there"] == 1


def test_bad_instructions_do_not_hide_what_is_wrong_with_the_products(tmp_path: Path) -> None:
    human = {"B01": ["x"] * 20}
    with pytest.raises(ValueError, match=r"found none that can be used: .*items_few\.json:1: pricing is 'free'"):
        prepare(files(tmp_path, json.dumps([ROW | {"pricing": "free"}]), human), tmp_path / "out", "words")


def test_a_folder_without_products_or_with_two_files_of_them_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"Expected a file of products such as items_shuffle.json"):
        find_sources(tmp_path)
    for name in ("items_shuffle.json", "items_shuffle_1000.json"):
        (tmp_path / name).write_text("[]")
    with pytest.raises(ValueError, match=r"found items_shuffle.json, items_shuffle_1000.json; name one with --items"):
        find_sources(tmp_path)
    with pytest.raises(ValueError, match="found none that can be used"):
        prepare(Sources(items=tmp_path / "items_shuffle.json"), tmp_path / "out", "words")
    assert not (tmp_path / "out").exists()


# --- Goals ----------------------------------------------------------------------------------------------------------

LAMP = Product(
    id="B01",
    title="Lamp",
    price=10.5,
    price_text="$10.5",
    query="lamps",
    attributes=("soft",),
    options=(("color", ("red", "titanium")), ("size", ("10", "12"))),
    nouns=("lamp",),
)


def test_options_are_chosen_so_that_every_asked_one_is_met() -> None:
    assert choices(LAMP, ("12", "red")) == {"size": "12", "color": "red"}
    assert choices(LAMP, (("size", "10"),)) == {"size": "10"}
    assert choices(LAMP, ("red", "titanium")) is None, "both are colors"
    assert choices(LAMP, ("large",)) is None
    assert choices(LAMP, ()) == {}


def test_a_goal_that_its_own_product_cannot_meet_is_known() -> None:
    def met(attributes: tuple[str, ...], options: tuple[str, ...]) -> bool:
        return can_meet(LAMP, goal_of(LAMP, Wish("human", "a lamp", attributes, options), ()))

    assert met(("soft",), ("red", "10"))
    assert not met(("hard",), ())
    assert not met(("soft",), ("large",))
    assert meetable(LAMP) == (("color", ("red",)), ("size", ("10", "12")))


def test_a_synthetic_goal_names_its_options_and_a_limit_that_is_the_same_each_time() -> None:
    wish = Wish("synthetic", "Find me soft lamps", ("soft",), ())
    goal = goal_of(LAMP, wish, (("color", "red"), ("size", "12")))
    assert (
        goal.text == f"Find me soft lamps with color: red, and size: 12, and price lower than {goal.limit:.2f} dollars"
    )
    assert goal.limit in (30.0, 40.0, 50.0)
    assert goal_of(LAMP, wish, (("color", "red"), ("size", "12"))) == goal
    dear = goal_of(replace(LAMP, price=985.0), wish, ())
    assert (dear.text, dear.limit) == ("Find me soft lamps", NO_LIMIT)


def test_human_instructions_lose_their_stop_and_need_an_attribute() -> None:
    row = {"instruction": "i want a lamp.", "instruction_attributes": ["soft"], "instruction_options": ["red"]}
    assert read_human(row) == Wish("human", "i want a lamp", ("soft",), ("red",))
    with pytest.raises(Faulty, match="instruction_attributes is empty"):
        read_human(row | {"instruction_attributes": []})


# --- Prepared catalogues --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("goals", ["human", "synthetic"])
def test_the_example_files_are_played_and_every_goal_can_be_met(few: str, goals: Any) -> None:
    env = Shop(catalogue=few, goals=goals)
    seen, products = set(), set()
    for seed in range(60):
        task, goal = env.task(seed), env.goal(seed)
        assert task == Shop(catalogue=few, goals=goals).task(seed)
        seen.add(task.id)
        products.add((goal.product, task.split))
        pairs = env.demonstrate(task, random.Random(seed))
        episode = env.episode()
        episode.start(task, 0)
        step = [episode.step(reply) for _, reply in pairs][-1]
        assert (step.ending, step.rewards) == (Ending.SOLVED, {"purchase": 1.0})
    assert len(seen) > (8 if goals == "human" else 30)
    assert len(products) == len({product for product, _ in products}), "a product is in one split"


def test_preparing_again_gives_the_same_catalogue_and_writes_over_none(few: str, tmp_path: Path) -> None:
    prepare(find_sources(EXAMPLE), tmp_path / "again", "words")
    one, other = Path(few), tmp_path / "again"
    assert {path.name: path.read_bytes() for path in one.rglob("*.*")} == {
        path.name: path.read_bytes() for path in other.rglob("*.*")
    }
    with pytest.raises(ValueError, match=r"Expected a new folder for the catalogue, but .* is not empty"):
        prepare(find_sources(EXAMPLE), other, "words")


def test_goals_that_cannot_be_met_are_played_only_when_asked_for(tmp_path: Path) -> None:
    human = {"B01": [{"instruction": "x", "instruction_attributes": ["hard"], "instruction_options": []}]}
    prepare(files(tmp_path, [ROW], human), tmp_path / "out", "words")
    with pytest.raises(
        ValueError, match=r"has no human or synthetic goals that can be met. 1 goals cannot .*every-goal"
    ):
        Shop(catalogue=str(tmp_path / "out"))
    env = Shop(catalogue=str(tmp_path / "out"), every_goal=True)
    goal = env.goal(0)
    assert terms(env.stock(0).product("B01"), goal, []).reward == 1 / 2
    with pytest.raises(ValueError, match="are not demonstrated"):
        env.demonstrate(env.task(0), random.Random(0))


def test_webshops_own_files_in_place_of_a_catalogue_are_answered_with_the_command() -> None:
    for place in (EXAMPLE, EXAMPLE / "items_few.json"):
        with pytest.raises(ValueError, match=f"heedful prepare-shop {EXAMPLE} --out DIR"):
            Shop(catalogue=str(place))
    with pytest.raises(ValueError, match="expected a folder that heedful prepare-shop made, found none"):
        Shop(catalogue="nowhere")


def test_without_spacy_the_sentence_names_the_extra_and_its_own_command_and_the_rule_is_told(
    few: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name == "spacy" or None)
    with pytest.raises(ModuleNotFoundError, match=r"heedful\[webshop\].*python -m spacy download en_core_web_sm"):
        check_spacy()
    assert "Nouns by a rule" in Shop(catalogue=few).summary
    with pytest.warns(UserWarning, match="was prepared without spaCy"):
        PreparedShop(Path(few))


def test_the_rule_takes_every_word_but_stop_words_with_repeats() -> None:
    titles = ["The Bar 3.1 for a Bar", "of the"]
    assert list(nouns_of(titles, "words")) == [("bar", "3", "1", "bar"), ()]


@pytest.mark.skipif(importlib.util.find_spec("en_core_web_sm") is None, reason="spaCy's model is not installed here")
def test_spacy_finds_nouns_and_names() -> None:
    assert list(nouns_of(["the red lamp stands on a table"], "spacy")) == [("lamp", "table")]


def test_an_outage_is_an_error_and_no_observation(few: str, tmp_path: Path) -> None:
    shutil.copytree(few, tmp_path / "copy")
    env = Shop(catalogue=str(tmp_path / "copy"))
    task = env.task(0)
    (tmp_path / "copy" / SUMMARY).unlink()
    with pytest.raises(ValueError, match="expected a folder that heedful prepare-shop made"):
        env.episode().start(task, 0)
