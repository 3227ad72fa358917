"""The states of conversations between their turns, and of the beginning that their contexts have in common."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from heedful.models.forward.shared_prompts import SAVED, WORTH, common_beginning
from heedful.policies.kv import KVBatch, Place, by_batch, gather

Ids = tuple[int, ...]


class KVStore:
    """The row of each conversation after its last reply, and the ids that were read in it.

    At least half of the rows in the store belong to open conversations, however few of them each call answers.
    """

    def __init__(self) -> None:
        self._rows: dict[str, tuple[Ids, Place]] = {}
        self.beginning = Beginning()

    @property
    def rows(self) -> int:
        """Rows in memory, including rows of conversations that have ended."""
        return sum(len(batch.lengths_B) for batch, _ in by_batch([place for _, place in self._rows.values()]))

    def take(self, key: str, context: Ids) -> tuple[Ids, Place] | None:
        """Remove the row of a conversation. `None` if it holds no beginning of `context`, or all but one id of it."""
        row = self._rows.pop(key, None)
        return row if row and len(row[0]) + 1 < len(context) and context[: len(row[0])] == row[0] else None

    def put(self, key: str, ids: Ids, place: Place) -> None:
        """Keep the row of a conversation, in which these ids were read."""
        self._rows[key] = ids, place

    def keep_only(self, keys: Collection[str]) -> None:
        """Free all other conversations. A batch with at most half of its rows left is cut down to these rows."""
        self._rows = {key: row for key, row in self._rows.items() if key in keys}
        left = list(self._rows)
        for batch, members in by_batch([self._rows[key][1] for key in left]):
            if 2 * len(members) <= len(batch.lengths_B):
                cut = gather([self._rows[left[index]][1] for index in members])
                for row, index in enumerate(members):
                    self._rows[left[index]] = self._rows[left[index]][0], (cut, row)


@dataclass(slots=True)
class Beginning:
    """The beginning that the contexts of all conversations have in common, such as the rules of an environment.

    It was found last, and its KV cache is computed once: every context continues behind a copy of it.
    """

    ids: Ids = ()
    batch: KVBatch | None = None
    """One row, which holds `ids`."""

    def of(self, contexts: Sequence[Ids]) -> Ids:
        """The ids with which all these distinct contexts begin, or nothing if that is not worth it.

        A beginning that is known already is taken again where it fits. At least one id of each context is left over.
        """
        total = sum(map(len, contexts))
        length = len(self.ids)
        fits = all(len(context) > length and context[:length] == self.ids for context in contexts)
        if length and fits and len(contexts) * length >= SAVED * total:
            return self.ids
        common = min(common_beginning(contexts), min(map(len, contexts)) - 1)
        if common < WORTH or (len(contexts) - 1) * common < SAVED * total:
            return ()
        self.ids, self.batch = contexts[0][:common], None
        return self.ids
