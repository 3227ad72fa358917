"""Run folders, studies and configurations of other people: nothing in them decides what is imported."""

import importlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")

import heedful
from heedful import cli
from heedful.boundary import trusting
from heedful.boundary.trust import trusts_code_of
from heedful.models.load import read_tokenizer
from heedful.studies.jobs import TrainingJob, job_trust
from patience import PATIENCE

FILTER = """
from dataclasses import dataclass
from pathlib import Path

from heedful.envs.toys.echo import Echo
from heedful.filters import DropConstant

Path("ran.txt").write_text("this code ran")


@dataclass(frozen=True)
class Mine(DropConstant):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Game(Echo):
    pass
"""


@pytest.fixture
def module(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """A module in the working directory that writes a file when it is imported. Each test has its own name."""
    name = "friend_" + "".join(letter if letter.isalnum() else "_" for letter in request.node.name).lower()
    (tmp_path / f"{name}.py").write_text(FILTER)
    return name


@pytest.fixture
def friends_run(echo_run: Path, tmp_path: Path, module: str) -> Path:
    """A run folder whose filter is a class of that module."""
    folder = tmp_path / "friends_run"
    shutil.copytree(echo_run, folder)
    _change(folder / "config.json", lambda tree: tree.update(filter={"type": f"{module}:Mine"}))
    return folder


def _change(file: Path, change: Callable[[dict[str, Any]], None]) -> None:
    tree = json.loads(file.read_text())
    change(tree)
    file.write_text(json.dumps(tree))


def _study(path: Path, job: dict[str, Any]) -> Path:
    study = {"name": "theirs", "question": "whose code runs?", "arms": [{"name": "a", "job": job}], "seeds": [0]}
    path.write_text(json.dumps(study))
    return path


KEPT: dict[str, Any] = {"filter": {"type": "keep_all"}}
"""Puts the filter of `friends_run` back to a registered one."""

COMMANDS = {
    "eval": "eval friends_run --tasks 4",
    "eval of a checkpoint": "eval friends_run/checkpoints/step_000002 --tasks 4",
    "play": "play --by friends_run",
    "gradients": "gradients friends_run",
    "resume": "train --resume friends_run",
    "config": "train echo --config friends_run/config.json",
    "eval with a config": "eval echo --config friends_part.json",
    "serve-env": "serve-env echo --config friends_part.json",
    "check-env": "check-env echo --config friends_part.json",
    "study": "study study.json",
    "study of a preset": "study preset.json",
    "study with flags": "study flags.json",
    "study with flags of trust": "study self_trusting.json",
    "job": "study --job job.json --out out --seed 0",
    "report of a study": "report friends_study",
    "resume of a study": "train --resume friends_study",
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_never_decides_what_is_imported(
    command: str, friends_run: Path, module: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = json.loads((friends_run / "config.json").read_text())
    (tmp_path / "friends_part.json").write_text(json.dumps({"env": {"type": f"{module}:Game"}}))
    study = _study(tmp_path / "study.json", {"type": "train", "config": config})
    _study(tmp_path / "preset.json", {"type": "train", "preset": f"{module}:Game"})
    _study(tmp_path / "flags.json", {"type": "train", "preset": "echo", "flags": f"--filter {module}:Mine"})
    trusting = f"--trust {module} --filter {module}:Mine"
    _study(tmp_path / "self_trusting.json", {"type": "train", "preset": "echo", "flags": trusting})
    (tmp_path / "job.json").write_text(json.dumps({"job": {"type": "grow", "config": config}}))
    (tmp_path / "friends_study").mkdir()
    declared = {"study": json.loads(study.read_text()), "starts": [], "remeasured": []}
    (tmp_path / "friends_study" / "study.json").write_text(json.dumps(declared))

    assert cli.run(COMMANDS[command].split()) == 2
    said = capsys.readouterr().err
    assert not (tmp_path / "ran.txt").exists()
    if command == "study with flags of trust":
        assert "found --trust. Type it on the command line of heedful study" in said
    else:
        assert f"add --trust {module}" in said
        assert "Traceback" not in said


@pytest.mark.parametrize("setting", ["env", "algorithm", "filter", "collect", "policy"])
def test_every_setting_that_chooses_a_class_is_guarded(
    setting: str, friends_run: Path, module: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _change(friends_run / "config.json", lambda tree: tree.update(KEPT | {setting: {"type": f"{module}:Mine"}}))
    assert cli.run(["eval", "friends_run", "--tasks", "4"]) == 2
    assert f"{setting}.type: '{module}:Mine' names code" in capsys.readouterr().err
    assert not (tmp_path / "ran.txt").exists()


@pytest.mark.parametrize(
    "name", ["heedful.filters.wrappers:OnCollapse", "heedful.studies.running.runner:Request", "pathlib:Path"]
)
def test_data_names_no_class_of_heedful_or_python_either(
    name: str, friends_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _change(friends_run / "config.json", lambda tree: tree.update(filter={"type": name}))
    assert cli.run(["eval", "friends_run", "--tasks", "4"]) == 2
    assert f"{name!r} names code" in capsys.readouterr().err


@pytest.mark.parametrize("knobs", [{"id": "{}:Maze-v0"}, {"render": "{}:show"}])
def test_a_knob_that_names_code_is_guarded(
    knobs: dict[str, str], friends_run: Path, module: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = {name: value.format(module) for name, value in knobs.items()}
    _change(friends_run / "config.json", lambda tree: tree.update(KEPT, env={"type": "gymnasium", **told}))
    assert cli.run(["eval", "friends_run", "--tasks", "4"]) == 2
    assert f"add --trust {module}" in capsys.readouterr().err
    assert not (tmp_path / "ran.txt").exists()


def test_a_module_that_the_user_trusts_is_imported(friends_run: Path, module: str, tmp_path: Path) -> None:
    assert cli.run(["eval", "friends_run", "--print-config", "--trust", module]) == 0
    assert (tmp_path / "ran.txt").exists()


@pytest.mark.parametrize("other", ["{}_2", "friend", "{}.inner"])
def test_trust_covers_exactly_the_module_that_it_names(
    other: str, friends_run: Path, module: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["eval", "friends_run", "--tasks", "4", "--trust", other.format(module)]) == 2
    assert not (tmp_path / "ran.txt").exists()


def test_trust_without_a_module_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["eval", "echo", "--trust"]) == 2
    assert "--trust: expected NAME, found nothing" in capsys.readouterr().err


def test_a_class_that_the_user_types_is_imported(module: str, tmp_path: Path) -> None:
    assert cli.run(["play", f"{module}:Game", "--by", "solver"]) == 0
    assert (tmp_path / "ran.txt").exists()


def test_typed_flags_are_trusted_and_so_is_the_same_module_in_a_file(module: str, tmp_path: Path) -> None:
    (tmp_path / "part.json").write_text(json.dumps({"env": {"type": f"{module}:Game"}}))
    assert cli.run(["eval", "echo", "--env", f"{module}:Game", "--config", "part.json", "--print-config"]) == 0


def test_an_interrupted_run_says_which_trust_its_resume_needs(
    echo_run: Path, module: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    config = replace(heedful.Run.open(echo_run).config, filter=importlib.import_module(module).Mine(), steps=3)
    run = heedful.train(config, out="mine", on_step=lambda step, metrics: step < 1)
    command = f"heedful train --resume mine --trust {module}"
    assert command in " ".join(capsys.readouterr().out.split())
    assert run.outcome is not None
    assert run.outcome.version == 2
    assert cli.run(command.split()[1:]) == 0


def test_trust_ends_with_the_command(friends_run: Path, module: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["eval", "friends_run", "--trust", f"{module}_2", "--tasks", "4"]) == 2
    assert cli.run(["eval", "friends_run", "--tasks", "4"]) == 2


def test_python_asks_for_trust_as_well(
    friends_run: Path, module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match=rf"in Python: trust=\['{module}'\]"):
        heedful.resume(friends_run, show=False)
    with pytest.raises(ValueError, match="names code"):
        heedful.Run.open(friends_run)
    with pytest.raises(ValueError, match="names code"):
        heedful.evaluate(friends_run, tasks=4, show=False)
    assert not (tmp_path / "ran.txt").exists()
    assert heedful.Run.open(friends_run, trust=[module]).config.filter is not None
    assert heedful.evaluate(friends_run, tasks=2, samples=1, trust=[module], show=False).metrics


def test_a_library_is_never_taken_from_the_working_directory(tmp_path: Path) -> None:
    """Neither by the command nor by `python -m heedful`: a file here has the name of an extra that may be missing."""
    for name in ("rich", "sklearn", "torch", "trackio"):
        (tmp_path / f"{name}.py").write_text("open('ran.txt', 'w').write('this code ran')")
    for start in (["-c", "from heedful.cli import main; main()"], ["-m", "heedful"]):
        # `python -c` puts the working directory on the path, which the installed command does not.
        flags = ["-P"] if start[0] == "-c" else []
        path = os.pathsep.join(str(Path(place)) for place in sys.path if place and Path(place) != tmp_path)
        ended = subprocess.run(
            [sys.executable, *flags, *start, "play", "echo", "--by", "solver"],
            cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=PATIENCE,
        )  # fmt: skip
        assert ended.returncode == 0, ended.stderr
        assert not (tmp_path / "ran.txt").exists()


def test_the_runs_of_a_study_get_the_trust_that_the_study_has(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    config = replace(heedful.preset("echo"), filter=importlib.import_module(module).Mine())
    with trusting(["org/model"]):
        assert job_trust(TrainingJob(config)) == ["--trust", module, "--trust-model-code", "org/model"]
    assert job_trust(TrainingJob(heedful.preset("echo"))) == []


@pytest.fixture
def coded_model(tmp_path: Path) -> Path:
    """A model folder with code of its own, which writes a file when it is imported."""
    folder = tmp_path / "coded_model"
    folder.mkdir()
    classes = {"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Model"}
    config = {"model_type": "unheard_of", "architectures": ["Model"], "auto_map": classes}
    (folder / "config.json").write_text(json.dumps(config))
    told = {"tokenizer_class": "Own", "auto_map": {"AutoTokenizer": ["own.Own", None]}}
    (folder / "tokenizer_config.json").write_text(json.dumps(told))
    (folder / "own.py").write_text(f"open({str(tmp_path / 'ran.txt')!r}, 'w').write('this code ran')\n")
    return folder


CODED = {
    "eval": "eval coded_model echo",
    "play": "play echo --by coded_model",
    "train": "train echo --model coded_model --out out",
    "audit": "audit log --model coded_model --out out",
}


@pytest.mark.parametrize("command", CODED)
def test_an_answer_on_standard_input_is_no_consent_to_a_models_code(
    command: str, coded_model: Path, tmp_path: Path, typed: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    typed(*["y"] * 20)
    (tmp_path / "log").symlink_to(Path(__file__).parents[1] / "auditing" / "fixtures" / "trl-1.16.0")
    assert cli.run(CODED[command].split()) == 2
    said = capsys.readouterr().err
    assert "it brings code of its own, which is not run" in said
    assert "--trust-model-code coded_model" in said
    assert not (tmp_path / "ran.txt").exists()
    assert cli.run([*CODED[command].split(), "--trust-model-code", "coded"]) == 2
    assert not (tmp_path / "ran.txt").exists(), "another name is no consent either"


def test_the_code_of_a_model_runs_when_the_user_names_the_model(coded_model: Path, tmp_path: Path) -> None:
    assert cli.run([*CODED["eval"].split(), "--trust-model-code", str(coded_model)]) == 2  # it holds no model
    assert (tmp_path / "ran.txt").exists()


def test_a_tokenizers_code_is_guarded_as_well(coded_model: Path, tmp_path: Path, typed: Callable[..., None]) -> None:
    typed("y")
    with pytest.raises(ValueError, match="it brings code of its own"):
        read_tokenizer(coded_model, "")
    assert not (tmp_path / "ran.txt").exists()


def test_the_folder_of_a_run_stands_for_its_checkpoints(tmp_path: Path) -> None:
    checkpoint = tmp_path / "run" / "checkpoints" / "step_000020"
    checkpoint.mkdir(parents=True)
    with trusting([str(tmp_path / "run")]):
        assert trusts_code_of(checkpoint)
        assert not trusts_code_of(tmp_path / "run" / "other")
        assert not trusts_code_of(tmp_path)
    assert not trusts_code_of(checkpoint)
