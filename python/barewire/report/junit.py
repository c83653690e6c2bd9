# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A gate as JUnit XML, which continuous integration shows: one test case for each test, subject and size."""

import re
from xml.etree import ElementTree

from barewire.report.gate import Gate, GateRow

# What XML 1.0 allows; names come from files.
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(gate: Gate, name: str) -> bytes:
    """Return the document: slower rows are failures, undecided ones skipped, with their numbers."""
    counts = {
        "tests": str(len(gate.rows)),
        "failures": str(len(gate.of("slower"))),
        "errors": "0",
        "skipped": str(len(gate.of("undecided"))),
        "time": "0",
    }
    suites = ElementTree.Element("testsuites", {key: counts[key] for key in ("tests", "failures", "errors", "time")})
    suite = ElementTree.SubElement(suites, "testsuite", {"name": _clean(name), **counts})
    for row in gate.rows:
        suite.append(_case(row, gate.limit))
    ElementTree.indent(suites)
    document: bytes = ElementTree.tostring(suites, encoding="utf-8", xml_declaration=True)
    return document


def _case(row: GateRow, limit: float) -> ElementTree.Element:
    series = row.series
    names = {"classname": _clean(f"{series.test}.{series.subject}"), "name": _clean(row.label), "time": "0"}
    case = ElementTree.Element("testcase", names)
    if row.state == "slower":
        message = _clean(f"{row.numbers} times as slow, more than the {1 + limit:.4g} allowed")
        ElementTree.SubElement(case, "failure", {"message": message, "type": "slower"}).text = message
    elif row.state == "undecided":
        ElementTree.SubElement(case, "skipped", {"message": _clean(f"undecided: {row.numbers}; {row.reason}")})
    ElementTree.SubElement(case, "system-out").text = _clean(
        f"slowdown {row.numbers}{', normalised by the floor' if row.normalised else ''}"
    )
    return case


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text)
