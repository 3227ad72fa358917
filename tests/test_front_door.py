"""`import heedful`: what a notebook can do without the command line."""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import heedful
from heedful.boundary import trust_flags, trusting
from heedful.run.train import _Reporting
from heedful.types import CrossScores, Metric
from patience import PATIENCE

PAGE = Path(__file__).parent.parent / "docs" / "python.md"


def small(seed: int = 0) -> heedful.TrainConfig:
    config = heedful.preset("echo")
    return replace(
        config,
        steps=3,
        groups=4,
        group_size=4,
        checkpoint_every=1,
        seed=seed,
        evaluation=replace(config.evaluation, tasks=8, samples=2, times=2),
    )


def untyped(anything: Any) -> Any:
    """The same for mypy as for a user without mypy."""
    return anything


def without_times(path: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [
        {"step": line["step"], **{name: value for name, value in line["metrics"].items() if "time/" not in name}}
        for line in lines
    ]


def test_the_public_names_are_listed_documented_and_found() -> None:
    for name in heedful.__all__:
        public = getattr(heedful, name)
        assert inspect.getdoc(public), f"heedful.{name} has no docstring"
        assert name in dir(heedful)
    with pytest.raises(AttributeError, match=r"no attribute 'trane'; its public names are .*train"):
        _ = heedful.trane


def test_heedful_itself_is_imported_before_anybody_can_press_ctrl_c() -> None:
    # Until `__main__` runs, a Ctrl-C is a traceback of Python. `typing` alone would double that time.
    code = "import sys; sys.path.insert(0, sys.argv[1]); import heedful; print('typing' in sys.modules)"
    source = str(Path(heedful.__file__).parent.parent)
    ended = subprocess.run([sys.executable, "-S", "-c", code, source], capture_output=True, text=True, check=True)
    assert ended.stdout == "False\n"


def test_importing_heedful_loads_neither_torch_nor_numpy_and_warns_of_nothing() -> None:
    program = "import heedful, sys; print(sorted({'torch', 'numpy', 'rich'} & set(sys.modules)), heedful.filters.TopP)"
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=PATIENCE
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("[] ")


def test_every_package_says_what_is_public() -> None:
    for name in sorted(heedful._PACKAGES - {"types", "protocols"}):
        package = getattr(heedful, name)
        missing = [public for public in package.__all__ if not hasattr(package, public)]
        assert missing == [], f"heedful.{name}"


def test_no_public_name_is_that_of_a_module_which_would_take_its_place() -> None:
    # Python sets a package's attribute to the module as soon as anything imports it.
    for name in sorted(heedful._PACKAGES - {"types", "protocols"}):
        package = getattr(heedful, name)
        modules = {found.name for found in pkgutil.iter_modules(package.__path__)}
        for public in modules & set(package.__all__):
            importlib.import_module(f"{package.__name__}.{public}")
            assert not inspect.ismodule(getattr(package, public)), f"{package.__name__}.{public}"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[heedful.Run, list[tuple[int, Mapping[str, Metric]]]]:
    pytest.importorskip("torch")
    seen: list[tuple[int, Mapping[str, Metric]]] = []
    (shown,) = re.findall(r"^def watch.*?\n\n", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    page: dict[str, Any] = {"print": lambda *words: None}
    exec(shown, page)

    def on_step(step: int, metrics: Mapping[str, Metric]) -> None:
        seen.append((step, metrics))
        page["watch"](step, metrics)

    run = heedful.train(small(), out=tmp_path_factory.mktemp("front") / "run", on_step=on_step, show=False)
    return run, seen


def test_a_run_is_watched_step_by_step_and_read_afterwards(trained: Any) -> None:
    run, seen = trained
    assert [step for step, _ in seen] == [0, 1, 2]  # the evaluation after training is no step
    assert [step for step, _ in run.series("eval/val/sampled/success")][-1] == 3
    assert run.outcome is not None
    assert (run.outcome.version, run.outcome.interrupted) == (3, False)
    assert [(step, metric.value) for step, metric in run.series("success/rate")] == [
        (step, metrics["success/rate"].value) for step, metrics in seen[:3]
    ]
    assert len(run.rollouts(2).groups) == 4
    assert run.report.exists()
    assert run.verdict[0].startswith("Sampled success on 8 held-out tasks")
    with pytest.raises(ValueError, match=r"Expected a metric of the run .*, found 'success/rat'"):
        run.series("success/rat")
    assert run.rollouts(1).groups == run.rollouts(np.int64(1)).groups  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"Expected a rollout file .*step_000001_vall\.parquet"):
        run.rollouts(1, "vall")


def test_nothing_is_printed_unless_asked(trained: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    heedful.train(small(), out=tmp_path / "quiet", show=False)
    assert capsys.readouterr().out == ""


def test_a_stopped_run_goes_on_with_the_same_numbers(trained: Any, tmp_path: Path) -> None:
    whole, _ = trained
    stopped = heedful.train(small(), out=tmp_path / "run", on_step=lambda step, metrics: step < 1, show=False)
    assert stopped.outcome is not None
    assert (stopped.outcome.version, stopped.outcome.interrupted) == (2, True)
    assert stopped.verdict == ()
    resumed = heedful.Run.open(tmp_path / "run").resume(show=False)
    assert resumed.outcome is not None
    assert resumed.outcome.version == 3
    assert without_times(resumed.folder.metrics) == without_times(whole.folder.metrics)


def test_a_run_whose_folder_is_moved_ends_in_a_sentence_and_goes_on_under_its_new_name(
    trained: Any, tmp_path: Path
) -> None:
    whole, _ = trained
    out, moved = tmp_path / "run", tmp_path / "moved"

    def move(step: int, metrics: Mapping[str, Metric]) -> None:
        if step == 1:
            out.rename(moved)
            out.mkdir()
            (out / "mine.txt").write_text("of somebody else")

    with pytest.raises(ValueError, match=r"Expected the folder .*run in its place .* its new name to --resume"):
        heedful.train(small(), out=out, on_step=move, show=False)
    assert [path.name for path in out.iterdir()] == ["mine.txt"]
    heedful.resume(moved, show=False)
    assert without_times(moved / "metrics.jsonl") == without_times(whole.folder.metrics)


def test_a_mistake_is_a_sentence_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="There is no environment or preset named 'ecko'"):
        heedful.train("ecko", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(ValueError, match=r"Expected the config\.json of a run to resume"):
        heedful.Run.open(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: untyped(heedful).train(replace(untyped(small()), device="tpu")),
            "device: expected one of auto, cpu, cuda, mps, found 'tpu'",
        ),
        (lambda: replace(untyped(small()), steps="3"), "steps: expected a whole number of at least 1, found '3'"),
        (lambda: untyped(heedful).evaluate("echo", tasks=1.5), "tasks: expected a whole number .*, found 1.5"),
        (
            lambda: untyped(heedful).evaluate("echo", temperature="0.7"),
            "temperature: expected a number .*, found '0.7'",
        ),
    ],
)
def test_an_argument_of_another_type_is_named_before_anything_is_computed(
    call: Any, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=sentence):
        call()
    assert list(tmp_path.iterdir()) == []


def test_trusted_models_may_be_paths() -> None:
    with trusting(untyped([Path("models/mine")])):
        assert trust_flags(small()) == ["--trust-model-code", "models/mine"]


@pytest.mark.parametrize(("answer", "stops"), [(False, True), (np.bool_(False), True), (0, False), (None, False)])
def test_a_run_is_stopped_by_false_and_by_that_of_numpy(answer: Any, stops: bool) -> None:
    told = _Reporting(lambda step, metrics: answer, show=False)
    told.write(0, [Metric("success/rate", 0.5)])
    assert told.stopped is stops


def test_evaluate_gives_the_numbers_of_the_runs_own_evaluation(trained: Any) -> None:
    run, _ = trained
    found = {metric.name: metric for metric in heedful.evaluate(run.path, show=False).metrics}
    assert found["eval/val/sampled/success"] == run.series("eval/val/sampled/success")[-1][1]
    fewer = {metric.name: metric for metric in heedful.evaluate(run.path, tasks=4, samples=1, show=False).metrics}
    assert fewer["eval/val/sampled/success"].n == 4


def test_audit_reads_the_runs_own_rollouts(trained: Any, tmp_path: Path) -> None:
    run, _ = trained
    audit = heedful.audit(run.path, out=tmp_path / "audit", show=False)
    assert [line.step for line in audit.metrics()] == [0, 1, 2]
    assert audit.metrics()[1].metrics["success/rate"].value == run.series("success/rate")[1][1].value
    assert audit.report.exists()
    assert audit.verdict


def test_measure_takes_scores_from_anywhere() -> None:
    # Two prompts, two thoughts; each is e times as probable under its own prompt.
    found = heedful.measure(CrossScores([[-1.0, -2.0], [-2.0, -1.0]], [1, 1], [0, 1]))
    assert found["information/first_turn/gap_per_token"].value == pytest.approx(1.0)
    assert found["retrieval/first_turn/accuracy"].value == 1.0


@pytest.mark.parametrize(
    ("scores", "sentence"),
    [
        ([[-1.0, -2.0], [-2.0, -1.0]], "Expected heedful.types.CrossScores, found a list. Give CrossScores"),
        (CrossScores([[1.0, 2.0], [2.0, 1.0]], [1, 1], [0, 1]), "at most 0, found 2. Give log p, and not losses"),
        (CrossScores([[-1.0]], [1], [0], noise=float("nan")), "at least 0 nats as `noise`, found nan"),
    ],
)
def test_measure_refuses_what_no_log_probabilities_can_be(scores: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        heedful.measure(scores)


def test_measure_needs_a_name_for_its_metrics() -> None:
    with pytest.raises(ValueError, match="Expected a name as `scope`, the middle part of the metrics' names, found ''"):
        heedful.measure(CrossScores([[-1.0]], [1], [0]), scope="")
