"""The sizes of a measurement follow from a share of the step's tokens: arithmetic by hand, and intervals that hold."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.coverage import BITS, bits, flip_chance
from heedful.diagnostics.cross_scores.information import information
from heedful.measuring.budget import (
    ANY_TURN,
    FIRST_TURN,
    GROUNDING,
    IMAGE,
    LATER_IMAGE,
    LATER_TURN,
    OBSERVATION,
    ORDER,
    Sizes,
    fit,
    step_tokens,
    steps_paid_for,
)
from heedful.measuring.diagnostics_config import DiagnosticsConfig
from heedful.types import Ending, Group, Prompt, Reply, Span, Task, Trajectory, Turn, Verdict

ASKED = Sizes(16, 8, any_turn=32, swapped_rows=16, swapped_columns=8, grounding_rows=16, grounding_columns=8)
WITH_PICTURES = replace(ASKED, image_rows=16, image_columns=8, later_image_rows=16, later_image_columns=8)
SMALLEST = Sizes(10, 2, any_turn=16, swapped_rows=8, swapped_columns=5, grounding_rows=10, grounding_columns=5)


def cost(part: str, sizes: Sizes) -> int:
    """Rows times columns, in hundreds of tokens."""
    cells = {
        OBSERVATION: sizes.swapped_rows * sizes.swapped_columns,
        ANY_TURN: sizes.any_turn**2,
        LATER_TURN: sizes.later_rows * 10,
        GROUNDING: sizes.grounding_rows * sizes.grounding_columns,
        FIRST_TURN: sizes.prompts**2 * sizes.thoughts,
        IMAGE: sizes.image_rows * sizes.image_columns,
        LATER_IMAGE: sizes.later_image_rows * sizes.later_image_columns,
    }
    return 100 * cells[part]


def whole(sizes: Sizes) -> int:
    return sum(cost(part.name, sizes) for part in ORDER)


def test_nothing_is_thinned_where_all_fits() -> None:
    assert whole(ASKED) == 100 * (128 + 1024 + 128 + 2048)
    assert fit(ASKED, cost, whole(ASKED)).sizes == ASKED
    assert fit(ASKED, cost, math.inf).tokens == whole(ASKED)


def test_parts_shrink_in_the_stated_order_and_each_only_as_far_as_it_must() -> None:
    one_less = fit(ASKED, cost, whole(ASKED) - 1)
    assert one_less.sizes == replace(ASKED, swapped_rows=15)
    assert one_less.tokens == whole(ASKED) - 800
    # 8 x 8 observations are not small enough, 8 x 7 are.
    assert fit(ASKED, cost, whole(ASKED) - 100 * (128 - 63)).sizes == replace(ASKED, swapped_rows=8, swapped_columns=7)
    # Without any observation 12,800 tokens are free. 31 drawn turns free 6,300 more.
    none = fit(ASKED, cost, whole(ASKED) - 12_900)
    assert none.sizes == replace(ASKED, swapped_rows=0, swapped_columns=5, any_turn=31)
    assert none.left_out == {OBSERVATION}
    without = whole(ASKED) - 100 * (128 + 1024)
    fewer = fit(ASKED, cost, without - 1)
    assert (fewer.sizes.any_turn, fewer.sizes.grounding_columns, fewer.sizes.grounding_rows) == (0, 8, 15)
    assert fewer.left_out == {OBSERVATION, ANY_TURN}


def test_pictures_of_later_turns_go_first_and_those_of_first_turns_last_of_what_can_be_left_out() -> None:
    first = fit(WITH_PICTURES, cost, whole(WITH_PICTURES) - 1)
    assert first.sizes == replace(WITH_PICTURES, later_image_rows=15)
    assert fit(WITH_PICTURES, cost, whole(WITH_PICTURES) - 100 * 128).left_out == {LATER_IMAGE}
    last = fit(WITH_PICTURES, cost, 100 * (2048 + 128))
    assert last.left_out == {LATER_IMAGE, OBSERVATION, ANY_TURN, GROUNDING}
    assert (last.sizes.image_rows, last.sizes.image_columns) == (16, 8)
    assert fit(WITH_PICTURES, cost, 100 * 2048).left_out == {LATER_IMAGE, OBSERVATION, ANY_TURN, GROUNDING, IMAGE}


def test_later_turns_go_before_exchanged_thoughts_of_first_turns_down_to_two_blocks() -> None:
    asked = replace(ASKED, later_rows=16)
    without = 100 * (2048 + 128)
    assert fit(asked, cost, without + 100 * 90).sizes.later_rows == 9
    assert fit(asked, cost, without + 100 * 80 - 1).left_out == {OBSERVATION, ANY_TURN, LATER_TURN}


def test_rows_of_first_turns_go_last_and_thoughts_before_prompts() -> None:
    fitted = fit(ASKED, cost, 100 * 2048 - 1)
    assert fitted.left_out == {OBSERVATION, ANY_TURN, GROUNDING}
    assert (fitted.sizes.prompts, fitted.sizes.thoughts) == (16, 7)
    fitted = fit(ASKED, cost, 100 * 16 * 16 * 2 - 1)
    assert (fitted.sizes.prompts, fitted.sizes.thoughts) == (15, 2)


def test_first_turns_keep_what_an_interval_needs_whatever_it_costs() -> None:
    fitted = fit(ASKED, cost, 1)
    assert (fitted.sizes.prompts, fitted.sizes.thoughts, fitted.tokens) == (10, 2, 20_000)
    few = Sizes(4, 1)
    assert fit(few, cost, 1).sizes == few


@pytest.mark.parametrize("allowed", [1, 5_000, 20_000, 60_000, 90_000, 150_000, 250_000, 330_000])
def test_no_part_is_between_nothing_and_its_smallest_sizes_and_what_can_fit_fits(allowed: int) -> None:
    fitted = fit(replace(WITH_PICTURES, later_rows=16), cost, allowed)
    assert fitted.tokens == whole(fitted.sizes)
    assert fitted.tokens <= max(allowed, cost(FIRST_TURN, SMALLEST))
    for part in ORDER:
        left_out = part.name in fitted.left_out
        assert left_out == bool(part.rows and getattr(fitted.sizes, part.rows) == 0)
        assert left_out or all(getattr(fitted.sizes, knob) >= least for knob, least in part.knobs.items())


def test_a_part_that_costs_nothing_is_never_given_up() -> None:
    def free(part: str, sizes: Sizes) -> int:
        return 0 if part == OBSERVATION else cost(part, sizes)

    fitted = fit(ASKED, free, 1)
    assert fitted.sizes.swapped_rows == 16
    assert fitted.left_out == {ANY_TURN, GROUNDING}


def test_a_full_measurement_pays_for_its_cycle_less_the_cheap_ones_in_it() -> None:
    assert steps_paid_for(0, 4, 20, full=False) == 2
    # Steps 4, 8, 12 and 16 are cheap.
    assert steps_paid_for(0, 4, 20, full=True) == 20 - 4 * 2
    assert steps_paid_for(23, 4, 20, full=True) == 12  # ahead of time
    assert steps_paid_for(7, 1, 1, full=True) == 1


@pytest.mark.parametrize(("every", "full_every"), [(1, 1), (4, 20), (3, 4), (7, 20), (5, 3), (20, 20), (1, 10)])
def test_both_kinds_together_may_read_the_share_of_all_steps(every: int, full_every: int) -> None:
    steps = every * full_every * 2
    allowed = 0.0
    for step in range(steps):
        if step % full_every == 0 or step % every == 0:
            allowed += 0.05 * 1000 * steps_paid_for(step, every, full_every, full=step % full_every == 0)
    assert allowed == pytest.approx(0.05 * 1000 * steps)


def turn(prompt: tuple[int, ...], reply: tuple[int, ...]) -> Turn:
    span = Span(0, 1), Span(1, 1)
    return Turn(Reply(Prompt("", prompt), reply, "", (0.0,) * len(reply), (), *span, True, False), {}, (), True, "", "")


def test_the_tokens_of_a_step_are_counted_by_hand() -> None:
    task = Task("lake-0", 0, "train")
    one = Trajectory(task, 0, (turn((1, 2, 3), (4, 5)), turn((6,), (7,))), Ending.FAILED, 0.0)
    other = Trajectory(task, 1, (turn((1, 2, 3), (8,)),), Ending.FAILED, 0.0)
    group = Group(task, (one, other))
    # Rows of 7 and 4 tokens, the 3 of the common prompt read once in collecting.
    assert step_tokens([group], [Verdict(0.0, "dropped", 0.0)]) == 7 + 4 - 3
    assert step_tokens([group], [Verdict(1.0, "kept", 0.0)]) == 7 + 4 - 3 + 3 * (7 + 4)


@pytest.mark.parametrize("share", [0.0, -0.1, math.nan, math.inf])
def test_a_share_that_is_no_part_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match=r"share: expected a number above 0 .*found"):
        DiagnosticsConfig(share=share)


def test_at_the_smallest_size_every_metric_of_first_turns_has_an_interval_that_holds_the_truth() -> None:
    """The true gap of the channel is known: two prompts differ in half of the bits, whatever the number of prompts."""
    nats, batches, held = 0.5, 100, 0
    flip = flip_chance(nats)
    truth = (1 - 2 * flip) * math.log((1 - flip) / flip) / 2
    rng = np.random.default_rng(0)
    for _ in range(batches):
        scores = bits(rng, SMALLEST.prompts, SMALLEST.thoughts, nats)
        metrics = information(scores, "first_turn", rng).metrics
        gap = next(metric for metric in metrics if metric.name.endswith("/gap_per_token"))
        assert gap.low is not None
        assert gap.high is not None
        held += gap.low <= truth * (2**BITS / (2**BITS - 1)) <= gap.high
    assert [metric.name for metric in metrics if "interval" in metric.why] == []
    assert held >= 88
