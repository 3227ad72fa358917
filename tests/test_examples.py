"""The README's own code: the file to copy is the one that is run here, and its small examples print what they say."""

from __future__ import annotations

import doctest
import importlib
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from heedful import cli
from heedful.configuration import from_json, to_json
from heedful.envs.common.tasks import evaluation_tasks
from heedful.policies.scripted import ScriptedPolicy
from heedful.rollout import LockStep, Request
from heedful.run.config import TrainConfig
from heedful.run.presets import preset
from heedful.types import Conversation, Ending

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
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


def test_the_readme_holds_the_example_word_for_word() -> None:
    assert f"```python\n{EXAMPLE.read_text(encoding='utf-8')}```" in README


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


def test_the_small_examples_of_the_readme_print_what_they_say() -> None:
    blocks = re.findall(r"^```python\n(>>> .*?)^```", README, flags=re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 3
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner(verbose=False)
    for number, block in enumerate(blocks):
        example = parser.get_doctest(block, {}, f"README block {number}", "README.md", 0)
        assert runner.run(example).failed == 0, f"README block {number} prints something else; see the output."


def train_commands() -> list[str]:
    """The README's `heedful train` lines that need no file of an earlier line."""
    lines = re.findall(r"^ {4}heedful train ([a-z_]+ .*)$", README, flags=re.MULTILINE)
    return [line.partition(" > ")[0] for line in lines if "--config" not in line]


@pytest.mark.parametrize("command", train_commands())
def test_the_flags_of_the_readme_are_understood(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.run(["train", *shlex.split(command.replace("--print-config", "")), "--print-config"])
    assert stopped.value.code == 0, capsys.readouterr().err
    assert json.loads(capsys.readouterr().out)["env"]["type"] == command.split()[0]


def relative_links() -> list[tuple[str, str]]:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    found = []
    for page in pages:
        text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            if not re.match(r"[a-z]+:|#", target):
                found.append((str(page.relative_to(ROOT)), target.partition("#")[0]))
    return found


@pytest.mark.parametrize(("page", "target"), relative_links())
def test_a_relative_link_leads_somewhere(page: str, target: str) -> None:
    assert ((ROOT / page).parent / target).exists(), f"{page} links to {target}, which is not there."
