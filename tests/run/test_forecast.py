"""The lines before the first step and after it, with numbers computed by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")

import torch

from benchmarks.families.models import built
from heedful.algorithms.table import Grpo, Ppo
from heedful.envs.toys.echo import Echo
from heedful.measuring.diagnostics_config import DiagnosticsConfig
from heedful.measuring.ways import FASTEST, Ways
from heedful.policies.sampling import Sampling
from heedful.run.config import EvaluationConfig, GradientsConfig, TrainConfig
from heedful.run.forecast import (
    StepTokens,
    estimate,
    memory_of_step,
    sentence_after,
    time_left,
    tokens_of_step,
)
from heedful.run.loop import train_steps
from heedful.run.parts import assemble
from heedful.scorers.hf import HFScorer
from heedful.storage import RunFolder

NONE = DiagnosticsConfig(enabled=False)
FEW = DiagnosticsConfig(share=None, every=2, full_every=4, any_turn=0, swapped_rows=0, grounding_rows=0, later_rows=0)
SMALL = TrainConfig(
    env=Echo(turns=2),
    steps=11,
    groups=2,
    group_size=2,
    sampling=Sampling(tokens_per_turn=3),
    diagnostics=NONE,
    evaluation=EvaluationConfig(times=0),
    micro_batch_tokens=4,
)


def test_the_tokens_of_a_step_are_those_of_prompts_and_full_replies() -> None:
    # 2 prompts of 5 tokens, each read once; 4 episodes of 2 turns of 3 tokens. Rows hold 5 + 6 tokens.
    assert tokens_of_step(SMALL, 5) == StepTokens(2 * 5 + 24, 3 * 4 * 11, 0)


def test_later_pictures_count_with_their_tokens() -> None:
    # 4 episodes of 2 turns, 3 tokens each; a first prompt of 9 tokens, 4 of them a picture.
    assert tokens_of_step(SMALL, 9, shown=4) == StepTokens(2 * 9 + 4 * 4 + 24, 3 * (4 * (9 + 4) + 24), 0)


def test_measurements_cost_what_they_need_or_the_share_if_that_is_less() -> None:
    free = FEW
    # Full: 2 prompts x (5 + 4 thoughts x 3). Cheap, once in 4 steps: the same, since 2 prompts x 2 thoughts are all.
    assert tokens_of_step(replace(SMALL, diagnostics=free), 5).diagnose == 2 * 2 * (5 + 4 * 3) / 4
    # Later turns of both tasks, each read ten times behind its history.
    later = replace(free, later_rows=16)
    assert tokens_of_step(replace(SMALL, diagnostics=later), 5).diagnose == round((2 * 2 * 17 + 2 * 35) / 4)
    tight = replace(free, share=0.05)
    assert tokens_of_step(replace(SMALL, diagnostics=tight), 5).diagnose == round(0.05 * (34 + 132))


def test_fall_backs_cost_the_tokens_that_they_read_again() -> None:
    ways = Ways(obstacle="it keeps no state", method="plain; not packed: it keeps no state", shares=False)
    # 4 episodes of 2 turns, whose tokens are sampled from contexts of 5 to 10 tokens. Rows of the update are whole.
    found = tokens_of_step(replace(SMALL, diagnostics=FEW), 5, ways=ways)
    # Each of 4 thoughts of 3 tokens under each of 2 prompts of 5.
    assert found == StepTokens(4 * 45, 3 * 4 * 11, 2 * 2 * 4 * (5 + 3) / 4)
    assert ways.slower(2, 2, 5, 3) == [
        "The sampler reads the whole context for each token, since it keeps no state: 3.3 times the tokens.",
        "The scorer reads each pair of prompt and thought whole (plain; not packed: it keeps no state): 1.9 times the "
        "tokens.",
        "The learner reads each reply with its whole prompt: 1.5 times the tokens.",
    ]
    assert FASTEST.slower(2, 2, 5, 3) == []


def test_the_ways_of_a_model_are_those_that_its_probes_found() -> None:
    model = built("minimax")
    ways = Ways.of(model, HFScorer(model), samples=False)
    assert ways.method.startswith("plain; not packed: ")
    assert not ways.shares
    with torch.no_grad():
        model.get_output_embeddings().weight.fill_(torch.nan)
    assert Ways.of(model, HFScorer(model)) == FASTEST


def model_of(bytes_each: int) -> SimpleNamespace:
    """100 weights of so many bytes in 2 layers of width 3, whose keys and values hold 2 numbers, and 10 tokens."""
    sizes = {"hidden_size": 3, "num_hidden_layers": 2, "num_attention_heads": 1, "head_dim": 2, "vocab_size": 10}
    shape = SimpleNamespace(**sizes, num_key_value_heads=None)
    weight = SimpleNamespace(numel=lambda: 100, element_size=lambda: bytes_each, requires_grad=True)
    decoder = SimpleNamespace(parameters=lambda: [SimpleNamespace(numel=lambda: 90)])
    config = SimpleNamespace(get_text_config=lambda decoder: shape)
    return SimpleNamespace(config=config, parameters=lambda: [weight], get_decoder=lambda: decoder)


def test_the_memory_of_a_step_is_what_stays_and_the_larger_of_update_and_cache() -> None:
    whole, half = model_of(4), model_of(2)
    penalised = replace(SMALL, algorithm=Grpo(kl=0.1))
    # Weights and two moments; then gradients, 3 blocks of 4 x 10 logits, and 17 values per state of 4 tokens.
    update = 400 + 3 * 4 * 10 * 4 + 4 * 3 * 4 * 2 * 17
    assert memory_of_step(whole, SMALL, 5) == 400 + 800 + update
    assert memory_of_step(whole, penalised, 5) == 800 + 800 + update
    # A critic is a copy of the decoder's 90 weights, with moments and gradients of its own.
    criticised = replace(SMALL, algorithm=Ppo())
    assert memory_of_step(whole, criticised, 5) == 400 + 800 + update + 90 * 4 * 4
    assert memory_of_step(half, criticised, 5) - memory_of_step(half, SMALL, 5) == 90 * (2 + 3 * 4 + 4)
    # With long replies the cache is larger: 4 conversations of 5 + 2 x 100 tokens, keys and values of 2 layers.
    long = replace(SMALL, sampling=Sampling(tokens_per_turn=100))
    assert memory_of_step(whole, long, 5) == 400 + 800 + 4 * 205 * 2 * 2 * 2 * 4
    # In half precision the optimizer keeps float32 copies and sums float32 gradients.
    held = 200 + 3 * 400 + 400 + 3 * 4 * 10 * 4 + 4 * 3 * 2 * 2 * 17
    assert memory_of_step(half, SMALL, 5) == held
    recomputed = replace(SMALL, gradient_checkpointing=True)
    assert memory_of_step(half, recomputed, 5) == held - 4 * 3 * 2 * (2 * 17 - (2 + 17))


def test_the_time_left_repeats_each_stage_as_often_as_it_is_due() -> None:
    assert time_left(SMALL, 0, {"collect": 3.0, "update": 1.5, "store": 0.5}) == 10 * 5.0
    evaluated = replace(SMALL, evaluation=EvaluationConfig(times=3))
    assert evaluated.evaluation.at(11) == {0, 6, 11}
    assert time_left(evaluated, 0, {"collect": 3.0, "evaluate": 7.0}) == 30.0 + 2 * 7.0
    # A full measurement may read the share of 5 steps: in the mean a step costs a fifth of it.
    measured = replace(SMALL, diagnostics=DiagnosticsConfig(every=2, full_every=8))
    assert time_left(measured, 0, {"diagnose": 5.0}) == pytest.approx(10 * 5.0 / 5)
    gradients = replace(SMALL, gradients=GradientsConfig(every=5))
    assert time_left(gradients, 0, {"gradients": 2.0}) == 2 * 2.0
    assert time_left(evaluated, 10, {"collect": 3.0, "evaluate": 7.0}) == 7.0


def test_the_time_left_of_a_run_that_never_ends_costs_no_time() -> None:
    long = replace(SMALL, steps=10**4, diagnostics=DiagnosticsConfig(every=2, full_every=8))
    seconds = {"collect": 3.0, "diagnose": 5.0}
    expected = time_left(long, 0, seconds) * 10**11
    assert time_left(replace(long, steps=10**15), 0, seconds) == pytest.approx(expected, rel=0.01)
    assert EvaluationConfig(times=10**18).at(3) == {0, 1, 2, 3}


def test_the_line_after_the_first_step_names_its_stages_and_the_time_left() -> None:
    said = sentence_after(SMALL, 0, {"collect": 20.0, "update": 9.0, "store": 0.1})
    assert said == "Step 1 took 29s (collect 20s, update 9.0s). About 4m51s left for 10 steps."


def test_a_run_says_once_what_a_step_costs_and_once_how_long_is_left(echo_run: TrainConfig, tmp_path: Path) -> None:
    told: list[str] = []
    written: list[int] = []

    class Listening:
        def first_rollout(self, trajectory: object) -> None: ...
        def note(self, sentence: str) -> None:
            told.append(f"{len(written)}: {sentence}")

        def write(self, step: int, metrics: object) -> None:
            written.append(step)

        def close(self) -> None: ...

    config = replace(echo_run, steps=3, evaluation=EvaluationConfig(times=0), diagnostics=NONE)
    parts = assemble(config, lambda step, steps, loss: None, None)
    train_steps(config, parts, RunFolder.open(tmp_path / "run"), [], Listening())  # type: ignore[arg-type]
    before, after = [line for line in told if "tep 1" in line]
    prompt = len(parts.renderer.context_ids(_first(config, parts)))
    assert before.startswith("0: Before step 1, an estimate of a step with replies of full length: ")
    assert f"{tokens_of_step(config, prompt).total:,} tokens" in before
    assert "of memory at the peak." in before
    assert after.startswith("1: Step 1 took ")
    assert after.endswith(" left for 2 steps.")


def _first(config: TrainConfig, parts: object) -> object:
    from heedful.envs.common.tasks import TaskStream
    from heedful.rollout.player import Player
    from heedful.seeds import derive

    task = TaskStream(config.env, "train", derive(config.seed, "tasks"), config.tasks).next(1)[0]
    return Player(config.env.episode(), task, 0, config.env.turns).conversation


def test_an_environment_that_cannot_start_costs_the_tokens_of_the_line_and_nothing_else(echo_run: TrainConfig) -> None:
    class Broken:
        turns = 1

        def episode(self) -> object:
            raise RuntimeError("no server")

    parts = assemble(echo_run, lambda step, steps, loss: None, None)
    said = estimate(echo_run, parts, Broken())  # type: ignore[arg-type]
    assert "tokens" not in said
    assert "of memory at the peak." in said
