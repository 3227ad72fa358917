"""The parts of updates in training and of stored steps: they change nothing, and a replay is the update itself."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from test_loop import trained, without_time  # noqa: E402

from heedful.algorithms.table import Grpo  # noqa: E402
from heedful.console import SafeConsole  # noqa: E402
from heedful.diagnostics.attribution import USUAL  # noqa: E402
from heedful.filters import KeepAll  # noqa: E402
from heedful.report.attribution import told  # noqa: E402
from heedful.run.attribution import attribute_update  # noqa: E402
from heedful.run.checkpoint import Checkpoint, checkpoints  # noqa: E402
from heedful.run.config import AttributionConfig, DiagnosticsConfig, EvaluationConfig, TrainConfig  # noqa: E402
from heedful.run.parts import assemble  # noqa: E402
from heedful.run.update import update_policy  # noqa: E402
from heedful.scorers.hf import HFScorer  # noqa: E402
from heedful.storage import RunFolder, read_gradients, read_metrics, read_rollouts, write_rollouts  # noqa: E402
from heedful.types import Group  # noqa: E402

SMALL = AttributionConfig(every=2, prompts=6, thoughts=2, blocks=3)


@pytest.fixture(scope="module")
def config(echo_run: TrainConfig) -> TrainConfig:
    return replace(
        echo_run,
        algorithm=Grpo(kl=0.05, entropy=0.05),
        filter=KeepAll(),
        sampling=replace(echo_run.sampling, temperature=2.0),  # thoughts that vary
        optimizer=replace(echo_run.optimizer, lr=1e-5),  # steps for which the first order is enough
        steps=3,
        evaluation=EvaluationConfig(times=0),
        diagnostics=DiagnosticsConfig(enabled=False),
        checkpoint_every=1,
        keep_checkpoints="all",
    )


@pytest.fixture(scope="module")
def plain(config: TrainConfig, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return trained(config, tmp_path_factory.mktemp("attribution") / "plain").folder


@pytest.mark.parametrize("moments", [False, True])
def test_a_run_whose_updates_are_split_is_the_same_run_to_the_byte(
    config: TrainConfig, plain: RunFolder, moments: bool, tmp_path: Path
) -> None:
    readings = USUAL if moments else (*USUAL, "right_by_thought", "greedy_success")
    asked = replace(SMALL, moments=moments, readings=readings)
    split = trained(replace(config, attribution=asked), tmp_path / "split").folder
    assert without_time(split.path, "attribution/") == without_time(plain.path)
    for one, other in zip(*(checkpoints(each.path / "checkpoints") for each in (plain, split)), strict=True):
        names = ("model.safetensors", "state.json") if moments else ("model.safetensors", "state.json", "learner.pt")
        assert all((one.path / name).read_bytes() == (other.path / name).read_bytes() for name in names)
    read = [line.metrics for line in read_metrics(split.metrics)]
    written = [{name for name in metrics if name.startswith("attribution/")} for metrics in read]
    kl = {f"attribution/{name}/kl" for name in USUAL}
    assert kl <= written[2] - written[0]  # at first the policy is its own reference
    assert written[1] == set()
    parts = read[2]["attribution/thought_entropy/total"], read[2]["attribution/thought_entropy/measured"]
    assert parts[0].value == pytest.approx(parts[1].value, rel=0.1)
    assert ("attribution/greedy_success/measured" in read[2]) is not moments
    assert split.attribution_steps() == [0, 2]
    carried = read[2]["attribution/thought_entropy/carried"].value / parts[0].value
    assert abs(carried) < 1e-4 if moments else abs(carried) > 0.1
    if moments:
        state = checkpoints(split.path / "checkpoints")[-1].learner_state()
        for place, found in enumerate(zip(*state["term_moments"].values(), strict=True)):
            whole = state["descent"]["optimizer"]["state"][place]["exp_avg"]
            assert torch.allclose(sum(found), whole, atol=1e-6 * float(whole.abs().max()))


def test_the_replay_of_a_stored_step_is_the_update_that_was(config: TrainConfig, plain: RunFolder) -> None:
    stored = read_rollouts(plain.rollouts(1))
    parts = assemble(config, lambda step, steps, loss: None, Checkpoint(plain.checkpoint(1), 1))
    update_policy(config, parts.learner, stored.groups, stored.verdicts or ())
    after = Checkpoint(plain.checkpoint(2), 2).model(torch.float32)
    assert all(torch.equal(one, other) for one, other in zip(parts.model.parameters(), after.parameters(), strict=True))


def attributed(folder: RunFolder, config: TrainConfig, step: int, asked: AttributionConfig = SMALL) -> Any:
    attribute_update(folder, config, step, asked, 0, SafeConsole(quiet=True))
    return read_gradients(folder.attribution(step))


def assert_split(found: Any, reading: str) -> None:
    """The parts of a reading add up to its total, which is near what was measured."""
    by_part = {
        name.rpartition("/")[2]: metric.value
        for name, metric in found.metrics.items()
        if name.startswith(f"attribution/{reading}/")
    }
    total, measured, before = (by_part.pop(name) for name in ("total", "measured", "before"))
    del by_part["explained"]
    assert set(by_part) >= {"carried", "kl", "entropy"}
    assert sum(by_part.values()) == pytest.approx(total, rel=1e-6)
    assert total == pytest.approx(measured, rel=0.1)
    assert before != 0


def test_a_stored_step_is_split_as_in_training(config: TrainConfig, plain: RunFolder, tmp_path: Path) -> None:
    folder = RunFolder(Path(shutil.copytree(plain.path, tmp_path / "copy")))
    found = attributed(folder, config, 1)
    assert_split(found, "thought_entropy")
    assert {one["reading"] for one in found.moved} <= {"success", "gap"}
    assert found.moved
    assert all(one["tokens"] for one in found.moved)


def test_each_stored_step_is_read_by_tasks_of_its_own(
    config: TrainConfig, plain: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, played = RunFolder(Path(shutil.copytree(plain.path, tmp_path / "copy"))), []

    def unplayed(*given: Any, **named: Any) -> Any:
        played.append({task.id for task in given[4]})
        raise ValueError("not played")

    monkeypatch.setattr("heedful.run.attribution.play_fresh", unplayed)
    for step in (1, 2, 1):
        with pytest.raises(ValueError, match="not played"):
            attributed(folder, config, step)
    assert played[0] == played[2] != played[1]


def test_right_by_thought_and_greedy_success_are_read_where_they_are_asked_for(
    config: TrainConfig, tmp_path: Path
) -> None:
    mild = replace(
        config,
        steps=2,
        sampling=replace(config.sampling, temperature=1.0),  # most replies act
        optimizer=replace(config.optimizer, lr=1e-6),  # blocks cancel nearly, so what is left of the second order shows
    )
    folder = trained(mild, tmp_path / "mild").folder
    asked = replace(SMALL, prompts=12, thoughts=4, foreign=3, readings=("right_by_thought", "greedy_success"))
    found = attributed(folder, mild, 1, asked)
    assert_split(found, "right_by_thought")
    others = {name for name in found.metrics if "/right_by_thought/" not in name}
    assert others == {"attribution/greedy_success/before", "attribution/greedy_success/measured"}
    assert 0 <= found.metric("attribution/greedy_success/before").value <= 1
    assert told(found)[1].startswith("Step 1, greedy success (mean outcome): changed by ")


def test_only_what_is_asked_for_is_read(
    config: TrainConfig, plain: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunFolder(Path(shutil.copytree(plain.path, tmp_path / "copy")))
    monkeypatch.setattr(HFScorer, "cross_score", None)  # thoughts are not scored
    found = attributed(folder, config, 1, replace(SMALL, readings=("success",)))
    assert {name.split("/")[1] for name in found.metrics} == {"success"}
    monkeypatch.undo()
    found = attributed(folder, config, 1, replace(SMALL, readings=("right_by_thought",)))
    why = "a block of fresh episodes has fewer than three prompts with a thought"
    assert {(metric.value, metric.why) for metric in found.metrics.values()} == {(None, why)}
    assert told(found)[0] == f"Step 1, right by thought: not read, because {why}."


def test_a_step_that_cannot_be_replayed_is_refused(config: TrainConfig, plain: RunFolder, tmp_path: Path) -> None:
    folder = RunFolder(Path(shutil.copytree(plain.path, tmp_path / "copy")))
    stored = read_rollouts(folder.rollouts(1))
    late = [
        Group(group.task, tuple(replace(one, policy_version=0) for one in group.trajectories))
        for group in stored.groups
    ]
    write_rollouts(folder.rollouts(1), 1, "train", late, stored.verdicts, "echo")
    with pytest.raises(ValueError, match=r"the weights of step 1 sampled in .*, found those of 0: their update cannot"):
        attributed(folder, config, 1)
    with pytest.raises(ValueError, match=r"Expected the episodes of step 3 in .*, found none"):
        attributed(folder, config, 3)


def test_a_finished_run_that_replays_is_told_what_can_still_be_done(config: TrainConfig, tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"--treat replay: .* heedful fork \S+ tries .* new run without --treat replay"
    ):
        attributed(RunFolder(tmp_path), replace(config, tasks=4, treat=("replay",)), 1)


def test_settings_that_cannot_work_are_refused() -> None:
    with pytest.raises(ValueError, match=r"at least 12, found 8"):
        AttributionConfig(prompts=8)
