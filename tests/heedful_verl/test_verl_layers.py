"""Real verl with recurrent layers, and with sliding windows: log-probabilities, a step, weights out and back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from verl_checks import compare_scores, compare_updates, values_of

pytestmark = pytest.mark.verl

LINEAR, FULL, SLIDING = "linear_attention", "full_attention", "sliding_attention"
MODELS: dict[str, dict[str, Any]] = {
    "qwen3_5_text": {
        "layer_types": [LINEAR, FULL],
        "num_key_value_heads": 2,
        "head_dim": 16,
        "linear_key_head_dim": 16,
        "linear_value_head_dim": 16,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
    },
    "gemma3_text": {
        "layer_types": [SLIDING, FULL],
        "sliding_window": 8,
        "num_key_value_heads": 2,
        "head_dim": 16,
    },
}


@pytest.fixture(scope="module", params=MODELS)
def session(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from cpu_session import composed, ray_and_queue, trainer_of
    from tiny_verl import make_folder, overrides, store

    from conftest import ENVIRONMENT

    # The usual range makes logits flat, and hides errors.
    shape = MODELS[request.param] | {"initializer_range": 0.125}
    folder = make_folder(tmp_path_factory.mktemp("verl"), request.param, **shape)
    contents = "actor_rollout_ref.actor.checkpoint.save_contents=[model,optimizer,extra,hf_model]"
    config = composed(overrides(folder, 1, "heedful_sync", 1, "heedful.diagnostics.every=1", contents))
    with ray_and_queue(config, ENVIRONMENT, 1):
        trainer, manager = trainer_of(config)
        trainer.replay_buffer.poll_interval = 0.2
        trainer.fit(manager)
        yield store(trainer, manager, folder)


def test_a_step_is_measured_by_the_workers(session: Any) -> None:
    record = session.folder / "checkpoints" / "heedful"
    for name in ("information/first_turn/mi", "retrieval/first_turn/accuracy", "success/rate"):
        (value,) = values_of(record, name)
        assert value is not None


def test_log_probabilities_of_the_workers_and_the_sampler_are_those_of_plain_forward_passes(session: Any) -> None:
    compare_scores(session)


def test_the_update_equals_that_of_a_batch_without_the_dropped_rows(session: Any) -> None:
    compare_updates(session, "seq-mean-token-mean")


def test_weights_come_back_from_verls_checkpoint_and_from_its_model_folder(session: Any) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    session.restore()
    before = session.weights()
    change, _, _ = session.update(session.batch(), session.trainer._balance_batch)
    assert all(abs(values).max() > 0 for values in change.values())
    session.restore()
    after = session.weights()
    read = AutoModelForCausalLM.from_pretrained(session.folder / "stored" / "huggingface", dtype=torch.float32)
    for name, values in before.items():
        assert (after[name] == values).all(), name
        assert (read.state_dict()[name].numpy() == values).all(), name
