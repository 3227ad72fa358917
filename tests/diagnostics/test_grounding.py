"""Policies whose thought decides, whose prompt decides, or in which nothing does: each reading has its known value."""

import math
from dataclasses import replace

import numpy as np
import pytest
from first_turns import Tabular, acted, group

from heedful.diagnostics.actions.exchanged import Exchange, exchange
from heedful.diagnostics.actions.grounding import GROUNDING_NAMES, grounding
from heedful.diagnostics.statistics.intervals import jackknife_interval
from heedful.measuring.swapped import exchanged_thoughts, score_exchange
from heedful.types import Metric, Task

LEFT, RIGHT = 0, 1


def by_name(metrics: list[Metric]) -> dict[str, Metric]:
    return {metric.name.removeprefix("grounding/"): metric for metric in metrics}


def measured(chance, groups, **knobs) -> dict[str, Metric]:
    found, _ = exchanged_thoughts(Tabular(chance), groups, 1.0, **knobs)
    assert [metric.name for metric in found] == [f"grounding/{name}" for name in GROUNDING_NAMES]
    return by_name(found)


def says(thought):
    """Four prompts with the same four thoughts each: three say left, one says right."""
    return [
        group(prompt, *(acted(prompt, word, thought(prompt, word)) for word in (LEFT, LEFT, LEFT, RIGHT)))
        for prompt in range(4)
    ]


def test_a_thought_that_decides_the_action_is_obeyed_everywhere() -> None:
    found = measured(lambda prompt, thought, action: float(action == thought), says(lambda _, thought: thought))
    mixture = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    assert found["reasoning_to_action"].value == pytest.approx(mixture)
    assert found["reasoning_to_action_ceiling"].value == pytest.approx(mixture)
    assert "saturated" in found["reasoning_to_action"].why
    # Own and foreign word differ in 2 of 4 x 4 x 3/16.
    assert found["thought_influence"].value == pytest.approx(2 * 3 / 16)
    assert found["thought_influence"].n == 4 * 4 * 12


def test_a_thought_that_half_decides_moves_the_action_half_of_the_way() -> None:
    found = measured(lambda prompt, thought, action: 0.75 if action == thought else 0.25, says(lambda _, z: z))
    assert found["thought_influence"].value == pytest.approx(0.5 * 2 * 3 / 16)
    left = math.log(0.75 / (0.75 * 0.75 + 0.25 * 0.25))
    right = math.log(0.75 / (0.75 * 0.25 + 0.25 * 0.75))
    assert found["reasoning_to_action"].value == pytest.approx(0.75 * left + 0.25 * right)


def test_a_prompt_that_decides_the_action_heeds_no_thought() -> None:
    found = measured(
        lambda prompt, thought, action: float(action == prompt % 2), says(lambda prompt, thought: prompt % 2)
    )
    assert (found["reasoning_to_action"].value, found["thought_influence"].value) == (0.0, 0.0)


def test_where_nothing_decides_nothing_moves() -> None:
    found = measured(lambda prompt, thought, action: (0.6, 0.4)[action], says(lambda prompt, thought: prompt % 2))
    for name in ("reasoning_to_action", "thought_influence"):
        assert found[name].value == pytest.approx(0.0, abs=1e-12)


def made_up(prompts=5, each=4, seed=0) -> tuple[Exchange, np.ndarray]:
    """Random log-probabilities of three spellings of two actions."""
    rng = np.random.default_rng(seed)
    rows = prompts * each
    asked = Exchange(
        prompts_N=tuple((prompt,) for prompt in range(prompts)),
        thoughts_M=tuple((int(word),) for word in rng.integers(6, size=rows)),
        own_M=tuple(np.repeat(np.arange(prompts), each).tolist()),
        spellings_S=((7,), (8, 7), (8, 9)),
        action_S=(0, 0, 1),
        names_A=("a", "b"),
        tasks_N=tuple(Task(str(prompt), prompt, "train") for prompt in range(prompts)),
        counts_NA=((each, 0),) * prompts,
        foreign=prompts,
        taken_M=tuple(rng.integers(3, size=rows).tolist()),
    )
    chances_MNS = rng.dirichlet([1, 1, 1, 1], size=(rows, prompts))[:, :, :3]
    # Equal thoughts are equally read.
    for row, word in enumerate(asked.thoughts_M):
        chances_MNS[row] = chances_MNS[asked.thoughts_M.index(word)]
    return asked, np.log(chances_MNS)


def without(asked: Exchange, logprobs_MNS: np.ndarray, prompt: int) -> tuple[Exchange, np.ndarray]:
    rows = [row for row, own in enumerate(asked.own_M) if own != prompt]
    columns = [column for column in range(len(asked.prompts_N)) if column != prompt]
    left = replace(
        asked,
        prompts_N=tuple(asked.prompts_N[column] for column in columns),
        thoughts_M=tuple(asked.thoughts_M[row] for row in rows),
        own_M=tuple(columns.index(asked.own_M[row]) for row in rows),
        tasks_N=tuple(asked.tasks_N[column] for column in columns),
        counts_NA=tuple(asked.counts_NA[column] for column in columns),
        taken_M=tuple(asked.taken_M[row] for row in rows),
    )
    return left, logprobs_MNS[np.ix_(rows, columns)]


def test_every_interval_is_that_of_readings_taken_anew_without_one_prompt() -> None:
    asked, logprobs = made_up()
    whole = by_name(grounding(asked, logprobs))
    deleted = [by_name(grounding(*without(asked, logprobs, prompt))) for prompt in range(5)]
    ranges = {
        "reasoning_to_action": (-math.inf, whole["reasoning_to_action_ceiling"].value),
        "thought_influence": (0.0, 1.0),
    }
    for name, ends in ranges.items():
        values = np.array([found[name].value for found in deleted])
        expected = jackknife_interval(whole[name].value, values).cut(*ends)
        assert (whole[name].low, whole[name].high) == pytest.approx(tuple(expected), abs=1e-9), name


def test_spellings_of_one_action_add_up() -> None:
    asked, logprobs = made_up()
    joined = replace(asked, spellings_S=((7,), (8, 9)), action_S=(0, 1), taken_M=tuple(t // 2 for t in asked.taken_M))
    both = np.stack([np.logaddexp(logprobs[:, :, 0], logprobs[:, :, 1]), logprobs[:, :, 2]], axis=2)
    apart, together = by_name(grounding(asked, logprobs)), by_name(grounding(joined, both))
    assert apart["thought_influence"].value == pytest.approx(together["thought_influence"].value)
    assert apart["thought_influence"].n == together["thought_influence"].n


def test_one_distinct_thought_has_nothing_to_vary() -> None:
    groups = [group(prompt, *(acted(prompt, LEFT, action) for action in (0, 0, 1, 1))) for prompt in range(3)]
    found = measured(lambda prompt, thought, action: 0.5, groups)
    for name in GROUNDING_NAMES[:2]:
        assert found[name].value is None
        assert found[name].why == "every prompt has one distinct thought: there is nothing to vary"
    assert found["thought_influence"].value == 0.0


def test_a_prompt_with_one_distinct_thought_counts_as_none_told() -> None:
    groups = [
        group(0, acted(0, LEFT, LEFT), acted(0, RIGHT, RIGHT)),
        group(1, acted(1, LEFT, LEFT), acted(1, LEFT, LEFT)),
    ]
    found = measured(lambda prompt, thought, action: float(action == thought), groups)
    assert found["reasoning_to_action"].value == pytest.approx(math.log(2) / 2)
    assert found["reasoning_to_action_ceiling"].value == pytest.approx(math.log(2) / 2)
    assert found["reasoning_to_action"].n == 4


def test_one_prompt_leaves_what_can_be_read_within_it() -> None:
    found = measured(lambda prompt, thought, action: float(action == thought), says(lambda _, thought: thought)[:1])
    assert found["reasoning_to_action"].value == pytest.approx(found["reasoning_to_action_ceiling"].value)
    influence = found["thought_influence"]
    assert (influence.value, influence.why) == (None, "needs at least 2 prompts, found 1")


def test_single_thoughts_are_compared_with_those_of_other_prompts() -> None:
    groups = [group(prompt, acted(prompt, prompt % 2, prompt % 2)) for prompt in range(4)]
    found = measured(lambda prompt, thought, action: float(action == thought), groups)
    assert found["thought_influence"].value == pytest.approx(8 / 12)


def test_free_text_tells_what_it_can() -> None:
    """Every reply has words of its own: what follows thought and prompt can be told, a distribution cannot."""
    groups = [
        group(prompt, *(acted(prompt, word, 10 + 4 * prompt + 2 * member + word) for member, word in enumerate((0, 1))))
        for prompt in range(4)
    ]
    scorer = Tabular(lambda prompt, thought, action: 0.9 if action % 2 == (10 + thought) % 2 else 0.3)
    asked = exchange(groups)
    assert asked.free.startswith("free text: ")
    logprobs = score_exchange(scorer, asked, 1.0)
    assert np.isfinite(logprobs).sum() == 8 * 2  # the spellings of the own prompt were asked, under it alone
    found = by_name(grounding(asked, logprobs))
    assert (found["thought_influence"].value, found["thought_influence"].why) == (None, asked.free)
    assert found["reasoning_to_action"].value is not None


def test_scores_that_are_not_finite_are_no_reading() -> None:
    asked, logprobs = made_up()
    logprobs[3, 2, 1] = np.nan
    for metric in grounding(asked, logprobs):
        assert (metric.value, metric.why) == (None, "the scores hold NaN or infinite values")


def test_names_carry_the_scorer_and_the_environment() -> None:
    asked, logprobs = made_up()
    assert grounding(asked, logprobs, "/lake")[0].name == "grounding/lake/reasoning_to_action"
    assert grounding(asked, logprobs, "", "judge")[0].name == "grounding@judge/reasoning_to_action"
    missing = grounding(Exchange(why="nobody acted"), np.zeros((0, 0, 0)), "/lake")
    assert {metric.why for metric in missing} == {"nobody acted"}
