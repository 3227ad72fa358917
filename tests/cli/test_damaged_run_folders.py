"""Damaged run folders: a command ends in a sentence, or goes on and says what it lost."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from heedful import cli
from heedful.boundary import to_json
from heedful.run.config import TrainConfig
from heedful.storage import RunFolder, held
from heedful.training.optimizer_step import OptimizerConfig


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) * 2 // 3] ^= 0x55
    path.write_bytes(content)


def text(path: Path) -> None:
    path.write_text("a text of somebody else\n")


COMMANDS: dict[str, Callable[[Path], list[str]]] = {
    "report": lambda run: ["report", str(run)],
    "resume": lambda run: ["train", "--resume", str(run)],
    "eval": lambda run: ["eval", str(run), "--tasks", "2", "--samples", "1"],
    "audit": lambda run: ["audit", str(run), "--out", str(run.parent / "audit")],
    "gradients": lambda run: ["gradients", str(run), "--groups", "2", "--group-size", "2"],
}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was killed after its last step and before its last checkpoint: two more steps are to be done again."""
    path = tmp_path_factory.mktemp("damaged") / "run"
    flags = (
        "--steps 4 --groups 3 --group-size 2 --checkpoint-every 2 --keep-checkpoints all --seedling.steps 30 "
        "--seedling.layers 1 --seedling.hidden 64 --seedling.ffn 64 "
        "--evaluation.times 2 --evaluation.tasks 2 --evaluation.search-tasks 4 --diagnostics.no-enabled --tasks 6"
    )
    assert cli.run(["train", "echo", "--out", str(path), *flags.split()]) == 0
    shutil.rmtree(path / "checkpoints" / "step_000004")
    (path / "verdict.json").unlink()
    return path


def files(run: Path) -> list[str]:
    return sorted(str(path.relative_to(run)) for path in run.rglob("*") if path.is_file())


def copied(base: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(base, tmp_path / "run"))


def error_of(run: Path, capsys: pytest.CaptureFixture[str], *more: str) -> str:
    assert cli.run(["train", "--resume", str(run), *more]) == 2
    return capsys.readouterr().err


def test_a_flipped_byte_of_a_checkpoint_is_named_and_the_earlier_checkpoint_goes_on(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = copied(base, tmp_path)
    shutil.copytree(run / "checkpoints" / "step_000002", run / "checkpoints" / "step_000003")
    damaged = run / "checkpoints" / "step_000003"
    flip(damaged / "model.safetensors")
    said = error_of(run, capsys)
    assert f"{damaged / 'model.safetensors'}: expected SHA-256 " in said
    assert f"Delete the folder {damaged} to resume from the checkpoint before it." in said
    assert cli.run(["eval", str(run), "--tasks", "2"]) == 2
    assert "choose another checkpoint with --checkpoint" in capsys.readouterr().err
    shutil.rmtree(damaged)
    assert cli.run(["train", "--resume", str(run)]) == 0


@pytest.mark.parametrize(("name", "value"), [("optimizer", {"lr": 0.5}), ("env", {"turns": 3})])
def test_an_edited_setting_is_noticed_and_a_typed_one_holds(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, value: dict[str, object]
) -> None:
    run = copied(base, tmp_path)
    tree = json.loads((run / "config.json").read_text())
    ((field, new),) = value.items()
    old = tree[name][field]
    tree[name][field] = new
    (run / "config.json").write_text(json.dumps(tree))
    said = error_of(run, capsys)
    assert f"{name}.{field} {new}, was {old}. Change them back." in said
    assert f"heedful train --resume {run} --{name}.{field} {new}" in said
    if name == "optimizer":
        assert cli.run(["train", "--resume", str(run), f"--{name}.{field}", str(new)]) == 0
        assert json.loads((run / "config.json").read_text())[name][field] == new
        capsys.readouterr()
        assert cli.run(["train", "--resume", str(run)]) == 0  # later checkpoints were written under it


@pytest.mark.parametrize("typed", [["--seedling.hidden", "32"], ["--algorithm", "ppo"], ["--lora.rank", "2"]])
def test_typed_settings_of_another_model_are_refused_and_not_kept(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], typed: list[str]
) -> None:
    run = copied(base, tmp_path)
    before = (run / "config.json").read_bytes()
    said = error_of(run, capsys, *typed)
    assert "Leave out " in said  # and do not delete a whole checkpoint
    assert (run / "config.json").read_bytes() == before


def test_a_file_that_is_new_in_a_checkpoint_is_noticed(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = copied(base, tmp_path)
    (run / "checkpoints" / "step_000002" / "adapter_config.json").write_text("{}")
    assert "expected no such file, found one" in error_of(run, capsys)


def test_a_run_without_its_measurements_goes_on_and_says_so(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = copied(base, tmp_path)
    (run / "metrics.jsonl").unlink()
    assert cli.run(["train", "--resume", str(run)]) == 0
    assert "metrics.jsonl is missing: the measurements of the first 2 steps are lost." in capsys.readouterr().out


def test_a_damaged_rollout_file_is_named_by_the_report(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = copied(base, tmp_path)
    text(RunFolder(run).rollouts(0))
    assert cli.run(["report", str(run)]) == 2
    assert "step_000000.parquet" in " ".join(capsys.readouterr().err.split())


def test_a_second_process_in_a_run_or_an_audit_is_refused(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = copied(base, tmp_path)
    with held(run), held(tmp_path / "audit"):
        assert f"Another process is at work in {run}: process {os.getpid()} on" in error_of(run, capsys)
        assert cli.run(["audit", str(run), "--out", str(tmp_path / "audit")]) == 2
        assert f"Another process is at work in {tmp_path / 'audit'}" in capsys.readouterr().err
        assert cli.run(["train", "echo", "--steps", "1", "--out", str(run)]) == 2
    assert not (run / ".lock").exists()


def test_settings_without_influence_on_numbers_may_be_edited() -> None:
    from dataclasses import replace

    from heedful.envs.toys.echo import Echo
    from heedful.run.edits import refuse_edits

    config = TrainConfig(env=Echo(), steps=3)
    refuse_edits(to_json(config), replace(config, keep_checkpoints="all"), RunFolder(Path("r")), ())
    changed = replace(config, optimizer=OptimizerConfig(lr=0.25))
    refuse_edits(to_json(config), changed, RunFolder(Path("r")), ("optimizer.lr",))
    refuse_edits(to_json(config), changed, RunFolder(Path("r")), ("optimizer",))
    refuse_edits(None, changed, RunFolder(Path("r")), ())
    with pytest.raises(ValueError, match=r"found others in r/config\.json: optimizer\.lr 0\.25, was"):
        refuse_edits(to_json(config), changed, RunFolder(Path("r")), ("env",))


def test_settings_that_are_younger_than_the_checkpoint_had_their_default() -> None:
    from dataclasses import replace

    from heedful.envs.toys.echo import Echo
    from heedful.policies.local import Local
    from heedful.run.edits import refuse_edits

    config = TrainConfig(env=Echo(), steps=3)
    older = to_json(config)
    del older["policy"]["compile"]
    refuse_edits(older, config, RunFolder(Path("r")), ())
    changed = replace(config, policy=Local(compile=True))
    refuse_edits(older, changed, RunFolder(Path("r")), ("policy.compile",))
    with pytest.raises(ValueError, match=r"policy\.compile true, was false\. Change them back"):
        refuse_edits(older, changed, RunFolder(Path("r")), ())


def test_gradients_of_a_checkpoint_that_changed_are_refused(
    echo_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Path(shutil.copytree(echo_run, tmp_path / "run"))
    flip(sorted((run / "checkpoints").iterdir())[-1] / "model.safetensors")
    assert cli.run(["gradients", str(run)]) == 2
    assert "has changed since it was written" in " ".join(capsys.readouterr().err.split())
    assert not list(run.glob("gradients*"))


@pytest.mark.parametrize(
    "command",
    ["train echo --steps 1 --model {}", "audit {}/../.. --model {} --out audit", "grow echo --only-after --model {}"],
)
def test_a_checkpoint_that_changed_is_no_model(
    command: str, echo_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Path(shutil.copytree(echo_run, tmp_path / "run"))
    newest = sorted((run / "checkpoints").iterdir())[-1]
    flip(newest / "model.safetensors")
    assert cli.run(command.format(newest, newest).split()) == 2
    assert "has changed since it was written" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ("--steps 1", "Expected --steps of at least 2, the steps that the last checkpoint of"),
        ("--algorithm ppo", "Expected settings that fit the checkpoint in"),
        ("--tasks 200", "a memory of the pool's tasks was expected, and the run has drawn fresh tasks so far"),
    ],
)
def test_a_resume_that_is_refused_leaves_the_run_as_it_is(
    flags: str, why: str, echo_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Path(shutil.copytree(echo_run, tmp_path / "run"))
    before = {name: (run / name).read_bytes() for name in files(run)}
    assert cli.run(["train", "--resume", str(run), *flags.split()]) == 2
    assert why in " ".join(capsys.readouterr().err.split())
    assert {name: (run / name).read_bytes() for name in files(run) if name in before} == before


def test_a_run_that_is_over_and_lost_its_checkpoints_is_not_begun_anew(
    echo_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As of a finished run of a study: going on from step 0 would delete its measurements."""
    run = Path(shutil.copytree(echo_run, tmp_path / "run", ignore=shutil.ignore_patterns("checkpoints")))
    before = {name: (run / name).read_bytes() for name in files(run)}
    assert cli.run(["train", "--resume", str(run)]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f"in another folder: heedful train echo --config {run / 'config.json'} --out DIR." in said
    assert cli.run(["eval", str(run)]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "found none, though the work in this folder is over" in said
    assert "--resume" not in said
    assert {name: (run / name).read_bytes() for name in files(run)} == before


@pytest.mark.parametrize("command", ["eval", "gradients", "resume", "play"])
def test_the_record_of_another_trainer_is_named_and_not_read_as_a_run(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = tmp_path / "heedful-2"
    record.mkdir()
    config = {"env": {"type": "verl"}, "steps": 2, "algorithm": {"type": "grpo"}, "trainer": "verl 0.9.1"}
    (record / "config.json").write_text(json.dumps(config))
    (record / "metrics.jsonl").write_text("")
    words = ["play", "bandit", "--by", str(record)] if command == "play" else COMMANDS[command](record)
    assert cli.run(words) == 2
    said = capsys.readouterr().err
    assert f"{record / 'config.json'}, found that of a record which heedful wrote inside verl 0.9.1" in said
    assert "`heedful report` and `heedful audit` read this folder" in said
    assert len(said) < 800
