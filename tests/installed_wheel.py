"""Tries a built wheel in an empty environment without torch: `python tests/installed_wheel.py dist/heedful-*.whl`.

The environment gets the wheel and its own dependencies, nothing else, and is removed afterwards. Exit code 1 and a
sentence at the first thing that does not work.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path

PACKAGE_DATA = (
    "heedful/py.typed",
    "heedful/report/layouts/charts.css",
    "heedful/report/layouts/look.js",
    "heedful/report/layouts/report.css",
    "heedful/report/layouts/report.js",
    "heedful/skill/SKILL.md",
    "heedful_verl/conf/heedful/default.yaml",
)
"""Files that are no modules and without which something installed would not work; templates are counted apart."""

LETTERS = ("ABC", "DEF")
"""What the prompts of two logged steps ask for."""

LOG = [
    {
        "step": step,
        "group": letter,
        "member": member,
        "turn": 1,
        "new_prompt_text": f"echo {letter}",
        "reply_text": f"<think>echo {letter}</think><answer>{letter}</answer>",
        "reward": float(member % 2),
        "success": member % 2,
    }
    for step, letters in enumerate(LETTERS)
    for letter in letters
    for member in range(4)
]
"""Rows of a log: four replies to each prompt, half of them paid."""

FILTER_EXAMPLE = """
import random
from heedful.filters import TopP

verdicts = TopP(p=0.9)([[1, 0, 1, 0], [1, 1, 1, 1], [0, 0, 0, 1]], random.Random(0))
print([(verdict.kept, verdict.reason) for verdict in verdicts])
"""


class Failed(Exception):
    """Something that a user would do with the wheel does not work; the message says what."""


def main(wheel: Path, constraints: Path) -> None:
    missing = missing_data(wheel)
    if missing:
        raise Failed(f"Expected package data in {wheel.name}, found no {', '.join(missing)}: see [tool.setuptools].")
    with tempfile.TemporaryDirectory() as folder:
        binaries = installed(wheel, constraints, Path(folder))
        try_out(binaries, Path(folder))
    print(f"{wheel.name}: installed without torch, it does all that was asked of it.")


def missing_data(wheel: Path) -> list[str]:
    """Which of the files that are no modules the wheel lacks."""
    names = zipfile.ZipFile(wheel).namelist()
    missing = [name for name in PACKAGE_DATA if name not in names]
    templates = [name for name in names if name.startswith("heedful/report/layouts/") and name.endswith(".html")]
    return missing if templates else [*missing, "heedful/report/layouts/*.html"]


def installed(wheel: Path, constraints: Path, folder: Path) -> Path:
    """The folder of programs of a new environment that holds the wheel."""
    venv.create(folder / "venv", with_pip=True)
    binaries = folder / "venv" / "bin"
    run([binaries / "python", "-m", "pip", "install", "--quiet", "-c", constraints.resolve(), wheel.resolve()], folder)
    return binaries


def try_out(binaries: Path, folder: Path) -> None:
    """What a user without torch can do, each with a word that its output must hold."""
    log = folder / "log.jsonl"
    log.write_text("".join(json.dumps(row) + "\n" for row in LOG), encoding="utf-8")
    python, heedful = binaries / "python", binaries / "heedful"
    expect(
        "False", [python, "-c", "import importlib.util; print(importlib.util.find_spec('torch') is not None)"], folder
    )
    expect("", [python, "-W", "error", "-c", "import heedful"], folder, exactly=True)
    expect("heedful train", [heedful, "--help"], folder)
    expect("frozen_lake", [heedful, "envs"], folder)
    expect("frozen_lake: ", [heedful, "check-env", "frozen_lake", "--quick"], folder)
    expect("2 steps, 24 episodes in 6 groups", [heedful, "audit", log, "--out", folder / "audit"], folder)
    if not (folder / "audit" / "report.html").is_file():
        raise Failed("Expected the page of the audit, audit/report.html, found none.")
    (folder / "completions.parquet").write_bytes(b"PAR1PAR1")
    expect("(pip install 'heedful[parquet]')", [heedful, "audit", folder / "completions.parquet"], folder, code=2)
    expect("[(True, 'kept'), (False, 'constant'), (True, 'kept')]", [python, "-c", FILTER_EXAMPLE], folder)


def expect(words: str, command: Sequence[str | Path], folder: Path, *, exactly: bool = False, code: int = 0) -> None:
    """Runs a command and looks for words in what it prints; errors count as printed."""
    printed = run(command, folder, code)
    if (printed != words) if exactly else (words not in printed):
        raise Failed(f"Expected {words!r} from `{spelled(command)}`, found:\n{printed}")


def run(command: Sequence[str | Path], folder: Path, code: int = 0) -> str:
    """Both outputs of a command, run outside the repository so that only the wheel is found."""
    done = subprocess.run(command, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != code:
        raise Failed(f"`{spelled(command)}` ended with exit code {done.returncode}:\n{done.stdout}")
    return done.stdout


def spelled(command: Sequence[str | Path]) -> str:
    return " ".join(Path(word).name if isinstance(word, Path) else word for word in command)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("Expected one wheel: python tests/installed_wheel.py dist/heedful-*.whl")
    try:
        main(Path(sys.argv[1]), Path(__file__).parents[1] / "constraints.txt")
    except Failed as failed:
        sys.exit(str(failed))
