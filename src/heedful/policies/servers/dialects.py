"""The dialects of inference servers: requests are built and answers are read here, and nothing is sent.

All functions are pure. Every path and every field name of a server is in this module. What a server answers is checked
on arrival: its kinds, its lengths, and that log-probabilities are numbers of at most 0.

Read from the sources of vLLM 0.32.0, and run against it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn, Protocol, TypeAlias

Tree: TypeAlias = Any
"""A JSON value."""

_IMPOSSIBLE = -9999.0
"""vLLM's log-probability of an impossible token."""

_ROUNDED_UP = 1e-4
"""A log-probability may be above 0 by this much, from rounding."""


@dataclass(frozen=True, slots=True)
class Call:
    """One HTTP request. Without a body it is a GET."""

    path: str
    body: Mapping[str, Tree] | None = None
    plain: bool = False
    """The answer is a sentence instead of JSON."""
    tokens: int = 0
    """Most tokens that the answer may tell of."""

    @property
    def method(self) -> str:
        return "GET" if self.body is None else "POST"


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
    """The reasoning that the server gives apart from the text. Empty if it is in the text, or not given."""
    cut: bool
    """The reply ended at its limit of tokens."""
    usage: Usage = Usage()


class ForeignAnswer(ValueError):
    """An answer in another form than the dialect's."""


class OtherWeights(ValueError):
    """A reply that was sampled by other weights than the ones asked for."""


class TokenDialect(Protocol):
    """A dialect in which ids go out and come back."""

    def draw(self, ids: Sequence[int], draw: Draw, model: str) -> Call: ...

    def drawn(self, tree: Tree, most: int) -> Drawn: ...

    def score(self, ids: Sequence[int], model: str, temperature: float = 1.0, salt: str = "") -> Call:
        """Log-probabilities of `ids`, each given the ids before it, and one token sampled after them."""
        ...

    def scored(self, tree: Tree, ids: Sequence[int]) -> tuple[float, ...]:
        """Under log softmax(logits), whatever the temperature, for all ids but the first."""
        ...


def _common(draw: Draw) -> dict[str, Tree]:
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
    """vLLM's `/inference/v1/generate`: ids in, ids out, with the version of the weights. Needs `--enable-scale-out`."""

    def draw(self, ids: Sequence[int], draw: Draw, model: str) -> Call:
        sampling = _common(draw) | {"detokenize": False}
        return _generate(ids, sampling, model, draw.salt)

    def drawn(self, tree: Tree, most: int) -> Drawn:
        """Raises ForeignAnswer."""
        choice = _choice(tree)
        ids = _ids(choice.get("token_ids"), "token_ids", most)
        entries = _list(given(choice, "logprobs", "content"), "logprobs.content")
        said = tuple(_field(entry, "token_id") for entry in entries)
        if said != ids:
            _foreign(f"a log-probability for each of the {len(ids)} sampled ids", f"{len(said)} for other ids")
        spans = choice.get("weight_versions") or []
        versions = tuple(str(_field(span, "version")) for span in _list(spans, "weight_versions"))
        return Drawn(ids, _logprobs(_field(entry, "logprob") for entry in entries), versions, _usage(tree))

    def score(self, ids: Sequence[int], model: str, temperature: float = 1.0, salt: str = "") -> Call:
        sampling = _common(Draw(temperature, False, 1, 0)) | {"detokenize": False, "prompt_logprobs": 0}
        return _generate(ids, sampling, model, salt)

    def scored(self, tree: Tree, ids: Sequence[int]) -> tuple[float, ...]:
        """Raises ForeignAnswer."""
        return _scored(tree.get("prompt_logprobs") if isinstance(tree, dict) else None, ids)


class OpenAITokens:
    """`/v1/completions` with ids as prompt, and vLLM's extensions that give ids back. Needs no flag of vLLM."""

    def draw(self, ids: Sequence[int], draw: Draw, model: str) -> Call:
        salt = {"cache_salt": draw.salt} if draw.salt else {}
        body = {"model": model, "prompt": list(ids), "return_token_ids": True, **_common(draw), **salt}
        return Call("/v1/completions", body, tokens=len(ids) + draw.most)

    def drawn(self, tree: Tree, most: int) -> Drawn:
        """Raises ForeignAnswer."""
        choice = _choice(tree)
        if choice.get("token_ids") is None:
            _foreign(
                "ids (token_ids) in an answer of /v1/completions",
                "none: this server returns text alone. Leave the tokenizer out, so that text is evaluated",
            )
        ids = _ids(choice["token_ids"], "token_ids", most)
        values = _list(given(choice, "logprobs", "token_logprobs"), "logprobs.token_logprobs")
        if len(values) != len(ids):
            _foreign(f"a log-probability for each of the {len(ids)} sampled ids", str(len(values)))
        return Drawn(ids, _logprobs(values), (), _usage(tree))

    def score(self, ids: Sequence[int], model: str, temperature: float = 1.0, salt: str = "") -> Call:
        call = self.draw(ids, Draw(temperature, False, 1, 0, (), salt), model)
        return replace(call, body={**(call.body or {}), "prompt_logprobs": 0})

    def scored(self, tree: Tree, ids: Sequence[int]) -> tuple[float, ...]:
        """Raises ForeignAnswer."""
        return _scored(_choice(tree).get("prompt_logprobs"), ids)


class OpenAIText:
    """`/v1/chat/completions`, which every compatible server has: messages in, text out. For evaluation alone."""

    def draw(self, messages: Sequence[tuple[str, str]], draw: Draw, model: str) -> Call:
        """`messages`: (role, text) pairs. Only fields of OpenAI's own API are sent."""
        body = {
            "model": model,
            "messages": [{"role": role, "content": text} for role, text in messages],
            "temperature": draw.sent_temperature,
            "top_p": 1.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "n": 1,
            "seed": draw.seed % 2**31,
            "max_tokens": draw.most,
        }
        return Call("/v1/chat/completions", body, tokens=draw.most)

    def written(self, tree: Tree) -> Written:
        """Raises ForeignAnswer."""
        choice = _choice(tree)
        message = choice.get("message")
        if not isinstance(message, dict) or not isinstance(message.get("content"), str | None):
            _foreign("a message with a text as its content", repr(message)[:80])
        thought = message.get("reasoning_content") or message.get("reasoning")
        thought = thought if isinstance(thought, str) else ""
        return Written(message.get("content") or "", thought, choice.get("finish_reason") == "length", _usage(tree))


MODELS = Call("/v1/models")
HEALTH = Call("/health")
VERSION = Call("/version")
SERVER_INFO = Call("/server_info?config_format=json")
WEIGHT_INFO = Call("/weight_info")


def _generate(ids: Sequence[int], sampling: Mapping[str, Tree], model: str, salt: str) -> Call:
    body = {"model": model, "token_ids": list(ids), "sampling_params": sampling}
    salted = body | ({"cache_salt": salt} if salt else {})
    return Call("/inference/v1/generate", salted, tokens=len(ids) + int(sampling["max_tokens"]))


def _choice(tree: Tree) -> dict[str, Tree]:
    """The only choice of an answer."""
    choices = tree.get("choices") if isinstance(tree, dict) else None
    if not isinstance(choices, list) or len(choices) != 1 or not isinstance(choices[0], dict):
        _foreign("an answer with one choice", repr(tree)[:80])
    choice: dict[str, Tree] = choices[0]
    if choice.get("finish_reason") == "abort":
        _foreign("a whole reply", "one that the server aborted")
    return choice


def _scored(entries: Tree, ids: Sequence[int]) -> tuple[float, ...]:
    rows = _list(entries, "prompt_logprobs")
    if len(rows) != len(ids):
        _foreign(f"prompt_logprobs for {len(ids)} ids", str(len(rows)))
    found = []
    for token, row in zip(ids[1:], rows[1:], strict=True):
        if not isinstance(row, dict) or str(token) not in row:
            _foreign(f"the log-probability of the id {token} of the prompt", repr(row)[:80])
        found.append(_field(row[str(token)], "logprob"))
    return _logprobs(found)


def _usage(tree: Tree) -> Usage:
    paths = (("prompt_tokens",), ("completion_tokens",), ("prompt_tokens_details", "cached_tokens"))
    counts = [given(tree, "usage", *path) for path in paths]
    model = tree.get("model")
    prompt, sampled, cached = (count if _is_count(count) else None for count in counts)
    return Usage(prompt, sampled, cached, model if isinstance(model, str) else "")


def _is_count(value: Tree) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _ids(value: Tree, name: str, most: int) -> tuple[int, ...]:
    ids = _list(value, name)
    if not all(map(_is_count, ids)):
        _foreign(f"{name} of whole numbers", repr(ids)[:80])
    if not 1 <= len(ids) <= most:
        _foreign(f"1 to {most} {name}", str(len(ids)))
    return tuple(ids)


def _logprobs(values: Any) -> tuple[float, ...]:
    found = []
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
            _foreign("log-probabilities that are numbers", repr(value)[:80])
        if value > _ROUNDED_UP or value <= _IMPOSSIBLE:
            _foreign("log-probabilities of at most 0 that were possible", repr(value)[:80])
        found.append(min(float(value), 0.0))
    return tuple(found)


def _list(value: Tree, name: str) -> list[Tree]:
    if not isinstance(value, list):
        _foreign(f"a list {name}", repr(value)[:80])
    return list(value)


def given(tree: Tree, *path: str) -> Tree:
    """What lies at the end of a path of names. `None` where the path ends earlier."""
    for name in path:
        tree = tree.get(name) if isinstance(tree, dict) else None
    return tree


def _field(tree: Tree, name: str) -> Tree:
    if not isinstance(tree, dict) or name not in tree:
        _foreign(f"a field {name}", repr(tree)[:80])
    return tree[name]


def _foreign(expected: str, found: str) -> NoReturn:
    raise ForeignAnswer(f"Expected {expected}, found {found}.")
