"""An environment that was written for an earlier contract is told what to rename, whichever command meets it."""

from __future__ import annotations

from pathlib import Path

import pytest

from heedful import cli
from heedful.envs.common.contract import missing_from
from heedful.envs.toys.echo import Echo

EARLIER = """
from dataclasses import dataclass
from heedful.envs.common.tasks import task_of

@dataclass(frozen=True)
class Door:
    name = "door"
    turns: int = 3

    def task(self, seed):
        return task_of("door", str(seed), seed)

    def make(self):
        return None
"""


@pytest.mark.parametrize("command", [["train"], ["play"], ["check-env"]], ids=" ".join)
def test_an_environment_of_the_earlier_contract_is_told_what_to_rename(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "earlier_door.py").write_text(EARLIER)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert cli.run([*command, "earlier_door:Door"]) != 0
    shown = capsys.readouterr()
    assert "it has `make()`, the earlier name of `episode()`: rename that method to `episode`" in " ".join(
        (shown.out + shown.err).split()
    )


def test_what_has_all_members_lacks_nothing() -> None:
    assert missing_from(Echo()) == ""
    assert missing_from(3) == "a int without `name`, `turns`, `task`, `episode`"
