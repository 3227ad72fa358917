"""Exact match and F1, beside a second implementation that shares no code with the first."""

from __future__ import annotations

import random

import pytest

from heedful_envs.search_qa.scores import exact_match, f1, normalised

PUNCTUATION = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
WORDS = (
    *("the", "a", "an", "The", "A.", "yes", "no", "noanswer", "Yes", "cat", "Cat", "cats", "Jean-Luc", "jeanluc"),
    *("1990", "1,990", "U.S.", "the-end", "...", "“cat”", "é", "naïve", "東京", "a b", "\tcat\n", "ﬁ", "İ", "_", "an."),
)


def is_word_letter(letter: str) -> bool:
    return letter.isalnum() or letter == "_"


def slow_words(text: str) -> list[str]:
    """The words of a text after normalisation, letter by letter and without regular expressions."""
    kept = [letter for letter in text.lower() if letter not in PUNCTUATION]
    words: list[str] = []
    place = 0
    text = "".join(kept)
    out = ""
    while place < len(text):
        for article in ("an", "the", "a"):
            end = place + len(article)
            before = place == 0 or not is_word_letter(text[place - 1])
            after = end >= len(text) or not is_word_letter(text[end])
            if text.startswith(article, place) and before and after:
                out += " "
                place = end
                break
        else:
            out += text[place]
            place += 1
    for letter in out + " ":
        if letter.isspace():
            words.append("")
        else:
            words = words or [""]
            words[-1] += letter
    return [word for word in words if word]


def slow_f1(answer: str, gold: str) -> float:
    said, wanted = slow_words(answer), slow_words(gold)
    for special in ("yes", "no", "noanswer"):
        if (said == [special]) != (wanted == [special]):
            return 0.0
    left, shared = list(wanted), 0
    for word in said:
        if word in left:
            left.remove(word)
            shared += 1
    return 2 * shared / (len(said) + len(wanted)) if shared else 0.0


def random_text(rng: random.Random) -> str:
    if rng.random() < 0.2:
        return "".join(rng.choice("a nthe.,-'Yo\u00a0\u2013sX1") for _ in range(rng.randint(0, 12)))
    return (
        rng.choice(("", " ")).join(("", *rng.choices(WORDS, k=rng.randint(0, 5))))
        if rng.random() < 0.1
        else (" ".join(rng.choices(WORDS, k=rng.randint(0, 5))))
    )


def test_both_implementations_agree_on_2000_random_pairs() -> None:
    rng = random.Random(16)
    matched = partial = 0
    for _ in range(2000):
        answer, golds = random_text(rng), [random_text(rng) for _ in range(rng.randint(1, 3))]
        if rng.random() < 0.2:
            answer = rng.choice(golds).upper()
        exact = any(slow_words(answer) == slow_words(gold) for gold in golds)
        share = max(slow_f1(answer, gold) for gold in golds)
        assert exact_match(answer, golds) == exact, (answer, golds)
        assert f1(answer, golds) == pytest.approx(share, abs=1e-12), (answer, golds)
        matched += exact
        partial += 0 < share < 1
    assert matched > 200
    assert partial > 200


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The Cat!", "cat"),
        ("Jean-Luc", "jeanluc"),
        ("A.", ""),
        ("the-end", "theend"),
        ("The The", ""),
        ("...", ""),
        ("“The” cat", "“ ” cat"),
        ("U.S.", "us"),
        ("x–y", "x–y"),
        ("a-b", "ab"),
        ("東京 タワー", "東京 タワー"),
        ("ＡＢ", "ａｂ"),
        ("theatre and ant", "theatre and ant"),
    ],
)
def test_texts_are_normalised_in_the_order_of_the_script(text: str, words: str) -> None:
    assert normalised(text) == words
    assert " ".join(slow_words(text)) == words


@pytest.mark.parametrize(
    ("answer", "gold", "exact", "share"),
    [
        ("yes", "Yes.", True, 1.0),
        ("yes it is", "yes", False, 0.0),
        ("no", "no answer", False, 0.0),
        ("noanswer", "the answer", False, 0.0),
        ("The Eiffel Tower", "eiffel tower", True, 1.0),
        ("Eiffel", "Eiffel Tower", False, 2 / 3),
        ("tower tower", "tower", False, 2 / 3),
        ("The The", "...", True, 0.0),
        ("", "cat", False, 0.0),
    ],
)
def test_scores_of_pairs_computed_by_hand(answer: str, gold: str, exact: bool, share: float) -> None:
    assert exact_match(answer, [gold]) == exact
    assert f1(answer, [gold]) == pytest.approx(share)


def test_each_score_takes_its_own_best_of_several_golds() -> None:
    assert exact_match("cat", ["dog", "the cat"])
    assert f1("black cat", ["yes", "cat", "a dog"]) == pytest.approx(2 / 3)


def test_eleven_words_that_hold_a_gold_of_two_would_pass_a_threshold_of_three_tenths() -> None:
    """Why F1 is progress here, and no outcome."""
    assert f1("one two three four five six seven eight nine Eiffel Tower", ["Eiffel Tower"]) == pytest.approx(4 / 13)


SAME = [
    ("Spider\u2011Man", "Spider-Man"),
    ("1939\u20131945", "1939-1945"),
    ("1939\u20141945", "1939-1945"),
    ("\u22125", "-5"),
    ("Schro\u0308dinger\u2019s cat", "Schr\u00f6dinger's cat"),
    ("Beyonce\u0301", "Beyonc\u00e9"),
    ("\u201cHeroes\u201d", '"Heroes"'),
    ("\u201eHelden\u201c", '"Helden"'),
    ("\u00abHéros\u00bb", "Héros"),
    ("Hawai\u02bbi", "Hawai'i"),
    ("O\u02bcNeill", "O'Neill"),
    ("5\u2032 7\u2033", "5' 7\""),
    ("Wait\u2026", "wait..."),
    ("New\u00a0York", "New York"),
    ("co\u00adoperation", "cooperation"),
    ("Elm\u200b Street", "Elm Street"),
    ("\ufb01re", "fire"),
    ("\uff21\uff22\uff23\uff0d\uff11", "ABC-1"),
]
DIFFERENT = [
    ("cafe", "caf\u00e9"),
    ("10\u00b2", "102"),
    ("H\u2082O", "H2O"),
    ("1\u20442", "12"),
    ("\u00bd", "12"),
    ("Gro\u00dfe", "Grosse"),
    ("\u0391", "A"),
    ("na\u00efve", "naive"),
    ("\u00f8re", "ore"),
    ("Spider\u00b7Man", "SpiderMan"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_typography_makes_no_answer_wrong_unless_the_published_score_is_wanted(one: str, other: str) -> None:
    for answer, gold in ((one, other), (other, one)):
        assert exact_match(answer, [gold], typography=True)
        assert f1(answer, [gold], typography=True) == 1.0
    plain = one.isascii() or "\u00a0" in one  # a space of its own kind is one in the published scripts, too
    assert exact_match(one, [other]) == plain


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
@pytest.mark.parametrize("typography", [False, True])
def test_other_letters_stay_other_letters(one: str, other: str, typography: bool) -> None:
    assert not exact_match(one, [other], typography)
    assert not exact_match(other, [one], typography)
