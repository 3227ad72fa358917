"""Real verl with one worker: a run that is killed and resumed, and updates that are compared with verl's own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from verl_checks import (
    compare_scores,
    compare_updates,
    groups_of,
    kept_keys,
    metrics_of,
    real,
    steps_of,
    values_of,
    watch,
    whole_mini_batch,
    without_heedful,
)

from heedful_verl.batch.limits import COUNTED

pytestmark = pytest.mark.verl

HERE = Path(__file__).parent
STEPS, KILLED_IN = 8, 4
"""Checkpoints follow every second step, so the resumed run begins with step 3."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tiny_verl import make_folder

    return make_folder(tmp_path_factory.mktemp("verl"))


@pytest.fixture(scope="module")
def killed(folder: Path) -> dict[str, Any]:
    """What a run left that was killed in the update of step 4."""
    command = [sys.executable, "-P", str(HERE / "verl_child.py"), str(folder), str(KILLED_IN)]
    with (folder / "child.log").open("w") as log:
        ended = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=False, timeout=900)
    record = folder / "checkpoints" / "heedful"
    return {
        "code": ended.returncode,
        "log": (folder / "child.log").read_text(encoding="utf-8", errors="replace"),
        "steps": steps_of(record),
        "metrics": metrics_of(record),
    }


@pytest.fixture(scope="module")
def session(folder: Path, killed: dict[str, Any]) -> Iterator[Any]:
    """The resumed run, after its last step."""
    from cpu_session import composed, ray_and_queue, trainer_of
    from tiny_verl import overrides, store

    from conftest import ENVIRONMENT

    more = ["trainer.save_freq=2", "trainer.resume_mode=auto", f"trainer.rollout_data_dir={folder}/dump"]
    config = composed(overrides(folder, 1, "heedful_sync", STEPS, *more))
    with ray_and_queue(config, ENVIRONMENT, 1):
        trainer, manager = trainer_of(config)
        trainer.replay_buffer.poll_interval = 0.2
        seen = watch(trainer)
        trainer.fit(manager)
        session = store(trainer, manager, folder)
        session.seen = seen
        yield session


def test_a_killed_run_dies_in_the_middle_of_a_step(killed: dict[str, Any]) -> None:
    assert killed["code"] == -signal.SIGKILL, killed["log"][-3000:]
    assert killed["steps"] == [0, 1, 2, 3]  # the batch of step 4 was observed, and its update never ended


def test_a_resumed_run_continues_the_record_from_the_checkpoint(session: Any, killed: dict[str, Any]) -> None:
    record = session.folder / "checkpoints" / "heedful"
    assert steps_of(record) == list(range(STEPS))
    assert metrics_of(record)[:2] == killed["metrics"][:2]
    assert not (session.folder / "checkpoints" / "heedful-2").exists()


def test_dropped_groups_leave_before_the_update(session: Any) -> None:
    for step in session.seen:
        groups = {key.split("_")[0] for key in step["before"]}
        kept = {key.split("_")[0] for key in step["real"]}
        assert 0 < len(kept) <= len(groups) - 2  # two prompts of eight pay every reply alike
        assert step["update"] == step["after"]


def test_a_trainer_under_our_name_is_synchronous_for_verl(session: Any) -> None:
    from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

    assert type(session.trainer.replay_buffer) is ReplayBuffer
    assert session.trainer.trainer_mode == "sync"


def test_metrics_reach_verls_trackers_and_the_record(session: Any) -> None:
    assert session.seen[0]["metrics"]["filter/kept_ratio"] <= 0.75
    record = session.folder / "checkpoints" / "heedful"
    for name in ("information/first_turn/mi", "retrieval/first_turn/accuracy"):
        assert len(values_of(record, name)) == STEPS // 2  # every second step
        assert None not in values_of(record, name)
    assert len(values_of(record, "success/rate")) == STEPS
    assert values_of(record, "signal/stale") == [0.0] * STEPS


def test_own_scores_equal_those_of_hf_scorer_and_of_the_sampler(session: Any) -> None:
    compare_scores(session)


@pytest.mark.parametrize("mode", ["token-mean", "token-sum", *COUNTED])
def test_the_update_equals_that_of_a_batch_without_the_dropped_rows(session: Any, mode: str) -> None:
    compare_updates(session, mode)


def test_verl_alone_shrinks_the_update_of_a_filled_batch(session: Any) -> None:
    """What `counted_loss` corrects: without it, the means over rows count the rows that verl adds."""
    from tiny_verl import distance

    session.set_loss("seq-mean-token-mean", counted=False)
    change, _, batch = session.update(session.batch(), session.trainer._balance_batch)
    expected = without_heedful(session, "seq-mean-token-mean", kept_keys(session))
    factor = len(real(batch)) / len(batch.keys)
    assert factor < 0.8
    assert distance(change, {name: values * factor for name, values in expected.items()}) < 1e-3


def test_keep_all_gives_the_bytes_of_plain_verl(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from tiny_verl import same
    from verl.trainer.ppo.v1 import PPOTrainer

    from heedful.filters import KeepAll

    session.set_loss("token-mean", counted=False)
    trainer = session.trainer
    plain, _, _ = session.update(session.batch(), partial(PPOTrainer._balance_batch, trainer))
    monkeypatch.setattr(trainer, "_filter", KeepAll(on="reward"))
    monkeypatch.setattr(trainer.observer, "chooses", KeepAll(on="reward"))
    monkeypatch.setattr(trainer, "drops", False)
    ours, _, _ = session.update(session.batch(), trainer._balance_batch)
    assert same(ours, plain)
    assert any(abs(values).max() > 0 for values in plain.values())


@pytest.mark.parametrize("mode", ["token-mean", "seq-mean-token-mean"])
def test_a_filter_that_keeps_every_group_gives_the_bytes_of_plain_verl(session: Any, mode: str) -> None:
    from tiny_verl import same

    keys = kept_keys(session)
    plain = without_heedful(session, mode, keys)
    session.set_loss(mode, counted=True)
    with whole_mini_batch(session, groups_of(keys)):
        ours, metrics, _ = session.update(session.batch(keys), session.trainer._balance_batch)
    assert metrics["filter/kept_ratio"] == 1
    assert same(ours, plain)


def test_nothing_kept_leaves_the_weights_untouched(session: Any) -> None:
    keys = [key for key in session.stored["keys"] if key not in kept_keys(session)]
    session.set_loss("seq-mean-token-mean", counted=True)
    change, metrics, batch = session.update(session.batch(keys), session.trainer._balance_batch)
    assert all((values == 0).all() for values in change.values())
    assert metrics["filter/empty"] == 1
    assert set(real(batch)) != set()  # verl's own metrics of the batch are still defined


def test_one_kept_group_is_an_update(session: Any) -> None:
    kept = kept_keys(session)
    one = [key for key in kept if key.split("_")[0] == kept[0].split("_")[0]]
    constant = [key for key in session.stored["keys"] if key not in kept]
    session.set_loss("seq-mean-token-sum", counted=True)
    change, metrics, batch = session.update(session.batch([*constant, *one]), session.trainer._balance_batch)
    assert metrics["filter/kept_groups"] == 1
    assert len(real(batch)) == len(one)
    assert any((values != 0).any() for values in change.values())


def test_a_group_with_a_failed_session_goes_on_without_it(session: Any) -> None:
    kept = kept_keys(session)
    uid = kept[0].split("_")[0]
    short = [key for key in kept if key != f"{uid}_3_0"]
    session.set_loss("token-mean", counted=True)
    _, metrics, batch = session.update(session.batch(short), session.trainer._balance_batch)
    assert len(real(batch)) in (len(short), len(short) - 3)  # three members may all be alike
    assert metrics["filter/kept_ratio"] > 0


def test_a_resumed_checkpoint_holds_the_state_of_the_measurements(session: Any) -> None:
    saved = session.folder / "checkpoints" / f"global_step_{STEPS}" / "heedful.json"
    state = json.loads(saved.read_text(encoding="utf-8"))
    assert state["generation"] == STEPS
    assert state["folder"] == "heedful"


def test_audit_reads_the_record(session: Any) -> None:
    command = [sys.executable, "-P", "-m", "heedful", "audit", str(session.folder / "checkpoints" / "heedful")]
    ended = subprocess.run(command, cwd=session.folder, capture_output=True, text=True, check=False, timeout=300)
    assert ended.returncode == 0, ended.stderr
    assert f"{STEPS} steps" in ended.stdout
