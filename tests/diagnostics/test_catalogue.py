"""The catalogue of metrics: its patterns, what reads it, and the page that is made from it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from heedful.auditing.scalars.aliases import ALIASES
from heedful.diagnostics.alarms.conditions import Change
from heedful.diagnostics.alarms.logged_rules import logged_rules
from heedful.diagnostics.alarms.rules import AlarmConfig, standard_rules
from heedful.diagnostics.catalogue import CATALOGUE, LIVE_COLUMNS, TABLES, direction_of, entry_of, unit_of
from heedful.diagnostics.catalogue.entry import PARTS, Entry, under
from heedful.diagnostics.catalogue.page import with_tables

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


def test_every_entry_names_its_own_metrics() -> None:
    for name, text in (
        ("information/first_turn/mi", "Mutual information of thought"),
        ("information@judge/any_turn/lake/mi", "Mutual information of thought"),
        ("information/first_turn/entropy_conditional_per_token", "per token: how much thoughts vary when"),
        ("reward/mean", "sum of all reward components"),
        ("reward/step", "this component"),
        ("retrieval/first_turn_closed/accuracy@5", "among the k best"),
        ("eval/val/fixed/success", "never reads its input"),
        ("gradient/all/task_prompt_signal2", "a prompt's own expected gradient"),
        ("gradient/bucket_3/task_group_norm", "single group's gradient"),
        ("gradient/all/kl_norm", "of the mean gradient"),
        ("grounding/thought_influence", "replaced by another prompt's thought"),
        ("grounding@judge/lake/reasoning_to_action", "after its own thought"),
        ("regime/any_turn/lake", "Diverse, template"),
        ("attribution/greedy_success/measured", "same fresh thoughts"),
        ("attribution/right_by_thought/kl", "this part of the update"),
    ):
        entry = entry_of(name)
        assert entry is not None, name
        assert text in entry.text, name


@pytest.mark.parametrize(
    "name",
    ["mystery/number", "information/mi", "information/last_turn/mi", "informations/first_turn/mi", "gradient/some/snr"],
)
def test_a_name_that_nothing_writes_has_no_entry(name: str) -> None:
    assert entry_of(name) is None
    assert unit_of(name) == ""
    assert direction_of(name) is None


def test_every_pattern_is_listed_once_and_uses_known_parts() -> None:
    patterns = [entry.pattern for entry in CATALOGUE]
    assert len(set(patterns)) == len(patterns)
    assert {part for pattern in patterns for part in re.findall(r"<(\w+)>", pattern)} == set(PARTS)


def test_every_entry_is_one_sentence_with_an_end() -> None:
    for entry in CATALOGUE:
        assert entry.text.endswith("."), entry.pattern
        assert len(re.findall(r"[.?!] [A-Z]", entry.text)) == 0, f"{entry.pattern} has more than one sentence"
        assert len(entry.text.split()) <= 25, f"{entry.pattern} has a sentence of more than 25 words"


def test_entries_of_a_family_share_what_they_do_not_say_themselves() -> None:
    entries = under(
        "some/",
        Entry("rate", "share", "Turns that count.", missing="no turn", cadence="once"),
        Entry("score", "", "How good it is."),
        missing="N < 2",
        cadence="measurement",
    )
    assert [(entry.pattern, entry.missing, entry.cadence) for entry in entries] == [
        ("some/rate", "no turn", "once"),
        ("some/score", "N < 2", "measurement"),
    ]


def test_the_directions_are_those_declared_before_the_studies() -> None:
    lower = (
        "information/first_turn/mi",
        "information/first_turn/mi_ceiling",
        "information@judge/observation/mi_head_16",
        "information/any_turn_closed/gap_per_token",
        "information/first_turn/zscore_ema_tempered",
        "retrieval/first_turn/accuracy@4",
        "retrieval/first_turn/accuracy_8way",
        "text/judge_accuracy_8way",
        "grounding/thought_influence",
        "grounding/input_to_action",
        "grounding/reasoning_to_action",
        "success/any_of_group",
        "reward/step",
        "format/valid_rate",
        "format/closed_rate",
    )
    none = (
        "policy/entropy_per_token",  # noise raises it, and templates can move it either way
        "information/first_turn/entropy_conditional",
        "information/first_turn/n_reaching_16",
        "information/first_turn/gap",  # younger than the declaration
        "retrieval/first_turn/chance",
        "text/judge_chance",
        "text/distinct_thoughts",
        "grounding/oscillation_rate",
        "format/trailing_tokens",
        "eval/val/sampled/success",
    )
    assert {direction_of(name) for name in lower} == {"lower"}
    assert {direction_of(name) for name in none} == {None}
    assert direction_of("retrieval/first_turn/p_value") == direction_of("text/template_share") == "higher"
    assert sum(entry.collapse == "higher" for entry in CATALOGUE) == 2


def test_a_share_never_leaves_0_to_1() -> None:
    """Means of shares are cut to that range, so a count or a number that may be negative must not be called a share."""
    assert unit_of("information/first_turn/n_reaching_16") == "count"
    assert unit_of("policy/explained_variance") == "at most 1"


def test_the_alarms_of_the_catalogue_are_the_rules_of_a_run() -> None:
    rules = standard_rules(AlarmConfig())
    assert [entry.pattern for entry in TABLES["alarm"]] == [f"alarm/{rule.name}" for rule in rules]
    logged = [rule.name for rule in logged_rules(AlarmConfig())]
    assert logged == [entry.pattern.removeprefix("alarm/") for entry in (*TABLES["alarm"], *TABLES["logged"])]
    assert [entry.pattern for entry in TABLES["trainer"]] == [*ALIASES, "trainer/not_finite"]


def test_an_alarm_watches_known_metrics_and_never_against_their_direction() -> None:
    for rule in logged_rules(AlarmConfig()):
        for condition in (each for group in rule.all_of for each in group):
            entry = entry_of(condition.metric)
            assert entry is not None, condition.metric
            if isinstance(condition, Change) and entry.collapse is not None:
                assert (condition.design.direction, entry.collapse) in (("down", "lower"), ("up", "higher"))


def test_an_alarm_waits_for_as_many_values_as_the_cadence_allows() -> None:
    config = AlarmConfig(baseline=9, measured_baseline=4)
    needed = {
        condition.metric: condition.design.baseline
        for rule in standard_rules(config)
        for group in rule.all_of
        for condition in group
        if isinstance(condition, Change)
    }
    assert needed["information/first_turn/gap"] == needed["grounding/thought_influence"] == 4
    assert needed["success/rate"] == needed["grounding/strategy_entropy"] == needed["policy/entropy_per_token"] == 9


def test_every_column_of_the_live_tables_is_a_known_metric() -> None:
    shown = [name for column in LIVE_COLUMNS for name in (column.metric, column.ceiling) if name]
    assert [name for name in shown if entry_of(name) is None] == []


def test_the_page_is_current_and_has_every_table() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert with_tables(page) == page, "run `make metrics`"
    assert set(re.findall(r"<!-- catalogue: (\w+) -->", page)) == {*TABLES, "causes"}


def test_the_command_writes_the_tables_into_the_page(tmp_path: Path) -> None:
    stale = tmp_path / "metrics.md"
    page = PAGE.read_text(encoding="utf-8").replace("- `policy/loss`: ", "- `policy/lost`: ")
    stale.write_text(page, encoding="utf-8")
    subprocess.run([sys.executable, "-m", "heedful.diagnostics.catalogue.page", str(stale)], check=True)
    assert stale.read_bytes() == PAGE.read_bytes()
