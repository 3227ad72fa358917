"""Damaged files and messages: each reader reads what it can, or refuses in a sentence. None raises anything else."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from little_room import little_room

pytest.importorskip("transformers")

from mutations import damaged_bytes, damaged_json
from server_answers import ANSWERS

import heedful
from auditing import foreign_logs
from heedful.auditing import AuditSettings, open_log
from heedful.auditing.logs.files import rows_of
from heedful.auditing.logs.records import Faults
from heedful.auditing.steps import StepStream
from heedful.boundary import to_json
from heedful.boundary.jsontext import parse_json
from heedful.envs.toys.echo import Echo
from heedful.envs.transport.wire import (
    WireError,
    decode,
    observation_tree,
    read_observation,
    read_step,
    read_task,
    step_tree,
    task_tree,
)
from heedful.run.checkpoint import Checkpoint
from heedful.run.config import TrainConfig
from heedful.storage import read_metrics, read_rollouts, read_scores
from heedful.studies import find_study
from heedful.studies.declaration import read_study, study_to_json
from heedful.types import Ending, Observation, Step
from patience import TooLong, within_cpu_seconds

OLD = Path(__file__).parents[1] / "fixtures" / "run_of_0_1_0"

Read = Callable[[Path], object]
Damage = Callable[[bytes, random.Random], bytes]


def lines(content: bytes, rng: random.Random) -> bytes:
    return damaged_json(content, rng, lines=True)


@dataclass(frozen=True)
class Target:
    """One kind of file: a good one, its damage, its reader, and the cases of the proof."""

    good: bytes
    damage: Damage
    read: Read
    cases: int
    name: str = "file"
    refusal: tuple[type[Exception], ...] = (ValueError, OSError)


def as_lines(rows: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def audited(path: Path) -> None:
    """Read a log to its end, as an audit does before it measures."""
    log = open_log(path, AuditSettings())
    faults = Faults()
    for file in log.files.files:
        for step in StepStream(log.reader.episodes(rows_of(file, faults, lambda more: None), faults), faults):
            assert step.episodes


def message(read: Callable[[Any], object]) -> Read:
    return lambda path: read(decode(path.read_bytes()))


def answer(read: Callable[[Any], object]) -> Read:
    """Read an answer of an inference server, whose NaN and infinities are no JSON."""

    def refused(constant: str) -> float:
        raise ValueError(f"{constant} is no number of JSON")

    return lambda path: read(parse_json(path.read_bytes(), constant=refused))


LOGS: dict[str, list[dict[str, Any]]] = {
    "verl": foreign_logs.verl_rows(1),
    "trl": foreign_logs.trl_rows(1),
    "ragen": foreign_logs.ragen_rows(),
    "verifiers traces": foreign_logs.trace_rows(),
    "verifiers results": foreign_logs.result_rows(),
    "heedful": foreign_logs.plain_rows(),
}


def targets() -> dict[str, Target]:
    config = json.dumps(to_json(TrainConfig())).encode()
    study = json.dumps(study_to_json(find_study("smoke"))).encode()
    metrics = (OLD / "metrics.jsonl").read_bytes()
    rollouts = next((OLD / "rollouts").glob("step_000000.parquet")).read_bytes()
    scores = next((OLD / "scores").glob("*.npz")).read_bytes()
    task = json.dumps(task_tree(Echo().task(3))).encode()
    step = Step(Observation("on", "all of it"), {"a": 0.5}, Ending.SOLVED, 1.0, actions=("up",), effect="x", state="s")
    return {
        **{f"log of {name}": Target(as_lines(rows), lines, audited, 6_000, "log.jsonl") for name, rows in LOGS.items()},
        "rollouts": Target(rollouts, damaged_bytes, read_rollouts, 4_000, "step_000000.parquet"),
        "rollouts as a log": Target(rollouts, damaged_bytes, audited, 2_000, "step_000000.parquet"),
        "metrics": Target(metrics, lines, read_metrics, 8_000, "metrics.jsonl"),
        "scores": Target(scores, damaged_bytes, read_scores, 4_000, "step_000000.npz"),
        "configuration": Target(config, damaged_json, lambda path: heedful.Run.open(path.parent), 8_000, "config.json"),
        "study": Target(study, damaged_json, read_study, 4_000, "study.json"),
        "state": Target(
            b'{"version": 2, "steps": [1, 2], "tasks": {"a": [0.5, 3]}}',
            damaged_json,
            lambda path: Checkpoint(path.parent, 2).state(),
            10_000,
            "state.json",
        ),
        "wire: task": Target(task, damaged_json, message(read_task), 10_000, refusal=(WireError,)),
        "wire: step": Target(
            json.dumps(step_tree(step)).encode(), damaged_json, message(read_step), 10_000, refusal=(WireError,)
        ),
        "wire: observation": Target(
            json.dumps(observation_tree(Observation("on", "all"))).encode(),
            damaged_json,
            message(read_observation),
            10_000,
            refusal=(WireError,),
        ),
        **{
            f"server: {name}": Target(json.dumps(good).encode(), damaged_json, answer(read), 4_000)
            for name, (good, read) in ANSWERS.items()
        },
    }


TARGETS = targets()


LONGEST = 20.0
"""CPU seconds of a case."""


def faults_of(target: Target, folder: Path, cases: int, seed: str) -> list[str]:
    """What went wrong: errors that are no refusal, refusals without a sentence, and cases without end or bound."""
    rng, found = random.Random(seed), []
    path = folder / target.name
    with little_room():
        for case in range(cases):
            content = target.damage(target.good, rng)
            path.write_bytes(content)
            try:
                with within_cpu_seconds(LONGEST):
                    target.read(path)
            except target.refusal as refusal:
                if len(str(refusal).split()) < 4:
                    found.append(f"case {case}: {type(refusal).__name__}: {refusal} for {content[:300]!r}")
            except (Exception, TooLong) as error:
                found.append(f"case {case}: {type(error).__name__}: {error} for {content[:300]!r}")
    return found


@pytest.mark.parametrize("name", TARGETS)
def test_a_damaged_file_is_read_or_refused_in_a_sentence(name: str, tmp_path: Path) -> None:
    target = TARGETS[name]
    (tmp_path / target.name).write_bytes(target.good)
    target.read(tmp_path / target.name)  # the good one is read
    assert faults_of(target, tmp_path, 40, f"quick {name}") == []


@pytest.mark.proof
@pytest.mark.parametrize("name", TARGETS)
def test_a_hundred_thousand_damaged_files_are_read_or_refused_in_a_sentence(
    name: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    target = TARGETS[name]
    record_property("cases", target.cases)
    assert faults_of(target, tmp_path, target.cases, f"full {name}") == []
