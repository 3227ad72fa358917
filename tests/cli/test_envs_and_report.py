"""`heedful envs`, `heedful report`, and help that needs no torch."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from heedful import cli, envs
from heedful.run.presets import PRESETS
from patience import PATIENCE


def test_every_environment_and_preset_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["envs"]) == 0
    shown = capsys.readouterr().out
    for name in (*envs.ENVIRONMENTS, *PRESETS):
        assert name in shown
    assert "5 x 2" in shown
    assert "Left, Down, Right, Up" in shown
    assert "module:Class" in shown


def test_envs_takes_no_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["envs", "echo"]) == 2
    assert "heedful envs: unexpected argument 'echo'" in capsys.readouterr().err


def test_the_page_of_a_run_is_written_again(echo_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = shutil.copytree(echo_run, tmp_path / "run")
    page = (run / "report.html").read_bytes()
    (run / "report.html").unlink()
    assert cli.run(["report", str(run)]) == 0
    assert capsys.readouterr().out == f"{run / 'report.html'}\n"
    assert len((run / "report.html").read_bytes()) == pytest.approx(len(page), rel=0.01)


def test_runs_are_compared_on_one_page(echo_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = shutil.copytree(echo_run, tmp_path / "other")
    assert cli.run(["report", str(echo_run), str(other)]) == 0
    assert capsys.readouterr().out == "comparison.html\n"
    assert "other" in (tmp_path / "comparison.html").read_text()
    assert cli.run(["report", str(echo_run), str(other), "--out", "pages/both.html"]) == 0
    assert (tmp_path / "pages" / "both.html").exists()


@pytest.mark.parametrize("word", ["", "0", "false"])
def test_an_error_has_a_traceback_only_where_it_is_asked_for(
    word: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEEDFUL_TRACEBACK", word)
    assert cli.run(["report", "nowhere"]) == 2
    assert capsys.readouterr().err.startswith("heedful: Expected the folders of runs")
    monkeypatch.setenv("HEEDFUL_TRACEBACK", "1")
    with pytest.raises(ValueError, match="Expected the folders of runs"):
        cli.run(["report", "nowhere"])


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "expected RUN after `heedful report`. RUN: A run's folder"),
        (["nowhere"], "found no folder at nowhere"),
        (["."], "found no such file"),
        ([".", "--out", "x.html"], "--out is for comparisons"),
        ([".", ".", "--out", "."], "found a folder, a link, a pipe or a device"),
    ],
)
def test_what_cannot_be_reported_is_refused_in_a_sentence(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["report", *words]) == 2
    assert sentence in capsys.readouterr().err


def test_commands_explain_themselves_and_audits_of_scalars_run_with_the_core_alone(tmp_path: Path) -> None:
    state = Path(__file__).parents[1] / "auditing" / "fixtures" / "scalars" / "trainer_state.json"
    program = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "transformers", "pyarrow", "scipy", "sklearn"):
            raise ImportError(f"{name} is kept out of this test")

sys.meta_path.insert(0, Absent())
from heedful import cli
for command in ("eval", "play", "envs", "report", "check-env"):
    assert cli.run([command, "--help"]) == 0, command
for words in (["eval", "echo"], ["play", "bandit"], ["play", "echo", "--by", "seedling"]):
    assert cli.run([*words, "--help"]) == 0, words
assert cli.run(["audit", *sys.argv[1:]]) == 0
"""
    words = [sys.executable, "-c", program, str(state), "--out", str(tmp_path / "audit")]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE)
    assert ended.returncode == 0, ended.stderr
    for usage in ("heedful eval RUN", "heedful play [ENV]", "heedful envs", "heedful report RUN", "--env.names"):
        assert usage in ended.stdout
