"""The page that `make proofs` writes."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from proof_results import page, rows_of

REPORT = """
<testsuites><testsuite>
  <testcase classname="tests.test_b" name="test_ties_share_credit[top_p]" time="1.24"/>
  <testcase classname="tests.test_a" name="test_a_constant_group_earns_nothing" time="12.5">
    <properties><property name="cases" value="10000"/><property name="found" value="all 0"/></properties>
  </testcase>
  <testcase classname="tests.test_c" name="test_mi_is_below_its_ceiling" time="0"><failure message="no"/></testcase>
</testsuite></testsuites>
"""


ROWS = [
    "| tests/test_a.py | a constant group earns nothing | 10,000 | holds: all 0 | 12.5 | abc |",
    "| tests/test_b.py | ties share credit (top_p) | - | holds | 1.2 | abc |",
    "| tests/test_c.py | mi is below its ceiling | - | **fails** | 0.0 | abc |",
]


def test_every_proof_gets_a_row_with_its_size_and_result() -> None:
    lines = page(ElementTree.fromstring(REPORT), "abc", "Today.").splitlines()
    assert lines[2] == "Written by `make proofs`. Do not edit. 2 of 3 rows hold. The last run: Today."
    assert lines[6:] == ROWS


def test_a_part_replaces_the_rows_of_its_files_and_keeps_those_of_other_files_that_exist(tmp_path: Path) -> None:
    earlier = page(ElementTree.fromstring(REPORT), "abc", "Today.")
    (tmp_path / "tests").mkdir()
    for name in ("test_a.py", "test_b.py"):
        (tmp_path / "tests" / name).touch()
    kept = rows_of(earlier, tmp_path)
    assert kept == ROWS[:2]
    again = ElementTree.fromstring('<t><testcase classname="tests.test_b" name="test_new" time="2"/></t>')
    lines = page(again, "def", "Tomorrow.", kept).splitlines()
    assert lines[2].startswith("Written by `make proofs`. Do not edit. 2 of 2 rows hold.")
    assert lines[6:] == [ROWS[0], "| tests/test_b.py | new | - | holds | 2.0 | def |"]


def test_settings_under_which_a_proof_holds_share_a_row_and_one_that_fails_has_its_own() -> None:
    proofs = "".join(
        f'<testcase classname="tests.test_a" name="test_new[{setting}]" time="1.5">'
        f'<properties><property name="cases" value="{cases}"/></properties>{"<failure/>" if setting == "bad" else ""}'
        "</testcase>"
        for setting, cases in (("one", 900), ("bad", 5), ("two", 100))
    )
    lines = page(ElementTree.fromstring(f"<t>{proofs}</t>"), "abc", "Today.").splitlines()
    assert lines[6:] == [
        "| tests/test_a.py | new (2 settings) | 1,000 | holds | 3.0 | abc |",
        "| tests/test_a.py | new (bad) | 5 | **fails** | 1.5 | abc |",
    ]


def test_a_page_of_another_form_has_no_rows_to_keep(tmp_path: Path) -> None:
    assert rows_of("| proof | cases |\n|---|---|\n| a | 1 |\n", tmp_path) == []


def test_a_report_without_proofs_is_refused() -> None:
    with pytest.raises(ValueError, match="found none"):
        page(ElementTree.fromstring("<testsuites><testsuite/></testsuites>"), "", "")
