"""The conclusion of a run in words: each sentence rests on figures of the run folder, and the unknown is called so."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from heedful.run.config import TrainConfig
from heedful.run.evaluation.verdict import Conclusion, _doubt, conclude, shown
from heedful.storage import RunFolder, write_rollouts
from heedful.storage.trackers import JsonlTracker
from heedful.types import Ending, Group, Metric, Task, Trajectory

CONFIG = TrainConfig(steps=6)
TASKS = 20


def outcomes(solved: int, tasks: int = TASKS) -> list[Group]:
    """One episode a task, the first `solved` of them successes."""
    made = []
    for number in range(tasks):
        task = Task(f"t{number}", number, "val")
        made.append(Group(task, (Trajectory(task, 0, (), Ending.FAILED, float(number < solved)),)))
    return made


class Folder:
    """A run folder that is filled by hand."""

    def __init__(self, path: Path) -> None:
        self.run = RunFolder.open(path)
        self.tracker = JsonlTracker(self.run.metrics, clock=lambda: 0.0)

    def evaluated(self, version: int, sampled: int, greedy: int) -> None:
        """Solved tasks of an evaluation; its baselines solve 2 and 3."""
        for kind, solved in (("sampled", sampled), ("greedy", greedy)):
            write_rollouts(self.run.rollouts(version, f"val_{kind}"), version, "val", outcomes(solved), None)
        rates = {"random": 2, "fixed": 3, "sampled": sampled, "greedy": greedy}
        self.write(
            version,
            *(
                Metric(
                    f"eval/val/{name}/success",
                    solved / TASKS,
                    TASKS,
                    max(0.0, solved / TASKS - 0.1),
                    solved / TASKS + 0.1,
                )
                for name, solved in rates.items()
            ),
        )

    def write(self, step: int, *metrics: Metric) -> None:
        self.tracker.write(step, metrics)

    def conclude(self) -> Conclusion:
        return conclude(self.run, CONFIG)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "run")


def measured(gap: float, mi: float = 2.0, saturated: float = 0.0, regime: Metric | None = None) -> Sequence[Metric]:
    return (
        Metric("information/first_turn/mi", mi, 64, mi - 0.1, mi + 0.1),
        Metric("information/first_turn/gap_per_token", gap, 64, gap - 0.1, gap + 0.1),
        Metric("information/first_turn/mi_ceiling", 2.773),
        Metric("information/first_turn/mi_saturated", saturated),
        Metric("retrieval/first_turn/accuracy", 0.75, 64, 0.7, 0.8),
        Metric("retrieval/first_turn/chance", 0.0625),
        Metric("retrieval/first_turn/p_value", 0.001),
        *([regime] if regime else []),
    )


def test_a_gain_of_both_policies_is_more_than_sharpening(folder: Folder) -> None:
    folder.evaluated(0, sampled=4, greedy=6)
    folder.evaluated(6, sampled=16, greedy=18)
    conclusion = folder.conclude()
    # 12 of 20 tasks gained 1: mean .6, standard deviation .502625, standard error .112390, t(19) 2.093024.
    low, high = 0.6 - 0.235236, 0.6 + 0.235236
    assert conclusion.sentences[0] == (
        f"Sampled success on 20 held-out tasks: 0.200 [0.100, 0.300] before, 0.800 [0.700, 0.900] after; "
        f"gain +0.600 [+{low:.3f}, +{high:.3f}], paired by task."
    )
    assert conclusion.sentences[1].startswith("Greedy success on 20 held-out tasks: 0.300 [0.200, 0.400] before, 0.900")
    assert conclusion.sentences[2] == "More than sharpening: the greedy policy, free of sampling noise, gained too."
    assert conclusion.sentences[3] == (
        "Without reading the input a random policy reaches 0.100 [0.000, 0.200] and the best fixed action sequence "
        "0.150 [0.050, 0.250]; the trained policy is above both."
    )
    sampled, greedy = conclusion.figures
    assert (sampled.name, sampled.n, sampled.value) == ("gain/sampled", 20, pytest.approx(0.6))
    assert (sampled.low, sampled.high) == pytest.approx((low, high), abs=1e-5)
    assert greedy.name == "gain/greedy"


def test_evaluations_of_different_sizes_are_told_apart(folder: Folder) -> None:
    folder.evaluated(0, sampled=4, greedy=17)
    folder.write(6, *(Metric(f"eval/val/{kind}/success", 0.5, 40, 0.4, 0.6) for kind in ("sampled", "greedy")))
    assert "0.500 [0.400, 0.600] after (of 20 and 40 episodes); gain" in folder.conclude().sentences[0]


@pytest.mark.parametrize(
    ("gain", "count", "said"),
    [
        (-1.0, 4, " - all 4 tasks fell by as much, so there is no interval; exact sign test p = 0.125"),
        (0.5, 2, " - all 2 tasks rose by as much, so there is no interval; exact sign test p = 0.5"),
        (0.0, 4, " - no task changed"),
        (1.0, 1, " - one task rose, which says nothing of others"),
    ],
)
def test_a_gain_that_is_the_same_on_every_task_is_not_called_none(gain: float, count: int, said: str) -> None:
    assert (
        _doubt(Metric("gain/greedy", gain, count, why="all gains are equal: no spread to take an interval from"))
        == said
    )


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        ((4, 17), (16, 18), "Consistent with sharpening: the sampled policy gained, the greedy policy did not clearly"),
        ((4, 20), (16, 20), "Consistent with sharpening"),
        ((4, 19), (16, 9), "Sharpening only, and at a price"),
        ((16, 4), (4, 16), "The greedy policy gained, and the sampled policy clearly lost"),
        ((16, 12), (4, 2), "Training did harm: the sampled success clearly fell."),
        ((4, 10), (5, 11), "No gain to explain: the sampled success did not clearly rise."),
        ((4, 10), (1, 11), "No gain to explain: the sampled success did not clearly rise."),
        ((4, 10), (5, 19), "The greedy policy gained, the sampled policy did not clearly:"),
    ],
)
def test_the_gains_of_both_policies_say_what_was_learned(
    folder: Folder, before: tuple[int, int], after: tuple[int, int], sentence: str
) -> None:
    """Each pair: the tasks that the sampled policy solves, and those that the greedy policy does."""
    folder.evaluated(0, *before)
    folder.evaluated(6, *after)
    assert folder.conclude().sentences[2].startswith(sentence)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ((4, 17), (16, 18), "paired by task - not distinguishable from none."),
        ((4, 20), (4, 0), "so there is no interval; exact sign test p = 1.91e-06."),  # 2^-19
        ((4, 19), (16, 9), "; gain -0.500 [-0.740, -0.260], paired by task."),
    ],
)
def test_a_gain_is_told_with_its_interval_or_its_doubt(
    folder: Folder, before: tuple[int, int], after: tuple[int, int], said: str
) -> None:
    folder.evaluated(0, *before)
    folder.evaluated(6, *after)
    assert folder.conclude().sentences[1].endswith(said)


def test_a_trained_policy_that_beats_no_baseline_is_not_above_them(folder: Folder) -> None:
    folder.evaluated(0, sampled=4, greedy=10)
    folder.evaluated(6, sampled=5, greedy=11)
    assert folder.conclude().sentences[3].endswith("the trained policy is not clearly above both.")


def test_a_missing_evaluation_is_called_unknown(folder: Folder) -> None:
    folder.write(0, Metric("success/rate", 0.5, 8))
    conclusion = folder.conclude()
    assert conclusion.sentences == (
        "Success on held-out tasks is unknown: the run was not evaluated both before and after training.",
        "Whether the reasoning depends on the input is unknown: it was not measured.",
    )
    assert conclusion.regime == "not determined"
    assert [(figure.value, figure.why) for figure in conclusion.figures] == [
        (None, "the run was not evaluated both before and after training")
    ] * 2


def test_evaluations_without_a_scored_episode_say_so(folder: Folder) -> None:
    for step in (0, 6):
        folder.write(step, Metric("eval/val/sampled/success", None, 0, why="no episode was scored"))
    assert folder.conclude().sentences[0] == "Success on held-out tasks is unknown: no episode was scored."


def test_an_evaluation_at_the_end_alone_makes_no_gain(folder: Folder) -> None:
    folder.evaluated(6, sampled=16, greedy=18)
    sentences = folder.conclude().sentences
    assert sentences[0].startswith("Success on held-out tasks is unknown")
    assert sentences[1].startswith("Without reading the input a random policy reaches")


@pytest.mark.parametrize("lost", [[0], [0, 3], [0, 3, 6], [6]], ids=str)
def test_success_before_and_after_is_that_of_the_gain_where_measurements_are_lost(
    folder: Folder, lost: list[int]
) -> None:
    for version, solved in ((0, 10), (3, 16), (6, 12)):
        folder.evaluated(version, sampled=solved, greedy=solved)
    lines = folder.run.metrics.read_text().splitlines(keepends=True)
    folder.run.metrics.write_text("".join(line for line in lines if json.loads(line)["step"] not in lost))
    sentences = folder.conclude().sentences
    assert "0.500 [" in sentences[0].partition(" before, 0.600 [")[0]
    assert "after; gain +0.100 [" in sentences[0]
    first = min({0, 3, 6} - set(lost), default=0)
    told = [sentence for sentence in sentences if "are lost" in sentence]
    assert [f"The measurements of the first {first} steps" in sentence for sentence in told] == [True] * bool(first)


def test_evaluations_whose_rollouts_are_gone_leave_the_gain_unknown(folder: Folder) -> None:
    folder.evaluated(0, sampled=4, greedy=6)
    folder.evaluated(6, sampled=16, greedy=18)
    folder.run.rollouts(0, "val_sampled").unlink()
    sentences = folder.conclude().sentences
    assert sentences[0] == (
        "Sampled success on held-out tasks: 0.200 [0.100, 0.300] before, 0.800 [0.700, 0.900] after; gain unknown "
        "(the run was not evaluated both before and after training), paired by task."
    )
    assert not any("harpening" in sentence for sentence in sentences)


def test_what_the_thoughts_share_with_the_input_is_told_from_the_last_measurement(folder: Folder) -> None:
    folder.write(0, *measured(gap=0.5))
    folder.write(4, *measured(gap=0.25, mi=2.7, saturated=1.0, regime=Metric("regime/first_turn", "diverse", 64)))
    conclusion = folder.conclude()
    assert conclusion.sentences[1:5] == (
        "The thoughts and the input share 2.700 [2.600, 2.800] † nats of at most 2.773 (saturated: this says only that "
        "it has not collapsed).",
        "The gap per token went from 0.500 [0.400, 0.600] † to 0.250 [0.150, 0.350] †.",
        "The own prompt is found for 0.750 [0.700, 0.800] of the thoughts, chance 0.062, p = 0.001 (step 4).",
        "Regime: diverse.",
    )
    assert conclusion.regime == "diverse"


def test_only_readings_in_a_weak_situation_have_a_mark_and_the_legend_says_why(folder: Folder) -> None:
    healthy = [replace(metric, clusters=8.0) if metric.low is not None else metric for metric in measured(gap=0.5)]
    healthy = [
        replace(metric, value=0.2, low=0.1, high=0.3) if metric.name.endswith("/mi") else metric for metric in healthy
    ]
    folder.evaluated(0, sampled=4, greedy=6)
    folder.evaluated(6, sampled=16, greedy=18)
    folder.write(4, *healthy)
    assert not any("†" in sentence for sentence in folder.conclude().sentences)
    weak = [replace(metric, clusters=1.2) if metric.name.endswith("gap_per_token") else metric for metric in healthy]
    folder.write(5, *weak)
    folder.evaluated(6, sampled=16, greedy=19)
    sentences = folder.conclude().sentences
    assert "after; gain +0.650 [+0.421, +0.879], paired by task" in sentences[1]
    assert "0.950 [0.850, 1.050] † after" in sentences[1]
    assert "to 0.500 [0.400, 0.600] †." in " ".join(sentences)
    assert sentences[-1].startswith("† In simulations such an interval held the truth in less than 90% of cases. ")
    assert "(marked: fewer than 4 effective clusters)" in sentences[-1]
    assert "eval/val/greedy/success: 85% where 0.2 successes" in sentences[-1]
    assert "gain" not in sentences[-1]


def test_a_gap_per_token_that_only_longer_thoughts_lower_is_told_with_the_gap_of_a_thought(folder: Folder) -> None:
    for step, gap, tokens in ((0, 0.5, 16.0), (4, 0.25, 32.0)):
        thoughts = Metric("information/first_turn/gap", 8.0, 64, 7.0, 9.0)
        length = Metric("information/first_turn/thought_tokens", tokens, 64, tokens, tokens)
        folder.write(step, *measured(gap=gap), thoughts, length)
    assert (
        "to 0.250 [0.150, 0.350] †, that of a thought from 8.000 [7.000, 9.000] † to 8.000 [7.000, 9.000] † nats "
        "(length 16.000 [16.000, 16.000] †, then 32.000 [32.000, 32.000] † tokens)."
    ) in folder.conclude().sentences[2]


def test_an_undecided_regime_says_why(folder: Folder) -> None:
    regime = Metric("regime/first_turn", "undecided", 64, why="the interval does not settle it")
    folder.write(0, *measured(gap=0.5, regime=regime))
    assert "Regime: undecided (the interval does not settle it)." in folder.conclude().sentences


def carried(label: str, thought: float) -> list[Metric]:
    parts = {"": 0.62, "_by_chance": 0.09, "_by_thought": thought, "_by_prompt": 0.02, "_by_both": 0.0}
    spread = {"low": thought - 0.1, "high": thought + 0.1, "clusters": 9.0}
    return [
        Metric(f"grounding/{label}{part}", value, 32, **(spread if part == "_by_thought" else {}))
        for part, value in parts.items()
    ]


def test_where_right_first_actions_come_from_is_told_in_one_sentence(folder: Folder) -> None:
    folder.write(0, *carried("right", 0.4), *carried("agreed", 0.2))
    folder.write(20, *carried("right", 0.51), *carried("agreed", 0.3))
    folder.write(30, Metric("grounding/right", None, why="all first actions are the same"))
    told = [sentence for sentence in folder.conclude().sentences if "first action" in sentence]
    assert told == [
        "Of a probability of 0.62 of a right first action, 0.51 [0.41, 0.61] comes from the thought, 0.02 from the "
        "prompt past the thought, 0.00 from both together only, and 0.09 is chance (step 20); at step 0 0.400 [0.300, "
        "0.500] came from the thought."
    ]


def test_where_no_right_action_is_known_the_agreement_of_replies_is_told(folder: Folder) -> None:
    unknown = [Metric(f"grounding/right{part}", None, why="no") for part in ("", "_by_thought")]
    folder.write(4, *unknown, *carried("agreed", 0.3))
    told = (
        "Of a probability of 0.62 of another reply's first action (right ones are not known), 0.30 [0.20, 0.40] comes"
    )
    assert folder.conclude().sentences[1].startswith(f"{told} from the thought")


@pytest.mark.parametrize(("empty", "words"), [(0, ""), (1, "; 1 step had nothing"), (2, "; 2 steps had nothing")])
def test_the_filter_is_told_by_thirds(folder: Folder, empty: int, words: str) -> None:
    for step, ratio in enumerate((1.0, 0.5, 0.1, 0.1, 0.25, 0.25)):
        folder.write(step, Metric("filter/kept_ratio", ratio, 8), Metric("filter/empty", float(step < empty)))
    (sentence,) = [sentence for sentence in folder.conclude().sentences if sentence.startswith("The filter")]
    assert sentence.startswith("The filter kept 75% of the prompts in the first third of the run and 25% in the last")
    assert (words in sentence) if words else ("nothing" not in sentence)


def test_what_a_step_took_leaves_evaluations_out(folder: Folder) -> None:
    for step in range(2):
        folder.write(step, *(Metric(f"time/{name}", value) for name, value in (("collect", 1.5), ("update", 0.5))))
    folder.write(2, Metric("time/evaluate", 30.0))
    assert folder.conclude().sentences[-1] == (
        "A step took 2.00 s: collect 75%, update 25%; evaluations took 30 s in all."
    )


def test_a_folder_with_evaluations_alone_has_no_price_of_a_step(folder: Folder) -> None:
    folder.write(0, Metric("time/evaluate", 30.0), Metric("time/store", 1.0))
    assert not any("A step took" in sentence for sentence in folder.conclude().sentences)


def test_the_conclusion_is_written_down(folder: Folder) -> None:
    folder.evaluated(0, sampled=4, greedy=6)
    folder.evaluated(6, sampled=16, greedy=18)
    conclusion = folder.conclude()
    written = json.loads(folder.run.verdict.read_text())
    assert written["sentences"] == list(conclusion.sentences)
    assert written["regime"] == "not determined"
    assert written["figures"]["gain/sampled"]["value"] == pytest.approx(0.6)
    assert written["figures"]["gain/sampled"]["n"] == 20


def test_readings_are_shown_with_their_interval_or_the_reason() -> None:
    assert shown(Metric("m", 0.5, 3, 0.25, 0.75)) == "0.500 [0.250, 0.750]"
    assert shown(Metric("m", -0.5, 3, -0.75, 0.25), signed=True) == "-0.500 [-0.750, +0.250]"
    assert shown(Metric("m", 0.5)) == "0.500"
    assert shown(Metric("m", None, why="N < 2")) == "unknown (N < 2)"


def test_alarms_are_named_with_their_step_and_collapses_with_their_evidence(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "run")
    told = [(None, None), (0.0, 1.0), (1.0, 0.0), (1.0, 0.0)]
    for step, (collapse, drop) in enumerate(told):
        folder.write(
            step,
            Metric("alarm/noise_collapse", collapse, why="entropy rose" if collapse else ""),
            Metric("alarm/success_drop", drop, why="success fell" if drop else ""),
            Metric("alarm/reward_blind", None, why="no progress"),
        )
    sentences = folder.conclude().sentences
    assert "Alarms raised: success_drop at step 1 (over since), noise_collapse at step 2." in sentences
    assert "Evidence of noise_collapse: entropy rose." in sentences
    assert any(sentence.startswith("Likely cause: noise_collapse: the entropy bonus") for sentence in sentences)
    assert not any("success fell" in sentence for sentence in sentences)


def test_that_no_alarm_was_raised_is_said_of_those_that_could_be(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "run")
    folder.write(0, Metric("alarm/success_drop", 0.0), Metric("alarm/reward_blind", None, why="no progress"))
    said = [sentence for sentence in folder.conclude().sentences if "alarm" in sentence]
    assert said == ["None of the 1 alarms that had the readings they need was raised."]
    silent = Folder(tmp_path / "silent")
    silent.write(0, Metric("alarm/reward_blind", None, why="no progress"))
    assert not any("alarm" in sentence for sentence in silent.conclude().sentences)
