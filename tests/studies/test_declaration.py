"""Studies as data: written and read back, from presets and flags, narrowed for a quick look."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from heedful.filters import KeepAll
from heedful.run.presets import preset
from heedful.studies import STUDIES, find_study
from heedful.studies.declaration import (
    Arm,
    Interaction,
    Pair,
    Pool,
    Study,
    narrowed,
    read_study,
    study_from_json,
    study_to_json,
    train,
)
from heedful.studies.jobs import TrainingJob

MINE = {
    "name": "mine",
    "question": "Does an entropy bonus cost success on Echo?",
    "seeds": [3, 4],
    "arms": [
        {"name": "none", "job": {"type": "train", "preset": "echo", "flags": "--steps 5"}},
        {
            "name": "bonus",
            "job": {
                "type": "train",
                "preset": "echo",
                "config": {"steps": 7, "algorithm": {"entropy": 0.05}},
                "flags": "--steps 5 --filter keep_all",
            },
        },
    ],
    "pairs": [{"arm": "bonus", "control": "none"}],
    "measures": [{"title": "success", "metric": "eval/val/sampled/success"}],
}


@pytest.mark.parametrize("name", STUDIES)
def test_every_declared_study_is_written_and_read_back_equal(name: str) -> None:
    study = find_study(name)
    tree = json.loads(json.dumps(study_to_json(study)))
    assert study_from_json(tree) == study
    assert study.name == name
    assert study.question.endswith("?")
    assert study.measures


def test_a_file_takes_presets_partial_configurations_and_flags(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(MINE))
    study = read_study(path)
    assert study == find_study(str(path))
    none, bonus = (arm.job.config for arm in study.arms)
    assert none == replace(preset("echo"), steps=5)
    # A flag wins over the partial configuration, which wins over the preset.
    assert (bonus.steps, bonus.algorithm.entropy, bonus.filter) == (5, 0.05, KeepAll())
    assert bonus.groups == preset("echo").groups


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seeds": []}, "expected seeds, found none"),
        ({"seeds": [1, 1]}, "expected distinct seeds, found 1, 1"),
        ({"arms": [{"name": "a/b"}]}, "found 'a/b'"),
        ({"arms": [{"name": "results.md"}], "pairs": []}, "the name of a file of studies, found 'results.md'"),
        ({"arms": [{"name": "a"}, {"name": "A"}], "pairs": []}, "expected distinct arms, found a, A"),
        (
            {"measures": [{"title": "t", "metric": "m", "from_step": 9, "to_step": 8}]},
            "expected to_step at or after 9, found 8",
        ),
        ({"pairs": [{"arm": "bonus", "control": "nothing"}]}, "nothing is compared or read, but no arm has that name"),
        ({"colour": 1}, "colour: unknown setting"),
        ({"measures": [{"title": "t", "metric": "m", "when": "first_at_least"}]}, "`level` belongs to first_at_least"),
        ({"measures": [{"title": "t", "metric": "m", "when": "at_the_end"}]}, "measures"),
        ({"arms": [{"name": "a", "job": {"type": "dance"}}]}, "dance"),
        ({"arms": [{"name": "a", "job": {"preset": "echo", "flags": "'"}}]}, "flags of arm 'a' as on a command line"),
        ({"arms": [{"name": "a", "job": {"preset": "echo", "flags": "--help"}}]}, "flags of arm 'a', found --help"),
        ({"arms": [{"name": "a", "job": {"preset": "echo", "flags": "--config pipe"}}]}, "as the job's `config`"),
        ({"arms": [{"name": "a", "job": {"preset": "echo", "flags": "--seed 7"}}]}, "`seeds` of the study decide"),
        ({"arms": [{"name": "a", "job": {"preset": "echo", "config": {"seed": 7}}}]}, "found `seed` in its config"),
        ({"arms": [{"name": "a", "job": {"preset": "echo", "flags": "--trust m"}}]}, "command line of heedful study"),
        ({"minutes": float("nan")}, "minutes: expected a number of at least 0"),
    ],
)
def test_what_a_file_cannot_mean_is_refused_with_a_sentence(change: dict, words: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({**MINE, **change}))
    with pytest.raises(ValueError, match=r"mine\.json cannot be used") as caught:
        read_study(path)
    assert words in str(caught.value)


def test_wrong_flags_of_an_arm_name_a_command_that_explains_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({**MINE, "arms": [{"name": "a", "job": {"preset": "echo", "flags": "--steps x"}}]}))
    with pytest.raises(SystemExit):
        read_study(path)
    told = capsys.readouterr().err
    assert "arm a (heedful train echo): --steps" in told
    assert "See `heedful train echo --help`" in told


def test_a_file_that_is_no_json_and_a_name_that_nobody_knows_are_refused(tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(ValueError, match="Expected a study as JSON"):
        find_study(str(tmp_path / "broken.json"))
    with pytest.raises(ValueError, match="no study named 'nothing'; known are smoke"):
        find_study("nothing")


def small() -> Study:
    arms = tuple(Arm(name, train("echo", "--steps 8")) for name in ("a", "b", "c"))
    return Study(
        "small",
        "Which?",
        arms,
        pairs=(Pair("a", "b"), Pair("a", "c")),
        minutes=4.0,
    )


def test_a_quick_look_keeps_what_can_still_be_compared() -> None:
    study = narrowed(small(), arms=("a", "c"), seeds=(7,), steps=2)
    assert [arm.name for arm in study.arms] == ["a", "c"]
    assert [arm.job.steps for arm in study.arms] == [2, 2]
    assert study.seeds == (7,)
    assert study.pairs == (Pair("a", "c"),)
    assert study.minutes == 1.0
    assert narrowed(small()) == small()


def test_a_pool_goes_with_any_of_its_arms_and_takes_its_comparisons_along() -> None:
    pools, pairs = (Pool("ab", ("a", "b")), Pool("all", ("a", "b", "c"))), (Pair("ab", "c"), Pair("all", "ab"))
    study = replace(small(), pools=pools, pairs=pairs)
    assert study_from_json(json.loads(json.dumps(study_to_json(study)))) == study
    few = narrowed(study, arms=("a", "b"))
    assert (few.pools, few.pairs) == (pools[:1], ())


def test_a_pool_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="expected distinct arms and pools, found a, b, c, a"):
        replace(small(), pools=(Pool("a", ("b",)),))
    with pytest.raises(ValueError, match="d is compared or read, but no arm has that name"):
        replace(small(), pools=(Pool("p", ("d",)),))


def test_an_interaction_goes_with_any_arm_of_its_pairs() -> None:
    pairs = Pair("a", "c"), Pair("ab", "c"), Pair("a", "b")
    interactions = Interaction(pairs[0], pairs[1]), Interaction(pairs[2], pairs[0])
    study = replace(small(), pools=(Pool("ab", ("a", "b")),), interactions=interactions)
    assert study_from_json(json.loads(json.dumps(study_to_json(study)))) == study
    assert narrowed(study).interactions == interactions
    assert narrowed(study, arms=("a", "c")).interactions == ()


def test_seeds_differ_in_the_seed_and_if_asked_in_the_seedling() -> None:
    job = TrainingJob(preset("echo"))
    assert job.seeded(3) == replace(preset("echo"), seed=3)
    own = replace(job, own_seedling=True).seeded(3)
    assert (own.seed, own.seedling.seed) == (3, 3)


def test_the_study_of_the_page_can_be_used() -> None:
    page = (Path(__file__).parents[2] / "docs" / "studies.md").read_text(encoding="utf-8")
    block = page.partition("```json\n")[2].partition("```")[0]
    study = study_from_json(json.loads(block))
    assert [arm.job.config.algorithm.entropy for arm in study.arms] == [0.0, 0.05]


def test_arms_are_chosen_by_patterns_too() -> None:
    arms = tuple(Arm(name, train("echo", "--steps 8")) for name in ("one_a", "one_b", "two_a"))
    study = replace(small(), arms=arms, pairs=())
    assert [arm.name for arm in narrowed(study, arms=("one_*",)).arms] == ["one_a", "one_b"]
    assert [arm.name for arm in narrowed(study, arms=("*_a",)).arms] == ["one_a", "two_a"]
    with pytest.raises(ValueError, match=r"or patterns of them, found three_\*"):
        narrowed(study, arms=("one_*", "three_*"))
