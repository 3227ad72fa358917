"""Pages of the site that are no files in docs/, and links that hold there as they do in the repository.

`mkdocs build` calls the functions that begin with `on_`. Three kinds of pages are made:

- `index.md`, the README;
- `api/PACKAGE.md` for each such entry of the navigation, from the package's docstrings;
- `repository/PATH.md` for every file or folder outside docs/ that a page links to, so that links to sources work
  without a host. The page of a folder lists its files.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
FENCE = re.compile(r"^(`{3,}).*?^\1`*\s*$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)\s#]+)")
"""The path of a relative link or image, without its anchor."""

LANGUAGES = {".py": "python", ".toml": "toml", ".cff": "yaml", ".json": "json", ".sh": "bash"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made, and those that these link to."""
    from mkdocs.structure.files import File

    written = {file.src_uri: _read(origin(file.src_uri)) for file in files.documentation_pages()}
    made = {"index.md": _read("README.md")}
    made |= {uri: api_page(uri) for uri in _uris(config.nav) if uri.startswith("api/")}
    for path in linked(
        ROOT, {origin(uri): text for uri, text in (written | made).items() if not uri.startswith("api/")}
    ):
        made[site_uri(path)] = repository_page(ROOT, path)
    for uri, text in made.items():
        files.append(File.generated(config, uri, content=text))
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: Any) -> str:
    """Turn links of the repository into links of the site."""
    uri = page.file.src_uri
    return markdown if uri.startswith("api/") else relinked(markdown, origin(uri), uri)


def origin(uri: str) -> str:
    """The file of the repository that a page of the site shows.

    The inverse of `site_uri`, but for the ending of files that are no Markdown, which links do not need.
    """
    if uri == "index.md":
        return "README.md"
    if uri.startswith("repository/"):
        return uri.removeprefix("repository/")
    return f"docs/{uri}"


def site_uri(path: str) -> str:
    """Where the site shows a file of the repository."""
    if path == "README.md":
        return "index.md"
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return f"repository/{path}" if path.endswith(".md") else f"repository/{path}.md"


def relinked(markdown: str, path: str, uri: str) -> str:
    """The Markdown of a file of the repository, with links as they have to be at a place of the site."""

    def target(link: re.Match[str]) -> str:
        found = _resolved(path, link[1])
        return os.path.relpath(site_uri(found), PurePosixPath(uri).parent)

    return _outside_code(markdown, lambda text: LINK.sub(target, text))


def linked(root: Path, pages: dict[str, str]) -> list[str]:
    """The files and folders outside docs/ that pages link to, and those that these link to.

    Args:
        root: The repository.
        pages: Path in the repository -> Markdown.
    """
    found: dict[str, None] = {}
    waiting = list(pages.items())
    while waiting:
        path, text = waiting.pop()
        for link in LINK.findall(_outside_code(text, lambda part: part, code="")):
            target = _resolved(path, link)
            if target in found or target in pages or target.startswith("docs/") or not (root / target).exists():
                continue
            found[target] = None
            if target.endswith(".md") or (root / target).is_dir():
                waiting.append((target, repository_page(root, target)))
    return sorted(found)


def repository_page(root: Path, path: str) -> str:
    """The page of a file: Markdown as it is, anything else as a listing. The page of a folder: links to its files."""
    place = root / path
    if place.is_dir():
        names = sorted(each.name for each in place.iterdir() if each.is_file())
        return f"# {path}\n\n" + "".join(f"- [{name}]({place.name}/{name})\n" for name in names)
    text = _read_file(place)
    if path.endswith(".md"):
        return text
    return f"# {path}\n\n````{LANGUAGES.get(Path(path).suffix, 'text')}\n{text.rstrip()}\n````\n"


def api_page(uri: str) -> str:
    """The page of a package: what it exports, or its public modules where it exports nothing."""
    name = PurePosixPath(uri).stem
    folder = SOURCE.joinpath(*name.split("."))
    if exports(_read_file(folder / "__init__.py")) or name == "heedful":
        return f"# {name}\n\n::: {name}\n"
    parts = [f"# {name}\n\n::: {name}\n    options:\n      members: false\n"]
    for module in sorted(folder.rglob("*.py")):
        if not module.stem.startswith("_"):
            full_name = ".".join(module.relative_to(SOURCE).with_suffix("").parts)
            parts.append(f"## {full_name}\n\n::: {full_name}\n    options:\n      heading_level: 3\n")
    return "\n".join(parts)


def exports(source: str) -> list[str]:
    """The names in a module's `__all__`."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and any(
            isinstance(each, ast.Name) and each.id == "__all__" for each in node.targets
        ):
            return list(ast.literal_eval(node.value))
    return []


def _outside_code(markdown: str, change: Callable[[str], str], code: str | None = None) -> str:
    """Markdown whose text outside of fenced code is changed; the code stays, or becomes `code`."""
    parts, begin = [], 0
    for fence in FENCE.finditer(markdown):
        parts += [change(markdown[begin : fence.start()]), fence[0] if code is None else code]
        begin = fence.end()
    return "".join([*parts, change(markdown[begin:])])


def _resolved(path: str, link: str) -> str:
    return os.path.normpath(PurePosixPath(path).parent / link)


def _uris(nav: Any) -> Iterator[str]:
    """The pages that a navigation names."""
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, dict | list):
        entries: Iterable[Any] = nav.values() if isinstance(nav, dict) else nav
        for entry in entries:
            yield from _uris(entry)


def _read(path: str) -> str:
    return _read_file(ROOT / path)


def _read_file(path: Path) -> str:
    return path.read_text(encoding="utf-8")
