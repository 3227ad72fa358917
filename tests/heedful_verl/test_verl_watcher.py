"""What verl's configuration and the first batch rule out, without verl."""

from __future__ import annotations

from typing import Any

import pytest

from heedful.filters import KeepAll, TopP
from heedful_verl import compatibility
from heedful_verl.batch.limits import WorkerLimits, why_unreadable, worker_limits
from heedful_verl.batch.rows import Row, sampled_of
from heedful_verl.batch.watcher import check_names, chosen_filter, refusals, unknown_to_verl, warnings_of
from heedful_verl.settings import HeedfulConfig, read_section


class Section(dict[str, Any]):
    """A section that is read like one of OmegaConf's."""

    def __getattr__(self, name: str) -> Any:
        return self[name]


def section(tree: Any) -> Any:
    return Section({name: section(value) for name, value in tree.items()}) if isinstance(tree, dict) else tree


def config(**changed: Any) -> Any:
    """A configuration of verl; `changed`: dotted names with `__` in place of the dots."""
    tree = section(
        {
            "algorithm": {"adv_estimator": "grpo"},
            "critic": {"enable": False, "ppo_mini_batch_size": 8, "loss_agg_mode": "token-mean", "shuffle": False},
            "distillation": {"enabled": False},
            "actor_rollout_ref": {
                "actor": {
                    "strategy": "fsdp2",
                    "loss_agg_mode": "token-mean",
                    "shuffle": False,
                    "ppo_mini_batch_size": 4,
                    "use_dynamic_bsz": False,
                    "fsdp_config": {"dtype": "bfloat16"},
                },
                "rollout": {
                    "temperature": 1.0,
                    "top_p": 1,
                    "top_k": -1,
                    "log_prob_micro_batch_size_per_gpu": 4,
                    "log_prob_max_token_len_per_gpu": 512,
                },
            },
        }
    )
    for path, value in changed.items():
        *place, name = path.split("__")
        inner = tree
        for part in place:
            inner = inner[part]
        inner[name] = section(value)
    return tree


ACTOR, ROLLOUT = "actor_rollout_ref__actor__", "actor_rollout_ref__rollout__"


def test_verls_defaults_rule_out_nothing() -> None:
    assert refusals(config(), HeedfulConfig()) == []
    assert warnings_of(config()) == []
    assert why_unreadable(config()) == ""


def test_shuffled_mini_batches_are_refused_where_rows_are_counted() -> None:
    shuffled = config(**{ACTOR + "shuffle": True, ACTOR + "loss_agg_mode": "seq-mean-token-mean"})
    assert "do not shuffle" in " ".join(refusals(shuffled, HeedfulConfig()))
    assert refusals(shuffled, HeedfulConfig(filter=KeepAll())) == []
    assert refusals(config(**{ACTOR + "shuffle": True}), HeedfulConfig()) == []


def test_shuffled_mini_batches_of_a_critic_are_refused_too() -> None:
    critic = {"enable": True, "ppo_mini_batch_size": 4, "loss_agg_mode": "seq-mean-token-sum", "shuffle": True}
    assert "Expected critic.shuffle=False" in " ".join(refusals(config(critic=critic), HeedfulConfig()))


def test_windows_are_refused_for_estimators_that_take_a_row_for_an_episode() -> None:
    windows = read_section({"play": {"context": {"turns": 1}}})
    assert refusals(config(), windows) == []
    assert "Expected adv_estimator=grpo" in refusals(config(algorithm={"adv_estimator": "rloo"}), windows)[0]


def test_distillation_is_refused_where_the_loss_would_be_replaced() -> None:
    distilled = config(distillation__enabled=True)
    assert refusals(distilled, HeedfulConfig()) == []
    assert "found distillation.enabled=True" in refusals(distilled, HeedfulConfig(loss_scale="all"))[0]


@pytest.mark.parametrize(("estimator", "enable", "said"), [("gae", None, 1), ("grpo", None, 0), ("grpo", True, 1)])
def test_a_critic_with_other_mini_batches_is_warned_of(estimator: str, enable: bool | None, said: int) -> None:
    found = warnings_of(config(critic__enable=enable, algorithm={"adv_estimator": estimator}))
    assert len(found) == said
    assert all("may hold no real row" in sentence for sentence in found)


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("top_p", 0.9, "truncated sampling (top_p)"),
        ("top_k", 20, "truncated sampling (top_k)"),
        ("temperature", 0.0, "greedy sampling (temperature 0)"),
    ],
)
def test_what_cannot_be_read_says_why(name: str, value: float, why: str) -> None:
    assert why_unreadable(config(**{ROLLOUT + name: value})) == why


def test_router_replay_is_left_alone() -> None:
    replayed = config(**{ACTOR + "strategy": "megatron", ACTOR + "megatron": {"router_replay": {"mode": "R2"}}})
    assert why_unreadable(replayed).startswith("router replay")


def test_verls_sampler_that_replaces_constant_groups_leaves_ours_on() -> None:
    algorithm = {"filter_groups": {"enable": True, "metric": "acc"}}
    chosen, said = chosen_filter(HeedfulConfig(), algorithm)
    assert chosen == TopP(on="reward")
    assert "replaces constant groups" in said
    missing = unknown_to_verl(config(algorithm={"adv_estimator": "grpo", **algorithm}), HeedfulConfig(), played=True)
    assert "algorithm.filter_groups" in missing["signal/solved"]


def test_a_filter_of_verl_itself_disables_ours() -> None:
    chosen, said = chosen_filter(HeedfulConfig(), {"reward_variance_filtering": {"enable": True}})
    assert chosen == KeepAll(on="reward")
    assert "heedful's filter is disabled" in said
    assert chosen_filter(HeedfulConfig(), {"filter_groups": {"enable": False}}) == (TopP(on="reward"), "")
    assert compatibility.filters_itself({}) == ""


def test_a_name_that_no_row_holds_is_a_sentence() -> None:
    row = Row("a_0_0", (1,), (2,), (True,), 1.0, extra={"reward_extra_info": {"acc": 1.0}})
    batch = sampled_of([row], 1, None, 0)
    check_names(HeedfulConfig(), TopP(on="acc"), batch)
    with pytest.raises(ValueError, match=r"expected one of acc, outcome, reward, score, found 'goal'"):
        check_names(HeedfulConfig(), TopP(on="goal"), batch)
    with pytest.raises(ValueError, match=r"name one in heedful\.outcome \(found acc\)"):
        check_names(HeedfulConfig(), TopP(on="outcome"), batch)
    check_names(HeedfulConfig(outcome="acc"), TopP(on="outcome"), batch)


def test_success_is_unknown_until_a_key_is_named() -> None:
    assert "heedful.outcome" in unknown_to_verl(config(), HeedfulConfig(), played=False)["success/rate"]
    assert "success/rate" not in unknown_to_verl(config(), HeedfulConfig(outcome="acc"), played=False)
    assert unknown_to_verl(config(), HeedfulConfig(), played=True) == {}


def test_rows_of_a_measurement_fill_whole_micro_batches_of_all_ranks() -> None:
    assert worker_limits(config(), 2, 1024) == WorkerLimits(8, 1024, "bfloat16")
    exact = {"mixed_precision": {"param_dtype": "fp32"}}
    dynamic = config(**{ACTOR + "use_dynamic_bsz": True, ACTOR + "fsdp_config": exact})
    assert worker_limits(dynamic, 2, None) == WorkerLimits(2, 512, "float32")
