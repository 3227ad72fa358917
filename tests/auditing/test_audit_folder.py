"""From the command line to the page: what is written, how an interrupted audit goes on, and what is refused."""

import errno
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import foreign_logs as logs
import pyarrow
import pyarrow.parquet
import pytest
from audit_watching import Witness, by_step

from heedful import cli
from heedful.auditing import AuditSettings, measure_log, open_log
from heedful.auditing import record as record_module
from heedful.storage import RunFolder
from heedful.watching.sinks import Measured


def run_audit(source: Path, out: Path, witness: Witness, settings: AuditSettings | None = None) -> Path:
    settings = settings or AuditSettings()
    return measure_log(open_log(source, settings), settings, out, [witness])


def lines(folder: Path) -> list[str]:
    return (folder / "metrics.jsonl").read_text().splitlines()


def test_the_command_writes_metrics_a_record_and_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    log = logs.verl_log(tmp_path / "dumps")
    with (log / "2.jsonl").open("a") as stream:
        stream.write('{"input": "torn')
    assert cli.run(["audit", "dumps"]) == 0
    said = capsys.readouterr().out
    folder = tmp_path / "audits" / "dumps-1"
    assert {entry.name for entry in folder.iterdir()} == {
        *("audit.json", "metrics.jsonl", "report.html", "rollouts", "verdict.json")
    }
    assert list(by_step(folder)) == [1, 2, 10]
    record = json.loads((folder / "audit.json").read_text())
    assert (record["format"], record["steps"], record["episodes"], record["groups"]) == ("verl rollouts", 3, 18, 6)
    assert (record["complete"], record["settings"]["on"]) == (True, "reward")
    assert record["left_out"]["count"] == 1
    assert record["left_out"]["first"][0]["file"] == "2.jsonl"
    assert record["left_out"]["first"][0]["line"] == 7
    page = (folder / "report.html").read_text()
    assert "<h1>audit of dumps</h1>" in page
    assert "audit report" in page
    assert "Assumed: Samples with the same input" in page
    assert 'id="pack-0-10"' in page  # the texts of step 10
    assert "verl rollouts in dumps" in said
    assert "2.jsonl, line 7: expected a JSON object" in said
    assert "lines left out: 1" in said
    assert "step 1: 6 episodes of 2 groups, reward 0.333" in said
    assert cli.run(["audit", "dumps"]) == 0
    assert (tmp_path / "audits" / "dumps-2" / "report.html").exists()


def test_the_overview_lists_the_command_and_help_explains_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["--help"]) == 0
    assert re.search(r"^  audit +\w", capsys.readouterr().out, re.MULTILINE)
    assert cli.run(["audit", "--help"]) == 0
    assert "usage: heedful audit LOG" in capsys.readouterr().out
    assert cli.run(["audit"]) == 2
    assert "expected LOG after `heedful audit`. LOG: A file or a folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "an empty file"),
        (b"\x80\x04N.", "opening a pickle can run code"),
        (b'{"question": 1}\n', "columns question"),
        (b"nonsense\n", "text that is not JSON"),
        (b'{"input": 3, "output": 4, "score": 5}\n', "none that could be read: 1 lines do not fit (log.jsonl, line 1"),
    ],
)
def test_what_cannot_be_read_at_all_exits_with_2_and_leaves_no_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, sentence: str
) -> None:
    (tmp_path / "log.jsonl").write_bytes(content)
    assert cli.run(["audit", str(tmp_path / "log.jsonl"), "--out", str(tmp_path / "out")]) == 2
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_without_pyarrow_lines_are_read_and_parquet_files_name_the_extra(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = logs.verl_log(tmp_path / "log", steps=(1, 2))
    (log / "a.parquet").write_bytes(b"PAR1PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert cli.run(["audit", str(log / "a.parquet")]) == 2
    assert "Expected pyarrow (pip install 'heedful[parquet]') for the parquet file" in capsys.readouterr().err
    assert cli.run(["audit", str(log), "--out", str(tmp_path / "out")]) == 0
    assert "heedful[parquet]" in capsys.readouterr().out
    assert list(by_step(tmp_path / "out")) == [1, 2]


def test_a_misspelt_on_is_told_at_the_first_step_and_fails_at_the_end_unless_a_later_step_holds_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = logs.trl_log(tmp_path / "log", steps=2)
    assert cli.run(["audit", str(log), "--on", "acuracy", "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr()
    assert "Step 1: no reward acuracy (--on) in this step, whose rewards are accuracy, format." in said.out
    assert "found it in no step: no reward acuracy (--on) in this step" in said.err
    assert list(by_step(tmp_path / "out")) == [1, 2]
    rows = [row | {"step": step} | ({"late": 0.5} if step else {}) for step in (0, 1) for row in logs.trl_rows(1)]
    late = logs.write_lines(tmp_path / "late.jsonl", rows)
    assert cli.run(["audit", str(late), "--on", "late", "--rewards", "late", "--out", str(tmp_path / "late")]) == 0


def test_an_interrupted_audit_goes_on_where_it_stopped(tmp_path: Path, witness: Witness) -> None:
    log = logs.verl_log(tmp_path / "dumps", range(1, 7))
    whole = run_audit(log, tmp_path / "whole", witness)

    class Killed(Exception):
        pass

    class Killer(Witness):
        last = 3

        def begin(self, folder: Path) -> None:
            if self.last == 0:
                raise Killed

        def step(self, measured: Measured) -> None:
            super().step(measured)
            if measured.number == self.last:
                raise Killed

    for last in (0, 3):  # before the first step, too
        Killer.last = last
        with pytest.raises(Killed):
            run_audit(log, tmp_path / "out", Killer())
    out = tmp_path / "out"
    assert list(by_step(out)) == [1, 2, 3]
    # A line of another origin, and one that is torn.
    with (out / "metrics.jsonl").open("a") as stream:
        stream.write('{"step": 4, "time": 0, "metrics": {}}\n{"step": 5, "ti')
    again = Witness()
    run_audit(log, out, again)
    assert again.steps == [4, 5, 6]
    assert any("Going on with" in note for note in again.notes)
    assert lines(out) == lines(whole)
    record, other = (json.loads((folder / "audit.json").read_text()) for folder in (out, whole))
    assert record == other
    idle = Witness()
    run_audit(log, out, idle)
    assert idle.steps == []
    assert lines(out) == lines(whole)


def test_a_changed_log_and_changed_settings_are_refused_and_a_grown_log_goes_on(
    tmp_path: Path, witness: Witness
) -> None:
    log, out = logs.verl_log(tmp_path / "dumps"), tmp_path / "out"
    run_audit(log, out, witness)
    before = lines(out)
    run_audit(log, out, witness, AuditSettings(max_tokens=64, device="cpu"))
    with pytest.raises(ValueError, match=r"Expected the settings .* \(--every: 1 then, 2 now\)\. Repeat them"):
        run_audit(log, out, witness, AuditSettings(every=2))
    text = (log / "1.jsonl").read_text()
    (log / "1.jsonl").write_text(text.replace("by way of 0", "by way of 9"))
    with pytest.raises(ValueError, match=r"found others under 1\.jsonl\. Numbers of two logs"):
        run_audit(log, out, witness)
    assert lines(out) == before
    (log / "1.jsonl").write_text(text)
    with (log / "10.jsonl").open("a") as stream:
        stream.write(json.dumps(logs.verl_rows(10)[0]) + "\n")
    logs.write_lines(log / "11.jsonl", logs.verl_rows(11))
    again = Witness()
    run_audit(log, out, again)
    assert again.steps == [10, 11]
    assert lines(out) == lines(run_audit(log, tmp_path / "whole", Witness()))
    assert (out / "superseded.jsonl").read_text().splitlines() == before[2:]


def test_a_folder_that_holds_something_else_is_refused(tmp_path: Path, witness: Witness) -> None:
    log = logs.verl_log(tmp_path / "dumps")
    with pytest.raises(ValueError, match=r"Expected a new folder, .*, found 1\.jsonl, 10\.jsonl, 2\.jsonl"):
        run_audit(log, log, witness)


def test_thoughts_are_read_at_every_nth_step_only(tmp_path: Path, witness: Witness) -> None:
    log = logs.verl_log(tmp_path / "dumps", range(4))
    measured = by_step(run_audit(log, tmp_path / "out", witness, AuditSettings(every=2)))
    assert [step for step, metrics in measured.items() if "text/template_share" in metrics] == [0, 2]
    assert all("reward/mean" in metrics for metrics in measured.values())


def test_a_repeated_batch_is_called_no_new_evidence(tmp_path: Path, witness: Witness) -> None:
    folder = run_audit(logs.trl_log(tmp_path / "log"), tmp_path / "out", witness)
    sentences = json.loads(RunFolder(folder).verdict.read_text())["read"]
    assert any(sentence.startswith("2 steps repeat the texts of the step before") for sentence in sentences)
    log = logs.write_lines(
        tmp_path / "two.jsonl", [row | {"step": step} for step in (1, 2) for row in logs.verl_rows(1)]
    )
    sentences = json.loads(RunFolder(run_audit(log, tmp_path / "two", witness)).verdict.read_text())["read"]
    assert any(sentence.startswith("1 step repeats the texts of the step before") for sentence in sentences)


def test_tags_lost_in_decoding_are_said_to_be_lost(tmp_path: Path, witness: Witness) -> None:
    rows = [{**row, "output": re.sub("<[^>]*>", "", row["output"])} for row in logs.verl_rows(1)]
    log = logs.write_lines(tmp_path / "1.jsonl", rows)
    folder = run_audit(log, tmp_path / "out", witness)
    assert "no reply holds </think> so far" in by_step(folder)[1]["format/closed_rate"].why
    said = Witness()
    folder = run_audit(log, tmp_path / "other", said, AuditSettings(tags=("walk", "by way of")))
    assert by_step(folder)[1]["format/closed_rate"].value == 1.0


def test_a_log_that_runs_backwards_raises_no_alarm_and_says_why(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    rows = [
        {"step": step, "prompt": f"go {prompt}", "completion": "ok", "success": float(step > 12)}
        for step in reversed(range(24))
        for prompt in range(8)
        for _ in range(2)
    ]
    logs.write_lines(log, rows)
    said = Witness()
    folder = run_audit(log, tmp_path / "audit", said, AuditSettings(every=100))
    readings = [pair for metrics in by_step(folder).values() for pair in metrics.items()]
    assert [name for name, metric in readings if name.startswith("alarm/") and metric.value] == []
    assert any("Steps are out of order: step" in note and "Sort the log by step." in note for note in said.notes)
    assert "Steps are out of order" in (folder / "report.html").read_text(encoding="utf-8")


def test_a_log_that_grows_while_it_is_read_is_not_called_complete(tmp_path: Path) -> None:
    log = logs.verl_log(tmp_path / "dumps", range(3))

    class Trainer(Witness):
        def step(self, measured: Measured) -> None:
            super().step(measured)
            if measured.number == 0:
                with (log / "2.jsonl").open("a") as stream:
                    stream.writelines(json.dumps(row) + "\n" for row in logs.verl_rows(3))

    out = run_audit(log, tmp_path / "out", Trainer())
    assert json.loads((out / "audit.json").read_text())["complete"] is False
    sentences = json.loads(RunFolder(out).verdict.read_text())["read"]
    said = next(sentence for sentence in sentences if "changed while it was read" in sentence)
    assert re.search(r"2\.jsonl \([\d,]+ bytes were read, [\d,]+ are there\)\. The same command with --out ", said)

    assert list(by_step(run_audit(log, out, Witness()))) == [0, 1, 2, 3]
    assert json.loads((out / "audit.json").read_text())["complete"] is True


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_a_file_that_goes_while_the_log_is_read_costs_its_own_rows(tmp_path: Path, form: str) -> None:
    log = logs.verl_log(tmp_path / "dumps", range(40))
    if form == "parquet":
        for file in log.iterdir():
            rows = [json.loads(line) for line in file.read_text().splitlines()]
            pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), file.with_suffix(".parquet"))
            file.unlink()

    class Trainer(Witness):
        def step(self, measured: Measured) -> None:
            super().step(measured)
            (log / f"39.{form}").unlink(missing_ok=True)

    out = run_audit(log, tmp_path / "out", Trainer())
    record = json.loads((out / "audit.json").read_text())
    assert (record["complete"], record["steps"], record["left_out"]["count"]) == (True, 39, 1)
    assert record["left_out"]["first"][0]["found"] == "FileNotFoundError: No such file or directory"
    sentences = json.loads(RunFolder(out).verdict.read_text())["read"]
    assert not any("changed while it was read" in sentence for sentence in sentences)


def test_a_step_writes_a_line_and_no_whole_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    monkeypatch.setattr(record_module, "write_whole", lambda path, content: written.append(len(content)))
    for files in (2, 8):
        written.clear()
        run_audit(logs.verl_log(tmp_path / f"log{files}", range(files)), tmp_path / f"out{files}", Witness())
        assert len(written) == 2  # audit.json at the start and at the end


def test_a_folder_that_is_moved_during_an_audit_is_a_sentence_and_goes_on_under_its_new_name(tmp_path: Path) -> None:
    log = logs.verl_log(tmp_path / "dumps", range(3))
    out, moved = tmp_path / "out", tmp_path / "moved"

    class Mover(Witness):
        def step(self, measured: Measured) -> None:
            super().step(measured)
            out.rename(moved)

    with pytest.raises(ValueError, match=r"Expected the folder .*out in its place .* give its new name to --out"):
        run_audit(log, out, Mover())
    assert not out.exists()
    again = Witness()
    run_audit(log, moved, again)
    assert again.steps == [1, 2]
    assert list(by_step(moved)) == [0, 1, 2]


def test_a_full_disk_during_an_audit_advises_to_audit_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log, full = logs.verl_log(tmp_path / "dumps"), OSError(errno.ENOSPC, "No space left on device")

    def replace(old: Path, new: Path) -> None:
        raise full

    monkeypatch.setattr("heedful.storage.files.os.replace", replace)
    assert cli.run(["audit", str(log), "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert f"Free some space, then go on with: heedful audit {log} --out {tmp_path / 'out'}" in said
    assert "--resume" not in said


def test_a_log_whose_name_is_no_utf_8_is_audited(tmp_path: Path) -> None:
    log = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.jsonl"))
    log.write_text("".join(json.dumps(row) + "\n" for row in logs.verl_rows(1)))
    out = Path(os.fsdecode(os.fsencode(tmp_path) + b"/out\xe9"))
    command = [sys.executable, "-m", "heedful", "audit", os.fsencode(log), "--out", os.fsencode(out)]
    ended = subprocess.run(command, capture_output=True, timeout=600, check=False)
    assert ended.returncode == 0, ended.stderr
    assert b"Traceback" not in ended.stderr
    assert cli.run(["audit", str(log), "--out", str(out)]) == 0  # it goes on in the same folder, too
    record = json.loads((out / "audit.json").read_text())
    assert (record["files"][0]["name"], record["episodes"]) == ("caf\udce9.jsonl", 6)
    assert (out / "report.html").exists()
