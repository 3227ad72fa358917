"""`picture_ignored`: raised where thoughts stop following pictures, silent elsewhere and absent without pictures."""

from heedful.diagnostics.alarms.rules import AlarmConfig, standard_rules
from heedful.diagnostics.alarms.watch import first_raised, replay
from heedful.types import Metric

GAP, P_VALUE = "information/image/gap", "retrieval/image/p_value"


def step(gap: float | None, p: float | None = 0.001, error: float = 0.4) -> dict[str, Metric]:
    """What a full measurement writes of the scope `image`, and of first turns, which hold."""
    width = None if gap is None else 2 * error
    readings = [
        Metric(GAP, gap, 16, None if width is None else gap - width, None if width is None else gap + width),
        Metric(P_VALUE, p, 16),
        Metric("information/first_turn/gap", 14.0, 128, 13.2, 14.8),
        Metric("retrieval/first_turn/p_value", 0.001, 128),
    ]
    return {metric.name: metric for metric in readings}


def raised(*steps: dict[str, Metric]) -> dict[str, int]:
    return {name: alarm.step for name, alarm in first_raised(replay(enumerate(steps))).items()}


def test_a_fall_of_the_pictures_gap_is_an_alarm_while_first_turns_hold() -> None:
    assert raised(*[step(10.0)] * 6, *[step(3.0)] * 3) == {"picture_ignored": 6}
    assert raised(*[step(10.0)] * 6, *[step(9.0)] * 6) == {}
    assert raised(*[step(3.0)] * 6, *[step(10.0)] * 6) == {}


def test_thoughts_that_never_follow_the_picture_are_an_alarm_from_the_second_measurement_on() -> None:
    assert raised(*[step(0.01, p=0.4)] * 4) == {"picture_ignored": 1}
    assert raised(step(0.5, p=0.2), *[step(0.5)] * 4) == {}


def test_it_warns_and_ends_no_run() -> None:
    (rule,) = [rule for rule in standard_rules(AlarmConfig()) if rule.name == "picture_ignored"]
    assert not rule.collapse


def test_without_pictures_nothing_is_written_and_nothing_changes() -> None:
    text = [{name: metric for name, metric in step(None).items() if "image" not in name}] * 6
    names = {metric.name for each in replay(enumerate(text)) for metric in each.metrics}
    assert "alarm/template_collapse" in names
    assert "alarm/picture_ignored" not in names


def test_a_reading_that_is_missing_is_no_alarm() -> None:
    assert raised(*[step(None, None)] * 8) == {}
