"""Every place that can turn a name or a file into code stands in SECURITY.md, with the reason why it is safe."""

import ast
import re
from pathlib import Path

import pytest

from source_trees import WHOLE_HOUSE, Nodes, nodes, nodes_of

ROOT = Path(__file__).parents[1]

WATCHED = {
    *("import_module", "__import__", "spec_from_file_location", "exec_module", "run_path", "run_module"),
    *("eval", "exec", "compile", "from_pretrained", "apply_chat_template", "from_string"),
    *("jinja2.Environment", "load_dataset", "torch.load", "pickle.load", "pickle.loads", "marshal.loads"),
    *("np.load", "yaml.load", "joblib.load", "shelve.open", "read_pickle", "entry_points", "ParquetFile"),
}
"""Names of calls: the last part alone, or with what stands before it."""


def watched_calls(nodes: Nodes) -> set[str]:
    """The watched calls of a module. `model.eval()` and `re.compile` are methods of other things."""
    found = set()
    for node in nodes:
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        if isinstance(function, ast.Name) and function.id in WATCHED:
            found.add(function.id)
        if isinstance(function, ast.Attribute):
            before = function.value.id if isinstance(function.value, ast.Name) else ""
            called = f"{before}.{function.attr}"
            builtin = function.attr in ("eval", "exec", "compile")
            if called in WATCHED:
                found.add(called)
            elif function.attr in WATCHED and not builtin:
                found.add(function.attr)
    return found


def stated() -> dict[str, set[str]]:
    """The table of SECURITY.md: module -> what it uses."""
    page = (ROOT / "SECURITY.md").read_text(encoding="utf-8").partition("| module | what it uses |")[2]
    rows = re.findall(r"^\| `([\w.]+)` \| ([^|]*) \|", page, flags=re.MULTILINE)
    return {module: set(re.findall(r"`([\w.]+)`", uses)) for module, uses in rows}


def found() -> dict[str, set[str]]:
    calls = {}
    for file in WHOLE_HOUSE:
        used = watched_calls(nodes(file))
        if used:
            parts = file.relative_to(ROOT).with_suffix("").parts
            calls[".".join(parts).removeprefix("src.").removesuffix(".__init__")] = used
    return calls


def test_the_page_lists_every_place_that_can_run_code() -> None:
    assert stated() == found()


def test_every_loader_of_models_says_whose_code_may_run() -> None:
    """No call leaves the decision to transformers, which would ask on standard input."""
    for file in WHOLE_HOUSE:
        for node in nodes(file):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            given = {keyword.arg: keyword.value for keyword in node.keywords}
            if node.func.attr == "from_pretrained":
                assert "trust_remote_code" in given, f"{file.name}:{node.lineno}"
                assert not (isinstance(given["trust_remote_code"], ast.Constant) and given["trust_remote_code"].value)
            called = ast.unparse(node.func) if node.func.attr == "load" else ""
            if called == "torch.load":
                assert ast.unparse(given["weights_only"]) == "True", f"{file.name}:{node.lineno}"
            if called == "np.load":
                assert ast.unparse(given["allow_pickle"]) == "False", f"{file.name}:{node.lineno}"


@pytest.mark.parametrize(
    ("source", "calls"),
    [
        ("import importlib; importlib.import_module(name)", {"import_module"}),
        ("from pickle import loads; pickle.loads(x); model.eval(); re.compile('a')", {"pickle.loads"}),
        ("eval(text); AutoModel.from_pretrained(x)", {"eval", "from_pretrained"}),
        ("torch.load(path); self.load(path)", {"torch.load"}),
    ],
)
def test_the_search_finds_what_runs_code_and_nothing_else(source: str, calls: set[str]) -> None:
    assert watched_calls(nodes_of(source)) == calls
