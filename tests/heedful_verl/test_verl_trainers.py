"""heedful's trainers in real verl, before any worker is started."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytestmark = pytest.mark.verl


def config_of(tmp_path: Path, *more: str) -> Any:
    from cpu_session import composed
    from tiny_verl import overrides

    return composed(overrides(tmp_path, 1, "heedful_sync", 8, *more))


def test_verl_knows_the_trainers_and_the_agent_loop() -> None:
    from verl.experimental.agent_loop.agent_loop import _agent_loop_registry
    from verl.trainer.ppo.v1.trainer_base import TRAINER_REGISTRY

    from heedful_verl.settings import MODES

    assert set(MODES) <= TRAINER_REGISTRY.keys()
    assert "heedful" in _agent_loop_registry


CHECKS = """
import warnings
from verl.trainer.ppo.v1 import PPOTrainer
from verl.workers.utils import losses
from heedful_verl.compatibility import changed_methods, check

check()
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    check("0.10.0")
print(seen[-1].message)
del PPOTrainer._balance_batch
losses.ppo_loss = lambda config, data: None
print(changed_methods())
try:
    check()
except ValueError as error:
    print(error)
"""


def test_another_release_is_warned_of_and_one_with_other_methods_is_refused() -> None:
    """In a process of its own: Ray gives the methods of workers other parameters once a session has begun."""
    ended = subprocess.run([sys.executable, "-c", CHECKS], capture_output=True, text=True, check=True, timeout=300)
    warned, changed, refused = ended.stdout.splitlines()[-3:]
    assert "tested with verl 0.9, found 0.10.0" in warned
    assert changed == "['PPOTrainer._balance_batch', 'losses.ppo_loss']"
    assert "found verl 0.9.1, in which PPOTrainer._balance_batch, losses.ppo_loss are gone" in refused


def test_a_module_that_fails_to_load_is_raised_and_not_hidden() -> None:
    """verl hides the errors of entry points, so heedful has none."""
    program = "import os; os.environ['VERL_USE_EXTERNAL_MODULES'] = 'heedful_verl.registre'; import verl"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=300)
    assert "No module named 'heedful_verl.registre'" in ended.stderr


def test_the_mode_is_set_back_to_the_one_it_stands_for(tmp_path: Path) -> None:
    from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync

    from heedful_verl.trainer import HeedfulColocateAsync, HeedfulSeparateAsync, HeedfulSync

    trainer = HeedfulSync(config_of(tmp_path))
    assert trainer.config.trainer.v1.trainer_mode == trainer.trainer_mode == "sync"
    assert type(trainer.replay_buffer) is ReplayBuffer
    ahead = HeedfulColocateAsync(config_of(tmp_path))
    assert (ahead.trainer_mode, type(ahead.replay_buffer)) == ("colocate_async", ReplayBufferAsync)
    assert HeedfulSeparateAsync._mode_of_verl() == "separate_async"


def test_a_trainer_of_ones_own_has_the_mode_of_its_parent() -> None:
    from verl.trainer.ppo.v1 import PPOTrainerColocateAsync, register_trainer

    from heedful_verl.trainer import HeedfulMixin

    @register_trainer("mine")
    class Theirs(PPOTrainerColocateAsync):
        pass

    class Mine(HeedfulMixin, Theirs):
        pass

    assert Mine._mode_of_verl() == "colocate_async"


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("heedful.filter.type=top_q", r"heedful\.filter\.type"),
        ("heedful.loss_scale=half", r"heedful\.loss_scale"),
        ("+heedful.filtre=1", r"heedful\.filtre: unknown setting"),
        ("heedful.filter.type=soft_weight", "kept or dropped"),
        (
            "actor_rollout_ref.actor.shuffle=True actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-sum",
            "shuffle=False",
        ),
        ("algorithm.adv_estimator=rloo heedful.play.context.turns=1", "Expected adv_estimator=grpo"),
    ],
)
def test_a_mistake_is_a_sentence_before_any_worker_starts(tmp_path: Path, override: str, sentence: str) -> None:
    from heedful_verl.trainer import HeedfulSync

    with pytest.raises(ValueError, match=sentence):
        HeedfulSync(config_of(tmp_path, *override.split()))


def test_verls_yaml_turns_on_into_a_boolean_and_that_is_a_sentence(tmp_path: Path) -> None:
    from omegaconf import OmegaConf, open_dict

    from heedful_verl.trainer import HeedfulSync

    config = config_of(tmp_path)
    with open_dict(config):
        config.heedful = OmegaConf.create("filter: {type: top_p, on: reward}")
    with pytest.raises(ValueError, match=r'the boolean true.*Write "on": in quotes'):
        HeedfulSync(config)


def test_a_run_without_the_section_has_the_defaults(tmp_path: Path) -> None:
    from omegaconf import open_dict

    from heedful_verl.settings import HeedfulConfig
    from heedful_verl.trainer import HeedfulSync

    config = config_of(tmp_path)
    with open_dict(config):
        del config.heedful
    assert HeedfulSync(config).heedful == HeedfulConfig()


def test_a_collapse_ends_the_run_after_the_step_saved() -> None:
    from heedful_verl.settings import read_section
    from heedful_verl.trainer import HeedfulMixin

    events: list[str] = []

    class Verl:
        def on_step_end(self) -> None:
            events.append("sync")

    class Ours(HeedfulMixin, Verl):
        def _save_checkpoint(self) -> None:
            events.append("save")

    def ended(on_collapse: str, saved: int) -> Any:
        events.clear()
        trainer: Any = object.__new__(Ours)
        trainer.heedful, trainer.collapsed = read_section({"on_collapse": on_collapse}), True
        trainer.global_steps, trainer.total_training_steps, trainer._saved_step = 3, 8, saved
        trainer.config = SimpleNamespace()
        trainer.on_step_end()
        return trainer.total_training_steps, list(events)

    assert ended("stop", saved=-1) == (3, ["save", "sync"])
    assert ended("stop", saved=3) == (3, ["sync"])  # the step was saved before
    assert ended("warn", saved=-1) == (8, ["sync"])


def test_a_mini_batch_without_real_rows_has_a_loss_of_zero() -> None:
    import torch
    from tensordict import TensorDict

    from heedful_verl.batch.loss import CRITIC_ROWS, ROWS, SCALE, counted_loss, counted_value_loss

    nested = torch.nested.as_nested_tensor([torch.ones(3), torch.ones(2)], layout=torch.jagged).requires_grad_()
    none = torch.zeros(2, dtype=torch.float64)
    data = TensorDict({ROWS: none, CRITIC_ROWS: none, SCALE: none + 1}, batch_size=2)
    assert counted_loss(None, {"log_probs": nested}, data)[0].item() == 0.0
    assert counted_value_loss(None, {"values": nested}, data)[0].item() == 0.0


def test_a_batch_without_the_columns_has_verls_own_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    from tensordict import TensorDict

    from heedful_verl.batch import loss

    monkeypatch.setattr(loss, "ppo_loss", lambda **given: (given["config"], {}))
    assert loss.counted_loss("theirs", {}, TensorDict({}, batch_size=1)) == ("theirs", {})


def test_a_new_column_joins_a_fixed_list_of_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    """A column that is not in the list of a batch would not reach the workers."""
    from transfer_queue import KVBatchMeta

    from heedful_verl.batch import queue

    stored: dict[str, Any] = {}
    put = lambda keys, partition_id, fields: stored.update(fields.items())  # noqa: E731
    monkeypatch.setattr(queue, "tq", SimpleNamespace(kv_batch_put=put))
    batch = KVBatchMeta(keys=["a_0_0", "a_1_0"], tags=[{}, {}], partition_id="train", fields=["prompts"])
    assert queue.annotate(batch, {"rows": [1, 2]}).fields == ["prompts", "rows"]
    assert stored["rows"].tolist() == [1.0, 2.0]
    batch.fields = None
    assert queue.annotate(batch, {"rows": [1, 2]}).fields is None


def test_dropped_rows_leave_the_queue_and_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    from transfer_queue import KVBatchMeta

    from heedful_verl.batch import queue

    cleared: list[str] = []
    monkeypatch.setattr(queue, "tq", SimpleNamespace(kv_clear=lambda keys, partition_id: cleared.extend(keys)))
    batch = KVBatchMeta(keys=["a_0_0", "b_0_0"], tags=[{"n": 1}, {"n": 2}], partition_id="train")
    smaller = queue.without(batch, ["a_0_0"])
    assert (smaller.keys, smaller.tags, cleared) == (["b_0_0"], [{"n": 2}], ["a_0_0"])
    assert queue.without(batch, []) is batch


def test_rows_that_fill_a_batch_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    from transfer_queue import KVBatchMeta

    from heedful_verl.batch import queue

    def get(keys: list[str], partition_id: str, select_fields: list[str]) -> dict[str, Any]:
        assert keys == ["a_0_0"]
        ids = torch.nested.as_nested_tensor([torch.tensor([5, 6])], layout=torch.jagged)
        scores = torch.nested.as_nested_tensor([torch.tensor([0.0, 0.5])], layout=torch.jagged)
        same = dict.fromkeys(("prompts", "responses", "response_mask"), ids)
        return {**same, "rm_scores": scores, "extra_fields": [{"reward_extra_info": {"acc": 1.0}}]}

    monkeypatch.setattr(queue, "tq", SimpleNamespace(kv_batch_get=get))
    tags = [{"min_global_steps": 2, "max_global_steps": 3}, {"is_padding": True}]
    (row,) = queue.read(KVBatchMeta(keys=["a_0_0", "pad_0_0"], tags=tags, partition_id="train"))
    assert (row.prompt_ids, row.score, row.versions, row.logprobs, row.source) == ((5, 6), 0.5, (2, 3), None, "")
    assert row.extra == {"reward_extra_info": {"acc": 1.0}}
