"""The stories of generated word problems, as a table: to add a kind of problem, add its lines.

A sentence and its operation agree for all values of the blanks. A test reads the sentences of every kind with its own
reader.

Blanks: `{name}` and `{other}` are people, `{they}` / `{They}` the first one's pronoun, `{last}` the person whose number
is carried on and `{next}` the one it is carried on to. `{things}`, `{item}`, `{plants}` are bought, counted or grown.
`{a}` and `{b}` are the opening's two numbers, `{n}` the number of a later step.

In the table, a word without an indent is a kind. `open`, `then` and `end` are moves, with their operation and their
wordings, which `|` parts. `ask` are the questions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, cast

Operation = Literal["+", "-", "*", "/", "from", "with-first"]
"""What a step does with the number so far: `from` takes it away from a new number, `with-first` adds the opening's
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

_TABLE = """
collecting
    open + {name} has {a} {things} and gets {b} more from {other}.
    open + {name} finds {a} {things} in the morning and {b} {things} in the afternoon.
    open - {name} has {a} {things} and loses {b} of them.
    open - {name} has {a} {things} and gives {b} of them to {other}.
    then + Then {they} gets {n} more. | {other} brings {name} {n} more.
    then - Then {they} gives away {n} of them. | Then {they} drops {n} of them.
    ask How many {things} does {name} have now? | How many {things} has {name} got in the end?
shopping
    open * {name} buys {a} {things} for {b} dollars each. | {name} takes {a} {things} at {b} dollars apiece.
    then + {They} also buys a {item} for {n} dollars. | A {item} for {n} dollars comes on top.
    then - A coupon takes {n} dollars off. | The shop takes {n} dollars off the bill.
    ask How many dollars does {name} pay? | How many dollars is that in all?
    end from {name} pays with {n} dollars. How many dollars does {they} get back?
sharing
    open / {name} shares {a} {things} equally among {b} children. |
        {name} deals {a} {things} out evenly to {b} children.
    then + Then each child gets {n} more. | Each child already had {n} before.
    then - Then each child loses {n} of them. | Each child gives {n} of them back.
    ask How many {things} does each child have now? | How many {things} are left for each child?
ages
    open + {name} is {a} years old. {other} is {b} years older.
    open - {name} is {a} years old. {other} is {b} years younger.
    open * {name} is {a} years old. {other} is {b} times as old.
    then + {next} is {n} years older than {last}.
    then - {next} is {n} years younger than {last}.
    ask How old is {last}?
    end + How old will {last} be in {n} years?
    end - How old was {last} {n} years ago?
    end with-first How old are {name} and {last} together?
travel
    open * A train goes {a} miles an hour for {b} hours. |
        {name} cycles {a} miles a day for {b} days. |
        A ship sails {a} miles a day for {b} days.
    then + Another {n} miles follow. | After a rest it is {n} miles more.
    ask How many miles is that in all?
    end from The whole way is {n} miles. How many miles are left?
packing
    open * {name} fills {a} boxes with {b} {things} each. | {name} has {a} bags with {b} {things} in each.
    then - {They} takes {n} {things} out. | {They} sells {n} of the {things}.
    then + {They} puts {n} more {things} in. | {other} adds {n} {things}.
    ask How many {things} are there now? | How many {things} has {name} then?
    end / {They} packs all of them again, {n} to a tin. How many tins are needed?
comparing
    open * {name} has {a} {things}. {other} has {b} times as many.
    open + {name} has {a} {things}. {other} has {b} more.
    open - {name} has {a} {things}. {other} has {b} fewer.
    then + {next} has {n} more than {last}.
    then - {next} has {n} fewer than {last}.
    then * {next} has {n} times as many as {last}.
    ask How many {things} does {last} have?
    end with-first How many {things} do {name} and {last} have together?
wages
    open * {name} earns {a} dollars an hour and works {b} hours. | {name} mows {a} lawns for {b} dollars each.
    then - {They} spends {n} dollars on a {item}. | {They} lends {other} {n} dollars.
    then + {other} gives {name} {n} dollars. | {They} finds {n} dollars on the way home.
    ask How many dollars does {name} have then?
    end from A {item} costs {n} dollars. How many dollars does {name} still need?
reading
    open * {name} reads {a} pages a day for {b} days. | For {a} evenings {name} reads {b} pages an evening.
    then + On Sunday {they} reads {n} more. | In the bus {they} reads another {n}.
    ask How many pages has {name} read?
    end from The book has {n} pages. How many are left?
bus
    open - A bus carries {a} people, and {b} of them get off.
    open + A bus carries {a} people, and {b} more get on.
    then + At the next stop {n} get on.
    then - At the next stop {n} get off.
    ask How many people are on the bus now?
garden
    open * A garden has {a} rows of {b} {plants}. | {name} plants {a} rows with {b} {plants} in each.
    then - Snails eat {n} of them. | {name} picks {n} of them.
    then + {name} plants {n} more.
    ask How many {plants} are in the garden now?
    end / {name} ties all of them into bunches of {n}. How many bunches are there?
prices
    open / For {a} dollars {name} gets {b} {things}, all of one price. | {a} dollars buy {b} equal {things}.
    ask How many dollars does one of them cost?
    end * How many dollars do {n} of them cost?
"""


def _stories() -> Iterator[Story]:
    for text in re.split(r"\n(?=\w)", _TABLE.strip()):
        kind, *lines = re.sub(r"\|\s+", "| ", text).splitlines()
        moves: dict[str, list[Move]] = {"open": [], "then": [], "end": []}
        questions: tuple[str, ...] = ()
        for role, _, rest in (line.strip().partition(" ") for line in lines):
            if role == "ask":
                questions = tuple(rest.split(" | "))
            else:
                operation, _, wordings = rest.partition(" ")
                moves[role].append(Move(cast(Operation, operation), tuple(wordings.split(" | "))))
        yield Story(kind, tuple(moves["open"]), tuple(moves["then"]), questions, tuple(moves["end"]))


STORIES = tuple(_stories())
