"""The page `docs/results/proofs.md`, made from the JUnit report of `make proofs`.

The page shows every proof of the report, failures included, and refuses a report without a single proof.

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


def page(report: ElementTree.Element, origin: str) -> str:
    """The page in Markdown. Raises ValueError if the report contains no test."""
    # A module whose library is missing is reported as one skipped case without a class: it is no proof.
    cases = [case for case in report.iter("testcase") if case.get("classname")]
    cases.sort(key=lambda case: (case.get("classname", ""), case.get("name", "")))
    if not cases:
        raise ValueError("Expected proofs in the report, found none: is anything marked with @pytest.mark.proof?")
    held = sum(_result(case) == "holds" for case in cases)
    rows = [
        f"| {_sentence(case)} | {_size(case)} | {_result(case)}{_found(case)} | {float(case.get('time', 0)):.1f} |"
        for case in cases
    ]
    return "\n".join(
        [
            "# Property proofs at full size",
            "",
            f"Written by `make proofs`. Do not edit. {held} of {len(cases)} hold. {origin}",
            "",
            "| proof | cases | result | seconds |",
            "|---|---:|---|---:|",
            *rows,
            "",
        ]
    )


def main(arguments: Sequence[str]) -> int:
    report, target = map(Path, arguments)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(page(ElementTree.parse(report).getroot(), _origin()), encoding="utf-8")
    print(f"Wrote {target}.")
    return 0


def _sentence(case: ElementTree.Element) -> str:
    name, bracket, parameters = case.get("name", "").removeprefix("test_").partition("[")
    return name.replace("_", " ") + (f" ({parameters.removesuffix(']')})" if bracket else "")


def _found(case: ElementTree.Element) -> str:
    values = [each.get("value", "") for each in case.iter("property") if each.get("name") == "found"]
    return f": {values[0]}" if values else ""


def _size(case: ElementTree.Element) -> str:
    values = [each.get("value", "") for each in case.iter("property") if each.get("name") == "cases"]
    return f"{int(values[0]):,}" if values else "-"


def _result(case: ElementTree.Element) -> str:
    outcomes = {"failure": "**fails**", "error": "**breaks**", "skipped": "skipped"}
    return next((word for tag, word in outcomes.items() if case.find(tag) is not None), "holds")


def _origin() -> str:
    """The day, the commit and the versions of the result."""
    git = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    commit = f", commit {git.stdout.strip()}" if git.returncode == 0 else ""
    versions = [f"Python {platform.python_version()}"]
    for package in PACKAGES:
        try:
            versions.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return f"{datetime.now(UTC):%Y-%m-%d}{commit}, {', '.join(versions)}."


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
