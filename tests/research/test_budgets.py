"""The studies of budgets: success by tokens on curves by hand, and the control that follows another arm's run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from heedful.envs.common.tasks import TaskStream
from heedful.envs.toys.chain import UNREWARDED
from heedful.report.record import RunRecord, read_run
from heedful.rollout.choosers import InOrder, Thompson, Yoked
from heedful.seeds import derive
from heedful.storage import RunFolder
from heedful.studies.declaration import Arm, Pair, Study, narrowed, settings, study_from_json, study_to_json
from heedful.studies.jobs import TrainingJob
from heedful.studies.study_folder import StudyFolder
from research.budgets import SuccessByTokens, curve, mean_until, read_areas
from research.catalogue import STUDIES
from research.jobs import PlantedKindsJob, YokedJob

SUCCESS = "eval/val/sampled/success"


def record(path: Path, tokens: list[float], success: dict[int, float]) -> RunRecord:
    """A run that samples so many tokens at each step, evaluated at some of them."""
    path.mkdir(parents=True)
    (path / "config.json").write_text("{}")
    lines = [
        {"tokens/collect": spent} | ({SUCCESS: success[step]} if step in success else {})
        for step, spent in enumerate(tokens)
    ]
    lines.append({SUCCESS: success[len(tokens)]})
    rows = [json.dumps({"step": step, "time": 0.0, "metrics": each}) for step, each in enumerate(lines)]
    (path / "metrics.jsonl").write_text("".join(f"{row}\n" for row in rows))
    return read_run(RunFolder(path))


def test_success_by_tokens_is_the_area_under_straight_lines(tmp_path: Path) -> None:
    run = record(tmp_path / "a", [10.0, 10.0, 30.0, 30.0], {0: 0.2, 2: 0.4, 4: 0.8})
    assert curve(run, SUCCESS) == [(0.0, 0.2), (20.0, 0.4), (80.0, 0.8)]
    # 20 tokens of .3 and 60 of .6; up to 50 tokens, where it is .6: 20 of .3 and 30 of .5.
    assert mean_until(curve(run, SUCCESS), 80.0) == pytest.approx((20 * 0.3 + 60 * 0.6) / 80)
    assert mean_until(curve(run, SUCCESS), 50.0) == pytest.approx((20 * 0.3 + 30 * 0.5) / 50)


def test_runs_of_a_seed_are_compared_over_as_many_tokens_as_the_shortest(tmp_path: Path) -> None:
    cheap = [record(tmp_path / f"c{n}", [25.0, 25.0], {0: 0.2, 2: 0.6}) for n in range(2)]
    dear = [record(tmp_path / f"d{n}", [50.0, 50.0], {0: 0.2, 2: 0.6 + n / 5}) for n in range(2)]
    spec = SuccessByTokens("by tokens", ("cheap", "dear"), (Pair("cheap", "dear"),))
    found = read_areas(spec, {"cheap": dict(enumerate(cheap)), "dear": dict(enumerate(dear))})
    # After 50 of 100 tokens the dear arm is halfway: .4 and .5, so its means are .3 and .35 against .4.
    assert found.means["cheap"].value == pytest.approx(0.4)
    assert found.means["dear"].value == pytest.approx(0.325)
    assert found.differences["cheap − dear"].by_seed == {0: pytest.approx(0.1), 1: pytest.approx(0.05)}
    unfinished = read_areas(spec, {"cheap": dict(enumerate(cheap)), "dear": {}})
    assert unfinished.differences["cheap − dear"].mean.value is None
    assert unfinished.means["dear"].n == 0


def test_a_yoked_arm_begins_after_the_run_that_it_follows_and_reads_its_folder() -> None:
    base = "--tasks 32 --steps 2"
    yoked = YokedJob(settings("echo", f"{base} --choose yoked --choose.run thompson"))
    first = TrainingJob(settings("echo", f"{base} --choose thompson"))
    study = Study("s", "What?", (Arm("thompson", first), Arm("yoked", yoked)), (0,))
    assert study_from_json(json.loads(json.dumps(study_to_json(study)))) == study
    assert [arm.name for arm in narrowed(study, arms=("yoked",)).arms] == ["thompson", "yoked"]
    folder = StudyFolder(Path("out")).run("yoked", 3).folder
    words = yoked.command(folder, 3)
    written = json.loads(Path(words[words.index("--config") + 1]).read_text())
    assert written["choose"] == {"type": "yoked", "run": str(Path("out/thompson/s3"))}
    with pytest.raises(ValueError, match="thompson is compared or read, but no arm has that name"):
        Study("s", "What?", (Arm("yoked", yoked),))


def test_the_arms_of_a_bed_differ_in_the_choice_and_the_plan_alone() -> None:
    studies = [STUDIES[name]() for name in ("budgets", "budgets_beds")]
    found = {arm.name: arm.job.config for study in studies for arm in study.arms}
    assert found["sokoban_thompson"].choose == Thompson()
    assert found["sokoban_yoked"].choose == Yoked("sokoban_thompson")
    for bed in ("sokoban", "chain3", "lake", "chain", "countdown"):
        base = found[f"{bed}_in_order"]
        for name, config in found.items():
            if name.startswith(f"{bed}_"):
                same = {"choose": InOrder(), "plan": base.plan, "keep_rollouts": base.keep_rollouts}
                assert type(config)(**{**{n: getattr(config, n) for n in config.__slots__}, **same}) == base, name


def test_the_arms_of_causes_differ_in_their_treatments_alone() -> None:
    study = STUDIES["budgets_causes"]()
    found = {arm.name: arm.job.config for arm in study.arms}
    plain = found["filter_only"]
    assert (plain.env.turns, plain.env.unrewarded, plain.tasks, plain.treat) == (3, 0.25, 96, ())
    for name, config in found.items():
        assert replace(config, treat=(), treat_dealt=False, tasks=96) == plain
        assert config.tasks == (None if name == "oracle" else 96)  # as its runs are written, which list their tasks
        assert config.treat_dealt is (name == "dealt")
    assert found["dealt"].treat == found["treatments"].treat == ("skip", "exclude", "help")


def test_the_oracle_of_causes_trains_on_paid_and_short_tasks_of_the_pool_of_its_seed(tmp_path: Path) -> None:
    study = STUDIES["budgets_causes"]()
    job = study.arm("oracle").job
    assert isinstance(job, PlantedKindsJob)
    folder = StudyFolder(tmp_path).run("oracle", 71).folder
    folder.path.parent.mkdir(parents=True)
    path = Path(job.command(folder, 71)[3])
    seeds = json.loads(path.read_text())["task_seeds"]
    env, pool = job.config.env, TaskStream(job.config.env, "train", derive(71, "tasks"), job.pool).pool
    assert pool is not None
    known = {task.seed: task for task in pool}
    assert job.pool == study.arm("filter_only").job.config.tasks
    assert 30 < len(seeds) < 72
    for seed, task in known.items():
        length = sum(len(link.operations) for link in env.links(seed))
        assert (seed in seeds) is (UNREWARDED not in task.tags and length <= 16)
