"""Training in windows of history: each sampled token once, behind what it was sampled after; one value a trajectory."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from test_loop import trained  # noqa: E402

from heedful import cli  # noqa: E402
from heedful.algorithms.table import Grpo  # noqa: E402
from heedful.boundary import to_json  # noqa: E402
from heedful.diagnostics.statistics.group_statistics import values_on  # noqa: E402
from heedful.envs.frozen_lake.environment import FrozenLake  # noqa: E402
from heedful.envs.toys.echo import Echo  # noqa: E402
from heedful.filters import KeepAll, TopK, TopP  # noqa: E402
from heedful.models.chat.render import Renderer  # noqa: E402
from heedful.policies.hf import HFPolicy  # noqa: E402
from heedful.policies.sampling import Sampling  # noqa: E402
from heedful.rollout import Context, LockStep, Request  # noqa: E402
from heedful.run.config import DiagnosticsConfig, EvaluationConfig, TrainConfig  # noqa: E402
from heedful.storage import read_rollouts  # noqa: E402
from heedful.training.batch import UpdateSettings  # noqa: E402
from heedful.training.learner import Learner  # noqa: E402
from heedful.training.samples import credit, make_samples, merge_rows  # noqa: E402
from heedful.training.settings import OptimizerConfig  # noqa: E402
from heedful.types import Group, Trajectory, Verdict  # noqa: E402
from tiny_models import llama  # noqa: E402

LAKE = FrozenLake(instructions="brief", turns=5)
KEPT = Verdict(1.0, "kept", 0.25)
WINDOWS = (None, 0, 1, 2)
ROWS = {None: 1, 0: 5, 1: 4, 2: 3}
"""Rows of an episode of five turns: the first window holds turns + 1 of them, each later one is a row of its own."""


@pytest.fixture(scope="module")
def model(tokenizer: Any) -> Any:
    return llama(len(tokenizer))


@pytest.fixture(scope="module")
def renderer(tokenizer: Any) -> Renderer:
    return Renderer(tokenizer, stop_ids=range(7, len(tokenizer), 6))


@pytest.fixture(scope="module")
def groups_of(model: Any, renderer: Renderer) -> Any:
    """Three groups of three episodes; the rewards are made up, the last group's are equal."""

    def rewarded(group: Group, number: int) -> Group:
        changed = []
        for trajectory in group.trajectories:
            last = trajectory.turns[-1]
            paid = replace(last, rewards={"made_up": float(trajectory.member == number)})
            outcome = float(trajectory.member == number)
            changed.append(replace(trajectory, turns=(*trajectory.turns[:-1], paid), outcome=outcome))
        return Group(group.task, tuple(changed))

    def play(turns: int | None) -> list[Group]:
        policy = HFPolicy(model, renderer, Sampling(tokens_per_turn=9), seed=3)
        found = LockStep()(
            policy, Request(LAKE.episode, [LAKE.task(seed) for seed in range(3)], 3, LAKE.turns, Context(turns))
        )
        blank = [
            replace(t, turns=tuple(replace(x, rewards={}) for x in t.turns)) for g in found for t in g.trajectories
        ]
        emptied = [Group(found[at].task, tuple(blank[3 * at : 3 * at + 3])) for at in range(3)]
        return [rewarded(group, number) for group, number in zip(emptied, (0, 1, 7), strict=True)]

    return {turns: play(turns) for turns in WINDOWS}


def trajectories(groups: Sequence[Group]) -> list[Trajectory]:
    return [trajectory for group in groups for trajectory in group.trajectories]


@pytest.mark.parametrize("turns", WINDOWS)
def test_the_rows_of_a_trajectory_train_every_sampled_token_once_behind_what_it_was_sampled_after(
    groups_of: Any, turns: int | None
) -> None:
    groups = groups_of[turns]
    rows = merge_rows(groups, [KEPT] * 3)
    for index, group in enumerate(groups):
        for trajectory in group.trajectories:
            own = [row for row in rows if (row.group, row.member) == (index, trajectory.member)]
            assert len(own) == ROWS[turns]
            found: dict[int, list[tuple[int, float]]] = {}
            for row in own:
                for place, (token, turn, logprob) in enumerate(zip(row.ids, row.turns, row.logprobs, strict=True)):
                    if turn < 0:
                        continue
                    if turn not in found:
                        assert row.ids[:place] == trajectory.context_ids(turn)
                    found.setdefault(turn, []).append((token, logprob))
            replies = [turn.reply for turn in trajectory.turns]
            assert list(found) == list(range(5)), "the oldest turns, too, are trained"
            assert list(found.values()) == [list(zip(one.ids, one.logprobs, strict=True)) for one in replies]


@pytest.mark.parametrize("turns", WINDOWS)
def test_the_learner_finds_the_log_probabilities_of_the_sampler(model: Any, groups_of: Any, turns: int | None) -> None:
    learner = Learner(
        llama(model.config.vocab_size), Grpo(), OptimizerConfig(lr=1e-3), UpdateSettings(micro_batch_tokens=300)
    )
    samples = make_samples(groups_of[turns], [KEPT] * 3, Grpo().advantage)
    found = {metric.name: metric for metric in learner.update(samples)}
    error = found["policy/logprob_error"]
    assert error.n == sum(len(turn.reply.ids) for t in trajectories(groups_of[turns]) for turn in t.turns)
    assert isinstance(error.value, float)
    assert error.value < 1e-6


def plain_gradient(model: Any, groups: Sequence[Group], average: str) -> Any:
    """Of the mean over trajectories (or tokens) of -A log p, each turn by itself behind its own context."""
    model.zero_grad(set_to_none=True)
    members = [(t, a) for g in groups for t, a in zip(g.trajectories, advantages(g), strict=True)]
    tokens = sum(len(turn.reply.ids) for trajectory, _ in members for turn in trajectory.turns)
    for trajectory, advantage in members:
        own = sum(len(turn.reply.ids) for turn in trajectory.turns)
        weight = 1 / (len(members) * own) if average == "sequence" else 1 / tokens
        for number, turn in enumerate(trajectory.turns):
            context = trajectory.context_ids(number)
            logits_TV = model(torch.tensor([[*context, *turn.reply.ids]]), use_cache=False).logits[
                0, len(context) - 1 : -1
            ]
            logprobs_T = logits_TV.log_softmax(-1).gather(1, torch.tensor(turn.reply.ids)[:, None])
            (-advantage * weight * logprobs_T.sum()).backward()
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


def advantages(group: Group) -> list[float]:
    """By hand: one of three members earned 1, so the mean is 1/3 and the sample deviation 1/sqrt(3)."""
    rewards = [trajectory.reward for trajectory in group.trajectories]
    return [((reward or 0.0) - 1 / 3) * 3**0.5 for reward in rewards] if sum(map(bool, rewards)) == 1 else [0.0] * 3


@pytest.mark.parametrize("average", ["sequence", "token"])
@pytest.mark.parametrize("turns", [0, 1])
def test_a_trajectory_weighs_as_one_however_many_rows_it_became(
    model: Any, groups_of: Any, turns: int, average: Any
) -> None:
    algorithm = replace(Grpo(), average=average)
    learner = Learner(
        llama(model.config.vocab_size), algorithm, OptimizerConfig(), UpdateSettings(micro_batch_tokens=400)
    )
    samples = make_samples(groups_of[turns], [KEPT] * 3, algorithm.advantage)
    learner.model.zero_grad(set_to_none=True)
    learner.accumulate_gradient(samples)
    found = torch.cat([parameter.grad.flatten() for parameter in learner.model.parameters()])
    expected = plain_gradient(llama(model.config.vocab_size), groups_of[turns], average)
    assert float((found - expected).norm() / expected.norm()) < 1e-5


@pytest.mark.parametrize("chosen", [TopP(0.9), TopP(1.0), TopK(1), TopK(2), KeepAll()], ids=repr)
@pytest.mark.parametrize("turns", WINDOWS)
def test_the_filter_sees_one_value_per_trajectory_in_every_mode(groups_of: Any, turns: int | None, chosen: Any) -> None:
    """RAGEN's reward filter crashes in both of its turn-level modes, for a count as for a share."""
    groups = groups_of[turns]
    values_PG = values_on(groups, chosen.on)
    assert [len(values_G) for values_G in values_PG] == [3, 3, 3]
    verdicts = chosen(values_PG, random.Random(0))
    assert verdicts == chosen(values_on(groups_of[None], chosen.on), random.Random(0))
    samples = make_samples(groups, verdicts, Grpo().advantage)
    kept = [index for index, verdict in enumerate(verdicts) if verdict.kept]
    assert [sample.group for sample in samples] == [index for index in kept for _ in range(3 * ROWS[turns])]


@pytest.mark.parametrize("turns", WINDOWS)
def test_an_early_turn_keeps_its_gradient_whatever_the_window(model: Any, groups_of: Any, turns: int | None) -> None:
    """RAGEN cuts the oldest turns of a long episode from its sample, so that they train nothing."""

    @dataclass(frozen=True)
    class FirstTurnAlone:
        def turn_advantages(self, trajectories_G: Sequence[Trajectory]) -> list[list[float]]:
            return [[1.0, *[0.0] * (len(trajectory.turns) - 1)] for trajectory in trajectories_G]

    samples = credit(merge_rows(groups_of[turns], [KEPT] * 3), groups_of[turns], FirstTurnAlone())
    for trajectory in groups_of[turns][1].trajectories:
        own = [sample for sample in samples if (sample.group, sample.member) == (1, trajectory.member)]
        credited = [token for one in own for token, a in zip(one.ids, one.advantages, strict=True) if a]
        assert tuple(credited) == trajectory.turns[0].reply.ids
    learner = Learner(llama(model.config.vocab_size), Grpo(), OptimizerConfig())
    learner.model.zero_grad(set_to_none=True)
    learner.accumulate_gradient(samples)
    assert sum(float(parameter.grad.abs().sum()) for parameter in learner.model.parameters()) > 0


# Whole runs -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def short_run(echo_run: TrainConfig) -> TrainConfig:
    """Two letters, one after the other; the seedling reads one at a time."""
    return replace(
        echo_run,
        env=Echo(instructions="brief", turns=2),
        seedling=replace(echo_run.seedling, steps=160),
        context=Context(0),
        diagnostics=DiagnosticsConfig(enabled=False),
        evaluation=EvaluationConfig(times=0),
        checkpoint_every=100,
    )


@pytest.mark.proof
def test_grpo_learns_echo_without_memory(short_run: TrainConfig, tmp_path: Path) -> None:
    adam = OptimizerConfig(lr=1e-3, betas=(0.9, 0.99), warmup_steps=2)
    config = replace(short_run, steps=8, groups=12, group_size=16, optimizer=adam, filter=KeepAll())
    watch = trained(config, tmp_path / "run").watch
    rates = watch.values["success/rate"]
    # 384 and 768 episodes: a standard error of .03 for the difference.
    assert fmean(rates[-4:]) > fmean(rates[:2]) + 0.1, rates
    assert max(watch.values["policy/logprob_error"]) < 1e-4


def test_evaluating_and_playing_a_run_show_what_it_was_trained_on(
    short_run: TrainConfig, seedling_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = replace(
        short_run,
        steps=1,
        model=str(seedling_folder),
        evaluation=EvaluationConfig(tasks=8, samples=2, times=1, search_tasks=4),
        diagnostics=DiagnosticsConfig(share=None, full_every=1, every=1),
    )
    run = trained(config, tmp_path / "run")
    folder, watch = run.folder, run.watch
    folder.config.write_text(json.dumps(to_json(config)), encoding="utf-8")
    stored = [read_rollouts(folder.rollouts(0)), read_rollouts(folder.rollouts(1, "val_sampled"))]
    for rollouts in stored:
        for trajectory in trajectories(rollouts.groups):
            assert [turn.reply.prompt.restarts for turn in trajectory.turns] == [False, True]
    assert cli.run(["eval", str(folder.path), "--json", str(tmp_path / "numbers.json")]) == 0
    numbers = json.loads((tmp_path / "numbers.json").read_text())
    success = "eval/val/sampled/success"
    assert numbers["metrics"][success]["value"] == watch.values[success][-1] > 0
    capsys.readouterr()
    assert cli.run(["play", "--by", str(folder.path), "--references", "4"]) == 0
    shown = capsys.readouterr().out
    assert shown.count("[read anew]") == 1
    assert shown.count("<|end|>") == 0
