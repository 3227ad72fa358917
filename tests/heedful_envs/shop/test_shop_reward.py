"""The reward of a purchase, against a second implementation and against cases worked out by hand."""

from __future__ import annotations

import difflib
import random
import re
from collections import Counter
from dataclasses import replace
from itertools import product as pairs
from typing import Any

import pytest

from heedful_envs.shop.products import NO_LIMIT, Goal, Product, drawn_limit
from heedful_envs.shop.reward import COLOURS, alike, colour, is_chosen, terms, token_set_ratio
from heedful_envs.shop.webshop import drawn_price

GOAL = Goal(
    product="b1",
    text="",
    query="mens shoes",
    category="Clothing › Men › Shoes",
    nouns=("mens", "sneakers", "shoes"),
    attributes=("rubber sole", "memory foam"),
    options=("black", "10"),
    limit=60.0,
)
FITTING = Product(
    id="b1",
    title="Mens Sneakers Running Shoes",
    price=55.5,
    price_text="$55.5",
    query="mens shoes",
    category="Clothing › Men › Shoes",
    attributes=("rubber sole", "memory foam"),
    options=(("color", ("black", "dark red")), ("size", ("10", "11"))),
    nouns=("mens", "sneakers", "shoes"),
)


# --- A second implementation, from the formulas alone ---------------------------------------------------------------


def other_ratio(one: str, other: str) -> int:
    bags = []
    for text in (one, other):
        kept = "".join(letter for letter in text if not 128 <= ord(letter) <= 255)
        bags.append(set(re.sub(r"[^\w]", " ", kept).lower().split()))
    if not all(bags):
        return 0
    shared = sorted(bags[0] & bags[1])
    texts = [" ".join(shared)] + [" ".join(shared + sorted(bag - set(shared))) for bag in bags]
    best = 0
    for place, first in enumerate(texts):
        for second in texts[place + 1 :]:
            exact = difflib.SequenceMatcher(a=first, b=second).ratio() if first or second else 1.0
            best = max(best, round(exact * 100))
    return best


def other_colour(value: Any) -> Any:
    """A text that holds a colour becomes it, a pair that has a colour as a part becomes it."""
    for name in COLOURS:
        if name in value:
            return name
    return value


def other_reward(bought: Product, goal: Goal, chosen: list[str]) -> float:
    nouns = [noun for noun in set(bought.nouns) if noun in goal.nouns]
    share = len(nouns) / len(goal.nouns) if goal.nouns else 0.2
    paths = [{step.strip() for step in path.split("›")} for path in (bought.category, goal.category)]
    kind = 1.0 if bought.query == goal.query or len(paths[0] & paths[1]) > 1 or share > 0.2 else 0.5
    kind = 0.1 if share < 0.1 else kind
    kind = 0.0 if share == 0 else kind
    points = 1 if bought.price <= goal.limit else 0
    for asked in goal.attributes:
        listed = [other_ratio(each, asked) > 85 for each in bought.attributes]
        written = [bought.title.lower(), " ".join(bought.bullets).lower(), bought.description.lower()]
        points += any(listed) or any(asked in text for text in written)
    for wanted in goal.options:
        reduced = str(other_colour(wanted))
        points += any(other_ratio(other_colour(value), reduced) > 85 for value in chosen)
    return kind * points / (len(goal.attributes) + len(goal.options) + 1)


WORDS = (
    *("essential oil", "essential oils", "natural ingredients", "natural ingredient", "tea tree", "tea-tree"),
    *("rubber sole", "rubber outsole", "long lasting", "long-lasting", "easy clean", "easy to clean", "BPA free"),
    *("café crème", "cafe", "10x50 hd binoculars", "10x42 hd binoculars", "usb c", "usb-c port", "...", "日本", "_"),
)
VALUES = (
    *("black", "dark red", "dark green", "dark brown", "titanium", "peppermint", "large", "x-large", "xx-large", "10"),
    *("10 wide", "10.5", "one size", "small", "medium | us 8", "a-black", "black | white", "queen", "", "pack of 2"),
)
NOUNS = ("shoes", "sneakers", "mens", "cable", "lamp", "foam", "pack", "oil")
PARTS = ("Beauty", "Hair", "Combs", "Shoes", "Men", "Clothing")


def random_texts(rng: random.Random, words: tuple[str, ...], most: int) -> tuple[str, ...]:
    return tuple(rng.choices(words, k=rng.randint(0, most)))


def random_purchase(rng: random.Random) -> tuple[Product, Goal, list[str]]:
    goal = replace(
        GOAL,
        query=rng.choice(("shoes", "oil")),
        category=" › ".join(rng.choices(PARTS, k=rng.randint(1, 4))),
        nouns=random_texts(rng, NOUNS, 12 if rng.random() < 0.3 else 5),
        attributes=(rng.choice(WORDS), *random_texts(rng, WORDS, 3)),
        options=random_texts(rng, VALUES, 3)
        if rng.random() < 0.5
        else tuple((rng.choice(("color", "size", "red")), value) for value in random_texts(rng, VALUES, 3)),
        limit=rng.choice((50.0, 100.0, NO_LIMIT)),
    )
    bought = replace(
        FITTING,
        title=" ".join(rng.choices(WORDS, k=2)).title(),
        price=rng.choice((49.99, 50.0, 50.01, 100.0, 2000.0)),
        query=rng.choice(("shoes", "oil")),
        category=rng.choice((" › ", "›")).join(rng.choices(PARTS, k=rng.randint(1, 4))),
        attributes=random_texts(rng, WORDS, 4),
        description=rng.choice(WORDS),
        bullets=random_texts(rng, WORDS, 2),
        nouns=random_texts(rng, NOUNS, 5),
    )
    return bought, goal, list(random_texts(rng, VALUES, 3))


def test_a_thousand_random_purchases_earn_what_a_second_implementation_says() -> None:
    rng = random.Random(0)
    kinds: Counter[float] = Counter()
    rewards = set()
    for _ in range(1000):
        bought, goal, chosen = random_purchase(rng)
        found = terms(bought, goal, chosen)
        assert found.reward == pytest.approx(other_reward(bought, goal, chosen), abs=1e-12)
        kinds[found.kind] += 1
        rewards.add(round(found.reward, 3))
    assert set(kinds) == {0.0, 0.1, 0.5, 1.0}
    assert min(kinds.values()) > 5
    assert len(rewards) > 25


def test_ratios_of_near_texts_are_those_of_a_second_implementation() -> None:
    for one, other in pairs([*WORDS, *VALUES], repeat=2):
        assert token_set_ratio(one, other) == other_ratio(one, other), (one, other)


# --- By hand --------------------------------------------------------------------------------------------------------


def test_what_fits_in_everything_earns_one() -> None:
    assert terms(FITTING, GOAL, ["black", "10"]).reward == 1.0
    assert terms(FITTING, GOAL, ["10", "black"]).reward == 1.0


def test_each_missing_term_costs_its_share() -> None:
    """Two attributes, two options and the price: five terms."""
    assert terms(FITTING, GOAL, ["black"]).reward == pytest.approx(4 / 5)
    assert terms(replace(FITTING, price=60.01), GOAL, ["black", "10"]).reward == pytest.approx(4 / 5)
    assert terms(replace(FITTING, price=60.0), GOAL, ["black", "10"]).reward == 1.0
    assert terms(replace(FITTING, attributes=("memory foam",)), GOAL, []).reward == pytest.approx(2 / 5)


def test_an_attribute_counts_as_well_in_title_bullets_or_description() -> None:
    bare = replace(FITTING, attributes=())
    for field, text in (
        ("title", "A Rubber Sole"),
        ("bullets", ("it has", "a RUBBER SOLE")),
        ("description", "rubber sole"),
    ):
        found = terms(replace(bare, **{field: text}), GOAL, [])
        assert found.attributes == ("rubber sole",)
    assert terms(replace(bare, bullets=("rubber", "sole")), GOAL, []).attributes == ("rubber sole",)
    assert terms(replace(bare, title="bpa free"), replace(GOAL, attributes=("BPA free",)), []).attributes == ()


@pytest.mark.parametrize(
    ("one", "other", "ratio"),
    [
        ("large", "x-large", 100),
        ("10", "10 wide", 100),
        ("essential oil", "essential oils", 96),
        ("natural", "unnatural", 88),
        ("...", "...", 0),
        ("", "large", 0),
        ("café", "caf", 100),
    ],
)
def test_ratios_by_hand(one: str, other: str, ratio: int) -> None:
    """26 common letters of 27 and so on: 2 * common / all letters, in percent, rounded."""
    assert token_set_ratio(one, other) == ratio


def test_a_ratio_is_rounded_before_it_is_compared() -> None:
    """2 * 12 of 28 letters are 85.7%: 86 once rounded, so they match. 85.2% is 85, and does not."""
    one, other = "abcdefghijklxy", "abcdefghijklzw"
    assert (token_set_ratio(one, other), alike(one, other)) == (86, True)
    less, more = "abcdefghijkxy", "abcdefghijkzwvu"[:14]
    assert not alike(less, more)


def test_colours_are_reduced_to_the_first_listed_word_inside_them() -> None:
    values = ("dark red", "dark brown", "titanium", "peppermint", "Red", "10")
    assert [colour(value) for value in values] == ["dark", "brown", "tan", "mint", "Red", "10"]
    assert len(COLOURS) == 102
    assert list(COLOURS) == sorted(COLOURS)
    assert is_chosen("dark red", ["dark green"])
    assert not is_chosen("dark red", ["dark brown"])


def test_an_option_counts_whatever_its_name_and_a_pair_is_compared_whole() -> None:
    assert is_chosen("10", ["black", "10 wide"])
    assert is_chosen("large", ["x-large"])
    assert is_chosen(("size", "large"), ["large"])
    assert not is_chosen(("size", "large"), ["x-large"])
    assert is_chosen(("color", "white"), ["off white"])
    assert is_chosen(("color", "dark red"), ["dark green"])
    assert not is_chosen("10", [])


def test_some_synthetic_options_cannot_be_met_even_by_their_own_value() -> None:
    """The chosen value is reduced to the colour inside it, the pair is not: `tan` is not like `color titanium`."""
    assert not is_chosen(("color", "titanium"), ["titanium"])
    assert is_chosen("titanium", ["titanium"])


def test_the_type_factor_has_four_values() -> None:
    ten = tuple("abcdefghij")
    wanted = replace(GOAL, nouns=ten)
    other = replace(FITTING, query="other", category="Other")
    factors = {count: terms(replace(other, nouns=ten[:count]), wanted, []).kind for count in (0, 1, 2, 3, 10)}
    assert factors == {0: 0.0, 1: 0.5, 2: 0.5, 3: 1.0, 10: 1.0}
    assert terms(replace(FITTING, nouns=ten[:1]), replace(wanted, nouns=(*ten, "k")), []).kind == 0.1
    assert terms(replace(FITTING, nouns=()), wanted, []).kind == 0.0


def test_repeated_nouns_count_below_the_line_and_not_above() -> None:
    """One of ten nouns with their repeats is .1, so the factor is .5. One of eleven is less."""
    other = replace(FITTING, query="other", category="Other", nouns=("bar", "bar"))
    wanted = ("bar",) * 3 + tuple("abcdefg")
    assert terms(other, replace(GOAL, nouns=wanted), []).kind == 0.5
    assert terms(other, replace(GOAL, nouns=(*wanted, "h")), []).kind == 0.1
    assert terms(other, replace(GOAL, nouns=()), []).kind == 0.5


def test_two_parts_of_the_category_path_have_to_be_the_same() -> None:
    wanted = replace(GOAL, nouns=("shoes", *"abcdef"))
    other = replace(FITTING, query="other")
    paths = ("Shoes›Men", "Men › Men › Hats", "Clothing", "Shoes › x › Clothing")
    factors = [terms(replace(other, category=path), wanted, []).kind for path in paths]
    assert factors == [1.0, 0.5, 0.5, 1.0]


def test_limits_are_drawn_from_the_next_four_multiples_of_ten() -> None:
    found = {drawn_limit(42.0, str(name)) for name in range(200)}
    assert found == {60.0, 70.0, 80.0}
    assert {drawn_limit(50.0, str(name)) for name in range(200)} == {70.0, 80.0, 90.0}
    assert {drawn_limit(975.0, str(name)) for name in range(50)} == {990.0}
    assert {drawn_limit(980.0, str(name)) for name in range(50)} == {NO_LIMIT}
    assert drawn_limit(42.0, "again") == drawn_limit(42.0, "again")


def test_a_price_is_the_only_amount_or_drawn_between_the_first_two() -> None:
    assert drawn_price([], "b1") == 100.0
    assert drawn_price([9.99], "b1") == 9.99
    drawn = [drawn_price([5.0, 10.0], f"b{number}") for number in range(100)]
    assert 5.0 <= min(drawn) < 6.0
    assert 9.0 < max(drawn) <= 10.0
    assert drawn_price([5.0, 10.0], "b1") == drawn_price([5.0, 10.0], "b1")
