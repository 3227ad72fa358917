"""The pages that the site adds to docs/, and links that hold there as in the repository."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def pages() -> ModuleType:
    spec = importlib.util.spec_from_file_location("site_pages", ROOT / "docs" / "site_pages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("path", "link", "uri", "expected"),
    [
        ("docs/training.md", "metrics.md#scopes", "training.md", "metrics.md#scopes"),
        ("docs/training.md", "../src/heedful/types.py", "training.md", "repository/src/heedful/types.py.md"),
        ("docs/results/chain.md", "../../CONTRIBUTING.md", "results/chain.md", "../repository/CONTRIBUTING.md"),
        ("README.md", "docs/images/report.png", "index.md", "images/report.png"),
        ("CONTRIBUTING.md", "docs/glossary.md", "repository/CONTRIBUTING.md", "../glossary.md"),
        ("docs/training.md", "../README.md", "training.md", "index.md"),
        ("docs/trl.md", "https://example.org/a.md", "trl.md", "https://example.org/a.md"),
        ("docs/trl.md", "#three-lines", "trl.md", "#three-lines"),
    ],
)
def test_a_link_leads_to_the_same_file_on_the_site(
    pages: ModuleType, path: str, link: str, uri: str, expected: str
) -> None:
    assert pages.relinked(f"See [it]({link}), there.", path, uri) == f"See [it]({expected}), there."


def test_a_picture_that_is_a_link_is_turned_twice(pages: ModuleType) -> None:
    badge = "[![Licence](docs/images/badge.svg)](LICENSE)"
    assert pages.relinked(badge, "README.md", "index.md") == "[![Licence](images/badge.svg)](repository/LICENSE.md)"


def test_code_is_left_as_it_is(pages: ModuleType) -> None:
    code = "```python\nrows[0](../x.md)\n```\n"
    assert pages.relinked(code, "docs/a.md", "a.md") == code


def test_the_files_that_pages_link_to_become_pages_and_so_do_those_behind_them(
    pages: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "notes.md").write_text("[code](src/code.py) and [docs](docs/a.md)")
    (tmp_path / "src" / "code.py").write_text("answer = 42\n")
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    found = pages.linked(
        tmp_path, {"docs/a.md": "[notes](../notes.md) [gone](../gone.md)\n```\n[code](../no.md)\n```\n"}
    )
    assert found == ["notes.md", "src/code.py"]
    assert "````python\nanswer = 42\n````" in pages.repository_page(tmp_path, "src/code.py")


def test_a_folder_that_a_page_links_to_becomes_a_list_of_its_files(pages: ModuleType, tmp_path: Path) -> None:
    tables = tmp_path / "results" / "tables"
    (tables / "old").mkdir(parents=True)
    for name in ("b.md", "a.csv"):
        (tables / name).write_text("x")
    found = pages.linked(tmp_path, {"docs/a.md": "[all tables](../results/tables)"})
    assert found == ["results/tables", "results/tables/a.csv", "results/tables/b.md"]
    assert pages.repository_page(tmp_path, "results/tables") == (
        "# results/tables\n\n- [a.csv](tables/a.csv)\n- [b.md](tables/b.md)\n"
    )


def test_every_link_of_a_page_leads_to_a_page_or_file_of_the_site(pages: ModuleType) -> None:
    texts = {str(each.relative_to(ROOT)): each.read_text(encoding="utf-8") for each in (ROOT / "docs").rglob("*.md")}
    texts["README.md"] = (ROOT / "README.md").read_text(encoding="utf-8")
    made = {path: pages.repository_page(ROOT, path) for path in pages.linked(ROOT, texts)}
    dead = {
        (path, link)
        for path, text in (texts | made).items()
        for link in pages.LINK.findall(pages._outside_code(text, lambda part: part, code=""))
        if (target := pages._resolved(path, link)) not in made
        and target not in texts
        and not (target.startswith("docs/") and (ROOT / target).is_file())
    }
    assert dead == set()


def test_a_package_that_exports_names_shows_these_and_another_one_its_modules(
    pages: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package, init in [("open", '__all__ = ["f"]\n'), ("shut", '"""Nothing."""\n')]:
        folder = tmp_path / "x" / package
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text(init)
        (folder / "part.py").write_text("")
        (folder / "_own.py").write_text("")
        (folder / "inner").mkdir()
        (folder / "inner" / "deep.py").write_text("")
    monkeypatch.setattr(pages, "SOURCE", tmp_path)
    assert re.findall(r"^::: (.*)$", pages.api_page("api/x.open.md"), flags=re.MULTILINE) == ["x.open"]
    shut = re.findall(r"^::: (.*)$", pages.api_page("api/x.shut.md"), flags=re.MULTILINE)
    assert shut == ["x.shut", "x.shut.inner.deep", "x.shut.part"]


def test_every_page_of_the_api_is_a_package(pages: ModuleType) -> None:
    names = re.findall(r"- api/(\S+)\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    assert len(names) >= 12
    assert [name for name in names if not (ROOT / "src").joinpath(*name.split("."), "__init__.py").is_file()] == []
