"""What is measured when, with a scorer whose log-probabilities are known."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from heedful.diagnostics.actions.grounding import GROUNDING_NAMES
from heedful.diagnostics.cross_scores.thoughts import ThoughtTags
from heedful.measuring.diagnostician import Diagnostician, DiagnosticsConfig
from heedful.measuring.thought_scores import ThoughtScores
from heedful.protocols import WindowExceeded
from heedful.types import CrossScores, Ending, Group, Prompt, Reply, Span, Task, Trajectory, Turn, Verdict

NAMES = "first_turn", "any_turn", "observation"


class Reader:
    """Finds a thought likelier by `lead` nats, spread over its tokens, where its context ends as it begins."""

    name = ""

    def __init__(self, lead=2.0):
        self.lead = lead
        self.pairs = 0

    def cross_score(self, prompts_N, thoughts_M, own_M, temperature, keep="sums"):
        self.pairs += len(prompts_N) * len(thoughts_M)
        tokens = []
        for number, thought in enumerate(thoughts_M):
            rows = []
            for prompt in prompts_N:
                ids = (*prompt, *thought)
                fits = ids[-4] == ids[-3]  # a thought is three tokens, the first of them the last of its context
                noise = 0.01 * ((number * 7 + prompt[0]) % 11)
                rows.append([-1.0 - noise + (self.lead / 3 if fits else 0.0)] * len(thought))
            tokens.append(np.array(rows, dtype=np.float32))
        sums = [kept.sum(axis=1, dtype=np.float64) for kept in tokens]
        return CrossScores(
            np.array(sums),
            [len(thought) for thought in thoughts_M],
            list(own_M),
            {k: np.array([kept[:, :k].sum(axis=1) for kept in tokens]) for k in (16, 32)},
            tokens=tokens if keep == "tokens" else None,
        )


def turn(number, observation):
    text = f"<think>{observation}</think><answer>x</answer>"
    prompt = Prompt(f"see {observation}<think>", (100 + number, observation))
    thought = Span(0, 3), Span(3, 4)
    return Turn(
        Reply(prompt, (observation, 7, 8, 9), text, (-1.0,) * 4, (), *thought, True, False), {}, (), True, "", ""
    )


def groups(count=8, members=4, turns=2, env="lake"):
    made = []
    for number in range(count):
        task = Task(f"{env}-{number:016x}", number, "train", environment=env)
        episodes = tuple(
            Trajectory(task, member, tuple(turn(at, 20 * at + number) for at in range(turns)), Ending.FAILED, 0.0)
            for member in range(members)
        )
        made.append(Group(task, episodes))
    return made


def diagnostician(scorer=None, judge=None, **knobs):
    config = DiagnosticsConfig(**({"share": None} | knobs))
    return Diagnostician(config, scorer or Reader(), 0, ThoughtTags(), lambda token: f"<{token}>", judge)


def measured(diagnosis):
    return {metric.name: metric for metric in diagnosis.metrics}


def scopes(diagnosis):
    return {name.split("/")[1] for name in measured(diagnosis) if name.startswith("information/")}


def measure(one, step, rolled):
    return one.measure(step, rolled, [Verdict(1.0, "kept", 0.0)] * len(rolled), "outcome")


def test_a_full_measurement_takes_all_scopes_and_a_cheap_one_first_turns() -> None:
    one = diagnostician()
    full, cheap, neither = (measure(one, step, groups()) for step in (0, 4, 5))
    assert scopes(full) == {name + closed for name in NAMES for closed in ("", "_closed")}
    assert scopes(cheap) == {"first_turn", "first_turn_closed"}
    assert scopes(neither) == set()
    assert full.scores is not None
    assert (cheap.scores, neither.scores) == (None, None)
    readings = measured(full)
    for name in NAMES:
        assert readings[f"information/{name}/gap_per_token"].value == pytest.approx(2 / 3, abs=0.02)
        assert readings[f"retrieval/{name}/accuracy"].value == 1.0
        assert f"regime/{name}" in readings
    assert readings["information/first_turn/gap_per_token"].n == 32
    assert readings["information/observation/gap_per_token"].n == 16
    assert measured(cheap)["information/first_turn/gap_per_token"].n == 16


def test_scopes_can_be_switched_off() -> None:
    full = measure(diagnostician(any_turn=0, swapped_rows=0, words=0), 0, groups())
    assert scopes(full) == {"first_turn", "first_turn_closed"}
    assert full.words == ()


def acting(count=8, members=4, env="lake"):
    """Groups whose members take two actions in turn; the answer's token names the action."""
    made = []
    for one in groups(count, members, env=env):
        episodes = []
        for member, episode in enumerate(one.trajectories):
            first, *later = episode.turns
            reply = replace(first.reply, ids=(*first.reply.ids[:3], 30 + member % 2))
            turns = (replace(first, reply=reply, actions=(("x", "y")[member % 2],)), *later)
            episodes.append(replace(episode, turns=turns))
        made.append(Group(one.task, tuple(episodes)))
    return made


def test_grounding_is_read_off_actions_at_measurements_and_asked_of_the_model_at_full_ones() -> None:
    one = diagnostician()
    full, cheap, neither = (measured(measure(one, step, acting())) for step in (0, 4, 5))
    asked = {f"grounding/{name}" for name in GROUNDING_NAMES}
    counted = {"grounding/input_to_action"}
    assert asked <= full.keys()
    assert counted <= full.keys() & cheap.keys()
    assert not asked & (cheap.keys() | neither.keys())
    assert not counted & neither.keys()
    assert "grounding/strategy_entropy" in neither
    assert full["grounding/thought_influence"].n == 8 * 4 * 3 * 4
    few = measured(measure(diagnostician(grounding_rows=4, grounding_columns=2), 0, acting()))
    assert few["grounding/thought_influence"].n == 2 * 2 * 1 * 2
    assert not asked & measured(measure(diagnostician(grounding_rows=0), 0, acting())).keys()


def test_grounding_is_that_of_each_environment() -> None:
    mixed = [*acting(count=5), *acting(count=3, env="echo")]
    readings = measured(measure(diagnostician(), 0, mixed))
    assert readings["grounding/lake/thought_influence"].n == 5 * 4 * 4 * 4
    assert readings["grounding/echo/input_to_action"].n == 12
    assert "grounding/thought_influence" not in readings
    assert "grounding/strategy_entropy" in readings


class Narrow(Reader):
    """Finds every pair too long for its window."""

    def cross_score(self, prompts_N, thoughts_M, own_M, temperature, keep="sums"):
        raise WindowExceeded("expected 8 positions, found 9")


@pytest.mark.parametrize("step", [0, 4])
def test_thoughts_too_long_to_be_scored_are_missing_and_end_no_run(step) -> None:
    found = measure(diagnostician(Narrow()), step, groups())
    assert measured(found)["information/first_turn/mi"].value is None
    assert measured(found)["information/first_turn/mi"].why == "expected 8 positions, found 9"
    assert measured(found)["success/rate"].n == 32
    assert found.scores is None


def test_where_nobody_thinks_everything_is_missing_and_there_is_no_matrix() -> None:
    silent = [
        replace(
            group,
            trajectories=tuple(
                replace(
                    member,
                    turns=tuple(replace(turn, reply=replace(turn.reply, thought=Span(0, 0))) for turn in member.turns),
                )
                for member in group.trajectories
            ),
        )
        for group in groups()
    ]
    one = diagnostician()
    for step in (0, 4):  # a full measurement and a cheap one
        found = measure(one, step, silent)
        mi = measured(found)["information/first_turn/mi"]
        assert (mi.value, mi.why) == (None, "no thought to score")
        assert found.scores is None


def test_what_has_no_second_turn_says_so() -> None:
    readings = measured(measure(diagnostician(), 0, groups(turns=1)))
    mi = readings["information/observation/mi"]
    assert (mi.value, mi.why) == (None, "no episode has a second turn with a thought")
    assert readings["information/any_turn/mi"].value == pytest.approx(
        readings["information/first_turn/mi"].value, abs=0.1
    )


def test_leaving_the_baseline_calls_for_a_full_measurement_once_in_half_a_period() -> None:
    scorer = Reader()
    one = diagnostician(scorer)
    found = {}
    for step in range(0, 40, 4):
        scorer.lead = 2.0 if step < 12 else 0.5
        found[step] = measure(one, step, groups())
    assert [step for step, diagnosis in found.items() if "any_turn" in scopes(diagnosis)] == [0, 12, 20, 32]
    # The suspicious step has the full reading alone, and each state moved once.
    assert measured(found[12])["information/first_turn/gap_per_token"].n == 32
    names = [metric.name for metric in found[12].metrics]
    assert len(names) == len(set(names))


def test_a_resumed_diagnostician_measures_as_if_it_had_never_stopped() -> None:
    whole, scorer = diagnostician(Reader()), Reader()
    for step in (0, 4, 8, 12):
        measure(whole, step, groups())
    resumed = diagnostician(scorer)
    resumed.load_state(json.loads(json.dumps(whole.state())))
    for step, lead in ((16, 0.2), (20, 0.2), (24, 0.2), (28, 2.0)):
        whole.scorer.lead = scorer.lead = lead
        assert measure(whole, step, groups()).metrics == measure(resumed, step, groups()).metrics
    assert whole.state() == resumed.state()
    assert whole.state()["suspicions"][""]["raised"] == 20


def test_several_environments_are_measured_each_for_itself() -> None:
    mixed = [*groups(count=6, env="lake"), *groups(count=5, turns=1, env="echo")]
    readings = measured(measure(diagnostician(), 0, mixed))
    assert {tuple(name.split("/")[1:3]) for name in readings if name.endswith("/mi")} == {
        (name + closed, env) for name in NAMES for closed in ("", "_closed") for env in ("lake", "echo")
    }
    assert readings["information/first_turn/lake/mi_ceiling"].value == pytest.approx(math.log(6))
    assert readings["information/first_turn/echo/mi_ceiling"].value == pytest.approx(math.log(5))
    assert readings["information/observation/lake/mi"].value is not None
    assert readings["information/observation/echo/mi"].value is None
    assert "regime/first_turn/lake" in readings


def test_stored_words_add_to_what_each_thought_tells() -> None:
    diagnosis = measure(diagnostician(words=20), 0, groups())
    thoughts, scores = diagnosis.thoughts, np.asarray(diagnosis.scores.scores_MN)
    assert len(diagnosis.words) == 20
    assert {thoughts.own_M[word.row] for word in diagnosis.words} == set(range(8))
    assert diagnosis.words[0].texts_T == ("<0>", "<7>", "<8>")
    for word in diagnosis.words:
        own = thoughts.own_M[word.row]
        told = scores[word.row, own] - np.logaddexp.reduce(scores[word.row] + np.log(1 / 8))
        assert sum(word.values_T) == pytest.approx(told, abs=1e-5)


class Echoing:
    """A judge that knows each thought's prompt by its text."""

    name = "other"

    def score(self, prompts_N, thoughts_M, own_M):
        scores = [
            [0.0 if thought[:-8] in prompt.split(" ")[1] else -9.0 for prompt in prompts_N] for thought in thoughts_M
        ]
        return CrossScores(scores, [2] * len(own_M), own_M), [True] * len(own_M)


def test_a_judge_reads_texts_at_full_measurements_only() -> None:
    one = diagnostician(judge=Echoing())
    full, cheap = measured(measure(one, 0, groups())), measured(measure(one, 4, groups()))
    assert full["retrieval@other/first_turn/accuracy"].value == 1.0
    assert full["information@other/first_turn/gap_per_token"].value == pytest.approx(4.5)
    assert full["information@other/first_turn_closed/mi"].n == 32
    assert not [name for name in cheap if "@other" in name]
    assert not [name for name in full if name.startswith("regime@")]


def test_caps_are_the_contracts() -> None:
    caps = {"any_turn": 64, "swapped_rows": 32, "swapped_columns": 16, "words": 64}
    for name, most in {**caps, "grounding_rows": 128, "grounding_columns": 32}.items():
        assert getattr(DiagnosticsConfig(**{name: most}), name) == most
        with pytest.raises(ValueError, match=f"{name}: expected .* at most {most}, found {most + 1}"):
            DiagnosticsConfig(**{name: most + 1})


def test_alarms_are_among_the_metrics_and_go_on_after_a_resume() -> None:
    one = diagnostician()
    for step in range(3):
        diagnosis = measure(one, step, groups())
    names = [metric.name for metric in diagnosis.metrics if metric.name.startswith("alarm/")]
    assert names == [f"alarm/{rule.name}" for rule in one.alarms.rules if not rule.optional]
    assert diagnosis.raised == ()
    other = diagnostician()
    other.load_state(json.loads(json.dumps(one.state())))
    assert measure(other, 3, groups()).metrics == measure(one, 3, groups()).metrics
    readings = measured(measure(one, 4, groups()))
    assert readings["alarm/success_drop"].why.startswith("5 of the first 7 readings of success/rate; ")


def test_intervals_are_over_tasks_where_several_contexts_may_be_of_one_task():
    collected = groups()
    asked = ThoughtScores(DiagnosticsConfig(), Reader(), 0, ThoughtTags(), 0, collected, "")
    assert asked.cheap().scores.tasks_M is None
    assert asked.first_turns().scores.tasks_M is None
    tasks = {group.task.id for group in collected}
    assert set(asked.any_turn().scores.tasks_M) == tasks
    assert set(asked.observation().scores.tasks_M) == tasks


def later_actions(count=8):
    """Episodes whose second turn takes an action as well."""
    made = []
    for group in acting(count):
        episodes = []
        for member, episode in enumerate(group.trajectories):
            turns = [replace(turn, actions=(("x", "y")[member % 2],)) for turn in episode.turns]
            replies = [replace(turn.reply, ids=(*turn.reply.ids[:3], 30 + member % 2)) for turn in turns]
            turns = [replace(turn, reply=reply) for turn, reply in zip(turns, replies, strict=True)]
            if group.task.seed % 2:  # the first member's action differs by task
                turns[1] = replace(
                    turns[1], actions=("y",), reply=replace(turns[1].reply, ids=(*turns[1].reply.ids[:3], 31))
                )
            episodes.append(replace(episode, turns=tuple(turns)))
        made.append(Group(group.task, tuple(episodes)))
    return made


def test_later_turns_are_exchanged_at_full_measurements_where_right_actions_are_known() -> None:
    one = diagnostician()
    one.right = lambda task, before=(): {"x": 1.0}
    full, cheap = (measured(measure(one, step, later_actions())) for step in (0, 4))
    assert full["grounding/later_right"].n == 8
    assert "grounding/later_right" not in cheap
    unknown = measured(measure(diagnostician(), 0, later_actions()))
    assert unknown["grounding/later_right"].why == "no right actions are known"
    none = diagnostician(later_rows=0)
    assert "grounding/later_right" not in measured(measure(none, 0, later_actions()))
