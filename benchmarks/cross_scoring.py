"""Time of every method of cross-scoring, compared with a pass like that of the published code, in one run.

The methods, all on the same random weights, prompts and thoughts:

    full     every pair as one sequence, thoughts right-padded to the longest of all, in micro-batches, with logits and
             log softmax at every position, like a trainer's log-probability pass (entropy left out)
    sliced   the same, with the log softmax at the thought's positions only
    cached   `HFScorer(method="cached")`: padded batches with a shared KV cache of the prompt
    packed   `HFScorer(method="packed")`: flat packs without padding
    trie     `HFScorer(method="trie")`: the same, shared prefixes of thoughts read once
    plain    `HFScorer(method="plain")`: one unpadded pass per pair, without a cache
    auto     `HFScorer()`: the fastest of its methods that is exact for the model

Every method of a case has its own process. The processes score in turns, one at a time, on one thread. CPU seconds are
the best of a method's turns. Memory is the highest resident set minus the resident set before the first turn. FLOP
counts cover the matrix products that a method must compute, padding included. The ratio of two counts is therefore the
speed ratio of equally efficient code.

    python benchmarks/cross_scoring.py --out benchmarks/results/cross_scoring
    python benchmarks/cross_scoring.py --device cuda --dtype bfloat16 --out benchmarks/results/cross_scoring_gpu

With an accelerator the figures are seconds of the clock, and its memory.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from devices import name_of, seconds
from transformers import PreTrainedModel

from heedful.scorers.cached import plan_rows
from heedful.scorers.hf import HFScorer
from heedful.scorers.packs import reads


@dataclass(frozen=True, slots=True)
class Shape:
    """A model with random weights, large enough for the prompt to matter."""

    hidden: int
    layers: int
    heads: int
    kept_heads: int
    inner: int
    vocabulary: int
    spread: float
    kind: str = "Qwen2"
    """The beginning of its class's name in transformers."""
    full: int | None = None
    """Layers with full attention. None: all."""

    def build(self, device: str, dtype: str) -> PreTrainedModel:
        torch.manual_seed(0)
        config_class = getattr(transformers, f"{self.kind}TextConfig", None) or getattr(
            transformers, f"{self.kind}Config"
        )
        config = config_class(
            vocab_size=self.vocabulary,
            hidden_size=self.hidden,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            num_key_value_heads=self.kept_heads,
            intermediate_size=self.inner,
            max_position_embeddings=4096,
            initializer_range=self.spread,
            tie_word_embeddings=True,
            **KINDS[self.kind],
        )
        with torch.device(device):
            return getattr(transformers, f"{self.kind}ForCausalLM")(config).to(getattr(torch, dtype)).eval()


KINDS: dict[str, dict[str, Any]] = {
    "Qwen2": {},
    "Qwen3_5": {
        "head_dim": 64,
        "layer_types": [*["linear_attention"] * 3, "full_attention"] * 2,
        "linear_num_key_heads": 4,
        "linear_num_value_heads": 8,
        "linear_key_head_dim": 64,
        "linear_value_head_dim": 64,
    },
    "Gemma3": {
        "head_dim": 64,
        "layer_types": [*["sliding_attention"] * 5, "full_attention"] * 2,
        "sliding_window": 128,
    },
    "Lfm2": {"layer_types": [*["conv"] * 3, "full_attention"] * 2},
    "Bamba": {"attn_layer_indices": [3, 7], "mamba_n_heads": 12, "mamba_d_head": 64, "mamba_d_state": 64},
}
"""Further settings of a kind."""


SHAPES = {
    "small": Shape(256, 6, 4, 4, 1024, 32_000, 0.06),
    "0.5B": Shape(896, 24, 14, 2, 4864, 151_936, 0.04),
    "1.5B": Shape(1536, 28, 12, 2, 8960, 151_936, 0.03),
    "Qwen3.5": Shape(384, 8, 6, 2, 1024, 32_000, 0.05, "Qwen3_5", full=2),
    "Gemma 3": Shape(384, 12, 6, 2, 1024, 32_000, 0.05, "Gemma3", full=2),
    "LFM2": Shape(384, 8, 6, 2, 1024, 32_000, 0.05, "Lfm2", full=2),
    "Bamba": Shape(384, 8, 6, 2, 1024, 32_000, 0.05, "Bamba", full=2),
}


@dataclass(frozen=True, slots=True)
class Case:
    """One column of the matrix: M thoughts under one prompt."""

    name: str
    shape: str
    prompt: int
    thought: int
    """Tokens of a thought, or their mean where ragged."""
    thoughts: int
    micro_batch: int
    methods: tuple[str, ...]
    ragged: bool = False
    shared: float = 0.0
    """The part of every thought that all have in common."""
    accelerator: bool = False
    """Too large for a CPU."""

    def draw(self) -> tuple[list[int], list[list[int]]]:
        rng = random.Random(0)
        vocabulary = SHAPES[self.shape].vocabulary
        lengths = [self.thought] * self.thoughts
        if self.ragged:
            lengths = [
                min(2 * self.thought, max(16, round(self.thought * rng.lognormvariate(-0.06, 0.35)))) for _ in lengths
            ]
        ids = lambda count: [rng.randrange(vocabulary) for _ in range(count)]  # noqa: E731
        prompt, stem = ids(self.prompt), ids(round(self.shared * self.thought))
        return prompt, [stem + ids(length - len(stem)) for length in lengths]


OURS = ("cached", "packed")
THEIRS = ("full", "sliced")
WHOLE = (*THEIRS, "plain")
"""These read every pair whole."""
CASES = (
    Case("400/100", "small", 400, 100, 32, 8, THEIRS + OURS),
    Case("1000/50", "small", 1000, 50, 32, 8, THEIRS + OURS),
    Case("200/400 ragged", "small", 200, 400, 32, 8, THEIRS + OURS, ragged=True),
    Case("0.5B 400/100", "0.5B", 400, 100, 8, 4, ("full", *OURS)),
    Case("0.5B 400/100, many", "0.5B", 400, 100, 64, 8, ("full", *OURS), accelerator=True),
    Case("0.5B 1000/300 ragged", "0.5B", 1000, 300, 64, 8, ("full", *OURS), ragged=True, accelerator=True),
    Case("1.5B 400/100", "1.5B", 400, 100, 64, 8, ("full", *OURS), accelerator=True),
    Case("Qwen3.5 400/50 ragged", "Qwen3.5", 400, 50, 32, 8, ("plain", "auto"), ragged=True),
    Case("Gemma 3 400/50 ragged", "Gemma 3", 400, 50, 32, 8, ("plain", "auto"), ragged=True),
    Case("LFM2 400/50 ragged", "LFM2", 400, 50, 32, 8, ("plain", "auto"), ragged=True),
    Case("Bamba 400/50 ragged", "Bamba", 400, 50, 32, 8, ("plain", "auto"), ragged=True),
    Case("shared 0%", "small", 400, 100, 32, 8, ("packed", "trie")),
    Case("shared 30%", "small", 400, 100, 32, 8, ("packed", "trie"), shared=0.3),
    Case("shared 60%", "small", 400, 100, 32, 8, ("packed", "trie"), shared=0.6),
    Case("shared 90%", "small", 400, 100, 32, 8, ("packed", "trie"), shared=0.9),
)


def score_whole(
    model: PreTrainedModel, prompt: Sequence[int], thoughts: Sequence[Sequence[int]], micro_batch: int, *, sliced: bool
) -> list[float]:
    """The baseline: summed log-probabilities from whole sequences and whole logits."""
    width = max(map(len, thoughts))
    sums: list[float] = []
    for start in range(0, len(thoughts), micro_batch):
        part = thoughts[start : start + micro_batch]
        ids_BT = torch.tensor([[*prompt, *ids, *[0] * (width - len(ids))] for ids in part], device=model.device)
        real_BT = torch.tensor([[1] * len(ids) + [0] * (width - len(ids)) for ids in part], device=model.device)
        filled_BT = torch.cat([real_BT.new_ones(len(part), len(prompt)), real_BT], dim=1)
        logits_BTV = model(input_ids=ids_BT, attention_mask=filled_BT, use_cache=False).logits
        if sliced:
            logits_BTV = logits_BTV[:, len(prompt) - 1 :]
        logprobs_BTV = torch.log_softmax(logits_BTV.float(), dim=-1)
        chosen_BT = logprobs_BTV[:, -width - 1 : -1].gather(2, ids_BT[:, -width:, None])[..., 0]
        sums += (chosen_BT.double() * real_BT).sum(dim=1).tolist()
        del logits_BTV, logprobs_BTV
    return sums


def operations(case: Case, model: PreTrainedModel, method: str) -> float:
    """Number of floating-point operations of the matrix products, attention scores included."""
    shape = SHAPES[case.shape]
    body = 2 * sum(p.numel() for p in model.get_decoder().layers.parameters() if p.dim() == 2)
    head = 2 * shape.hidden * shape.vocabulary
    pair = 4 * (shape.layers if shape.full is None else shape.full) * shape.hidden
    prompt, thoughts = case.draw()
    behind, lengths = len(prompt), [len(ids) for ids in thoughts]
    if method in THEIRS:
        width = behind + max(lengths)
        square = 1 if len(set(lengths)) > 1 else 0.5
        return len(lengths) * (width * (body + head) + pair * square * width**2)
    if method == "plain":
        read = [behind + length - 1 for length in lengths]
        return sum(read) * body + sum(lengths) * head + pair * sum(length**2 for length in read) / 2
    once = behind * body + pair * behind**2 / 2 + head
    if method in ("cached", "auto"):
        plan = plan_rows(lengths, 512, behind)
        read = [max(lengths[row] for row in rows) - 1 for rows in plan for _ in rows]
        scored = sum(lengths) - len(lengths)
    else:
        read = [length - 1 for length in lengths]
        scored = sum(read) if method == "packed" else reads([tuple(ids) for ids in thoughts], share=True)
    rest = sum(length * behind + length**2 / 2 for length in read)
    tokens = scored if method == "trie" else sum(read)
    return once + tokens * body + scored * head + pair * rest * (tokens / sum(read))


def serve(case: Case, method: str, device: str, dtype: str) -> None:
    """One method of one case, in this process: scores once for every line on stdin."""
    torch.set_num_threads(1)
    model = SHAPES[case.shape].build(device, dtype)
    prompt, thoughts = case.draw()
    scorer = None if method in THEIRS else HFScorer(model, method=method)  # type: ignore[arg-type]

    def score(asked: list[list[int]]) -> list[float]:
        if scorer is None:
            return score_whole(model, prompt, asked, case.micro_batch, sliced=method == "sliced")
        return [row[0] for row in scorer.cross_score([prompt], asked, [0] * len(asked), 1.0).scores_MN]

    with torch.no_grad():
        probe = 0.0 if scorer is None else _timed(lambda: scorer.method, device)[0]
        score([ids[:9] for ids in thoughts[:2]])
        if device != "cpu":
            score(thoughts)  # kernels are chosen and loaded at their first call
        extra = _extra_memory(device)
        print(json.dumps({"probe_seconds": round(probe, 3), "gigaflop": operations(case, model, method) / 1e9}))
        for _ in sys.stdin:
            spent, wall, sums = _timed(lambda: score(thoughts), device)
            print(json.dumps({"seconds": spent, "wall": wall, "extra": extra(), "sums": sums}), flush=True)


def _extra_memory(device: str) -> Callable[[], float]:
    """A function: the highest memory since now, less that of now, in MB."""
    if device != "cpu":
        torch.cuda.reset_peak_memory_stats()
        held = torch.cuda.memory_allocated()
        return lambda: (torch.cuda.max_memory_allocated() - held) / 2**20
    before = _resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the highest resident set counts from here
    return lambda: (_resident("VmHWM") - before) / 1024


def measure(case: Case, turns: int, device: str, dtype: str) -> list[dict[str, object]]:
    """All methods of one case, in turns."""
    command = [sys.executable, __file__, "--device", device, "--dtype", dtype, "--serve", case.name]
    surroundings = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    started = {
        method: subprocess.Popen(
            [*command, method], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=surroundings
        )
        for method in case.methods
    }
    rows = {method: json.loads(_line(process)) for method, process in started.items()}
    heard: dict[str, list[dict[str, Any]]] = {method: [] for method in case.methods}
    for turn in range(turns):
        for method, process in started.items():
            if device == "cpu" and turn >= _most_turns(case, method):
                continue
            print("", file=process.stdin, flush=True)
            heard[method].append(json.loads(_line(process)))
            print(f"{case.name}, {method}: {heard[method][-1]['seconds']:.3f} s", flush=True)
    for method, process in started.items():
        process.communicate()
        best = min(heard[method], key=lambda turn: turn["seconds"])
        rows[method] |= {
            "method": method,
            "seconds": round(best["seconds"], 4),
            "seconds_of_all_turns": [round(turn["seconds"], 4) for turn in heard[method]],
            "wall_seconds": round(min(turn["wall"] for turn in heard[method]), 4),
            "gigaflop_per_second": round(rows[method]["gigaflop"] / best["seconds"], 1),
            "peak_extra_mb": round(heard[method][-1]["extra"]),
            "sums": best["sums"],
        }
    return list(rows.values())


def _most_turns(case: Case, method: str) -> int:
    """Number of turns. Whole passes are slow: two turns, and one for the large shape."""
    if method not in WHOLE:
        return 100 if case.shape == "small" else 2
    return 2 if case.shape == "small" else 1


def _line(process: subprocess.Popen[str]) -> str:
    line = process.stdout.readline() if process.stdout else ""
    if not line:
        sys.exit(f"{' '.join(map(str, process.args))} ended early")  # type: ignore[arg-type]
    return line


def _timed(work: Callable[[], object], device: str) -> tuple[float, float, object]:
    spent, wall = seconds(device), time.perf_counter()
    result = work()
    return seconds(device) - spent, time.perf_counter() - wall, result


def _resident(field: str) -> int:
    """Memory of this process in kilobytes, by its field in /proc/self/status."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


def compare(case: Case, rows: list[dict[str, object]]) -> dict[str, object]:
    """Speed and operations relative to the first method, and the largest differences of scores from it."""
    _, thoughts = case.draw()
    lengths = np.array([len(ids) for ids in thoughts])
    first = rows[0]
    truth = np.array(first["sums"])
    for row in rows:
        error = np.abs(np.array(row.pop("sums")) - truth)
        row["speedup"] = round(first["seconds"] / row["seconds"], 2)  # type: ignore[operator]
        row["flop_ratio"] = round(first["gigaflop"] / row["gigaflop"], 2)  # type: ignore[operator]
        row["largest_error_per_token"] = float(f"{(error / lengths).max():.1e}")
        row["largest_relative_error"] = float(f"{(error / np.abs(truth)).max():.1e}")
    return {
        **{name: value for name, value in asdict(case).items() if name != "methods"},
        "lengths": {"least": int(lengths.min()), "mean": float(lengths.mean().round(1)), "most": int(lengths.max())},
        "rows": rows,
    }


def markdown(result: dict[str, object]) -> str:
    """The figures as a table, one row per method."""
    unit = "CPU seconds" if result["device"] == "cpu" else f"seconds of the clock on one {result['device']}"
    lines = [
        "# Methods of cross-scoring compared",
        "",
        "Written by `benchmarks/cross_scoring.py`. Do not edit. The script explains the methods at its top.",
        "",
        f"One prompt column, {result['dtype']}, one thread, {unit} (best of a method's turns), "
        f"torch {torch.__version__}, transformers {transformers.__version__}.",
        "The machine was shared, so differences under 10% mean nothing. Speed and FLOP ratios are relative to the",
        "first method of each case. Memory is the highest amount that scoring added.",
        "",
        "| case | M | thought tokens (least, mean, most) | method | seconds | speed | FLOP ratio | GFLOP/s | "
        "extra MB | largest error per token |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for case in result["cases"]:  # type: ignore[attr-defined]
        lengths = "{least}, {mean}, {most}".format(**case["lengths"])
        for row in case["rows"]:
            batch = f" (micro-batch {case['micro_batch']})" if row["method"] in THEIRS else ""
            lines.append(
                f"| {case['name']} | {case['thoughts']} | {lengths} | {row['method']}{batch} | {row['seconds']} | "
                f"{row['speedup']} | {row['flop_ratio']} | {row['gigaflop_per_second']} | {row['peak_extra_mb']} | "
                f"{row['largest_error_per_token']} |"
            )
    return "\n".join(lines) + "\n"


def main() -> None:
    arguments = _arguments()
    if arguments.serve:
        name, method = arguments.serve
        serve(next(case for case in CASES if case.name == name), method, arguments.device, arguments.dtype)
        return
    file = arguments.out.with_suffix(".json") if arguments.out else None
    known = json.loads(file.read_text())["cases"] if file and file.exists() else []
    measured = {case["name"]: case for case in known}
    for case in CASES:
        if case.name in arguments.cases if arguments.cases else case.accelerator == (arguments.device != "cpu"):
            measured[case.name] = compare(case, measure(case, arguments.turns, arguments.device, arguments.dtype))
    result = {
        "benchmark": "cross_scoring",
        "shapes": {name: asdict(shape) for name, shape in SHAPES.items()},
        "threads": 1,
        "device": name_of(arguments.device),
        "dtype": arguments.dtype,
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
        "machine": platform.machine(),
        "cases": [measured[case.name] for case in CASES if case.name in measured],
    }
    print(markdown(result))
    if file:
        file.write_text(json.dumps(result, indent=1) + "\n")
        file.with_suffix(".md").write_text(markdown(result))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--cases", nargs="*", help="names of cases (default: all of this device). OUT keeps its figures of the others"
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--turns", type=int, default=5, help="scorings per method (fewer of whole passes)")
    parser.add_argument("--out", type=Path, help="write the figures here, as .json and .md")
    parser.add_argument(
        "--serve", nargs=2, metavar=("CASE", "METHOD"), help="internal: how the processes of the methods are started"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
