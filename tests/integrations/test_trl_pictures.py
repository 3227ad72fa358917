"""Pictures and TRL: refused when the data set is made, before anything is sampled."""

from __future__ import annotations

import pytest

pytest.importorskip("trl", reason="install heedful[trl]")
pytest.importorskip("PIL", reason="pictures are drawn with Pillow: install heedful[vision]")

from heedful.envs.frozen_lake.environment import FrozenLake
from heedful.integrations.trl.rollouts import EnvironmentRollouts
from heedful.models.chat.replies import Tags
from heedful.policies.scripted import ScriptedPolicy


def test_trl_refuses_tasks_with_pictures() -> None:
    env = FrozenLake(observation="image", cell=8)
    rollouts = EnvironmentRollouts(env, Tags(), 8, {}, lambda trainer, batch: ScriptedPolicy(lambda asked: "Up"))
    with pytest.raises(ValueError, match="text alone for TRL, found a picture of 32 x 32 pixels"):
        rollouts.dataset(1)
