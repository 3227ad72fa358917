"""The documentation of settings, read from the source: the string literal under each field.

A class without source, as in an interactive session, has no documentation.
"""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import sys


@functools.cache
def field_docs(cls: type) -> dict[str, str]:
    """Field name -> its documentation on one line; inherited fields are described by the class that declares them."""
    docs: dict[str, str] = {}
    for each in reversed(cls.__mro__):
        node = _class_nodes(each.__module__).get(each.__qualname__)
        body = node.body if node is not None else []
        for field, literal in itertools.pairwise(body):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                text = _text(literal)
                if text:
                    docs[field.target.id] = text
    return docs


def paragraph(cls: type) -> str:
    """The first paragraph of a class's docstring, on one line."""
    written = cls.__doc__ or ""
    # A dataclass without a docstring gets its signature as one.
    if written.startswith(f"{cls.__name__}("):
        return ""
    return " ".join(inspect.cleandoc(written).split("\n\n")[0].split())


@functools.cache
def _class_nodes(module: str) -> dict[str, ast.ClassDef]:
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (KeyError, OSError, TypeError):
        return {}
    nodes: dict[str, ast.ClassDef] = {}
    _collect(tree, "", nodes)
    return nodes


def _collect(parent: ast.AST, prefix: str, nodes: dict[str, ast.ClassDef]) -> None:
    for child in ast.iter_child_nodes(parent):
        if isinstance(child, ast.ClassDef):
            nodes[f"{prefix}{child.name}"] = child
            _collect(child, f"{prefix}{child.name}.", nodes)
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            _collect(child, f"{prefix}{child.name}.<locals>.", nodes)
        elif isinstance(child, ast.If | ast.Try):
            _collect(child, prefix, nodes)


def _text(node: ast.stmt) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return " ".join(node.value.value.split())
    return ""
