"""The rules of the house that a program can check."""

import ast
import re
import subprocess
import tempfile
from pathlib import Path

import pytest

from source_trees import WHOLE_HOUSE, Nodes, nodes, nodes_of, tree

ROOT = Path(__file__).parents[1]

BROAD_EXCEPTS = 4
"""Around calls into an environment, a tracker, a watch inside TRL, and what other ranks wait for."""

WATCHES_GLOBALS = ROOT / "src" / "heedful" / "envs" / "checking" / "rules.py"
"""Moves the shared generators to see who draws from them, and puts them back; a test of its own says so."""

ISOLATES_GLOBALS = ROOT / "src" / "heedful_envs" / "adapters" / "global_random.py"
"""Gives foreign code that draws from the shared generators a state of its own, and puts them back, too."""

SEEDS_PROGRAMS = ROOT / "src" / "lockbox" / "program.py"
"""Seeds the shared generator of a process that runs one foreign program, and ends with it."""

OWN_GENERATORS = {"random.Random", "random.SystemRandom"}
NUMPY_GENERATORS = {"default_rng", "Generator", "SeedSequence", "PCG64", "BitGenerator"}
TORCH_SEEDING = {
    "torch.manual_seed",
    "torch.seed",
    "torch.random.manual_seed",
    "torch.random.seed",
    "torch.cuda.manual_seed",
    "torch.cuda.manual_seed_all",
    "torch.mps.manual_seed",
    "transformers.set_seed",
}


def project_files() -> list[Path]:
    """What belongs to the project: what git tracks or would track."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    if not (ROOT / ".git").exists():
        pytest.skip("this is no git checkout, so there is no list of the project's files")
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    return [ROOT / name for name in names if name and (ROOT / name).is_file()]


def machine_paths(text: str, root: Path, home: Path) -> list[str]:
    """Absolute paths of the machine that a text was written on. The folder of temporary files is on all machines."""
    places = {str(place) for place in (root.parent, home) if len(place.parts) > 1} - {tempfile.gettempdir()}
    found = [rf"(?<![\w./-]){re.escape(place)}(?=/)" for place in sorted(places)]
    homes = [r"(?<![\w.])/(?:home|Users)/(?!(?:you|user|me)/)\w+/", r"(?<![\w.])/root/"]
    return [match[0] for pattern in [*found, *homes] for match in re.finditer(pattern, text)]


def broad_excepts(nodes: Nodes) -> list[int]:
    """The lines of handlers that catch everything, `suppress(Exception)` included."""
    lines = []
    for node in nodes:
        caught: list[ast.expr | None] = []
        if isinstance(node, ast.ExceptHandler):
            caught = list(node.type.elts) if isinstance(node.type, ast.Tuple) else [node.type]
        elif isinstance(node, ast.Call) and dotted(node.func).endswith("suppress"):
            caught = list(node.args)
        if any(each is None or dotted(each) in ("Exception", "BaseException") for each in caught):
            lines.append(node.lineno)
    return lines


def dotted(node: ast.AST) -> str:
    """`a.b.c` for a name with attributes; empty for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    parent = dotted(node.value) if isinstance(node, ast.Attribute) else ""
    return f"{parent}.{node.attr}" if parent and isinstance(node, ast.Attribute) else ""


def global_state(nodes: Nodes) -> list[str]:
    """Calls of `hash`, and every mention of a global random generator."""
    full_names: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.split(".")[0]
                full_names |= {alias.asname: alias.name} if alias.asname else {top: top}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            full_names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    found = []
    for node in nodes:
        first, dot, rest = dotted(node).partition(".")
        name = f"{full_names.get(first, '')}{dot}{rest}"
        if isinstance(node, ast.Call) and dotted(node.func) == "hash":
            name = "hash"
        if name == "hash" or _is_global_generator(name):
            found.append(f"{name} in line {getattr(node, 'lineno', 0)}")
    return found


def _is_global_generator(name: str) -> bool:
    if name in TORCH_SEEDING:
        return True
    if name.startswith("numpy.random."):
        return name.split(".")[2] not in NUMPY_GENERATORS
    return name.startswith("random.") and name not in OWN_GENERATORS


def test_no_file_names_a_place_of_the_machine_it_was_written_on() -> None:
    found = {}
    for file in project_files():
        try:
            text = file.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        places = machine_paths(text, ROOT, Path.home())
        if places and file != Path(__file__):
            found[str(file.relative_to(ROOT))] = places
    assert found == {}


def test_at_most_four_handlers_catch_everything() -> None:
    found = {str(file.relative_to(ROOT)): broad_excepts(nodes(file)) for file in WHOLE_HOUSE}
    found = {file: lines for file, lines in found.items() if lines}
    assert len(found.pop(str(SEEDS_PROGRAMS.relative_to(ROOT)))) == 1  # around the program itself, in its own process
    assert sum(map(len, found.values())) <= BROAD_EXCEPTS, found


def test_nothing_hashes_or_draws_from_a_global_generator() -> None:
    found = {file: global_state(nodes(file)) for file in WHOLE_HOUSE}
    found = {file: names for file, names in found.items() if names}
    assert found.keys() == {WATCHES_GLOBALS, ISOLATES_GLOBALS, SEEDS_PROGRAMS}, found


def test_every_module_says_what_it_is_for() -> None:
    empty = [
        str(file.relative_to(ROOT))
        for file in WHOLE_HOUSE
        if file.read_text().strip() and not ast.get_docstring(tree(file))
    ]
    assert empty == []


def test_the_rules_find_what_they_forbid() -> None:
    assert machine_paths("see /data/build/x, not https://a/data/build/x", Path("/data/build/heedful"), Path("/")) == [
        "/data/build"
    ]
    assert machine_paths("/home/ada/runs and /Users/you/runs", Path("/a"), Path("/")) == ["/home/ada/"]
    handlers = """
try: ...
except (ValueError, BaseException): ...
except ValueError: ...
except Exception as error: ...
try: ...
except: ...
with contextlib.suppress(Exception): ...
with contextlib.suppress(OSError): ...
"""
    assert sorted(broad_excepts(nodes_of(handlers))) == [3, 5, 7, 8]
    calls = """
import numpy as np, random, torch
from random import choice
hash(1); random.seed(0); choice([1]); np.random.rand(); torch.manual_seed(0)
map(random.shuffle, [])
random.Random(0).random(); np.random.default_rng(0); rng.random(); torch.Generator().manual_seed(0)
"""
    assert sorted(each.split(" ")[0] for each in global_state(nodes_of(calls))) == [
        "hash",
        "numpy.random.rand",
        "random.choice",
        "random.seed",
        "random.shuffle",
        "torch.manual_seed",
    ]
