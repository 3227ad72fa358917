"""The folder of a TRL run's record: one process at a time writes into it."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("trl", reason="TRL is not installed (pip install 'heedful[trl]')")

from heedful.integrations.watching.record import Record
from heedful.storage import held


def claimed(folder: Path) -> Record:
    return Record.claim(folder, {}, "cpu", 1)


def test_a_record_is_held_until_it_is_closed_and_not_continued_while_another_holds_it(
    tmp_path: Path,
) -> None:
    record = claimed(tmp_path)
    with pytest.raises(ValueError, match="Another process is at work"), held(record.folder.path):
        pass
    record.close()
    with held(record.folder.path), pytest.raises(ValueError, match=r"Another process is at work in .*heedful"):
        Record.resume(record.folder.path, 0)


def test_a_trainer_that_broke_off_in_this_process_leaves_its_record_to_the_next(tmp_path: Path) -> None:
    broken = claimed(tmp_path)
    resumed = Record.resume(broken.folder.path, 0)
    broken.close()  # it holds the folder no longer, so this frees nothing
    with pytest.raises(ValueError, match="Another process is at work"), held(resumed.folder.path):
        pass
    resumed.close()
