"""GGUF files of a few thousand random weights, as llama.cpp's converter writes them, and the models they are from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from tokenizers import pre_tokenizers
from transformers import Gemma3ForCausalLM, Gemma3TextConfig, PreTrainedModel

from tiny_models import llama

SPECIAL = ("<|start|>", "<|end|>")
USERS = "<tool>"
WHOLE = "xyz"
"""A token that no merge makes."""
MERGES = ("Ġ Ġ", "1 2", "12 3", "a b", "Ġ ab", "' S")
TOKENS = (
    *SPECIAL,
    *sorted(pre_tokenizers.ByteLevel.alphabet()),
    *(merge.replace(" ", "") for merge in MERGES),
    WHOLE,
    USERS,
)
TYPES = [3 if token in SPECIAL else 4 if token == USERS else 1 for token in TOKENS]
PIECES = ("▁", "a", "b", "c", "s", "o", "ab", "bc", "▁a", "▁ab", "abc", "▁▁", "so", "▁so", "▁▁▁")
"""What SentencePiece's tables hold besides special tokens and bytes. An earlier one is merged first."""
GEMMA3_TOKENS = (
    *("<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>", "\n"),
    *(f"<0x{byte:02X}>" for byte in range(256)),
    *(piece.replace("▁", " ") if set(piece) == {"▁"} and len(piece) > 1 else piece for piece in PIECES),
)
"""Runs of spaces are written as spaces, and are of the user's kind, as in Gemma's files."""
TEMPLATE = (
    "{% for message in messages %}<|start|>{{ message['role'] }}\n{{ message['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)


def model(kind: str = "llama") -> PreTrainedModel:
    """A model of one of the architectures, in float32: llama with a vocabulary of TOKENS, or gemma3."""
    if kind == "llama":
        return llama(len(TOKENS)).float()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return _gemma3()


def _gemma3() -> PreTrainedModel:
    """Six layers, the last with full attention, and a window of 4 tokens."""
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 6, "head_dim": 16, "sliding_window": 4}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "initializer_range": 0.3}
    found = Gemma3ForCausalLM(
        Gemma3TextConfig(vocab_size=len(GEMMA3_TOKENS), max_position_embeddings=1024, **sizes, **heads)
    )
    for name, weights in found.named_parameters():
        if "norm" in name:  # eighths, so that 1 can be added and taken away without rounding
            weights.data.copy_(torch.randint(-4, 5, weights.shape) / 8)
    return found.eval()


def write(path: Path, kind: str = "llama", packed: bool = False, settings: dict[str, Any] | None = None) -> Path:
    """Write `model(kind)` into a GGUF file. `settings` are added."""
    found = model(kind)
    writer = gguf.GGUFWriter(path, kind)
    for name, value in (_settings(found.config, kind) | (settings or {})).items():
        if value is not None:
            _add(writer, name, value)
    for name, array in _tensors(found, kind).items():
        if packed and array.ndim == 2 and array.shape[1] % 32 == 0:
            block = gguf.GGMLQuantizationType.Q4_1
            writer.add_tensor(name, gguf.quants.quantize(array, block), raw_dtype=block)
        else:
            writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _settings(config: Any, kind: str) -> dict[str, Any]:
    positions = config.rope_parameters
    return {
        "general.license": "apache-2.0",
        f"{kind}.block_count": config.num_hidden_layers,
        f"{kind}.context_length": config.max_position_embeddings,
        f"{kind}.embedding_length": config.hidden_size,
        f"{kind}.feed_forward_length": config.intermediate_size,
        f"{kind}.attention.head_count": config.num_attention_heads,
        f"{kind}.attention.head_count_kv": config.num_key_value_heads,
        f"{kind}.attention.layer_norm_rms_epsilon": float(config.rms_norm_eps),
        f"{kind}.rope.freq_base": float(positions.get("full_attention", positions)["rope_theta"]),
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": list(TOKENS),
        "tokenizer.ggml.token_type": list(TYPES),
        "tokenizer.ggml.merges": list(MERGES),
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 1,
        "tokenizer.chat_template": TEMPLATE,
        **(_sentencepiece(config) if kind == "gemma3" else {}),
    }


def _sentencepiece(config: Any) -> dict[str, Any]:
    """The settings of a base model of Gemma 3 that are not as in the other families."""
    special, bytes_, runs = range(6), range(7, 263), [GEMMA3_TOKENS.index(run) for run in ("\n", "  ", "   ")]
    numbers = range(len(GEMMA3_TOKENS))
    return {
        "general.license": "gemma",
        "gemma3.attention.key_length": config.head_dim,
        "gemma3.attention.value_length": config.head_dim,
        "gemma3.attention.sliding_window": config.sliding_window,
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": list(GEMMA3_TOKENS),
        "tokenizer.ggml.scores": [-1000.0 if place < 263 else -float(place) for place in numbers],
        "tokenizer.ggml.token_type": [
            3 if place in special else 6 if place in bytes_ else 4 if place in runs else 1 for place in numbers
        ],
        "tokenizer.ggml.merges": None,
        "tokenizer.ggml.bos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 3,
        "tokenizer.ggml.padding_token_id": 0,
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.ggml.add_space_prefix": False,
        "tokenizer.chat_template": None,
    }


def _add(writer: gguf.GGUFWriter, name: str, value: Any) -> None:
    adders = {int: writer.add_uint32, float: writer.add_float32, bool: writer.add_bool, str: writer.add_string}
    adders.get(type(value), writer.add_array)(name, value)


def _tensors(found: PreTrainedModel, kind: str) -> dict[str, Any]:
    config: Any = found.config
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[kind.upper()], config.num_hidden_layers)
    tensors = {}
    for name, tensor in found.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        array = tensor.numpy() + (1 if kind == "gemma3" and "norm" in name else 0)  # a norm's weight is kept with its 1
        if kind == "llama" and ("q_proj" in name or "k_proj" in name):
            heads = config.num_attention_heads if "q_proj" in name else config.num_key_value_heads
            # llama.cpp turns neighbouring numbers of a head where transformers turns its halves.
            halves = array.reshape(heads, 2, array.shape[0] // heads // 2, *array.shape[1:])
            array = halves.swapaxes(1, 2).reshape(array.shape)
        tensors[names.get_name(name, try_suffixes=(".weight", ".bias"))] = np.ascontiguousarray(array)
    return tensors
