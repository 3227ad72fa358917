"""The model that reads a log: loaded into this process, or asked on the server that holds it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from heedful.auditing.scoring import ModelJudge
from heedful.auditing.settings import AuditSettings
from heedful.diagnostics.cross_scores.thoughts import ThoughtTags
from heedful.storage import check_model

_REMEDY = "Give --model a folder with config.json, weights and tokenizer files, a .gguf file, or a Hugging Face name."
_TOKENIZER_REMEDY = "Give --tokenizer the folder or the Hugging Face name of the served model."


@contextmanager
def judge_of(settings: AuditSettings, tags: ThoughtTags, seed: int) -> Iterator[ModelJudge | None]:
    """The model that the settings name, or `None` where they name none.

    Raises ValueError, a sentence, if there is no such model or it cannot be scored exactly, and ServerUnreachable or
    ServerRefused if a server gives no answer.
    """
    if settings.model is not None:
        yield model_judge(settings.model, settings, tags, seed)
    elif settings.server is not None:
        with _served_judge(settings.server, str(settings.model_name), settings, tags, seed) as judge:
            yield judge
    else:
        yield None


def model_judge(source: str, settings: AuditSettings, tags: ThoughtTags, seed: int) -> ModelJudge:
    """A model in this process. `source`: its folder, or a Hugging Face name. Raises ValueError, a sentence."""
    import torch

    from heedful.models.forward.attention import refuse_unless_plain_causal
    from heedful.models.load import pick_device, read_model, read_own_tokenizer, read_vision
    from heedful.models.vision import vision_of
    from heedful.scorers.hf import HFScorer
    from heedful.scorers.judge import judge_name

    check_model(source)
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    model = read_model(source, {"float32": torch.float32, "bfloat16": torch.bfloat16}[settings.dtype], _REMEDY)
    refuse_unless_plain_causal(model)
    read = read_own_tokenizer(source, _REMEDY)
    moved: Any = model
    moved.to(pick_device(settings.device))
    read_vision(model, read.tokenizer, source, _REMEDY)
    name = judge_name(str(Path(source).resolve()) if Path(source).exists() else source)

    def make_scorer(name: str) -> HFScorer:
        return HFScorer(model, name=name, max_tokens=settings.max_tokens)

    return ModelJudge(make_scorer, read.tokenizer, name, tags, seed, vision=vision_of(model), note=read.note)


@contextmanager
def _served_judge(url: str, model: str, settings: AuditSettings, tags: ThoughtTags, seed: int) -> Iterator[ModelJudge]:
    """A model on a server."""
    from heedful.models.load import read_own_tokenizer
    from heedful.policies.servers import Client, Limits, read_key
    from heedful.policies.servers.examination import base_of, check_tokenizer, examine, refuse_unknown
    from heedful.scorers.judge import judge_name
    from heedful.scorers.server import ServerScorer

    client = Client([base_of(url)], Limits(settings.connections), key=read_key(settings.api_key_env))
    try:
        facts = examine(client, client.servers[0])
        refuse_unknown(facts, model)
        source = str(settings.tokenizer)
        read = read_own_tokenizer(source, _TOKENIZER_REMEDY)
        tokenizer: Any = read.tokenizer
        check_tokenizer(client, model, lambda text: tokenizer(text, add_special_tokens=False).input_ids, source)

        def make_scorer(name: str) -> ServerScorer:
            return ServerScorer(client, model, facts, name=name)

        yield ModelJudge(make_scorer, tokenizer, judge_name(model), tags, seed, note=read.note)
    finally:
        client.close()
