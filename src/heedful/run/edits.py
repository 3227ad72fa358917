"""Changes of a run's configuration since its checkpoint was written: refused, unless the user typed them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from heedful.boundary import listed, to_json, trust_flags
from heedful.run.config import TrainConfig, from_written
from heedful.storage import RunFolder
from heedful.version import __version__

FREE = ("trackers", "tracked_completions", "keep_checkpoints", "keep_rollouts")
"""Settings that change no number of a run."""
OWN = ("threads", "device")
"""Settings that each rank may have of its own: machines differ."""
LEARNED = ("seedling", "warm_start")
"""Settings that act before the first step alone."""


def refuse_edits(
    written: Mapping[str, Any] | None, config: TrainConfig, folder: RunFolder, typed: Collection[str]
) -> None:
    """Compare a configuration with the one that a checkpoint was written under.

    `written`: the configuration in the checkpoint, as JSON; `None` in one of an older version. `typed`: dotted names of
    the settings that the user typed. Their parts are typed, too.

    Raises ValueError for other settings that differ, and for those that act before the first step alone.
    """
    if written is None:
        return
    with suppress(ValueError):  # a setting is gone: the comparison names it
        written = to_json(from_written(written))  # with the defaults of settings that are younger
    before, now = dict(_flat(written)), dict(_flat(to_json(config)))
    different = _different(before, now)
    for name in different:
        if name.partition(".")[0] in LEARNED:
            raise ValueError(
                f"Expected the {name} with which {folder.path} began ({_shown(before.get(name))}), found "
                f"{_shown(now.get(name))}: the model learned from demonstrations before the first step. Leave out "
                f"--{name.replace('_', '-')}, or begin a new run."
            )
    free = (*FREE, *typed)
    edits = [name for name in different if not any(f"{name}.".startswith(f"{each}.") for each in free)]
    if edits:
        flag = f"--{edits[0].replace('_', '-')}"
        changes = (f"{name} {_shown(now.get(name))}, was {_shown(before.get(name))}" for name in edits)
        told = listed(changes, most=6, between="; ")
        raise ValueError(
            f"Expected the settings under which the last checkpoint of {folder.path} was written, found others in "
            f"{folder.config}: {told}. Change them back. To go on with another setting, type it: heedful train "
            f"--resume {folder.path} {flag} {_shown(now.get(edits[0]))}"
        )


def edits_of(before: TrainConfig, now: TrainConfig) -> dict[str, list[Any]]:
    """The dotted names of the settings that differ, with the value before and now."""
    old, new = (dict(_flat(to_json(config))) for config in (before, now))
    return {name: [old.get(name), new.get(name)] for name in _different(old, new)}


def refuse_fewer_steps(steps: int, done: int, folder: RunFolder) -> None:
    """Raise ValueError where a run is to end before its last checkpoint: later weights would count as earlier ones."""
    if steps < done:
        raise ValueError(
            f"Expected --steps of at least {done}, the steps that the last checkpoint of {folder.path} has behind it, "
            f"found {steps}. Give --steps {done} to end the run there, or leave --steps out."
        )


def settings_of_rank(config: TrainConfig, resumed: bool) -> dict[str, Any]:
    """What the ranks of a run must have in common, by dotted name."""
    flat = {name: value for name, value in _flat(to_json(config)) if name not in OWN}
    return {"version": __version__, "resume": resumed, **flat}


def refuse_other_ranks(by_rank: Sequence[Mapping[str, Any]]) -> None:
    """Raise ValueError where a rank has other settings than rank 0: each would learn in its own way."""
    first = by_rank[0]
    for rank, its in enumerate(by_rank):
        if names := _different(first, its):
            others = (f"{name} {_shown(its.get(name))}, not {_shown(first.get(name))}" for name in names)
            told = listed(others, most=6, between="; ")
            raise ValueError(
                f"Expected the settings of process 0 in every process, found others in process {rank}: {told}. "
                "Start all processes with one command line and one version of heedful."
            )


def refuse_to_begin_anew(folder: RunFolder, config: TrainConfig) -> None:
    """Raise ValueError where a run without a checkpoint has a report: going on from step 0 would delete what it says.

    Studies remove the checkpoints of finished runs, and some of their jobs train nothing.
    """
    if folder.report.exists():
        env = to_json(config)["env"]["type"]
        again = shlex.join(["heedful", "train", env, "--config", str(folder.config), *trust_flags(config), "--out"])
        raise ValueError(
            f"Expected a checkpoint in {folder.path / 'checkpoints'} to go on from, found none, and the report of "
            "earlier work. To begin at step 0 would delete its measurements. Train these settings in another folder: "
            f"{again} DIR."
        )


def _different(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    return [name for name in dict.fromkeys([*one, *other]) if one.get(name) != other.get(name)]


def _flat(tree: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted names and values. A choice, which is an object with a `type`, is named by its type."""
    for key, value in tree.items():
        name = f"{above}{key}" if key != "type" else above.removesuffix(".")
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{name}.")
        else:
            yield name, value


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:77]}..."
