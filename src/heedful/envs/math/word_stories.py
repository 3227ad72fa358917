"""The stories of generated word problems, as a table: to add a kind of problem, add a `Story`.

A sentence and its operation agree for all values of the blanks. A test reads the sentences of every kind with its own
reader.

Blanks: `{name}` and `{other}` are people, `{they}` / `{They}` the first one's pronoun, `{last}` the person whose number
is carried on and `{next}` the one it is carried on to. `{things}`, `{item}`, `{plants}` are bought, counted or grown.
`{a}` and `{b}` are the opening's two numbers, `{n}` the number of a later step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Operation = Literal["+", "-", "*", "/", "from", "with first"]
"""What a step does with the number so far: `from` takes it away from a new number, `with first` adds the opening's
first number, which the sentence then need not repeat."""


@dataclass(frozen=True, slots=True)
class Move:
    """One step of a story: an operation, and the ways to say it."""

    operation: Operation
    wordings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Story:
    """One kind of problem: an opening, any number of events, and what is asked."""

    kind: str
    openings: tuple[Move, ...]
    """The first step, from `{a}` and `{b}`."""
    events: tuple[Move, ...]
    """Further steps. None for a story that ends with its opening or an end."""
    questions: tuple[str, ...]
    """The question if the last step needs no words."""
    ends: tuple[Move, ...] = ()
    """Last steps that bring their own question."""


NAMES = (
    *(("Ann", "she"), ("Ben", "he"), ("Clara", "she"), ("David", "he"), ("Emma", "she"), ("Felix", "he")),
    *(("Grace", "she"), ("Hugo", "he"), ("Ida", "she"), ("Jonas", "he"), ("Kim", "she"), ("Leo", "he")),
    *(("Maya", "she"), ("Noah", "he"), ("Olga", "she"), ("Paul", "he")),
)
"""First names and their pronouns."""

THINGS = (
    *("apples", "pears", "marbles", "stickers", "pencils", "cookies", "stamps", "shells", "buttons", "cards", "beads"),
    *("coins", "nuts", "plums", "stones", "tickets"),
)
ITEMS = ("book", "cap", "kite", "lamp", "ball", "scarf", "drum", "mug")
PLANTS = ("roses", "tulips", "carrots", "lilies", "beans", "herbs")

STORIES = (
    Story(
        "collecting",
        openings=(
            Move("+", ("{name} has {a} {things} and gets {b} more from {other}.",)),
            Move("+", ("{name} finds {a} {things} in the morning and {b} {things} in the afternoon.",)),
            Move("-", ("{name} has {a} {things} and loses {b} of them.",)),
            Move("-", ("{name} has {a} {things} and gives {b} of them to {other}.",)),
        ),
        events=(
            Move("+", ("Then {they} gets {n} more.", "{other} brings {name} {n} more.")),
            Move("-", ("Then {they} gives away {n} of them.", "Then {they} drops {n} of them.")),
        ),
        questions=("How many {things} does {name} have now?", "How many {things} has {name} got in the end?"),
    ),
    Story(
        "shopping",
        openings=(
            Move(
                "*",
                ("{name} buys {a} {things} for {b} dollars each.", "{name} takes {a} {things} at {b} dollars apiece."),
            ),
        ),
        events=(
            Move("+", ("{They} also buys a {item} for {n} dollars.", "A {item} for {n} dollars comes on top.")),
            Move("-", ("A coupon takes {n} dollars off.", "The shop takes {n} dollars off the bill.")),
        ),
        questions=("How many dollars does {name} pay?", "How many dollars is that in all?"),
        ends=(Move("from", ("{name} pays with {n} dollars. How many dollars does {they} get back?",)),),
    ),
    Story(
        "sharing",
        openings=(
            Move(
                "/",
                (
                    "{name} shares {a} {things} equally among {b} children.",
                    "{name} deals {a} {things} out evenly to {b} children.",
                ),
            ),
        ),
        events=(
            Move("+", ("Then each child gets {n} more.", "Each child already had {n} before.")),
            Move("-", ("Then each child loses {n} of them.", "Each child gives {n} of them back.")),
        ),
        questions=("How many {things} does each child have now?", "How many {things} are left for each child?"),
    ),
    Story(
        "ages",
        openings=(
            Move("+", ("{name} is {a} years old. {other} is {b} years older.",)),
            Move("-", ("{name} is {a} years old. {other} is {b} years younger.",)),
            Move("*", ("{name} is {a} years old. {other} is {b} times as old.",)),
        ),
        events=(
            Move("+", ("{next} is {n} years older than {last}.",)),
            Move("-", ("{next} is {n} years younger than {last}.",)),
        ),
        questions=("How old is {last}?",),
        ends=(
            Move("+", ("How old will {last} be in {n} years?",)),
            Move("-", ("How old was {last} {n} years ago?",)),
            Move("with first", ("How old are {name} and {last} together?",)),
        ),
    ),
    Story(
        "travel",
        openings=(
            Move(
                "*",
                (
                    "A train goes {a} miles an hour for {b} hours.",
                    "{name} cycles {a} miles a day for {b} days.",
                    "A ship sails {a} miles a day for {b} days.",
                ),
            ),
        ),
        events=(Move("+", ("Another {n} miles follow.", "After a rest it is {n} miles more.")),),
        questions=("How many miles is that in all?",),
        ends=(Move("from", ("The whole way is {n} miles. How many miles are left?",)),),
    ),
    Story(
        "packing",
        openings=(
            Move(
                "*",
                (
                    "{name} fills {a} boxes with {b} {things} each.",
                    "{name} has {a} bags with {b} {things} in each.",
                ),
            ),
        ),
        events=(
            Move("-", ("{They} takes {n} {things} out.", "{They} sells {n} of the {things}.")),
            Move("+", ("{They} puts {n} more {things} in.", "{other} adds {n} {things}.")),
        ),
        questions=("How many {things} are there now?", "How many {things} has {name} then?"),
        ends=(Move("/", ("{They} packs all of them again, {n} to a tin. How many tins are needed?",)),),
    ),
    Story(
        "comparing",
        openings=(
            Move("*", ("{name} has {a} {things}. {other} has {b} times as many.",)),
            Move("+", ("{name} has {a} {things}. {other} has {b} more.",)),
            Move("-", ("{name} has {a} {things}. {other} has {b} fewer.",)),
        ),
        events=(
            Move("+", ("{next} has {n} more than {last}.",)),
            Move("-", ("{next} has {n} fewer than {last}.",)),
            Move("*", ("{next} has {n} times as many as {last}.",)),
        ),
        questions=("How many {things} does {last} have?",),
        ends=(Move("with first", ("How many {things} do {name} and {last} have together?",)),),
    ),
    Story(
        "wages",
        openings=(
            Move(
                "*",
                (
                    "{name} earns {a} dollars an hour and works {b} hours.",
                    "{name} mows {a} lawns for {b} dollars each.",
                ),
            ),
        ),
        events=(
            Move("-", ("{They} spends {n} dollars on a {item}.", "{They} lends {other} {n} dollars.")),
            Move("+", ("{other} gives {name} {n} dollars.", "{They} finds {n} dollars on the way home.")),
        ),
        questions=("How many dollars does {name} have then?",),
        ends=(Move("from", ("A {item} costs {n} dollars. How many dollars does {name} still need?",)),),
    ),
    Story(
        "reading",
        openings=(
            Move(
                "*",
                ("{name} reads {a} pages a day for {b} days.", "For {a} evenings {name} reads {b} pages an evening."),
            ),
        ),
        events=(Move("+", ("On Sunday {they} reads {n} more.", "In the bus {they} reads another {n}.")),),
        questions=("How many pages has {name} read?",),
        ends=(Move("from", ("The book has {n} pages. How many are left?",)),),
    ),
    Story(
        "bus",
        openings=(
            Move("-", ("A bus carries {a} people, and {b} of them get off.",)),
            Move("+", ("A bus carries {a} people, and {b} more get on.",)),
        ),
        events=(
            Move("+", ("At the next stop {n} get on.",)),
            Move("-", ("At the next stop {n} get off.",)),
        ),
        questions=("How many people are on the bus now?",),
    ),
    Story(
        "garden",
        openings=(
            Move("*", ("A garden has {a} rows of {b} {plants}.", "{name} plants {a} rows with {b} {plants} in each.")),
        ),
        events=(
            Move("-", ("Snails eat {n} of them.", "{name} picks {n} of them.")),
            Move("+", ("{name} plants {n} more.",)),
        ),
        questions=("How many {plants} are in the garden now?",),
        ends=(Move("/", ("{name} ties all of them into bunches of {n}. How many bunches are there?",)),),
    ),
    Story(
        "prices",
        openings=(
            Move(
                "/",
                ("For {a} dollars {name} gets {b} {things}, all of one price.", "{a} dollars buy {b} equal {things}."),
            ),
        ),
        events=(),
        questions=("How many dollars does one of them cost?",),
        ends=(Move("*", ("How many dollars do {n} of them cost?",)),),
    ),
)
