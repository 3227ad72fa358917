"""What a run says in the terminal."""

from __future__ import annotations

import pytest

from heedful.models.chat.replies import Tags
from heedful.run.terminal import TerminalView
from heedful.types import Metric


def test_only_success_is_said_of_an_evaluation(capsys: pytest.CaptureFixture[str]) -> None:
    rates = Metric("eval/val/sampled/success", 0.5, 8, 0.25, 0.75), Metric("eval/val/greedy/success", 1.0, 8)
    TerminalView(2, 0, Tags()).write(2, [*rates, Metric("eval/val/greedy/right_by_thought", 0.25, 8)])
    said = capsys.readouterr().out
    assert said == "success on held-out tasks after 2 steps: sampled 0.500 [0.250, 0.750], greedy 1.000\n"
