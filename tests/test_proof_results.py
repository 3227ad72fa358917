"""The page that `make proofs` writes."""

from xml.etree import ElementTree

import pytest

from proof_results import page

REPORT = """
<testsuites><testsuite>
  <testcase classname="tests.test_b" name="test_ties_share_credit[top_p]" time="1.24"/>
  <testcase classname="tests.test_a" name="test_a_constant_group_earns_nothing" time="12.5">
    <properties><property name="cases" value="10000"/><property name="found" value="all 0"/></properties>
  </testcase>
  <testcase classname="tests.test_c" name="test_mi_is_below_its_ceiling" time="0"><failure message="no"/></testcase>
</testsuite></testsuites>
"""


def test_every_proof_gets_a_row_with_its_size_and_result() -> None:
    lines = page(ElementTree.fromstring(REPORT), "Today.").splitlines()
    assert lines[2] == "Written by `make proofs`. Do not edit. 2 of 3 hold. Today."
    assert lines[6:] == [
        "| a constant group earns nothing | 10,000 | holds: all 0 | 12.5 |",
        "| ties share credit (top_p) | - | holds | 1.2 |",
        "| mi is below its ceiling | - | **fails** | 0.0 |",
    ]


def test_a_report_without_proofs_is_refused() -> None:
    with pytest.raises(ValueError, match="found none"):
        page(ElementTree.fromstring("<testsuites><testsuite/></testsuites>"), "")
