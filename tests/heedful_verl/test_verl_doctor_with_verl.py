"""The doctor where verl is installed: what it finds registered, and configurations that verl itself composes.

Runs where verl is installed: make test-verl.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("verl.trainer", reason="verl is not installed here: make test-verl")
pytestmark = pytest.mark.verl

from heedful_verl import doctor  # noqa: E402
from heedful_verl.settings import MODES, REGISTER, VARIABLE  # noqa: E402
from heedful_verl.tasks import main  # noqa: E402

DEFAULTS = ["hydra.searchpath=[pkg://heedful_verl.conf]", "+heedful=default"]
WITH_HEEDFUL = ["trainer.v1.trainer_mode=heedful_sync", *DEFAULTS]


def told(overrides: list[str]) -> str:
    return "\n".join(map(str, doctor.configured(overrides)))


def test_trainers_and_agent_loop_are_registered() -> None:
    found = "\n".join(map(str, doctor.registered({VARIABLE: f"mine, {REGISTER}"})))
    assert "wrong" not in found
    assert "missing" not in found
    assert all(mode in found for mode in MODES)
    assert "Agent loop: heedful" in found


def test_a_plug_in_that_cannot_be_loaded_is_told_and_not_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, REGISTER, None)  # importing it raises ImportError
    monkeypatch.delattr("heedful_verl.register", raising=False)
    assert "wrong" in "\n".join(map(str, doctor.registered({VARIABLE: REGISTER})))


def test_the_environment_of_the_tests_lacks_nothing_but_an_engine() -> None:
    assert [finding.status for finding in doctor.installed()] == ["ok"] * 7 + ["note"]


def test_the_three_lines_of_the_page_compose(tmp_path: Path) -> None:
    tasks = tmp_path / "train.parquet"
    main(["echo", "--tasks", "4", "--out", str(tasks)])
    found = told([*WITH_HEEDFUL, "heedful.outcome=acc", f"data.train_files={tasks}", "data.val_files=[]"])
    assert "missing" not in found
    assert "wrong" not in found
    assert "4 rows, 4 of them episodes of heedful (data_source: echo)" in found


def test_settings_on_the_command_line_are_read_and_their_mistakes_are_named() -> None:
    files = ["data.train_files=[]", "data.val_files=[]"]
    line = ["trainer.v1.trainer_mode=heedful_sync", *files]
    assert "outcome names nothing" in told([*line, "+heedful={filter:{type:top_k,k:4,on:outcome}}"])
    assert "wrong   heedful.max_pairs" in told([*WITH_HEEDFUL, *files, "heedful.max_pairs=many"])
    assert "turnips" in told([*WITH_HEEDFUL, *files, "+heedful.turnips=1"])
    assert "windows of history" in told(
        [*WITH_HEEDFUL, *files, "heedful.play.context.turns=1", "algorithm.adv_estimator=gae"]
    )


@pytest.mark.parametrize("override", ["trainer.no_such_setting=1", "not an override", "heedful.outcome=acc"])
def test_overrides_that_verl_cannot_compose_end_with_code_two(
    override: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert doctor.main([override]) == 2
    assert "Expected overrides that verl's configuration takes" in capsys.readouterr().err
