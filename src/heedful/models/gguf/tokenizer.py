"""The tokenizer of a GGUF file, built from its tables.

A GGUF file names how text is cut before the merges (`tokenizer.ggml.pre`) and does not hold the rule. The rules here
are those of llama.cpp (src/llama-vocab.cpp) in the notation of the models' own tokenizer.json. transformers ignores the
name, and cuts all models of an architecture alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from heedful.models.gguf.file import GgufFile

_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""Words with the character before them, runs of `digits`, punctuation with line ends, and white space."""


@dataclass(frozen=True, slots=True)
class Cut:
    """How one family of models cuts text before the merges."""

    pieces: Callable[[], pre_tokenizers.PreTokenizer]
    composes: bool = False
    """Whether characters are composed first (NFC). The models' own tokenizers do; llama.cpp does not."""
    whole_words: bool = False
    """Whether a piece that is a token is taken as it is, without the merges."""
    begins: bool = False
    """Whether a text begins with the token of its beginning, if the file does not say."""


def _split(digits: str) -> pre_tokenizers.PreTokenizer:
    words = pre_tokenizers.Split(Regex(_WORDS.format(digits=digits)), behavior="isolated")
    return pre_tokenizers.Sequence([words, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def _gpt2() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


CUTS: Mapping[str, Cut] = {
    "gpt-2": Cut(_gpt2),
    "smollm": Cut(lambda: pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _gpt2()])),
    "llama-bpe": Cut(lambda: _split("{1,3}"), whole_words=True, begins=True),
    "qwen2": Cut(lambda: _split(""), composes=True),
}
"""`tokenizer.ggml.pre` -> how that family cuts text."""

_UNKNOWN, _CONTROL, _USERS, _BYTE = 2, 3, 4, 6
"""Types of tokens other than words: special ones, and those of a user, which are found before text is cut."""
_NAMED = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}


def write_tokenizer(file: GgufFile, folder: Path) -> None:
    """Write tokenizer.json and tokenizer_config.json of a GGUF file into `folder`.

    Raises:
        ValueError: a sentence; the tables do not fit together, or the tokenizer is of a kind that cannot be read.
    """
    settings = file.settings
    kind, cut = settings.get("tokenizer.ggml.model"), str(settings.get("tokenizer.ggml.pre"))
    if kind != "gpt2":
        raise ValueError(f"its tokenizer is of the kind {str(kind)[:100]!r}, expected 'gpt2' (byte-level BPE)")
    if cut not in CUTS:
        raise ValueError(f"its text is cut as {cut[:100]!r} (tokenizer.ggml.pre), expected one of {', '.join(CUTS)}")
    tokens = _texts(settings.get("tokenizer.ggml.tokens"), "tokens")
    kinds = settings.get("tokenizer.ggml.token_type", (1,) * len(tokens))
    named = {name: _token(file, word, tokens) for name, word in _NAMED.items()}
    special = {token for token in named.values() if token is not None}
    tokenizer = _tokenizer(CUTS[cut], tokens, _texts(settings.get("tokenizer.ggml.merges"), "merges"))
    tokenizer.add_tokens(_added(tokens, kinds, special))
    _frame(tokenizer, file, CUTS[cut], named)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        clean_up_tokenization_spaces=False,
        **{name: token for name, token in named.items() if token is not None},
    )
    template = settings.get("tokenizer.chat_template")
    if isinstance(template, str):
        fast.chat_template = template
    fast.save_pretrained(folder)


def _texts(found: object, what: str) -> Sequence[str]:
    if not isinstance(found, tuple) or not found or not all(isinstance(entry, str) for entry in found):
        raise ValueError(f"it has no list of {what} (tokenizer.ggml.{what})")
    return found


def _token(file: GgufFile, word: str, tokens: Sequence[str]) -> str | None:
    name = f"tokenizer.ggml.{word}_token_id"
    place = file.settings.get(name)
    if place is None:
        return None
    if type(place) is not int or not 0 <= place < len(tokens):
        raise ValueError(f"its {name} is {place!r}, and it has {len(tokens):,} tokens")
    return tokens[place]


def _tokenizer(cut: Cut, tokens: Sequence[str], merges: Sequence[str]) -> Tokenizer:
    vocabulary = {token: place for place, token in enumerate(tokens)}
    if len(vocabulary) != len(tokens):
        twice = next(token for place, token in enumerate(tokens) if vocabulary[token] != place)
        raise ValueError(f"the token {twice[:100]!r} stands twice in its vocabulary")
    pairs = []
    for merge in merges:
        left, _, right = merge.partition(" ")
        if not (left in vocabulary and right in vocabulary and left + right in vocabulary):
            raise ValueError(f"the merge {merge[:100]!r} joins or makes what is no token")
        pairs.append((left, right))
    tokenizer = Tokenizer(models.BPE(vocabulary, pairs, ignore_merges=cut.whole_words))
    tokenizer.normalizer = normalizers.NFC() if cut.composes else None
    tokenizer.pre_tokenizer = cut.pieces()
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _added(tokens: Sequence[str], kinds: object, special: set[str]) -> list[AddedToken]:
    """The tokens that are found in a text before it is cut, in the order of their ids."""
    if not isinstance(kinds, tuple) or len(kinds) != len(tokens):
        raise ValueError("it does not name the type of each token (tokenizer.ggml.token_type)")
    if _BYTE in kinds:
        raise ValueError("its vocabulary has tokens of bytes, expected byte-level BPE")
    found = []
    for token, kind in zip(tokens, kinds, strict=True):
        is_special = kind in (_UNKNOWN, _CONTROL) or token in special
        if (is_special or kind == _USERS) and token:
            found.append(AddedToken(token, special=is_special, normalized=False))
    return found


def _frame(tokenizer: Tokenizer, file: GgufFile, cut: Cut, named: Mapping[str, str | None]) -> None:
    """Begin and end texts with their tokens, where the file asks for it."""
    begin = named["bos_token"] if _asks(file, "add_bos_token", cut.begins) else None
    end = named["eos_token"] if _asks(file, "add_eos_token", False) else None
    steps: list[processors.PostProcessor] = [processors.ByteLevel(trim_offsets=False)]
    if begin is not None or end is not None:
        single = [piece for piece in (begin, "$A", end) if piece is not None]
        double = [piece for piece in (begin, "$A", end, begin, "$B", end) if piece is not None]
        ids = [(token, tokenizer.token_to_id(token)) for token in dict.fromkeys((begin, end)) if token is not None]
        steps.append(processors.TemplateProcessing(single=single, pair=double, special_tokens=ids))
    tokenizer.post_processor = processors.Sequence(steps)


def _asks(file: GgufFile, name: str, default: bool) -> bool:
    asked = file.settings.get(f"tokenizer.ggml.{name}", default)
    if not isinstance(asked, bool):
        raise ValueError(f"its {name} is {asked!r:.40}, expected true or false")
    return asked
