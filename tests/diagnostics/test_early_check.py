import json
from dataclasses import asdict

from heedful.diagnostics.alarms.early_check import EarlyCheck, cheap_rows, check_gap
from heedful.types import Metric


def gap(low, high):
    return Metric("gap_per_token", None if low is None else (low + high) / 2, 32, low, high)


def after(*intervals, pause=10, start=None):
    """Feed intervals at steps 0, 4, 8, ... and return the steps at which a full measurement was called for."""
    state, raised = start or EarlyCheck(), []
    for number, interval in enumerate(intervals):
        state, suspicious = check_gap(state, gap(*interval), 4 * number, pause)
        raised += [4 * number] if suspicious else []
    return state, raised


BASELINE = [(1.0, 3.0), (2.0, 4.0), (3.0, 5.0)]  # mean: 2 to 4


def test_the_baseline_is_the_mean_of_the_first_three_intervals() -> None:
    state, raised = after(*BASELINE)
    assert (state.lows, state.highs, raised) == ((1.0, 2.0, 3.0), (3.0, 4.0, 5.0), [])


def test_only_an_interval_that_lies_outside_is_suspicious() -> None:
    for interval, expected in [((1.0, 1.99), True), ((1.0, 2.0), False), ((4.0, 9.0), False), ((4.01, 9.0), True)]:
        assert bool(after(*BASELINE, interval)[1]) is expected


def test_it_calls_at_most_once_in_a_pause() -> None:
    fallen = (0.1, 0.2)
    assert after(*BASELINE, *[fallen] * 8)[1] == [12, 24, 36]
    assert after(*BASELINE, *[fallen] * 8, pause=4)[1] == [12, 16, 20, 24, 28, 32, 36, 40]


def test_the_first_three_are_never_suspicious_and_missing_intervals_do_not_count() -> None:
    assert after((9.0, 9.5), (0.1, 0.2), (9.0, 9.5))[1] == []
    state, raised = after((None, None), *BASELINE, (None, None), (0.1, 0.2))
    assert state.lows == (1.0, 2.0, 3.0)
    assert raised == [20]


def test_a_resumed_run_becomes_suspicious_where_the_uninterrupted_one_did() -> None:
    half, _ = after(*BASELINE, (0.1, 0.2))
    resumed = EarlyCheck.from_json(json.loads(json.dumps(asdict(half))))
    assert resumed == half
    assert check_gap(resumed, gap(0.1, 0.2), 20, 10) == check_gap(half, gap(0.1, 0.2), 20, 10) == (half, False)
    assert check_gap(resumed, gap(0.1, 0.2), 22, 10)[1]


def test_a_full_measurement_holds_the_rows_of_a_cheap_one() -> None:
    chosen = cheap_rows([0, 0, 0, 1, 2, 2, 1, 0], prompts=2, thoughts=2)
    assert [row for row, one in enumerate(chosen) if one] == [0, 1, 3, 6]
