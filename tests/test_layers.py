"""Who may import whom: the layers of docs/architecture.md, three walls, and what loads without torch.

The imports are read from the source, so those inside functions and under TYPE_CHECKING count as well.
"""

import ast
import graphlib
import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from patience import PATIENCE
from source_trees import PACKAGE, ROOT, SOURCES, statements, tree

PAGE = PACKAGE.parents[1] / "docs" / "architecture.md"


def layers_of(page: str) -> dict[str, int]:
    """Package or module -> layer: the table of docs/architecture.md, whose rows begin `| 2 | algorithms, envs |`."""
    section = page.partition("## Layers")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (\d+) \|([^|]*)\|", section, flags=re.MULTILINE)
    return {name: int(layer) for layer, names in rows for name in re.findall(r"`(\w+)`", names)}


LAYERS = layers_of(PAGE.read_text(encoding="utf-8"))

WALL_A = {"heedful": {"types", "protocols", "exports", "diagnostics"}, "others": {"numpy", "annotated_types"}}
"""All that the diagnostics may import: what they measure is passed in."""

WALL_B = {
    "exports",
    *("types", "protocols", "seeds", "guarded", "boundary", "models", "diagnostics", "filters"),
    *("algorithms", "storage", "scorers", "measuring", "rollout.player", "rollout.context", "envs", "integrations"),
    *("auditing", "watching", "rollout.rounds", "rollout.choosers"),
    "pixels",
    "command_process",
}
"""All that the integrations may import."""

FOREIGN_TRAINERS = {"trl", "verl"}

HEAVY = ("torch", "transformers", "tokenizers", "safetensors")

NEEDS_TORCH = {
    "algorithms.losses",
    "training.ranks.joining",
    "training.ranks.sharding",
    "training.ranks.world",
    "training.gradients.adamw",
    "training.gradients.attribution",
    "training.gradients.meter",
    "training.gradients.parts",
    "training.gradients.slopes",
    "training.gradients.trajectory_gradients",
    "training.gradients.update_parts",
    "integrations",
    "models.forward.attention",
    "models.chat.template",
    "models.forward.exactness",
    "models.forward.fast_linear",
    "models.forward.spread",
    "models.forward.states",
    "models.gguf",
    "models.load",
    "models.own_tokenizer",
    "models.forward.token_logits",
    "models.vision",
    "models.writing",
    "models.forward.token_scores",
    "policies.drawing",
    "policies.growing",
    "policies.hf",
    "policies.kv",
    "policies.next_logits",
    "run.checkpoint",
    "run.loop",
    "run.parts",
    "run.update",
    "scorers.cached",
    "scorers.hf",
    "scorers.judge",
    "scorers.kept",
    "scorers.output_head",
    "scorers.packed",
    "scorers.packed_attention",
    "seedlings.eyes",
    "seedlings.fit",
    "seedlings.grow",
    "seedlings.tokenizer",
    "seedlings.warm_start",
    "studies.sampling",
    "training.batch",
    "training.correction",
    "training.critic",
    "training.learner",
    "training.lora",
    "training.objective",
    "training.optimizer_step",
    "training.recompute",
    "training.update_metrics",
}
"""What may fail to load where the extra `train` is not installed; everything else must load."""


def module_of(file: Path) -> str:
    """`filters` for src/heedful/filters.py, `heedful` for the package's own page."""
    parts = list(file.relative_to(PACKAGE).with_suffix("").parts)
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join(parts) or "heedful"


MODULES = {module_of(file): file for file in SOURCES}


def imports_of(module: str, source: ast.Module, is_package: bool = False) -> tuple[set[str], set[str]]:
    """What a module imports: (modules of heedful, top-level names of everything else)."""
    own: set[str] = set()
    others: set[str] = set()
    parents = [] if module == "heedful" else module.split(".")
    parents = ["heedful", *(parents if is_package else parents[:-1])]
    for node in statements(source):
        if isinstance(node, ast.Import):
            targets = [(alias.name, None) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = parents[: len(parents) - node.level + 1] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            targets = [(origin, alias.name) for alias in node.names]
        else:
            continue
        for origin, name in targets:
            if origin.split(".")[0] != "heedful":
                others.add(origin.split(".")[0])
                continue
            inside = origin.removeprefix("heedful").removeprefix(".")
            deeper = f"{inside}.{name}".removeprefix(".")
            own.add(deeper if name and deeper in MODULES else inside or "heedful")
    return own, others


@cache
def imports() -> dict[str, tuple[set[str], set[str]]]:
    """What each module of heedful imports. Every file is read once, and not while tests are collected."""
    return {module: imports_of(module, tree(file), file.name == "__init__.py") for module, file in MODULES.items()}


def belongs(module: str, rows: set[str]) -> bool:
    """Whether a module is one of the rows, or inside one."""
    return any(module == row or module.startswith(f"{row}.") for row in rows)


def layer_of(module: str) -> int:
    package = module.split(".")[0]
    if package not in LAYERS:
        pytest.fail(f"heedful.{package} has no layer: add it to the table of layers in docs/architecture.md.")
    return LAYERS[package]


def complaint(importer: str, imported: str) -> str:
    """A sentence about an import that does not point down; empty where it does, or stays in its package."""
    upper, lower = layer_of(importer), layer_of(imported)
    if lower < upper or importer.split(".")[0] == imported.split(".")[0]:
        return ""
    direction = "up" if lower > upper else "sideways"
    return f"heedful.{importer} (layer {upper}) imports heedful.{imported} (layer {lower}): {direction}."


def test_every_module_that_is_imported_exists() -> None:
    absent = {module: own - MODULES.keys() for module, (own, _) in imports().items()}
    assert {module: names for module, names in absent.items() if names} == {}


def test_the_table_of_layers_names_every_package_once() -> None:
    packages = {module.split(".")[0] for module in MODULES}
    assert set(LAYERS) == packages


def test_imports_point_down_or_stay_in_their_package() -> None:
    complaints = [complaint(module, imported) for module, (own, _) in imports().items() for imported in sorted(own)]
    assert [sentence for sentence in complaints if sentence] == []


def test_an_import_that_points_up_or_sideways_is_found() -> None:
    assert complaint("filters", "training.learner").endswith("(layer 6): up.")
    assert complaint("policies.hf", "filters").endswith("(layer 4): sideways.")
    assert complaint("policies.hf", "policies.kv") == ""
    assert complaint("filters", "diagnostics.statistics.group_statistics") == ""
    with pytest.raises(pytest.fail.Exception, match=r"heedful\.helpers has no layer: add it to the table"):
        layer_of("helpers.words")


def test_every_way_to_write_an_import_is_read() -> None:
    source = """
import torch.nn
from heedful import filters
from heedful.storage import read_metrics
def later():
    from .hf import HfPolicy
    from ..envs.common import tasks
    import heedful.models.chat.render
"""
    own, others = imports_of("policies.load", ast.parse(source))
    assert own == {"filters", "storage", "policies.hf", "envs.common.tasks", "models.chat.render"}
    assert others == {"torch"}


def test_no_modules_import_each_other_in_a_circle() -> None:
    # A package's own page gathers its modules; they may import each other, but not through it.
    graph = {module: imports()[module][0] - {"heedful", module} for module in MODULES if module != "heedful"}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        pytest.fail(f"Modules import each other in a circle: {' -> '.join(error.args[1])}.")


def test_wall_a_diagnostics_reach_nothing_but_what_is_passed_in() -> None:
    for module in (module for module in MODULES if belongs(module, {"diagnostics"})):
        own, others = imports()[module]
        beyond = {name for name in own if not belongs(name, WALL_A["heedful"])}
        beyond |= others - WALL_A["others"] - sys.stdlib_module_names
        assert not beyond, f"heedful.{module} imports {sorted(beyond)}, which a reading must not reach."


def test_wall_b_integrations_never_load_our_training_nor_we_a_foreign_trainer() -> None:
    for module, (own, others) in imports().items():
        if belongs(module, {"integrations"}):
            outside = {name for name in own if not belongs(name, WALL_B)}
            assert not outside, f"heedful.{module} imports {sorted(outside)}, which an integration must not load."
        else:
            assert not others & FOREIGN_TRAINERS, f"heedful.{module} imports a trainer that only integrations may."


ANNEXES = {"heedful_envs", "heedful_verl", "lockbox", "research"}


def test_the_core_imports_no_annex() -> None:
    tied = {module: others & ANNEXES for module, (_, others) in imports().items() if others & ANNEXES}
    assert tied == {}


PUBLIC_MODULES = {"heedful.types", "heedful.protocols", "heedful.seeds"}
"""Modules whose names are all public. Of a package the names in its `__all__` are."""


@cache
def public_names(package: str) -> set[str]:
    """The `__all__` of a package of heedful. Empty for a module, and for a package without one."""
    page = PACKAGE.joinpath(*package.split(".")[1:], "__init__.py")
    if not page.is_file():
        return set()
    lists = (
        node.value
        for node in tree(page).body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__"
    )
    return {name for value in lists for name in ast.literal_eval(value)}


def private_imports(module: ast.Module) -> set[str]:
    """What a module imports of heedful that is not public, as `package:name`."""
    found: set[str] = set()
    for node in statements(module):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.split(".")[0] == "heedful"} - {"heedful"}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "heedful":
            package = str(node.module)
            names = {alias.name for alias in node.names} - public_names(package)
            names -= {name for name in names if public_names(f"{package}.{name}")}  # a public package
            if package not in PUBLIC_MODULES:
                found |= {f"{package}:{name}" for name in names}
    return found


@pytest.mark.parametrize("annex", ["heedful_envs", "heedful_verl"])
def test_an_annex_imports_public_names_only(annex: str) -> None:
    files = sorted((ROOT / "src" / annex).rglob("*.py"))
    tied = {str(file.relative_to(ROOT)): sorted(private_imports(tree(file))) for file in files}
    assert {file: names for file, names in tied.items() if names} == {}


def test_lockbox_imports_nothing_of_heedful() -> None:
    files = sorted((ROOT / "src" / "lockbox").rglob("*.py"))
    tied = {file.name for file in files if {"heedful", *ANNEXES} & (imports_of("m", tree(file))[1] - {"lockbox"})}
    tied |= {file.name for file in files if imports_of("m", tree(file))[0]}
    assert tied == set()


def in_a_fresh_process(program: str) -> str:
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_wall_c_everything_but_the_model_code_loads_without_torch() -> None:
    light = [f"heedful.{module}" for module in MODULES if module not in ("heedful", "__main__")]
    light = [module for module in light if not belongs(module.removeprefix("heedful."), NEEDS_TORCH)]
    failures = in_a_fresh_process(f"""
import importlib, json, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {HEAVY!r}:
            raise ImportError(f"{{name}} is kept out of this test")

sys.meta_path.insert(0, Absent())
failures = {{}}
for module in {light!r}:
    try:
        importlib.import_module(module)
    except ImportError as error:
        failures[module] = str(error)
print(json.dumps(failures))
""")
    assert json.loads(failures) == {}, "Import torch inside the function that needs it, or add a row to NEEDS_TORCH."


def test_wall_c_the_door_and_the_renderer_load_no_library() -> None:
    loaded = in_a_fresh_process(f"""
import sys, heedful.boundary, heedful.models.chat.render
print({{*{HEAVY!r}, "numpy", "rich", "jinja2"}} & set(sys.modules))
""")
    assert loaded == "set()\n"


def test_wall_c_a_watch_of_scalars_begins_without_what_rollouts_and_pages_need() -> None:
    loaded = in_a_fresh_process("""
import sys, heedful.cli.watch, heedful.auditing.follow, heedful.watching.status, heedful.watching.terminal
for_later = {"heedful.auditing.measure", "heedful.measuring", "heedful.models", "heedful.envs.common",
             "heedful.auditing.conclusion", "heedful.diagnostics.actions", "heedful.report.page", "jinja2", "pyarrow"}
print(for_later & set(sys.modules))
""")
    assert loaded == "set()\n"


def test_wall_c_importing_heedful_loads_the_plain_types_only() -> None:
    loaded = in_a_fresh_process("""
import sys
before = set(sys.modules)
import heedful
print(*sorted({name for name in set(sys.modules) - before if name.split(".")[0] not in sys.stdlib_module_names}))
""")
    assert set(loaded.split()) <= {"heedful", "heedful.exports", "heedful.import_path", "heedful.version"}
