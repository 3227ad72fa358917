"""A reader of word problems that knows nothing of how they are made: it reads sentences and computes with fractions.

Every sentence must be one it knows, so that a story added later has to be read here as well.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction

Number = Fraction


@dataclass
class Notes:
    """What has been read so far."""

    amount: Number = Fraction(0)
    """The one quantity that most stories are about."""
    people: dict[str, Number] = field(default_factory=dict)
    """What each person has, or how old each is, in stories about several."""
    price: Number = Fraction(0)
    latest: str = ""
    """The person of whom the last sentence spoke."""
    answer: Number | None = None


Reading = Callable[[Notes, list[str]], None]
SENTENCES: list[tuple[re.Pattern[str], Reading]] = []


def says(pattern: str) -> Callable[[Reading], Reading]:
    """Register how a sentence is read; `#` stands for a number, `@` for a name, `~` for a word."""
    for mark, form in (("#", r"(\\d+)"), ("@", r"([A-Z][a-z]+)"), ("~", "[a-z]+")):
        pattern = re.sub(mark, form, pattern)

    def register(reading: Reading) -> Reading:
        SENTENCES.append((re.compile(pattern), reading))
        return reading

    return register


def read_story(text: str) -> Number:
    """The answer to what the last sentence asks."""
    notes = Notes()
    for sentence in re.split(r"(?<=[.?]) ", text):
        found = [(reading, match) for pattern, reading in SENTENCES if (match := pattern.fullmatch(sentence))]
        assert len(found) == 1, f"{len(found)} readings of {sentence!r}"
        reading, match = found[0]
        reading(notes, list(match.groups()))
    assert notes.answer is not None, f"nothing is asked: {text}"
    return notes.answer


def numbers(words: list[str]) -> list[Number]:
    return [Fraction(word) for word in words if word and word.isdigit()]


@says("@ has # ~ and gets # more from @.")
@says("@ finds # ~ in the morning and # ~ in the afternoon.")
@says("A bus carries # people, and # more get on.")
def _sum(notes: Notes, words: list[str]) -> None:
    one, other = numbers(words)
    notes.amount = one + other


@says("@ has # ~ and loses # of them.")
@says("@ has # ~ and gives # of them to @.")
@says("A bus carries # people, and # of them get off.")
def _difference(notes: Notes, words: list[str]) -> None:
    one, other = numbers(words)
    notes.amount = one - other


@says("@ buys # ~ for # dollars each.")
@says("@ takes # ~ at # dollars apiece.")
@says("A train goes # miles an hour for # hours.")
@says("@ cycles # miles a day for # days.")
@says("A ship sails # miles a day for # days.")
@says("@ fills # boxes with # ~ each.")
@says("@ has # bags with # ~ in each.")
@says("@ earns # dollars an hour and works # hours.")
@says("@ mows # lawns for # dollars each.")
@says("@ reads # pages a day for # days.")
@says("For # evenings @ reads # pages an evening.")
@says("A garden has # rows of # ~.")
@says("@ plants # rows with # ~ in each.")
def _product(notes: Notes, words: list[str]) -> None:
    one, other = numbers(words)
    notes.amount = one * other


@says("@ shares # ~ equally among # children.")
@says("@ deals # ~ out evenly to # children.")
def _share(notes: Notes, words: list[str]) -> None:
    things, children = numbers(words)
    notes.amount = things / children


@says("For # dollars @ gets # ~, all of one price.")
@says("# dollars buy # equal ~.")
def _price(notes: Notes, words: list[str]) -> None:
    dollars, things = numbers(words)
    notes.price = dollars / things


@says("Then (?:he|she) gets # more.")
@says("@ brings @ # more.")
@says("(?:He|She) also buys a ~ for # dollars.")
@says("A ~ for # dollars comes on top.")
@says("Then each child gets # more.")
@says("Each child already had # before.")
@says("Another # miles follow.")
@says("After a rest it is # miles more.")
@says("(?:He|She) puts # more ~ in.")
@says("@ adds # ~.")
@says("@ gives @ # dollars.")
@says("(?:He|She) finds # dollars on the way home.")
@says("On Sunday (?:he|she) reads # more.")
@says("In the bus (?:he|she) reads another #.")
@says("At the next stop # get on.")
@says("@ plants # more.")
def _more(notes: Notes, words: list[str]) -> None:
    notes.amount += numbers(words)[0]


@says("Then (?:he|she) gives away # of them.")
@says("Then (?:he|she) drops # of them.")
@says("A coupon takes # dollars off.")
@says("The shop takes # dollars off the bill.")
@says("Then each child loses # of them.")
@says("Each child gives # of them back.")
@says("(?:He|She) takes # ~ out.")
@says("(?:He|She) sells # of the ~.")
@says("(?:He|She) spends # dollars on a ~.")
@says("(?:He|She) lends @ # dollars.")
@says("At the next stop # get off.")
@says("Snails eat # of them.")
@says("@ picks # of them.")
def _less(notes: Notes, words: list[str]) -> None:
    notes.amount -= numbers(words)[0]


@says("@ pays with # dollars.")
@says("The whole way is # miles.")
@says("The book has # pages.")
@says("A ~ costs # dollars.")
def _against(notes: Notes, words: list[str]) -> None:
    notes.amount = numbers(words)[0] - notes.amount


@says("(?:He|She) packs all of them again, # to a tin.")
@says("@ ties all of them into bunches of #.")
def _divided(notes: Notes, words: list[str]) -> None:
    notes.amount /= numbers(words)[0]


@says("@ is # years old.")
@says("@ has # (?!more|fewer)~.")
def _first_person(notes: Notes, words: list[str]) -> None:
    notes.people[words[0]], notes.latest = Fraction(words[1]), words[0]


def _next_person(change: Callable[[Number, Number], Number]) -> Reading:
    def reading(notes: Notes, words: list[str]) -> None:
        than = words[2] if len(words) > 2 else notes.latest
        notes.people[words[0]] = change(notes.people[than], Fraction(words[1]))
        notes.latest = words[0]

    return reading


for _pattern in ("@ is # years older.", "@ is # years older than @.", "@ has # more.", "@ has # more than @."):
    says(_pattern)(_next_person(lambda than, by: than + by))
for _pattern in ("@ is # years younger.", "@ is # years younger than @.", "@ has # fewer.", "@ has # fewer than @."):
    says(_pattern)(_next_person(lambda than, by: than - by))
for _pattern in ("@ is # times as old.", "@ has # times as many.", "@ has # times as many as @."):
    says(_pattern)(_next_person(lambda than, by: than * by))


@says("How many ~ does @ have now\\?")
@says("How many ~ has @ got in the end\\?")
@says("How many dollars does @ pay\\?")
@says("How many (?:dollars|miles) is that in all\\?")
@says("How many dollars does (?:he|she) get back\\?")
@says("How many ~ does each child have now\\?")
@says("How many ~ are left for each child\\?")
@says("How many(?: miles)? are left\\?")
@says("How many ~ are there now\\?")
@says("How many ~ has @ then\\?")
@says("How many tins are needed\\?")
@says("How many dollars does @ have then\\?")
@says("How many dollars does @ still need\\?")
@says("How many pages has @ read\\?")
@says("How many people are on the bus now\\?")
@says("How many ~ are in the garden now\\?")
@says("How many bunches are there\\?")
def _how_many(notes: Notes, words: list[str]) -> None:
    notes.answer = notes.amount


@says("How old is @\\?")
@says("How many ~ does @ have\\?")
def _of_a_person(notes: Notes, words: list[str]) -> None:
    notes.answer = notes.people[words[0]]


@says("How old will @ be in # years\\?")
def _later(notes: Notes, words: list[str]) -> None:
    notes.answer = notes.people[words[0]] + Fraction(words[1])


@says("How old was @ # years ago\\?")
def _earlier(notes: Notes, words: list[str]) -> None:
    notes.answer = notes.people[words[0]] - Fraction(words[1])


@says("How old are @ and @ together\\?")
@says("How many ~ do @ and @ have together\\?")
def _together(notes: Notes, words: list[str]) -> None:
    notes.answer = notes.people[words[0]] + notes.people[words[1]]


@says("How many dollars does one of them cost\\?")
def _one(notes: Notes, words: list[str]) -> None:
    notes.answer = notes.price


@says("How many dollars do # of them cost\\?")
def _several(notes: Notes, words: list[str]) -> None:
    notes.answer = notes.price * Fraction(words[0])
