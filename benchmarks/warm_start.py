"""Speed of a warm start (`heedful grow`) compared with a plain loop in transformers, on the same demonstrations.

Both learn the same episodes with the same optimiser settings, clipping and bfloat16 autocast. The plain loop pads the
episodes of a micro-batch, and hands ids, mask and labels to the model. It takes the micro-batch that is fastest here.
heedful reads the beginning that all episodes share once, and computes logits of learned tokens only. The two alternate
step by step in one process, from the same weights, so their losses can be compared, too.

    python benchmarks/warm_start.py --model PATH --threads 2 --out benchmarks/results/warm_start.json
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path

import torch
import transformers
from transformers import AutoModelForCausalLM

from heedful.models.chat.render import Renderer
from heedful.models.load import load_model, stop_ids
from heedful.rollout.context import FULL_HISTORY
from heedful.run.presets import preset
from heedful.seedlings.demonstrations import batches, teacher
from heedful.seedlings.fit import Fit, Schedule, half_is_fast
from heedful.types import TrainingSample

CPU = torch.device("cpu")
Learn = Callable[[Sequence[TrainingSample]], float]
"""Takes one step and returns the loss in nats per token."""


def plain(model: transformers.PreTrainedModel, schedule: Schedule, rows: int, half: bool) -> Learn:
    """The loop that a user of transformers writes, in micro-batches of `rows` episodes."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=schedule.peak, betas=(0.9, 0.95), weight_decay=0.0)
    done = 0

    def learn(samples: Sequence[TrainingSample]) -> float:
        nonlocal done
        for group in optimizer.param_groups:
            group["lr"] = schedule.at(done)
        done += 1
        tokens, total = sum(sum(sample.trained) for sample in samples), 0.0
        ordered = sorted(samples, key=lambda sample: len(sample.ids))
        for start in range(0, len(ordered), rows):
            part = ordered[start : start + rows]
            width = max(len(sample.ids) for sample in part)
            ids_BT, mask_BT = torch.zeros(len(part), width, dtype=torch.long), torch.zeros(len(part), width)
            labels_BT = torch.full((len(part), width), -100)
            for row, sample in enumerate(part):
                length, ids = len(sample.ids), torch.tensor(sample.ids)
                ids_BT[row, :length], mask_BT[row, :length] = ids, 1
                labels_BT[row, :length] = torch.where(torch.tensor(sample.trained), ids, -100)
            with torch.autocast("cpu", torch.bfloat16, enabled=half):
                given = model(input_ids=ids_BT, attention_mask=mask_BT, labels=labels_BT, num_items_in_batch=tokens)
            given.loss.backward()
            total += given.loss.item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return total

    return learn


def timed(learn: Learn, samples: Sequence[TrainingSample]) -> tuple[float, float, float]:
    """Loss, CPU seconds and seconds of one step."""
    cpu, wall = time.process_time(), time.perf_counter()
    loss = learn(samples)
    return loss, time.process_time() - cpu, time.perf_counter() - wall


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="folder of a model")
    parser.add_argument("--env", default="bandit", help="preset whose demonstrations are learned")
    parser.add_argument(
        "--rows", type=int, nargs="+", default=[16, 8, 4], help="micro-batches to try for the plain loop"
    )
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, help="write the figures here as JSON")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    transformers.logging.set_verbosity_error()
    config, half = preset(given.env, "smollm2"), half_is_fast(CPU)
    recipe = config.warm_start

    model, tokenizer = load_model(given.model, CPU)
    renderer = Renderer(tokenizer, config.tags, {}, stop_ids(model))
    solver = teacher(config.env, recipe.imperfect, recipe.template)
    warm_up, *steps = islice(batches(solver, recipe.episodes, 0, renderer, FULL_HISTORY), given.steps + 1)
    schedule = Schedule(recipe.steps, recipe.lr)

    pilots = {}
    for rows in given.rows:
        other = plain(AutoModelForCausalLM.from_pretrained(given.model, dtype=torch.float32), schedule, rows, half)
        timed(other, warm_up)
        pilots[rows] = round(timed(other, warm_up)[1], 2)
        print(f"plain loop with {rows} rows at once: {pilots[rows]} CPU seconds", flush=True)
    best = min(pilots, key=lambda rows: pilots[rows])
    theirs = plain(AutoModelForCausalLM.from_pretrained(given.model, dtype=torch.float32), schedule, best, half)
    ours = Fit(model, schedule, recipe.micro_batch_tokens, share_beginning=True, half=half).learn
    rows = []
    for samples in (warm_up, *steps):
        own, other = timed(ours, samples), timed(theirs, samples)
        rows.append((own, other))
        print(
            f"loss {own[0]:.4f} {other[0]:.4f}, CPU s {own[1]:.2f} {other[1]:.2f}, s {own[2]:.2f} {other[2]:.2f}",
            flush=True,
        )
    ratios = [other[1] / own[1] for own, other in rows[1:]]
    result = {
        "benchmark": "warm_start",
        "model": Path(given.model).name,
        "env": given.env,
        "episodes": recipe.episodes,
        "tokens": round(statistics.fmean(sum(len(sample.ids) for sample in samples) for samples in steps)),
        "learned_tokens": round(statistics.fmean(sum(sum(s.trained) for s in samples) for samples in steps)),
        "half": half,
        "threads": given.threads,
        "plain_cpu_seconds_by_rows": pilots,
        "cpu_seconds": {
            name: [round(row[side][1], 2) for row in rows[1:]] for side, name in enumerate(("heedful", "plain"))
        },
        "seconds": {
            name: [round(row[side][2], 2) for row in rows[1:]] for side, name in enumerate(("heedful", "plain"))
        },
        "losses": {name: [round(row[side][0], 5) for row in rows] for side, name in enumerate(("heedful", "plain"))},
        "ratio": {
            "median": round(statistics.median(ratios), 2),
            "range": [round(min(ratios), 2), round(max(ratios), 2)],
        },
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
        "machine": platform.machine(),
    }
    print(json.dumps(result, indent=1))
    if given.out:
        given.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
