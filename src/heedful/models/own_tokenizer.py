"""Whether a loaded tokenizer is that of its folder, and the folder's own where it is not.

For some architectures (such as qwen2) transformers builds a tokenizer of the architecture's class in place of the one
in `tokenizer.json`, without a word. Its ids then mean other texts than those that the model was trained with.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast
from transformers.utils.hub import cached_file

from heedful.boundary.foreign_text import where_apart

_FILE = "tokenizer.json"

_TEXTS = (
    "The quick brown fox jumps over the lazy dog; 3 + 4 = 7, isn't it?",
    " leading, trailing ",
    "two  spaces,   three,\ttab\n\nand lines\r\n    indented",
    "1234567890 12,345.67 0x1f 3e-8",
    "CamelCase snake_case kebab-case https://example.org/a?b=c#d",
    "naïve café Ångström ﬁ ½ x²",  # composed, decomposed and compatibility characters: what normalisers change
    "e\u0301 A\u030a \u1e9b\u0323 \u00a0 \u200b \ufeff",
    "Привет, мир. 你好，世界。 こんにちは مرحبا שלום हिन्दी 한국어",
    "🙂 👩‍👩‍👧‍👦 🇩🇪 \U00010348",
    "def f(x):\n\treturn {'a': [x ** 2, None]}  # comment\n",
    "<think>so\n</think><answer> up || down </answer>",
    "\\frac{1}{2} $x_i$ \\boxed{42}",
    "",
)
_ENTRIES = 256
"""Entries of the vocabulary that are written out and read back, evenly spread."""


class TokenizerRead(NamedTuple):
    """A tokenizer, and the sentence to be said about how it was read."""

    tokenizer: PreTrainedTokenizerBase
    note: str = ""


def own_tokenizer(loaded: PreTrainedTokenizerBase, source: str | Path) -> TokenizerRead:
    """The loaded tokenizer if it is that of its folder, else the folder's own, with a note.

    Special tokens and the chat template are those of tokenizer_config.json in both cases.

    Raises:
        ValueError: the folder's own cannot be had either.
    """
    found = difference_from_folder(loaded, source)
    if not found:
        return TokenizerRead(loaded)
    faithful = PreTrainedTokenizerFast.from_pretrained(source, trust_remote_code=False)
    if still := difference_from_folder(faithful, source):
        raise ValueError(f"transformers reads its {_FILE} otherwise than it is written ({still})")
    return TokenizerRead(
        faithful,
        f"transformers read the tokenizer of {source} as {type(loaded).__name__}, which differs from its {_FILE} "
        f"({found}). The tokenizer of {_FILE} is used.",
    )


def difference_from_folder(loaded: Any, source: str | Path) -> str:
    """How a loaded tokenizer differs from the `tokenizer.json` of its folder, with an example.

    Empty: it does not, or there is no such file.
    """
    try:
        # The tokenizer was just read, so the file of a Hugging Face name is in the cache.
        file = cached_file(str(source), _FILE, local_files_only=True)
    except OSError:
        return ""
    own: Tokenizer = Tokenizer.from_file(str(file))
    own.no_truncation()
    own.no_padding()
    theirs, vocabulary = loaded.get_vocab(), own.get_vocab(with_added_tokens=True)
    moved = next((token for token, place in vocabulary.items() if theirs.get(token) != place), None)
    if moved is not None:
        return f"the token {moved!r} has the id {vocabulary[moved]} in the file, and {theirs.get(moved)} here"
    # The settings next to the file may add tokens. Texts that hold one of them are rightly read otherwise.
    added = [token for token in loaded.get_added_vocab() if token not in vocabulary]
    for text in _probes(loaded, own, vocabulary):
        if any(token in text for token in added):
            continue
        ids = own.encode(text, add_special_tokens=False).ids
        here = list(loaded(text, add_special_tokens=False).input_ids)
        if here != ids:
            return "in {!r} the file reads {}, and {} is read here".format(text[:60], *where_apart(ids, here))
        written = own.decode(ids, skip_special_tokens=False)
        read = loaded.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        if read != written:
            return "the file writes {!r}, and {!r} is written here".format(*where_apart(written, read, 60))
    return ""


def _probes(loaded: Any, own: Tokenizer, vocabulary: dict[str, int]) -> Iterator[str]:
    """Texts that show a difference: plain ones, special tokens in a sentence, and entries of the vocabulary."""
    yield from _TEXTS
    for token in list(own.get_added_tokens_decoder().values())[:64]:
        yield f"so{token.content}so {token.content} so"
    template = loaded.chat_template
    if isinstance(template, str):
        yield template[:2000]
    ids = sorted(vocabulary.values())
    for place in ids[:: max(1, len(ids) // _ENTRIES)]:
        yield own.decode([place], skip_special_tokens=False)
