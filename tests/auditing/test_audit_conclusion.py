"""The answer of an audit to its main question, from metrics by hand."""

import pytest

from heedful.auditing.conclusion import conclusion
from heedful.storage import StepMetrics
from heedful.types import Metric


def line(step: int, *metrics: Metric) -> StepMetrics:
    return StepMetrics(step, None, {metric.name: metric for metric in metrics})


def scored(step: int, p: float, gap: float, scorer: str = "", scope: str = "first_turn") -> StepMetrics:
    """A step whose gap has an interval of plus and minus 1."""
    return line(
        step,
        Metric(f"retrieval{scorer}/{scope}/p_value", p, 64),
        Metric(f"retrieval{scorer}/{scope}/accuracy", 0.5, 64, 0.4, 0.6, clusters=16),
        Metric(f"retrieval{scorer}/{scope}/chance", 0.0625, 64),
        Metric(f"information{scorer}/{scope}/gap", gap, 64, gap - 1, gap + 1, clusters=16),
    )


def test_thoughts_that_depend_on_their_prompts_at_both_ends_are_no_collapse() -> None:
    lead, now, change = conclusion([scored(0, 0.001, 14.0), scored(40, 0.001, 13.5)])
    assert lead == "Template collapse: not seen."
    assert now == (
        "At step 40 thoughts depend on their prompts: the own prompt is found for 0.500 [0.400, 0.600] of the "
        "thoughts, chance 0.062, p = 0.001."
    )
    assert change.endswith(
        "14.000 [13.000, 15.000] nats more under its own prompt than under others at step 0, and "
        "13.500 [12.500, 14.500] at step 40: no clear fall."
    )


def test_a_gap_whose_intervals_part_is_a_fall() -> None:
    lead, _, change = conclusion([scored(0, 0.001, 14.0), scored(40, 0.001, 6.0)])
    assert lead == "Template collapse: less information than at the start."
    assert change.endswith(": a fall.")


@pytest.mark.parametrize(
    ("first", "lead", "last_sentence"),
    [
        (0.001, "Template collapse: likely at step 40.", "They did at step 0."),
        (0.6, "Template collapse: not excluded at step 40.", "They did at no earlier step of this log."),
    ],
)
def test_thoughts_that_cannot_be_told_apart_are_suspected(first: float, lead: str, last_sentence: str) -> None:
    sentences = conclusion([scored(0, first, 14.0), scored(40, 0.4, 0.1)])
    assert (sentences[0], sentences[-1]) == (lead, last_sentence)
    assert sentences[1].startswith("At step 40 nothing shows that thoughts depend on their prompts")


def test_an_alarm_comes_first_with_its_evidence() -> None:
    alarm = Metric("alarm/template_collapse", 1.0, None, why="gap fell from 14 to 1")
    lines = [scored(0, 0.001, 14.0), line(30, alarm), scored(40, 0.001, 1.5)]
    assert conclusion(lines)[0] == "Template collapse: alarm at step 30. gap fell from 14 to 1."


def test_another_reader_and_an_environment_are_named() -> None:
    sentences = conclusion([scored(0, 0.001, 14.0, "@judge", "first_turn/echo")])
    assert sentences[0] == "Template collapse: not seen at step 0."
    assert sentences[1].startswith("At step 0 thoughts depend on their prompts of echo, as judge reads them: ")


def test_without_a_model_the_words_decide_and_say_what_they_miss() -> None:
    def words(step: int, value: float) -> StepMetrics:
        accuracy = Metric("text/judge_accuracy_8way", value, 64, value - 0.1, value + 0.1, clusters=16)
        return line(step, accuracy, Metric("text/judge_chance", 0.03, 64))

    seen = conclusion([words(0, 0.9), words(8, 0.8)])
    assert seen[0] == "Template collapse: not seen in the words at step 8."
    assert "in 0.800 [0.700, 0.900] of cases at step 8, chance 0.125 (0.900 [0.800, 1.000] at step 0)" in seen[1]
    assert "`--model CHECKPOINT`" in seen[2]
    assert conclusion([words(0, 0.9), words(8, 0.2)])[0] == "Template collapse: not excluded at step 8."


def test_with_few_prompts_the_judge_is_compared_with_their_chance() -> None:
    few = Metric("text/judge_accuracy_8way", None, 8, why="needs at least 8 prompts, found 2")
    judged = Metric("text/judge_accuracy", 0.9, 8, 0.6, 0.99, clusters=16)
    sentences = conclusion([line(0, few, judged, Metric("text/judge_chance", 0.5, 8))])
    assert sentences[0] == "Template collapse: not seen in the words at step 0."
    assert "among all in 0.900 [0.600, 0.990] of cases at step 0, chance 0.500." in sentences[1]
    assert "The alarm words_uninformed is not judged: needs at least 8 prompts, found 2. `--join N`" in sentences[3]


def test_a_judge_without_an_interval_says_why_and_compares_nothing() -> None:
    judged = Metric("text/judge_accuracy_8way", 1.0, 32, why="no interval: an interval needs at least 9 prompts")
    assert conclusion([line(0, judged)]) == [
        "Template collapse: not excluded at step 0.",
        "A judge of words names the prompt of a thought among 8 in 1.000 of cases at step 0, chance 0.125.",
        "This is not compared with chance. No interval: an interval needs at least 9 prompts. "
        "`--join N` reads N steps as one.",
    ]


def test_a_model_that_cannot_decide_says_why_behind_the_words() -> None:
    judged = Metric("text/judge_accuracy", 0.5, 8, 0.1, 0.9, clusters=16)
    few = Metric("retrieval@m/first_turn/p_value", None, 8, why="needs at least 5 prompts, found 3")
    sentences = conclusion([line(0, judged, Metric("text/judge_chance", 0.5, 8), few)])
    assert sentences[0] == "Template collapse: not excluded at step 0."
    assert sentences[-1] == (
        "The model does not decide: Needs at least 5 prompts, found 3. `--join N` reads N steps as one."
    )


def test_what_was_not_measured_has_a_reason_and_a_way_on() -> None:
    missing = Metric("text/judge_accuracy", None, 0, why="no prompt has two thoughts")
    assert conclusion([line(0, missing)]) == [
        "Template collapse: not measured. No prompt has two thoughts. `--model CHECKPOINT` measures whether thoughts "
        "depend on their prompts."
    ]
    unscored = Metric("retrieval@m/first_turn/p_value", None, 0, why="no thought to score")
    assert conclusion([line(0, unscored)]) == ["Template collapse: not measured. No thought to score."]


@pytest.mark.parametrize("why", ["found NaN: score in a wider dtype", "found NaN: score in a wider dtype."])
def test_a_reason_ends_with_one_full_stop(why: str) -> None:
    unscored = line(0, Metric("retrieval/first_turn/p_value", None, None, why=why))
    assert conclusion([unscored]) == ["Template collapse: not measured. Found NaN: score in a wider dtype."]


def test_a_test_without_the_numbers_beside_it_decides_nothing() -> None:
    alone = line(0, Metric("retrieval/first_turn/p_value", 0.001, 64))
    words = line(0, Metric("retrieval/first_turn/p_value", "low"), Metric("retrieval/first_turn/accuracy", "high"))
    for damaged in (alone, words):
        assert conclusion([damaged])[0].startswith("Template collapse: not measured.")


def test_where_right_first_actions_come_from_is_a_sentence_of_its_own() -> None:
    def parts(label: str, *values: float, head: str = "grounding/") -> tuple[Metric, ...]:
        names = ("", "_by_chance", "_by_thought", "_by_prompt", "_by_both")
        return tuple(Metric(f"{head}{label}{name}", value, 32) for name, value in zip(names, values, strict=True))

    own, judge = parts("right", 0.62, 0.1, 0.5, 0.02, 0.0), parts("agreed", 0.4, 0.3, 0.1, 0, 0, head="grounding@j/")
    step = scored(40, 0.001, 13.5)
    sentences = conclusion([StepMetrics(40, None, {**step.metrics, **line(40, *own, *judge).metrics})])
    assert sentences[2:] == [
        "Of a probability of 0.62 of a right first action, 0.50 comes from the thought, 0.02 from the prompt past the "
        "thought, 0.00 from both together only, and 0.10 is chance (step 40).",
        "Of a probability of 0.40 of another reply's first action (right ones are not known), 0.10 comes from the "
        "thought, 0.00 from the prompt past the thought, 0.00 from both together only, and 0.30 is chance (step 40, as "
        "j reads them).",
    ]
