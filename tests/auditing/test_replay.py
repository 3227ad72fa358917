"""A watch ends in the bytes of an audit, however the log came and however often the watch was killed.

All is played in this process: whenever the watch waits, a trainer writes some bytes more.
"""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from pathlib import Path

import foreign_logs as logs
import pyarrow
import pyarrow.parquet
import pytest
from trainers import SETTINGS, Files, Killed, Trainer, as_lines, watch

from heedful.auditing import measure_log, open_log
from heedful.report import page as page_module


def as_parquet(rows: list[logs.Row]) -> bytes:
    stream = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), stream)
    return stream.getvalue()


def varied(rows: list[logs.Row], rng: random.Random, name: str) -> list[logs.Row]:
    return [{**row, name: float(rng.random() < 0.5)} for row in rows]


def trl(rng: random.Random) -> Files:
    return {
        f"log/completions/completions_{step:05d}.parquet": as_parquet(varied(logs.trl_rows(step), rng, "accuracy"))
        for step in range(1, 9)
    }


def verl(rng: random.Random) -> Files:
    return {f"log/{step}.jsonl": as_lines(varied(logs.verl_rows(step), rng, "score")) for step in range(7, 13)}


def plain(rng: random.Random) -> Files:
    """Steps whose rows overlap, and a column of success that shows late."""
    rows = [row for step in range(20) for row in logs.plain_rows(step)]
    places = sorted(range(len(rows)), key=lambda place: place + rng.choice([0, 0, 0, 9]))
    late = [{**rows[place], "solved": 1} if at > 80 else rows[place] for at, place in enumerate(places)]
    return {"log/mine.jsonl": as_lines([{key: row[key] for key in row if key != "success"} for row in late])}


def prime(rng: random.Random) -> Files:
    return {
        f"log/rollouts/step_{step}/train/all/traces.jsonl": as_lines(logs.trace_rows(step))
        for step in range(8, 8 + rng.randint(3, 6))
    }


def scalars(rng: random.Random) -> bytes:
    rows = [{"step": step, "reward": rng.random(), "loss": 0.5, "entropy": 1.0} for step in range(1, 24)]
    return as_lines([*rows[:9], {"step": 9, "eval_reward": 0.5}, *rows[9:]])


LOGS: dict[str, Callable[[random.Random], Files]] = {"TRL": trl, "verl": verl, "plain": plain, "prime-rl": prime}


def audited(root: Path, named: list[Path]) -> bytes:
    folder = measure_log(open_log(root / "log", SETTINGS, named), SETTINGS, root / "audited", [])
    return (folder / "metrics.jsonl").read_bytes()


@pytest.fixture(autouse=True)
def _no_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_module, "write_report", lambda folder: None)


@pytest.mark.parametrize("seed", [*range(12), *(pytest.param(seed, marks=pytest.mark.proof) for seed in range(12, 20))])
def test_a_watch_ends_in_the_bytes_of_an_audit(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    trainer = Trainer(root=tmp_path, rng=rng, kills=rng.choice([0, 1, 3]))
    files, sides = [*LOGS[[*LOGS][seed % 4]](rng).items()], rng.choice([1, 1, 1, 2])
    if rng.random() < 0.2:
        rng.shuffle(files)
    trainer.writers = [trainer.write(dict(files[side::sides])) for side in range(sides)]
    named = []
    if rng.random() < 0.6:
        named = [tmp_path / "scalars.jsonl"]
        trainer.writers.append(trainer.write({"scalars.jsonl": scalars(rng)}))
    (tmp_path / "log").mkdir()
    while trainer.ended is None:
        try:
            watch(tmp_path, trainer, scalars=named)
        except Killed:
            lines = tmp_path / "out" / "metrics.jsonl"
            if lines.exists() and rng.random() < 0.5:  # in the middle of a line
                lines.write_bytes(lines.read_bytes()[: -rng.randint(1, 400)])
    assert not trainer.writers
    assert (tmp_path / "out" / "metrics.jsonl").read_bytes() == audited(tmp_path, named)
