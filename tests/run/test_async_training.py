"""Runs that collect asynchronously: what lock-step plays, to the byte in double precision, and resumed to the byte."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from test_loop import NO_EVALUATION, UNMEASURED, Trained, assert_the_same_run, same, trained, without_time  # noqa: E402

from heedful.algorithms.table import Dapo  # noqa: E402
from heedful.boundary import from_json, to_json  # noqa: E402
from heedful.envs.common.tasks import evaluation_tasks  # noqa: E402
from heedful.envs.toys.echo import Echo  # noqa: E402
from heedful.filters import KeepAll  # noqa: E402
from heedful.policies.sampling import Sampling  # noqa: E402
from heedful.policies.scripted import ScriptedPolicy  # noqa: E402
from heedful.rollout import Asynchronous, LockStep  # noqa: E402
from heedful.run import checkpoint, loop  # noqa: E402
from heedful.run.config import TrainConfig  # noqa: E402
from heedful.run.evaluation.held_out import Baselines, play_tasks  # noqa: E402
from heedful.storage import read_rollouts  # noqa: E402
from heedful.training.ranks.parallel import Fsdp2  # noqa: E402
from heedful.types import Metric  # noqa: E402
from slow_environments import AtWork, slow, up_to  # noqa: E402

OWN_NOISE = Sampling(tokens_per_turn=24, noise="conversation", precision="double")


@pytest.fixture(scope="module")
def config(echo_run: TrainConfig, seedling_folder: Path) -> TrainConfig:
    """The small run in two turns, whose replies do not depend on who is asked together, to the byte."""
    return replace(
        echo_run,
        env=Echo(instructions="brief", turns=2),
        model=str(seedling_folder),
        steps=2,
        checkpoint_every=1,
        sampling=OWN_NOISE,
        evaluation=replace(echo_run.evaluation, times=2),
    )


@pytest.fixture(autouse=True)
def _no_baselines(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search for the best fixed sequence plays thousands of episodes, in environments that are slow here."""
    nothing = Baselines(Metric("eval/val/random/success", 0.0), Metric("eval/val/fixed/success", 0.0), ())
    monkeypatch.setattr(loop, "measure_baselines", lambda *asked: nothing)


@pytest.fixture
def at_work(monkeypatch: pytest.MonkeyPatch) -> AtWork:
    """Echo takes up to 10 ms for each letter; counts who is at work."""
    noted = AtWork()
    make = Echo.episode

    class Quick:
        def __init__(self, env: Echo) -> None:
            self.episode = lambda: make(env)

    monkeypatch.setattr(Echo, "episode", lambda self: slow(Quick(self), up_to(0.01), noted.starts, noted)())
    return noted


def test_a_run_in_async_has_the_bytes_of_one_in_lock_step_and_resumes_with_them(
    config: TrainConfig, at_work: AtWork, tmp_path: Path
) -> None:
    lock_step = trained(config, tmp_path / "lock_step")
    assert at_work.most == 1
    asynchronous = replace(config, collect=Asynchronous(threads=6))
    whole = trained(asynchronous, tmp_path / "async")
    assert at_work.most == 6
    assert_the_same_run(lock_step.folder.path, whole.folder.path)
    middle = checkpoint.checkpoints(whole.folder.path / "checkpoints")[0]
    assert middle.version == 1
    rest = trained(asynchronous, tmp_path / "rest", middle)
    assert same(whole.weights, rest.weights)
    assert without_time(rest.folder.path) == without_time(whole.folder.path)[1:]
    assert rest.folder.rollouts(1).read_bytes() == whole.folder.rollouts(1).read_bytes()


def sampled_ids(run: Trained, step: int) -> list[tuple[int, ...]]:
    groups = read_rollouts(run.folder.rollouts(step)).groups
    return [turn.reply.ids for group in groups for trajectory in group.trajectories for turn in trajectory.turns]


def test_in_the_models_own_precision_the_first_episodes_are_the_same(
    config: TrainConfig, at_work: AtWork, tmp_path: Path
) -> None:
    single = replace(
        config,
        steps=1,
        sampling=replace(OWN_NOISE, precision="model"),
        evaluation=NO_EVALUATION,
        diagnostics=UNMEASURED,
    )
    lock_step = trained(single, tmp_path / "lock_step")
    found = trained(replace(single, collect=Asynchronous(6)), tmp_path / "async")
    ids, others = sampled_ids(lock_step, 0), sampled_ids(found, 0)
    # A tie of two tokens up to rounding may be broken otherwise: once in a million tokens.
    assert sum(one != other for one, other in zip(ids, others, strict=True)) <= 1
    assert max(error for error in found.watch.values["policy/logprob_error"] if error is not None) < 1e-4


def test_dynamic_sampling_refills_in_async_as_in_lock_step(
    config: TrainConfig, at_work: AtWork, tmp_path: Path
) -> None:
    dapo = replace(config, algorithm=Dapo(), filter=KeepAll(), groups=6, steps=1, evaluation=NO_EVALUATION)
    lock_step = trained(dapo, tmp_path / "lock_step")
    found = trained(replace(dapo, collect=Asynchronous(8)), tmp_path / "async")
    assert max(found.watch.values["filter/draws"]) > 1
    assert_the_same_run(lock_step.folder.path, found.folder.path)


def test_evaluations_are_played_by_the_collector_that_was_chosen(at_work: AtWork) -> None:
    env = Echo(instructions="brief", turns=2)
    tasks = evaluation_tasks(env, "val", 12)
    seeds: list[int] = []

    def policy_of(seed: int) -> ScriptedPolicy:
        seeds.append(seed)
        return ScriptedPolicy(lambda conversation: f"<answer>{conversation.messages[-1].content[-1]}</answer>")

    def play(**chosen: Any) -> Any:
        return play_tasks(policy_of, 5, env, tasks, samples=2, at_once=10, **chosen)

    expected = play()
    assert at_work.most == 1
    assert play(collect=Asynchronous(4)) == expected
    assert at_work.most == 4
    assert seeds[:3] == seeds[3:], "chunks have the same seeds"


def test_the_choice_is_part_of_the_configuration(echo_run: TrainConfig) -> None:
    chosen = replace(echo_run, collect=Asynchronous(threads=9))
    assert to_json(chosen)["collect"] == {"type": "async", "threads": 9}
    assert from_json(TrainConfig, to_json(chosen)) == chosen
    assert to_json(echo_run)["collect"] == {"type": "lock_step", "threads": 1}
    assert LockStep() == echo_run.collect


def test_settings_that_cannot_be_combined_are_refused(echo_run: TrainConfig) -> None:
    with pytest.raises(ValueError, match=r"--collect async .* leave --sampling.noise out"):
        replace(echo_run, collect=Asynchronous(), sampling=Sampling(noise="batch"))
    with pytest.raises(ValueError, match=r"a copy of it in float64 \(--sampling.precision double\) cannot work on"):
        replace(echo_run, sampling=OWN_NOISE, parallel=Fsdp2())
