"""`heedful check-env`: anyone's environment from the command line, and the examples that the documentation shows."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

from heedful import cli
from heedful.envs.checking.check import RULES

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
PAGE = (ROOT / "docs" / "environments.md").read_text(encoding="utf-8")

LITTLE = ["--seeds", "40", "--episodes", "8"]


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is where the command is run in the folder that holds the module."""
    for folder in (EXAMPLES, ROOT / "tests" / "envs" / "checking"):
        monkeypatch.syspath_prepend(str(folder))


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    cli.run(["check-env", *words])
    return [line.rstrip() for line in capsys.readouterr().out.splitlines()]


def transcript(command: str) -> list[str]:
    """The lines that the page shows below a command, without what stands for others."""
    block = PAGE.partition(f"$ heedful check-env {command}\n")[2].partition("```")[0]
    return [line for line in block.splitlines() if line.strip() != "..."]


def test_an_environment_that_keeps_the_contract_is_a_success(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["check-env", "twenty_lines:Backwards", *LITTLE]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line[16:].split()[0] for line in lines[:-1]] == [rule.name for rule in RULES]
    assert "broken" not in lines[-1]


def test_an_environment_that_breaks_a_rule_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["check-env", "careless:Careless", *LITTLE]) == 1
    assert "3 broken" in capsys.readouterr().out.splitlines()[-1]


def test_the_page_shows_what_the_command_says(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("twenty_lines:Backwards --quick", "careless:Careless --quick"):
        printed = shown(capsys, *command.split())
        expected = transcript(command)
        assert len(expected) >= 4
        timed = ("backwards: 15 rules", "pass            endings")
        missing = [line for line in expected if line not in printed and not line.startswith(timed)]
        assert missing == []


def test_the_page_holds_the_twenty_lines_word_for_word_and_they_are_twenty() -> None:
    source = (EXAMPLES / "twenty_lines.py").read_text(encoding="utf-8")
    assert f"```python\n{source}```" in PAGE
    tree = ast.parse(source)
    statements = [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]
    own = [
        node for node in statements if not isinstance(node, ast.Import | ast.ImportFrom) and node is not tree.body[0]
    ]
    decorators = sum(len(node.decorator_list) for node in own if isinstance(node, ast.ClassDef))
    assert len(own) + decorators <= 20


def test_a_factory_and_a_knob_are_understood(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["check-env", "broken_environments:an_environment", *LITTLE]) == 0
    assert "within 4 turns" in capsys.readouterr().out
    assert cli.run(["check-env", "broken_environments:an_environment", *LITTLE, "--env.turns", "6"]) == 0
    assert "within 6 turns" in capsys.readouterr().out


def test_a_preset_is_checked_as_it_is_trained(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["check-env", "echo", *LITTLE, "--env.instructions", "brief", "--env.turns", "2"]) == 0
    assert "within 2 turns" in capsys.readouterr().out


def test_findings_come_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["check-env", "careless:Careless", *LITTLE, "--json"]) == 1
    read = json.loads(capsys.readouterr().out)
    broken = [finding["rule"] for finding in read["findings"] if finding["status"] == "broken"]
    assert broken == ["tasks", "turns", "text"]


def test_rules_are_left_out_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    left_out = ["--skip", "tasks", "turns,text"]
    assert cli.run(["check-env", "careless:Careless", *LITTLE, *left_out]) == 0
    assert capsys.readouterr().out.count("left out, as asked") == 3


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "expected ENV after `heedful check-env`. ENV: An environment or preset"),
        (["ecko"], "There is no environment or preset named 'ecko'; known are "),
        (["ecko"], "or your own as module:Class. Did you mean echo?"),
        (["no_such_module:Environment"], "ModuleNotFoundError: No module named 'no_such_module'"),
        (["no_such_module:Environment"], "Run heedful from the folder that holds the module"),
        (["twenty_lines:Forwards"], "module 'twenty_lines' has no attribute 'Forwards'"),
        (["twenty_lines:Forwards"], "twenty_lines has Backwards, Game."),
        (
            ["broken_environments:a_factory_that_raises"],
            "ZeroDivisionError: nothing to divide by (broken_environments.py, line",
        ),
        (
            ["broken_environments:a_factory_that_raises"],
            'The whole error: python -c "import broken_environments; broken_environments.a_factory_that_raises()"',
        ),
        (["broken_environments:NeedsALibrary"], "heedful: The library of sums is not installed: pip install sums"),
        (["broken_environments:NOT_A_FACTORY"], "found TypeError: 'int' object is not callable"),
        (["broken_environments:KnobOfNoKind", "--env.slope", "3"], "cannot be set on a command line"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_checked_is_refused_in_a_sentence(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["check-env", *words]) == 2
    assert sentence in capsys.readouterr().err


def test_an_unknown_knob_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["check-env", "twenty_lines:Backwards", "--env.digit", "3"]) == 2
    assert "did you mean --env.digits?" in capsys.readouterr().err


def test_the_help_explains_every_rule(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["check-env", "--help"]) == 0
    text = capsys.readouterr().out
    assert "from heedful.envs.checking.check import QUICK, check" in text
    for rule in RULES:
        assert re.search(rf"^  {rule.name} +{re.escape(rule.says)}$", text, re.MULTILINE), rule.name
