"""What the benchmarks of a device share: its seconds, and models of a known shape with random weights.

    python benchmarks/devices.py 1.7B FOLDER --tokenizer FOLDER_OF_A_MODEL --dtype bfloat16

writes a model folder of that shape. Speed does not depend on what a model has learned.
"""

from __future__ import annotations

import argparse
import time

import torch
from transformers import AutoTokenizer, GenerationConfig, LlamaConfig, LlamaForCausalLM

SHAPES = {
    "135M": {"hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30}
    | {"num_attention_heads": 9, "num_key_value_heads": 3},
    "1.7B": {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 24}
    | {"num_attention_heads": 32, "num_key_value_heads": 32},
}
"""The shapes of SmolLM2."""


def seconds(device: str) -> float:
    """CPU seconds of this process. With an accelerator those of the clock, once it has done what it was given."""
    if device == "cpu":
        return time.process_time()
    torch.cuda.synchronize(device)
    return time.perf_counter()


def name_of(device: str) -> str:
    """What the figures were measured on."""
    return device if device == "cpu" else torch.cuda.get_device_name(device)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("folder", help="where the model is written")
    parser.add_argument("--tokenizer", required=True, help="folder with the tokenizer")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    given = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(given.tokenizer)
    config = LlamaConfig(
        vocab_size=-(-len(tokenizer) // 64) * 64,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        **SHAPES[given.shape],
    )
    torch.manual_seed(0)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = LlamaForCausalLM(config).to(getattr(torch, given.dtype))
    model.generation_config = GenerationConfig(eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id)
    model.save_pretrained(given.folder)
    tokenizer.save_pretrained(given.folder)


if __name__ == "__main__":
    main()
