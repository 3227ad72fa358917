"""Choosers and unequal groups within a run: what is stored, resumed, read by alarms, and learned."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from test_loop import NO_EVALUATION, UNMEASURED, Trained, same, silent, trained, without_time  # noqa: E402

from heedful.algorithms.table import Rloo  # noqa: E402
from heedful.diagnostics.signal import verdict_metrics  # noqa: E402
from heedful.diagnostics.statistics.group_statistics import values_on  # noqa: E402
from heedful.filters import TopP  # noqa: E402
from heedful.rollout import Asynchronous  # noqa: E402
from heedful.rollout.choosers import InOrder, SkipSettled, Thompson, Yoked  # noqa: E402
from heedful.rollout.plans import Dealt, Refill, Sized  # noqa: E402
from heedful.rollout.rounds import at_one_size  # noqa: E402
from heedful.run import checkpoint  # noqa: E402
from heedful.run.config import TrainConfig  # noqa: E402
from heedful.run.parts import assemble  # noqa: E402
from heedful.run.selection import weigh_by_task  # noqa: E402
from heedful.storage import RunFolder, read_rollouts  # noqa: E402
from heedful.types import PROBE, Group, Verdict  # noqa: E402

QUICK: dict[str, Any] = {"evaluation": NO_EVALUATION, "diagnostics": UNMEASURED}
CHOSEN: dict[str, Any] = {"choose": Thompson(floor=0.25), "tasks": 12, **QUICK}
SIZED: dict[str, Any] = {
    "plan": Sized(least=2, most=8),
    "tasks": 8,
    "algorithm": Rloo(),
    **QUICK,
}


@pytest.fixture(scope="module")
def chosen(echo_run: TrainConfig, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return trained(replace(echo_run, **CHOSEN), tmp_path_factory.mktemp("chosen") / "run")


@pytest.fixture(scope="module")
def sized(echo_run: TrainConfig, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return trained(replace(echo_run, **SIZED), tmp_path_factory.mktemp("sized") / "run")


def stored(run: Trained, step: int) -> tuple[list[Group], list[Verdict]]:
    found = read_rollouts(run.folder.rollouts(step))
    assert found.verdicts is not None
    return list(found.groups), list(found.verdicts)


def test_success_is_read_from_the_probes_and_the_choice_stands_beside_it(chosen: Trained) -> None:
    values = chosen.watch.values
    for step in range(6):
        rates: dict[bool, list[float]] = {True: [], False: []}
        for group in stored(chosen, step)[0]:
            rates[PROBE in group.task.tags] += [float(bool(each.success)) for each in group.trajectories]
        assert (len(rates[True]), len(rates[False])) == (4, 12)
        assert values["success/rate"][step] == pytest.approx(sum(rates[True]) / 4)
        assert values["success/chosen"][step] == pytest.approx(sum(rates[False]) / 12)


def test_the_choice_repeats_tasks_more_than_a_pool_in_order_does(chosen: Trained) -> None:
    visits = Counter(group.task.id for step in range(6) for group in stored(chosen, step)[0])
    assert sum(visits.values()) == 24
    assert max(visits.values()) > 2


def test_sizes_add_up_to_the_budget_and_differ_once_something_is_known(sized: Trained) -> None:
    sizes = [[len(group.trajectories) for group in stored(sized, step)[0]] for step in range(6)]
    assert sizes[0] == [4, 4, 4, 4]
    assert {sum(each) for each in sizes} == {16}
    assert any(len(set(each)) > 1 for each in sizes)
    unequal = [each for each in sizes if len(set(each)) > 1]
    assert sized.watch.values["filter/least_members"] == [min(each) for each in unequal]
    assert sized.watch.values["filter/most_members"] == [max(each) for each in unequal]


def test_the_verdicts_of_unequal_groups_carry_the_weight_of_a_task(sized: Trained) -> None:
    for step in range(6):
        groups, verdicts = stored(sized, step)
        plain = [replace(each, weight=1.0 if each.kept else 0.0) for each in verdicts]
        assert verdicts == weigh_by_task(plain, groups, 4, 0)


def test_what_the_filter_did_is_told_of_whole_groups(sized: Trained) -> None:
    cut = 0
    for step in range(6):
        groups, verdicts = stored(sized, step)
        for metric in verdict_metrics(values_on(groups, "outcome"), verdicts):
            if metric.name in ("filter/mass_kept", "filter/kept_without_signal"):
                assert sized.watch.values[metric.name][step] == metric.value
        first = values_on(at_one_size(groups), "outcome")
        cut += sum(verdict.kept and len(set(values)) == 1 for verdict, values in zip(verdicts, first, strict=True))
    assert cut, "a kept group whose first members agree"


@pytest.mark.parametrize("choice", [{"choose": Thompson()}, {"treat": ("skip",)}, {"treat": ("exclude", "help")}])
def test_a_plan_that_passes_over_tasks_is_refused_beside_probes(echo_run: TrainConfig, choice: dict[str, Any]) -> None:
    plan = Sized(least=2, most=8, candidates=2)
    assert replace(echo_run, tasks=8, plan=plan, treat=("exclude",)).plan == plan
    for refused in (plan, Dealt(plan)):
        with pytest.raises(ValueError, match="so probes of --choose and of --treat would get no episode"):
            replace(echo_run, tasks=8, plan=refused, **choice)


@pytest.mark.parametrize(
    "changes",
    [CHOSEN, {**CHOSEN, "choose": SkipSettled(), "plan": Refill(3)}, {**SIZED, "plan": Dealt(SIZED["plan"])}],
    ids=["a chooser", "a chooser and refills", "dealt sizes"],
)
def test_a_run_that_chooses_goes_on_from_a_checkpoint_as_if_nothing_had_been(
    echo_run: TrainConfig, tmp_path: Path, changes: dict[str, Any]
) -> None:
    config = replace(echo_run, **{**changes, "steps": 3})
    whole = trained(config, tmp_path / "whole")
    middle = checkpoint.checkpoints(whole.folder.path / "checkpoints")[0]
    assert middle.version == 2
    rest = trained(config, tmp_path / "rest", middle)
    assert same(whole.weights, rest.weights)
    assert without_time(whole.folder.path)[2:] == without_time(rest.folder.path)
    assert whole.folder.tasks.read_bytes() == rest.folder.tasks.read_bytes()


def test_values_of_another_kind_are_no_past_of_a_filter_or_chooser(echo_run: TrainConfig, chosen: Trained) -> None:
    start = checkpoint.checkpoints(chosen.folder.path / "checkpoints")[-1]
    config = replace(echo_run, **CHOSEN)
    same_kind = assemble(config, silent, start).selection
    assert same_kind.memory is not None
    seen = sorted(same_kind.memory.records)
    assert all(map(same_kind.past, seen))
    other = assemble(replace(config, choose=InOrder(), filter=TopP(on="reward")), silent, start).selection
    assert other.memory is not None
    assert not any(map(other.past, seen))
    assert [other.memory.of(task).outcomes for task in seen] == [same_kind.memory.of(task).outcomes for task in seen]


def test_collectors_play_the_same_groups_of_a_plan(echo_run: TrainConfig, tmp_path: Path) -> None:
    sampling = replace(echo_run.sampling, noise="conversation", precision="double")
    config = replace(echo_run, **SIZED, sampling=sampling)
    trained(replace(config, steps=2), tmp_path / "steps")
    trained(replace(config, steps=2, collect=Asynchronous()), tmp_path / "async")
    for step in range(2):
        found = [read_rollouts(RunFolder(tmp_path / name).rollouts(step)).groups for name in ("steps", "async")]
        ids = [[turn.reply.ids for one in each for t in one.trajectories for turn in t.turns] for each in found]
        assert ids[0] == ids[1]
        assert [group.task for group in found[0]] == [group.task for group in found[1]]


def test_the_yoked_control_visits_tasks_as_often_as_the_run_that_it_follows(
    echo_run: TrainConfig, chosen: Trained, tmp_path: Path
) -> None:
    config = replace(echo_run, **{**CHOSEN, "choose": Yoked(str(chosen.folder.path))})
    control = trained(replace(config, seed=1), tmp_path / "yoked")
    counts = [
        sorted(Counter(group.task.id for step in range(6) for group in stored(run, step)[0]).values())
        for run in (chosen, control)
    ]
    assert counts[0] == counts[1]
    assert control.watch.values["success/chosen"]
    with pytest.raises(ValueError, match=r"of 7 steps .* found none of step 6"):
        trained(replace(config, steps=7), tmp_path / "longer")
    assert not (tmp_path / "longer" / "metrics.jsonl").read_text(), "it is refused before the first step"
