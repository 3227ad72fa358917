"""The page of an audit leads to the episodes of the log, as that of a run does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from heedful.auditing import AuditSettings, measure_log, open_log
from heedful.report.embedding import unpacked
from heedful.storage import RunFolder, read_rollouts

LOG = Path(__file__).parents[1] / "auditing" / "fixtures" / "trl-1.16.0" / "completions"


def audit(out: Path, **settings: Any) -> str:
    chosen = AuditSettings(**settings)
    folder = measure_log(open_log(LOG, chosen), chosen, out)
    return (folder / "report.html").read_text(encoding="utf-8")


def test_a_log_of_trl_has_a_page_with_its_groups_and_texts(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="the extra `parquet` is not installed")
    page = audit(tmp_path / "audit")
    packs = dict(re.findall(r'<script type="text/plain" id="pack-([\w-]+)"[^>]*>([^<]*)</script>', page))
    (index,) = unpacked(packs["runs"])
    run = RunFolder(tmp_path / "audit")
    assert [int(step) for step in index["steps"]] == run.rollout_steps() == [1, 2, 3]
    assert sum(len(rows) for rows in index["steps"].values()) == 12
    assert index["play"] == ""
    turn = unpacked(packs["0-2"])["groups"][0][0]["turns"][0]
    stored = read_rollouts(run.rollouts(2)).groups[0].trajectories[0].turns[0]
    assert "".join(text for _, text in turn["pieces"]) == stored.reply.text
    assert {row[1][0] for rows in index["steps"].values() for row in rows} == {"nan"}  # TRL logs no success


def test_an_audit_may_leave_the_episodes_in_the_log(tmp_path: Path) -> None:
    page = audit(tmp_path / "audit", keep_rollouts=False)
    assert not (tmp_path / "audit" / "rollouts").exists()
    assert "This audit kept no rollouts" in page
