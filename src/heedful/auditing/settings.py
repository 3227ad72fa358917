"""The settings of an audit, and what an audited run of heedful says about itself.

This module loads without torch. What the user left open is settled once, from the run's own configuration where there
is one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from heedful.boundary import (
    Count,
    NamesSecret,
    Temperature,
    Text,
    Threads,
    settings,
)
from heedful.boundary.jsontext import read_json
from heedful.diagnostics.cross_scores.thoughts import ThoughtTags
from heedful.storage import is_run

_CHECKPOINT = re.compile(r"step_(\d+)")
_TRL_CHECKPOINT = re.compile(r"checkpoint-(\d+)")
_RECORD = re.compile(r"heedful(?:-(\d+))?")
"""What heedful leaves in the output folder of another trainer. A second run there has a number."""


@settings(kw_only=True)
class AuditSettings:
    """What can be set on the command line of `heedful audit`."""

    model: str | None = None
    """A causal model (folder, `smollm2` or Hugging Face name) that reads prompts and thoughts; none = what
    needs no model."""
    server: str | None = None
    """A server's URL: its model reads prompts and thoughts, in place of --model. Only logs sampled at temperature 1."""
    model_name: str | None = None
    """The name of the model on that server."""
    tokenizer: str | None = None
    """The tokenizer of that model, a folder or a Hugging Face name."""
    api_key_env: Annotated[str, NamesSecret()] = ""
    """The environment variable that holds that server's API key. The key itself is written nowhere."""
    connections: Threads = 32
    """Most requests to that server at once."""
    tags: tuple[Text, Text] | None = None
    """What opens and closes a thought; none = <think>,</think>, or the run's own."""
    temperature: Temperature | None = None
    """Temperature of sampling, where the log does not hold it; none = 1."""
    on: str | None = None
    """Whose spread signal/* describes: reward, outcome or a reward column; none = reward, or the run's own."""
    rewards: tuple[str, ...] = ()
    """The columns whose sum is the reward; empty = all that can be."""
    success: str | None = None
    """The column that holds success, 0 to 1; none = one that is called so by custom."""
    map: tuple[str, ...] = ()
    """NAME=KEY, with commas between several: keys of scalars that are not known, as success=rewards/correct/mean."""
    validation_tasks: Count | None = None
    """Tasks behind each validation score among the scalars, which gives it an interval; none = not known."""
    every: Count = 1
    """Read the thoughts (by --model, and by the judge of words) at every N-th step of the log."""
    join: Count = 1
    """Read N consecutive steps of the log as one, where a step has few prompts."""
    prompts: Count = 32
    """Prompts that are read in one step."""
    thoughts: Count = 4
    """Thoughts per prompt that --model reads."""
    keep_rollouts: bool = True
    """Keep the episodes in the audit's folder (`rollouts/`, parquet), so that its page shows them. Needs pyarrow."""
    seed: int | None = None
    """Seed of drawing prompts and of permutation tests; none = 0, or the run's own."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Type of the model's weights; log-probabilities are float32 in any case."""
    threads: Threads | None = None
    """CPU threads of the model; none = as many as torch likes."""
    max_tokens: Count = 4096
    """Most padded tokens scored in one forward pass: changes speed and memory."""

    def __post_init__(self) -> None:
        of_server = (self.server, self.model_name, self.tokenizer)
        if of_server != (None, None, None) and not all(of_server):
            raise ValueError("server, model_name and tokenizer belong together: give all three, none empty, or none")
        if self.server and self.model:
            raise ValueError("give a model that scores in this process, or a server that scores, and not both")
        if self.api_key_env and not self.server:
            raise ValueError("api_key_env belongs to a server; name it with --server URL")
        if self.tags is not None and self.tags[0] == self.tags[1]:
            raise ValueError(f"tags must be two different texts, found {self.tags}")

    @property
    def scores(self) -> bool:
        """Whether a model scores the thoughts, in this process or on a server."""
        return self.model is not None or self.server is not None


@dataclass(frozen=True, slots=True)
class OwnRun:
    """The run of ours that a log belongs to."""

    folder: Path
    config: Mapping[str, Any]

    @classmethod
    def of(cls, source: Path) -> OwnRun | None:
        """The run whose folder is or contains `source`, or that left its record next to it; `None` where there is none.

        Of several records in one output folder it is the last: its logs replaced those of the others.
        """
        for place in _places(source):
            config = _json(place / "config.json")
            if {"env", "steps", "algorithm"} <= config.keys():
                return cls(place, config)
        return None

    def version_of(self, model: str) -> int | None:
        """The training steps behind `model` if it is one of this run's checkpoints, ours or TRL's."""
        path, folder = Path(model).resolve(), self.folder.resolve()
        if path.parent == folder / "checkpoints":
            step = _CHECKPOINT.fullmatch(path.name)
        else:
            step = _TRL_CHECKPOINT.fullmatch(path.name) if path.parent == folder.parent else None
            # An output folder may hold checkpoints of several runs; each says which record it belongs to.
            if step is not None and _json(path / "heedful.json").get("folder") != folder.name:
                return None
        return int(step[1]) if step is not None else None

    @property
    def tags(self) -> ThoughtTags:
        tags = self._part("tags")
        return ThoughtTags(str(tags.get("open", "<think>")), str(tags.get("close", "</think>")))

    @property
    def on(self) -> str:
        return str(self._part("filter").get("on", "outcome"))

    @property
    def seed(self) -> int:
        return int(self.config.get("seed") or 0)

    @property
    def reward_weights(self) -> Mapping[str, float]:
        """Reward function -> its weight in the reward, where another trainer weighed them."""
        weights = self._part("reward_weights")
        return {name: float(weight) for name, weight in weights.items() if weight is not None}

    @property
    def unknown(self) -> Mapping[str, str]:
        """What the trainer could not know -> why: the rows hold placeholders there."""
        return self._part("unknown")

    def _part(self, name: str) -> Mapping[str, Any]:
        return self.config.get(name) or {}


def refuse_unreadable_runs(source: Path) -> None:
    """Raise OSError or ValueError for a config.json that cannot be read, where the run of a log of ours may be."""
    for place in _places(source):
        is_run(place)


def _places(source: Path) -> Iterator[Path]:
    """Where the configuration of a log's run may be: of several records in one folder the last one comes first."""
    for folder in (source, source.parent, source.parent.parent):
        entries = folder.iterdir() if folder.is_dir() else ()
        records = [(int(name[1] or 1), entry) for entry in entries if (name := _RECORD.fullmatch(entry.name))]
        yield from (folder, *(entry for _, entry in sorted(records, reverse=True)))


def _json(path: Path) -> dict[str, Any]:
    """The object in a file; empty where there is none."""
    try:
        tree = read_json(path)
    except (OSError, ValueError):
        return {}
    return tree if isinstance(tree, dict) else {}
