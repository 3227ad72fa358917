"""Real verl with two workers, whose weights are sharded: the same updates and the same scores."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from verl_checks import compare_scores, compare_updates, steps_of

from heedful_verl.batch.limits import COUNTED

pytestmark = pytest.mark.verl

STEPS = 8


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from cpu_session import composed, ray_and_queue, trainer_of
    from tiny_verl import make_folder, overrides, store

    from conftest import ENVIRONMENT

    folder = make_folder(tmp_path_factory.mktemp("verl"))
    config = composed(overrides(folder, 2, "heedful_sync", STEPS))
    with ray_and_queue(config, ENVIRONMENT, 2):
        trainer, manager = trainer_of(config)
        trainer.replay_buffer.poll_interval = 0.2
        trainer.fit(manager)
        yield store(trainer, manager, folder)


def test_every_step_is_recorded(session: Any) -> None:
    assert steps_of(session.folder / "checkpoints" / "heedful") == list(range(STEPS))


@pytest.mark.parametrize("mode", ["token-mean", "token-sum", *COUNTED])
def test_the_update_equals_that_of_a_batch_without_the_dropped_rows(session: Any, mode: str) -> None:
    compare_updates(session, mode)


def test_own_scores_equal_those_of_hf_scorer(session: Any) -> None:
    compare_scores(session)
