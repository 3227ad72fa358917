"""Print the size, the guards and the jumps of every package, beside those of the last release. Nothing fails by it.

    make house                     # a table; figures of the last release stand in brackets
    make house ARGS=--record       # at a release: write the figures to .ci/house.json

- size: lines of Python, with docstrings and comments.
- guards: the share of code lines that only refuse something: an `if` that ends in `raise`, a `raise`, an `except` that
  raises another error, a `__post_init__`, and functions named check_, refuse_, require_ or validate_.
- jumps: private functions with one caller, each a place where a reader leaves the paragraph.
"""

from __future__ import annotations

import ast
import io
import json
import re
import sys
import tokenize
from collections import Counter, defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
RECORD = Path(__file__).with_suffix(".json")
NO_CODE = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
    *(tokenize.ENCODING, tokenize.ENDMARKER),
}
CORE = "heedful"


def package_of(path: Path) -> str:
    """`heedful/filters` for a file of the core, else the import package."""
    parts = path.relative_to(ROOT / "src" if (ROOT / "src") in path.parents else ROOT).parts
    return "/".join(parts[:2]) if parts[0] == CORE and len(parts) > 2 else parts[0]


def refuses(node: ast.AST) -> bool:
    """Whether a statement does nothing but refuse."""
    if isinstance(node, ast.Raise):
        return True
    if isinstance(node, ast.If):
        return not node.orelse and len(node.body) <= 3 and isinstance(node.body[-1], ast.Raise)
    if isinstance(node, ast.ExceptHandler):
        return isinstance(node.body[-1], ast.Raise) and node.body[-1].exc is not None
    if isinstance(node, ast.FunctionDef):
        return bool(re.match(r"__post_init__$|_*(check|refuse|require|validate)", node.name))
    return False


def lines_of(node: ast.AST) -> range:
    return range(node.lineno, node.end_lineno + 1)  # type: ignore[attr-defined]


def figures() -> dict[str, dict[str, int]]:
    """Package -> files, lines, code, guards, jumps."""
    paths = sorted([*(ROOT / "src").rglob("*.py"), *(ROOT / "research").rglob("*.py")])
    texts = {path: path.read_text(encoding="utf-8") for path in paths}
    words = Counter(re.findall(r"[A-Za-z_]\w*", "\n".join(texts.values())))
    found: dict[str, dict[str, int]] = defaultdict(
        lambda: dict.fromkeys(("files", "lines", "code", "guards", "jumps"), 0)
    )
    for path, text in texts.items():
        nodes = list(ast.walk(ast.parse(text)))
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        code = {
            line for token in tokens if token.type not in NO_CODE for line in range(token.start[0], token.end[0] + 1)
        }
        for node in nodes:
            if (
                isinstance(node, ast.Expr)
                and isinstance(node.value, ast.Constant)
                and isinstance(node.value.value, str)
            ):
                code -= set(lines_of(node))  # a docstring
        guards = {line for node in nodes if refuses(node) for line in lines_of(node)}
        private = [node.name for node in nodes if isinstance(node, ast.FunctionDef) and re.match(r"_[a-z]", node.name)]
        row = found[package_of(path)]
        row["files"] += 1
        row["lines"] += len(text.splitlines())
        row["code"] += len(code)
        row["guards"] += len(guards & code)
        row["jumps"] += sum(words[name] == 2 for name in private)
    core = [row for name, row in found.items() if name.startswith(CORE + "/") or name == CORE]
    found["core"] = {key: sum(row[key] for row in core) for key in core[0]}
    parts = [row for name, row in found.items() if name != "core"]
    found["all"] = {key: sum(row[key] for row in parts) for key in parts[0]}
    return found


def main() -> None:
    now = figures()
    if "--record" in sys.argv:
        RECORD.write_text(json.dumps(now, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    before = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    print(f"{'package':24}{'files':>12}{'lines':>18}{'guards':>18}{'jumps':>14}      (last release)")
    order = sorted(now, key=lambda name: (name in ("core", "all"), name == "all", -now[name]["lines"]))
    for name in order:
        row, old = now[name], before.get(name)
        share = f"{100 * row['guards'] / max(row['code'], 1):.1f}%"
        was = f"{100 * old['guards'] / max(old['code'], 1):.1f}%" if old else "-"
        cells = [(row[key], old[key] if old else "-") for key in ("files", "lines", "jumps")]
        files, lines, jumps = (f"{new} ({earlier})" for new, earlier in cells)
        print(f"{name:24}{files:>12}{lines:>18}{f'{share} ({was})':>18}{jumps:>14}")


if __name__ == "__main__":
    main()
