"""The binary files of TensorBoard and W&B: records of protocol buffers, read without either package.

Both grow by appending. A record that is not whole yet ends the reading.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

BLOCK = 1 << 15
"""Bytes of a block of a W&B file, which is a LevelDB log."""
HEADER = 7
"""Bytes before the data of a record in a block, and before the first record of a W&B file."""
_WANDB = b":W&B"


def is_event_file(head: bytes) -> bool:
    """Whether a file begins as TensorBoard's event files do, with a record that names their version."""
    return b"brain.Event:" in head[:64]


def is_wandb_file(head: bytes) -> bool:
    return head.startswith(_WANDB)


def event_rows(content: bytes) -> Iterator[tuple[int, str, float]]:
    """Each scalar in the records of an event file, as both generations of writers store them: step, name and value."""
    at = 0
    while at + 12 <= len(content):
        (size,) = struct.unpack_from("<Q", content, at)
        end = at + 12 + size + 4
        if end > len(content):
            return
        event = list(_fields(content[at + 12 : end - 4]))
        step = next((value for number, value in event if number == 2), 0)
        for summary in (value for number, value in event if number == 5):
            for part in (value for number, value in _fields(summary) if number == 1):
                held = dict(_fields(part))
                value = held.get(2, _tensor(held[8]) if 8 in held else None)
                if isinstance(value, bytes) and len(value) == 4:
                    (value,) = struct.unpack("<f", value)
                if isinstance(value, float) and isinstance(held.get(1), bytes):
                    yield step, held[1].decode("utf-8", "replace"), value
        at = end


def _tensor(message: bytes) -> float | None:
    """The number in a tensor of one number: float32 or float64, listed or as raw bytes."""
    held = dict(_fields(message))
    kind, shape = held.get(1), {1: ("<f", 4), 2: ("<d", 8)}
    if kind not in shape:
        return None
    code, size = shape[kind]
    raw = held.get(4) or held.get(5 if kind == 1 else 6)
    return float(struct.unpack(code, raw)[0]) if isinstance(raw, bytes) and len(raw) == size else None


def wandb_rows(content: bytes) -> Iterator[dict[str, str]]:
    """The JSON texts of each row of a `.wandb` file by name."""
    for record in _wandb_records(content):
        for history in (value for number, value in _fields(record) if number == 2 and isinstance(value, bytes)):
            row: dict[str, str] = {}
            for item in (value for number, value in _fields(history) if number == 1):
                names: list[str] = []
                text = None
                for number, value in _fields(item):
                    if number in (1, 2) and value:
                        names.append(value.decode("utf-8", "replace"))
                    elif number == 16:
                        text = value.decode("utf-8", "replace")
                if names and text is not None:
                    row["/".join(dict.fromkeys(names))] = text
            if row:
                yield row


def _wandb_records(content: bytes) -> Iterator[bytes]:
    """The whole records. One that does not fit the rest of its block goes on in the next."""
    at, parts = HEADER, b""
    while at + HEADER <= len(content):
        left = BLOCK - at % BLOCK
        if left < HEADER:
            at += left
            continue
        size, kind = struct.unpack_from("<HB", content, at + 4)
        end = at + HEADER + size
        if kind == 0 or end > len(content):
            return
        data = content[at + HEADER : end]
        parts = data if kind in (1, 2) else parts + data  # whole, first, middle, last
        if kind in (1, 4):
            yield parts
        at = end


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Number and value of each field of a protocol buffer: an int, or bytes. A message that is cut ends early."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, at = _varint(message, at)
            yield number, value
            continue
        if kind == 2:
            size, at = _varint(message, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            return
        if at + size > len(message):
            return
        yield number, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(message):
        byte = message[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            break
    return value, at
