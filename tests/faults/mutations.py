"""Damaged files: a good one with a few of its values or bytes changed. Equal seeds give equal damage."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

DEEP: Any = 0
for _ in range(60):
    DEEP = [DEEP]

ODD: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**63, -(2**63), 10**400, 0.5, -0.0, 1e308, -1e308, 1e-320),
    *(float("nan"), float("inf"), "", " ", "0", "nan", "1e999", "\ud800", "\x00", "\x1b[2J", "\u202e", "x" * 3000),
    *([], {}, [[]], [None], {"": None}, {"type": "grpo"}, ["a", 1, None], DEEP),
)

ODD_BYTES = (
    b"",
    b"\x00",
    b"\xff\xfe",
    b"\n",
    b"{",
    b"[",
    b'"',
    b"\\",
    b"\xed\xa0\x80",
    b"9" * 400,
    b"[" * 2000,
    b"NaN",
)


def damaged_tree(tree: Any, rng: random.Random) -> Any:
    """The tree with one to three of its nodes changed."""
    root = [copy.deepcopy(tree)]
    for _ in range(rng.randint(1, 3)):
        places = list(_places(root))
        holder, key = rng.choice(places)
        how = rng.randrange(5)
        if how == 0 and isinstance(holder, dict):
            del holder[key]
        elif how == 1 and isinstance(holder, dict):
            holder[rng.choice(("", "type", "step", "\ud800", str(key) * 2))] = holder.pop(key)
        elif how == 2 and isinstance(holder, list) and holder is not root:
            holder.insert(key, copy.deepcopy(rng.choice(ODD)))
        elif how == 3:
            other, there = rng.choice(places)
            holder[key] = copy.deepcopy(other[there])
        else:
            holder[key] = copy.deepcopy(rng.choice(ODD))
    return root[0]


def _places(node: Any) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    waiting = [node]
    while waiting:
        holder = waiting.pop()
        keys = list(holder) if isinstance(holder, dict) else range(len(holder))
        for key in keys:
            found.append((holder, key))
            if isinstance(holder[key], dict | list):
                waiting.append(holder[key])
    return found


def damaged_bytes(content: bytes, rng: random.Random) -> bytes:
    """The content with one to four of its stretches changed."""
    changed = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(changed) + 1)
        to = min(len(changed), at + rng.choice((0, 1, 1, 2, 8, 100)))
        how = rng.randrange(4)
        if how == 0:
            changed[at:to] = rng.choice(ODD_BYTES)
        elif how == 1:
            changed[at:to] = bytes(rng.randrange(256) for _ in range(to - at))
        elif how == 2:
            changed[at:to] = changed[at:to] * 2
        else:
            del changed[at : rng.choice((to, to, len(changed)))]
    return bytes(changed)


def damaged_json(content: bytes, rng: random.Random, lines: bool = False) -> bytes:
    """A JSON text, or lines of JSON, with changed values three times out of four, and changed bytes otherwise."""
    if rng.random() < 0.25:
        return damaged_bytes(content, rng)
    if not lines:
        return json.dumps(damaged_tree(json.loads(content), rng)).encode()
    rows = content.splitlines()
    number = rng.randrange(len(rows))
    rows[number] = json.dumps(damaged_tree(json.loads(rows[number]), rng)).encode()
    return b"\n".join(rows) + b"\n"
