"""The studies of the paper's claims: what their arms share, what they differ in, and what the page says of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from heedful.filters import KeepAll, RandomSubset, TopP
from heedful.run.config import TrainConfig
from heedful.studies import STUDIES, find_study
from heedful.studies.declaration import Study

PAGE = Path(__file__).parents[2] / "docs" / "studies.md"


@pytest.mark.parametrize("name", STUDIES)
def test_every_declared_study_states_its_cost_and_has_a_row_on_the_page(name: str) -> None:
    assert (find_study(name).minutes or 0) > 0
    assert f"\n| `{name}` | " in PAGE.read_text(encoding="utf-8")


def configs(study: Study) -> dict[str, TrainConfig]:
    return {arm.name: arm.job.config for arm in study.arms}


def of_filters(study: Study) -> None:
    """Every setting has the three ways to choose, which differ in the filter alone and are compared with it."""
    found = configs(study)
    stems = [name.removesuffix("_top_p") for name in found if name.endswith("_top_p")]
    assert len(found) == 3 * len(stems)
    compared = {(pair.arm, pair.control) for pair in study.pairs}
    for stem in stems:
        filtered = found[f"{stem}_top_p"]
        assert filtered.filter == TopP(p=0.9)
        # The control draws as many prompts as that filter would keep.
        for control, filter in (("keep_all", KeepAll()), ("random_subset", RandomSubset(like=filtered.filter))):
            assert found[f"{stem}_{control}"] == replace(filtered, filter=filter)
            assert (f"{stem}_top_p", f"{stem}_{control}") in compared


def test_regularised_pulls_to_the_start_and_to_entropy_at_four_strengths_on_three_environments() -> None:
    study = find_study("regularised")
    of_filters(study)
    strengths = {(found.env.name, found.algorithm.kl, found.algorithm.entropy) for found in configs(study).values()}
    environments, values = ("frozen_lake", "sokoban", "chain"), (0.0, 0.001, 0.01, 0.03)
    assert strengths == {(env, value, value) for env in environments for value in values}
    # A dial has one line per environment and filter, and every line has all strengths.
    lines = {arm.line: [other.level for other in study.arms if other.line == arm.line] for arm in study.arms}
    assert len(lines) == 9
    assert all(levels == [0.0, 0.001, 0.01, 0.03] for levels in lines.values())


def test_noise_makes_the_ice_slip_and_reads_ceiling_and_luck() -> None:
    study = find_study("noise")
    of_filters(study)
    assert {found.env.slip for found in configs(study).values()} == {0.0, 0.1, 0.3, 0.5, 0.8, 1.0}
    assert all(arm.level == arm.job.config.env.slip for arm in study.arms)
    read = {measure.metric for measure in study.measures}
    assert {"signal/luck_share", "signal/luck_share_kept", "eval/val/best/success"} <= read
