"""The observer of a TRL trainer's generation batches, made from the trainer's own settings.

The weights that it measures are those that sampled the batch, because TRL rewards a batch before it trains on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import DistributedType, broadcast_object_list, gather_object

from heedful.boundary import to_json
from heedful.integrations.trl.pictures import PausedSight, bare_model, sees, sight_of
from heedful.integrations.trl.rollouts import EnvironmentRollouts
from heedful.integrations.trl.settings import HeedfulConfig
from heedful.integrations.watching import observer as watching
from heedful.integrations.watching.observer import Observer, refuse_replaced
from heedful.integrations.watching.record import Record
from heedful.integrations.watching.settings import truncating, unknown_metrics
from heedful.measuring.ways import Ways
from heedful.models.forward.spread import in_step, spread_as
from heedful.protocols import Filter
from heedful.scorers.dealt import DealtScorer
from heedful.scorers.hf import HFScorer

UNKNOWN_SUCCESS = (
    "TRL has rewards but no success: name the reward function that measures success in HeedfulConfig(outcome=...)"
)


def observer_of(trainer: Any, config: HeedfulConfig, chooses: Filter) -> Observer:
    """An observer of this trainer (a `trl.GRPOTrainer` or `RLOOTrainer`), made from the trainer's own settings.

    Raises ValueError if the configuration names a reward function or a component that the trainer does not have, or
    if the trainer's tokenizer is not that of its folder.
    """
    played = _plays(trainer)
    check_names(trainer.reward_func_names, trainer.reward_weights.tolist(), config, chooses.on, played)
    tokenizer = checked_tokenizer(trainer)
    why = why_unreadable(trainer)
    scorer: HFScorer | DealtScorer | None = None
    sight: PausedSight | None = None
    if not why:
        try:
            scorer = own = HFScorer(bare_model(trainer), max_tokens=config.diagnostics.max_tokens)
            sight = sight_of(trainer) if sees(trainer) else None
            # One process may hold shards, too. Rank 0 alone has the pictures of all.
            if sight is None and trainer.accelerator.distributed_type != DistributedType.NO:
                scorer = DealtScorer(own, Processes(trainer.accelerator), lambda: _reading(trainer))
        except ValueError as error:  # this architecture cannot be scored exactly, so all other metrics are measured
            why, scorer = str(error), None
    return watching.observer_of(
        config,
        chooses,
        tokenizer,
        trainer.eos_token_ids,
        scorer,
        seed=config.seed_in(trainer.args),
        temperature=float(trainer.temperature),
        unknown=unknown_to_trl(config.outcome is not None, played),
        unreadable=why,
        sight=sight,
        env=trainer.rollout_func.env if played else None,
    )


def checked_tokenizer(trainer: Any) -> Any:
    """The trainer's tokenizer. Raises ValueError if it is not that of its folder."""
    tokenizer = getattr(trainer.processing_class, "tokenizer", trainer.processing_class)
    source = str(getattr(tokenizer, "name_or_path", ""))
    advice = (
        f"Give the trainer processing_class=PreTrainedTokenizerFast.from_pretrained({source!r}). If you changed the "
        "tokenizer on purpose, save it to a folder and load it from there."
    )
    refuse_replaced(tokenizer, source, "TRL", advice)
    return tokenizer


def why_unreadable(trainer: Any) -> str:
    """Why the thoughts of this trainer's policy cannot be scored during training. Empty if they can."""
    cuts = _cuts(trainer)
    if cuts:
        return f"truncated sampling ({', '.join(cuts)})"
    kind = str(trainer.accelerator.distributed_type).rpartition(".")[2]
    if kind in ("MEGATRON_LM", "TP"):
        return f"the layers of the model are split over devices ({kind}): heedful audit scores the saved model"
    if kind in ("FSDP", "DEEPSPEED") and sees(trainer):
        return (
            f"pictures are read by one process, and the model is sharded ({kind}): heedful audit scores the saved one"
        )
    adapter: Any = getattr(trainer.accelerator.unwrap_model(trainer.model), "active_peft_config", None)
    if getattr(adapter, "is_prompt_learning", False):
        return f"the adapter {adapter.peft_type.value} adds vectors to the prompt, next to its tokens"
    return ""


def sharded(distributed_type: Any) -> str:
    """How accelerate has parted the weights among devices, so that no process can read them. Empty if it has not."""
    kind = str(distributed_type).rpartition(".")[2]
    return kind if kind in ("FSDP", "DEEPSPEED", "MEGATRON_LM", "TP") else ""


def _cuts(trainer: Any) -> list[str]:
    """The settings of the engine that samples which cut off or change probabilities."""
    given = trainer.args.generation_kwargs or {}
    if trainer.use_vllm:  # TRL hands it all of its sampling parameters
        return truncating(lambda name: given.get(name, getattr(trainer.args, name, None)))
    ours = _set(trainer.generation_config)
    if sees(trainer) and "suppress_tokens" not in given:
        ours["suppress_tokens"] = []  # TRL's own is the placeholder of a picture
    theirs: dict[str, Any] = {}
    if not trainer.use_transformers_continuous_batching and not (_plays(trainer) and trainer.rollout_func.sampler):
        # `generate` takes what TRL leaves open from the model, and then from its own defaults.
        theirs = {"top_k": 50} | _set(bare_model(trainer).generation_config)
    cuts = truncating((theirs | ours).get)
    return [name if name in ours else f"{name} of the model's generation_config" for name in cuts]


def _set(generation_config: Any) -> dict[str, Any]:
    return {name: value for name, value in vars(generation_config).items() if value is not None}


def unknown_to_trl(outcome: bool, played: bool) -> dict[str, str]:
    """The metrics that a batch of TRL cannot give, each with the reason."""
    return unknown_metrics("TRL", UNKNOWN_SUCCESS, outcome or played, played)


@dataclass(frozen=True, slots=True)
class Processes:
    """The processes of accelerate."""

    accelerator: Any

    @property
    def rank(self) -> int:
        return int(self.accelerator.process_index)

    @property
    def size(self) -> int:
        return int(self.accelerator.num_processes)

    def gather(self, item: Any) -> list[Any]:
        with _expecting_all():
            return list(gather_object([item]))

    def hear(self, item: Any) -> Any:
        """The item of rank 0, on every rank."""
        with _expecting_all():
            return broadcast_object_list([item])[0]


@contextmanager
def _expecting_all() -> Iterator[None]:
    """Say in a sentence that a rank was lost: gloo notices it at once, NCCL after its timeout."""
    try:
        yield
    except RuntimeError as error:
        raise RuntimeError(
            "heedful expected an answer of every process while it measured, found that one has ended or hangs: see "
            f"its own output, and resume from the last checkpoint. torch says: {str(error).strip().splitlines()[0]}"
        ) from error


def _reading(trainer: Any) -> AbstractContextManager[None]:
    """A context in which every process may read the model."""
    root = trainer.model_wrapped if spread_as(trainer.model_wrapped) == "FSDP" else trainer.model
    return in_step(root, bare_model(trainer).get_decoder()) if spread_as(root) else nullcontext()


def begin(
    observer: Observer,
    trainer: Any,
    config: HeedfulConfig,
    chooses: Filter,
    checkpoint: Path,
    resumed: Mapping[str, Any] | None,
) -> None:
    """Let a new observer begin a run, or go on where `resumed` was saved in `checkpoint`. It keeps the run's record."""
    if resumed is not None:
        observer.load_state(resumed)
    if not config.record:
        return
    folder, device = Path(trainer.args.output_dir), str(trainer.accelerator.device)
    known = Record.of_checkpoint(resumed, checkpoint, folder) if resumed else None
    scorer: Any = observer.diagnostician.scorer
    own = scorer.scorer if isinstance(scorer, DealtScorer) else scorer
    # One process alone cannot read shards, so there the way of reading is not known yet.
    ways = None if own is None or spread_as(trainer.model_wrapped) else Ways.of(bare_model(trainer), own, samples=False)
    tree = {**described(trainer, config, chooses), "scorer": ways and ways.method}
    observer.begin(known or Record.claim(folder, tree, device, torch.get_num_threads()))


def described(trainer: Any, config: HeedfulConfig, chooses: Filter) -> dict[str, Any]:
    """The configuration of the run for `config.json`: the settings that an audit needs, and TRL's own arguments."""
    import trl

    arguments = trainer.args.to_dict()
    filter = {"type": type(chooses).__name__, **to_json(chooses)}
    played = _plays(trainer)
    # A worker of AsyncGRPOTrainer sums the rewards by itself, without weights.
    weighted = not played and hasattr(trainer, "reward_weights")
    weights = dict(zip(trainer.reward_func_names, trainer.reward_weights.tolist(), strict=True)) if weighted else {}
    return {
        "env": {"type": trainer.rollout_func.env.name if played else "trl"},
        "steps": int(trainer.state.max_steps or arguments["max_steps"]),
        "algorithm": {"type": arguments.get("loss_type", type(trainer).__name__), "kl": arguments.get("beta", 0.0)},
        "filter": filter,
        "choose": {"type": type(config.choose).__name__, **to_json(config.choose)},
        "loss_scale": config.loss_scale,
        "outcome": config.outcome,
        "reward_weights": weights,
        "unknown": unknown_to_trl(config.outcome is not None, played),
        "tags": to_json(config.tags),
        "diagnostics": to_json(config.diagnostics),
        "seed": config.seed_in(trainer.args),
        "group_size": trainer.args.num_generations,
        "trainer": f"trl {trl.__version__}",
        "trl": {name: value for name, value in arguments.items() if isinstance(value, bool | int | float | str)},
    }


def _plays(trainer: Any) -> bool:
    """Whether the trainer plays one of heedful's environments."""
    return isinstance(getattr(trainer, "rollout_func", None), EnvironmentRollouts)  # RLOOTrainer has none


def check_names(
    functions: Sequence[str], weights: Sequence[float], config: HeedfulConfig, on: str, played: bool
) -> None:
    """Raise ValueError for a reward function that the settings name and the trainer does not have."""
    named, twice = ", ".join(functions), [name for name in (on, config.outcome) if functions.count(str(name)) > 1]
    for wrong, sentence in (
        (
            config.outcome not in (None, *functions),
            f"HeedfulConfig.outcome names the reward function that measures success: expected one of {named}, found "
            f"{config.outcome!r}.",
        ),
        (
            on == "outcome" and config.outcome is None and not played,
            "The filter uses the outcome, but no reward function measures success: name one in "
            "HeedfulConfig(outcome=...), or filter by the reward, as in TopP(on='reward').",
        ),
        (
            on not in ("outcome", "reward", *functions) and not played,
            f"The filter's `on` names its values: expected reward, outcome or a reward function ({named}), found "
            f"{on!r}.",
        ),
        (
            bool(twice),
            f"Expected one reward function of each name that HeedfulConfig refers to, found several of the name "
            f"{', '.join(map(repr, twice))}. Give them different names.",
        ),
        (
            on in functions and weights[functions.index(on)] == 0,
            f"The filter uses the reward function {on!r}, which has the weight 0 in reward_weights, so every group "
            f"would be constant. Name it in HeedfulConfig(outcome={on!r}) and filter on='outcome', or give it a "
            "weight.",
        ),
    ):
        if wrong:
            raise ValueError(sentence)
