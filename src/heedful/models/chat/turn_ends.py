"""The end of a reply in a chat template: its token, and what other stop ids stand for.

A sampler stops at any id of the model's generation config. The template writes one of them, or several in a row.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class TurnEnds:
    """How a template ends a reply."""

    text: str
    """The text of the end-of-turn token."""
    run: tuple[int, ...]
    """The special tokens directly after a reply. The first one is the end of turn."""
    opens_next: bool
    """Whether the end of turn is also the first token of the next message's header, as `<|user|>` is in GLM-4."""

    @property
    def token(self) -> int:
        """The end-of-turn token."""
        return self.run[0]

    def written(self, sampled: Sequence[int], stop_ids: Collection[int]) -> int:
        """The number of tokens of `run` that a sampled reply already ends with, or has another stop id for.

        A stop id within `run` stands for all tokens up to it. Any other stop id stands for the end of turn, except
        where that token has to open the next message. 0 for a reply that was cut.
        """
        last = sampled[-1] if sampled else None
        if last not in stop_ids:
            return 0
        if last in self.run:
            return self.run.index(last) + 1
        return 0 if self.opens_next else 1


def find_turn_ends(
    glue: str,
    prompt: str,
    question: str,
    encode: Callable[[str], Sequence[int]],
    decode: Callable[[Sequence[int]], str],
    special_ids: Collection[int],
) -> TurnEnds:
    """The ends of a reply, from `glue`: the text from the end of a reply to the reply after `question`.

    `prompt`: the text before a first reply to the same question. `special_ids`: stop ids among them.
    Raises ValueError for a template that does not end a reply with a special token or a stop id.
    """
    ids = tuple(encode(glue))
    length = 0
    while length < len(ids) and ids[length] in special_ids:
        begun = decode(ids[: length + 1])
        if not (begun.strip() and glue.startswith(begun)):
            break
        length += 1
    if not length:
        raise ValueError(
            f"Expected the chat template to end an assistant message with one special token, but after its content "
            f"comes {glue[:40]!r}, which this tokenizer does not begin with a special or stop token. Add the "
            f"template's end-of-turn text to the tokenizer as a special token, or end messages with its eos token."
        )
    text = decode(ids[:1])
    header, _, _ = glue.partition(question)
    before, _, after = prompt.partition(question)
    # Where each message ends with the token, it follows the question, too.
    opens_next = before.endswith(header) and text not in after
    return TurnEnds(text, ids[:length], opens_next)


def named_stop_ids(generation: Any) -> list[int]:
    """`eos_token_id` of a model's generation configuration, which names no id, one or several."""
    named = getattr(generation, "eos_token_id", None)
    return list(named) if isinstance(named, list | tuple) else [] if named is None else [named]
