"""Real vLLM servers of models with windows, and with recurrent states: log-probabilities, weights out and back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from learners import changed, own_logprobs  # noqa: E402
from real_vllm import FLAGS, RealVllm, running  # noqa: E402

from benchmarks.families.models import built  # noqa: E402
from heedful.envs.toys.echo import Echo  # noqa: E402
from heedful.models.chat.render import Renderer  # noqa: E402
from heedful.models.load import load_model  # noqa: E402
from heedful.models.writing import write_pretrained  # noqa: E402
from heedful.policies import Sampling, Vllm, Weights  # noqa: E402
from heedful.rollout import LockStep, Request  # noqa: E402
from heedful.types import Group  # noqa: E402

# vLLM's CPU build reads heads of 32 and more. It has no float32 delta net, and no Mamba-1.
HEADS = {"num_attention_heads": 2, "num_key_value_heads": 1}
MODELS: dict[str, dict[str, Any]] = {
    "granitemoehybrid": {**HEADS, "num_local_experts": 0},
    "gemma3_text": {**HEADS, "head_dim": 32},
}


@pytest.fixture(scope="module", params=MODELS)
def folder(request: pytest.FixtureRequest, tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    ids = {"vocab_size": len(tokenizer), "eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    write_pretrained(folder, built(request.param, **ids, **MODELS[request.param]), tokenizer)
    return folder


@pytest.fixture(scope="module")
def other(no_other_session: None, folder: Path) -> Iterator[RealVllm]:
    flags = FLAGS if "gemma3" in folder.name else (*FLAGS, "--no-enable-prefix-caching")
    with running(folder, folder / "server.log", flags) as server:
        yield server


def test_replies_over_turns_have_the_learners_log_probabilities_with_changed_weights_and_with_the_first_ones_again(
    other: RealVllm, folder: Path
) -> None:
    model, tokenizer = load_model(str(folder), torch.device("cpu"))
    env = Echo(instructions="brief", turns=3)
    request = Request(env.episode, [env.task(seed) for seed in range(3)], 2, env.turns)
    for sync, learners in (("folder", [model, changed(model, 1)]), ("broadcast", [changed(model, 2), model])):
        with Vllm((other.url,), sync=sync, tolerance=1e-4, patience=60.0).open() as source:  # type: ignore[arg-type]
            for version, learner in enumerate(learners):
                source.weights_changed(Weights(learner, version))
                policy = source.policy(Renderer(tokenizer), Sampling(tokens_per_turn=16), seed=version)
                errors = [error for group in LockStep()(policy, request) for error in errors_of(group, learner)]
                assert max(errors) < 1e-4, sync
                assert len(errors) > 200


def errors_of(group: Group, learner: Any) -> list[float]:
    """For each sampled token, how far the server's log-probability is from a plain forward pass of the learner."""
    found = []
    for trajectory in group.trajectories:
        assert len(trajectory.turns) == 3
        for number, turn in enumerate(trajectory.turns):
            own = own_logprobs(learner, trajectory.context_ids(number), turn.reply.ids, 1.0)
            found += [abs(ours - theirs) for ours, theirs in zip(own, turn.reply.logprobs, strict=True)]
    return found
