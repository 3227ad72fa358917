"""Known answers of the scopes in which pictures are exchanged, from policies whose log-probabilities are tables."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from heedful.diagnostics.cross_scores.pictures import first_turn_pictures, later_pictures
from heedful.diagnostics.cross_scores.thoughts import ThoughtTags
from heedful.measuring.diagnostician import Diagnostician, DiagnosticsConfig
from heedful.seeds import stream
from heedful.types import Group, Metric, Verdict
from pictured_runs import Chance, Policy, groups, picture, shown

EPS = 1e-3
"""Chance of each word that is not meant."""
WORDS = 8
SCOPES = "image", "image_newest", "image_all", "text"


def copies(choose: Any) -> Chance:
    """The word number `choose(pictures, texts, place)` nearly always, the others with chance `EPS` each."""

    def chance(pictures: Any, texts: Any, place: int, word: int) -> float:
        return 1 - (WORDS - 1) * EPS if choose(pictures, texts, place) % 20 == word else EPS

    return chance


GAP = math.log((1 - (WORDS - 1) * EPS) / EPS)
"""Gap of a word that is copied, where all prompts name another one."""


def diagnostician(policy: Policy, **knobs: Any) -> Diagnostician:
    config = DiagnosticsConfig(**({"share": None, "words": 0} | knobs))
    return Diagnostician(config, policy, 0, ThoughtTags(), lambda token: "")  # type: ignore[arg-type]


def measure(policy: Policy, rolled: list[Group], step: int = 0, **knobs: Any) -> dict[str, Metric]:
    verdicts = [Verdict(1.0, "kept", 0.0)] * len(rolled)
    return {
        each.name: each for each in diagnostician(policy, **knobs).measure(step, rolled, verdicts, "outcome").metrics
    }


def certain(policy: Policy, images: range, text: int | None = None, **knobs: Any) -> list[Group]:
    """Prompts that show picture and text of one number (or one text), whose thoughts all say the number."""
    prompts = [(number, number if text is None else text) for number in images]
    return groups(policy, prompts, words=[[(number,) * policy.length] * 4 for number in images], **knobs)


def value(readings: dict[str, Metric], name: str) -> float:
    found = readings[name].value
    assert isinstance(found, float), readings[name]
    return found


def three(readings: dict[str, Metric], metric: str = "gap") -> tuple[float, float, float]:
    """The picture exchanged, the text exchanged, both exchanged."""
    image, text, both = (value(readings, f"information/{scope}/{metric}") for scope in ("image", "text", "first_turn"))
    return image, text, both


def test_two_pictures_have_the_information_of_the_table() -> None:
    table = {0: 0.75, 1: 0.25}
    policy = Policy(lambda pictures, texts, at, word: abs(word - table[pictures[0]]), words=2)  # word 0: the table
    rolled = groups(policy, [(0, 3), (1, 3)], members=4, words=[[0, 0, 0, 1], [1, 1, 1, 0]])
    readings = measure(policy, rolled)
    exact = math.log(2) + 0.75 * math.log(0.75) + 0.25 * math.log(0.25)
    assert value(readings, "information/image/mi") == pytest.approx(exact, abs=1e-12)
    assert value(readings, "information/image/gap") == pytest.approx(0.5 * math.log(3), abs=1e-12)
    assert value(readings, "information/image/mi_ceiling") == pytest.approx(math.log(2))
    assert readings["information/text/mi"].why == "all these prompts have the same text"


def test_the_table_counts_where_texts_differ_too() -> None:
    """Two pictures and two texts, each thought read under all four pairs."""
    table = {(0, 0): 0.9, (0, 1): 0.8, (1, 0): 0.3, (1, 1): 0.2}
    policy = Policy(lambda pictures, texts, at, word: abs(word - table[pictures[0], texts[0]]), words=2)
    rolled = groups(policy, [(0, 0), (1, 1)], members=2, words=[[0, 1], [0, 1]])
    readings = measure(policy, rolled)

    def gain(own: tuple[int, int], other: tuple[int, int], word: int) -> float:
        chances = [abs(word - table[pair]) for pair in (own, other)]
        return math.log(chances[0] / (sum(chances) / 2))

    pairs = [((0, 0), (1, 0), (0, 1)), ((1, 1), (0, 1), (1, 0))]  # own, picture exchanged, text exchanged
    image = sum(gain(own, other, word) for own, other, _ in pairs for word in (0, 1)) / 4
    text = sum(gain(own, other, word) for own, _, other in pairs for word in (0, 1)) / 4
    assert value(readings, "information/image/mi") == pytest.approx(image, abs=1e-12)
    assert value(readings, "information/text/mi") == pytest.approx(text, abs=1e-12)


def test_with_one_text_the_picture_is_all_and_costs_nothing() -> None:
    policy = Policy(copies(lambda pictures, texts, at: pictures[0]), WORDS)
    rolled = certain(policy, range(6), text=0)
    without = measure(policy, rolled, image=False)
    read, policy.read = policy.read, 0
    readings = measure(policy, rolled)
    assert policy.read == read
    for name, metric in without.items():
        assert readings[name] == metric
        family, scope, *last = name.split("/")
        if scope == "first_turn" and family in ("information", "retrieval") and last != ["p_value"]:
            other = readings["/".join((family, "image", *last))]
            assert (other.value, other.low, other.high, other.n) == (metric.value, metric.low, metric.high, metric.n)
    assert value(readings, "information/image/mi") == pytest.approx(math.log(6), abs=0.02)
    assert value(readings, "grounding/image_share") == 1.0


def test_a_policy_that_ignores_pictures_reads_exactly_nothing_of_them() -> None:
    policy = Policy(copies(lambda pictures, texts, at: texts[0]), WORDS)
    readings = measure(policy, certain(policy, range(6), turns=2))
    image, text, both = three(readings)
    assert image == pytest.approx(0.0, abs=1e-12)
    assert text == both == pytest.approx(GAP)
    for scope in ("image", "image_newest", "image_all"):
        assert value(readings, f"information/{scope}/mi") == pytest.approx(0.0, abs=1e-12)
        assert value(readings, f"retrieval/{scope}/accuracy") == pytest.approx(1 / readings_columns(readings, scope))
        assert value(readings, f"retrieval/{scope}/p_value") == 1.0
    assert value(readings, "grounding/image_share") == pytest.approx(0.0, abs=1e-12)


def readings_columns(readings: dict[str, Metric], scope: str) -> int:
    return round(1 / value(readings, f"retrieval/{scope}/chance"))


def test_a_policy_that_copies_the_picture_reaches_the_ceiling() -> None:
    policy = Policy(copies(lambda pictures, texts, at: pictures[-1]), WORDS)
    readings = measure(policy, certain(policy, range(6), turns=2))
    for scope in ("image", "image_newest", "image_all"):
        ceiling = value(readings, f"information/{scope}/mi_ceiling")
        assert ceiling == pytest.approx(math.log(6), abs=0.1)  # later turns: drawn, so not equally many of each
        assert value(readings, f"information/{scope}/mi") == pytest.approx(ceiling, abs=0.01)
        assert value(readings, f"retrieval/{scope}/accuracy") == 1.0
    assert three(readings)[1] == pytest.approx(0.0, abs=1e-12)
    assert value(readings, "grounding/image_share") == pytest.approx(1.0)


def test_picture_and_text_each_a_part() -> None:
    policy = Policy(copies(lambda pictures, texts, at: pictures[0] if at == 0 else texts[0]), WORDS, length=2)
    readings = measure(policy, certain(policy, range(6)))
    assert three(readings) == pytest.approx((GAP, GAP, 2 * GAP))
    share = readings["grounding/image_share"]
    assert (share.value, share.low, share.high) == pytest.approx((0.5, 0.5, 0.5))


def test_where_either_suffices_each_alone_moves_little() -> None:
    """Told the same twice, and torn where the two differ: a policy's chances add to 1, so log 2 is the least."""

    def chance(pictures: Any, texts: Any, place: int, word: int) -> float:
        meant = {pictures[0], texts[0]}
        return (1 - (WORDS - len(meant)) * EPS) / len(meant) if word in meant else EPS

    policy = Policy(chance, WORDS)
    image, text, both = three(measure(policy, certain(policy, range(6))))
    assert image == text == pytest.approx(math.log(2), abs=0.01)
    assert both == pytest.approx(GAP)


def test_the_newest_picture_and_all_of_them_tell_memory_from_sight() -> None:
    remembers = Policy(copies(lambda pictures, texts, at: pictures[0]), WORDS)
    readings = measure(remembers, certain(remembers, range(6), text=0, turns=2))
    assert value(readings, "information/image_newest/mi") == pytest.approx(0.0, abs=1e-12)
    assert value(readings, "information/image_all/gap") == pytest.approx(GAP)
    sees = Policy(copies(lambda pictures, texts, at: pictures[-1]), WORDS)
    readings = measure(sees, certain(sees, range(6), text=0, turns=2))
    assert value(readings, "information/image_newest/gap") == pytest.approx(GAP)
    assert value(readings, "information/image_all/gap") == pytest.approx(GAP)


def test_only_pictures_of_equally_many_tokens_are_exchanged_and_that_is_said() -> None:
    policy = Policy(copies(lambda pictures, texts, at: pictures[0]), WORDS)
    rolled = groups(policy, [(number, number) for number in range(6)], tokens=(4, 4, 9, 4, 9, 4), turns=2)
    readings = measure(policy, rolled)
    assert value(readings, "information/image/mi_ceiling") == pytest.approx(math.log(4))
    left_out = "8 thoughts are left out: their pictures have other numbers of tokens"
    assert readings["information/image/mi_ceiling"].why == left_out
    assert readings["information/image_all/mi_ceiling"].why == left_out
    assert readings["information/first_turn/mi_ceiling"].why == ""


def test_equal_pictures_share_a_column_and_one_picture_has_nothing_to_exchange() -> None:
    policy = Policy(copies(lambda pictures, texts, at: pictures[0]), WORDS)
    twins = measure(policy, groups(policy, [(number // 2, number) for number in range(8)]))
    assert value(twins, "information/image/mi_ceiling") == pytest.approx(math.log(4))
    one = measure(policy, groups(policy, [(3, number) for number in range(4)], turns=2))
    for scope in ("image", "image_newest", "image_all"):
        assert one[f"information/{scope}/mi"].why == "all these prompts show the same picture"
    assert one["grounding/image_share"].value is None
    assert one["grounding/image_share"].why == "all these prompts show the same picture"


def test_the_share_is_missing_where_nothing_is_read() -> None:
    blind = Policy(lambda pictures, texts, at, word: 1 / WORDS, WORDS)
    found = measure(blind, groups(blind, [(number, number) for number in range(6)]))["grounding/image_share"]
    assert (found.value, found.why) == (None, "the gap of first turns is not clearly above 0")


def test_one_turn_has_no_later_pictures() -> None:
    policy = Policy(copies(lambda pictures, texts, at: pictures[0]), WORDS)
    readings = measure(policy, groups(policy, [(number, 0) for number in range(6)]))
    for scope in ("image_newest", "image_all"):
        assert readings[f"information/{scope}/gap"].why == "no episode has a second turn with a thought"


def test_text_alone_is_measured_as_ever_and_so_are_cheap_measurements() -> None:
    policy = Policy(copies(lambda pictures, texts, at: texts[0]), WORDS)
    plain = groups(policy, [(None, number) for number in range(6)], turns=2)
    assert measure(policy, plain) == measure(policy, plain, image=False)
    seen = groups(policy, [(number, number) for number in range(6)], turns=2)
    assert {name.split("/")[1] for name in measure(policy, seen, step=4) if name.startswith("information/")} == {
        "first_turn",
        "first_turn_closed",
    }


def test_every_row_reads_its_own_context_in_its_own_column() -> None:
    policy = Policy(copies(lambda pictures, texts, at: pictures[0]), WORDS)
    rolled = groups(policy, [(number, number) for number in range(6)], turns=3)
    chosen = first_turn_pictures(rolled, None, None, 12, 4)
    assert len(chosen.rows) == 12
    assert {one.pictures for one in chosen.rows} == {picture(number) for number in range(4)}
    exchanges = [chosen.exchange_pictures(), chosen.exchange_texts()]
    exchanges += later_pictures(rolled, stream(0, "later"), 16, 8)
    for exchanged in exchanges:
        for row, one in enumerate(exchanged.rows_M):
            assert exchanged.context(row, exchanged.own_M[row]) == one.context
            assert len({exchanged.context(row, column) for column in range(exchanged.columns)}) == exchanged.columns
    newest, whole = exchanges[2:]
    assert newest.context(0, 1)[: len(newest.rows_M[0].history)] == newest.rows_M[0].history
    number = int(newest.rows_M[0].task.removeprefix("lake-"), 16)
    assert newest.rows_M[0].history[: len(shown(0, 0))] == shown(number, number)
    assert whole.rows_M[0].history == ()


@pytest.mark.parametrize("share", [0.01, 0.1, 0.3, 1.0, 5.0])
def test_what_it_says_it_read_is_what_went_through_the_scorer(share: float) -> None:
    policy = Policy(copies(lambda pictures, texts, at: pictures[0] if at else texts[0]), WORDS, length=2)
    rolled = groups(policy, [(number, number) for number in range(12)], turns=2)
    policy.read = 0
    readings = measure(policy, rolled, share=share)
    assert readings["tokens/diagnose"].value == policy.read
    if share == 0.01:
        for scope in SCOPES:
            assert readings[f"information/{scope}/mi"].why.startswith("not measured in this step: the share of 0.01")
        assert readings["grounding/image_share"].why.startswith("not measured in this step")
    if share == 5.0:
        assert all(readings[f"information/{scope}/mi"].value is not None for scope in SCOPES)


def test_a_resumed_diagnostician_reads_what_the_uninterrupted_one_did() -> None:
    policy = Policy(copies(lambda pictures, texts, at: pictures[0]), WORDS)
    rolled = groups(policy, [(number, number) for number in range(6)], turns=2)
    verdicts = [Verdict(1.0, "kept", 0.0)] * 6

    def fresh() -> Diagnostician:
        return diagnostician(policy, every=1, full_every=2)

    whole, first, second = fresh(), fresh(), fresh()
    expected = [whole.measure(step, rolled, verdicts, "outcome").metrics for step in range(6)]
    for step in range(3):
        first.measure(step, rolled, verdicts, "outcome")
    second.load_state(json.loads(json.dumps(first.state())))
    assert [second.measure(step, rolled, verdicts, "outcome").metrics for step in (3, 4, 5)] == expected[3:]
