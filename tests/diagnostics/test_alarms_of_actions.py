"""`action_uninformed`: raised where first actions stop following their prompts, silent where nothing changes."""

from collections.abc import Sequence

import numpy as np
import pytest

from heedful.diagnostics.actions.information import action_information
from heedful.diagnostics.alarms.watch import first_raised, replay
from heedful.types import Metric

NAME = "grounding/input_to_action"
PROMPTS, MEMBERS, ACTIONS = 16, 8, 4

# How surely a prompt's own action is taken.
CERTAIN, NEARLY, NOT_AT_ALL = 1.0, 0.8, 0.0


def reading(rng: np.random.Generator, certainty: float) -> Metric:
    """I(X;A) of one batch, by the estimator of a run."""
    own_NA = np.eye(ACTIONS)[rng.integers(ACTIONS, size=PROMPTS)]
    chances_NA = certainty * own_NA + (1 - certainty) / ACTIONS
    found = action_information(np.array([rng.multinomial(MEMBERS, chances_A) for chances_A in chances_NA], dtype=float))
    assert found.interval is not None
    return Metric(NAME, found.value, PROMPTS * MEMBERS, found.interval.low, found.interval.high)


def raised(readings: Sequence[Metric]) -> int | None:
    alarms = first_raised(replay(enumerate({NAME: metric} for metric in readings)))
    return alarms["action_uninformed"].step if "action_uninformed" in alarms else None


@pytest.mark.parametrize(("certainty", "latest"), [(CERTAIN, 7), (NEARLY, 14)])
def test_a_loss_of_what_the_action_tells_is_an_alarm_after_two_readings_at_the_earliest(
    certainty: float, latest: int
) -> None:
    for seed in range(5):
        rng = np.random.default_rng(seed)
        steps = [reading(rng, certainty) for _ in range(6)] + [reading(rng, NOT_AT_ALL) for _ in range(9)]
        found = raised(steps)
        assert found is not None
        assert 7 <= found <= latest


@pytest.mark.parametrize("certainty", [CERTAIN, NEARLY, 0.5, 0.2, NOT_AT_ALL])
def test_where_nothing_changes_no_alarm_is_raised(certainty: float) -> None:
    for seed in range(4):
        rng = np.random.default_rng(seed)
        assert raised([reading(rng, certainty) for _ in range(25)]) is None


@pytest.mark.parametrize("half", [0.02, 0.15, 0.3])
def test_the_recorded_readings_of_smollm2_raise_none(half: float) -> None:
    """Two healthy runs, and the collapse (docs/results/smollm2.md), with a single high reading before its fall."""
    runs = [
        [0.163, 0.006, 0.040, 0.576, 0.693],
        [0.006, 0.204, 0.259, 0.390, 0.529],
        [0.006, 0.693, 0.067, 0.000, 0.000],
    ]
    for values in runs:
        assert raised([Metric(NAME, value, 64, value - half, value + half) for value in values]) is None


def test_one_batch_whose_prompts_call_for_one_action_is_no_alarm() -> None:
    rng = np.random.default_rng(0)
    steps = [reading(rng, CERTAIN) for _ in range(6)]
    assert raised([*steps, Metric(NAME, 0.0, 128, 0.0, 0.0), *steps]) is None
