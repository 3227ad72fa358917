"""The dialects of inference servers: requests are built and answers are read here, and nothing is sent.

Every path and every field name of a server is in this module. What a server answers is checked on arrival. Read from
the sources of vLLM 0.32.0, and run against it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NoReturn, TypeAlias

Tree: TypeAlias = Any
"""A JSON value."""

_IMPOSSIBLE = -9999.0
"""vLLM's log-probability of an impossible token."""
_ROUNDED_UP = 1e-4
"""A log-probability may be above 0 by this much, from rounding."""

_CUT = ("length", "max_tokens", "max_output_tokens", "window", "incomplete")
"""Words in what servers call the end of a reply at its limit of tokens."""
_BROKEN = (
    *("abort", "blocklist", "cancel", "error", "filter", "insufficient", "prohibited", "recitation", "safety"),
    *("sensitive", "spii", "timeout"),
)
"""Words in what servers call the end of a reply that they broke off or held back."""

_OFFERED = re.compile(r"expected one of|\b(supported|allowed|valid) (parameters|fields|arguments)")
"""What begins a list of the fields that a server takes."""

_THOUGHTS = ("reasoning_content", "reasoning", "thinking", "reasoning_details", "thinking_blocks", "thought")
"""Fields in which servers give a thought apart from the text."""
_TEXTS = ("text", "thinking", "think", "reasoning", "summary", "content", "refusal")
"""Fields with the text of a part."""
_THINKS = re.compile("redacted_|think|thought|reasoning")
"""How the types of parts begin that are thoughts."""


@dataclass(frozen=True, slots=True)
class Call:
    """One HTTP request. Without a body it is a GET."""

    path: str
    body: Mapping[str, Tree] | None = None
    plain: bool = False
    """The answer is a sentence instead of JSON."""
    tokens: int = 0
    """Most tokens that the answer may tell of."""
    optional: Mapping[str, Mapping[str, Tree]] = field(default_factory=dict)
    """Fields that may be left out where a server refuses them -> the fields that then take their place."""

    def without(self, refused: Collection[str]) -> Call:
        """The request without those of its optional fields that were refused."""
        body = dict(self.body or {})
        for name, instead in self.optional.items():
            if name in refused:
                del body[name]
                body |= instead
        return replace(self, body=body) if self.optional else self

    def refused_in(self, sentence: str) -> set[str]:
        """The optional fields that a server's refusal names. One that has another in its place: only with that."""
        told = _OFFERED.split(sentence.replace("_", "").lower())[0]
        parts = re.findall(r"\w+", told)
        words = {*parts, *map("".join, pairwise(parts))}  # presence_penalty, presencePenalty or presence penalty
        sent = {name: instead for name, instead in self.optional.items() if name in (self.body or {})}
        named = {name for name in sent if words.issuperset(each.replace("_", "") for each in (name, *sent[name]))}
        return named or {name for name in sent if name.endswith("penalty") and words & {"penalty", "penalties"}}


@dataclass(frozen=True, slots=True)
class Draw:
    """All that decides one reply, besides the weights. The same draw from the same weights gives the same reply."""

    temperature: float
    greedy: bool
    most: int
    """Most tokens of the reply."""
    seed: int
    stop_ids: tuple[int, ...] = ()
    """The ids that end the reply. They are its last id."""
    salt: str = ""
    """Entries of a prefix cache are shared only under the same salt. vLLM takes at most 128 characters, and none of
    `@`, `/` and a backslash."""

    @property
    def sent_temperature(self) -> float:
        """0 is the likeliest token, whose log-probability servers report at temperature 1."""
        return 0.0 if self.greedy else self.temperature


@dataclass(frozen=True, slots=True)
class Usage:
    """What the server says of one request: its tokens, and who answered. `None` or empty: it did not say."""

    prompt: int | None = None
    sampled: int | None = None
    cached: int | None = None
    """Tokens of the prompt that were found in the server's prefix cache."""
    model: str = ""
    """The name of the model that answered."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """A reply as ids."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    """Under log softmax(logits / temperature), if the server reports processed log-probabilities."""
    versions: tuple[str, ...] = ()
    """The versions of the weights that sampled the reply, in order. Empty if the server does not say."""
    usage: Usage = Usage()


@dataclass(frozen=True, slots=True)
class Written:
    """A reply as text alone."""

    text: str
    thought: str
    """The thought that the server gives apart from the text. Empty if it is in the text, or not given."""
    cut: bool
    """The reply ended at its limit of tokens."""
    usage: Usage = Usage()


class ForeignAnswer(ValueError):
    """An answer in another form than the dialect's."""


class OtherWeights(ValueError):
    """A reply that was sampled by other weights than the ones asked for."""


def _sampling(draw: Draw) -> dict[str, Tree]:
    """The sampling fields that both of vLLM's endpoints name alike. All are sent: omitted ones come from a file of the
    model, where they may be a top-k or a penalty."""
    return {
        "temperature": draw.sent_temperature,
        "top_p": 1.0,
        "top_k": 0,
        "min_p": 0.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "repetition_penalty": 1.0,
        "n": 1,
        "seed": draw.seed % 2**31,
        "max_tokens": draw.most,
        "stop_token_ids": list(draw.stop_ids),
        "ignore_eos": True,
        "logprobs": 0,
    }


class Vllm:
    """vLLM's `/inference/v1/generate`: ids in, ids out, with the version of the weights. Needs `--enable-scale-out`.

    What is read raises ForeignAnswer.
    """

    def draw(self, ids: Sequence[int], draw: Draw, model: str) -> Call:
        return self._call(ids, draw, model, {})

    def drawn(self, tree: Tree, most: int) -> Drawn:
        choice = _choice(tree)
        ids, entries = _ids(choice, most), _rows(choice, "logprobs", "content")
        if [given(entry, "token_id") for entry in entries] != list(ids):
            _foreign(f"logprobs.content with one entry for each of the {len(ids)} sampled ids", entries)
        versions = (given(span, "version") for span in _rows(choice, "weight_versions"))
        logprobs = _logprobs(given(entry, "logprob") for entry in entries)
        return Drawn(ids, logprobs, tuple(str(version) for version in versions if version), _usage(tree))

    def score(self, ids: Sequence[int], model: str, temperature: float = 1.0, salt: str = "") -> Call:
        """Log-probabilities of `ids`, each given the ids before it, and one token sampled after them."""
        return self._call(ids, Draw(temperature, False, 1, 0, salt=salt), model, {"prompt_logprobs": 0})

    def scored(self, tree: Tree, ids: Sequence[int]) -> tuple[float, ...]:
        """Under log softmax(logits), whatever the temperature, for all ids but the first."""
        return _scored(_rows(tree, "prompt_logprobs"), ids)

    def _call(self, ids: Sequence[int], draw: Draw, model: str, more: Mapping[str, Tree]) -> Call:
        sampling = _sampling(draw) | {"detokenize": False, **more}
        body = {"model": model, "token_ids": list(ids), "sampling_params": sampling} | _salted(draw)
        return Call("/inference/v1/generate", body, tokens=len(ids) + draw.most)


class OpenAITokens:
    """`/v1/completions` with ids as prompt, and vLLM's extensions that give ids back. Needs no flag of vLLM.

    See `Vllm`.
    """

    def draw(self, ids: Sequence[int], draw: Draw, model: str) -> Call:
        return self._call(ids, draw, model, {})

    def drawn(self, tree: Tree, most: int) -> Drawn:
        choice = _choice(tree)
        if choice.get("token_ids") is None:
            _foreign(
                "ids (token_ids) in an answer of /v1/completions",
                None,
                "none: this server returns text alone. Leave the tokenizer out, so that text is evaluated",
            )
        ids, values = _ids(choice, most), _rows(choice, "logprobs", "token_logprobs")
        if len(values) != len(ids):
            _foreign(f"logprobs.token_logprobs for each of the {len(ids)} sampled ids", values)
        return Drawn(ids, _logprobs(values), (), _usage(tree))

    def score(self, ids: Sequence[int], model: str, temperature: float = 1.0, salt: str = "") -> Call:
        return self._call(ids, Draw(temperature, False, 1, 0, salt=salt), model, {"prompt_logprobs": 0})

    def scored(self, tree: Tree, ids: Sequence[int]) -> tuple[float, ...]:
        return _scored(_rows(_choice(tree), "prompt_logprobs"), ids)

    def _call(self, ids: Sequence[int], draw: Draw, model: str, more: Mapping[str, Tree]) -> Call:
        body = {"model": model, "prompt": list(ids), "return_token_ids": True, **_sampling(draw), **more}
        return Call("/v1/completions", body | _salted(draw), tokens=len(ids) + draw.most)


TokenDialect: TypeAlias = Vllm | OpenAITokens
"""A dialect in which ids go out and come back."""


class OpenAIText:
    """`/v1/chat/completions`, which every compatible server has: messages in, text out. For evaluation alone."""

    def draw(self, messages: Sequence[tuple[str, str]], draw: Draw, model: str) -> Call:
        """`messages`: (role, text) pairs. Only fields of OpenAI's own API are sent.

        Those that say no more than a server does without them are optional, and the seed.
        """
        neutral = {"top_p": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0, "seed": draw.seed % 2**31}
        temperature = {"temperature": draw.sent_temperature}
        optional: dict[str, Mapping[str, Tree]] = {name: {} for name in neutral}
        if draw.sent_temperature == 1:
            optional["temperature"] = {}
        optional["max_tokens"] = {"max_completion_tokens": draw.most}
        body = {
            "model": model,
            "messages": [{"role": role, "content": text} for role, text in messages],
            **temperature,
            **neutral,
            "max_tokens": draw.most,
        }
        return Call("/v1/chat/completions", body, tokens=draw.most, optional=optional)

    def written(self, tree: Tree) -> Written:
        """Raises ForeignAnswer."""
        choice = _choice(tree)
        message = choice.get("message")
        if not isinstance(message, dict) or not isinstance(message.get("content"), str | list | None):
            _foreign("a message with a text, or with parts, as its content", message)
        content = message.get("content")
        parts = content if isinstance(content, list) else [content]
        thoughts = [part for part in parts if _THINKS.match(str(given(part, "type"))) or given(part, "thought") is True]
        apart = [found for name in _THOUGHTS if (found := _text_in(message.get(name)))] or [_text_in(thoughts)]
        text = _text_in([part for part in parts if part not in thoughts]) or _text_in(message.get("refusal"))
        reason = str(choice.get("finish_reason")).lower()
        return Written(text, apart[0], any(word in reason for word in _CUT), _usage(tree))


MODELS = Call("/v1/models")
HEALTH = Call("/health")
VERSION = Call("/version")
SERVER_INFO = Call("/server_info?config_format=json")
WEIGHT_INFO = Call("/weight_info")


def _salted(draw: Draw) -> dict[str, str]:
    return {"cache_salt": draw.salt} if draw.salt else {}


def _choice(tree: Tree) -> dict[str, Tree]:
    """The only choice of an answer, which holds a whole reply."""
    choices = _rows(tree, "choices")
    if len(choices) != 1 or not isinstance(choices[0], dict):
        _foreign("an answer with one choice", tree)
    choice: dict[str, Tree] = choices[0]
    reason = str(choice.get("finish_reason"))
    if any(word in reason.lower() for word in _BROKEN):
        _foreign("a whole reply", None, f"one that ended with {reason[:80]!r}")
    return choice


def _text_in(value: Tree) -> str:
    """The text of a content: of a text, of a part, or of a list of both."""
    if isinstance(value, list):
        return "".join(map(_text_in, value))
    if isinstance(value, dict):
        return _text_in(next((value[name] for name in _TEXTS if value.get(name)), ""))
    return value if isinstance(value, str) else ""


def _scored(rows: list[Tree], ids: Sequence[int]) -> tuple[float, ...]:
    if len(rows) != len(ids):
        _foreign(f"prompt_logprobs for {len(ids)} ids", rows)
    return _logprobs(given(row, str(token), "logprob") for token, row in zip(ids[1:], rows[1:], strict=True))


def _usage(tree: Tree) -> Usage:
    paths = (("prompt_tokens",), ("completion_tokens",), ("prompt_tokens_details", "cached_tokens"))
    counts = [given(tree, "usage", *path) for path in paths]
    model = tree.get("model")
    prompt, sampled, cached = (count if _is_count(count) else None for count in counts)
    return Usage(prompt, sampled, cached, model if isinstance(model, str) else "")


def _is_count(value: Tree) -> bool:
    return type(value) is int and value >= 0


def _ids(choice: Tree, most: int) -> tuple[int, ...]:
    ids = _rows(choice, "token_ids")
    if not all(map(_is_count, ids)) or not 1 <= len(ids) <= most:
        _foreign(f"1 to {most} whole numbers as token_ids", choice.get("token_ids"))
    return tuple(ids)


def _logprobs(values: Iterable[Tree]) -> tuple[float, ...]:
    found = []
    for value in values:
        if type(value) not in (int, float) or not _IMPOSSIBLE < value <= _ROUNDED_UP:
            _foreign("log-probabilities of at most 0, of tokens that were possible", value)
        found.append(min(float(value), 0.0))
    return tuple(found)


def given(tree: Tree, *path: str) -> Tree:
    """What lies at the end of a path of names. `None` where the path ends earlier."""
    for name in path:
        tree = tree.get(name) if isinstance(tree, dict) else None
    return tree


def _rows(tree: Tree, *path: str) -> list[Tree]:
    """The list at the end of a path. Empty where there is none."""
    found = given(tree, *path)
    return found if isinstance(found, list) else []


def _foreign(expected: str, found: Tree, said: str = "") -> NoReturn:
    """`said`: what was found, in words."""
    raise ForeignAnswer(f"Expected {expected}, found {said or repr(found)[:80]}.")
