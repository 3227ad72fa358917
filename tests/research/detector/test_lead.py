"""Falls of success, leads of alarms, and departures of metrics, on series written by hand."""

from heedful.types import Metric
from research.detector.early_warning import LeadTable, RunLead, find_fall, first_alarm, first_departure


def success(*values: float | None, half: float = 0.03) -> list[tuple[int, Metric]]:
    """Evaluations at steps 0, 10, 20, ... with intervals of +- half."""
    return [
        (
            10 * place,
            Metric("s", value, 1000, None if value is None else value - half, None if value is None else value + half),
        )
        for place, value in enumerate(values)
    ]


def test_a_fall_is_the_first_evaluation_that_is_ten_points_down() -> None:
    fall = find_fall(success(0.7, 0.75, 0.65, 0.55, 0.2))
    assert fall is not None
    assert (fall.step, fall.good_until, fall.start, fall.value) == (30, 20, 0.7, 0.55)


def test_exactly_ten_points_are_enough_and_rounding_does_not_lose_them() -> None:
    fall = find_fall(success(0.4, 0.3))
    assert fall is not None
    assert fall.step == 10


def test_a_fall_within_the_noise_of_the_evaluations_is_none() -> None:
    # Ten points down, but the two intervals of +-0.08 add up to +-0.113.
    assert find_fall(success(0.5, 0.4, half=0.08)) is None
    assert find_fall(success(0.5, 0.38, half=0.08)) is not None


def test_evaluations_without_a_value_or_an_interval_show_no_fall() -> None:
    assert find_fall(success(0.7, None)) is None
    assert find_fall([(0, Metric("s", 0.7, low=0.6, high=0.8)), (5, Metric("s", 0.1))]) is None
    fall = find_fall(success(0.7, None, 0.3))
    assert fall is not None
    assert (fall.step, fall.good_until) == (20, 0)


def test_success_that_rises_and_returns_to_its_start_has_not_fallen() -> None:
    assert find_fall(success(0.6, 0.95, 0.6)) is None


def test_the_first_alarm_names_all_that_were_raised_then() -> None:
    assert first_alarm({"a": [9, 12], "b": [9], "c": [30], "d": []}) == (9, ("a", "b"))
    assert first_alarm({"a": []}) == (None, ())


def test_leads_and_their_counts() -> None:
    falling = success(0.7, 0.72, 0.5)  # falls at 20, good until 10
    steps = {"early": 4, "between": 15, "at once": 20, "late": 26, "missed": None}
    runs = [RunLead(run, find_fall(falling), step) for run, step in steps.items()]
    runs.append(RunLead("never fell", find_fall(success(0.7, 0.7)), 3))
    assert [run.lead for run in runs] == [16, 5, 0, -6, None, None]
    healthy = (RunLead("h0", None, None), RunLead("h1", None, 7, ("a",)))
    table = LeadTable(tuple(runs), healthy)
    assert (table.fallen.hits, table.fallen.of) == (5, 6)
    # An alarm at the very evaluation that shows the fall is no warning.
    assert (table.warned.hits, table.warned.of) == (2, 5)
    # Between the last good evaluation and the fall nobody knows which came first.
    assert (table.surely_warned.hits, table.surely_warned.of) == (1, 5)
    assert (table.false_alarms.hits, table.false_alarms.of) == (1, 2)


def readings(*values: float, half: float = 0.1) -> list[tuple[int, Metric]]:
    return [(step, Metric("m", value, low=value - half, high=value + half)) for step, value in enumerate(values)]


def test_a_metric_departs_when_its_whole_interval_leaves_its_start() -> None:
    # The first three span 0.85 to 1.15; 0.8 +- 0.1 still touches it, 0.7 +- 0.1 does not.
    series = readings(1.0, 0.95, 1.05, 0.8, 0.7, 2.0)
    assert first_departure(series, "lower") == 4
    assert first_departure(series, "higher") == 5
    assert first_departure(series, None) == 4


def test_three_readings_are_a_start_and_no_departure() -> None:
    assert first_departure(readings(1.0, 0.0, 2.0), None) is None
    assert first_departure([(0, Metric("m", 1.0)), (1, Metric("m", 9.0))], None) is None
