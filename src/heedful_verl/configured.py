"""What heedful would do under a given configuration of verl, in sentences. Neither verl nor torch is needed.

The configuration is a plain tree, as verl composes it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from heedful.boundary import MOST_EPISODES, ConfigurationError, cut, to_json
from heedful.boundary.open_files import in_home
from heedful.boundary.parquet_sizes import (
    budget_of,
    declared_bytes,
    parquet_file,
    refuse_damaged,
    text_leaves,
    within,
)
from heedful.envs.common.contract import is_finite
from heedful.guarded import Raised, guarded_call
from heedful_verl.batch.limits import COUNTED, why_unreadable
from heedful_verl.batch.watcher import refusals, warnings_of
from heedful_verl.compatibility import filters_itself
from heedful_verl.play.episodes import FIELD
from heedful_verl.play.playing import environment_of
from heedful_verl.settings import MODES, REGISTER, SECTION, VARIABLE, HeedfulConfig, read_section
from heedful_verl.tasks import LOOP

Tree = Mapping[str, Any]
Status = Literal["ok", "note", "missing", "wrong"]

EXACT = ("token-mean", "token-sum", *COUNTED)
"""The ways of averaging the loss whose gradient equals that of a batch without the dropped rows."""


SECTIONS = (
    "trainer",
    "trainer.v1",
    "data",
    "algorithm",
    "actor_rollout_ref",
    "actor_rollout_ref.actor",
    "actor_rollout_ref.rollout",
    "critic",
)
"""The sections of verl's configuration that heedful reads."""

NUMBERS = ("temperature", "top_p", "top_k")
"""The numbers that it reads of the rollout's section."""

COUNTS = (
    "trainer.nnodes",
    "data.train_batch_size",
    "actor_rollout_ref.actor.ppo_mini_batch_size",
    "actor_rollout_ref.rollout.n",
)
"""The numbers of things that it computes with."""

_ROWS = 4096
"""Rows of a task file that are read at once."""
_PLAYED = f"extra_info.{FIELD}.environment"
"""Where a row of a task file names its environment."""
_ENVIRONMENTS = 16
"""The environments of a task file that are made, the commonest first."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor."""

    status: Status
    """note: works, and is worth knowing. missing and wrong: something has to be done."""
    sentence: str

    def __str__(self) -> str:
        return f"{self.status:<8}{self.sentence}"


def findings_of(config: Tree) -> list[Finding]:
    """Everything that heedful would do, and everything that is wrong, in the order of a step of training."""
    misshapen = [*_of_shape(config)]
    if misshapen:
        return misshapen
    mode = _at(config, "trainer.v1.trainer_mode")
    mode = mode if isinstance(mode, str) else _shown(mode)
    found = [_of_mode(config, mode)]
    try:
        section = read_section(config.get(SECTION))
    except ConfigurationError as error:
        return found + [Finding("wrong", str(problem)) for problem in error.problems]
    found += _of_processes(config)
    found += _of_tasks(config, section)
    if mode in MODES:
        found += [*_of_filter(config, section), *_of_loss(config, section), *_of_measuring(config, section)]
        found += _of_record(config, section)
        found += [Finding("wrong", why) for why in refusals(_Dotted(config), section)]
        found += [Finding("note", why) for why in warnings_of(_Dotted(config))]
    return found


def _of_shape(config: Tree) -> Iterator[Finding]:
    """What is no section, or no number, although verl and heedful read one there."""
    sections = [*SECTIONS, *(["distillation"] if config.get("distillation") is not None else [])]
    actor = _at(config, "actor_rollout_ref.actor", {})
    engine = actor.get(str(actor.get("strategy"))) if isinstance(actor, Mapping) else None
    if engine is not None:
        sections.append(f"actor_rollout_ref.actor.{actor['strategy']}")
        if isinstance(engine, Mapping) and engine.get("router_replay") is not None:
            sections.append(f"{sections[-1]}.router_replay")
    for path in sections:
        value = _at(config, path)
        if not isinstance(value, Mapping):
            yield Finding("wrong", f"{path}: expected a section of verl's configuration, found {_shown(value)}.")
    for name in NUMBERS:
        value = _at(config, f"actor_rollout_ref.rollout.{name}")
        if isinstance(value, bool) or not is_finite(value):
            yield Finding("wrong", f"actor_rollout_ref.rollout.{name}: expected a number, found {_shown(value)}.")
    for path in COUNTS:
        value = _at(config, path)
        if isinstance(value, int) and value > MOST_EPISODES:
            yield Finding("wrong", f"{path}: expected a number of at most {MOST_EPISODES:,}, found {_shown(value)}.")


def _shown(value: Any) -> str:
    return cut(json.dumps(value, default=str))


def _of_mode(config: Tree, mode: Any) -> Finding:
    if _at(config, "trainer.use_v1", True) is False:
        return Finding(
            "wrong",
            "trainer.use_v1=false selects verl's older trainer, which heedful does not know. Leave it at true, or read "
            "the dumps of trainer.rollout_data_dir with heedful audit.",
        )
    if mode not in MODES:
        return Finding(
            "note",
            f"trainer.v1.trainer_mode={mode}: verl's own trainer runs, without filter and diagnostics. The agent loop "
            f"{LOOP} works all the same. For the rest, set it to one of {', '.join(MODES)}.",
        )
    untested = " This mode was not run yet." if mode == "heedful_separate_async" else ""
    return Finding("ok", f"trainer.v1.trainer_mode={mode}: verl's trainer {MODES[mode]} with heedful.{untested}")


def _of_processes(config: Tree) -> Iterator[Finding]:
    nodes = _at(config, "trainer.nnodes", 1)
    place = f"ray_kwargs.ray_init.runtime_env.env_vars.{VARIABLE}"
    forwarded = _at(config, place) or ""
    if REGISTER in str(forwarded):
        yield Finding("ok", f"{place} forwards {VARIABLE} to every process.")
    elif isinstance(nodes, int) and nodes > 1:
        yield Finding(
            "missing",
            f"trainer.nnodes={nodes}, but verl does not forward {VARIABLE} to other nodes. Set it on every node before "
            f"`ray start`, or add +{place}={REGISTER}",
        )


def _of_tasks(config: Tree, section: HeedfulConfig) -> Iterator[Finding]:
    rollout = _at(config, "actor_rollout_ref.rollout", {})
    for name in ("train_files", "val_files"):
        for file in _files(_at(config, f"data.{name}")):
            if "://" in file:
                yield Finding("note", f"data.{name}: {cut(file)} is on another machine and was not looked at.")
            else:
                own_reader = bool(_at(config, "data.custom_cls.path"))
                yield from _of_file(in_home(file), name, own_reader, section.play.trust)
    most = section.play.tokens_per_turn or rollout.get("response_length")
    shown = "its full history" if section.play.context.turns is None else f"the last {section.play.context.turns} turns"
    yield Finding("note", f"An episode of {LOOP} shows {shown}, and a reply has at most {most} tokens.")


def _of_file(path: Path, name: str, own_reader: bool, trust: tuple[str, ...]) -> Iterator[Finding]:
    """What verl would read. `own_reader`: the configuration names a class of its own that reads files."""
    import pyarrow

    try:
        if not path.exists():
            yield Finding("missing", f"data.{name}: there is no file {path}.")
            return
        if path.suffix != ".parquet":
            yield from _of_other_kind(path, name, own_reader)
            return
        rows, counts = _counted(path, ("agent_name", "data_source", _PLAYED))
    except (pyarrow.ArrowException, OSError) as error:
        yield Finding("wrong", f"data.{name}: {cut(str(path))} cannot be read ({error}).")
        return
    ours = counts["agent_name"][LOOP]
    sources = ", ".join(sorted(map(cut, counts["data_source"]))[:8])
    played = f"{ours} of them episodes of heedful" if ours else "none of them an episode of heedful"
    yield Finding("ok", f"data.{name}: {path} has {rows} rows, {played} (data_source: {sources or 'none'}).")
    if ours:
        yield from _of_environments(name, ours, counts[_PLAYED], trust)


def _of_environments(name: str, ours: int, counts: Counter[str], trust: tuple[str, ...]) -> Iterator[Finding]:
    """The rows that cannot be played. Each of the environments is made once, and no task is drawn."""
    silent = ours - sum(counts.values())
    if silent > 0:
        yield Finding(
            "wrong",
            f"data.{name}: {silent} of these rows name no environment. Write the file with: "
            "python -m heedful_verl.tasks",
        )
    for text, count in counts.most_common(_ENVIRONMENTS):
        made = guarded_call(partial(environment_of, text, trust))
        if isinstance(made, Raised):
            told = " ".join(str(made.error if isinstance(made.error, ValueError) else made).split())
            yield Finding("wrong", f"data.{name}: {count} of these rows cannot be played: {cut(told, 600)}")


def _of_other_kind(path: Path, name: str, own_reader: bool) -> Iterator[Finding]:
    """A file that verl does not read as parquet. Its reader is chosen by the ending of the name alone."""
    if own_reader:
        return
    if path.is_file() and _begins_as_parquet(path):
        yield Finding(
            "wrong",
            f"data.{name}: {cut(str(path))} is a parquet file, but verl reads it as one only if its name ends in "
            ".parquet. Rename it.",
        )
    elif path.suffix not in (".json", ".jsonl"):
        yield Finding(
            "wrong", f"data.{name}: verl reads names that end in .parquet, .json or .jsonl, found {cut(path.name)}."
        )


def _begins_as_parquet(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"PAR1"


def _counted(path: Path, names: Collection[str]) -> tuple[int, dict[str, Counter[str]]]:
    """The number of rows, and how often each value stands in these columns. Repeated texts are made once.

    A name with dots is a part of a column. Empty places are not counted.

    Raises OSError or pyarrow's errors.
    """
    import pyarrow.compute

    file = parquet_file(path)
    refuse_damaged(file.metadata)
    budget = budget_of(path.stat().st_size)
    if declared_bytes(file.metadata, names) > budget:
        raise OSError(f"its columns unpack to more than {budget / 2**20:,.0f} MiB")
    counts: dict[str, Counter[str]] = {name: Counter() for name in names}
    leaves = [file.schema.column(place).path for place in range(len(file.schema.names))]
    found = [name for name in names if any(within(leaf, (name,)) for leaf in leaves)]
    file = parquet_file(path, read_dictionary=text_leaves(file, found))
    for batch in file.iter_batches(_ROWS, columns=found):
        batch.validate(full=True)
        for name in found:
            column, *inner = name.split(".")
            given = batch.column(column)
            if inner:
                given = pyarrow.compute.struct_field(given, inner)
            values, times = pyarrow.compute.value_counts(given.drop_null()).flatten()
            for value, count in zip(values.to_pylist(), times.to_pylist(), strict=True):
                counts[name][str(value)] += count
    return file.metadata.num_rows, counts


def _of_filter(config: Tree, section: HeedfulConfig) -> Iterator[Finding]:
    filter_ = section.filter
    knobs = {name: value for name, value in to_json(filter_).items() if name != "on"}
    told = ", ".join(f"{name}={value}" for name, value in knobs.items())
    yield Finding("ok", f"Filter {type(filter_).__name__}({told}) on {filter_.on}. Dropped prompts leave the batch.")
    if filter_.on == "outcome" and section.outcome is None:
        yield Finding(
            "note", f"{SECTION}.outcome names nothing, so outcomes are known for heedful's environments only."
        )
    owner = filters_itself(_at(config, "algorithm", {}))
    if owner == "algorithm.filter_groups":
        yield Finding("note", f"{owner} drops constant groups earlier, so heedful never sees them.")
    elif owner:
        yield Finding("note", f"{owner} is on, so heedful's filter steps aside.")


def _of_loss(config: Tree, section: HeedfulConfig) -> Iterator[Finding]:
    mode = _at(config, "actor_rollout_ref.actor.loss_agg_mode", "token-mean")
    if mode in EXACT:
        yield Finding("ok", f"loss_agg_mode={mode}: the gradient is that of a batch without the dropped rows.")
    else:
        yield Finding("note", f"loss_agg_mode={mode} is not one that heedful was tested with: {', '.join(EXACT)}.")
    prompts, mini = _at(config, "data.train_batch_size"), _at(config, "actor_rollout_ref.actor.ppo_mini_batch_size")
    if isinstance(prompts, int) and isinstance(mini, int) and 0 < mini < prompts:
        steps = -(-prompts // mini)
        yield Finding(
            "note",
            f"verl makes {steps} optimizer steps of {mini} prompts from a whole batch of {prompts}, and fewer when "
            "prompts are dropped. For one step per batch set ppo_mini_batch_size to train_batch_size.",
        )


def _of_measuring(config: Tree, section: HeedfulConfig) -> Iterator[Finding]:
    diagnostics = section.diagnostics
    if not diagnostics.enabled:
        yield Finding("note", f"{SECTION}.diagnostics.enabled=false: nothing is measured.")
        return
    prompts, members = _at(config, "data.train_batch_size"), _at(config, "actor_rollout_ref.rollout.n")
    if isinstance(prompts, int) and isinstance(members, int):
        few = min(prompts, diagnostics.prompts)
        cheap = few * few * min(members, diagnostics.thoughts)
        whole = min(prompts, section.groups_read(members))
        yield Finding(
            "note",
            f"Measurements score first turns with the actor's workers: {cheap} rows every {diagnostics.every} batches, "
            f"{whole * whole * members} rows ({whole} prompts x {whole * members} thoughts) every "
            f"{diagnostics.full_every}. A batch has {prompts * members} episodes.",
        )
    why = why_unreadable(_Dotted(config))
    if why:
        yield Finding("note", f"No information/* and retrieval/*: {why}.")


def _of_record(config: Tree, section: HeedfulConfig) -> Iterator[Finding]:
    folder = _at(config, "trainer.default_local_dir")
    if section.record:
        yield Finding("ok", f"Record: {folder}/heedful, for heedful report and heedful audit.")
    if section.on_collapse == "stop":
        yield Finding("note", "An alarm that names a collapse ends the training after its step, saved.")


class _Dotted(dict[str, Any]):
    """A tree whose names are attributes as well, as in verl's own configuration."""

    def __getattr__(self, name: str) -> Any:
        found = self.get(name)
        return _Dotted(found) if isinstance(found, Mapping) else found


def _files(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [str(file) for file in value] if isinstance(value, Sequence) else []


def _at(config: Tree, path: str, otherwise: Any = None) -> Any:
    """The value at a dotted path."""
    found: Any = config
    for name in path.split("."):
        if not isinstance(found, Mapping) or name not in found:
            return otherwise
        found = found[name]
    return found
