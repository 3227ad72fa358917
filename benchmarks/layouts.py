"""A generated run, written as trainers write theirs: rollouts and scalars, in the order in which files grow.

| layout | rollouts | scalars |
|---|---|---|
| TRL | `completions/completions_00012.parquet` | `checkpoint-50/trainer_state.json`, or the console |
| verl | `rollouts/12.jsonl`, `validation/15.jsonl` | its file logger, or the console |
| prime-rl | `rollouts/step_12/{train,eval}/{all,effective}/traces.jsonl` | `metrics.jsonl`, five lines a step |
| plain | `rollouts.jsonl` | `scalars.csv`, or JSON lines |

TRL writes the rows of an evaluation over those of its step. Where there are two ways, runs with an odd seed take the
second. A gradient that is not a number is `NaN`, `'nan'`, `null`, `nan`, no key at all, or `"NaN"`. Names, columns and
their types are those of TRL 1.16, verl (commit 1dda039b9) and prime-rl (commit 559b44772). prime-rl trains on groups
with different rewards alone (`filter_zero_advantages`), so `effective` lacks the others.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow
import pyarrow.parquet

from benchmarks.scalar_series import FORM, LIMIT, PROMPTS, VALIDATION, Sampled, Series, sampled

Row = dict[str, Any]

FLUENT = (
    "Let me think about this step by step and then answer with care.",
    "I read the task once more and make sure that nothing is missing.",
    "First I look at what is given, and then I work towards the answer.",
    "The task is clear, so I can go on and give the answer that fits.",
)
OWN = (
    "I have {a} and {b}, and {a} plus {b} makes {c}.",
    "Starting from {a} I count {b} more and arrive at {c}.",
    "The two numbers are {a} and {b}; together they are {c}.",
    "{b} on top of {a} gives {c}.",
)
_MESSAGES = pyarrow.list_(pyarrow.struct([("role", pyarrow.string()), ("content", pyarrow.string())]))
COMPLETIONS = pyarrow.schema(
    [
        ("step", pyarrow.int64()),
        ("prompt", _MESSAGES),
        ("completion", _MESSAGES),
        ("correct", pyarrow.float64()),
        ("form", pyarrow.float64()),
        ("advantage", pyarrow.float64()),
    ]
)


class Written(NamedTuple):
    """Bytes that a trainer writes at one moment."""

    path: str
    content: bytes
    append: bool = True
    """Behind what the file holds, and not in its place."""


class Episode(NamedTuple):
    prompt: str
    reply: str
    truth: str
    right: float
    formed: float
    advantage: float
    cut: bool
    group: int
    tokens: int

    @property
    def reward(self) -> float:
        return self.right + FORM * self.formed


def episodes(series: Series, drawn: Sampled, rng: np.random.Generator) -> list[Episode]:
    """The texts of a step. Two numbers are to be added; what a thought says of them, the scenario says."""
    numbers_P2 = rng.choice(np.arange(11, 99), (PROMPTS, 2), replace=False)
    rewards_PG = drawn.rewards_PG
    spread_P = rewards_PG.std(axis=1, keepdims=True)
    advantages_PG = (rewards_PG - rewards_PG.mean(axis=1, keepdims=True)) / (spread_P + 1e-4)
    share = min(1.0, max(0.0, (drawn.since + 1) / 20))
    found = []
    for group, (a, b) in enumerate(numbers_P2.tolist()):
        for member in range(series.members):
            own = series.words == "own" or rng.random() >= share
            if own:
                thought = OWN[rng.integers(len(OWN))].format(a=a, b=b, c=a + b)
            elif series.words == "letters":
                thought = " ".join("".join(rng.choice([*"abcdefghijklmnopqrstuvwxyz"], 5)) for _ in range(8))
            else:
                thought = FLUENT[rng.integers(len(FLUENT)) if series.words == "template" else 0]
            place = group, member
            right, formed, cut = (bool(held[place]) for held in (drawn.right_PG, drawn.formed_PG, drawn.cut_PG))
            long = cut or bool(drawn.lengths_PG[place] >= LIMIT)
            answer = f"</think>{a + b if right else a - b}" if formed and not cut else ""
            found.append(
                Episode(
                    f"What is {a} plus {b}?", f"<think>{thought}{answer}", str(a + b), float(right), float(formed),
                    float(advantages_PG[place]), long, group, round(float(drawn.lengths_PG[place])),
                )
            )  # fmt: skip
    return found


def _evaluated(drawn: Sampled, step: int, rng: np.random.Generator) -> list[Episode]:
    """One episode for each task of an evaluation."""
    share = drawn.values["trainer/validation"]
    right_V = rng.permutation(np.arange(VALIDATION) < round(share * VALIDATION))
    return [
        Episode(f"What is {at} plus {at + 1}?", f"<think>{OWN[at % 4].format(a=at, b=at + 1, c=2 * at + 1)}</think>"
                f"{2 * at + 1 if right else 0}", str(2 * at + 1), float(right), 1.0, 0.0, False, at, 40)
        for at, right in enumerate(right_V.tolist())
    ]  # fmt: skip


def _line(row: Mapping[str, Any]) -> bytes:
    return json.dumps(row, ensure_ascii=False).encode() + b"\n"


def _named(values: Mapping[str, float], keys: Mapping[str, str]) -> dict[str, float]:
    return {key: values[f"trainer/{name}"] for name, key in keys.items() if f"trainer/{name}" in values}


# TRL ------------------------------------------------------------------------------------------------------------------

TRL = {
    "loss": "loss", "grad_norm": "grad_norm", "learning_rate": "learning_rate", "length": "completions/mean_length",
    "truncated": "completions/clipped_ratio", "reward": "reward", "reward_std": "reward_std",
    "zero_std": "frac_reward_zero_std", "kl": "kl", "entropy": "entropy",
    "mismatch": "sampling/sampling_logp_difference/mean",
}  # fmt: skip


def trl(series: Series, seed: int, steps: int) -> Iterator[Written]:
    rng, history = np.random.default_rng([seed, 1]), list[Row]()
    for step, drawn in enumerate(sampled(series, seed, steps), start=1):
        held = episodes(series, drawn, rng)
        row = _named(drawn.values, TRL)
        # The absolute difference of two log-probabilities, and not the divergence: k3 is half its square.
        row[TRL["mismatch"]] = math.sqrt(2 * row[TRL["mismatch"]])
        for name, values in (
            ("correct", [each.right for each in held]),
            ("form", [FORM * each.formed for each in held]),
        ):
            row |= {
                f"rewards/{name}/mean": float(np.mean(values)),
                f"rewards/{name}/std": float(np.std(values, ddof=1)),
            }
        row["clip_ratio/region_mean"] = 0.0
        rows = [row]
        yield Written("run.log", _trl_console({**row, "epoch": step / steps}))
        yield Written(f"completions/completions_{step:05d}.parquet", _completions(held, step), append=False)
        if "trainer/validation" in drawn.values:
            graded = _evaluated(drawn, step, rng)
            share = drawn.values["trainer/validation"]
            told = {"reward": share + FORM, "rewards/correct/mean": share, "rewards/form/mean": FORM, "loss": 0.0,
                    "entropy": row["entropy"], "kl": row["kl"], "frac_reward_zero_std": 1.0}  # fmt: skip
            rows.append({f"eval_{name}": value for name, value in told.items()} | {"eval_runtime": 1.5})
            yield Written("run.log", _trl_console({**rows[-1], "epoch": step / steps}))
            # TRL keeps the last generation batch, and an evaluation has more rows than one.
            last = _completions(graded[-len(held) :], step)
            yield Written(f"completions/completions_{step:05d}.parquet", last, append=False)
        history += [{**each, "epoch": step / steps, "step": step} for each in rows]
        if step % max(1, steps // 2) == 0:
            state = {"best_metric": None, "epoch": step / steps, "eval_steps": 5, "global_step": step,
                     "log_history": history, "max_steps": steps}  # fmt: skip
            text = json.dumps(state, indent=2, sort_keys=True) + "\n"
            yield Written(f"checkpoint-{step}/trainer_state.json", text.encode(), append=False)


def _trl_console(row: Mapping[str, float]) -> bytes:
    return (repr({name: f"{value:.4g}" for name, value in row.items()}) + "\n").encode()


def _completions(held: Sequence[Episode], step: int) -> bytes:
    rows = [
        {
            "step": step,
            "prompt": [{"role": "user", "content": each.prompt}],
            "completion": [{"role": "assistant", "content": each.reply}],
            "correct": each.right,
            "form": FORM * each.formed,
            "advantage": each.advantage,
        }
        for each in held
    ]
    stream = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows, COMPLETIONS), stream)
    return stream.getvalue()


# verl -----------------------------------------------------------------------------------------------------------------

VERL = {
    "entropy": "actor/entropy", "kl": "actor/kl_loss", "loss": "actor/pg_loss", "grad_norm": "actor/grad_norm",
    "learning_rate": "actor/lr", "reward": "critic/score/mean", "length": "response_length/mean",
    "truncated": "response_length/clip_ratio", "mismatch": "rollout_corr/k3_kl",
    "validation": "val-core/sums/acc/mean@1",
}  # fmt: skip


def verl(series: Series, seed: int, steps: int) -> Iterator[Written]:
    rng = np.random.default_rng([seed, 1])
    first = float(rng.binomial(VALIDATION, series.success(0, -1)) / VALIDATION)  # val_before_train
    yield from _verl_scalars(0, {VERL["validation"]: first, "val-aux/num_turns/mean": 2.0})
    for step, drawn in enumerate(sampled(series, seed, steps), start=1):
        rows = [_verl_row(each, step) for each in episodes(series, drawn, rng)]
        yield Written(f"rollouts/{step}.jsonl", b"".join(map(_line, rows)))
        if "trainer/validation" in drawn.values:
            graded = [_verl_row(each, step) for each in _evaluated(drawn, step, rng)]
            yield Written(f"validation/{step}.jsonl", b"".join(map(_line, graded)))
        row = _named(drawn.values, VERL)
        row |= {"actor/pg_clipfrac": 0.002, "actor/ppo_kl": 1e-4, "critic/rewards/mean": row["critic/score/mean"],
                "critic/advantages/mean": 0.0, "training/global_step": step, "training/epoch": 0,
                "timing_s/step": 41.2}  # fmt: skip
        yield from _verl_scalars(step, row)


def _verl_row(each: Episode, step: int) -> Row:
    prompt = f"user\n{each.prompt}\nassistant\n"
    return {"input": prompt, "output": each.reply, "gts": each.truth, "score": each.reward, "step": step,
            "acc": each.right}  # fmt: skip


def _verl_scalars(step: int, row: Mapping[str, float]) -> Iterator[Written]:
    finite = {name: value if math.isfinite(value) else None for name, value in row.items()}  # as orjson does
    text = json.dumps({"step": step, "data": finite}, separators=(",", ":"))
    yield Written("sums/tiny.jsonl", text.encode() + b"\n")
    told = " - ".join(f"{name}:{value}" for name, value in row.items())
    yield Written("console.txt", f"(TaskRunner pid=1) step:{step} - {told}\n".encode())


# prime-rl -------------------------------------------------------------------------------------------------------------


def prime(series: Series, seed: int, steps: int) -> Iterator[Written]:
    rng = np.random.default_rng([seed, 1])
    for step, drawn in enumerate(sampled(series, seed, steps), start=1):
        values, held = drawn.values, episodes(series, drawn, rng)
        every = [_prime_row(each, step, f"{step:04d}-{each.group}", "train") for each in held]
        trained = [row for row, each in zip(every, held, strict=True) if each.advantage != 0.0]
        for subset, rows in (("all", every), ("effective", trained)):
            yield Written(f"rollouts/step_{step}/train/{subset}/traces.jsonl", b"".join(map(_line, rows)))
        metrics: dict[str, float] = {}
        for subset, some in (("all", held), ("effective", [each for each in held if each.advantage != 0.0])):
            metrics |= _prime_matrix(f"train/agg/{subset}", some)
        solved = np.array([each.reward == 1.0 for each in held]).reshape(PROMPTS, series.members).all(axis=1).mean()
        failed = np.array([each.reward == 0.0 for each in held]).reshape(PROMPTS, series.members).all(axis=1).mean()
        agent = "train/agg/all/agent"
        metrics |= {"train/agg/all/has_error/mean": 0.0, f"{agent}/has_error/mean": 0.0,
                    f"{agent}/solved_none": float(failed), f"{agent}/solved_all": float(solved),
                    f"{agent}/solved_some": float(1 - (failed + solved)),
                    "progress/rollouts": step * len(held), "time/step": 60.0}  # fmt: skip
        lines: list[Mapping[str, float]] = [metrics]
        if "trainer/validation" in values:
            graded = _evaluated(drawn, step, rng)
            rows = [_prime_row(each, step, f"{step:04d}-eval-{each.group}", "eval") for each in graded]
            for subset in ("all", "effective"):
                yield Written(f"rollouts/step_{step}/eval/{subset}/traces.jsonl", b"".join(map(_line, rows)))
            share = values["trainer/validation"]
            scores = {"avg@1": share, "reward/mean": share}
            lines.append({f"eval/sums/{subset}/agent/{name}": value
                          for subset in ("all", "effective") for name, value in scores.items()})  # fmt: skip
        entropy, mismatch = values["trainer/entropy"], values["trainer/mismatch"]
        lines += [
            {"perf/throughput": 812.0, "perf/peak_memory": 40.1},
            {"optim/lr": values["trainer/learning_rate"], "optim/grad_norm": values["trainer/grad_norm"]},
            {"loss/mean": values["trainer/loss"], "entropy/all/mean": entropy, "mismatch_kl/all/mean": mismatch,
             "kl_ent_ratio/mean": mismatch / entropy},
            {"time/step": 58.0, "time/forward_backward": 30.0},
        ]  # fmt: skip
        for line in lines:
            kept = {name: value for name, value in line.items() if math.isfinite(value)}
            yield Written("metrics.jsonl", _line({"step": step, "time": 1767225600.0 + 60 * step, **kept}))


def _prime_matrix(front: str, held: Sequence[Episode]) -> dict[str, float]:
    """Means over traces. An empty subset has no keys."""
    if not held:
        return {}
    tokens = float(np.mean([each.tokens for each in held]))
    return {
        f"{front}/num_output_tokens/mean": tokens,
        f"{front}/agent/num_output_tokens/mean": tokens,
        f"{front}/agent/reward/mean": float(np.mean([each.reward for each in held])),
        f"{front}/agent/rewards/correct/mean": float(np.mean([each.right for each in held])),
        f"{front}/agent/rewards/form/mean": float(np.mean([FORM * each.formed for each in held])),
        f"{front}/agent/is_truncated/mean": float(np.mean([each.cut for each in held])),
    }


def _prime_row(each: Episode, step: int, group: str, kind: str) -> Row:
    task = {"type": "Sums", "data": {"prompt": each.prompt, "answer": each.truth}, "key": f"sums-{group}"}
    thought, closed, answer = each.reply.removeprefix("<think>").partition("</think>")
    # The engine's parser takes the thought out of the reply. Without a closing tag all of it is thought.
    said = {"role": "assistant", "content": answer, "reasoning_content": thought}
    if not closed:
        said["content"] = ""
    trace = {
        "version": 1,
        "task": task,
        "agent": {"config": {}, "name": "agent", "trainable": True},
        "nodes": [
            {"message": {"role": "user", "content": each.prompt}, "sampled": False},
            {"parent": 0, "message": said, "sampled": True},
        ],
        "calls": [
            {
                "node": 1,
                "sampling": {"temperature": 1.0},
                "finish_reason": "length" if each.cut else "stop",
                "usage": {"prompt_tokens": 20, "completion_tokens": each.tokens},
            }
        ],
        "rewards": {"correct": {"score": each.right, "weight": 1.0}, "form": {"score": each.formed, "weight": FORM}},
        "metrics": {},
        "is_completed": True,
        "ok": True,
        "errors": [],
    }
    return {
        "env": {"id": "sums", "name": "sums"},
        "task": task,
        "group": {"id": group},
        # Generated asynchronously: dispatched one step before it is trained on.
        "run": {"type": "train", "id": "r", "work": {"type": kind, "step": max(1, step - (each.group % 2))}},
        "ok": True,
        "errors": [],
        "traces": [trace],
    }


# plain ----------------------------------------------------------------------------------------------------------------

PLAIN = {
    "reward": "reward", "reward_std": "reward_std", "entropy": "entropy", "kl": "kl", "grad_norm": "grad_norm",
    "loss": "loss", "learning_rate": "lr", "length": "response_length", "truncated": "truncated",
    "mismatch": "engine_kl", "validation": "eval/reward",
}  # fmt: skip


def plain(series: Series, seed: int, steps: int) -> Iterator[Written]:
    rng, names = np.random.default_rng([seed, 1]), ["step", *PLAIN.values()]
    yield Written("scalars.csv", (",".join(names) + "\n").encode())
    for step, drawn in enumerate(sampled(series, seed, steps)):
        rows = [
            {"step": step, "prompt": each.prompt, "completion": each.reply, "reward": each.reward,
             "success": each.right > 0}
            for each in episodes(series, drawn, rng)
        ]  # fmt: skip
        yield Written("rollouts.jsonl", b"".join(map(_line, rows)))
        row: Row = {"step": step, **_named(drawn.values, PLAIN)}
        yield Written("scalars.csv", (",".join(str(row.get(name, "")) for name in names) + "\n").encode())
        text = {name: "NaN" if math.isnan(value) else value for name, value in row.items()}
        yield Written("scalars.jsonl", _line(text))


class Layout(NamedTuple):
    """How a trainer writes, and what a user names."""

    written: Callable[[Series, int, int], Iterator[Written]]
    """Series, seed and number of steps -> all that is written, in order."""
    log: str
    """The rollouts, relative to the run's folder."""
    scalars: tuple[str, str]
    """The files of runs with an even and with an odd seed. `{steps}` stands for the last step."""
    map: tuple[str, ...] = ()
    origin: int = 1
    """The number of the first step."""


LAYOUTS: Mapping[str, Layout] = {
    "TRL": Layout(trl, ".", ("checkpoint-{steps}/trainer_state.json", "run.log")),
    "verl": Layout(verl, "rollouts", ("sums/tiny.jsonl", "console.txt")),
    "prime-rl": Layout(prime, ".", ("metrics.jsonl", "metrics.jsonl")),
    "plain": Layout(plain, "rollouts.jsonl", ("scalars.csv", "scalars.jsonl"), ("mismatch=engine_kl",), 0),
}


def write_run(folder: Path, layout: Layout, series: Series, seed: int, steps: int = 100) -> tuple[Path, Path]:
    """Write a whole run. Returns its rollouts and its scalars, as a user names them."""
    for path, content, append in layout.written(series, seed, steps):
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("ab" if append else "wb") as stream:
            stream.write(content)
    return folder / layout.log, folder / layout.scalars[seed % 2].format(steps=steps)
