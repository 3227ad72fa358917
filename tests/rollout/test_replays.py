"""Episodes played again under fresh noise, against chances worked out from the map."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from heedful.diagnostics.luck import luck_metrics
from heedful.envs.common.actions import format_reply
from heedful.envs.common.tasks import evaluation_tasks
from heedful.envs.frozen_lake.environment import FrozenLake
from heedful.envs.frozen_lake.maps import ACTIONS, Lake, neighbours
from heedful.policies.scripted import ScriptedPolicy
from heedful.rollout import LockStep, Request
from heedful.rollout.player import replayed_values
from heedful.types import Group


def played(env: FrozenLake, tasks: int, members: int) -> list[Group]:
    """Random valid play."""
    rng = random.Random(0)
    policy = ScriptedPolicy(lambda _: format_reply(rng.choices(ACTIONS, k=env.actions_per_turn), ""))
    return LockStep()(policy, Request(env.episode, evaluation_tasks(env, "train", tasks), members, env.turns))


def test_without_noise_every_replay_repeats_the_episode() -> None:
    env = FrozenLake()
    groups = played(env, 20, 4)
    values = replayed_values(env, groups, "outcome", 3)
    assert values == [[[trajectory.outcome] * 3 for trajectory in group.trajectories] for group in groups]
    share = luck_metrics(values, [True] * 20)[0]
    assert share.value == 0.0


def test_noise_that_members_share_is_no_luck_between_them() -> None:
    env = FrozenLake(slip=0.8, shared_noise=True)
    groups = played(env, 20, 4)
    values = replayed_values(env, groups, "outcome", 3)
    assert values == [[[trajectory.outcome] * 3 for trajectory in group.trajectories] for group in groups]


def chance(lake: Lake, slip: float, actions: list[str]) -> float:
    """The probability that a fixed sequence of actions reaches the goal."""
    cells = {lake.start: 1.0}
    for name in actions:
        after: dict[int, float] = {}
        for cell, probability in cells.items():
            action = ACTIONS.index(name)
            moves = {action: 1 - slip, (action - 1) % 4: slip / 2, (action + 1) % 4: slip / 2}
            if cell == lake.goal or lake.holes[cell]:
                moves = {}
                after[cell] = after.get(cell, 0.0) + probability
            for move, share in moves.items():
                target = neighbours(lake.size)[cell][move]
                after[target] = after.get(target, 0.0) + probability * share
        cells = after
    return cells.get(lake.goal, 0.0)


def test_replays_succeed_as_often_as_the_map_says() -> None:
    env = FrozenLake(slip=0.3)
    (group,) = played(env, 1, 6)
    lake, times = env.start_state(group.task.seed), 1500
    found = replayed_values(env, [group], "outcome", times)[0]
    chances = []
    for trajectory, values in zip(group.trajectories, found, strict=True):
        answers = [turn.reply.text.split("<answer>")[1].removesuffix("</answer>") for turn in trajectory.turns]
        said = [action for answer in answers for action in answer.split(" || ")]
        chances.append(chance(lake, env.slip, said))
        # Five standard errors of a share of 1,500 replays.
        assert sum(values) / times == pytest.approx(chances[-1], abs=5 * 0.5 / times**0.5)  # type: ignore[arg-type]
    assert max(chances) > 0.05
    # The law of total variance over these six sequences, from the map alone.
    luck = sum(each * (1 - each) for each in chances) / 6
    mean = sum(chances) / 6
    total = luck + sum((each - mean) ** 2 for each in chances) / 5
    assert luck_metrics([found], [True])[0].value == pytest.approx(luck / total, abs=0.03)


def test_every_replay_has_noise_of_its_own_and_leaves_the_group_as_it_was() -> None:
    env = FrozenLake(slip=0.5)
    groups = played(env, 3, 4)
    seen: list[int] = []

    class Watched:
        name, turns = env.name, env.turns

        def episode(self) -> object:
            episode = env.episode()
            start = episode.start

            def noted(task: object, member: int) -> object:
                seen.append(member)
                return start(task, member)  # type: ignore[arg-type]

            return type("Noted", (), {"start": staticmethod(noted), "step": staticmethod(episode.step)})()

    before = replace(groups[0])
    replayed_values(Watched(), groups, "outcome", 3)  # type: ignore[arg-type]
    assert seen == [*range(4, 16)] * 3
    assert groups[0] == before


def test_the_filters_own_value_is_replayed() -> None:
    env = FrozenLake(slip=0.3)
    groups = played(env, 4, 3)
    outcomes, rewards, solved = (replayed_values(env, groups, on, 2) for on in ("outcome", "reward", "solved"))
    assert outcomes == rewards == solved
    assert replayed_values(env, groups, "style", 2) == [[[None] * 2] * 3] * 4
