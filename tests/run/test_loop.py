"""The whole loop: the same bytes from the same seed, after a kill too; nothing kept is no update; and it learns."""

from __future__ import annotations

import errno
import json
import random
import shutil
import signal
import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from typing import Any, Literal

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from heedful import cli  # noqa: E402
from heedful.algorithms.entropy_control import ConstantEntropy, EntropyTarget  # noqa: E402
from heedful.algorithms.table import Cispo, Grpo  # noqa: E402
from heedful.boundary import to_json  # noqa: E402
from heedful.diagnostics.actions.rightness import PARTS, WORTH_NAMES  # noqa: E402
from heedful.diagnostics.alarms.watch import Alarms  # noqa: E402
from heedful.envs.toys.echo import EchoEpisode  # noqa: E402
from heedful.filters import KeepAll, RandomSubset, TopP  # noqa: E402
from heedful.models.load import load_model  # noqa: E402
from heedful.run import checkpoint, loop, parts  # noqa: E402
from heedful.run.config import DiagnosticsConfig, EvaluationConfig, TrainConfig  # noqa: E402
from heedful.run.loop import Outcome, train_steps  # noqa: E402
from heedful.run.parts import Parts, assemble  # noqa: E402
from heedful.run.terminal import TerminalView  # noqa: E402
from heedful.run.train import Run, resume, train  # noqa: E402
from heedful.scorers.hf import HFScorer  # noqa: E402
from heedful.storage import DiskFull, RunFolder, read_early, read_metrics, read_rollouts  # noqa: E402
from heedful.storage.trackers import JsonlTracker  # noqa: E402
from heedful.training.settings import OptimizerConfig  # noqa: E402
from heedful.types import Metric, Task, Trajectory, Verdict  # noqa: E402
from tiny_models import llama  # noqa: E402

NO_EVALUATION = EvaluationConfig(times=0)
UNMEASURED = DiagnosticsConfig(enabled=False)


def silent(step: int, steps: int, loss: float) -> None:
    """Says nothing."""


@dataclass
class Watch:
    """Keeps what it is shown."""

    values: dict[str, list[Any]] = field(default_factory=dict)
    first: list[Trajectory] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def write(self, step: int, metrics: Sequence[Metric]) -> None:
        for metric in metrics:
            self.values.setdefault(metric.name, []).append(metric.value)

    def first_rollout(self, trajectory: Trajectory) -> None:
        self.first.append(trajectory)

    def note(self, sentence: str) -> None:
        self.notes.append(sentence)

    def close(self) -> None:
        """Nothing to close."""


@dataclass(frozen=True)
class KeepNothing:
    on: str = "outcome"
    share: float | None = None

    def __call__(self, values_PG: Sequence[Any], rng: random.Random) -> list[Verdict]:
        return [Verdict(0.0, "not_drawn", 0.25) for _ in values_PG]


@dataclass(frozen=True)
class Trained:
    folder: RunFolder
    parts: Parts
    watch: Watch
    outcome: Outcome

    @property
    def weights(self) -> dict[str, Any]:
        return {name: tensor.clone() for name, tensor in self.parts.model.state_dict().items()}


def trained(config: TrainConfig, path: Path, start: checkpoint.Checkpoint | None = None) -> Trained:
    parts, watch, folder = assemble(config, silent, start), Watch(), RunFolder.open(path)
    tracker = JsonlTracker(folder.metrics)
    outcome = train_steps(config, parts, folder, [tracker], watch)
    tracker.close()
    return Trained(folder, parts, watch, outcome)


def same(one: Any, other: Any) -> bool:
    """Whether two trees of tensors and plain values are equal bit for bit."""
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        return all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return torch.equal(one, other) if isinstance(one, torch.Tensor) else bool(one == other)


def seedling_weights(config: TrainConfig) -> dict[str, Any]:
    return assemble(config, silent, None).model.state_dict()


def without_time(folder: Path, *others: str) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl but for durations, and for names that begin with one of `others`."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for row in rows:
        del row["time"]
        left_out = ("time/", *others)
        row["metrics"] = {name: value for name, value in row["metrics"].items() if not name.startswith(left_out)}
    return rows


def assert_the_same_run(one: Path, other: Path) -> None:
    """Weights, optimizer, state, rollouts and cross-scores to the byte, metrics but for durations."""
    assert without_time(one) == without_time(other)
    for kind in ("rollouts", "scores"):
        names = [sorted(file.name for file in (run / kind).iterdir()) for run in (one, other)]
        assert names[0] == names[1]
        for name in names[0]:
            assert (one / kind / name).read_bytes() == (other / kind / name).read_bytes(), f"{kind}/{name}"
    found = [checkpoint.checkpoints(run / "checkpoints") for run in (one, other)]
    assert [entry.version for entry in found[0]] == [entry.version for entry in found[1]]
    for first, second in zip(*found, strict=True):
        assert (first.path / "model.safetensors").read_bytes() == (second.path / "model.safetensors").read_bytes()
        assert first.state() == second.state()
        states = [entry.learner_state()["descent"]["optimizer"]["state"] for entry in (first, second)]
        for key in states[0]:
            assert same(states[0][key], states[1][key])


def settings(config: TrainConfig, folder: Path) -> Path:
    path = folder / "settings.json"
    path.write_text(json.dumps(to_json(config)))
    return path


def command(config: TrainConfig, out: Path) -> list[str]:
    """`heedful train` with this configuration, from the command line's end."""
    out.parent.mkdir(parents=True, exist_ok=True)
    return ["train", "echo", "--config", str(settings(config, out.parent)), "--out", str(out)]


@pytest.fixture(scope="module")
def whole(echo_run: TrainConfig, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """The run that nothing disturbed, with its checkpoints. Do not write into it."""
    return trained(echo_run, tmp_path_factory.mktemp("whole") / "run")


# One seed, the same bytes ---------------------------------------------------------------------------------------------


def test_one_seed_gives_the_same_bytes_and_another_one_others(
    echo_run: TrainConfig, whole: Trained, tmp_path: Path
) -> None:
    torch.rand(4)
    trained(echo_run, tmp_path / "again")
    assert_the_same_run(whole.folder.path, tmp_path / "again")
    quick = replace(echo_run, steps=1, seed=1, evaluation=NO_EVALUATION, diagnostics=UNMEASURED)
    other = trained(quick, tmp_path / "other")
    assert read_rollouts(whole.folder.rollouts(0)).groups != read_rollouts(other.folder.rollouts(0)).groups


def test_weights_with_and_without_diagnostics_are_equal_bit_for_bit(echo_run: TrainConfig, tmp_path: Path) -> None:
    config = replace(echo_run, steps=3)
    measured = trained(replace(config, diagnostics=DiagnosticsConfig(every=1, full_every=1)), tmp_path / "measured")
    plain = trained(
        replace(config, diagnostics=UNMEASURED, evaluation=NO_EVALUATION, checkpoint_every=100), tmp_path / "plain"
    )
    assert "information/first_turn/mi" in measured.watch.values
    assert "information/first_turn/mi" not in plain.watch.values
    assert same(measured.weights, plain.weights)
    assert not same(measured.weights, seedling_weights(echo_run))


def test_the_calls_of_a_measurement_read_a_prompt_once() -> None:
    model, read = llama(50), list[tuple[int, ...]]()
    scorer = HFScorer(model)
    assert scorer.method == "packed"
    diagnostician, learner = SimpleNamespace(scorer=scorer), SimpleNamespace(whole=nullcontext)
    run: Any = SimpleNamespace(
        parts=SimpleNamespace(diagnostician=diagnostician, learner=learner), world=SimpleNamespace(is_rank_0=True)
    )
    model.model.register_forward_pre_hook(lambda _, __, named: read.append(named["input_ids"].shape), with_kwargs=True)
    for _ in range(2):
        with loop._Run._scoring(run) as asked:
            for _ in range(3):
                asked.cross_score([(1, 2, 3)], [(4,)], [0], 1.0)
    assert read == [(1, 3), (1, 3)]


def test_the_learner_sees_the_log_probabilities_of_the_sampler(whole: Trained) -> None:
    errors = whole.watch.values["policy/logprob_error"]
    read = [error for error in errors if error is not None]
    assert read
    assert max(read) < 1e-4


# A run that goes on; tests/faults kills runs --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"algorithm": Grpo(kl=0.05, kl_kind="k3")},
        {"tasks": 6, "filter": RandomSubset(), "loss_scale": "sqrt", "diagnostics": UNMEASURED},
        {"algorithm": Cispo(epochs=2), "filter": KeepAll(), "diagnostics": UNMEASURED},
    ],
    ids=["a reference model", "a pool of tasks and a random filter", "several epochs"],
)
def test_a_run_goes_on_from_a_checkpoint_as_if_nothing_had_been(
    echo_run: TrainConfig, tmp_path: Path, changes: dict[str, Any]
) -> None:
    config = replace(echo_run, steps=3, evaluation=NO_EVALUATION, **changes)
    whole = trained(config, tmp_path / "whole")
    middle = checkpoint.checkpoints(whole.folder.path / "checkpoints")[0]
    assert middle.version == 2
    rest = trained(config, tmp_path / "rest", middle)
    assert same(whole.weights, rest.weights)
    assert without_time(whole.folder.path)[2:] == without_time(rest.folder.path)
    assert rest.watch.first == []


def test_a_fork_goes_on_from_an_earlier_checkpoint_and_leaves_its_run_as_it_is(
    echo_run: TrainConfig, tmp_path: Path
) -> None:
    """Optimizer, order of tasks and alarms go on: without a change a fork has the bytes of its run."""
    run, other = tmp_path / "run", tmp_path / "fork"
    evaluation = EvaluationConfig(tasks=4, samples=2, times=2, search_tasks=4)
    train(replace(echo_run, steps=3, evaluation=evaluation, keep_checkpoints="all"), out=run, show=False)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert cli.run(["train", "--resume", str(run), "--checkpoint", "2", "--out", str(other)]) == 0
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    assert_the_same_run(run, other)
    assert (run / "config.json").read_bytes() == (other / "config.json").read_bytes()
    assert Run.open(other).verdict[0] == Run.open(run).verdict[0]
    changed = resume(run, checkpoint=2, out=tmp_path / "same", show=False)
    assert without_time(changed.path) == without_time(run)
    with pytest.raises(ValueError, match="Expected an empty or new folder"):
        resume(run, checkpoint=2, out=other, show=False)
    assert cli.run(["train", "echo", "--checkpoint", "2"]) == 2  # of no run


def test_knobs_typed_beside_a_resume_or_a_fork_leave_the_reference_and_the_seedling_as_they_were(
    echo_run: TrainConfig, tmp_path: Path, shared_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, other = tmp_path / "run", tmp_path / "fork"
    quick = replace(echo_run, steps=1, evaluation=NO_EVALUATION, diagnostics=UNMEASURED)
    first = replace(quick, algorithm=Grpo(kl=0.05))
    train(first, out=run, show=False)
    grown = set((shared_cache / "seedlings").iterdir())
    knobs = ["--env.turns", "2", "--tags.no-force", "--context.turns", "0"]
    words = ["--resume", str(run), "--checkpoint", "last", "--out", str(other), "--steps", "2"]
    assert cli.run(["train", *words, *knobs]) == 0
    assert cli.run(["train", "--resume", str(other), "--steps", "3"]) == 0  # again, now from a changed checkpoint
    assert set((shared_cache / "seedlings").iterdir()) == grown
    references, learner = [], parts.Learner
    with monkeypatch.context() as patch:
        patch.setattr(
            parts, "Learner", lambda *given, **named: references.append(named["reference"]) or learner(*given, **named)
        )
        went_on = assemble(Run.open(other).config, silent, checkpoint.checkpoints(other / "checkpoints")[-1])
    assert (went_on.env.turns, went_on.version) == (2, 3)
    assert same(references[0].state_dict(), seedling_weights(first))


# Ctrl-C ---------------------------------------------------------------------------------------------------------------


def interrupting(monkeypatch: pytest.MonkeyPatch, step: int, times: int = 1) -> None:
    """Ctrl-C in the terminal while this step is shown."""
    show = TerminalView.write

    def write(self: TerminalView, number: int, metrics: Sequence[Metric]) -> None:
        show(self, number, metrics)
        if number == step:
            for _ in range(times):
                signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(TerminalView, "write", write)


def test_ctrl_c_finishes_the_step_saves_and_says_how_to_go_on(
    echo_run: TrainConfig,
    whole: Trained,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = signal.getsignal(signal.SIGINT)
    out = tmp_path / "stopped"
    with monkeypatch.context() as patch:
        interrupting(patch, step=2)
        assert cli.run(command(echo_run, out)) == 130
    assert f"interrupted after step 3, saved; go on with: heedful train --resume {out}\n" in capsys.readouterr().out
    assert checkpoint.checkpoints(out / "checkpoints")[-1].version == 3
    assert [row["step"] for row in without_time(out)] == [0, 1, 2]
    assert signal.getsignal(signal.SIGINT) is before

    assert cli.run(["train", "--resume", str(out)]) == 0
    shown = capsys.readouterr().out
    assert f"resuming {out} after step 3 of 6" in shown
    assert_the_same_run(whole.folder.path, out)


def test_a_second_ctrl_c_stops_at_once(
    echo_run: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    interrupting(monkeypatch, step=2, times=2)
    config = replace(echo_run, evaluation=NO_EVALUATION, diagnostics=UNMEASURED)
    assert cli.run(command(config, tmp_path / "run")) == 130
    assert "interrupted at once" in capsys.readouterr().err
    assert checkpoint.checkpoints(tmp_path / "run" / "checkpoints")[-1].version == 2


def test_a_run_outside_the_main_thread_trains_too(echo_run: TrainConfig, tmp_path: Path) -> None:
    ended: list[Outcome] = []
    config = replace(echo_run, steps=1, evaluation=NO_EVALUATION)
    thread = threading.Thread(target=lambda: ended.append(trained(config, tmp_path / "run").outcome))
    thread.start()
    thread.join()
    assert ended == [Outcome(1, interrupted=False)]


# What a step does -----------------------------------------------------------------------------------------------------


def test_nothing_kept_is_no_update_and_the_run_goes_on(echo_run: TrainConfig, tmp_path: Path) -> None:
    optimizer = OptimizerConfig(lr=1e-3, weight_decay=0.1)
    config = replace(echo_run, steps=4, filter=KeepNothing(), optimizer=optimizer, diagnostics=UNMEASURED)
    run = trained(config, tmp_path / "run")
    assert same(run.weights, seedling_weights(config))
    assert run.parts.learner.state_dict()["descent"]["steps"] == run.parts.learner.updates == 0
    values = run.watch.values
    assert values["filter/empty"] == [1.0] * 4
    assert values["filter/kept_ratio"] == [0.0] * 4
    assert values["policy/loss"] == [None] * 4
    assert len(values["eval/val/sampled/success"]) == 3
    assert len(set(values["eval/val/greedy/success"])) == 1
    assert run.folder.rollout_steps() == [0, 1, 2, 3]
    assert [entry.version for entry in checkpoint.checkpoints(run.folder.path / "checkpoints")] == [2, 4]


def test_the_divergence_from_the_reference_is_zero_at_first_and_then_grows(
    echo_run: TrainConfig, tmp_path: Path
) -> None:
    config = replace(echo_run, steps=2, evaluation=NO_EVALUATION, diagnostics=UNMEASURED)
    at_first, then = trained(replace(config, algorithm=Grpo(kl=0.1)), tmp_path / "run").watch.values[
        "policy/kl_to_reference"
    ]
    assert at_first == pytest.approx(0.0, abs=1e-9)
    assert then > 1e-7


def test_the_loss_scale_rho_multiplies_by_the_filters_share(echo_run: TrainConfig, tmp_path: Path) -> None:
    config = replace(echo_run, steps=1, evaluation=NO_EVALUATION, diagnostics=UNMEASURED, filter=TopP(p=0.5))
    norms = [
        trained(replace(config, loss_scale=kind), tmp_path / kind).watch.values["policy/gradient_norm"][0]
        for kind in ("kept", "rho")
    ]
    assert norms[1] == pytest.approx(0.5 * norms[0], rel=1e-5)


def test_rollouts_are_stored_as_they_were_judged(whole: Trained) -> None:
    stored = read_rollouts(whole.folder.rollouts(0))
    assert (stored.step, stored.split, stored.environment) == (0, "train", "echo")
    assert stored.verdicts is not None
    assert sum(verdict.kept for verdict in stored.verdicts) / 4 == whole.watch.values["filter/kept_ratio"][0]
    assert whole.watch.first == [stored.groups[0].trajectories[0]]
    evaluated = read_rollouts(whole.folder.rollouts(6, "val_sampled"))
    assert (evaluated.split, evaluated.environment, evaluated.verdicts) == ("val", "echo", None)
    assert [len(group.trajectories) for group in evaluated.groups] == [2] * 8
    assert {trajectory.policy_version for group in evaluated.groups for trajectory in group.trajectories} == {6}


def test_evaluations_happen_before_in_the_middle_and_after(whole: Trained) -> None:
    lines = read_metrics(whole.folder.metrics)
    assert [line.step for line in lines if "eval/val/sampled/success" in line.metrics] == [0, 3, 6]
    assert [line.step for line in lines] == list(range(7))
    for line in lines:
        names = {name for name in line.metrics if name.startswith("eval/")}
        success = {f"eval/val/{kind}/success" for kind in ("random", "fixed", "sampled", "greedy")}
        greedy = {f"eval/val/greedy/right{part}" for part in PARTS} | {
            f"eval/val/greedy/{each}" for each in WORTH_NAMES
        }
        assert names in (set(), success | greedy)
    assert whole.folder.early_steps() == [0, 3, 6]
    first = read_early(whole.folder.early(6))[0]
    assert (first.cuts_C[0], first.cuts_C[-1]) == (0, len(first.pieces_T))
    assert all(0 <= chance <= 1 for chance in first.right_C)


def test_grpo_learns_echo(echo_run: TrainConfig, tmp_path: Path) -> None:
    config = replace(
        echo_run,
        steps=12,
        groups=16,
        group_size=12,
        optimizer=OptimizerConfig(lr=1e-3, betas=(0.9, 0.99), warmup_steps=2),
        evaluation=NO_EVALUATION,
        diagnostics=UNMEASURED,
        checkpoint_every=100,
    )
    rates = trained(config, tmp_path / "run").watch.values["success/rate"]
    # 768 episodes each: a standard error of .025 for the difference.
    assert fmean(rates[-4:]) > fmean(rates[:4]) + 0.1, rates


def test_the_alarms_of_a_short_healthy_run_are_null_or_quiet(whole: Trained) -> None:
    named = {name: found for name, found in whole.watch.values.items() if name.startswith("alarm/")}
    usual = {rule.name for rule in Alarms().rules if not rule.of_update and not rule.optional}
    assert {name.removeprefix("alarm/") for name in named} == {*usual, "shaping_dominates"}
    assert all(set(found) <= {None, 0.0} for found in named.values())


# Checkpoints ----------------------------------------------------------------------------------------------------------


def test_a_checkpoint_is_a_plain_model_folder(whole: Trained) -> None:
    model, tokenizer = load_model(str(whole.folder.checkpoint(6)), torch.device("cpu"))
    assert same(dict(model.state_dict()), whole.weights)
    assert tokenizer.chat_template == whole.parts.tokenizer.chat_template


def test_the_last_two_checkpoints_and_the_best_one_stay(tmp_path: Path, echo_run: TrainConfig) -> None:
    parts = assemble(echo_run, silent, None)
    folder = tmp_path / "checkpoints"
    for version, score in ((2, 0.5), (4, 0.9), (6, 0.9), (8, 0.3), (10, None), (12, 0.2)):
        if score is not None:
            parts.scores[version] = score
        checkpoint.save(folder, version, parts.model, parts.tokenizer, parts.learner.state_dict(), parts.state())
        checkpoint.prune(folder, keep_last=2, best=parts.best)
    assert parts.best == 4, "the earliest among equals"
    assert [entry.version for entry in checkpoint.checkpoints(folder)] == [4, 10, 12]
    assert sorted(entry.name for entry in folder.iterdir()) == ["step_000004", "step_000010", "step_000012"]


def test_checkpoints_around_are_kept_at_distances_that_double(tmp_path: Path) -> None:
    """Beyond every distance that is reached there is a checkpoint less than four times as far back."""
    kept: set[int] = set()
    for version in range(5, 205, 5):
        (tmp_path / f"step_{version:06d}").mkdir()
        (tmp_path / f"step_{version:06d}" / "state.json").touch()
        checkpoint.prune(tmp_path, keep_last=2, best=15, around=5)
        kept = {entry.version for entry in checkpoint.checkpoints(tmp_path)}
        assert {version, max(5, version - 5)} <= kept
        for back in range(5, version, 5):
            older = [version - each for each in kept if version - each >= back]
            assert min(older, default=back) < 4 * back
    assert kept == {15, 80, 160, 180, 190, 195, 200}


def test_rewards_that_are_left_out_count_as_nothing_and_outcomes_stay(echo_run: TrainConfig, tmp_path: Path) -> None:
    quick = replace(echo_run, steps=1, evaluation=NO_EVALUATION, diagnostics=UNMEASURED, filter=KeepAll())
    config = replace(quick, sampling=replace(echo_run.sampling, temperature=3.0))
    paid = trained(config, tmp_path / "paid").watch.values
    run = trained(replace(config, without_rewards=("format", "flunecy")), tmp_path / "left")
    left = run.watch.values
    assert any(note.startswith("without_rewards flunecy: no reply of this step has") for note in run.watch.notes)
    assert paid["reward/format"][0] < 0
    assert left["reward/format"] == [0.0]
    assert left["success/rate"][0] == paid["success/rate"][0]
    assert left["reward/mean"][0] == pytest.approx(paid["reward/mean"][0] - paid["reward/format"][0])


def test_an_entropy_bonus_typed_beside_a_resume_holds_from_the_first_update_on(
    echo_run: TrainConfig, tmp_path: Path
) -> None:
    bonus = replace(echo_run, steps=1, algorithm=Grpo(entropy=0.05), evaluation=NO_EVALUATION, diagnostics=UNMEASURED)
    begun = train(bonus, out=tmp_path / "run", show=False)
    changed = replace(begun.config, steps=2, algorithm=Grpo(entropy=0.01))
    run = resume(tmp_path / "run", changed=changed, typed=["steps", "algorithm.entropy"], show=False)
    assert [metric.value for _, metric in run.series("policy/entropy_coefficient")] == [0.05, 0.01]
    for steps, control in ((4, EntropyTarget(nats=9.0, rate=0.01)), (5, ConstantEntropy())):  # another control alone
        changed = replace(changed, steps=steps, algorithm=replace(changed.algorithm, entropy_control=control))
        run = resume(tmp_path / "run", changed=changed, typed=["steps", "algorithm.entropy_control"], show=False)
    *_, risen, last = [metric.value for _, metric in run.series("policy/entropy_coefficient")]
    assert risen > 0.01 == last


def test_a_checkpoint_is_out_of_sight_before_it_is_deleted(
    tmp_path: Path, echo_run: TrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts, deleted, remove = assemble(echo_run, silent, None), [], shutil.rmtree

    def noted(path: Path, ignore_errors: bool = False) -> None:
        deleted.append(path.name)
        remove(path, ignore_errors=ignore_errors)

    monkeypatch.setattr(checkpoint.shutil, "rmtree", noted)
    for version in (2, 2, 4):
        checkpoint.save(tmp_path, version, parts.model, parts.tokenizer, parts.learner.state_dict(), parts.state())
    checkpoint.prune(tmp_path, keep_last=1, best=None)
    # A kill within a deletion leaves half a folder: it may not be called a checkpoint any more.
    assert deleted.count(".step_000002.old") == 2
    assert all(name.startswith(".") for name in deleted)
    assert [entry.version for entry in checkpoint.checkpoints(tmp_path)] == [4]


def damage_of(name: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: len(content) // 2])

    return damage


@pytest.mark.parametrize(
    "damage",
    [
        damage_of("model.safetensors"),
        damage_of("state.json"),
        lambda folder: (folder / "learner.pt").unlink(),
        lambda folder: (folder / "learner.pt").write_bytes(b"not a checkpoint"),
    ],
    ids=["half the weights", "half the state", "no optimizer", "another file"],
)
def test_a_damaged_checkpoint_is_named_with_what_to_delete(
    whole: Trained, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    found = checkpoint.checkpoints(whole.folder.path / "checkpoints")[-1]
    copy = Path(shutil.copytree(found.path, tmp_path / found.path.name))
    damage(copy)
    with pytest.raises(ValueError, match=f"Delete the folder {copy} to resume from the checkpoint before it"):
        checkpoint.Checkpoint(copy, found.version).check()


def test_a_full_disk_ends_in_a_sentence_and_the_run_goes_on_when_there_is_room(
    echo_run: TrainConfig,
    whole: Trained,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out, write = tmp_path / "run", checkpoint.write_pretrained

    def full(folder: Path, model: Any, tokenizer: Any) -> None:
        if "000004" in folder.name:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(folder, model, tokenizer)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "write_pretrained", full)
        assert cli.run(command(echo_run, out)) == 2
    error = capsys.readouterr().err
    assert f"Expected room on the disk to write {out}/checkpoints/step_000004, but it is full" in error
    assert "Kept: the earlier checkpoints and all metrics so far. Free some space" in error
    assert [entry.version for entry in checkpoint.checkpoints(out / "checkpoints")] == [2, 3]
    assert cli.run(["train", "--resume", str(out)]) == 0
    assert_the_same_run(whole.folder.path, out)


def test_weights_that_find_no_room_say_so_by_the_systems_number(
    echo_run: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from safetensors import SafetensorError

    from heedful.models.writing import write_pretrained

    parts = assemble(echo_run, silent, None)
    said = "Error while serializing: I/O error: No space left on device (os error 28)"

    def save_pretrained(folder: Path) -> None:
        raise SafetensorError(said)

    monkeypatch.setattr(parts.model, "save_pretrained", save_pretrained)
    with pytest.raises(OSError, match="No space left") as raised:
        write_pretrained(tmp_path, parts.model, parts.tokenizer)
    assert raised.value.errno == errno.ENOSPC
    said = "Error while serializing: some other matter"
    with pytest.raises(SafetensorError, match="some other matter"):
        write_pretrained(tmp_path, parts.model, parts.tokenizer)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"steps": 0}, "steps: expected a whole number of at least 1, found 0"),
        ({"group_size": 1}, "group_size must be at least 2 .a group of one has no spread"),
        ({"tasks": 2}, "must hold at least the 4 groups of one step, found 2"),
        ({"micro_batch_tokens": 0}, "micro_batch_tokens: expected a whole number of at least 1"),
        ({"loss_scale": "rho", "filter": KeepAll()}, "rho .* the chosen filter asks for none; choose the filter top_p"),
        ({"template_options": ("enable_thinking",)}, "a template option as name=value, found 'enable_thinking'"),
        ({"template_options": ("a=1", "a=2")}, "each template option once, found a twice"),
        ({"template_options": ("messages=1",)}, r"found \['messages'\], which the renderer sets itself"),
        ({"trackers": ("tensorbord",)}, "trackers: expected a list, each item one of tensorboard, wandb, trackio"),
    ],
)
def test_a_configuration_that_cannot_run_is_refused(
    echo_run: TrainConfig, changes: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        replace(echo_run, **changes)


@pytest.mark.parametrize(("on", "notes"), [("reward", 1), ("outcome", 0)])
def test_a_filter_on_a_shaped_reward_is_warned_of_once(
    echo_run: TrainConfig, tmp_path: Path, on: str, notes: int
) -> None:
    config = replace(echo_run, steps=2, filter=TopP(on=on), evaluation=NO_EVALUATION, diagnostics=UNMEASURED)
    told = trained(config, tmp_path / on).watch.notes
    assert sum("format, solved are parts" in sentence for sentence in told) == notes


def test_training_tells_of_episodes_that_broke_once_for_each_kind(
    echo_run: TrainConfig, seedling_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = EchoEpisode.begin

    def away(self: EchoEpisode, task: Task, member: int) -> str:
        if member == 1:
            raise ConnectionError("nobody answers")
        return begin(self, task, member)

    monkeypatch.setattr(EchoEpisode, "begin", away)
    asked = replace(echo_run.evaluation, times=2, search_tasks=0)
    config = replace(echo_run, model=str(seedling_folder), steps=2, evaluation=asked, diagnostics=UNMEASURED)
    told = [note for note in trained(config, tmp_path / "run").watch.notes if "broke" in note]
    first = "broke and were not scored. The first: ConnectionError: nobody answers"
    assert told == [f"8 of 16 sampled held-out episodes {first}", f"4 of 16 training episodes {first}"]


def test_greedy_sampling_is_no_training(echo_run: TrainConfig) -> None:
    with pytest.raises(ValueError, match=r"sampling\.greedy is for playing"):
        assemble(replace(echo_run, sampling=replace(echo_run.sampling, greedy=True)), silent, None)


def test_evaluations_are_spread_evenly_from_their_start_on() -> None:
    assert EvaluationConfig(times=3).at(80) == {0, 40, 80}
    assert EvaluationConfig(times=2).at(7) == {0, 7}
    assert EvaluationConfig(times=1).at(7) == {7}
    assert EvaluationConfig(times=0).at(7) == set()
    assert EvaluationConfig(times=9).at(2) == {0, 1, 2}
    assert EvaluationConfig(times=3, start=6).at(12) == {6, 9, 12}
    assert EvaluationConfig(times=2, start=9).at(12) == {9, 12}
    assert EvaluationConfig(times=3, start=12).at(12) == {12}


@pytest.mark.parametrize(("keep", "trained_on", "evaluated"), [("all", 1, 4), ("evaluations", 0, 4), ("none", 0, 0)])
def test_only_the_episodes_that_are_to_be_kept_are_stored(
    echo_run: TrainConfig, tmp_path: Path, keep: Literal["all", "evaluations", "none"], trained_on: int, evaluated: int
) -> None:
    evaluation = replace(echo_run.evaluation, times=2)
    config = replace(echo_run, steps=1, diagnostics=UNMEASURED, evaluation=evaluation, keep_rollouts=keep)
    trained(config, tmp_path / "run")
    stored = [path.name for path in (tmp_path / "run" / "rollouts").glob("*.parquet")]
    assert sum("_val_" not in name for name in stored) == trained_on
    assert sum("_val_" in name for name in stored) == evaluated
    assert (tmp_path / "run" / "metrics.jsonl").exists()


@pytest.mark.parametrize(("error", "kept"), [(DiskFull("no room"), True), (ValueError("refused"), False)])
def test_the_folder_of_a_run_that_was_refused_is_removed_and_that_of_a_full_disk_is_not(
    error: ValueError, kept: bool, echo_run: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(config: TrainConfig, folder: RunFolder, *_: object) -> None:
        folder.config.write_text("{}")
        raise error

    monkeypatch.setattr("heedful.run.train._train", fail)
    with pytest.raises(ValueError, match=str(error)):
        train(echo_run, out=tmp_path / "run", show=False)
    assert (tmp_path / "run" / "config.json").exists() == kept


@pytest.mark.parametrize(
    ("on", "told"),
    [
        ("outcome", ""),
        ("solved", ""),
        ("reward", "of which format, solved are parts"),
        (
            "nonsense",
            "the part of the reward 'nonsense' (--filter.on); parts: format, solved.",
        ),
    ],
)
def test_a_filter_that_looks_at_what_no_episode_has_is_told(on: str, told: str) -> None:
    turn = SimpleNamespace(rewards={"solved": 1.0, "format": 0.0})
    groups: Any = [SimpleNamespace(trajectories=[SimpleNamespace(turns=[turn])])]
    found = loop._about(on, groups)
    assert told in found
    assert bool(found) == bool(told)


def test_empty_folders_and_files_are_no_checkpoints(tmp_path: Path) -> None:
    for name in ("step_000002", "step_000010", "step_000009", ".step_000011.part", "notes"):
        (tmp_path / name).mkdir()
    for name in ("step_000002", "step_000010", ".step_000011.part"):
        (tmp_path / name / "state.json").write_text("{}")
    (tmp_path / "step_000012").write_text("")
    assert [(each.path.name, each.version) for each in checkpoint.checkpoints(tmp_path)] == [
        ("step_000002", 2),
        ("step_000010", 10),
    ]
