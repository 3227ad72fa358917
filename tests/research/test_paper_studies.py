"""The studies of the paper's claims: what their arms share, what they differ in, and what the page says of them."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path

import pytest

from heedful.algorithms.advantages import GroupRelative
from heedful.filters import KeepAll, RandomSubset, TopP
from heedful.run.config import TrainConfig
from heedful.studies.declaration import Arm, Pair, Study, study_from_json, study_to_json, train
from heedful.studies.running.runner import growth
from research.__main__ import run
from research.catalogue import STUDIES
from research.correlations.report import FEWEST_EVALUATIONS

PAGE = Path(__file__).parents[2] / "research" / "README.md"


@pytest.mark.parametrize("name", STUDIES)
def test_every_declared_study_states_its_cost_and_has_a_row_on_the_page(name: str) -> None:
    study = STUDIES[name]()
    assert (study.name, study.question[-1]) == (name, "?")
    assert (study.minutes or 0) > 0
    assert f"\n| `{name}` | " in PAGE.read_text(encoding="utf-8")
    assert study_from_json(json.loads(json.dumps(study_to_json(study)))) == study


def test_the_studies_are_listed_and_explained_from_a_checkout(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 0
    shown = capsys.readouterr().out
    for name, make in STUDIES.items():
        assert f"\n  {name}\n      {make().question}\n" in shown
    assert "python -m research NAME runs it." in shown
    assert run(["planted", "--help"]) == 0
    assert "samples 50 batches of 16 x 4 from a warm start" in capsys.readouterr().out


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
    # What is compared between settings is the filter against none, which each setting reports by itself, too.
    assert study.interactions
    for each in study.interactions:
        assert {each.pair, each.base} <= set(study.pairs)
        assert all(pair.control == f"{pair.arm.removesuffix('_top_p')}_keep_all" for pair in (each.pair, each.base))


def test_regularised_pulls_to_the_start_and_to_entropy_at_four_strengths_on_three_environments() -> None:
    study = STUDIES["regularised"]()
    of_filters(study)
    strengths = {(found.env.name, found.algorithm.kl, found.algorithm.entropy) for found in configs(study).values()}
    environments, values = ("frozen_lake", "sokoban", "chain"), (0.0, 0.001, 0.01, 0.03)
    assert strengths == {(env, value, value) for env in environments for value in values}
    # A dial has one line per environment and filter, and every line has all strengths.
    lines = {arm.line: [other.level for other in study.arms if other.line == arm.line] for arm in study.arms}
    assert len(lines) == 9
    assert all(levels == [0.0, 0.001, 0.01, 0.03] for levels in lines.values())


def test_the_cost_names_the_models_that_are_grown() -> None:
    assert growth(STUDIES["noise"]()) == "and 6 models to grow, unless stored"
    assert growth(STUDIES["quartiles"]()) == "and 1 model to grow, unless stored"
    loaded = replace(STUDIES["quartiles"](), arms=(Arm("a", train("echo", "--model somewhere")),), pairs=())
    assert not growth(loaded)


def test_noise_makes_the_ice_slip_and_reads_ceiling_and_luck() -> None:
    study = STUDIES["noise"]()
    of_filters(study)
    assert {found.env.slip for found in configs(study).values()} == {0.0, 0.1, 0.3, 0.5, 0.8, 1.0}
    assert all(arm.level == arm.job.config.env.slip for arm in study.arms)
    read = {measure.metric for measure in study.measures}
    assert {"signal/luck_share", "signal/luck_share_kept", "eval/val/best/success"} <= read


def test_matrix_has_four_algorithms_on_the_rest_of_the_papers_environments() -> None:
    study = STUDIES["matrix"]()
    of_filters(study)
    found = configs(study).values()
    settings = {(type(each.algorithm).__name__, each.env.name) for each in found}
    environments = ("sokoban", "math", "countdown")
    assert settings == {(name, env) for name in ("Ppo", "Grpo", "Dapo", "DrGrpo") for env in environments}
    assert {(each.algorithm.kl, each.algorithm.entropy, each.algorithm.minibatches) for each in found} == {
        (0, 0.001, 1)
    }


def test_algorithms_has_the_same_table_on_frozen_lake_without_a_regulariser() -> None:
    study = STUDIES["algorithms"]()
    of_filters(study)
    assert {(type(each.algorithm).__name__, each.env.name) for each in configs(study).values()} == {
        (name, "frozen_lake") for name in ("Ppo", "Grpo", "Dapo", "DrGrpo")
    }
    assert {each.algorithm.entropy for each in configs(study).values()} == {0}


def test_sizes_grow_seedlings_of_four_sizes() -> None:
    study = STUDIES["sizes"]()
    of_filters(study)
    parameters = set()
    for config in configs(study).values():
        recipe = config.seedling
        width, values = recipe.hidden, recipe.hidden // recipe.heads * recipe.kv_heads
        layer = 2 * width * width + 2 * width * values + 3 * width * recipe.ffn
        parameters.add(round((recipe.vocabulary * width + recipe.layers * layer) / 1e6, 2))
    assert parameters == {0.13, 0.85, 3.08, 9.93}


def test_selection_sweeps_the_filters_where_regularisers_pull_and_reads_the_cost_of_a_success() -> None:
    study = STUDIES["selection"]()
    found = configs(study)
    swept = {config.filter.p for config in found.values() if isinstance(config.filter, TopP)}
    assert swept == {0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 1.0}
    kinds = {type(config.filter).__name__ for config in found.values()}
    assert kinds == {"TopP", "TopK", "MinP", "Softmax", "Shrunken", "SoftWeight", "RandomSubset", "KeepAll"}
    first = replace(found["keep_all"], filter=TopP())
    assert all(replace(config, filter=TopP()) == first for config in found.values())
    assert (first.algorithm.kl, first.algorithm.entropy) == (0.01, 0.01)
    costs = {measure.metric for measure in study.measures if measure.when == "total_until"}
    assert costs == {"tokens/update", "tokens/collect", "time/cpu"}
    assert len(study.pairs) == 2 * (len(found) - 3) + 1 + 5
    assert {pair.arm for pair in study.pairs[-5:]} == {"top_p_0.8_to_0.98", "top_p_0.5_to_0.8", "top_k_4_to_10"}
    # Each random subset is compared with the filter that keeps as many prompts.
    for share in (0.5, 0.9):
        assert Pair(f"top_p_{share}", f"random_{share}") in study.pairs
        assert found[f"random_{share}"].filter == RandomSubset(like=TopP(p=share))
    sokoban = STUDIES["selection_sokoban"]()
    assert Pair("top_p_0.9", "top_k_10") in sokoban.pairs  # they keep as many prompts there
    few = configs(sokoban)
    assert few.keys() < found.keys()
    assert {name: config.filter for name, config in few.items()} == {name: found[name].filter for name in few}


def test_shaped_changes_the_filter_or_the_advantage_and_nothing_else() -> None:
    study = STUDIES["shaped"]()
    found = configs(study)
    first = found["keep_all"]
    centred = replace(first.algorithm, advantage=GroupRelative(standardize=False))
    for name, config in found.items():
        assert config.algorithm == (centred if name.endswith("_centred") else first.algorithm)
        assert replace(config, filter=first.filter, algorithm=first.algorithm) == first
        assert getattr(config.filter, "on", "outcome") == ("reward" if name.endswith("_reward") else "outcome")
    regularised = configs(STUDIES["regularised"]())
    for name, other in (("keep_all",) * 2, ("random_subset",) * 2, ("top_p_outcome", "top_p")):
        assert found[name] == regularised[f"sokoban_0_{other}"]
    assert 0 not in study.seeds  # the seed with which the effect was seen first


def test_natural_is_half_of_a_grid_in_which_all_pairs_of_settings_meet_equally_often() -> None:
    study = STUDIES["natural"]()
    assert 40 <= len(study.arms) * len(study.seeds) <= 100
    for env in ("chain", "sokoban", "math"):
        rows = [tuple(part[1] for part in arm.name.split("_")[1:]) for arm in study.arms if arm.name.startswith(env)]
        assert len(set(rows)) == 16
        for one, other in combinations(range(5), 2):
            assert set(Counter((row[one], row[other]) for row in rows).values()) == {4}
    episodes = {config.groups * config.group_size for config in configs(study).values()}
    assert episodes == {128}
    # Healthy starts: nothing of what forces a collapse elsewhere.
    for config in configs(study).values():
        assert (config.seedling.template, config.algorithm.kl) == (0.0, 0.0)
        assert getattr(config.env, "unrewarded", 0.0) == getattr(config.env, "fluency", 0.0) == 0.0


def test_early_warning_evaluates_often_enough_for_the_next_evaluation_to_be_told() -> None:
    study = STUDIES["early_warning"]()
    for config in configs(study).values():
        steps = sorted(config.evaluation.at(config.steps))
        assert len(steps) >= FEWEST_EVALUATIONS
        # Each evaluation has readings of its own, so that the one before it is never read twice.
        assert config.diagnostics.every == 1
        assert config.diagnostics.full_every <= min(later - step for step, later in pairwise(steps))
    losing, learning = study.outcomes[0].induced, study.outcomes[0].healthy
    assert {*losing, *learning} == {arm.name for arm in study.arms}
    assert not set(losing) & set(learning)
