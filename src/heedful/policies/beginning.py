"""The beginning that the contexts of all conversations have in common, such as the rules of an environment.

A sampler computes its KV cache once, and every context continues behind a copy of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from heedful.policies.kv import KVBatch

_WORTH = 16
"""Shorter beginnings are read with their contexts."""
_SAVED = 1 / 3
"""The least share of the tokens of a call that a beginning has to save. Other calls read whole contexts.

Small models have short prompts, so most of their calls stay on one path.
"""

Ids = tuple[int, ...]


@dataclass(slots=True)
class Beginning:
    """The beginning that was found last, and its KV cache as soon as that was computed."""

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
        if length and fits and len(contexts) * length >= _SAVED * total:
            return self.ids
        first, last = min(contexts), max(contexts)  # in the order of ids, all others lie between these two
        common = 0
        for one, other in zip(first, last, strict=False):
            if one != other:
                break
            common += 1
        common = min(common, min(map(len, contexts)) - 1)
        if common < _WORTH or (len(contexts) - 1) * common < _SAVED * total:
            return ()
        self.ids, self.batch = first[:common], None
        return self.ids
