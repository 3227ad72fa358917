"""Items of a file of the user: which rows hold one, and what is wrong with the others."""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Generic, TypeVar

from heedful.envs.common.rows import JsonLines, Rows

Item = TypeVar("Item")

_ROWS_NAMED = 5
_HELD = 2048
_HALF_A_PAIR = re.compile("[\ud800-\udfff]")


class Faulty(ValueError):
    """A row that holds no item, and why, as a clause."""


class Filed(Generic[Item]):
    """The items of a file. Each is checked once, when the file is opened, and read again when it is needed.

    Raises ValueError where rows hold none, unless these are to be skipped.

    Args:
        rows: of the file.
        read: the item of a row. What it raises makes the row faulty.
        what: an item, for people, such as `a question with its answer`.
        each: is handed every item when the file is opened.
    """

    def __init__(
        self,
        who: str,
        name: str,
        rows: Rows,
        read: Callable[[Mapping[str, Any]], Item],
        what: str,
        skip_faulty: bool,
        each: Callable[[Item], None] = lambda item: None,
    ) -> None:
        self._rows, self._reader = rows, read
        self._good = array("L")
        faults: list[str] = []
        self.skipped = 0
        for number, row in enumerate(rows):
            try:
                item = self._item(row)
            except Faulty as error:
                self.skipped += 1
                if len(faults) < _ROWS_NAMED:
                    place = f"line {rows.line(number)}" if isinstance(rows, JsonLines) else f"row {number + 1}"
                    faults.append(f"{place}: {error}")
            else:
                self._good.append(number)
                each(item)
        told = "; ".join(faults) + (f" and {self.skipped - len(faults)} more" if self.skipped > len(faults) else "")
        if not self._good:
            raise ValueError(f"{who}: expected {what} in {name}, found none. {told}")
        if faults and not skip_faulty:
            raise ValueError(
                f"{who}: expected {what} in every row of {name}, found {told}. "
                "Correct them, or leave such rows out with --env.skip-faulty true."
            )
        self._held = lru_cache(maxsize=_HELD)(lambda number: self._item(rows[self._good[number]]))

    def __len__(self) -> int:
        return len(self._good)

    def __getitem__(self, number: int) -> Item:
        return self._held(number)

    def __iter__(self) -> Iterator[Item]:
        return (self._item(self._rows[number]) for number in self._good)

    def _item(self, row: Mapping[str, Any]) -> Item:
        try:
            return self._reader(row)
        except Faulty:
            raise
        except KeyError as error:
            raise Faulty(f"it lacks the column {error}") from None
        except (TypeError, AttributeError, IndexError, ValueError, SyntaxError, RecursionError) as error:
            raise Faulty(f"its columns have another form ({type(error).__name__}: {error})") from None


def text_of(value: Any, what: str = "a value") -> str:
    """A text that can be written as UTF-8. Raises Faulty for anything else. `what` was expected."""
    if not isinstance(value, str):
        raise Faulty(f"{what} was expected as text, and there is {type(value).__name__}")
    if _HALF_A_PAIR.search(value):
        raise Faulty(f"{what} holds half of a surrogate pair, which is no text")
    return value
