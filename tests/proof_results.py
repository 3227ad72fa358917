"""The page `docs/results/proofs.md`, made from the JUnit report of `make proofs`.

The page shows every proof of the report, failures included, and refuses a report without a single proof. The settings
of one test under which it holds share a row. Those that fail, or found something, have a row of their own. A report of
some files (`make proofs OF="tests/faults"`) replaces the rows of these files. The other rows stay, with the commit at
which they ran, as long as their file exists.

A proof states its size with `record_property("cases", 10_000)`, and may add a result in words under the name `found`.
"""

from __future__ import annotations

import importlib.metadata
import platform
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree

PACKAGES = ("heedful", "numpy", "scipy", "torch", "hypothesis")
COLUMNS = "| file | proof | cases | result | seconds | commit |"


def page(report: ElementTree.Element, commit: str, origin: str, kept: Sequence[str] = ()) -> str:
    """The page in Markdown; `kept` are rows of other files. Raises ValueError if the report contains no test."""
    # A module whose library is missing is reported as one skipped case without a class: it is no proof.
    cases = [case for case in report.iter("testcase") if case.get("classname")]
    if not cases:
        raise ValueError("Expected proofs in the report, found none: is anything marked with @pytest.mark.proof?")
    files = {_file(case) for case in cases}
    rows = [row for row in kept if _cell(row, 0) not in files]
    alike: dict[tuple[str, str, str], list[ElementTree.Element]] = {}
    for case in cases:
        name, result = case.get("name", ""), _result(case) + _found(case)
        alike.setdefault((_file(case), name.partition("[")[0] if result == "holds" else name, result), []).append(case)
    for (file, _, result), group in alike.items():
        sentence = _sentence(group[0])
        if len(group) > 1:
            sentence = f"{sentence.partition(' (')[0]} ({len(group)} settings)"
        size, seconds = sum(map(_size, group)), sum(float(case.get("time", 0)) for case in group)
        cells = [file, sentence, f"{size:,}" if size else "-", result, f"{seconds:.1f}", commit]
        rows.append(f"| {' | '.join(cells)} |")
    rows.sort(key=lambda row: (_cell(row, 0), _cell(row, 1)))
    held = sum(_cell(row, 3).startswith("holds") for row in rows)
    return "\n".join(
        [
            "# Property proofs at full size",
            "",
            f"Written by `make proofs`. Do not edit. {held} of {len(rows)} rows hold. The last run: {origin}",
            "",
            COLUMNS,
            "|---|---|---:|---|---:|---|",
            *rows,
            "",
        ]
    )


def rows_of(text: str, root: Path) -> list[str]:
    """The rows of an earlier page whose test file exists under `root`. A page of another form has none."""
    _, header, table = text.partition(COLUMNS)
    rows = table.splitlines()[2:] if header else []
    return [row for row in rows if row.startswith("|") and (root / _cell(row, 0)).is_file()]


def main(arguments: Sequence[str]) -> int:
    """Write the page. With `--part`, the rows of files that are not in the report are kept."""
    part = "--part" in arguments
    report, target = (Path(each) for each in arguments if each != "--part")
    target.parent.mkdir(parents=True, exist_ok=True)
    kept = rows_of(target.read_text(encoding="utf-8"), Path.cwd()) if part and target.exists() else []
    target.write_text(page(ElementTree.parse(report).getroot(), _commit(), _origin(), kept), encoding="utf-8")
    print(f"Wrote {target}.")
    return 0


def _cell(row: str, index: int) -> str:
    return row.removeprefix("| ").removesuffix(" |").split(" | ")[index]


def _file(case: ElementTree.Element) -> str:
    return case.get("classname", "").replace(".", "/") + ".py"


def _sentence(case: ElementTree.Element) -> str:
    name, bracket, parameters = case.get("name", "").removeprefix("test_").partition("[")
    return name.replace("_", " ") + (f" ({parameters.removesuffix(']')})" if bracket else "")


def _found(case: ElementTree.Element) -> str:
    values = [each.get("value", "") for each in case.iter("property") if each.get("name") == "found"]
    return f": {values[0]}" if values else ""


def _size(case: ElementTree.Element) -> int:
    """The cases that it states; 0 where it states none."""
    return sum(int(each.get("value", 0)) for each in case.iter("property") if each.get("name") == "cases")


def _result(case: ElementTree.Element) -> str:
    outcomes = {"failure": "**fails**", "error": "**breaks**", "skipped": "skipped"}
    return next((word for tag, word in outcomes.items() if case.find(tag) is not None), "holds")


def _commit() -> str:
    """The commit of the working tree, marked where files differ from it."""
    git = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    return git.stdout.strip() if git.returncode == 0 else "unknown"


def _origin() -> str:
    """The day and the versions of the result."""
    versions = [f"Python {platform.python_version()}"]
    for package in PACKAGES:
        try:
            versions.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return f"{datetime.now(UTC):%Y-%m-%d}, {', '.join(versions)}."


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
