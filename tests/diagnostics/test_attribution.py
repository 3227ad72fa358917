"""The numbers of a split update: means over blocks with Student's intervals, and reasons where there are none."""

from __future__ import annotations

from typing import get_args

import pytest

from heedful.diagnostics.attribution import GREEDY, Attribution, Name, attribution_metrics, with_greedy
from heedful.training.gradients.readings import READINGS


def test_parts_are_means_over_blocks_and_add_up() -> None:
    found = Attribution(
        before={"gap": [40.0, 44.0]},
        parts={"gap": {"kl": [1.0, 3.0], "carried": [-4.0, -4.0]}},
        measured={"gap": [-2.0, -2.2]},
        thoughts=48,
    )
    read = {metric.name.rpartition("/")[2]: metric for metric in attribution_metrics(found)}
    # Student's quantile with one degree of freedom is 12.706; the standard error of 1 and 3 is 1.
    assert (read["kl"].value, read["kl"].n) == (2.0, 48)
    assert (read["kl"].low, read["kl"].high) == pytest.approx((2 - 12.706, 2 + 12.706), abs=1e-3)
    assert (read["total"].value, read["measured"].value, read["before"].value) == (-2.0, pytest.approx(-2.1), 42.0)
    assert read["explained"].value == pytest.approx(2.0 / 2.1)  # -2.1 within 1.27 is clear of 0


def test_a_ratio_to_a_change_that_is_not_clear_has_no_value() -> None:
    found = Attribution({"gap": [1.0, 1.0]}, {"gap": {"kl": [1.0, 3.0]}}, {"gap": [-1.0, 1.5]}, 48)
    (ratio,) = (metric for metric in attribution_metrics(found) if metric.name == "attribution/gap/explained")
    assert (ratio.value, ratio.why) == (None, "the measured change is not clear of 0")


def test_an_update_that_changed_nothing_says_so_for_every_reading() -> None:
    why = "the update changed no weight"
    found = Attribution({}, {}, {}, 0, missing=dict.fromkeys(READINGS, why), why=why)
    metrics = attribution_metrics(with_greedy(found, [1.0] * 4, [1.0] * 4, 2))
    assert {metric.name.split("/")[1] for metric in metrics} == set(get_args(Name))
    assert {(metric.value, metric.why) for metric in metrics} == {(None, why)}


def test_greedy_success_is_measured_by_blocks_and_has_no_parts() -> None:
    found = Attribution({"gap": [40.0, 44.0]}, {"gap": {"kl": [1.0, 3.0]}}, {"gap": [-2.0, -2.2]}, 48)
    found = with_greedy(found, [1.0, 1.0, 0.0, 1.0], [1.0, 0.0, 0.0, 1.0], 2)
    of_greedy = [metric for metric in attribution_metrics(found) if metric.name.split("/")[1] == GREEDY]
    before, measured = of_greedy
    assert (before.name, before.value) == ("attribution/greedy_success/before", 0.75)
    assert (measured.name, measured.value) == ("attribution/greedy_success/measured", -0.25)
    assert measured.low is not None
    found = with_greedy(found, [1.0] * 4, [1.0] * 4, 2)  # nothing changed: no proof that nothing can
    measured = attribution_metrics(found)[-1]
    assert (measured.value, measured.low, measured.why) == (0.0, None, "no interval: all blocks agree")
