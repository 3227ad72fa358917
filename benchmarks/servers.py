"""Sampling through a vLLM server beside the local sampler, and the cost of a push. One run measures both.

    python benchmarks/servers.py --url http://127.0.0.1:8000 --model DIR --server-pid PID
    python benchmarks/servers.py --url http://127.0.0.1:8000 --model DIR --server-pid PID --conversations 32 --pushes no

The server is started as docs/servers.md says for a CPU, with the model folder DIR and the backend `heedful`. PID is
its process. CPU seconds are those of this process, of PID and of all processes under it.
Writes benchmarks/results/NAME.json and NAME.md (`--out NAME`).
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch

from heedful.models.chat.render import Renderer
from heedful.models.load import load_model
from heedful.policies import HFPolicy, Sampling, Vllm, Weights
from heedful.types import Conversation, Message

RESULTS = Path(__file__).parent / "results"
TICKS = os.sysconf("SC_CLK_TCK")
REPEATS = 5


def children(pid: int) -> list[int]:
    """The process and all processes under it."""
    found = [pid]
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(file.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if parent == pid:
            found += children(int(file.parent.name))
    return found


def cpu_seconds(pid: int) -> float:
    """CPU seconds so far of this process and of the server's processes."""
    total = time.process_time()
    for each in children(pid):
        fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / TICKS
    return total


def questions(count: int, words: int) -> list[Conversation]:
    """Conversations with distinct prompts."""
    return [
        Conversation(f"t{number}/0", (Message("user", " ".join(f"b{number}{word}" for word in range(words))),))
        for number in range(count)
    ]


def changed(model: Any, seed: int) -> Any:
    """A copy with noise on all weights."""
    other, generator = copy.deepcopy(model), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(0.01 * parameter.std() * torch.randn(parameter.shape, generator=generator))
    return other


def repeated(call: Callable[[int], float]) -> dict[str, float]:
    """`summary` of `REPEATS` values, after one that is not counted."""
    call(REPEATS)
    return summary([call(seed) for seed in range(REPEATS)])


def summary(values: list[float]) -> dict[str, float]:
    """Mean and 95% half-interval of `REPEATS` values (Student, 4 degrees of freedom)."""
    return {"mean": fmean(values), "half": 2.776 * stdev(values) / REPEATS**0.5, "n": REPEATS}


def speeds(model: Any, renderer: Any, pid: int, source: Any, count: int) -> list[dict[str, Any]]:
    """Sampled tokens per CPU second of both samplers."""
    asked, sampling = questions(count, 12), Sampling(tokens_per_turn=64, noise="conversation")
    policies = {
        "local": lambda seed: HFPolicy(model, renderer, sampling, seed=seed),
        "vllm": lambda seed: source.policy(renderer, sampling, seed),
    }
    found: dict[str, list[float]] = {name: [] for name in policies}
    for seed in range(REPEATS + 1):  # the two in turn, so that both meet the other work of the machine
        for name, policy_of in policies.items():
            policy, before = policy_of(seed), cpu_seconds(pid)
            tokens = sum(len(reply.ids) for reply in policy.respond(asked))
            found[name].append(tokens / (cpu_seconds(pid) - before))
    return [
        {"sampler": name, "conversations": count, "tokens_per_cpu_second": summary(values[1:])}
        for name, values in found.items()
    ]


def push_costs(model: Any, pid: int, url: str) -> list[dict[str, Any]]:
    """CPU and wall seconds of a whole push, the probes included."""
    rows = []
    for sync in ("folder", "broadcast"):
        with Vllm((url,), sync=sync).open() as source:
            walls, errors = [], []

            def push(seed: int, source: Any = source, walls: list[float] = walls, errors: Any = errors) -> float:
                learner = changed(model, seed)
                before, began = cpu_seconds(pid), time.perf_counter()
                (metric,) = source.weights_changed(Weights(learner, seed))
                walls.append(time.perf_counter() - began)
                errors.append(metric.value)
                return cpu_seconds(pid) - before

            cost = repeated(push)
            rows.append({"sync": sync, "cpu_seconds": cost, "wall_median": sorted(walls)[len(walls) // 2]})
            rows[-1]["largest_probe_error"] = max(errors)
    return rows


def page(found: dict[str, Any]) -> str:
    """The results as Markdown."""
    lines = [
        "# Sampling through a vLLM server, and the cost of a push",
        "",
        f"`python benchmarks/servers.py`, {found['date']}. {found['machine']}. vLLM {found['vllm']} on a CPU, float32,",
        f"no compilation. The model has {found['parameters']:,} parameters. Each row: {REPEATS} repetitions after one",
        "that is not counted, with 95% intervals over them. CPU seconds are those of the learner and of all processes",
        "of the server. The machine did other work meanwhile, so wall seconds say little.",
        "",
        "| sampler | conversations | tokens per CPU second |",
        "|---|---|---|",
    ]
    for row in found["speeds"]:
        cell = row["tokens_per_cpu_second"]
        lines.append(f"| {row['sampler']} | {row['conversations']} | {cell['mean']:,.0f} ± {cell['half']:,.0f} |")
    lines += ["", "Prompts are distinct. The local sampler runs in the learner's process."]
    if found["parameters"] < 10_000_000:
        lines += ["On a model this small, the server's HTTP and scheduling cost more than its arithmetic."]
    lines += ["Nothing here says how fast vLLM is on a GPU: not run.", ""]
    if not found["pushes"]:
        return "\n".join(lines)
    lines += [
        "| push | CPU seconds | wall seconds (median) | largest probe error (nats) |",
        "|---|---|---|---|",
    ]
    for row in found["pushes"]:
        cost = row["cpu_seconds"]
        lines.append(
            f"| {row['sync']} | {cost['mean']:.2f} ± {cost['half']:.2f} | {row['wall_median']:.2f} | "
            f"{row['largest_probe_error']:.1e} |"
        )
    lines += ["", "A push includes the learner's own probes, the cache's reset, and the measurement on the server.", ""]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--url", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--server-pid", type=int, required=True)
    parser.add_argument("--conversations", type=int, nargs="+", default=[16, 64])
    parser.add_argument("--pushes", choices=("yes", "no"), default="yes", help="whether to measure pushes as well")
    parser.add_argument("--out", default="servers", help="name of the files in benchmarks/results")
    parser.add_argument("--date", default=time.strftime("%Y-%m-%d"))
    typed = parser.parse_args()
    torch.set_num_threads(1)
    model, tokenizer = load_model(typed.model, torch.device("cpu"))
    renderer = Renderer(tokenizer)
    with Vllm((typed.url,)).open() as source:
        source.weights_changed(Weights(model))
        counts = typed.conversations
        measured = [row for count in counts for row in speeds(model, renderer, typed.server_pid, source, count)]
    found = {
        "date": typed.date,
        "machine": f"{platform.machine()}, {os.cpu_count()} CPUs, one thread each",
        "vllm": "0.32.0",
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "speeds": measured,
        "pushes": push_costs(model, typed.server_pid, typed.url) if typed.pushes == "yes" else [],
    }
    (RESULTS / f"{typed.out}.json").write_text(json.dumps(found, indent=1) + "\n")
    (RESULTS / f"{typed.out}.md").write_text(page(found))
    print(page(found))


if __name__ == "__main__":
    main()
