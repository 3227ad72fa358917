"""The page of an audit leads to the episodes of the log, as that of a run does."""

from __future__ import annotations

import json
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
    assert [role for role, _ in turn["pieces"]] == ["thought", "answer"]  # split at the tags of the audit
    assert {row[1][0] for rows in index["steps"].values() for row in rows} == {"nan"}  # TRL logs no success
    assert "Task by task nothing is known. No group has two known outcomes." in page


def test_an_audit_may_leave_the_episodes_in_the_log(tmp_path: Path) -> None:
    page = audit(tmp_path / "audit", keep_rollouts=False)
    assert not (tmp_path / "audit" / "rollouts").exists()
    assert "This audit kept no rollouts" in page


def test_an_audit_of_scalars_draws_them_first_and_leaves_out_what_it_cannot_have(tmp_path: Path) -> None:
    scalars = LOG.parents[1] / "scalars" / "trl_console.txt"
    folder = measure_log(open_log(scalars, AuditSettings()), AuditSettings(), tmp_path / "audit")
    page = (folder / "report.html").read_text(encoding="utf-8")
    first = page[page.index('id="curves"') : page.index('id="learned"')]
    assert "Scalars alone were audited." in first
    assert "<h3>Reward, as the trainer says" in first
    for absent in ("What did it cost?", "environment.json", "Which prompt does a thought look like?"):
        assert absent not in page


def test_an_episode_of_a_log_ends_as_its_outcome_says(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    rows = ({"step": 1, "input": f"q{n}", "output": "<think>a</think>b", "score": float(n % 2)} for n in range(4))
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    chosen = AuditSettings(success="score")
    folder = measure_log(open_log(log, chosen), chosen, tmp_path / "audit")
    groups = read_rollouts(RunFolder(folder).rollouts(1)).groups
    assert [one.ending.value for group in groups for one in group.trajectories] == ["failed", "solved"] * 2
