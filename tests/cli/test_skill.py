"""`heedful skill`: what an agent is told of files and outputs is in them, and no alarm is left out."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from heedful import cli
from heedful.cli.skill import PAGE
from heedful.diagnostics.alarms.causes import CAUSES, TABLE, Cause
from heedful.report.outcome import Raised
from heedful.watching.status import Status

KNOWN_OUTSIDE_THE_TABLE = {"schema", "run", "read", "stalled", "notes", "page"}


def test_the_skill_names_every_alarm_and_every_cause(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["skill"]) == 0
    page = capsys.readouterr().out
    assert page.startswith("---\nname: heedful\ndescription: ")
    assert all(f"- `{alarm}`: " in page for alarm in TABLE)
    assert all(f"- {name}: " in page for name in CAUSES)


def test_the_keys_that_the_skill_explains_are_written() -> None:
    page = PAGE.read_text(encoding="utf-8")
    status = page.partition("| key | meaning |")[2].partition("## Ask once")[0]
    named = {
        key for cell in re.findall(r"^\| (`[^|]+) \|", status, re.MULTILINE) for key in re.findall(r"`(\w+)`", cell)
    }
    written = Status(Path("log")).tree(None, "").keys()
    assert named == written - KNOWN_OUTSIDE_THE_TABLE
    outcome = page.partition("## Ask once")[2].partition("## Rules")[0]
    assert {field.name for field in fields(Cause)} <= set(re.findall(r"`(\w+)`", outcome))
    assert {field.name for field in fields(Raised)} <= set(re.findall(r"`(\w+)`", status))
