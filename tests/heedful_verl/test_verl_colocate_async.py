"""Real verl with the trainer that samples ahead."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytestmark = pytest.mark.verl

STEPS = 4


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from cpu_session import composed, ray_and_queue, trainer_of
    from tiny_verl import Session, make_folder, overrides
    from verl_checks import watch

    from conftest import ENVIRONMENT

    folder = make_folder(tmp_path_factory.mktemp("verl"))
    config = composed(overrides(folder, 1, "heedful_colocate_async", STEPS, "trainer.save_freq=2"))
    with ray_and_queue(config, ENVIRONMENT, 1):
        trainer, manager = trainer_of(config)
        trainer.replay_buffer.poll_interval = 0.2
        seen = watch(trainer)
        trainer.fit(manager)
        yield Session(trainer, manager, folder, {}, seen)


def test_a_trainer_under_our_name_is_asynchronous_for_verl(session: Any) -> None:
    from verl.trainer.ppo.v1.replay_buffer import ReplayBufferAsync

    assert type(session.trainer.replay_buffer) is ReplayBufferAsync
    assert session.trainer.trainer_mode == "colocate_async"


def test_the_filter_and_the_record_work(session: Any) -> None:
    from verl_checks import groups_of, steps_of

    assert len(session.seen) == STEPS
    assert all(groups_of(step["real"]) < groups_of(step["before"]) for step in session.seen)
    assert steps_of(session.folder / "checkpoints" / "heedful") == list(range(STEPS))


def test_groups_of_older_weights_are_counted(session: Any) -> None:
    from verl_checks import values_of

    stale = values_of(session.folder / "checkpoints" / "heedful", "signal/stale")
    assert stale[0] == 0  # the first weights are the only ones
    assert max(stale) > 0


def test_a_checkpoint_holds_the_state_of_the_measurements_beside_the_queue(session: Any) -> None:
    saved = session.folder / "checkpoints" / "global_step_4"
    assert (saved / "heedful.json").exists()
    assert (saved / "transfer_queue").exists()
