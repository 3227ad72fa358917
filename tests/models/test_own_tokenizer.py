"""The tokenizer of a model folder is the one in its tokenizer.json, whatever transformers makes of the architecture."""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers  # noqa: E402

from heedful.auditing import AuditSettings  # noqa: E402
from heedful.auditing.scoring import model_judge  # noqa: E402
from heedful.diagnostics.cross_scores.thoughts import ThoughtTags  # noqa: E402
from heedful.models.load import (  # noqa: E402
    load_model,
    read_own_tokenizer,
    read_tokenizer,
)
from heedful.models.own_tokenizer import difference_from_folder  # noqa: E402
from tiny_models import qwen2  # noqa: E402

WORDS = ("[unk]", "a", "b", "echo", "hello", "world", "<think>", "</think>", "[end]")
TEMPLATE = "{% for message in messages %}{{ message['content'] }}[end]{% endfor %}"


def words_tokenizer() -> Any:
    """A vocabulary of whole words: nothing that an architecture's own class would build."""
    tokenizer = Tokenizer(models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="[unk]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens([AddedToken("[end]", special=True, normalized=False)])
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[unk]", eos_token="[end]")
    fast.chat_template = TEMPLATE
    return fast


def bytes_tokenizer(normalizer: Any = None) -> Any:
    tokenizer = Tokenizer(models.BPE({letter: place for place, letter in enumerate(sorted(_LETTERS))}, []))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer)


_LETTERS = pre_tokenizers.ByteLevel.alphabet()


def folder_of(folder: Path, tokenizer: Any, model_type: str) -> Path:
    tokenizer.save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps({"model_type": model_type}))
    return folder


@pytest.fixture(scope="module")
def replaced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose tokenizer transformers replaces, since its architecture is qwen2."""
    folder = tmp_path_factory.mktemp("models") / "words"
    tokenizer = words_tokenizer()
    qwen2(len(tokenizer)).float().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_transformers_replaces_the_tokenizer_and_the_folders_own_is_taken(replaced: Path) -> None:
    theirs = transformers.AutoTokenizer.from_pretrained(replaced)
    assert theirs("hello world a", add_special_tokens=False).input_ids != [4, 5, 1], "transformers has mended it"
    with pytest.warns(
        UserWarning, match=r"differs from its tokenizer\.json .* The tokenizer of tokenizer\.json is used"
    ):
        own = read_tokenizer(replaced, "")
    assert own("hello world a", add_special_tokens=False).input_ids == [4, 5, 1]
    assert (own.eos_token, own.unk_token, own.chat_template) == ("[end]", "[unk]", TEMPLATE)


@given(text=st.text(max_size=40))
@settings(max_examples=50, deadline=None)
def test_what_is_taken_reads_every_text_as_the_file_does(replaced: Path, text: str) -> None:
    file = Tokenizer.from_file(str(replaced / "tokenizer.json"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        own = _read(replaced)
    assert own(text, add_special_tokens=False).input_ids == file.encode(text, add_special_tokens=False).ids


_cache: dict[Path, Any] = {}


def _read(folder: Path) -> Any:
    if folder not in _cache:
        _cache[folder] = read_tokenizer(folder, "")
    return _cache[folder]


def test_training_evaluation_and_audit_read_the_same_tokenizer(replaced: Path) -> None:
    with pytest.warns(UserWarning, match="The tokenizer of tokenizer.json is used"):
        _, trained = load_model(str(replaced), torch.device("cpu"))
    judge = model_judge(str(replaced), AuditSettings(device="cpu"), ThoughtTags(), seed=0)
    for tokenizer in (trained, judge.tokenizer):
        assert tokenizer("echo b", add_special_tokens=False).input_ids == [3, 2]
    assert judge.warnings() == [judge.note]
    assert "'echo'" in judge.note or "the token" in judge.note


@pytest.mark.parametrize("kind", ["llama", "gpt2", "phi3"])
def test_a_tokenizer_that_is_read_as_it_is_written_is_kept_without_a_word(kind: str, tmp_path: Path) -> None:
    tokenizer = words_tokenizer()
    tokenizer.add_special_tokens({"pad_token": "[padding]"})  # a token that tokenizer.json may not know
    read = read_own_tokenizer(folder_of(tmp_path, tokenizer, kind), "")
    assert read.note == ""


def test_tokens_added_beside_the_file_are_no_difference(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, words_tokenizer(), "llama")
    loaded = read_tokenizer(folder, "")
    loaded.add_tokens(["lazy"])  # a word of the probes
    assert difference_from_folder(loaded, folder) == ""


@pytest.mark.parametrize(
    "normalizer",
    [normalizers.NFC(), normalizers.NFKC(), normalizers.Lowercase(), normalizers.StripAccents(), normalizers.Strip()],
    ids=lambda normalizer: type(normalizer).__name__,
)
def test_a_difference_in_the_normaliser_alone_is_found(normalizer: Any, tmp_path: Path) -> None:
    folder = folder_of(tmp_path, bytes_tokenizer(), "llama")
    assert difference_from_folder(bytes_tokenizer(), folder) == ""
    assert difference_from_folder(bytes_tokenizer(normalizer), folder) != ""


def test_a_difference_in_merges_or_in_the_decoder_is_found(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, bytes_tokenizer(), "llama")
    merged = bytes_tokenizer()
    merged.backend_tokenizer.decoder = decoders.Fuse()
    assert "the file writes" in difference_from_folder(merged, folder)
    split = bytes_tokenizer()
    split.backend_tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    assert difference_from_folder(split, folder) != ""


@pytest.mark.parametrize(
    "late",
    [
        {"normalizer": normalizers.Replace("dog", "cat")},
        {"decoder": decoders.Sequence([decoders.ByteLevel(), decoders.Replace("?", "!")])},
    ],
    ids=["ids", "text"],
)
def test_what_a_difference_shows_differs_however_late_it_begins(late: dict[str, Any], tmp_path: Path) -> None:
    folder, other = folder_of(tmp_path, bytes_tokenizer(), "llama"), bytes_tokenizer()
    for name, value in late.items():
        setattr(other.backend_tokenizer, name, value)
    found = difference_from_folder(other, folder)
    one, two = re.findall(r"\[.*?\]", found) or re.findall(r"'[^']{20,}'|\"[^\"]{20,}\"", found)
    assert one != two


def test_a_file_that_cannot_be_read_is_a_sentence(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, words_tokenizer(), "qwen2")
    (folder / "tokenizer.json").write_text('{"version": "1.0", "model": {"type": "NoSuchModel"}}')
    with pytest.raises(ValueError, match=r"Expected a tokenizer in .* but it could not be loaded: .* Try another\."):
        read_tokenizer(folder, "Try another.")


def test_a_folder_without_the_file_is_read_as_before(tmp_path: Path) -> None:
    assert difference_from_folder(words_tokenizer(), tmp_path) == ""
