"""Parsing a sampled reply: its text, and the ranges of thought and answer (or call) in its ids.

Sampled ids are decoded and never tokenised again. The ranges are exact even if a character is split over tokens.
Torch-free.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from itertools import accumulate

from heedful.boundary import settings
from heedful.models.chat.calls import find_call
from heedful.types import Prompt, Reply, Span


@settings
class Tags:
    """The texts that delimit thought and answer in a reply."""

    open: str = "<think>"
    close: str = "</think>"
    answer_open: str = "<answer>"
    answer_close: str = "</answer>"
    force: bool = True
    """Append the opening tag to the generation prompt unless it already ends with it."""
    of_model: bool = True
    """Where all four tags are the usual ones, take those that the model's chat template is known by."""

    def __post_init__(self) -> None:
        texts = (self.open, self.close, self.answer_open, self.answer_close)
        if not all(texts) or any(text != text.strip() for text in texts) or len(set(texts)) < 4:
            raise ValueError(
                f"The four tags must be different, non-empty and without outer whitespace, but they are {texts}. "
                f"Set tags.open, tags.close, tags.answer_open and tags.answer_close accordingly."
            )

    def known_by(self, template: str) -> Tags:
        """These tags, or in the place of the usual ones those of the family that has such a chat template."""
        is_usual = self == Tags(force=self.force)
        known = next((texts for _, mark, texts in FAMILIES if is_usual and mark in template), tuple[str, ...]())
        own = (self.open, self.close, self.answer_open, self.answer_close)
        begin, end, answer, last = (*known, *own[len(known) :])
        return Tags(begin, end, answer, last, self.force, of_model=False)

    @property
    def taught(self) -> frozenset[str]:
        """The tags among these that a family of models was taught."""
        known = {tag for _, _, texts in FAMILIES for tag in texts}
        return frozenset(known & {self.open, self.close, self.answer_open, self.answer_close})

    def opening_of(self, prompt: str) -> str:
        """The opening tag, with the whitespace after it, at the end of a prompt. Empty if the prompt has none."""
        return prompt[prompt.rindex(self.open) :] if prompt.rstrip().endswith(self.open) else ""


_FINAL = "<|channel|>final<|message|>"
FAMILIES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("gpt-oss", _FINAL, ("<|channel|>analysis<|message|>", "<|end|>", _FINAL, "<|return|>")),
    ("Gemma 4", "<|turn>", ("<|channel>thought", "<channel|>")),
    ("Magistral, Ministral 3", "[THINK]", ("[THINK]", "[/THINK]")),
    ("Seed-OSS", "<seed:think>", ("<seed:think>", "</seed:think>")),
    ("Apertus", "<|inner_prefix|>", ("<|inner_prefix|>", "<|inner_suffix|>")),
    ("LongCat", "<longcat_think>", ("<longcat_think>", "</longcat_think>")),
    ("Kimi-VL", "◁think▷", ("◁think▷", "◁/think▷")),
    ("EXAONE Deep", "<thought>", ("<thought>", "</thought>")),
)
"""Family, a text of its chat templates, and the tags of its thoughts, and of its answers where these have tags. Other
families have the usual tags. Read in templates, and in the parsers of vLLM and llama.cpp."""


def unanswered(prompt: Prompt) -> Reply:
    """The reply of a policy that had no room for one: empty and cut."""
    return Reply(prompt, (), "", (), (), Span(0, 0), Span(0, 0), closed=False, cut=True)


class ReplyParser:
    """Parses the replies of one tokenizer.

    `decode`: turns ids into text, with special tokens and spaces. `stop_ids`: every id that ends a reply. `calls`: the
    answer of a reply is its first call of a tool. The text before it is the thought, unless a thought has tags.
    `shown_ends`: the stop ids that are a part of the text, since they also close an answer or a call.
    """

    def __init__(
        self,
        decode: Callable[[Sequence[int]], str],
        tags: Tags,
        stop_ids: Collection[int],
        calls: bool = False,
        shown_ends: Collection[int] = (),
    ) -> None:
        self._decode = decode
        self._tags = tags
        self._calls = calls
        self._stop_ids = frozenset(stop_ids)
        self._shown_ends = frozenset(shown_ends)
        self._pieces: dict[int, str] = {}

    def parse(
        self,
        prompt: Prompt,
        ids: Sequence[int],
        logprobs: Sequence[float],
        entropies: Sequence[float] = (),
        *,
        opening: str,
    ) -> Reply:
        """The reply made of `ids` that were sampled after `prompt`.

        `opening`: the opening tag at the end of the prompt, which the environment gets back. Empty if the policy has to
        sample it. `logprobs` and `entropies`: one value per id, or empty if they are unknown. A token belongs to the
        thought if any of its characters comes before the end of the closing tag. Thought and answer never overlap: a
        token with the end of one and the start of the other counts as thought.
        """
        sampled = tuple(ids)
        cut = not sampled or sampled[-1] not in self._stop_ids
        written = sampled if cut or sampled[-1] in self._shown_ends else sampled[:-1]
        text = self._decode(written)
        thought, answer, closed = self._spans(text, written, len(sampled), bool(opening))
        return Reply(
            prompt=prompt,
            ids=sampled,
            text=opening + text,
            logprobs=tuple(logprobs),
            entropies=tuple(entropies),
            thought=thought,
            answer=answer,
            closed=closed,
            cut=cut,
        )

    def piece(self, token: int) -> str:
        """The text of one token by itself. A token with part of a character gives a replacement mark."""
        piece = self._pieces.get(token)
        if piece is None:
            piece = self._pieces[token] = self._decode([token])
        return piece

    def _spans(self, text: str, written: tuple[int, ...], total: int, opened: bool) -> tuple[Span, Span, bool]:
        """Thought, answer, and whether the thought was closed. `total` includes the end-of-turn token."""
        tags = self._tags
        tokens_up_to = self._locate(text, written)
        begin, searched = 0, 0
        if not opened:
            at = text.find(tags.open)
            call = find_call(text) if self._calls else None
            opened = at >= 0 and not (call is not None and call.start < at)
            searched = at + len(tags.open) if opened else 0
            begin = tokens_up_to(searched) if opened else 0
        close_at = text.find(tags.close, searched) if opened else -1
        if opened and close_at < 0:
            return Span(begin, total), Span(total, total), False
        end = begin
        if opened:
            searched = close_at + len(tags.close)
            end = tokens_up_to(searched)
        thought = Span(begin, end)
        if self._calls:
            return self._call_spans(text, searched, thought, tokens_up_to, opened)
        answer_at = text.find(tags.answer_open, searched)
        if answer_at < 0:
            return thought, Span(end, end), opened
        first = max(end, tokens_up_to(answer_at + 1) - 1)
        close_at = text.find(tags.answer_close, answer_at + len(tags.answer_open))
        last = len(written) if close_at < 0 else tokens_up_to(close_at + len(tags.answer_close))
        return thought, Span(first, last), opened

    def _call_spans(
        self, text: str, searched: int, thought: Span, tokens_up_to: Callable[[int], int], opened: bool
    ) -> tuple[Span, Span, bool]:
        """Thought, call, and whether the thought was ended, by its tag or by the call."""
        call = find_call(text, searched)
        if call is None:
            return thought, Span(thought.end, thought.end), opened
        first = max(thought.end, tokens_up_to(call.start + 1) - 1)
        if not opened:
            thought = Span(0, first if text[: call.start].strip() else 0)
        return thought, Span(first, tokens_up_to(call.end)), opened or len(thought) > 0

    def _locate(self, text: str, ids: tuple[int, ...]) -> Callable[[int], int]:
        """A function that maps a number of characters of `text` to the number of first tokens that contain them.

        If the tokens decoded one by one join to the whole text, their lengths are exact. Otherwise a character is split
        over tokens, or the decoder strips spaces. Then the decoded prefixes are searched by bisection, since a longer
        prefix contains all characters of a shorter one.
        """
        pieces = [self.piece(token) for token in ids]
        ends = list(accumulate(map(len, pieces)))
        if "".join(pieces) == text:
            return lambda characters: bisect_left(ends, characters) + 1

        def tokens_up_to(characters: int) -> int:
            held = text[:characters]
            lengths = range(len(ids) + 1)
            return bisect_left(lengths, True, key=lambda length: self._decode(ids[:length]).startswith(held))

        return tokens_up_to
