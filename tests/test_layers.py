"""Who may import whom: the layers, the walls between them, and what loads without torch. To extend it, add a row.

The imports are read from the source, so those inside functions and under TYPE_CHECKING count as well.
"""

import ast
import graphlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "heedful"

LAYERS = {
    "heedful": 0,
    "types": 0,
    "protocols": 0,
    "algorithms": 1,
    "configuration": 1,
    "diagnostics": 1,
    "filters": 1,
    "foreign": 1,
    "plain_attention": 1,
    "pretrained": 1,
    "reading": 1,
    "render": 1,
    "seeds": 1,
    "spread": 1,
    "storage": 1,
    "diagnostician": 2,
    "diagnostics_config": 2,
    "envs": 2,
    "policies": 2,
    "rollout": 2,
    "scope_reader": 2,
    "scorers": 2,
    "terminal": 2,
    "thought_scores": 2,
    "trackers": 2,
    "training": 2,
    "integrations": 3,
    "report": 3,
    "seedlings": 3,
    "serving": 3,
    "audit": 4,
    "evaluation": 4,
    "presets": 4,
    "seed_statistics": 4,
    "studies": 4,
    "training.config": 4,
    "training.loop": 4,
    "training.parts": 4,
    "verdict": 4,
    "cli": 5,
    "__main__": 5,
}
"""Module, or package with all in it -> layer; the longest row that fits counts. `heedful` is the package's own page."""

SHARED = {"types", "configuration", "seeds", "spread"}
"""What its own layer may import too: the ground of layers 0 and 1."""

SIDEWAYS = {
    ("__main__", "cli"): "python -m heedful is the command line",
    ("render", "reading"): "a renderer reads the replies to what it rendered",
    ("diagnostician", "scorers"): "it names the scorer that it hands on",
    ("diagnostician", "scope_reader"): "the parts of one measurement",
    ("diagnostician", "thought_scores"): "the parts of one measurement",
    ("diagnostician", "diagnostics_config"): "the parts of one measurement",
    ("thought_scores", "scope_reader"): "the parts of one measurement",
    ("thought_scores", "diagnostics_config"): "the parts of one measurement",
    ("thought_scores", "scorers"): "it asks a scorer for what a measurement needs",
    ("training", "rollout"): "verdicts are given on what was collected",
    ("rollout", "policies"): "a collector says how a policy has to sample",
    ("rollout", "envs"): "the input-blind baseline plays the actions that an environment lists",
    ("presets", "training"): "a preset is a TrainConfig",
    ("studies", "presets"): "an arm starts from a preset",
    ("studies", "seed_statistics"): "differences over tasks are pooled as gains are",
    ("studies", "training"): "an arm is a TrainConfig, and samples with the parts of a run",
    ("training", "evaluation"): "the loop evaluates",
    ("studies", "evaluation"): "a study compares evaluations",
    ("verdict", "evaluation"): "a verdict compares evaluations",
    ("verdict", "training"): "a verdict reads the TrainConfig",
}
"""(folder, folder) of one layer that may be imported all the same -> why. Everything else imports down."""

WALL_A = {"heedful": {"types", "protocols", "spread", "diagnostics"}, "others": {"numpy", "scipy"}}
"""All that the diagnostics may import: what they measure is passed in."""

WALL_B = {"diagnostician", "scorers", "rollout.episode", "trackers"}
"""All that the integrations may import besides layers 0 and 1."""

FOREIGN_TRAINERS = {"trl", "verl"}

HEAVY = ("torch", "transformers", "tokenizers", "safetensors")

NEEDS_TORCH = {
    "algorithms.losses",
    "integrations",
    "plain_attention",
    "policies.hf",
    "policies.kept",
    "policies.kv",
    "policies.load",
    "policies.noise",
    "pretrained",
    "scorers.cached",
    "scorers.hf",
    "scorers.output_head",
    "scorers.packed",
    "scorers.packed_attention",
    "scorers.judge",
    "seedlings.grow",
    "studies.sampling",
    "seedlings.tokenizer",
    "training.adapters",
    "training.anatomy",
    "training.batch",
    "training.checkpoint",
    "training.critic",
    "training.descent",
    "training.distributed",
    "training.learner",
    "training.loop",
    "training.master_weights",
    "training.objective",
    "training.parts",
    "training.projection",
    "training.readings",
    "training.recompute",
    "training.sharding",
    "training.token_logits",
    "training.trajectory_gradients",
}
"""What may fail to load where the extra `train` is not installed; everything else must load."""


def module_of(file: Path) -> str:
    """`filters` for src/heedful/filters.py, `heedful` for the package's own page."""
    parts = list(file.relative_to(PACKAGE).with_suffix("").parts)
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join(parts) or "heedful"


MODULES = {module_of(file): file for file in sorted(PACKAGE.rglob("*.py"))}


def imports_of(module: str, source: str, is_package: bool = False) -> tuple[set[str], set[str]]:
    """What a module imports: (modules of heedful, top-level names of everything else)."""
    own: set[str] = set()
    others: set[str] = set()
    parents = [] if module == "heedful" else module.split(".")
    parents = ["heedful", *(parents if is_package else parents[:-1])]
    for node in ast.walk(ast.parse(source)):
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


IMPORTS = {
    module: imports_of(module, file.read_text(encoding="utf-8"), file.name == "__init__.py")
    for module, file in MODULES.items()
}


def belongs(module: str, rows: set[str]) -> bool:
    """Whether a module is one of the rows, or inside one."""
    return any(module == row or module.startswith(f"{row}.") for row in rows)


def layer_of(module: str) -> int:
    rows = [row for row in LAYERS if belongs(module, {row})]
    if not rows:
        pytest.fail(f"heedful.{module} has no layer: add a row for it to LAYERS in tests/test_layers.py.")
    return LAYERS[max(rows, key=len)]


def complaint(importer: str, imported: str) -> str:
    """A sentence about an import that points up or, without leave, sideways; empty where it is allowed."""
    upper, lower = layer_of(importer), layer_of(imported)
    folders = importer.split(".")[0], imported.split(".")[0]
    if lower < upper:
        return ""
    if lower == upper and (folders[0] == folders[1] or belongs(imported, SHARED) or folders in SIDEWAYS):
        return ""
    direction = "up" if lower > upper else "sideways"
    return f"heedful.{importer} (layer {upper}) imports heedful.{imported} (layer {lower}): {direction}."


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_down_or_sideways_within_a_folder(module: str) -> None:
    complaints = [complaint(module, imported) for imported in sorted(IMPORTS[module][0])]
    assert not [sentence for sentence in complaints if sentence]


def test_an_import_that_points_up_or_sideways_is_found() -> None:
    assert complaint("filters", "training.learner").endswith("(layer 2): up.")
    assert complaint("policies.hf", "scorers.hf").endswith("(layer 2): sideways.")
    assert complaint("training.learner", "training.loop").endswith("(layer 4): up.")
    assert complaint("policies.hf", "policies.kv") == ""
    assert complaint("filters", "spread") == ""
    with pytest.raises(pytest.fail.Exception, match=r"heedful\.helpers has no layer: add a row"):
        layer_of("helpers")


def test_every_way_to_write_an_import_is_read() -> None:
    source = """
import torch.nn
from heedful import filters
from heedful.storage import read_metrics
def later():
    from .hf import HfPolicy
    from ..envs import tasks
    import heedful.models.render
"""
    own, others = imports_of("policies.load", source)
    assert own == {"filters", "storage", "policies.hf", "envs.tasks", "render"}
    assert others == {"torch"}


def test_no_modules_import_each_other_in_a_circle() -> None:
    # A package's own page gathers its modules; they may import each other, but not through it.
    graph = {module: IMPORTS[module][0] - {"heedful", module} for module in MODULES if module != "heedful"}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        pytest.fail(f"Modules import each other in a circle: {' -> '.join(error.args[1])}.")


@pytest.mark.parametrize("module", [module for module in MODULES if belongs(module, {"diagnostics"})])
def test_wall_a_diagnostics_reach_nothing_but_what_is_passed_in(module: str) -> None:
    own, others = IMPORTS[module]
    judge = {"sklearn", "threadpoolctl"} if module == "diagnostics.text" else set()
    allowed = WALL_A["others"] | judge | sys.stdlib_module_names
    assert not {name for name in own if not belongs(name, WALL_A["heedful"])}
    assert not others - allowed


def test_wall_b_integrations_never_load_our_training_nor_we_a_foreign_trainer() -> None:
    for module, (own, others) in IMPORTS.items():
        if belongs(module, {"integrations"}):
            outside = {name for name in own if layer_of(name) > 1 and not belongs(name, WALL_B | {"integrations"})}
            assert not outside, f"heedful.{module} imports {sorted(outside)}, which an integration must not load."
        else:
            assert not others & FOREIGN_TRAINERS, f"heedful.{module} imports a trainer that only integrations may."


def in_a_fresh_process(program: str) -> str:
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
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


def test_wall_c_importing_heedful_loads_the_plain_types_only() -> None:
    loaded = in_a_fresh_process("""
import sys
before = set(sys.modules)
import heedful
print(*sorted({name for name in set(sys.modules) - before if name.split(".")[0] not in sys.stdlib_module_names}))
""")
    assert set(loaded.split()) <= {"heedful", "heedful.types", "heedful.protocols"}
