"""The code of README and docs: the file to copy is the one that is run here, and small examples print what they say."""

from __future__ import annotations

import doctest
import importlib
import json
import os
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from heedful import cli
from heedful.boundary import from_json, to_json
from heedful.envs.checking.check import QUICK, check
from heedful.envs.common.tasks import evaluation_tasks
from heedful.policies.scripted import ScriptedPolicy
from heedful.rollout import LockStep, Request
from heedful.run.config import TrainConfig
from heedful.run.presets import preset
from heedful.types import Conversation, Ending
from patience import PATIENCE
from warm import WarmProcess

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLE = ROOT / "examples" / "my_game.py"


@pytest.fixture
def game(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(EXAMPLE.parent))
    return importlib.import_module("my_game")


def bisect(conversation: Conversation) -> str:
    """Guess the middle of what the answers so far leave possible."""
    asked, *rest = conversation.messages
    low, high = map(int, re.findall(r"from (\d+) to (\d+)", asked.content)[0])
    for message in rest:
        middle = (low + high) // 2
        if message.role == "user":
            low, high = (middle + 1, high) if message.content.startswith("Higher.") else (low, middle - 1)
    return f"<think>between {low} and {high}</think><answer>{(low + high) // 2}</answer>"


def test_the_example_with_tools_keeps_the_contract_and_pays_for_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLE.parent))
    env = importlib.import_module("with_tools").Market(fee=0.25)
    report = check(env, effort=QUICK)
    assert report.ok, str(report)
    assert "per step fee -0.25 to 0" in str(report), "the tools are called"
    first, one, second, other = env.order(3)
    episode = env.episode()
    episode.start(env.task(3), 0)
    call = '<think>first</think><tool_call>{{"name": "{}", "arguments": {{"{}": "{}"}}}}</tool_call>'
    prices = []
    for fruit in (one, other):
        step = episode.step(call.format("price", "fruit", fruit))
        assert (step.rewards["fee"], step.ending) == (-0.25, None)
        prices.append(int(re.findall(rf"{fruit} costs (\d+)", step.observation.text)[0]))
    last = episode.step(call.format("finish", "answer", first * prices[0] + second * prices[1]))
    assert (last.ending, last.outcome, last.rewards["solved"]) == (Ending.SOLVED, 1.0, 1.0)


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


def test_the_example_is_solved_by_a_policy_that_listens(game: Any) -> None:
    env = game.GuessNumber()
    groups = LockStep()(ScriptedPolicy(bisect), Request(env.episode, evaluation_tasks(env, "val", 20), 2, env.turns))
    trajectories = [trajectory for group in groups for trajectory in group.trajectories]
    assert [trajectory.outcome for trajectory in trajectories] == [1.0] * 40
    assert {len(trajectory.turns) for trajectory in trajectories} == {1, 2, 3}
    assert {trajectory.reward for trajectory in trajectories} == {1.0}


@pytest.mark.parametrize("reply", ["", "<answer>7</answer>", "<think></think><answer>seven</answer>", "<think>" * 99])
def test_the_example_reads_any_text_and_charges_for_what_it_cannot_read(game: Any, reply: str) -> None:
    env = game.GuessNumber()
    group = LockStep()(ScriptedPolicy(lambda _: reply), Request(env.episode, [env.task(0)], 1, env.turns))[0]
    trajectory = group.trajectories[0]
    assert (trajectory.ending, trajectory.outcome, trajectory.error) == (Ending.FAILED, 0.0, "")
    assert trajectory.reward == pytest.approx(-0.3)


def test_the_example_can_be_trained_on_by_name(game: Any) -> None:
    config = preset("my_game:GuessNumber", "path/to/model")
    assert config.env == game.GuessNumber()
    tree = to_json(config)
    assert tree["env"] == {"type": "my_game:GuessNumber", "span": 7, "turns": 3}
    assert from_json(TrainConfig, tree) == config
    tasks = evaluation_tasks(config.env, config.evaluation.split, config.evaluation.tasks)
    assert len({task.id for task in tasks}) == config.evaluation.tasks


def test_the_flat_loop_trains_and_measures(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    process = WarmProcess([str(ROOT / "examples" / "loop.py"), "2"], tmp_path, os.environ)
    printed_all, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, printed_all
    line = r"step {}: success 0\.\d\d, kept \d of 8 groups, mutual information \d\.\d\d of 2\.08 nats, gradient norm \d"
    for step, printed in enumerate(printed_all.splitlines()):
        assert re.match(line.format(step), printed), printed
    assert step == 1


@pytest.mark.parametrize(("page", "least"), [("README.md", 1), ("docs/pieces.md", 3)])
def test_small_examples_print_what_they_say(page: str, least: int) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(>>> .*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    assert len(blocks) >= least
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner(verbose=False)
    for number, block in enumerate(blocks):
        example = parser.get_doctest(block, {}, f"block {number}", page, 0)
        assert runner.run(example).failed == 0, f"{page}, block {number}, prints something else; see the output."


def test_the_audit_of_the_readme_prints_what_it_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    log, shown = re.findall(r"^ {4}heedful audit (\S+)$.*?^```\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)[0]
    assert cli.run(["audit", str(ROOT / log), "--out", str(tmp_path / "audit")]) == 0
    printed = capsys.readouterr().out
    assert shown in printed
    assert "Template collapse: not " in printed


def train_commands() -> list[str]:
    """The `heedful train` lines of the pages that read no file."""
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    lines = re.findall(r"^ {4}heedful train ([a-z_]+ .*)$", text, flags=re.MULTILINE)
    without_files = [
        line for line in lines if not re.search(r"--(config|env\.path|env\.questions|env\.catalogue)\b", line)
    ]
    return sorted({line.partition(" > ")[0].partition(" #")[0].strip() for line in without_files})


@pytest.mark.parametrize("command", train_commands())
def test_the_flags_of_the_pages_are_understood(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["train", *shlex.split(command.replace("--print-config", "")), "--print-config"]) == 0
    assert json.loads(capsys.readouterr().out)["env"]["type"] == to_json(preset(command.split()[0]))["env"]["type"]


def named_in_files() -> list[tuple[str, str]]:
    """The names and files of `docs/checking.md`: a class, a function, a method, or a test."""
    page = (ROOT / "docs" / "checking.md").read_text(encoding="utf-8")
    return re.findall(r"\[`([\w.]+)`\]\(\.\./([\w/.]+\.py)\)", page)


@pytest.mark.parametrize(("name", "file"), named_in_files())
def test_what_a_number_is_checked_with_is_where_the_page_says(name: str, file: str) -> None:
    source = (ROOT / file).read_text(encoding="utf-8")
    for part in name.split("."):
        assert re.search(rf"^ *(def|class) {part}\b", source, flags=re.MULTILINE), f"{file} has no {part}."


def test_every_row_of_the_page_on_checking_names_code_and_a_test() -> None:
    files = [file for _, file in named_in_files()]
    assert sum(file.startswith("tests/") for file in files) >= 11
    assert sum(file.startswith("src/") for file in files) >= 11


def relative_links() -> list[tuple[str, str]]:
    found = []
    for page in PAGES:
        text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            if not re.match(r"[a-z]+:|#", target):
                found.append((str(page.relative_to(ROOT)), target.partition("#")[0]))
    return found


def test_a_relative_link_leads_somewhere() -> None:
    links = relative_links()
    assert len(links) > 400
    assert [(page, target) for page, target in links if not ((ROOT / page).parent / target).exists()] == []


def test_the_notebook_finds_the_fault_that_it_plants(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cells = json.loads((ROOT / "examples" / "watch.ipynb").read_text(encoding="utf-8"))["cells"]
    assert not any(cell.get("outputs") for cell in cells)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    outcome = names["outcome"]
    assert [(one.name, one.step) for one in outcome.raised[:1]] == [("rate_jump", names["FAULT"])]
    assert {"success_drop", "words_uninformed"} <= {one.name for one in outcome.raised}
    assert outcome.causes()[0].name == "schedule"
    assert "rate_jump: the schedule, or a resume, set a higher learning rate. Try: " in capsys.readouterr().out
    assert names["drawn"].count("<polyline") == 2
    assert names["done"].report.exists()
