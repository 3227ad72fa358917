"""The modules of heedful and its annexes as syntax trees. Each file is parsed and walked once."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src" / "heedful"
SOURCES = sorted(PACKAGE.rglob("*.py"))
"""The core."""

ROOT = PACKAGE.parents[1]
WHOLE_HOUSE = sorted([*(ROOT / "src").rglob("*.py"), *(ROOT / "research").rglob("*.py")])
"""The core and its annexes."""

Nodes = list[ast.AST]


def nodes_of(source: str) -> Nodes:
    return list(ast.walk(ast.parse(source)))


@cache
def nodes(file: Path) -> Nodes:
    """The module first, then all that is in it."""
    return nodes_of(file.read_text(encoding="utf-8"))


def tree(file: Path) -> ast.Module:
    module = nodes(file)[0]
    assert isinstance(module, ast.Module)
    return module


def statements(tree: ast.Module) -> Iterator[ast.AST]:
    """All statements of a module, at any depth. Expressions hold no imports, and are most of a tree."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        for block in ("body", "orelse", "handlers", "finalbody", "cases"):
            waiting += getattr(node, block, ())
