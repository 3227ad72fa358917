"""Asynchronous collection against lock-step in slow environments: the same number of threads and the same episodes.

Both collectors play one step of FrozenLake's preset (16 tasks x 8 episodes, up to 5 turns) with one model. Each step of
an environment sleeps for log-normal seconds of mean 0.2. The seconds are drawn by task, member and turn, so they are
the same for both. The sampling noise is drawn per conversation, so both play the same episodes, token for token. This
is checked. Lock-step has as many threads for its environments as asynchronous collection. The two alternate in one
process, and each goes first in every second pair. Time of the model is part of every figure.

    python benchmarks/collecting.py --quick       # one pair of each, printed and not written
    python benchmarks/collecting.py               # 8 pairs of each, writes results/collecting.{json,md}
    python benchmarks/collecting.py --replay      # the policy sleeps instead of computing: see below
    python benchmarks/collecting.py --starts      # starts sleep like steps

On a shared machine the model takes longer than it should. With --replay the policy answers with recorded replies and
sleeps for their cost in CPU seconds. The cost has four parts: per call or join, per token step, per row of a step, and
per row that must be copied in a join. The first three are fitted to calls of all sizes. Each is the minimum of several
measurements.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import random
import statistics
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from pathlib import Path
from threading import Lock
from typing import Any

import torch
from scipy.optimize import nnls
from scipy.stats import t as student

from heedful.envs.common.tasks import evaluation_tasks
from heedful.models.chat.render import Renderer
from heedful.models.load import pick_device, stop_ids
from heedful.policies.hf import JOIN_EVERY, HFPolicy
from heedful.policies.kv import KVBatch, gather
from heedful.protocols import Episode
from heedful.rollout import Asynchronous, LockStep, Request
from heedful.rollout.player import Player
from heedful.run.config import TrainConfig
from heedful.run.parts import load_policy
from heedful.run.presets import preset
from heedful.types import Conversation, Group, Observation, Reply, Step, Task

RESULTS = Path(__file__).parent / "results"
MEAN_SECONDS = 0.2
Row = dict[str, Any]


@dataclass
class AtWork:
    """Thread-seconds that environments have taken."""

    seconds: float = 0.0
    lock: Lock = field(default_factory=Lock)


class SlowEnvironment:
    """FrozenLake with a sleep of the drawn time before every step."""

    def __init__(self, inner: Episode, sigma: float, repetition: int, at_work: AtWork, starts: bool) -> None:
        self._inner, self._sigma, self._repetition, self._at_work = inner, sigma, repetition, at_work
        self._starts = starts

    def start(self, task: Task, member: int) -> Observation:
        self._rng = random.Random(f"{self._repetition} {task.id} {member}")
        if self._starts:
            self._work()
        return self._inner.start(task, member)

    def step(self, response: str) -> Step:
        self._work()
        return self._inner.step(response)

    def _work(self) -> None:
        begun = time.perf_counter()
        time.sleep(self._rng.lognormvariate(math.log(MEAN_SECONDS) - self._sigma**2 / 2, self._sigma))
        with self._at_work.lock:
            self._at_work.seconds += time.perf_counter() - begun


@dataclass
class Passes:
    """Forward passes of one token per row."""

    count: int = 0
    rows: int = 0

    def add(self, rows: int) -> None:
        self.count += 1
        self.rows += rows


@contextmanager
def counted(passes: Passes) -> Iterator[None]:
    """Counts the token steps of the model."""
    extend = KVBatch.extend

    def noted(self: KVBatch, new_BT: torch.Tensor) -> None:
        if new_BT.shape[1] == 1:
            passes.add(int(new_BT.sum()))
        extend(self, new_BT)

    KVBatch.extend = noted  # type: ignore[method-assign]
    try:
        yield
    finally:
        KVBatch.extend = extend  # type: ignore[method-assign]


@dataclass(frozen=True)
class Call:
    """One call of the policy."""

    steps: int
    """Tokens of the longest reply."""
    tokens: int
    """Tokens of all replies."""
    cpu: float


@dataclass(frozen=True)
class Costs:
    """CPU seconds of the model."""

    call: float
    """Cost of a call or a join: reading the new text, and copying caches."""
    step: float
    row: float
    """Cost of a row in a step."""
    joined: float
    """Cost of each active row when others join, because the row is copied."""


class Timed:
    """A policy that answers batch by batch, and records its time."""

    parallel = 1
    draws_together = False

    def __init__(self, policy: Any) -> None:
        self._policy = policy
        self.temperature, self.version, self.keep = policy.temperature, policy.version, policy.keep
        self.calls: list[Call] = []
        self.sampling = 0.0
        self.cpu = 0.0

    def respond(self, conversations: Sequence[Conversation]) -> list[Reply]:
        wall, cpu = time.perf_counter(), time.thread_time()
        replies = self._policy.respond(conversations)
        self.sampling += time.perf_counter() - wall
        cpu = time.thread_time() - cpu
        self.cpu += cpu
        lengths = [len(reply.ids) for reply in replies]
        self.calls.append(Call(max(lengths), sum(lengths), cpu))
        return replies


class TimedJoining(Timed):
    """A policy that lets conversations join a running batch, and records its time."""

    def serve(
        self, arrivals: Callable[[bool], Sequence[Conversation]], hand_over: Callable[[str, Reply], None]
    ) -> None:
        wall, cpu, waited = time.perf_counter(), time.thread_time(), 0.0

        def noted(wait: bool) -> Sequence[Conversation]:
            nonlocal waited
            begun = time.perf_counter()
            came = arrivals(wait)
            waited += time.perf_counter() - begun
            return came

        self._policy.serve(noted, hand_over)
        self.sampling += time.perf_counter() - wall - waited
        self.cpu += time.thread_time() - cpu


class Recorded:
    """A policy that sleeps for the cost of a recorded reply and then returns it."""

    version = 0

    def __init__(self, replies: dict[tuple[str, int], Reply], costs: Costs, temperature: float) -> None:
        self._replies, self._costs = replies, costs
        self.temperature = temperature
        self.passes = Passes()

    def keep(self, keys: Collection[str]) -> None:
        """Nothing is cached."""

    def respond(self, conversations: Sequence[Conversation]) -> list[Reply]:
        replies = [self._replies[conversation.key, conversation.turn] for conversation in conversations]
        lengths = [len(reply.ids) for reply in replies]
        for step in range(max(lengths)):
            self.passes.add(sum(length > step for length in lengths))
        time.sleep(self._costs.call + self._costs.step * max(lengths) + self._costs.row * sum(lengths))
        return replies

    def serve(
        self, arrivals: Callable[[bool], Sequence[Conversation]], hand_over: Callable[[str, Reply], None]
    ) -> None:
        growing: dict[str, tuple[int, Reply]] = {}
        while (came := arrivals(not growing)) or growing:
            if came:
                time.sleep(self._costs.call + self._costs.joined * len(growing))
            for conversation in came:
                growing[conversation.key] = 0, self._replies[conversation.key, conversation.turn]
            for _ in range(JOIN_EVERY if growing else 0):
                self.passes.add(len(growing))
                time.sleep(self._costs.step + self._costs.row * len(growing))
                for key, (done, reply) in list(growing.items()):
                    growing[key] = done + 1, reply
                    if done + 1 == len(reply.ids):
                        del growing[key]
                        hand_over(key, reply)


@dataclass
class Bench:
    """One model, one batch of tasks, and the settings of their collections."""

    config: TrainConfig
    tasks: list[Task]
    model: Any
    renderer: Renderer
    starts: bool
    """Starts sleep like steps."""
    recorded: Recorded | None = None
    expected: list[Group] = field(default_factory=list)

    def policy(self, limit: int | None = None) -> Any:
        """`limit`: maximum tokens of a reply, if not the preset's."""
        if self.recorded is not None:
            return self.recorded
        sampling = Asynchronous().sampling(self.config.sampling)
        limited = replace(sampling, tokens_per_turn=limit or sampling.tokens_per_turn)
        return HFPolicy(self.model, self.renderer, limited, seed=0, version=0)

    def play(self, collector: LockStep | Asynchronous, sigma: float, repetition: int) -> Row:
        """One collection and its times."""
        policy, at_work, env = self.policy(), AtWork(), self.config.env
        timed, passes = TimedJoining(policy), Passes()
        policy.passes = passes
        with counted(passes):
            begun = time.perf_counter()
            groups = collector(
                timed,
                Request(
                    lambda: SlowEnvironment(env.episode(), sigma, repetition, at_work, self.starts),
                    self.tasks,
                    self.config.group_size,
                    env.turns,
                ),
            )
            wall = time.perf_counter() - begun
        return {
            "wall": wall,
            "sampling": timed.sampling,
            "sampling_cpu": timed.cpu,
            "waiting": wall - timed.sampling,
            "steps": passes.count,
            "batch": passes.rows / max(1, passes.count),
            "idle": 1 - at_work.seconds / (wall * collector.threads),
            "differing": self._differing(groups),
        }

    def _differing(self, groups: list[Group]) -> int:
        """Number of replies with other tokens than in the first collection."""
        self.expected = self.expected or groups
        return sum(ids != its for ids, its in zip(_replies(groups), _replies(self.expected), strict=False))


def _replies(groups: Sequence[Group]) -> list[tuple[int, ...]]:
    return [turn.reply.ids for group in groups for one in group.trajectories for turn in one.turns]


def record(bench: Bench) -> Costs:
    """Costs of the model in CPU seconds, the minimum of several calls of each size. Later calls sleep for them.

    The replies are those of the collection that was played before.
    """
    begun = [Player(bench.config.env.episode(), task, member, 5) for task in bench.tasks for member in range(8)]
    asked = [episode.conversation for episode in begun]
    weights, seconds = [], []
    # Replies of one token are included: without them the cost of a call and the cost of a step are not identifiable.
    for size, limit in product((1, 2, 4, 8, 16, 32, 64, 128), (1, 8, bench.config.sampling.tokens_per_turn)):
        calls = [Timed(bench.policy(limit)) for _ in range(3)]
        for timed in calls:
            timed.respond(asked[:: 128 // size])
        best = min((timed.calls[0] for timed in calls), key=lambda call: call.cpu)
        # Divided by the measured time, so that small calls are fitted as well as large ones.
        weights.append([1 / best.cpu, best.steps / best.cpu, best.tokens / best.cpu])
        seconds.append(1.0)
    call, step, row = (float(cost) for cost in nnls(weights, seconds)[0])
    replies = {
        (f"{group.task.id}/{one.member}", number): turn.reply
        for group in bench.expected
        for one in group.trajectories
        for number, turn in enumerate(one.turns)
    }
    costs = Costs(call, step, row, _cost_of_joining(bench, asked))
    bench.recorded = Recorded(replies, costs, bench.config.sampling.temperature)
    return costs


def _cost_of_joining(bench: Bench, asked: Sequence[Conversation]) -> float:
    """CPU seconds to copy one row of a batch, as in a join."""
    policy = bench.policy()
    with torch.inference_mode():
        growing = policy._growing()
        growing.join([policy._row(conversation) for conversation in asked[:64]])
        places, room = [(growing._batch, row) for row in range(64)], bench.config.sampling.tokens_per_turn
        best = math.inf
        for _ in range(5):
            cpu = time.thread_time()
            gather(places, room)
            best = min(best, time.thread_time() - cpu)
    return best / 64


def compare(bench: Bench, sigma: float, threads: int, pairs: int) -> Row:
    """Both collectors, alternating."""
    arms = {"lock_step": LockStep(threads), "async": Asynchronous(threads)}
    found: dict[str, list[Row]] = {name: [] for name in arms}
    for pair in range(pairs):
        for name in list(arms) if pair % 2 == 0 else reversed(list(arms)):
            found[name].append(bench.play(arms[name], sigma, pair))
    ratios = [one["wall"] / other["wall"] for one, other in zip(found["lock_step"], found["async"], strict=True)]
    row: Row = {"sigma": sigma, "threads": threads, "pairs": pairs, "ratios": [round(ratio, 3) for ratio in ratios]}
    row |= dict(zip(("ratio", "low", "high"), (round(value, 3) for value in interval(ratios)), strict=True))
    for name, rows in found.items():
        row[name] = {key: round(statistics.fmean(each[key] for each in rows), 4) for key in rows[0]}
    return row


def interval(ratios: Sequence[float]) -> tuple[float, float, float]:
    """Geometric mean and its 95% interval by Student's t."""
    logs = [math.log(ratio) for ratio in ratios]
    mean = statistics.fmean(logs)
    if len(logs) < 2:
        return math.exp(mean), math.nan, math.nan
    half = float(student.ppf(0.975, len(logs) - 1)) * statistics.stdev(logs) / math.sqrt(len(logs))
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def main() -> None:
    arguments = _arguments()
    torch.set_num_threads(1)
    config = preset("frozen_lake")
    model, tokenizer = load_policy(config, pick_device("cpu"), lambda step, steps, loss: None)
    renderer = Renderer(tokenizer, config.tags, config.chat_options, stop_ids(model))
    bench = Bench(config, evaluation_tasks(config.env, "train", config.groups), model, renderer, arguments.starts)
    bench.play(LockStep(128), 0.1, 0)  # the first collection of a process is slow
    result: Row = {
        "benchmark": "collecting",
        "mode": ("replay" if arguments.replay else "live") + (", slow starts" if arguments.starts else ""),
        "episodes": config.groups * config.group_size,
        "replies": len(_replies(bench.expected)),
        "turns": config.env.turns,
        "versions": {"torch": torch.__version__, "python": platform.python_version()},
    }
    if arguments.replay:
        result["model_seconds"] = {name: round(value, 6) for name, value in asdict(record(bench)).items()}
        print(json.dumps(result["model_seconds"]))
    result["rows"] = []
    for sigma in arguments.sigmas:
        for threads in arguments.threads:
            result["rows"].append(compare(bench, sigma, threads, 1 if arguments.quick else arguments.pairs))
            print(json.dumps(result["rows"][-1]), flush=True)
    print(table(result))
    if arguments.out and not arguments.quick:
        _write(arguments.out, result)


def _write(path: Path, result: Row) -> None:
    """Store the result next to the one of the other mode, and write the page of both."""
    results = json.loads(path.read_text()) if path.exists() else {}
    results[result["mode"]] = result
    path.write_text(json.dumps(results, indent=1) + "\n")
    path.with_suffix(".md").write_text(page(results))


HEADINGS = (
    "sigma | threads | lock-step / async | wall | sampling | waiting for environments | token steps | "
    "conversations per step | threads idle"
)


def table(result: Row) -> str:
    """One line per setting, with lock-step and asynchronous figures."""
    lines = [f"| {HEADINGS} |", "|" + "---|" * 9]
    for row in result["rows"]:
        one, other = row["lock_step"], row["async"]
        cells = [f"{row['sigma']:g}", str(row["threads"])]
        cells.append(f"**{row['ratio']:.2f}** [{row['low']:.2f}, {row['high']:.2f}]")
        cells += [f"{one[key]:.2f} / {other[key]:.2f} s" for key in ("wall", "sampling", "waiting")]
        cells.append(f"{one['steps']:.0f} / {other['steps']:.0f}")
        cells.append(f"{one['batch']:.1f} / {other['batch']:.1f}")
        cells.append(f"{one['idle']:.0%} / {other['idle']:.0%}")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def page(results: dict[str, Row]) -> str:
    """The page in Markdown: the live and the replayed measurements."""
    some = next(iter(results.values()))
    parts = [
        "# Asynchronous collection and lock-step",
        "",
        "Written by `python benchmarks/collecting.py` and `python benchmarks/collecting.py --replay`.",
        "",
        f"- Both collectors play one step of the FrozenLake preset with its seedling: {some['episodes']} episodes of "
        f"up to {some['turns']} turns, {some['replies']} replies. The model has one CPU thread.",
        "- Each environment step sleeps for log-normal seconds of mean 0.2. The first column is the sigma of the "
        "logarithm. The seconds are drawn by task, member and turn, so both collectors have the same ones and play the "
        "same episodes.",
        "- Lock-step has as many threads for its environments as asynchronous collection. The two alternate in one "
        "process.",
        "- Ratios of wall time include the model. They are geometric means with Student's 95% intervals over the pairs "
        "of a setting.",
        "- The other columns are means, lock-step / async. Waiting is the time in which the policy had no conversation "
        "to answer.",
    ]
    for mode, result in sorted(results.items()):
        live = mode.startswith("live")
        title = "## With the model" if live else "## With recorded model times"
        parts += ["", title + (", starts as slow as steps" if "starts" in mode else ""), ""]
        if live:
            cpu = [
                statistics.fmean(row[arm]["sampling_cpu"] for row in result["rows"]) for arm in ("lock_step", "async")
            ]
            parts.append(
                "Other work ran on the machine. The column sampling is wall time, for which the model took "
                f"{cpu[0]:.2f} / {cpu[1]:.2f} s of CPU time. If the wall time is much longer than the CPU "
                "time, the model was the bottleneck and async cannot be faster."
            )
        else:
            cost = {name: 1000 * value for name, value in result["model_seconds"].items()}
            parts.append(
                "The policy sleeps for the model's time, measured as CPU time: "
                f"{cost['call']:.1f} ms for each call or join, {cost['step']:.2f} ms for each token step, "
                f"{cost['row']:.3f} ms for each row in it, and {cost['joined']:.3f} ms for each row that is copied in "
                "a join. So other work on the machine is not in these figures."
            )
        differing = sum(
            row[arm]["differing"] * row["pairs"] for row in result["rows"] for arm in ("lock_step", "async")
        )
        parts += ["", f"Pairs of collections of each setting: {result['rows'][0]['pairs']}."]
        played = sum(2 * row["pairs"] * result["replies"] for row in result["rows"])
        parts += [
            "",
            table(result),
            "",
            f"Replies that differed between any two collections: {differing:.0f} of {played}.",
        ]
    return "\n".join(parts) + "\n"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one pair of each, printed and not written")
    parser.add_argument("--replay", action="store_true", help="sleep the model's recorded time")
    parser.add_argument("--starts", action="store_true", help="starts sleep like steps")
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--sigmas", type=float, nargs="+", default=[0.5, 1.0])
    parser.add_argument("--threads", type=int, nargs="+", default=[8, 32, 128])
    parser.add_argument("--out", type=Path, default=RESULTS / "collecting.json")
    return parser.parse_args()


if __name__ == "__main__":
    main()
