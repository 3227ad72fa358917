"""The studies of causes: what they plant, and what they read out of their runs."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

from heedful.boundary import to_json
from heedful.run.config import TrainConfig
from heedful.run.loop import Outcome
from heedful.storage import RunFolder, read_metrics, write_whole
from heedful.storage.trackers import JsonlTracker
from heedful.studies.declaration import Arm, Pool, Study
from heedful.studies.fork_arms import ForkArm
from heedful.studies.jobs import TrainingJob
from heedful.studies.outcomes import read_outcomes
from heedful.studies.page import _plain
from heedful.types import Metric, Task
from research.catalogue import STUDIES
from research.causes import jobs
from research.causes.chains import COMPONENTS, NullChain
from research.causes.jobs import ForkedJob, PulledJob
from research.causes.outcomes import ForkCauses, Kept, Slopes
from research.detector.candidates import Hunt
from written_runs import WrittenRuns


def reading_of(written: WrittenRuns, outcome: Any, arms: dict[str, int]) -> Any:
    """What an outcome reads of these runs. `arms`: with their number of seeds."""
    study = Study("s", "What?", tuple(Arm(arm, TrainingJob()) for arm in arms), tuple(range(max(arms.values()))))
    runs = [written.folder.run(arm, seed) for arm, seeds in arms.items() for seed in range(seeds)]
    reading = outcome.read(study, read_outcomes(study, runs))
    assert _plain(reading.values).keys()  # as results.json has it
    return reading


def played(env: NullChain, reply: str, members: int = 40) -> list[dict[str, float]]:
    task = next(one for seed in range(99) if (one := env.task(seed)).split == "train")
    found = []
    for member in range(members):
        episode = env.episode()
        episode.start(Task(task.id, task.seed, task.split, task.tags, task.environment), member)
        found.append(dict(episode.step(reply).rewards))
    return found


def test_a_coin_pays_about_half_of_the_members_whatever_they_say_and_length_costs() -> None:
    env = NullChain(instructions="brief", unrewarded=1.0, coin=1.0, length=0.01)
    one, other = (played(env, reply) for reply in ("<think>abc</think><answer>1</answer>", "<think></think><answer>9"))
    assert [paid["coin"] for paid in one] == [paid["coin"] for paid in other]
    assert 10 <= sum(paid["coin"] for paid in one) <= 30
    assert one[0]["length"] < other[0]["length"] < 0
    assert "solved" not in one[0]
    assert "coin" not in played(NullChain(instructions="brief"), "<think>")[0]


def test_a_slope_that_is_clear_and_on_the_other_side_contradicts_its_sign(tmp_path: Path) -> None:
    written = WrittenRuns(tmp_path / "study")
    for seed in range(3):
        up = [10.0 + seed, 11.0 + seed, 12.01 + seed * 1.01]
        total = {"attribution/gap/total": [1.0, 1.0], "attribution/gap/measured": [1.0, 1.5]}
        written.add("up", seed, {"g": up, **total})
        written.add("down", seed, {"g": [-value for value in up]})
        written.add("still", seed, {"g": [0.0, 1.0, (-1.0) ** seed]})
    outcome = Slopes("g", (("up", 1), ("down", 1), ("still", 0)))
    found = reading_of(written, outcome, {"up": 3, "down": 3, "still": 3})
    assert [each.contradicted for each in found.values.values()] == [False, True, False]
    assert found.values["up"].slope.value == pytest.approx(1.01, abs=0.02)
    assert found.values["up"].attributed == pytest.approx(0.8)
    assert found.sentences == ("Contradicted: down. Attribution is within 25% of the measured change in 1 of 1 arms.",)
    write_whole(written.folder.run("up", 0).folder.fork, '{"checkpoint": 1}')
    forked = reading_of(written, outcome, {"up": 1, "down": 3, "still": 3}).values["up"]
    assert forked.slope.value is None, "the parent's step is none of the fork's, and two are left"
    assert forked.attributed == pytest.approx(1 / 1.5)
    assert outcome.among(("up",)) == Slopes("g", (("up", 1),))
    assert outcome.among(()) is None


def test_kept_runs_are_counted_by_way(tmp_path: Path) -> None:
    written = WrittenRuns(tmp_path / "study")
    valid = {"format/valid_rate": [1.0] * 4}
    for seed in range(2):
        written.add("a_cut", seed, {"mi": [2.0, 2.0, 2.0, 2.0], **valid})
        written.add("a_warned", seed, {"mi": [2.0, 2.0, 0.5, 0.5] if seed else [2.0, 2.0, 2.0, 2.0], **valid})
    outcome = Kept(Hunt("h", ("mi",)), (Pool("cut", ("a_cut",)), Pool("warned", ("a_warned",))))
    found = reading_of(written, outcome, {"a_cut": 2, "a_warned": 2})
    assert [(way, count.hits, count.of) for way, count in found.values.items()] == [("cut", 2, 2), ("warned", 1, 2)]


def test_forks_are_counted_as_right_where_they_name_what_was_planted(tmp_path: Path) -> None:
    written = WrittenRuns(tmp_path / "study")

    def forked(arm: str, seed: int, *removals: tuple[str, float, bool, float | None]) -> None:
        run = written.add(arm, seed, {"fork/gain": [0.1]})
        rows = [
            {"arm": {"name": name}, "success": {"value": gain}, "named": named, "attributed": attributed}
            for name, gain, named, attributed in removals
        ]
        found = {"removals": rows, "alarm": ["noise_collapse"], "advice": ["bonus"]}
        write_whole(run.folder.path / "forked.json", json.dumps(found))

    forked("prose_forked", 0, ("no_fluency", 0.2, True, -0.04), ("half_rate", 0.1, False, None))
    forked("prose_forked", 1, ("half_rate", 0.2, False, None), ("no_fluency", 0.1, False, -0.04))
    forked("prose_forked", 2, ("no_fluency", 0.1, False, -0.04), ("half_rate", 0.1, False, None))  # none is first
    forked("healthy_forked", 0, ("half_rate", 0.0, False, None), ("no_format", -0.1, False, 0.01))
    outcome = ForkCauses((("prose_forked", "no_fluency"), ("healthy_forked", "")))
    found = reading_of(written, outcome, {"prose_forked": 3, "healthy_forked": 1})
    assert {name: (count.hits, count.of) for name, count in found.values.items()} == {
        "named right": (1, 3),
        "first": (1, 3),
        "largest negative part of success": (3, 3),
        "named in a healthy run": (0, 1),
    }


def test_every_planted_cause_has_its_forks_and_its_right_removal() -> None:
    study = STUDIES["fork_causes"]()
    (outcome,) = study.outcomes
    assert [arm.after for arm in study.arms[6:]] == [arm.name for arm in study.arms[:6]]
    assert outcome.arms_read == tuple(arm.name for arm in study.arms[6:])


def parent_run(path: Path, alarm: str = "") -> RunFolder:
    """A run with a checkpoint of step 2, written by hand."""
    folder = RunFolder(path)
    (folder.checkpoint(2)).mkdir(parents=True)
    config = replace(TrainConfig(env=NullChain(instructions="brief", fluency=0.1)), steps=4)
    folder.config.write_text(json.dumps(to_json(config)))
    tracker = JsonlTracker(folder.metrics)
    tracker.write(3, [Metric("alarm/noise_collapse", float(bool(alarm)), why="entropy rose since step 3")])
    tracker.close()
    return folder


@pytest.mark.parametrize(("alarm", "before"), [("noise_collapse", None), ("", "2")])
def test_a_run_is_forked_before_its_alarm_or_else_before_step_ten(
    alarm: str, before: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent_run(tmp_path / "study" / "prose" / "s0", alarm)
    asked: list[Any] = []
    found = {"checkpoint": 2, "removals": [{"success": {"value": 0.25}}]}

    def run_study(request: Any, console: Any) -> int:
        write_whole(request.out / "results.json", json.dumps({"outcomes": [found]}))
        return 0

    def fork_study(run: Any, *given: Any, **named: Any) -> Any:
        asked.append((given, named))
        arms = ForkArm("none", "none"), ForkArm("half_rate", "removal"), ForkArm("kl", "cure")
        return SimpleNamespace(outcomes=(SimpleNamespace(arms=arms),))

    monkeypatch.setattr(jobs, "fork_study", fork_study)
    monkeypatch.setattr(jobs, "narrowed", lambda study, arms: asked.append(arms))
    monkeypatch.setattr(jobs, "claim", lambda folder, study: folder.forks / "1")
    monkeypatch.setattr(jobs, "run_study", run_study)
    folder, job = RunFolder(tmp_path / "study" / "prose_forked" / "s0"), ForkedJob(after="prose")
    assert not job.done(folder)
    assert job.run(folder, 0) == 0
    assert job.done(folder)
    assert asked == [((before, 6, job.seeds), {"tasks": 256}), ("none", "half_rate")], "cures name no cause"
    stored = json.loads((folder.path / "forked.json").read_text())
    assert (stored["alarm"], stored["checkpoint"]) == ([alarm] * bool(alarm), 2)
    (line,) = read_metrics(folder.metrics)
    assert line.metrics["fork/gain"].value == 0.25


def test_a_pulled_run_goes_on_under_a_kl_penalty_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parent_run(tmp_path / "study" / "prose" / "s0")
    begun: list[Any] = []
    monkeypatch.setattr(jobs, "config_at", lambda run, step: (run.config, step))
    monkeypatch.setattr(jobs, "begin_fork", lambda run, step, path, config: begun.append((step, config)))

    def resume(path: Path, **named: Any) -> Any:
        begun.append(named["typed"])
        return SimpleNamespace(outcome=Outcome(22, interrupted=False))

    monkeypatch.setattr(jobs, "resume", resume)
    job = PulledJob(TrainConfig(steps=20), after="prose")
    assert job.run(RunFolder(tmp_path / "study" / "kl" / "s0"), 0) == 0
    (step, config), typed = begun
    assert (step, config.steps, config.algorithm.kl, config.without_rewards) == (2, 22, 0.1, COMPONENTS)
    assert set(typed) >= {"steps", "algorithm.kl", "without_rewards"}
