"""Every name that heedful writes is in the catalogue, and the catalogue has no entry that nothing writes."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from fake_server import ModelBrain, fake_server
from heedful import cli
from heedful.auditing.scalars.aliases import ALIASES
from heedful.auditing.scalars.history import scalar_metrics
from heedful.diagnostics.alarms.logged_rules import logged_rules
from heedful.diagnostics.alarms.rules import AlarmConfig
from heedful.diagnostics.alarms.watch import Alarms, replay
from heedful.diagnostics.catalogue import CATALOGUE, entry_of
from heedful.diagnostics.cross_scores.thoughts import ThoughtTags
from heedful.measuring.diagnostician import Diagnostician, DiagnosticsConfig
from heedful.report.panels import first_panels, questions
from heedful.report.record import read_run
from heedful.storage import RunFolder, read_gradients, read_metrics
from heedful.studies import STUDIES
from heedful.studies.declaration import settings
from heedful.studies.study_folder import StudyFolder
from heedful.types import Metric, Verdict
from heedful_verl.batch.rows import Row, sampled_of
from pictured_runs import Policy, groups
from research.jobs import RankingJob, SamplingJob

SMALL = (
    "--seedling.hidden 32 --seedling.layers 1 --seedling.heads 2 --seedling.kv-heads 1 --seedling.ffn 64 "
    "--seedling.steps 30"
)
ECHO = (
    f"echo --env.turns 2 {SMALL} --groups 5 --group-size 4 --diagnostics.every 1 --diagnostics.full-every 1 "
    "--evaluation.tasks 4 --evaluation.samples 2 --evaluation.search-tasks 8 --sampling.tokens-per-turn 16"
)
EVERYTHING = (
    f"{ECHO} --steps 2 --evaluation.times 2 --gradients.every 1 --gradients.buckets 2 --tasks 30 --coverage.rate 0.2 "
    "--treat skip,exclude,help,replay "
    "--algorithm dapo --algorithm.kl 0.01 --algorithm.entropy 0.01 --algorithm.importance-cap 2 --checkpoint-every 1"
)
IN_NOISE = (
    f"frozen_lake --env.slip 0.5 {SMALL} --seedling.steps 8 --groups 4 --group-size 4 --steps 3 "
    "--diagnostics.full-every 2 "
    "--evaluation.times 1 --evaluation.tasks 4 --evaluation.search-tasks 4 --filter keep_all "
    "--sampling.tokens-per-turn 8 --tasks 5 --choose thompson --plan sized --plan.least 2"
)
WITH_A_CRITIC = (
    f"{ECHO} --steps 1 --evaluation.times 0 --algorithm ppo --critic.clip 0.2 --filter keep_all --diagnostics.share 1"
)


@pytest.fixture(scope="module")
def run(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _trained(cache, tmp_path_factory, EVERYTHING)


@pytest.fixture(scope="module")
def run_with_a_critic(cache: Path, run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    judge = RunFolder(run).checkpoint(2)
    return _trained(cache, tmp_path_factory, f"{WITH_A_CRITIC} --diagnostics.judge {judge}")


def _trained(cache: Path, folders: pytest.TempPathFactory, flags: str) -> Path:
    folder = folders.mktemp("written") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEEDFUL_CACHE", str(cache))
        assert cli.run(f"train {flags} --out {folder}".split()) == 0
    return folder


def of_a_folder(folder: Path) -> set[str]:
    return {name for line in read_metrics(RunFolder(folder).metrics) for name in line.metrics}


def by_a_run(run: Path) -> set[str]:
    return of_a_folder(run) | set(json.loads((run / "verdict.json").read_text())["figures"])


def by_a_run_in_a_noisy_environment(run: Path) -> set[str]:
    assert cli.run(f"train {IN_NOISE} --out noisy".split()) == 0
    lines = read_metrics(RunFolder(Path("noisy")).metrics)
    assert [line.step for line in lines if "signal/luck_share" in line.metrics] == [0, 2]
    return of_a_folder(Path("noisy"))


def by_an_audit(run: Path) -> set[str]:
    assert cli.run(["audit", str(run), "--model", str(RunFolder(run).checkpoint(1)), "--out", "audited"]) == 0
    return of_a_folder(Path("audited"))


def by_a_gradient_measurement(run: Path) -> set[str]:
    assert cli.run(["gradients", str(run), "--groups", "4", "--group-size", "4", "--buckets", "2"]) == 0
    return set(read_gradients(RunFolder(run).gradients(2)).metrics)


def by_a_run_whose_updates_are_split(run: Path) -> set[str]:
    split = "--steps 1 --filter keep_all --algorithm.entropy 0.1 --attribution.every 1 --attribution.prompts 12"
    assert cli.run(f"train {ECHO} {split} --optimizer.lr 1e-5 --out split".split()) == 0
    return of_a_folder(Path("split"))


def by_an_evaluation(run: Path) -> set[str]:
    assert cli.run(["eval", str(run), "--tasks", "4", "--samples", "2", "--json", "evaluated.json"]) == 0
    return set(json.loads(Path("evaluated.json").read_text())["metrics"])


def by_a_study(run: Path) -> set[str]:
    small = f"--env.turns 2 {SMALL} --groups 4 --group-size 4"  # the seedling of the run is in the cache
    job = SamplingJob(settings("echo", small), batches=1, forced=2)
    folder = StudyFolder(Path("study")).run("sampled", 0).folder
    ranking = RankingJob(settings("echo", small), tasks=8, passes=2)
    ranked = StudyFolder(Path("study")).run("ranking", 0).folder
    assert cli.run(job.command(folder, 0)) == cli.run(ranking.command(ranked, 0)) == 0
    return of_a_folder(folder.path) | of_a_folder(ranked.path)


def by_a_run_and_an_evaluation_over_a_server(run: Path) -> set[str]:
    from transformers import AutoModelForCausalLM

    checkpoint = RunFolder(run).checkpoint(1)
    with fake_server(ModelBrain(AutoModelForCausalLM.from_pretrained(checkpoint).eval())) as server:
        few = "--steps 3 --groups 3 --group-size 2 --filter keep_all --sampling.tokens-per-turn 8 --evaluation.times 0"
        train = f"train {ECHO} {few} --out over --sampler vllm"
        assert cli.run([*train.split(), "--sampler.url", server.url]) == 0
        served = f"--server {server.url} --model-name policy --tokenizer {checkpoint} --env.instructions brief"
        small = "--tasks 3 --samples 2 --search-tasks 0 --sampling.tokens-per-turn 8 --out served"
        assert cli.run(["eval", "echo", *served.split(), *small.split()]) == 0
    return of_a_folder(Path("over")) | of_a_folder(Path("served"))


def by_a_batch_inside_verl(run: Path) -> set[str]:
    return {sampled_of([Row("a_0_0", (1,), (2,), (True,), score=1.0)], 1, None, 1).stale_share().name}


def by_a_batch_inside_trl(run: Path) -> set[str]:
    import torch

    from heedful.integrations.trl.sampler import difference_metrics

    batch = {name: torch.zeros(1, 1) for name in ("sampling_per_token_logps", "old_per_token_logps")}
    return {metric.name for metric in difference_metrics([{**batch, "completion_mask": torch.ones(1, 1)}], list)}


def by_a_measurement_of_pictures(run: Path) -> set[str]:
    policy = Policy(lambda pictures, texts, at, word: 0.9 if word == pictures[0] % 2 else 0.1, words=2)
    rolled = groups(policy, [(number, number // 2) for number in range(6)], turns=2)
    watching = Diagnostician(DiagnosticsConfig(share=None, full_every=1), policy, 0, ThoughtTags(), str)
    steps = [watching.measure(step, rolled, [Verdict(1.0, "kept", 0.0)] * 6, "outcome") for step in range(2)]
    return {metric.name for step in steps for metric in step.metrics}


def by_the_alarms_of_a_longer_run(run: Path) -> set[str]:
    actions = Metric("grounding/input_to_action", 0.5, 64, 0.4, 0.6)
    update = Metric("policy/advantage_without_outcome", 0.1, 16)
    steps = replay((at, {actions.name: actions, update.name: update}) for at in range(5))
    return {metric.name for step in steps for metric in step.metrics}


def by_the_scalars_of_a_trainer(run: Path) -> set[str]:
    alarms, names = Alarms(rules=logged_rules(AlarmConfig())), set[str]()
    for step in range(30):
        metrics = [*scalar_metrics(dict.fromkeys(ALIASES, 0.5)), Metric("text/judge_accuracy_8way", 0.5, 64, 0.4, 0.6)]
        names |= {metric.name for metric in (*metrics, *alarms.observe(step, metrics).metrics)}
    return names


SOURCES: tuple[Callable[[Path], set[str]], ...] = (
    by_a_run,
    by_a_run_in_a_noisy_environment,
    by_an_audit,
    by_a_gradient_measurement,
    by_a_run_whose_updates_are_split,
    by_an_evaluation,
    by_a_study,
    by_a_run_and_an_evaluation_over_a_server,
    by_a_batch_inside_verl,
    by_a_batch_inside_trl,
    by_a_measurement_of_pictures,
    by_the_alarms_of_a_longer_run,
    by_the_scalars_of_a_trainer,
)


def test_every_name_that_is_written_has_an_entry_and_every_entry_is_written(run: Path, run_with_a_critic: Path) -> None:
    written = {source.__name__: source(run) for source in SOURCES} | {"by_ppo": of_a_folder(run_with_a_critic)}
    unknown = {source: sorted(name for name in names if entry_of(name) is None) for source, names in written.items()}
    assert [(source, found) for source, found in unknown.items() if found] == []
    names = set().union(*written.values())
    met = {entry.pattern for name in names if (entry := entry_of(name)) is not None}
    assert [entry.pattern for entry in CATALOGUE if entry.pattern not in met] == []


def test_a_metric_is_written_as_often_as_the_catalogue_says(run: Path) -> None:
    lines = read_metrics(RunFolder(run).metrics)
    steps = [line.metrics for line in lines if "success/rate" in line.metrics]
    always = {name for metrics in steps for name in metrics if not name.startswith(("time/", "filter/dropped/"))}
    partly = {name for name in always if not all(name in metrics for metrics in steps)}
    assert {entry.cadence for name in partly if (entry := entry_of(name)) is not None} <= {"evaluation"}


def test_what_pages_and_studies_show_is_in_the_catalogue(run: Path) -> None:
    record = read_run(RunFolder(run))
    panels = [*first_panels(record), *(panel for question in questions(record) for panel in question.panels)]
    drawn = {curve.series.name for panel in panels for curve in panel.curves}
    assert len(drawn) > 40
    studies = [make() for make in STUDIES.values()]
    studied = {metric for study in studies for metric in study.curves}
    studied |= {measure.metric for study in studies for measure in study.measures}
    assert sorted(name for name in drawn | studied if entry_of(name) is None) == []
