"""The picture of an early answer says in words, colour and a curve where the conclusion is written."""

from pathlib import Path

from heedful.report.drawing.early import early_answers, figure, sentence
from heedful.storage import EarlyAnswer, RunFolder, write_early

ANSWER = EarlyAnswer(
    "chain-1", "3 d 4", ("d ", "3 ", "<", "5"), (0, 2, 3, 4), (0.1, 0.15, 0.12, 0.8), ("2", "2", "2", "5")
)


def test_the_sentence_names_the_stretch_that_raises_it_most() -> None:
    assert sentence(ANSWER) == (
        "chain-1: a right first action has probability 0.10 without the thought and 0.80 (5 is likeliest) with all of "
        "it. It rises most, by 0.68, with “5”."
    )
    flat = EarlyAnswer("chain-1", "", ("a",), (0, 1), (0.5, 0.52), ("2", "2"))
    assert sentence(flat).endswith("No stretch of the thought raises it by .05.")


def test_words_are_coloured_by_the_probability_behind_them_and_escaped() -> None:
    drawn = figure(ANSWER)
    assert '<span style="--right: 0.15" title="0.15, likeliest 2">d 3 </span>' in drawn
    assert '<span style="--right: 0.12" title="0.12, likeliest 2">&lt;</span>' in drawn
    assert drawn.count('class="dot c1"') == 4
    assert "0.80, likeliest 5" in drawn


def test_the_last_evaluation_with_early_answers_is_shown(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert early_answers(folder) == ""
    write_early(folder.early(0), [ANSWER])
    write_early(folder.early(60), [ANSWER, ANSWER])
    assert folder.early_steps() == [0, 60]
    shown = early_answers(folder)
    assert "the evaluation at step 60" in shown
    assert shown.count("<figure") == 2
