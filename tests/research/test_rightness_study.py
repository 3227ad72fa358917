"""The registered tests of the split of rightness: what they plant, what they compare, and what they store."""

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from heedful.boundary import to_json
from heedful.envs.toys.chain import Chain
from heedful.models.chat.render import Renderer
from heedful.storage.trackers import JsonlTracker
from heedful.studies import settings
from heedful.types import Conversation, Message, Metric, Task
from research.catalogue import STUDIES
from research.rightness.exact import bound
from research.rightness.falls import GREEDY, JUDGED, TURNS, WHOLE, judged
from research.rightness.figures import Result, figure, once
from research.rightness.planted import SpoiltChain, r_squared
from research.rightness.pretrained import blanked, demonstrated_exchange
from research.rightness.readings import BY_THOUGHT, GAP, MI
from research.rightness.registered import TESTS
from research.rightness.trained import CHAIN, COLLAPSED, OTHERS, SUCCESS, _difference, alarmed, separated, unhelpful


def test_no_registered_seed_is_one_of_an_earlier_study() -> None:
    used = {seed for study in STUDIES.values() for seed in study().seeds}
    registered = {seed for test in TESTS.values() for seed in test.seeds}
    assert list(TESTS) == list(range(1, 10))
    assert not used & registered


def test_a_spoilt_chain_copies_the_row_and_ends_one_too_high_or_anywhere() -> None:
    task = next(one for seed in range(99) if (one := Chain().task(seed)).split == "train")
    (link,) = Chain().links(task.seed)
    numbers = {}
    for how, spoilt in (("too_high", 0.0), ("too_high", 1.0), ("random", 1.0)):
        env = SpoiltChain(spoilt=spoilt, how=how)
        replies = [env.demonstrate(task, random.Random(seed))[0][1] for seed in range(60)]
        thoughts = [reply.partition("</think>")[0].removeprefix("<think>") for reply in replies]
        for reply, thought in zip(replies, thoughts, strict=True):
            assert reply.endswith(f"<answer>{thought[-1]}</answer>")  # the answer is the last number
            assert thought[0] == str(link.start)
            assert [thought[at : at + 2] for at in range(1, len(thought), 3)] == list(link.operations)
        numbers[how, spoilt] = {int(thought[-1]) for thought in thoughts}
    right = link.states[-1]
    assert numbers["too_high", 0.0] == {right}
    assert numbers["too_high", 1.0] == {(right + 1) % 7}
    assert numbers["random", 1.0] == set(range(7))
    assert env.right_actions(task) == {str(right): 1.0}


def test_r_squared_is_one_on_a_line_and_a_quarter_off_it() -> None:
    assert r_squared([0, 1, 2], [5, 3, 1]) == pytest.approx(1)
    assert r_squared([0, 1, 2], [0, 2, 1]) == pytest.approx(0.25)  # correlation 1 / 2
    assert r_squared([0, 1, 2], [4, 4, 4]) == 0


def test_a_blank_prompt_keeps_what_all_prompts_share() -> None:
    assert blanked([(1, 2, 3, 9), (1, 5, 3, 9), (1, 5, 6, 7, 9)], 0) == [(1, 0, 0, 9), (1, 0, 0, 9), (1, 0, 0, 0, 9)]


def test_the_alarm_sees_a_lost_part_of_the_thought_and_no_part_that_was_never_there() -> None:
    from heedful.diagnostics.alarms.watch import first_raised, replay

    def raised(values: list[float]) -> list[int]:
        steps = [
            (3 * at, {BY_THOUGHT: Metric(BY_THOUGHT, value, 64, value - 0.05, value + 0.05, clusters=16.0)})
            for at, value in enumerate(values)
        ]
        return [alarm.step for alarm in first_raised(replay(steps, rules=(unhelpful(),))).values()]

    assert raised([0.6, 0.62, 0.58, 0.6, 0.05, 0.02]) == [15]  # two readings after the fall
    assert raised([0.6, 0.62, 0.58, 0.6, 0.05]) == []
    assert raised([0.6, 0.62, 0.58, 0.6, 0.45, 0.45]) == []  # a quarter of its level
    assert raised([0.08, 0.08, 0.08, 0.08, 0.0, 0.0]) == []  # less than .1


def test_the_difference_of_two_areas_is_that_of_pairs_of_runs() -> None:
    collapsed, healthy = [[0.0, 3.0], [0.1, 1.0]], [[0.6, 2.0], [0.7, 2.5]]
    # The first metric is lower in all four pairs, the second in two of them.
    value, low, high = _difference(collapsed, healthy)
    assert value == pytest.approx(0.5)
    assert low <= value <= high


def test_no_random_label_breaks_the_bound() -> None:
    assert bound(1, 50).passed


def test_what_was_measured_is_not_measured_again(tmp_path: Path) -> None:
    path = tmp_path / "new" / "one.json"
    assert once(path, lambda: [1.5]) == [1.5]
    assert once(path, lambda: pytest.fail("measured again")) == [1.5]
    Result(None, [figure("runs", 3, note="too few")]).write(tmp_path / "test_9.json", rule="r")
    stored = once(tmp_path / "test_9.json", lambda: None)
    assert (stored["passed"], stored["rule"], stored["figures"][0]["value"]) == (None, "r", 3)


def test_labels_of_a_log_are_first_actions_of_successful_members_that_are_not_exchanged() -> None:
    from heedful.types import Ending, Group, Prompt, Reply, Span, Trajectory, Turn
    from research.rightness.logs import successful

    task = Task("t", 0, "train")
    reply = Reply(Prompt("", (1,)), (1,), "", (0.0,), (), Span(0, 1), Span(1, 1), True, False)

    def member(number: int, action: str, outcome: float) -> Trajectory:
        ending = Ending.SOLVED if outcome else Ending.FAILED
        return Trajectory(task, number, (Turn(reply, {}, (action,), True, "", ""),), ending, outcome)

    members = [member(0, "1", 1.0), member(1, "2", 1.0), member(2, "3", 1.0), member(3, "4", 0.0)]
    assert successful(Group(task, tuple(members))) == {"3": 1.0}
    assert successful(Group(task, (*members[:2], replace(members[2], outcome=0.0), members[3]))) is None


def test_a_demonstrated_exchange_continues_every_prompt_as_the_demonstration_does(tokenizer: Any) -> None:
    env, renderer = Chain(thoughts="english", instructions="brief"), Renderer(tokenizer)
    tasks = [one for seed in range(40) if (one := env.task(seed)).split == "train"][:3]
    played = [(task, env.demonstrate(task, random.Random(1))[0]) for task in tasks]
    shown = [Message("user", "1+1"), Message("assistant", "<think>2</think><answer>2</answer>")]
    asked = demonstrated_exchange(renderer, env.actions, played, shown)
    assert asked.names_A == ("0", "1", "2", "3", "4", "5", "6")
    for prompt, thought, (observation, reply) in zip(
        asked.prompts_N, asked.thoughts_M, [one for _, one in played], strict=True
    ):
        messages = (*shown, Message("user", observation))
        whole = (*renderer.context_ids(Conversation("", messages)), *renderer.as_sampled(reply))
        taken = int(reply.removesuffix("</answer>")[-1])
        asked_for = (*prompt, *thought, *asked.spellings_S[taken])
        assert whole[: len(asked_for)] == asked_for
        assert tokenizer.decode(list(thought)).endswith("<answer>")


def written_run(folder: Path, name: str, seed: int, falls: bool) -> None:
    """A finished run of ten evaluations, whose part of the thought and success fall from the fifth on, or stay."""
    folder.mkdir(parents=True)
    config = to_json(replace(settings(name), seed=seed))
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "verdict.json").write_text("{}")
    tracker = JsonlTracker(folder / "metrics.jsonl")
    for at in range(10):
        lost = falls and at >= 4
        noise = 0.01 * ((7 * at + seed) % 5)
        value = (0.0 if lost else 0.6) + noise
        thought = Metric(BY_THOUGHT, value, 64, value - 0.05, value + 0.05, clusters=16.0)
        information = Metric(MI, 2.5 + noise, 64)
        gap = Metric(GAP, (1.0 if lost else 2.0) + noise, 64)
        tracker.write(3 * at, [thought, information, gap, Metric(SUCCESS, (0.1 if lost else 0.8) + noise, 96)])
    tracker.close()


def test_finished_runs_of_whole_seeds_are_judged_and_others_are_not(tmp_path: Path) -> None:
    for seed in (61, 62):
        for arm in CHAIN:
            written_run(tmp_path / arm / f"s{seed}", "chain", seed, arm in COLLAPSED)
        for name in OTHERS:
            written_run(tmp_path / name / f"s{seed}", name, seed, False)
    written_run(tmp_path / "template" / "s63", "chain", 63, False)  # alone: its seed does not count
    found = {each.title: each for each in separated((61, 62, 63), tmp_path, until=0.0).figures}
    assert found["whole seeds"].value == 2
    assert found["right_by_thought: area at the last measurement"].value == 1.0
    assert found["mutual information: area at the last measurement"].value == 0.5
    raised = {each.title: each for each in alarmed((61, 62, 63), tmp_path, until=0.0).figures}
    assert raised["thought_unhelpful: raised in template runs"].value == 2
    assert raised["action_uninformed alone passes"].value == 0
    healthy = raised["thought_unhelpful: raised in healthy runs"]
    assert (healthy.value, healthy.n) == (0, 10)


def course(values: list[float], half: float = 0.02) -> list[tuple[int, Metric]]:
    return [(3 * at, Metric("", value, 64, value - half, value + half)) for at, value in enumerate(values)]


def test_a_part_passes_where_it_falls_by_the_evaluation_of_success_in_every_fall() -> None:
    falls, stays = course([0.3, 0.3, 0.2, 0.1]), course([0.3, 0.3, 0.28, 0.28])
    part = JUDGED[0]

    def result(*parts: list[tuple[int, Metric]], success: list[list[tuple[int, Metric]]] | None = None) -> Result:
        of_success = success or [falls] * len(parts)
        return judged([{GREEDY: own, part: one} for own, one in zip(of_success, parts, strict=True)])

    at_once, late = course([0.1, 0.1, 0.05, 0.05]), course([0.1, 0.1, 0.1, 0.05])
    assert result(at_once, at_once).passed is True
    assert result(at_once, late).passed is False
    assert result(at_once, late, success=[falls, stays]).passed is None  # one fall alone
    assert result(at_once, late, at_once, success=[falls, stays, falls]).passed is True
    assert judged([{GREEDY: falls, WHOLE[0]: at_once}] * 3).passed is False  # the whole is no part
    found = {each.title: each for each in result(at_once, late).figures}
    assert found["runs whose greedy success falls"].note == "at steps 6, 6"
    timely = found[f"{part}: falls no later than greedy success"]
    assert (timely.value, timely.n, timely.note) == (1, 2, "falls at steps 6, 9; before greedy success in 0")
    assert found[f"{part}: change to the end"].value == pytest.approx(-0.05)


def test_the_split_of_a_stored_evaluation_is_what_the_run_itself_read(echo_run: Any, tmp_path: Path) -> None:
    from heedful import train
    from heedful.storage import RunFolder
    from research.rightness.falls import readings_of
    from research.rightness.trained import Trained

    config = replace(echo_run, steps=1, keep_checkpoints="all", evaluation=replace(echo_run.evaluation, times=2))
    folder = RunFolder(train(config, out=tmp_path / "run", show=False).path)
    run = Trained("echo", config.seed, folder)
    assert readings_of(run, tmp_path / "read", until=0.0, tasks=8) is None  # no time for them
    found = readings_of(run, tmp_path / "read", until=float("inf"), tasks=8)
    assert found is not None
    for number, (step, metric) in enumerate(found["greedy/right_by_thought"]):
        own = run.lines[(0, -1)[number]].metrics["eval/val/greedy/right_by_thought"]
        assert (step, metric.value) == ((0, 1)[number], pytest.approx(own.value, abs=1e-6))
        assert metric.value != 0
    assert [step for step, _ in found[GREEDY]] == [step for step, _ in found[TURNS[0]]] == [0, 1]
    assert 0 < float(found[TURNS[0]][0][1].value or 0) <= 1  # Echo takes one action
    assert readings_of(run, tmp_path / "read", until=0.0, tasks=8) is not None  # they are stored
