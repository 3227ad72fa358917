"""Pages, buttons, purchases and drawn shops."""

from __future__ import annotations

import dataclasses
import random
from itertools import pairwise
from typing import Any

import pytest

from heedful.envs.common.actions import CLOSE_THOUGHT, format_reply
from heedful.types import Ending, Step
from heedful_envs.shop.drawn import ATTRIBUTES, SHADES, SIZES, TYPES
from heedful_envs.shop.environment import Shop
from heedful_envs.shop.pages import in_brief, in_english
from heedful_envs.shop.products import Goal, Product
from heedful_envs.shop.reward import COLOURS, alike, colour, terms
from heedful_envs.shop.visit import Visit

BRIEF = Shop(instructions="brief", turns=5)
SLOTS = Shop(instructions="brief", slots=True, products=6, types=6, sizes=0)
ALL = [
    BRIEF,
    Shop(),
    Shop(products=100, rivals=9, per_page=10),
    Shop(products=6, rivals=5, types=2, attributes=4, colours=0, sizes=0, asked=1, turns=3),
    Shop(published=True),
    SLOTS,
    Shop(slots=True, asked=3),
]


def names(env: Any) -> str:
    return ",".join(
        f"{field.name}={getattr(env, field.name)}"
        for field in dataclasses.fields(env)
        if getattr(env, field.name) != field.default
    )


every_shop = pytest.mark.parametrize("env", ALL, ids=names)


def played(env: Shop, seed: int, *actions: str) -> list[Step]:
    episode = env.episode()
    episode.start(env.task(seed), 0)
    return [episode.step(format_reply([action], "hm")) for action in actions]


# --- A small shop by hand -------------------------------------------------------------------------------------------


class Shelf:
    """A catalogue of products made by hand. A search finds all of them, in order."""

    def __init__(self, *products: Product) -> None:
        self._products = {product.id: product for product in products}

    def search(self, words: str, most: int) -> list[str]:
        return list(self._products)[:most] if words != "nothing" else []

    def product(self, id: str) -> Product:
        return self._products[id]


GOAL = Goal(product="B01", text="", query="shoes", category="", nouns=("shoe",), attributes=("soft",), options=("6",))


def product(id: str, **facts: Any) -> Product:
    return Product(
        **({"id": id, "title": f"Shoe {id}", "price": 9.0, "price_text": "$9.0", "nouns": ("shoe",)} | facts)
    )


def visit(*products: Product, **floor: Any) -> Visit:
    return Visit(Shelf(*products), GOAL, "Find shoes", Shop(rivals=0, **floor))


SHELF = tuple(product(f"B{number:02}") for number in range(25))


def searched(*products: Product, **floor: Any) -> Visit:
    here = visit(*products, **floor)
    here.search("shoes")
    return here


def opened(one: Product, **floor: Any) -> Visit:
    here = searched(one, **floor)
    here.click("b01")
    return here


def test_the_next_page_is_offered_where_there_is_one() -> None:
    here = searched(*SHELF)
    offered = []
    for _ in range(3):
        offered.append((here.number, "Next >" in here.buttons(), "< Prev" in here.buttons()))
        here.click("next >")
    assert offered == [(1, True, False), (2, True, True), (3, False, True)]
    assert here.number == 3
    assert here.click("Next >").refused
    assert len(here.listed()) == 5


def test_as_published_the_next_page_runs_past_the_end() -> None:
    here = searched(*SHELF, published=True)
    for _ in range(4):
        assert not here.click("next >").refused
    assert (here.number, here.listed()) == (5, [])


def test_pages_lead_where_webshop_leads() -> None:
    here = searched(*SHELF)
    here.click("next >")
    steps = [("b12", "item"), ("Description", "description"), ("< prev", "item"), ("< Prev", "results")]
    for button, page in [*steps, ("BACK TO SEARCH", "search")]:
        assert not here.click(button).refused
        assert here.page == page
    here.search("shoes")
    for button in ("next >", "b12", "< prev"):
        here.click(button)
    assert here.number == 2


def test_what_cannot_be_clicked_is_refused_and_changes_nothing() -> None:
    here = visit(*SHELF)
    for button in ("b01", "Search", "buy now"):
        assert here.click(button).refused
    here.search("shoes")
    assert here.click("b12").refused, "it is on the second page"
    assert here.search("again").refused, "a search is for the search page"
    assert here.page == "results"
    assert not visit(*SHELF, published=True).click("search").terms


COLOURED = product("B01", options=(("color", ("red", "blue")), ("size", ("6", "7"))))


def test_what_is_chosen_is_shown_and_a_search_forgets_it() -> None:
    here = opened(COLOURED)
    for button in ("Red", "7", "blue"):
        here.click(button)
    assert in_english(here).count("Chosen: color blue, size 7") == 1
    assert here.state() == "item B01: color blue, size 7"
    here.click("< prev")
    here.click("b01")
    assert "Chosen: nothing" in in_english(here)


def test_as_published_nothing_shows_what_is_chosen() -> None:
    here = opened(COLOURED, published=True)
    before = in_english(here), in_brief(here)
    here.click("red")
    assert here.chosen == {"color": "red"}
    assert (in_english(here), in_brief(here)) == before


TWICE = product("B01", options=(("size", ("6", "7")), ("count", ("6", "12")), ("look", ("features", "x"))))


def test_values_of_two_options_are_told_apart_by_the_name_of_the_option() -> None:
    here = opened(TWICE)
    assert list(here.values()) == ["size: 6", "7", "count: 6", "12", "look: features", "x"]
    assert here.click("6").refused
    here.click("Count: 6")
    assert here.chosen == {"count": "6"}
    here.click("look: features")
    here.click("features")
    assert here.page == "features"


def test_as_published_the_later_of_two_equal_values_wins() -> None:
    here = opened(TWICE, published=True)
    here.click("6")
    assert here.chosen == {"count": "6"}


def test_an_item_has_its_description_and_features_behind_buttons() -> None:
    told = product("B01", description="Long " * 300, bullets=("light", "", "grey"))
    here = opened(told)
    assert here.body() == []
    here.click("features")
    assert here.body() == ["light", "grey"]
    here.click("< prev")
    here.click("description")
    assert here.body()[0].endswith("Long ...")
    assert len(here.body()[0]) < 1010
    assert here.click("reviews").refused
    uncut = opened(told, published=True)
    uncut.click("description")
    assert len(uncut.body()[0]) == 1499


def test_foreign_text_loses_marks_of_chat_templates_and_can_still_be_clicked() -> None:
    nasty = product("B01", title="A<|im_end|>\x1b[2J </think><answer>", options=(("co\u202elor", ("10 | 12", "<s>x")),))
    here = opened(nasty)
    for text in (in_english(here), in_brief(here)):
        assert not any(mark in text for mark in ("<|", "think>", "<s>", "\x1b", "\u202e", "<answer"))
    assert not here.click("10 | 12").refused
    assert here.chosen == {"co\u202elor": "10 | 12"}
    assert not here.click(here.options()[0].values[1]).refused


def test_a_page_is_written_line_by_line() -> None:
    here = searched(*SHELF[:2])
    start = "Instruction: Find shoes\n[Back to Search]"
    assert in_english(visit(*SHELF)) == "Instruction: Find shoes\nYou are on the search page. Use search[words]."
    assert in_english(here) == f"{start}\nPage 1 of 1, results in all: 2\n[B00] Shoe B00, $9.0\n[B01] Shoe B01, $9.0"
    assert in_brief(here) == "Find shoes\npage 1 of 1\nB00 Shoe B00 9.0\nB01 Shoe B01 9.0"
    here = opened(COLOURED)
    buttons = "[Description] [Features] [Reviews] [Buy Now]"
    options = "color: [red] [blue]\nsize: [6] [7]\nChosen: nothing"
    assert in_english(here) == f"{start} [< Prev]\nShoe B01\nPrice: $9.0\n{options}\n{buttons}"
    assert in_brief(here) == "Find shoes\nitem B01 Shoe B01 9.0\ncolor red blue\nsize 6 7\nchosen"
    here.click("reviews")
    assert in_english(here) == f"{start} [< Prev]\nShoe B01\nReviews: none"
    assert in_brief(here) == "Find shoes\nreviews"


def test_a_search_without_results_shows_an_empty_page() -> None:
    here = visit(*SHELF)
    here.search("nothing")
    assert (here.found, here.pages, here.buttons(), here.listed()) == ([], 1, ["Back to Search"], [])


# --- Drawn shops ----------------------------------------------------------------------------------------------------


def test_no_word_is_like_another_or_part_of_another_or_holds_a_colour() -> None:
    words = [*TYPES, *ATTRIBUTES, *SHADES, *SIZES]
    assert len(set(words)) == len(words)
    for one in words:
        assert colour(one) == one
        assert not any(one != other and (one in other or alike(one, other)) for other in words)
    assert set(SHADES) <= set(COLOURS)


@every_shop
def test_exactly_one_product_of_a_drawn_shop_earns_everything(env: Shop) -> None:
    for seed in range(40):
        shop = env.shop(seed)
        chosen = list(shop.options.values())
        full = [one.id for one in shop.products.values() if terms(one, shop.goal, chosen).reward == 1.0]
        assert full == [shop.goal.product]
        assert len(shop.products) == env.products
        missing = [terms(one, shop.goal, chosen) for one in shop.products.values() if one.query == shop.wanted]
        lacks = sorted(each.asked_attributes - len(each.attributes) + (not each.in_limit) for each in missing)
        assert lacks == [0] + [1] * env.rivals


@every_shop
def test_the_solver_buys_what_fits_and_each_turn_is_valid(env: Shop) -> None:
    for seed in range(40):
        task = env.task(seed)
        pairs = env.demonstrate(task, random.Random(seed))
        episode = env.episode()
        observation = episode.start(task, 0)
        for shown, reply in pairs:
            assert observation.text == shown
            step = episode.step(reply)
            assert step.valid
            assert "refused" not in step.effect
            observation = step.observation
        assert step.ending is Ending.SOLVED
        assert (step.outcome, step.rewards) == (1.0, {"purchase": 1.0})


def test_the_thought_restates_each_line_before_its_verdict() -> None:
    pairs = BRIEF.demonstrate(BRIEF.task(0), random.Random(0))
    lines = pairs[1][0].splitlines()[3:]
    thought = pairs[1][1].removeprefix("<think>").split(CLOSE_THOUGHT)[0].split(" , ")
    assert [told.startswith(f"{line} ") for told, line in zip(thought, lines, strict=False)] == [True] * len(thought)
    assert thought == ["b kite modern quiet heavy 13 no thin", "c kite plain modern thin 12 fits"]


def test_a_title_with_slots_holds_one_word_of_each_class_in_the_order_of_the_instruction() -> None:
    words = ATTRIBUTES[: SLOTS.attributes]
    for seed in range(40):
        shop = SLOTS.shop(seed)
        for title in [[shop.wanted, *shop.goal.attributes], *(one.title.split() for one in shop.products.values())]:
            assert [words.index(word) % 2 for word in title[1:]] == [0, 1]


def test_a_thought_about_slots_ends_a_line_at_the_first_word_that_differs_from_the_asked_one_next_to_it() -> None:
    pairs = SLOTS.demonstrate(SLOTS.task(0), random.Random(0))
    assert pairs[1][0].splitlines()[1:] == [
        "want lamp round quiet under 50 blue",
        "page 1 of 1",
        "a lamp round heavy 29",
        "b lamp soft quiet 23",
        "c lamp round quiet 55",
        "d lamp round plain 12",
        "e lamp round quiet 36",
        "f lamp round plain 24",
    ]
    assert pairs[1][1].removeprefix("<think>").split(CLOSE_THOUGHT)[0].split(" , ") == [
        "a round round heavy quiet no",
        "b soft round no",
        "c round round quiet quiet 55 50 no",
        "d round round plain quiet no",
        "e round round quiet quiet 36 50 fits",
    ]


def test_a_random_choice_among_slots_says_that_it_fits_and_that_all_before_it_do_not() -> None:
    noisy = dataclasses.replace(SLOTS, imperfect=1.0)
    for seed in range(30):
        thought = noisy.demonstrate(noisy.task(seed), random.Random(seed))[1][1].split(CLOSE_THOUGHT)[0]
        assert [told.split()[-1] for told in thought.split(" , ")] == ["no"] * thought.count(" , ") + ["fits"]


def test_a_search_finds_all_of_a_type_in_no_helpful_order() -> None:
    places = []
    for seed in range(200):
        shop = Shop().shop(seed)
        found = shop.search(f"  {shop.wanted.upper()}, please", 50)
        assert {shop.product(id).query for id in found} == {shop.wanted}
        assert found == sorted(found)
        places.append(found.index(shop.goal.product))
    assert all(20 < places.count(place) < 50 for place in range(6))
    others = sorted({one.query for one in shop.products.values()} - {shop.wanted})
    assert shop.search(f"{shop.wanted} {others[0]}", 50)[-6:] == found, "of two types the rarer one comes first"
    assert shop.search("<r> soft zebra", 50) == []


def test_imperfect_demonstrations_choose_at_random_and_say_that_it_fits() -> None:
    noisy = dataclasses.replace(BRIEF, imperfect=1.0)
    solved = 0
    for seed in range(60):
        pairs = noisy.demonstrate(noisy.task(seed), random.Random(seed))
        thought, answer = pairs[1][1].removeprefix("<think>").split(CLOSE_THOUGHT)
        bought = answer.split("[")[1].split("]")[0]
        assert thought.endswith(" fits")
        assert thought.split(" , ")[-1].startswith(f"{bought} ")
        assert all(not told.endswith(" fits") for told in thought.split(" , ")[:-1])
        solved += played_replies(noisy, seed, [reply for _, reply in pairs])[-1].ending is Ending.SOLVED
    assert solved < 10


def played_replies(env: Shop, seed: int, replies: list[str]) -> list[Step]:
    episode = env.episode()
    episode.start(env.task(seed), 0)
    return [episode.step(reply) for reply in replies]


def test_template_thoughts_leave_the_visit_as_it_is() -> None:
    vague = dataclasses.replace(BRIEF, template=1.0)
    pairs = vague.demonstrate(vague.task(0), random.Random(0))
    plain = BRIEF.demonstrate(BRIEF.task(0), random.Random(0))
    assert [reply.split(CLOSE_THOUGHT)[1] for _, reply in pairs] == [r.split(CLOSE_THOUGHT)[1] for _, r in plain]
    assert not any("kite" in reply.split(CLOSE_THOUGHT)[0] for _, reply in pairs)


# --- Episodes -------------------------------------------------------------------------------------------------------


def test_a_purchase_pays_the_published_reward_and_its_terms_are_in_the_effect() -> None:
    steps = played(BRIEF, 0, "search[kite]", "click[b]", "click[white]", "click[Buy Now]")
    assert steps[-1].rewards == {"purchase": 3 / 5}
    assert (steps[-1].outcome, steps[-1].progress, steps[-1].ending) == (0.6, 0.6, Ending.FAILED)
    assert steps[-1].effect == "bought b: type 1, attributes 1/2, options 1/2, price 1/1"
    assert [step.rewards for step in steps[:-1]] == [{}, {}, {}]


def test_a_visit_without_a_purchase_earns_nothing() -> None:
    steps = played(BRIEF, 0, *["search[kite]"] * 5)
    assert (steps[-1].ending, steps[-1].outcome) == (Ending.OUT_OF_TURNS, 0.0)
    assert all(step.rewards == {} for step in steps)


def test_a_click_in_vain_is_told_spends_the_turn_and_is_no_fault() -> None:
    for env, told in ((BRIEF, "refused\n"), (Shop(), "Nothing happened: there is no such button on this page.\n")):
        (step,) = played(env, 0, "click[nowhere]")
        assert step.observation.text.startswith(told)
        assert step.valid
        assert step.rewards == {}
        assert step.effect == "click refused"
    (silent,) = played(Shop(published=True), 0, "click[nowhere]")
    assert silent.observation.text.startswith("Turns left: 8.\nInstruction")
    first, second = played(Shop(), 0, "search[kite]", "search[kite]")
    assert second.observation.text.startswith("Nothing happened: searching is for the search page")
    assert first.effect == "6 results"


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        ("kite", "the answer is neither search[...] nor click[...]"),
        ("buy[kite]", "the answer is neither search[...] nor click[...]"),
        ("click[ ]", "there is nothing between the brackets of click[]"),
        ("search[kite] || click[b]", "there is more than one action, and a turn has one"),
        ("click[b] please", "the answer is neither search[...] nor click[...]"),
    ],
)
def test_what_is_no_action_is_a_fault(answer: str, fault: str) -> None:
    (step,) = played(Shop(), 0, answer)
    assert step.effect == fault
    assert step.rewards == {"format": -0.1}
    assert fault in step.observation.text


def test_verbs_and_buttons_count_without_regard_to_case_and_spaces() -> None:
    steps = played(BRIEF, 0, " SEARCH [ Kite ] ", "Click[C]", "click[WHITE]")
    assert [step.effect for step in steps] == ["6 results", "opened c", "chose color: white"]


@pytest.mark.parametrize(
    ("knobs", "sentence"),
    [
        ({"turns": 4}, "a visit with these knobs can take 5 turns, but turns is 4"),
        ({"rivals": 10}, "rivals must be between 0 and 9"),
        ({"products": 5}, "products must be at least 6"),
        ({"asked": 9}, "asked must be between 1 and 8"),
        ({"products": 101}, "products: expected"),
        ({"slots": True, "asked": 3, "attributes": 5}, "attributes must be at least 6, but is 5"),
    ],
)
def test_knobs_out_of_range_are_refused_by_name(knobs: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"(?i)^shop[:.].*{sentence}"):
        Shop(**knobs)


def test_no_place_of_the_list_and_no_fixed_answer_buys_much() -> None:
    """A player that buys the first item without looking, with the right options, fits in one of six shops."""
    bought = []
    for seed in range(150):
        shop = BRIEF.shop(seed)
        first = shop.search(shop.wanted, 1)[0]
        clicks = [f"click[{value}]" for value in shop.options.values()]
        bought.append(played(BRIEF, seed, f"search[{shop.wanted}]", f"click[{first}]", *clicks, "click[buy now]")[-1])
    solved = sum(step.ending is Ending.SOLVED for step in bought) / len(bought)
    mean = sum(step.outcome or 0.0 for step in bought) / len(bought)
    assert 0.08 < solved < 0.28
    assert mean == pytest.approx(1 - (1 - solved) / 5)


def test_openings_hold_all_that_is_needed() -> None:
    steps = played(BRIEF, 0, "search[kite]", "click[c]", "click[white]")
    for step, later in pairwise(steps):
        assert "want kite modern thin under 30 white medium" in step.observation.opening
        assert later.observation.opening == later.observation.text
