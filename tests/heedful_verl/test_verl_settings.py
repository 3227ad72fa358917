"""The section `heedful` of verl's configuration, without verl."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
import yaml

import heedful_verl
from heedful.boundary import ConfigurationError
from heedful.filters import DropConstant, TopP
from heedful_verl.settings import HeedfulConfig, read_section

DEFAULTS = Path(heedful_verl.__file__).parent / "conf" / "heedful" / "default.yaml"


def test_the_defaults_for_hydra_are_the_defaults_of_the_configuration() -> None:
    tree = yaml.safe_load(DEFAULTS.read_text(encoding="utf-8"))
    assert read_section(tree) == HeedfulConfig() == read_section(None)
    assert tree.keys() == {field.name for field in fields(HeedfulConfig)}


def test_a_partial_section_changes_what_it_names() -> None:
    found = read_section(
        {"filter": {"type": "drop_constant", "on": "acc"}, "outcome": "acc", "diagnostics": {"every": 2}}
    )
    assert found.filter == DropConstant(on="acc")
    assert (found.outcome, found.diagnostics.every, found.diagnostics.full_every) == ("acc", 2, 20)
    assert read_section({"filter": {"p": 0.5}}).filter == TopP(p=0.5, on="reward")


def test_yamls_on_is_a_sentence_about_quotes() -> None:
    section = yaml.safe_load("filter: {type: top_p, on: reward}")
    assert section["filter"][True] == "reward"  # what YAML makes of it
    with pytest.raises(ConfigurationError, match=r'heedful\.filter: .*the boolean true.*Write "on": in quotes'):
        read_section(section)


@pytest.mark.parametrize(
    ("section", "sentence"),
    [
        ({"filtre": {}}, r"heedful\.filtre: unknown setting; did you mean filter"),
        ({"filter": {"type": "top_q"}}, r"heedful\.filter\.type"),
        ({"filter": {"type": "soft_weight"}}, "Inside verl a group is kept or dropped"),
        ({"diagnostics": {"every": 0}}, r"heedful\.diagnostics\.every: expected a whole number of at least 1"),
        ({"diagnostics": {"judge": "some/model"}}, "Expected no diagnostics.judge"),
        ({"max_pairs": 1}, "max_pairs: expected a whole number of at least 4"),
        ({"filter": {"type": "drop_constant"}, "loss_scale": "rho"}, "the chosen filter asks for none"),
        ({"on_collapse": "halt"}, r"heedful\.on_collapse"),
        ({"outcome": 3}, r"heedful\.outcome"),
        ("top_p", "expected an object"),
    ],
)
def test_a_mistake_is_a_sentence_that_says_where(section: object, sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        read_section(section)


def test_every_mistake_of_a_section_is_named_at_once() -> None:
    with pytest.raises(ConfigurationError, match="2 problems"):
        read_section({"seeds": 1, "logs": "none"})
