"""docs/audit.md names what there is."""

import re
from dataclasses import fields
from pathlib import Path

from heedful.auditing import AuditSettings
from heedful.auditing.logs.files import SUFFIXES
from heedful.auditing.logs.records import FAULTS_KEPT
from heedful.auditing.readers import FORMATS
from heedful.auditing.steps import STEPS_HELD
from heedful.cli.audit import AuditWords

PAGE = (Path(__file__).parents[2] / "docs" / "audit.md").read_text(encoding="utf-8")


def test_the_page_lists_every_format_once() -> None:
    rows = re.findall(r"^\| (\S+ \w+) \| one ", PAGE, re.MULTILINE)
    assert sorted(rows) == sorted(FORMATS)


def test_the_page_states_the_defaults_and_bounds_of_the_code() -> None:
    settings = AuditSettings()
    assert f"`--prompts {settings.prompts}` and `--thoughts {settings.thoughts}`" in PAGE
    assert f"within {STEPS_HELD} steps" in PAGE
    assert f"the first {FAULTS_KEPT} are in `audit.json`" in " ".join(PAGE.split())
    assert all(f"`{suffix}`" in PAGE for suffix in SUFFIXES)
    flags = {flag.replace("-", "_") for flag in re.findall(r"--([a-z][\w-]*)", PAGE)}
    assert flags <= {field.name for kind in (AuditSettings, AuditWords) for field in fields(kind)}
