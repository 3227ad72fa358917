"""A log that TRL itself wrote (see fixtures/README.md), checked against the advantages that TRL computed."""

from pathlib import Path

import pyarrow.parquet
from audit_watching import Witness, by_step

from heedful.auditing import AuditSettings, measure_log, open_log

LOG = Path(__file__).parent / "fixtures" / "trl-1.16.0"


def test_a_real_trl_log_is_read_whole_and_its_mixed_groups_are_those_with_an_advantage(
    tmp_path: Path, witness: Witness
) -> None:
    settings = AuditSettings()
    log = open_log(LOG, settings)
    assert log.format == "TRL completions"
    assert log.reader.knowledge.found == ("Reward columns: closed, named.",)
    measured = by_step(measure_log(log, settings, tmp_path / "out", [witness]))
    assert list(measured) == [1, 2, 3]
    for step, file in zip(measured, log.files.files, strict=True):
        rows = pyarrow.parquet.read_table(file).to_pylist()
        prompts = dict.fromkeys(row["prompt"] for row in rows)
        moved = [any(row["advantage"] for row in rows if row["prompt"] == prompt) for prompt in prompts]
        assert measured[step]["signal/mixed"].value == sum(moved) / len(prompts)
        totals = [sum(row[name] for name in ("closed", "named") if row[name] is not None) for row in rows]
        assert measured[step]["reward/mean"].value == sum(totals) / len(rows)
        assert measured[step]["reward/mean"].n == 16
        share = sum("</think>" in row["completion"] for row in rows) / len(rows)
        assert measured[step]["format/closed_rate"].value == share
