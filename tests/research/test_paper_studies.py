"""The studies of the paper's claims: what their arms share, what they differ in, and what the page says of them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from heedful.filters import KeepAll, RandomSubset, TopP
from heedful.run.config import TrainConfig
from heedful.studies.declaration import Arm, Study, study_from_json, study_to_json, train
from heedful.studies.running.runner import growth
from research.__main__ import run
from research.catalogue import STUDIES

FINISHED = {
    "planted": "b636a0ed4303",
    "detector": "d0bf1b7a4063",
    "attribution_causes": "bad114d22fd4",
    "filter_on_collapse": "054d59352d19",
    "algorithms": "d444e416420d",
    "regularised": "c42a6bad163b",
    "matrix": "b1c08af0da8d",
    "sizes": "6aa1770ff559",
    "selection": "00a2010895e0",
    "selection_sokoban": "3bdca1c908a3",
    "shaped": "60b0758f54c8",
    "noise": "de32bc33465f",
    "natural": "851c60cdc49e",
    "natural_repeated": "61434cd10069",
    "natural_causes": "3a1cbcefed37",
    "early_warning": "8cb11d9c9f42",
    "quartiles": "f0d68a28a65d",
    "quartiles_sokoban": "2e5055ed623e",
    "gradients": "f0f9754fa380",
    "fork_causes": "c6d5d7f85291",
    "null_terms": "5d6447507f00",
    "cut": "bfe2cb51c4c8",
    "pretrained": "42c639121699",
    "visual": "43bd59568464",
    "budgets": "d06c4f574d01",
    "budgets_beds": "e0a351534a5b",
    "budgets_causes": "e8892810763a",
}
"""Study -> the beginning of the hash of its declaration, without its jobs."""

PAGE = Path(__file__).parents[2] / "research" / "README.md"


@cache
def declared(name: str) -> Study:
    return STUDIES[name]()


@pytest.mark.parametrize("name", STUDIES)
def test_every_declared_study_states_its_cost_and_has_a_row_on_the_page(name: str) -> None:
    study = declared(name)
    assert (study.name, study.question[-1]) == (name, "?")
    assert (study.minutes or 0) > 0
    assert f"\n| `{name}` | " in PAGE.read_text(encoding="utf-8")
    assert study_from_json(json.loads(json.dumps(study_to_json(study)))) == study


def test_the_studies_are_listed_and_explained_from_a_checkout(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 0
    shown = capsys.readouterr().out
    for name in STUDIES:
        assert f"\n  {name}\n      {declared(name).question}\n" in shown
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


@pytest.mark.parametrize("name", ["regularised", "noise", "matrix", "algorithms", "sizes"])
def test_each_setting_has_the_filter_and_its_two_controls(name: str) -> None:
    study = declared(name)
    of_filters(study)
    lines = {
        arm.line: [other.level for other in study.arms if other.line == arm.line] for arm in study.arms if arm.line
    }
    assert len(set(map(tuple, lines.values()))) <= 1  # every line of a dial has all levels


def test_the_declarations_of_finished_studies_stay_as_they_were() -> None:
    """Another word would make their runs those of another study. Jobs are left out: they grow with the settings."""
    found = {}
    for name in STUDIES:
        tree = study_to_json(declared(name))
        arms = [{key: value for key, value in arm.items() if key != "job"} for arm in tree["arms"]]
        outcomes = [{key: value for key, value in each.items() if key != "thresholds"} for each in tree["outcomes"]]
        words = json.dumps(tree | {"arms": arms, "outcomes": outcomes})
        found[name] = hashlib.sha256(words.encode()).hexdigest()[:12]
    assert found == FINISHED


def test_the_cost_names_the_models_that_are_grown() -> None:
    assert growth(declared("noise")) == "and 6 models to grow, unless stored"
    assert growth(declared("quartiles")) == "and 1 model to grow, unless stored"
    loaded = replace(declared("quartiles"), arms=(Arm("a", train("echo", "--model somewhere")),), pairs=())
    assert not growth(loaded)
