"""Runs, studies and audits that are killed at any file operation: resumed, they leave the bytes of one that was not."""

from __future__ import annotations

import json
import random
import shutil
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("transformers")

from faulty import Fault
from folders import differences
from running import Runner

KILLS = 50

SMALL = (
    "--seedling.steps 60 --seedling.hidden 48 --seedling.ffn 96 --filter keep_all --steps 3 --groups 3 --group-size 4 "
    "--checkpoint-every 1 --evaluation.tasks 4 --evaluation.samples 1 --evaluation.times 2 "
    "--evaluation.search-tasks 0 --diagnostics.every 1 --diagnostics.full-every 2 --optimizer.warmup-steps 2"
)
TO_THE_BYTE = "--collect async --collect.threads 3 --sampling.noise conversation --sampling.precision double"


@dataclass(frozen=True)
class Subject:
    """Something that can be killed, and what continues it."""

    start: str
    resume: str = "train --resume out"


SUBJECTS = {
    "echo": Subject(f"train echo --out out {SMALL}"),
    "bandit with workers": Subject(f"train bandit --out out {SMALL} --env-workers 2"),
    "chain in async": Subject(f"train chain --out out {SMALL} --env.turns 2 {TO_THE_BYTE}"),
    "ppo with a critic": Subject(f"train echo --out out {SMALL} --algorithm ppo"),
    "audit": Subject("audit log --out out --model model", "audit log --out out --model model"),
    "study": Subject("study study.json --out out --processes 1", "study study.json --out out --processes 1"),
}

STUDY = {
    "name": "killed",
    "question": "Does a filter change anything?",
    "seeds": [0],
    "arms": [
        {"name": "all", "job": {"type": "train", "preset": "echo", "flags": f"{SMALL} --steps 2"}},
        {"name": "some", "job": {"type": "train", "preset": "echo", "flags": f"{SMALL} --steps 2 --filter top_p"}},
    ],
    "pairs": [{"arm": "some", "control": "all"}],
    "measures": [{"title": "success", "metric": "success/rate"}],
}


@dataclass(frozen=True)
class Whole:
    """A folder in which the subject has run without a fault."""

    folder: Path
    moments: int


def write_log(folder: Path) -> None:
    """A log of verl: six steps of two prompts with three replies each."""
    folder.mkdir()
    for step in range(6):
        rows = [
            {
                "input": f"go to {prompt}",
                "output": f"<think>to {prompt}</think>{member}",
                "score": float(member == prompt),
            }
            for prompt in (1, 2)
            for member in (0, 1, 2)
        ]
        (folder / f"{step}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture(scope="module")
def prepared(heedful: Runner, seedling_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Makes folders in which the commands of a subject can be run."""

    def prepare(name: str) -> Path:
        folder = tmp_path_factory.mktemp(name.replace(" ", "-"))
        if name == "audit":
            write_log(folder / "log")
            shutil.copytree(seedling_folder, folder / "model")
        if name == "study":
            (folder / "study.json").write_text(json.dumps(STUDY))
        return folder

    return prepare


@pytest.fixture(scope="module")
def whole(heedful: Runner, prepared: Callable[[str], Path]) -> Callable[[str], Whole]:
    """The unkilled run of a subject. It is run once."""
    known: dict[str, Whole] = {}

    def run(name: str) -> Whole:
        if name not in known:
            heedful(SUBJECTS[name].start.split(), prepared(name))  # what is grown or compiled once is there from now on
            folder = prepared(name)
            ended = heedful(SUBJECTS[name].start.split(), folder)
            assert ended.code == 0, ended.said
            known[name] = Whole(folder, ended.moments)
        return known[name]

    return run


def after_a_kill(heedful: Runner, name: str, folder: Path, moment: int, whole: Path) -> str:
    """`equal`, or `named` where the resumed command ends in a sentence. Anything else fails."""
    killed = heedful(SUBJECTS[name].start.split(), folder, Fault("kill", moment, str(folder)))
    assert killed.code == -signal.SIGKILL, killed.said
    resumed = heedful(SUBJECTS[name].resume.split(), folder)
    if resumed.code == 0:
        assert not differences(whole, folder), f"{name}, killed at {moment}"
        return "equal"
    assert resumed.sentence, f"{name}, killed at {moment}: {resumed.said}"
    return "named"


def killed(
    heedful: Runner, name: str, count: int, prepare: Callable[[str], Path], whole: Callable[[str], Whole]
) -> Counter[str]:
    reference = whole(name)
    moments = random.Random(f"{name} {count}").choices(range(1, reference.moments + 1), k=count)
    return Counter(after_a_kill(heedful, name, prepare(name), moment, reference.folder) for moment in moments)


@pytest.mark.parametrize("name", ["ppo with a critic", "audit"])
def test_a_kill_costs_nothing(
    name: str, heedful: Runner, prepared: Callable[[str], Path], whole: Callable[[str], Whole]
) -> None:
    assert killed(heedful, name, 2, prepared, whole)["equal"] >= 1


@pytest.mark.proof
@pytest.mark.parametrize("name", SUBJECTS)
def test_whatever_is_killed_goes_on_to_the_same_bytes_or_says_why_not(
    name: str,
    heedful: Runner,
    prepared: Callable[[str], Path],
    whole: Callable[[str], Whole],
    record_property: Callable[[str, object], None],
) -> None:
    found = killed(heedful, name, KILLS, prepared, whole)
    record_property("cases", KILLS)
    record_property("found", f"{found['equal']} equal to the byte, {found['named']} ended in a sentence")
    assert found["equal"] >= KILLS * 3 // 4, "only a kill before the first file may have to begin again"
