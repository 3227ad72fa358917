"""Task files: `python -m heedful_verl.tasks ENV --tasks N --out tasks.parquet`.

A row is one task: the environment with its knobs as JSON, the task's seed, and the first observation as the prompt. The
agent loop `heedful` plays it, and verl's own dataset reads the file. Neither verl nor torch is needed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from heedful import envs
from heedful.boundary import (
    Choice,
    CommandLine,
    Count,
    Positional,
    Shown,
    encodable,
    from_json,
    settings,
    tell,
    to_json,
)
from heedful.cli import prepare_streams, run_command
from heedful.envs.common import (
    TaskStream,
    check_same_start,
    own_environment,
    read_task,
    task_of_seed,
    task_tree,
    turns_of,
)
from heedful.protocols import Environment
from heedful.rollout import first_observation
from heedful.storage import refuse_typed, write_whole
from heedful.types import Task
from heedful_verl.play.episodes import FIELD
from heedful_verl.play.playing import PlayedEnvironment
from heedful_verl.settings import REGISTER, VARIABLE

LOOP = "heedful"
"""The name of the agent loop, which verl looks up for each row."""

_PROGRAM = "python -m heedful_verl.tasks"


@dataclass(frozen=True, slots=True)
class VerlTask:
    """What a row says about its task."""

    environment: str
    """The environment and its knobs, as JSON."""
    task: str
    """The id of the task, which names its start state."""
    seed: int

    def draw(self, env: Environment) -> Task:
        """The task. Raises ValueError if this environment draws another start state from the seed."""
        drawn = task_of_seed(env, self.seed)
        check_same_start(drawn, Task(self.task, self.seed, drawn.split))
        return drawn


def read_task_row(row: Mapping[str, Any]) -> VerlTask:
    """The task of a row. Raises ValueError for a row of another origin."""
    given = (row.get("extra_info") or {}).get(FIELD)
    if not isinstance(given, Mapping):
        raise ValueError(
            f"Expected a row of a task file of heedful (`extra_info.{FIELD}`), found "
            f"{sorted(row.get('extra_info') or {})}. Write the file with: {_PROGRAM} ENV --tasks N --out FILE"
        )
    return from_json(VerlTask, dict(given))


def task_rows(env: Environment, tasks: Sequence[Task], source: str = "") -> list[dict[str, Any]]:
    """One row of verl's dataset for each task. Raises ValueError if an episode of a task cannot start.

    `source`: verl's `data_source`, by which its validation averages. Empty = the name of the environment.
    """
    environment = json.dumps(to_json(PlayedEnvironment(env=env))["env"], sort_keys=True)
    return [
        {
            "data_source": encodable(source or env.name),
            "agent_name": LOOP,
            "prompt": [{"role": "user", "content": _first_text(env, task)}],
            "reward_model": {"style": "rule", "ground_truth": ""},
            "extra_info": {
                "index": place,
                "split": task.split,
                FIELD: {"environment": environment, "task": task.id, "seed": task.seed},
            },
        }
        for place, task in enumerate(tasks)
    ]


def write_tasks(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows as a parquet file, in full or not at all. Raises ValueError for a name that verl would not read so."""
    import pyarrow
    import pyarrow.parquet

    refuse_unless_parquet(path)
    content = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(rows)), content)
    write_whole(path, content.getvalue().to_pybytes())


def refuse_unless_parquet(path: Path) -> None:
    """Raise ValueError for a name by which verl would choose another reader, or none."""
    if path.suffix != ".parquet":
        raise ValueError(
            f"Expected a name that ends in .parquet, by which verl chooses its reader, found {path.name!r:.100}. "
            "Rename the file."
        )


@dataclass(frozen=True, slots=True)
class TasksWords:
    """Write tasks of an environment as a data file of verl, which the agent loop `heedful` plays.

      python -m heedful_verl.tasks frozen_lake --tasks 512 --out train.parquet
      python -m heedful_verl.tasks frozen_lake --tasks 64 --split val --out val.parquet
      python -m heedful_verl.tasks my_game:Maze --env.size 5 --out train.parquet

    Tasks of one file are distinct, and splits never share a start state. docs/verl.md has the settings of verl.
    """

    env: Annotated[str, Positional("ENV", example="frozen_lake")]
    """An environment (heedful envs lists them), or your own dataclass as module:Class. The module must be importable on
    every node."""


@settings(kw_only=True)
class TasksSettings:
    """Settings of a task file."""

    env: Annotated[Any, Choice(envs.ENVIRONMENTS, Environment)]
    """The environment and its knobs."""
    tasks: Count = 512
    """Tasks in the file."""
    split: Literal["train", "val", "test"] = "train"
    """The split of the tasks."""
    seed: int = 0
    """Seed of the draw."""
    source: str = ""
    """verl's data_source, by which its validation averages. Empty = the name of the environment."""
    out: Annotated[Path, Shown("FILE")] = Path("tasks.parquet")
    """The file."""

    def __post_init__(self) -> None:
        refuse_unless_parquet(self.out)


def main(argv: Sequence[str]) -> int:
    """Write the file, and tell the settings of verl that read it."""
    line = CommandLine(TasksWords, argv, _PROGRAM)
    name = line.words.env
    known = own_environment(name) if ":" in name else envs.ENVIRONMENTS.get_class(name)()  # with its default knobs
    settings = line.settings(TasksSettings, TasksSettings(env=known))
    refuse_typed(settings.out, b"PAR1")
    turns = turns_of(settings.env)
    tasks = TaskStream(settings.env, settings.split, settings.seed).next(settings.tasks)
    rows = task_rows(settings.env, tasks, settings.source)
    write_tasks(settings.out, rows)
    longest = max(len(row["prompt"][0]["content"]) for row in rows)
    files = "train_files" if settings.split == "train" else "val_files"
    tell(
        f"{len(rows)} tasks of {rows[0]['data_source']} ({settings.split}) are in {settings.out}. The longest first "
        f"prompt has {longest} characters, an episode at most {turns} turns.\n"
        f"In verl: data.{files}={settings.out} with {VARIABLE}={REGISTER}"
    )
    return 0


def _first_text(env: Environment, task: Task) -> str:
    read_task(task_tree(task))  # what a row of a file can hold
    observation = first_observation(env, task)
    if observation.images:
        raise ValueError(
            f"Expected observations of text alone for verl, found pictures in task {task.id} (seed {task.seed}). "
            "Choose an observation in text, such as --env.observation both."
        )
    return encodable(observation.text)


if __name__ == "__main__":
    prepare_streams()
    sys.exit(run_command(lambda: main(sys.argv[1:])))
