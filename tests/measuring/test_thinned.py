"""A diagnostician with a share reads no more than it says, says what it left out, and forgets nothing in a resume."""

from __future__ import annotations

import json
from typing import Any

import pytest
from test_diagnostician import Reader, acting, diagnostician, measure, measured, scopes

from heedful.measuring.diagnostician import Diagnostician, DiagnosticsConfig
from heedful.scorers.pairs import tokens_of_pairs
from heedful.types import CrossScores, Group, Verdict

NOT_MEASURED = "not measured in this step: the share of"


class Counting(Reader):
    """Counts the ids that it reads: each prompt once, and each distinct thought but its last id under each prompt."""

    def __init__(self) -> None:
        super().__init__()
        self.read = 0

    def cross_score(self, prompts_N: Any, thoughts_M: Any, *rest: Any, **also: Any) -> CrossScores:
        for prompt in prompts_N:
            self.read += len(prompt) + sum(len(thought) - 1 for thought in set(thoughts_M))
        scores: CrossScores = super().cross_score(prompts_N, thoughts_M, *rest, **also)
        return scores


def rolled(count: int = 16, members: int = 4) -> list[Group]:
    found: list[Group] = acting(count, members)
    return found


def tokens_of(groups: list[Group]) -> int:
    """Each group: `members` rows of 2 turns, 2 ids of prompt and 4 of reply each, of which one prompt is shared."""
    return sum(len(group.trajectories) * 12 * 4 - (len(group.trajectories) - 1) * 2 for group in groups)


@pytest.mark.parametrize("share", [0.01, 0.05, 0.1, 0.2, 0.5, 1.0])
def test_what_it_says_it_read_is_what_went_through_the_scorer(share: float) -> None:
    groups = rolled()
    for step in (0, 4):
        scorer = Counting()
        readings = measured(measure(diagnostician(scorer, share=share), step, groups))
        assert readings["tokens/diagnose"].value == scorer.read > 0
        paid_for = 2 if step else 12
        assert readings["cost/diagnosis_share"].value == pytest.approx(scorer.read / paid_for / tokens_of(groups))
        smallest = [readings[f"cost/diagnosis_{name}"].value for name in ("prompts", "thoughts")] == [10.0, 2.0]
        assert readings["cost/diagnosis_share"].value <= share or smallest


class Pairwise(Counting):
    """Reads each pair of prompt and thought whole, and says so beforehand."""

    def reading(self, prompts_N: Any, thoughts_M: Any) -> int:
        return tokens_of_pairs(prompts_N, thoughts_M)

    def cross_score(self, prompts_N: Any, thoughts_M: Any, *rest: Any, **also: Any) -> CrossScores:
        before = self.read
        scores = super().cross_score(prompts_N, thoughts_M, *rest, **also)
        self.read = before + tokens_of_pairs(prompts_N, thoughts_M)
        return scores


def test_a_scorer_that_reads_pair_by_pair_gets_fewer_of_them_for_the_same_share() -> None:
    groups, rows = rolled(), []
    for scorer in (Counting(), Pairwise()):
        readings = measured(measure(diagnostician(scorer, share=0.02), 0, groups))
        assert readings["tokens/diagnose"].value == scorer.read
        assert readings["cost/diagnosis_share"].value <= 0.02
        rows.append(readings["cost/diagnosis_prompts"].value * readings["cost/diagnosis_thoughts"].value)
    assert 20 < rows[1] < rows[0]


def test_what_does_not_fit_is_missing_with_the_reason_and_is_not_asked_of_the_model() -> None:
    groups = rolled()
    scorer = Counting()
    readings = measured(measure(diagnostician(scorer, share=0.005), 0, groups))
    allowed = int(0.005 * 12 * tokens_of(groups))
    for name in ("information/any_turn/mi", "information/observation/gap", "grounding/thought_influence"):
        assert readings[name].value is None
        assert readings[name].why == f"{NOT_MEASURED} 0.005 allows {allowed} tokens"
    assert readings["information/first_turn/mi"].n == 20
    assert readings["information/first_turn/mi"].low is not None
    # 10 prompts of 2 ids, and the 2 first ids of the one distinct thought that the members of a group have.
    assert scorer.read == 10 * 2 + 10 * 10 * 2


def test_a_large_share_changes_no_number() -> None:
    groups = rolled()
    for step in (0, 4):
        free = measure(diagnostician(share=None), step, groups)
        large = measure(diagnostician(share=1e9), step, groups)
        cost = [metric.name for metric in large.metrics if metric.name.startswith(("cost/", "tokens/"))]
        assert [metric for metric in large.metrics if metric.name not in cost] == free.metrics
        assert len(cost) == 4
        assert scopes(large) == scopes(free)


def test_without_a_share_no_cost_is_planned_or_written() -> None:
    names = measured(measure(diagnostician(share=None), 0, rolled()))
    assert not [name for name in names if name.startswith(("cost/", "tokens/"))]


def test_a_resumed_diagnostician_measures_what_the_uninterrupted_one_did() -> None:
    def fresh() -> Diagnostician:
        one: Diagnostician = diagnostician(share=0.03, every=1, full_every=3)
        return one

    whole = fresh()
    expected = [measure(whole, step, rolled(14 + step)).metrics for step in range(6)]
    first = fresh()
    for step in range(4):
        measure(first, step, rolled(14 + step))
    second = fresh()
    second.load_state(json.loads(json.dumps(first.state())))
    assert [measure(second, step, rolled(14 + step)).metrics for step in (4, 5)] == expected[4:]


def test_each_environment_has_the_share_of_its_own_tokens() -> None:
    lake, bandit = rolled(12), [*acting(4, env="bandit")]
    verdicts = [Verdict(1.0, "kept", 0.0)] * 12 + [Verdict(0.0, "dropped", 0.0)] * 4
    scorer = Counting()
    found = measured(diagnostician(scorer, share=0.5).measure(0, [*lake, *bandit], verdicts, "outcome"))
    assert found["tokens/diagnose"].value == scorer.read
    assert (found["cost/lake/diagnosis_prompts"].value, found["cost/bandit/diagnosis_prompts"].value) == (12.0, 4.0)
    # The update reads only the kept groups, so a dropped one pays a quarter, up to the prompt that is read once.
    spent = {name: found[f"cost/{name}/diagnosis_share"].value for name in ("lake", "bandit")}
    read_of_bandit = spent["bandit"] * 12 * 4 * (4 * 12 - 3 * 2)
    assert read_of_bandit + spent["lake"] * 12 * tokens_of(lake) == pytest.approx(scorer.read)


def test_thoughts_that_cannot_be_scored_have_no_cost_and_the_reason() -> None:
    one = Diagnostician(
        DiagnosticsConfig(), None, 0, diagnostician().tags, lambda token: "", unreadable="the model is sharded"
    )
    found = measured(measure(one, 0, rolled()))
    assert found["cost/diagnosis_share"].value is None
    assert found["cost/diagnosis_share"].why == "the model is sharded"
    assert found["tokens/diagnose"].value == 0.0
