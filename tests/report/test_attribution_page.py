"""The page of split updates, and the sentence that follows an alarm."""

from __future__ import annotations

import json
import re
from pathlib import Path

from heedful.report.attribution import cause, panel, parts_table, told, write_attribution_page
from heedful.report.outcome import Outcome
from heedful.storage import RunFolder, StoredGradients, read_gradients, write_gradients
from heedful.types import Metric


def stored(folder: RunFolder, step: int, success: tuple[float, float] | None = None) -> StoredGradients:
    """fluency takes 4 nats of the gap. `success`: the interval of what it adds to success. `None`: it was not read."""
    metrics = [
        Metric("attribution/gap/carried", -9.0, 144, -9.5, -8.5),
        Metric("attribution/gap/fluency_constant", -4.0, 144, -4.5, -3.5),
        Metric("attribution/gap/solved_varied", 1.25, 144, 1.0, 1.5),
        Metric("attribution/gap/entropy", -3.0, 144, -9.0, 3.0),
        Metric("attribution/gap/total", -14.75, 144, -16.0, -13.0),
        Metric("attribution/gap/measured", -14.0, 144, -15.0, -13.0),
        Metric("attribution/gap/explained", 1.054, 144),
        Metric("attribution/gap/before", 41.0, 144, 35.0, 47.0),
    ]
    if success is not None:
        metrics += [
            Metric("attribution/success/carried", -0.5, 144, -0.6, -0.4),
            Metric("attribution/success/fluency_constant", sum(success) / 2, 144, *success),
            Metric("attribution/success/solved_varied", 0.0, 144, -0.01, 0.01),
            Metric("attribution/success/total", -0.5, 144, -0.6, -0.4),
        ]
    moved = [
        {
            "reading": "gap",
            "group": 3,
            "member": 1,
            "total": -0.5,
            "terms": {"fluency_constant": -0.5},
            "tokens": [["so", -0.25], ["<b>", -0.125]],
        }
    ]
    write_gradients(folder.attribution(step), step, {"what": "of this one update"}, metrics, moved)
    return read_gradients(folder.attribution(step))


def test_the_sentence_names_the_part_that_took_most_success_if_it_is_clear_and_large(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert cause(folder, 9) == ""
    stored(folder, 9, success=(-0.03, -0.01))
    assert cause(folder, 8) == ""  # of a later update
    assert cause(folder, 12) == (
        "In the update of step 9, the reward fluency in groups of one outcome took 0.0200 of mean success "
        "(heedful gradients RUN --attribute)."
    )
    for clear_and_tiny in ((-0.005, -0.001), (-0.03, 0.01)):  # or large and not clear
        stored(folder, 9, success=clear_and_tiny)
        assert cause(folder, 12) == ""  # nor does the gap name a part then


def test_what_a_part_took_is_added_up_over_the_newest_seven_updates(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    for step in (3, 6, 9):
        stored(folder, step, success=(-0.005, -0.003))
    assert "In the 3 split updates of steps 3 to 9, the reward fluency in groups of one outcome took 0.0120 of" in (
        cause(folder, 9)
    )
    assert cause(folder, 8) == ""  # two of them took 0.008
    for step in range(10, 30):
        stored(folder, step, success=(-0.0015, -0.0013))
    assert cause(folder, 30) == ""  # seven took 0.0098, all of them 0.04


def test_the_gap_names_a_part_only_where_success_was_not_read(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    stored(folder, 9)
    assert cause(folder, 12) == (
        "In the update of step 9, the reward fluency in groups of one outcome took 4 nats of the gap between prompts; "
        "the reward solved in groups whose outcome varies gave 1.25; success was not read, and how much of the gap "
        "matters is not known (heedful gradients RUN --attribute)."
    )


def test_the_part_of_a_split_update_comes_before_the_causes_of_the_table(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    alarms = ({"step": step, "metrics": {"alarm/noise_collapse": float(step > 8)}} for step in range(12))
    folder.metrics.write_text("".join(json.dumps(line | {"time": 0.0}) + "\n" for line in alarms))
    (first, *others) = Outcome.of(tmp_path).told_causes()
    assert first.startswith("noise_collapse: ")
    stored(folder, 9)
    assert Outcome.of(tmp_path).told_causes() == [cause(folder, 9), first, *others]


def test_the_table_has_the_sum_beside_the_measured_change(tmp_path: Path) -> None:
    heading, *rows = parts_table(stored(RunFolder(tmp_path), 9))
    assert heading == ["part", "gap, nats"]
    assert [row[0] for row in rows[-4:]] == ["total", "measured", "total / measured", "before the update"]
    assert rows[1] == ["fluency_constant", "−4 [−4.50, −3.50]"]


def test_a_panel_shows_the_parts_of_each_update_beside_the_measured_change(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    drawn = panel([stored(folder, 3), stored(folder, 9)], "gap")
    assert len(re.findall('<path class="area', drawn.svg)) == 10  # four parts and the change, two updates
    assert "measured, step 9: −14 [−15 to −13], n 144" in drawn.svg
    names = ["carried", "fluency_constant", "entropy", "solved_varied", "measured"]
    assert [label for _, label in drawn.legend] == names
    assert panel([], "gap").absent == "no update was split"


def test_the_measured_change_has_one_colour_whatever_the_number_of_parts(tmp_path: Path) -> None:
    split = [stored(RunFolder(tmp_path), 3, success=(-0.03, -0.01))]
    for reading in ("gap", "success", "greedy_success"):  # four parts, three, and none
        drawn = panel(split, reading).svg
        assert re.findall(r'class="(?:area|lost) (c\d)"[^>]*><title>measured', drawn) == ["c6"]


def test_the_page_shows_the_tokens_that_moved_most_and_escapes_them(tmp_path: Path) -> None:
    one = stored(RunFolder(tmp_path), 9)
    page = write_attribution_page(RunFolder(tmp_path)).read_text()
    assert "group 3, member 1" in page
    assert "&lt;b&gt;" in page
    assert "<b>&#39; −0.125" not in page
    assert told(one)[0] == "Step 9, gap (nats): carried −9 [−9.50, −8.50], fluency_constant −4 [−4.50, −3.50]."
