"""The run folder: the path of each file, how a run claims a folder, and what a resume removes."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from heedful.boundary.jsontext import read_json
from heedful.storage.files import claim_folder, write_whole
from heedful.storage.locks import LOCK

_STEP_FILE = re.compile(r"step_(\d+)(?:_\w+)?\.(?:parquet|npz)")
_OF_THE_END = (
    *("report.html", "report_steps", "verdict.json", "gradients.html", "attribution.html"),
    *("tensorboard", "wandb", "forks", "fork.json"),
)
_PACKAGES = (
    *("heedful", "numpy", "pyarrow", "torch", "transformers", "tokenizers", "safetensors"),
    *("trl", "verl", "vllm", "pillow"),
)


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The paths of one run. Creating the object changes nothing on disk."""

    path: Path
    begun: os.stat_result | None = field(default=None, compare=False, repr=False)
    """The folder as it was when this process began to work in it."""

    @classmethod
    def create(cls, root: Path | str, environment: str, algorithm: str, seed: int) -> RunFolder:
        """Claim `<root>/<environment>-<algorithm>-s<seed>-<n>` with the first free n from 1. Process-safe."""
        path = claim_folder(Path(root) / f"{environment}-{algorithm}-s{seed}-{number}" for number in count(1))
        return cls(path, path.stat())

    @classmethod
    def open(cls, out: Path | str, resume: bool = False) -> RunFolder:
        """Use the folder `out` that the user named.

        Raises:
            ValueError: it is a file, or it is not empty without a resume, or a resume finds no run in it.
        """
        path = Path(out)
        if path.is_file():
            advice = _advice(path) if resume else "Give another --out."
            raise ValueError(f"Expected a folder for the run at {path}, found a file. {advice}")
        entries = sorted(entry.name for entry in path.iterdir() if entry.name != LOCK) if path.exists() else []
        if resume and not is_run(path):
            found = f"only {', '.join(entries[:5])}" if entries else "nothing"
            found = "the config.json of something else" if "config.json" in entries else found
            raise ValueError(f"Expected the config.json of a run to resume in {path}, found {found}. {_advice(path)}")
        if entries and not resume:
            raise ValueError(
                f"Expected an empty or new folder for the run at {path}, found {len(entries)} entries "
                f"({', '.join(entries[:3])}{', ...' if len(entries) > 3 else ''}). "
                "Add --resume to continue that run, or give another --out."
            )
        path.mkdir(parents=True, exist_ok=True)
        return cls(path, path.stat())

    @property
    def in_place(self) -> bool:
        """Whether the folder is still where this process began to work in it."""
        with suppress(OSError):
            return self.begun is None or os.path.samestat(self.begun, self.path.stat())
        return False

    def refuse_moved(self, option: str) -> None:
        """Raise ValueError if the folder was moved: writing would make it anew, and split the work over two."""
        if not self.in_place:
            raise ValueError(
                f"Expected the folder {self.path} in its place until the work ends, found that it was moved or "
                f"removed. If it was moved, give its new name to {option} to go on."
            )

    @property
    def config(self) -> Path:
        """The resolved configuration."""
        return self.path / "config.json"

    @property
    def environment(self) -> Path:
        """The result of `describe_environment` at the start."""
        return self.path / "environment.json"

    @property
    def fork(self) -> Path:
        """Of a run that `heedful fork` began: its parent, the checkpoint and the settings that differ."""
        return self.path / "fork.json"

    @property
    def forks(self) -> Path:
        """The forks of this run, one folder for each start of `heedful fork` with other settings."""
        return self.path / "forks"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def tasks(self) -> Path:
        """History of each task of the pool, as of the last checkpoint."""
        return self.path / "tasks.json"

    @property
    def verdict(self) -> Path:
        """The run's conclusion: sentences and the regime."""
        return self.path / "verdict.json"

    @property
    def report(self) -> Path:
        return self.path / "report.html"

    @property
    def gradients_page(self) -> Path:
        """The page of `heedful gradients` with every measured checkpoint."""
        return self.path / "gradients.html"

    def gradients(self, step: int) -> Path:
        """Signal and noise of the gradient at the checkpoint of a step."""
        return self.path / f"{_step_name(step).replace('step', 'gradients')}.json"

    def gradient_steps(self) -> list[int]:
        """The steps with stored gradient measurements, ascending."""
        return self._steps("", r"gradients_(\d+)\.json")

    @property
    def attribution_page(self) -> Path:
        """The page of `heedful gradients --attribute` with every update that was split."""
        return self.path / "attribution.html"

    def attribution(self, step: int) -> Path:
        """The parts of the update of a step."""
        return self.path / f"{_step_name(step).replace('step', 'attribution')}.json"

    def attribution_steps(self) -> list[int]:
        """The steps whose updates were split, ascending."""
        return self._steps("", r"attribution_(\d+)\.json")

    def rollouts(self, step: int, of: str = "") -> Path:
        """The rollouts of a step. `of` names an evaluation (`val_greedy`), empty = the training rollouts."""
        return self.path / "rollouts" / f"{_step_name(step)}{f'_{of}' if of else ''}.parquet"

    def checkpoint(self, step: int) -> Path:
        return self.path / "checkpoints" / _step_name(step)

    def scores(self, step: int) -> Path:
        """The cross-scores of a step's full diagnosis."""
        return self.path / "scores" / f"{_step_name(step)}.npz"

    def early(self, step: int) -> Path:
        """What first actions are when thoughts are cut, at the evaluation of a step."""
        return self.path / "early" / f"{_step_name(step)}.json"

    def early_steps(self) -> list[int]:
        """The evaluated steps whose early answers are stored, ascending."""
        return self._steps("early", r"step_(\d+)\.json")

    def rollout_steps(self) -> list[int]:
        """The steps whose training rollouts are stored, ascending."""
        return self._steps("rollouts", r"step_(\d+)\.parquet")

    def score_steps(self) -> list[int]:
        """The steps whose cross-scores are stored, ascending."""
        return self._steps("scores", r"step_(\d+)\.npz")

    def checkpoint_steps(self) -> list[int]:
        """The steps that have a checkpoint, ascending. Incomplete checkpoints are included."""
        return self._steps("checkpoints", r"step_(\d+)")

    def _steps(self, folder: str, pattern: str) -> list[int]:
        names = (re.fullmatch(pattern, entry.name) for entry in (self.path / folder).glob("*"))
        return sorted(int(name[1]) for name in names if name and _step_name(int(name[1])) == f"step_{name[1]}")

    def copy_until(self, step: int, folder: Path, episodes: bool = True) -> None:
        """Copy the run to another folder as it was at the checkpoint of `step`, the files of its end left out.

        Lines of `metrics.jsonl` after that step are copied, too: `truncate_after` removes them. `episodes`: copy the
        rollouts, cross-scores and early answers, which may be large.
        """
        left_out = (LOCK, *_OF_THE_END, *(() if episodes else ("rollouts", "scores", "early")))

        def later(parent: str, names: list[str]) -> list[str]:
            steps = {name: re.search(r"_(\d{6,})", name) for name in names}
            others = [name for name in names if name in left_out]
            if Path(parent).name == "checkpoints":
                return [*others, *(name for name in names if name != _step_name(step))]
            return [*others, *(name for name, found in steps.items() if found and int(found[1]) > step)]

        shutil.copytree(self.path, folder, ignore=later, dirs_exist_ok=True)

    def truncate_after(self, step: int) -> None:
        """Remove everything later than `step`: rollouts, cross-scores, early answers, measurements and the report.

        The remaining lines of `metrics.jsonl` keep their bytes. An incomplete last line is removed. Checkpoints stay.
        """
        later = [
            entry
            for folder in ("rollouts", "scores", "early")
            for entry in (self.path / folder).glob("step_*")
            if (name := _STEP_FILE.fullmatch(entry.name)) and int(name[1]) > step
        ]
        for entry in later:
            entry.unlink()
        lines = self.metrics.read_bytes().splitlines(keepends=True) if self.metrics.exists() else []
        kept = [line for line in lines if line.endswith(b"\n") and json.loads(line)["step"] <= step]
        if len(kept) < len(lines):
            write_whole(self.metrics, b"".join(kept))
        if later or len(kept) < len(lines):
            self.report.unlink(missing_ok=True)


def is_run(path: Path) -> bool:
    """Whether a folder holds a run's configuration. (A model's folder has a config.json, too.)

    Raises OSError or ValueError where there is a config.json that cannot be read: it may be that of a run.
    """
    try:
        tree = read_json(path / "config.json")
    except (FileNotFoundError, NotADirectoryError):
        return False
    except ValueError as error:
        raise ValueError(
            f"Expected JSON in {path / 'config.json'}, found {error}. Restore the file, or delete it."
        ) from error
    return isinstance(tree, dict) and {"env", "steps", "algorithm"} <= tree.keys()


def _advice(path: Path) -> str:
    """What to resume in place of a path, such as that of a checkpoint, which is no run."""
    for around in path.absolute().parents[:3]:
        with suppress(OSError, ValueError):
            if is_run(around):
                return f"Give the folder of its run, {around}, to --resume."
    return "Give the folder of a run to --resume, or leave it out to begin a new run."


def _step_name(step: int) -> str:
    return f"step_{int(step):06d}"


def describe_environment(device: str, threads: int, processes: int = 1) -> dict[str, object]:
    """Everything a run must record to be repeatable: versions, processes, threads, device, platform, commit.

    A package that is not installed is `None`, as is the commit of a source that is not under version control.
    """
    import importlib.metadata

    versions: dict[str, str | None] = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = None
    return {
        "versions": versions,
        "processes": processes,
        "threads": threads,
        "device": device,
        "platform": {
            "system": platform.system(),
            "machine": platform.machine(),
            "release": platform.release(),
            "implementation": sys.implementation.name,
        },
        "commit": _commit(),
    }


def _commit() -> dict[str, object] | None:
    """The commit of heedful's own source, and whether the tree has changes."""
    here = Path(__file__).resolve()

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", *words], cwd=here.parent, capture_output=True, text=True, timeout=10, check=True
        ).stdout

    try:
        # An installed copy may be inside another project's checkout: only a tracked file belongs to this repository.
        git("ls-files", "--error-unmatch", here.name)
        changes = git("status", "--porcelain", "--untracked-files=no")
        return {"id": git("rev-parse", "HEAD").strip(), "changed": bool(changes.strip())}
    except (OSError, subprocess.SubprocessError):
        return None
